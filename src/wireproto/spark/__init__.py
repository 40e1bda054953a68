"""Spark data sources for Kafka, Pulsar, RocketMQ and ZooKeeper, without a JAR.

What it is: `register(spark)` makes the formats ``kafka-wire``, ``pulsar-wire``, ``rocketmq-wire`` and ``zookeeper-wire`` known to a
session. Offsets are planned on the driver through the Admin role, ranges are read in the workers through the Reader role, never through
consumer groups; what crosses to Spark are Arrow record batches.
May assume: PySpark 4 and pyarrow (the extra ``wireproto[spark]``). Must not: hold a connection across a pickle or a fork.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .kafka import KafkaWire
from .pulsar import PulsarWire
from .rocketmq import RocketMQWire
from .zookeeper import ZooKeeperWire

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["KafkaWire", "PulsarWire", "RocketMQWire", "ZooKeeperWire", "register"]


def register(spark: SparkSession) -> None:
    """Make the four formats known to this session, and turn on what makes them faster where that can still be set."""
    for source in (KafkaWire, PulsarWire, RocketMQWire, ZooKeeperWire):
        spark.dataSource.register(source)
