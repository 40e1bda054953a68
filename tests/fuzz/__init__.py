"""The fuzzer: mutated inputs for everything that reads bytes of strangers, under the address and undefined-behaviour sanitizers.

    make fuzz                                     a minute a format
    make fuzz ARGS="--runs 10000000"              that many inputs for each format
    make fuzz ARGS="kafka-records --seconds 600"  one format

`samples.py` makes messages from the schema, `targets.py` says what is read and what must hold, `mutate.c` changes inputs, `build.py` builds
the core with the sanitizers into a folder of its own, `worker.py` runs one format, `__main__.py` starts and watches the workers.
`corpus/` keeps inputs that once failed, one file each, named FORMAT-what.hex; `tests/wire/test_hostile.py` runs them in `make test`.
"""
