"""What the Spark tests share: frames and streams of a format, sinks that keep what came, and what a checkpoint says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import confluent_kafka.admin

import wireproto

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from brokers import Kafka

SECONDS = 150
WIRE, JVM = "kafka-wire", "kafka"


def frame(spark: SparkSession, kafka: Kafka, form: str = WIRE, **options: Any) -> DataFrame:
    """A batch read."""
    return spark.read.format(form).options(**{"kafka.bootstrap.servers": kafka.bootstrap, **options}).load()


def stream(spark: SparkSession, kafka: Kafka, form: str = WIRE, **options: Any) -> DataFrame:
    """A streaming read."""
    return spark.readStream.format(form).options(**{"kafka.bootstrap.servers": kafka.bootstrap, **options}).load()


def drain(table: DataFrame, folder: Path) -> list[Any]:
    """Run a stream to what is there now; its progress reports. Its rows are in `kept`."""
    query = (
        table.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .option("path", str(folder / "rows"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(SECONDS), "the stream did not end"
    finally:
        query.stop()
    return list(query.recentProgress)


def kept(spark: SparkSession, folder: Path) -> DataFrame:
    """What `drain` wrote."""
    return spark.read.parquet(str(folder / "rows"))


def offsets(folder: Path) -> list[Any]:
    """Ends of the micro-batches, as the checkpoint has them, without the topics' ids."""
    files = sorted((path for path in (folder / "checkpoint" / "offsets").iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    return [without_ids(json.loads(path.read_text().splitlines()[2])) for path in files]


def without_ids(end: Any) -> Any:
    """The end of a micro-batch as the JVM's connector reads it: to it the names of topics without partitions are nothing."""
    return {topic: inner for topic, inner in end.items() if inner}


def make(kafka: Kafka, topic: str, partitions: int = 1, **config: str) -> None:
    """A topic; underscores of the settings' names stand for dots."""
    with wireproto.connect(kafka.url) as client:
        client.admin().create_topic(topic, partitions=partitions, config={name.replace("_", "."): value for name, value in config.items()})


def put(kafka: Kafka, topic: str, rows: list[Any], **options: Any) -> None:
    """Records by a client that is not ours: (key, value) or (key, value, partition, timestamp, headers)."""
    producer = confluent_kafka.Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 5, **options})
    for row in rows:
        key, value, *rest = row
        more = dict(zip(("partition", "timestamp", "headers"), rest, strict=False))
        producer.produce(topic, value, key, **{name: item for name, item in more.items() if item is not None})
    assert producer.flush(SECONDS) == 0


@contextmanager
def transaction(kafka: Kafka, name: str, *, commit: bool) -> Iterator[Any]:
    """A producer within a transaction of its own. When it is over its end is in the partitions.

    Queries run within it, for which the minute that librdkafka gives a transaction is short on a loaded machine.

    A coordinator answers a commit when it has noted it; the markers, which readers of committed records wait for, follow. It lets
    nobody else in under the name before they are there.
    """
    settings = {"bootstrap.servers": kafka.bootstrap, "transactional.id": name}
    producer = confluent_kafka.Producer({**settings, "transaction.timeout.ms": 600_000})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    yield producer
    producer.flush(SECONDS)
    if commit:
        producer.commit_transaction(SECONDS)
    else:
        producer.abort_transaction(SECONDS)
    confluent_kafka.Producer(settings).init_transactions(SECONDS)


def admin(kafka: Kafka) -> Any:
    """librdkafka's administration; what it promises comes only while somebody holds it."""
    return confluent_kafka.admin.AdminClient({"bootstrap.servers": kafka.bootstrap})


def expire(kafka: Kafka, topic: str, partition: int, before: int) -> None:
    """Delete a partition's records before an offset."""
    place = confluent_kafka.TopicPartition(topic, partition, before)
    client = admin(kafka)
    for outcome in client.delete_records([place]).values():
        outcome.result(SECONDS)


def grow(kafka: Kafka, topic: str, partitions: int) -> None:
    """Give the topic more partitions, and wait until they are led."""
    client = admin(kafka)
    for outcome in client.create_partitions([confluent_kafka.admin.NewPartitions(topic, partitions)]).values():
        outcome.result(SECONDS)
    with wireproto.connect(kafka.url) as ours:
        while len(ours.admin().positions(topic)) < partitions:
            pass
