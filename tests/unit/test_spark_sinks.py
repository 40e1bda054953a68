"""What the formats' sinks refuse of a table before anything of it is asked for. No JVM and no broker is needed."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, MapType, StringType, StructField, StructType

from wireproto.errors import OptionError
from wireproto.spark.kafka import KafkaWire
from wireproto.spark.pulsar import PulsarWire
from wireproto.spark.rocketmq import RocketMQWire
from wireproto.spark.zookeeper import ZooKeeperWire

SINKS: dict[str, Any] = {
    "kafka": lambda schema: KafkaWire({"kafka.bootstrap.servers": "localhost:1", "topic": "t"}).writes(schema),
    "pulsar": lambda schema: PulsarWire({"service.url": "localhost:1", "topic": "t"}).writes(schema),
    "rocketmq": lambda schema: RocketMQWire({"nameServer": "localhost:1", "topic": "t"}).writes(schema),
    "zookeeper": lambda schema: ZooKeeperWire({"hosts": "localhost:1"}).sink(schema),
}
PAIR = StructType([StructField("a", IntegerType()), StructField("b", IntegerType()), StructField("a", IntegerType())])


def table(*columns: tuple[str, Any]) -> StructType:
    return StructType([StructField(*column) for column in columns])


@pytest.mark.parametrize("form", SINKS)
def test_columns_of_one_name_are_refused_by_name_also_where_they_are_not_written(form: str) -> None:
    """A join leaves them; Spark hands no such rows to Python, and would say so in the tasks."""
    text = ("path", StringType()) if form == "zookeeper" else ("key", StringType())
    value = ("data" if form == "zookeeper" else "value", BinaryType())
    for more, said in (
        ([("id", IntegerType()), ("ts", StringType()), ("id", StringType()), ("ts", StringType())], "id, ts more than once"),
        ([value], f"{value[0]} more than once"),
        ([("both", PAIR)], r"both\.a more than once"),
        ([("both", ArrayType(MapType(StringType(), PAIR)))], r"both\.a more than once"),
    ):
        with pytest.raises(OptionError, match=f"the table has {said}.*select the columns.*or rename them"):
            SINKS[form](table(text, value, *more))
    if form != "zookeeper":
        SINKS[form](table(text, value, ("VALUE", StringType()), ("b", PAIR.fields[0].dataType), ("one", table(("b", StringType())))))
