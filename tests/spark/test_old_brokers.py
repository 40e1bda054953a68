"""Brokers too old for what is asked: one error on the driver that names the option and the remedy. On dev brokers that offer less."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import wireproto
from spark.peers import QUIET
from wireproto.devbroker import DevBroker

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = QUIET


def servers(broker: DevBroker) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.address("kafka")}


def topic(broker: DevBroker, protocol: str = "kafka") -> None:
    with wireproto.connect(broker.url(protocol)) as client:
        client.admin().create_topic("old", partitions=1)
        with client.producer("old") as out:
            out.send(b"1")


@pytest.mark.parametrize(
    ("request_name", "newest", "options", "said"),
    [
        ("ListOffsets", 0, {"startingTimestamp": "1"}, r"option startingTimestamp needs a broker of Kafka 0\.10\.1 or newer: give offsets"),
        ("Fetch", 3, {"kafka.isolation.level": "read_committed"}, r"read_committed needs a broker of Kafka 0\.11 or newer: leave it out"),
    ],
)
def test_an_old_broker_is_told_to_readers(
    spark: SparkSession, fresh_dev_broker: DevBroker, request_name: str, newest: int | None, options: dict[str, str], said: str
) -> None:
    topic(fresh_dev_broker)
    fresh_dev_broker.call("kafka", "offer", request_name, newest)
    with pytest.raises(Exception, match=f"(?s){said}"):
        spark.read.format("kafka-wire").options(**servers(fresh_dev_broker), subscribe="old", **options).load().count()


def test_a_limit_by_bytes_needs_a_broker_that_tells_sizes(spark: SparkSession, fresh_dev_broker: DevBroker, tmp_path: Path) -> None:
    topic(fresh_dev_broker)  # the dev broker has no DescribeLogDirs
    table = spark.readStream.format("kafka-wire").options(**servers(fresh_dev_broker), subscribe="old", maxBytesPerTrigger="9").load()
    with pytest.raises(Exception, match=r"maxBytesPerTrigger needs a broker of Kafka 1\.0 or newer: use maxOffsetsPerTrigger"):
        into(table, tmp_path, "noop")


@pytest.mark.parametrize(
    ("request_name", "newest", "columns", "options", "said"),
    [
        ("InitProducerId", None, ["value"], {}, r"idempotent producer needs a broker of Kafka 0\.11.*set kafka\.enable\.idempotence"),
        ("Produce", 2, ["value", "array(struct('h' as key, value)) as headers"], {}, r"column headers needs a broker of Kafka 0\.11.*drop"),
        ("Produce", 6, ["value"], {"kafka.compression.type": "zstd"}, r"type zstd needs a broker of Kafka 2\.1 or newer: use lz4"),
    ],
)
def test_an_old_broker_is_told_to_writers_of_batches_and_streams(
    spark: SparkSession,
    fresh_dev_broker: DevBroker,
    tmp_path: Path,
    request_name: str,
    newest: int | None,
    columns: list[str],
    options: dict[str, str],
    said: str,
) -> None:
    topic(fresh_dev_broker)
    fresh_dev_broker.call("kafka", "offer", request_name, newest)
    options = {**servers(fresh_dev_broker), "topic": "old", **options}
    row = "cast('x' as binary) as value"
    with pytest.raises(Exception, match=said):
        spark.range(1).selectExpr(row).selectExpr(*columns).write.format("kafka-wire").options(**options).mode("append").save()
    table = spark.readStream.format("rate").load().selectExpr(row).selectExpr(*columns)
    with pytest.raises(Exception, match=said):
        into(table, tmp_path, "kafka-wire", **options)


def test_a_pulsar_broker_that_does_not_tell_last_ids_is_refused(spark: SparkSession, fresh_dev_broker: DevBroker) -> None:
    topic(fresh_dev_broker, "pulsar")
    fresh_dev_broker.call("pulsar", "offer", 11)
    options = {"service.url": fresh_dev_broker.address("pulsar"), "topic": "old"}
    with pytest.raises(Exception, match=r"protocol version 12.*'wireproto dev broker' with protocol version 11: upgrade it"):
        spark.read.format("pulsar-wire").options(**options).load().count()


def into(table: Any, folder: Path, form: str, **options: str) -> None:
    """Run a stream until it fails."""
    query = table.writeStream.format(form).options(**options, checkpointLocation=str(folder)).start()
    try:
        query.awaitTermination(150)
    finally:
        query.stop()
