"""Reading in Spark's processes does without pandas, whose import takes half a second of each; PySpark has it installed for most users."""

from __future__ import annotations

import subprocess
import sys

READ = """
import sys

from pyspark.sql import types
from wireproto._codec import ColumnsBuilder
from wireproto.position import LogOffset
from wireproto.records import Batch
from wireproto.spark.columns import Maker
from wireproto.spark.kafka_columns import FORM

rows = ColumnsBuilder("offset")
rows.append(b"one", key=b"k", headers=[("h", b"x")], timestamp=7, position=0)
rows.append(None, headers=[], position=1)
batch = Batch("topic", 3, rows.finish(), LogOffset("topic", 3, 2))
pair = types.StructType([types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())])
kinds = {"value": types.BinaryType(), "topic": types.StringType(), "partition": types.IntegerType(), "timestamp": types.TimestampType()}
kinds["headers"] = types.ArrayType(pair)
maker = Maker(FORM, types.StructType([types.StructField(name, kind) for name, kind in kinds.items()]))
(made,) = maker.stream([batch])
imported = "pandas" in sys.modules  # what tells rows imports it
print([(row["value"], row["topic"], row["partition"], row["headers"]) for row in made.to_pylist()], imported)
"""
SAID = "[(b'one', 'topic', 3, [{'key': 'h', 'value': b'x'}]), (None, 'topic', 3, None)] False\n"


def test_a_read_imports_no_pandas() -> None:
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", READ], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (0, SAID), ran.stdout + ran.stderr
