"""Topics of the embedded broker for kafka-wire's tests that drive it without Spark, and what it warns of in this process."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

import wireproto
from wireproto.spark.kafka import KafkaWire

if TYPE_CHECKING:
    from wireproto.devbroker import DevBroker


def filled(broker: DevBroker, topic: str, *counts: int) -> str:
    """A topic whose partitions hold so many records: 0, 1, 2 …"""
    with wireproto.connect(broker.url("kafka")) as client:
        client.admin().create_topic(topic, partitions=len(counts))
        with client.producer(topic) as out:
            for partition, count in enumerate(counts):
                for number in range(count):
                    out.send(b"%d" % number, partition=partition)
    return topic


def source(broker: DevBroker, **options: str) -> KafkaWire:
    return KafkaWire({"kafka.bootstrap.servers": broker.address("kafka"), "startingOffsets": "earliest", **options})


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "wireproto.spark" and record.levelno == logging.WARNING]
