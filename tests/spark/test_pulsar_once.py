"""Streams and batch writes to Pulsar with exactlyOnce=true under Spark itself: each row is there once, as the official client reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from brokers import Pulsar, plugin
from integration.pulsar_tools import pulsar, theirs
from spark.logs import forget_last, run
from spark.peers import QUIET

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "pulsar-4.2.4-transactions"
FORM = "pulsar-wire"
pytestmark = [QUIET, pytest.mark.broker(NAME)]


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest) -> Pulsar:
    found = plugin.start(request.config, NAME)
    assert isinstance(found, Pulsar)
    return found


@pytest.fixture
def topic(broker: Pulsar, fresh: Callable[[str], str]) -> Callable[..., str]:
    """Makes a topic of two partitions, with these numbers in it."""

    def make(*numbers: int) -> str:
        name = f"persistent://public/default/{fresh('once')}"
        broker.call("PUT", f"/admin/v2/{name.replace('://', '/')}/partitions", 2)
        with theirs(broker) as client:
            for part in (0, 1):
                producer = client.create_producer(f"{name}-partition-{part}")
                for number in numbers[part::2]:
                    producer.send(b"%d" % number)
                producer.close()
        return name

    return make


def read(broker: Pulsar, topic: str) -> list[int]:
    """Values, sorted, as the official client reads them up to plain records that nothing open keeps from being read."""
    found = []
    with theirs(broker) as client:
        for part in (0, 1):
            name = f"{topic}-partition-{part}"
            producer = client.create_producer(name)
            producer.send(b"end")
            producer.close()
            reader = client.create_reader(name, pulsar.MessageId.earliest)
            while (value := reader.read_next(60_000).data()) != b"end" or reader.has_message_available():
                found += [] if value == b"end" else [int(value)]
            reader.close()
    return sorted(found)


def test_a_stream_writes_each_row_once_whatever_its_replays_are_cut_into(
    spark: SparkSession, broker: Pulsar, topic: Callable[..., str], tmp_path: Path
) -> None:
    """Its last micro-batch runs again, in as many tasks as never before; and goes on behind it."""
    source, target = topic(*range(100)), topic()
    where = {"service.url": broker.service, "admin.url": broker.admin}
    for parts, limit in (("2", "60"), ("5", "500")):
        options = {**where, "topic": source, "startingOffsets": "earliest", "minPartitions": parts, "maxOffsetsPerTrigger": limit}
        table = spark.readStream.format(FORM).options(**options).load().select("value")
        run(table, tmp_path, FORM, **where, topic=target, exactlyOnce="true")
        assert read(broker, target) == list(range(100))
        forget_last(tmp_path)


def test_batch_writes_are_all_or_nothing(spark: SparkSession, broker: Pulsar, topic: Callable[..., str]) -> None:
    target = topic()
    options = {"service.url": broker.service, "admin.url": broker.admin, "topic": target, "exactlyOnce": "true"}
    table = spark.range(1000).repartition(4).selectExpr("cast(cast(id AS string) AS binary) AS value")
    failing = table.selectExpr("if(value = cast('777' AS binary), cast(raise_error('no') AS binary), value) AS value")
    with pytest.raises(Exception, match="no"):
        failing.write.format(FORM).options(**options).mode("append").save()
    assert read(broker, target) == []
    table.write.format(FORM).options(**options).mode("append").save()
    assert read(broker, target) == list(range(1000))
