#!/usr/bin/env bash
# Software:  PySpark 4.2.0 on CPython 3.11, a local session, JDK 17.
# Behaviour: Spark puts its own archives (pyspark.zip, py4j and the jar of spark-core) before the installed package on the path of its Python
#            processes, and each process calls importlib.invalidate_caches() once while it begins. That has every importer of an archive
#            read the archive's directory anew, and there is one importer for each package that was imported from it: each process that
#            makes, plans or reads a Python data source reads directories of thousands of entries more than ten times before it does any
#            work, also where PySpark is installed beside it.
# Seen:      2026-11-29: 16 or 17 readings in each of four processes for a query of one row, 0.15 s of the processor in each.
# Fails when no such process reads directories of archives 10 times.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q pyspark==4.2.0 pyarrow==26.0.1 "pandas<3"
mkdir "$folder/counted"
cat > "$folder/counted/sitecustomize.py" <<'PYTHON'
# Counts how often this process reads the directory of an archive, and the processor seconds of that.
import atexit
import os
import sys
import time
import zipimport

found = [0, 0.0]
plain = zipimport._read_directory


def reading(archive):
    began = time.process_time()
    try:
        return plain(archive)
    finally:
        found[0] += 1
        found[1] += time.process_time() - began
        with open(os.environ["COUNTED"] + f".{os.getpid()}", "w") as out:
            out.write(f"{found[0]} {found[1]} {' '.join(sys.orig_argv[1:3])}")


zipimport._read_directory = reading
PYTHON
export COUNTED="$folder/count" PYTHONPATH="$folder/counted" PYSPARK_PYTHON="$folder/venv/bin/python"
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import glob
import sys

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader


class One(DataSource):
    @classmethod
    def name(cls):
        return "one"

    def schema(self):
        return "value int"

    def reader(self, schema):
        class Reader(DataSourceReader):
            def read(self, partition):
                yield (1,)

        return Reader()


session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
session.dataSource.register(One)
assert session.read.format("one").load().collect()[0].value == 1
session.stop()
most = 0
for name in glob.glob(f"{sys.argv[1]}/count.*"):
    times, seconds, *program = open(name).read().split()
    print(f"{' '.join(program) or 'python'}: {times} readings, {float(seconds):.2f} s of the processor")
    most = max(most, int(times)) if "pyspark" in " ".join(program) else most
assert most >= 10, most
PYTHON
