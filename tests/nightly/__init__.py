"""`make nightly`: what is too long, or needs more than a clone, for `make test`; in pieces that go on where they ended.

`pieces.py` says what there is, `run.py` runs one and keeps how far it came under .cache/nightly, `work.py` tells which sources a result is
of, `page.py` keeps the newest result of each in .cache/nightly/results.md. `copies.py` and `bare.py` are places to run in: the tree again,
for another Python or compiler, and a Debian with nothing in it but what the README names.
"""
