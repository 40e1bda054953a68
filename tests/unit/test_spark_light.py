"""What Spark's processes do without, whose import takes each of them long: pandas, which PySpark has installed for most users, and more."""

from __future__ import annotations

import subprocess
import sys

import pytest

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


def said(program: str) -> str:
    """What a process of its own prints."""
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_a_read_imports_no_pandas() -> None:
    assert said(READ) == SAID


FIND = """
import sys
from pickle import dumps, loads

import pyspark_wireproto_kafka, pyspark_wireproto_pulsar, pyspark_wireproto_rocketmq, pyspark_wireproto_zookeeper

found = [module.DefaultSource for name, module in sorted(sys.modules.items()) if name.startswith("pyspark_wireproto")]
heavy = {"pyarrow", "wireproto.roles", *(f"wireproto.{name}" for name in ("kafka", "pulsar", "rocketmq", "zookeeper"))} & set(sys.modules)
print([source.name() for source in found], heavy)
print([type(loads(dumps(source))(options={"x": "y"})).__name__ for source in found])
"""
FOUND = """['kafka-wire', 'pulsar-wire', 'rocketmq-wire', 'zookeeper-wire'] set()
['KafkaWire', 'PulsarWire', 'RocketMQWire', 'ZooKeeperWire']
"""


def test_spark_finds_the_formats_without_their_imports() -> None:
    assert said(FIND) == FOUND


@pytest.mark.parametrize("protocol", ["kafka", "pulsar", "rocketmq", "zookeeper"])
def test_planning_imports_none_of_arrows_functions(protocol: str) -> None:
    assert said(f"import sys, wireproto.spark.{protocol}; print('pyarrow.compute' in sys.modules)") == "False\n"
