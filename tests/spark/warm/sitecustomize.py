"""Has Spark's Python processes begin sooner, and its daemons load once what workers import, which are forks and would import it anew.

Spark puts its own archives before all else on the path of these processes: PySpark once more, and a jar of 5854 classes. Each process calls
`importlib.invalidate_caches()`, which reads an archive's directory anew for each package that was imported from it: a fifth of a second of
the processor. Here they import PySpark from where it is installed, like the tests themselves; the demo, with a Spark of its own, goes on
with the archives.

A worker that fails ends, as where a mistake is refused, and the next one begins with half a second of imports. What a daemon loads are
PySpark's modules, NumPy and Arrow alone: wireproto is imported behind the fork, as anywhere. The planner of a stream, for which Spark has
no daemon, has its work done by a fork as well (`forks.py`), where WIREPROTO_SPARK_FORKS is the socket that takes it.

What it is: run by each Python process whose PYTHONPATH has this folder, as those of the session (`conftest.py`) and of the jobs that are
killed. May assume: PySpark is installed. Must not: import wireproto, do anything in another process than Spark's, or leave a thread in what
is forked.
"""

import os
import sys

if sys.orig_argv[1:2] == ["-m"] and sys.orig_argv[2].startswith("pyspark."):
    for place in [path for path in sys.path if "pyspark" in path and path.endswith((".zip", ".jar"))]:
        sys.path.remove(place)
        sys.path_importer_cache.pop(place, None)  # this module was looked for there

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

if sys.orig_argv[1:3] == ["-m", "pyspark.sql.streaming.python_streaming_source_runner"] and "WIREPROTO_SPARK_FORKS" in os.environ:
    import forks

    code = forks.handed_over(os.environ["WIREPROTO_SPARK_FORKS"])
    if code is not None:
        os._exit(code)
