"""What workers of Spark's Python daemons import, loaded once by each daemon: a worker is a fork of it, and would import it anew.

A worker that fails ends, as where a mistake is refused, and the next one begins with half a second of imports. These are PySpark's modules,
NumPy and Arrow alone: wireproto is imported behind the fork, as anywhere.

What it is: run by each Python process whose PYTHONPATH has this folder, as those of the session (`conftest.py`). May assume: PySpark is
there. Must not: import wireproto, do anything in another process than a daemon, or leave a thread in what is forked.
"""

import os
import sys

if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"]:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # else NumPy starts threads, which are not there behind a fork
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")  # and Arrow one

    import importlib.metadata

    if sys.orig_argv[3:] == ["pyspark.worker"]:
        importlib.import_module("pandas")  # what tasks give to Spark goes through it
    import difflib  # noqa: F401
    import ssl  # noqa: F401

    import pyarrow.compute  # noqa: F401
    import pyspark.sql.datasource
    import pyspark.sql.worker.utils
    import pyspark.worker  # noqa: F401

    if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208
        print("a daemon of Spark's has threads, which would be missing in its workers", file=sys.stderr, flush=True)
        os._exit(1)
