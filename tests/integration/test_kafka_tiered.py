"""Bounded reads where a Fetch finds nothing though the log goes on: a slow remote storage, a quota that is used up, a hole at the end.

The broker answers such a Fetch without an error and without records. What a reader or a Spark task hands out then is compared with what
was written: all of it, or an error, but never the rest silently left out.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from brokers import Kafka
from brokers.tiered import TOPIC, tiered
from patience import until
from wireproto import LATEST, LogOffset
from wireproto.kafka.messages import (
    IncrementalAlterConfigsAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

RECORDS, SIZE = 40_000, 100
BROKER, SET, EARLIEST_LOCAL = 4, 0, -4
QUOTA = "remote.log.manager.fetch.max.bytes.per.second"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with tiered(tmp_path_factory.mktemp("store")) as broker:
        yield broker


@pytest.fixture(scope="module")
def topic(kafka: Kafka) -> str:
    """40,000 records of which nearly all are in the remote storage only."""
    return written(kafka, RECORDS)


def written(kafka: Kafka, count: int) -> str:
    name = f"tiered-{next(_numbers)}"
    with wireproto.connect(kafka.url) as client:
        client.admin().create_topic(name, config=TOPIC)
        with client.producer(name) as producer:
            for number in range(count):
                producer.send(b"%06d" % number + b"x" * SIZE)
        until(lambda: earliest_local(client, name) > count * 3 // 4, "the segments stay on the broker's disk")
    return name


def earliest_local(client: Any, topic: str) -> int:
    part = ListOffsetsPartition(partition_index=0, timestamp=EARLIEST_LOCAL)
    reply = client.request(ListOffsetsRequest(topics=(ListOffsetsTopic(name=topic, partitions=(part,)),)))
    offset: int = reply.topics[0].partitions[0].offset
    return offset


def bounded(kafka: Kafka, topic: str, stop: Any = LATEST, **options: Any) -> tuple[list[int], int]:
    """The records of a reader with a stop, and how many answers had none though the log went on."""
    empties = 0
    found: list[int] = []
    reader: Any
    with wireproto.connect(kafka.url, **options) as client, client.reader(topic, stop=stop) as reader:
        asking = reader._fetcher.asking
        empty = asking._empty

        def counted(*what: Any) -> None:
            nonlocal empties
            empties += 1
            empty(*what)

        asking._empty = counted
        for batch in reader:
            found += [int(value[:6]) for value in batch.values()]
    return found, empties


def spark_batch(kafka: Kafka, topic: str, **options: str) -> list[int]:
    """The rows of a batch of kafka-wire, whose tasks run here one after the other."""
    from pyspark.sql.types import BinaryType, StructField, StructType

    from wireproto.spark.kafka import KafkaWire

    source = KafkaWire({"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic, **options})
    reader = source.reader(StructType([StructField("value", BinaryType())]))
    tasks = reader.partitions()
    return [int(value[:6]) for task in tasks for batch in reader.read(task) for value in batch.column(0).to_pylist()]


def test_a_bounded_read_of_a_slow_remote_storage_leaves_nothing_out(kafka: Kafka, topic: str, oracle: Any) -> None:
    found, empties = bounded(kafka, topic, partition_bytes=256 << 10)
    assert found == [*range(RECORDS)]
    assert empties, "the storage was never too slow"
    oracle("kafka-4.3.1 tiered", records=len(found), empty=empties)


def test_a_batch_of_spark_over_a_slow_remote_storage_leaves_nothing_out(kafka: Kafka, topic: str) -> None:
    assert sorted(spark_batch(kafka, topic, **{"kafka.max.partition.fetch.bytes": "1048576"})) == [*range(RECORDS)]


@pytest.fixture
def quota(kafka: Kafka) -> Iterator[None]:
    """A kilobyte a second, so that one read of a segment uses up what there is for a while."""
    set_quota(kafka, "1000")
    yield
    set_quota(kafka, str(1 << 40))


def set_quota(kafka: Kafka, value: str) -> None:
    entry = IncrementalAlterConfigsAlterableConfig(name=QUOTA, config_operation=SET, value=value)
    whole = IncrementalAlterConfigsResource(resource_type=BROKER, resource_name="1", configs=(entry,))
    with wireproto.connect(kafka.url) as client:
        reply = client.request(IncrementalAlterConfigsRequest(resources=(whole,)))
        assert [one.error_code for one in reply.responses] == [0], reply


@pytest.mark.usefixtures("quota")
def test_a_bounded_read_beyond_the_quota_of_remote_reads_leaves_nothing_out(kafka: Kafka, topic: str, oracle: Any) -> None:
    """The broker's answers have no records then for seconds, so that the reader doubts: where its own disk begins, settles it."""
    found, empties = bounded(kafka, topic, LogOffset(topic, 0, RECORDS // 2))
    assert found == [*range(RECORDS // 2)]
    assert empties >= 3
    oracle("kafka-4.3.1 tiered, beyond its quota", records=len(found), empty=empties)


@pytest.mark.soak
@pytest.mark.usefixtures("quota")
def test_a_batch_of_spark_beyond_the_quota_of_remote_reads_leaves_nothing_out(kafka: Kafka, topic: str) -> None:
    assert sorted(spark_batch(kafka, topic)) == [*range(RECORDS)]
    assert bounded(kafka, topic)[0] == [*range(RECORDS)]


def test_a_tail_of_the_log_without_a_record_ends_a_bounded_read_soon_and_is_told(kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    """The cleaner left half of a segment, and a broker that lost its disk's cache nothing of the next: the log ends where that begins."""
    name = f"tail-{next(_numbers)}"
    with wireproto.connect(kafka.url) as client:
        client.admin().create_topic(name, config={"segment.ms": "1000"})
        with client.producer(name) as producer:
            for number in range(100):
                time_ms = 1_700_000_000_000 + 10_000 * (number // 50)  # a segment begins with a record that is so much younger
                producer.send(b"%06d" % number, timestamp=time_ms)
                if number % 10 == 9:
                    producer.flush()
    kafka.kill()
    folder = kafka.folder / "node-0" / "data" / f"{name}-0"
    first, second = sorted(folder.glob("*.log"))
    os.truncate(first, bytes_before(first.read_bytes(), 30))
    os.truncate(second, 0)
    for index in (*folder.glob("*.index"), *folder.glob("*.timeindex")):
        index.unlink()
    kafka.start()
    began = time.monotonic()
    found, empties = bounded(kafka, name)
    assert found == [*range(30)]
    assert empties, "the end of the log was not empty"
    assert time.monotonic() - began < 10.0
    assert [line for line in caplog.messages if line.startswith(f"{name}[0]: offsets 30 to 49 hold no record")]
    began = time.monotonic()
    assert spark_batch(kafka, name) == [*range(30)]
    assert time.monotonic() - began < 10.0
    with wireproto.connect(kafka.url) as client:
        assert client.admin().positions(name, LATEST)[name, 0] == LogOffset(name, 0, 50)


def bytes_before(log: bytes, offset: int) -> int:
    """Bytes of a segment before the batch that begins at this offset: each has its offset, and a length behind it. How many there are is
    not known: what was sent up to a flush is in more than one where the machine was late."""
    end = 0
    while end < len(log) and (found := int.from_bytes(log[end : end + 8], "big")) < offset:
        end += 12 + int.from_bytes(log[end + 8 : end + 12], "big")
    assert found == offset
    return end
