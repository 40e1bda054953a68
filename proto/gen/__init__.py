"""The schema generator: reads `proto/<protocol>/*.wire`, writes `src/wireproto/<protocol>/{messages,plans,codes}.py`.

Run as ``python -m proto.gen`` from the repository's root; ``--check`` only says whether the checked-in files are current. It uses the
standard library alone and nothing of the package. Parts: `model` (what a schema is), `parse` (text to model), `check` (rules that no
single line shows), `emit_*` (model to files).
"""
