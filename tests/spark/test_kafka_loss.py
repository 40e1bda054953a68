"""kafka-wire where records are gone: compacted away, deleted with their partition, followed by another topic of the name. A real broker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import confluent_kafka.admin
import pytest

import wireproto
from spark.logs import Driven, planned
from spark.peers import QUIET
from spark.streams import JVM, SECONDS, WIRE, admin, drain, frame, kept, make, offsets, put, stream, without_ids
from wireproto.errors import DataLoss
from wireproto.spark.log import LOST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from brokers import Kafka

pytestmark = [
    QUIET,
    pytest.mark.broker("kafka-4.3.1-transactions"),
]
Filled = Callable[..., str]
OFF = {"failOnDataLoss": "false"}
EARLIEST = {"startingOffsets": "earliest"}
Row = tuple[int, int, bytes | None, bytes | None]


def values(rows: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in rows.select("value").collect())


def numbers(*found: int) -> list[Any]:
    return [(b"%d" % n, b"%d" % n) for n in found]


def seen(rows: DataFrame) -> list[Row]:
    """What a frame holds, in the order of the log."""
    found = [(row.partition, row.offset, row.key, row.value) for row in rows.collect()]
    return sorted((part, offset, key and bytes(key), None if value is None else bytes(value)) for part, offset, key, value in found)


def delete(kafka: Kafka, topic: str) -> None:
    with wireproto.connect(kafka.url) as client:
        client.admin().delete_topic(topic)


def again(kafka: Kafka, topic: str, rows: list[Any]) -> None:
    """Another topic of the same name."""
    delete(kafka, topic)
    make(kafka, topic)
    put(kafka, topic, rows)


# --- compacted ---


def judged(kafka: Kafka, topic: str, partitions: int) -> list[Row]:
    """All that a topic holds, by librdkafka."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "judge", "enable.partition.eof": True})
    consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[Row] = []
    at_end = 0
    while at_end < partitions:
        for message in consumer.consume(500, 1.0):
            if message.error() is None:
                found.append((message.partition(), message.offset(), message.key(), message.value()))
            else:
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                at_end += 1
    consumer.close()
    return sorted(found)


def clean_often(kafka: Kafka) -> None:
    """Have the broker's cleaner look for work all the time, not every 15 seconds."""
    often = confluent_kafka.admin.AlterConfigOpType.SET
    entry = confluent_kafka.admin.ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=often)
    client = admin(kafka)
    (node,) = client.list_topics(timeout=SECONDS).brokers
    broker = confluent_kafka.admin.ConfigResource(confluent_kafka.admin.ResourceType.BROKER, str(node), incremental_configs=[entry])
    for outcome in client.incremental_alter_configs([broker], broker=node).values():
        outcome.result(SECONDS)


@pytest.fixture(scope="module")
def compacted(kafka: Kafka) -> tuple[str, list[Row]]:
    """A topic that the cleaner has been through, and what is left of it: partition 1 has holes, partitions 0 and 2 never had a record."""
    clean_often(kafka)
    topic, when = "compacted", 1_700_000_000_000
    make(kafka, topic, 3, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01", delete_retention_ms="0")
    for part in range(8):  # ten seconds apart, so that each part begins a segment
        put(kafka, topic, [(b"k%d" % (n % 3), b"%d" % n, 1, when + part * 10_000) for n in range(part * 10, part * 10 + 10)])
    put(kafka, topic, [(b"k0", None, 1, when + 100_000), (b"last", b"80", 1, when + 100_000)])
    deadline = time.monotonic() + SECONDS
    found = judged(kafka, topic, 3)
    while [offset for _, offset, *_ in found] != [77, 78, 79, 80, 81]:  # the active segment is not cleaned
        assert time.monotonic() < deadline, f"the cleaner left {len(found)} records"
        found = judged(kafka, topic, 3)
    return topic, found


def test_a_compacted_topic_gives_what_is_left_of_it(jvm: SparkSession, kafka: Kafka, compacted: tuple[str, list[Row]]) -> None:
    topic, wanted = compacted
    assert {part for part, *_ in wanted} == {1}
    for options in ({}, {"minPartitions": "6"}, {"maxRecordsPerPartition": "9"}):
        assert seen(frame(jvm, kafka, subscribe=topic, **options)) == wanted
    assert seen(frame(jvm, kafka, JVM, subscribe=topic)) == wanted
    first, last = json.dumps({topic: {"0": 0, "1": 5, "2": 0}}), json.dumps({topic: {"0": 0, "1": 25, "2": 0}})
    assert frame(jvm, kafka, subscribe=topic, startingOffsets=first, endingOffsets=last).count() == 0


def test_a_compacted_topic_streams_as_the_connector_streams_it(
    jvm: SparkSession, kafka: Kafka, compacted: tuple[str, list[Row]], tmp_path: Path
) -> None:
    topic, wanted = compacted
    for form in (JVM, WIRE):
        drain(stream(jvm, kafka, form, subscribe=topic, maxOffsetsPerTrigger="30", **EARLIEST), tmp_path / form)
        assert seen(kept(jvm, tmp_path / form)) == wanted
    assert offsets(tmp_path / WIRE) == offsets(tmp_path / JVM)


# --- deleted, made again ---


def hear(query: Driven, version: str) -> None:
    """Tell the query where it goes on, as PySpark 4.0 and 4.1 do: later versions give the place with each question."""
    if version == "4.0":
        query.stream.partitions(query.at, query.at)


def ids(folder: Path) -> list[list[str]]:
    """Topics whose ids stand beside the offsets of each micro-batch."""
    files = sorted((path for path in (folder / "checkpoint" / "offsets").iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    return [[name.partition("#")[0] for name in json.loads(path.read_text().splitlines()[2]) if "#" in name] for path in files]


def source(kafka: Kafka, **options: str) -> Any:
    """The format, as Spark makes it."""
    from wireproto.spark.kafka import KafkaWire

    return KafkaWire({"kafka.bootstrap.servers": kafka.bootstrap, **EARLIEST, **options})


def test_a_deleted_partition_fails_a_stream_or_is_passed_over_as_asked(kafka: Kafka, filled: Filled) -> None:
    gone = filled("deleted", numbers(*range(5)))
    stays = filled("deleted", numbers(*range(5, 10)))
    options = {"subscribePattern": f"{gone}|{stays}"}
    with Driven(source(kafka, **options)) as strict, Driven(source(kafka, **options, **OFF)) as lenient:
        assert strict.step() == lenient.step() == list(range(10))
        delete(kafka, gone)
        put(kafka, stays, numbers(*range(10, 15)))
        with pytest.raises(DataLoss, match=rf"partitions {gone}-0 have been deleted.*failOnDataLoss to false"):
            strict.step()
        assert lenient.step() == [10, 11, 12, 13, 14]
        assert without_ids(lenient.at) == {stays: {"0": 10}}


def test_a_checkpoint_of_other_topics_is_told_with_its_remedy(kafka: Kafka, filled: Filled) -> None:
    topic = filled("mine", numbers(0, 1))
    with (
        Driven(source(kafka, subscribe=topic), {"yours": {"0": 1}}) as query,
        pytest.raises(DataLoss, match=r"yours-0 have been deleted; or the checkpoint is another query's: .*checkpointLocation of its own"),
    ):
        query.step()


@pytest.mark.parametrize(("before", "after"), [(10, 25), (10, 10), (10, 3), (10, 0)])
@pytest.mark.parametrize("version", ["4.2", "4.0"])
def test_a_topic_made_again_between_runs_is_lost_or_read_from_its_beginning_as_asked(
    kafka: Kafka, filled: Filled, caplog: pytest.LogCaptureFixture, version: str, before: int, after: int
) -> None:
    """However long the new one is. The connector reads on at the old offset, where there is one."""
    topic = filled("again", numbers(*range(before)))
    options = {"subscribe": topic}
    with Driven(source(kafka, **options)) as query:
        assert query.step() == list(range(before))
        at = query.at
    again(kafka, topic, numbers(*range(100, 100 + after)))
    with Driven(source(kafka, **options), at) as strict:
        hear(strict, version)
        with pytest.raises(DataLoss, match=f"the topic {topic} was deleted and made again.*failOnDataLoss to false"):
            strict.step(version)
    with Driven(source(kafka, **options, **OFF), at) as lenient:
        hear(lenient, version)
        assert lenient.step(version) == list(range(100, 100 + after))
        put(kafka, topic, numbers(99))
        assert lenient.step(version) == [99]
        at = lenient.at
    assert [line for line in caplog.messages if topic in line] == [f"kafka-wire: {LOST} the topic {topic} was deleted and made again"]
    with Driven(source(kafka, **options), at) as query:
        hear(query, version)
        assert query.step(version) == []


def test_a_topic_made_again_is_read_from_its_beginning_within_the_limits_of_a_micro_batch(kafka: Kafka, filled: Filled) -> None:
    topic = filled("again", numbers(*range(10)))
    options = {"subscribe": topic, "maxOffsetsPerTrigger": "4", "startingOffsets": f'{{"{topic}": {{"0": 8}}}}', **OFF}
    with Driven(source(kafka, **options)) as query:
        assert query.step() == [8, 9]
        at = query.at
    again(kafka, topic, numbers(*range(100, 110)))
    with Driven(source(kafka, **options), at) as query:
        query.stream.prepareForTriggerAvailableNow()
        assert [query.step() for _ in range(4)] == [[100, 101, 102, 103], [104, 105, 106, 107], [108, 109], []]


def test_a_micro_batch_that_runs_again_does_not_read_another_topic_of_the_name(kafka: Kafka, filled: Filled) -> None:
    topic = filled("again", numbers(*range(10)))
    with Driven(source(kafka, subscribe=topic)) as query:
        at = query.at
        end = query.asked()
    again(kafka, topic, numbers(*range(100, 125)))

    def run(**more: str) -> list[int]:
        with Driven(source(kafka, subscribe=topic, **more), at) as query:
            return query.task(at, end)

    with pytest.raises(DataLoss, match=f"{topic}.* was deleted and made again"):
        run()
    assert run(**OFF) == []
    with Driven(source(kafka, subscribe=topic, **OFF), end) as query:
        assert query.step() == list(range(100, 125))


def test_checkpoints_with_ids_of_topics_go_to_the_connector_and_back(
    jvm: SparkSession, kafka: Kafka, filled: Filled, tmp_path: Path
) -> None:
    topic = filled("again", numbers(*range(10)))
    options = {"subscribe": topic}
    drain(stream(jvm, kafka, WIRE, **options, **EARLIEST), tmp_path)
    put(kafka, topic, numbers(10, 11))
    drain(stream(jvm, kafka, JVM, **options, **EARLIEST), tmp_path)
    put(kafka, topic, numbers(12))
    drain(stream(jvm, kafka, WIRE, **options, **EARLIEST), tmp_path)
    assert values(kept(jvm, tmp_path)) == list(range(13))
    first, second, third = ids(tmp_path)
    assert first == third == [topic]
    assert second == []


def test_a_topic_made_again_while_the_query_runs_is_known_by_its_id(kafka: Kafka, filled: Filled) -> None:
    """The new topic is longer than the old one was: offsets alone would tell nothing."""
    topic = filled("renewed", numbers(0, 1, 2))
    with Driven(source(kafka, subscribe=topic)) as strict, Driven(source(kafka, subscribe=topic, **OFF)) as lenient:
        assert strict.step() == lenient.step() == [0, 1, 2]
        again(kafka, topic, numbers(*range(10, 18)))
        with pytest.raises(DataLoss, match=f"the topic {topic} was deleted and made again.*failOnDataLoss"):
            strict.step()
        assert lenient.step() == list(range(10, 18))


def test_a_topic_deleted_after_the_plan_fails_its_tasks_or_is_passed_over_as_asked(kafka: Kafka, filled: Filled) -> None:
    topic = filled("vanished", numbers(*range(5)))
    strict, lenient = planned(source(kafka, subscribe=topic)), planned(source(kafka, subscribe=topic, **OFF))
    assert strict() == lenient() == [0, 1, 2, 3, 4]
    delete(kafka, topic)
    with pytest.raises(DataLoss, match=rf"{topic}-0 was to be read up to .* and is not there any more; .*failOnDataLoss"):
        strict()
    assert lenient() == []


def test_a_topic_made_again_after_the_plan_is_not_read_in_its_place(kafka: Kafka, filled: Filled) -> None:
    topic = filled("replaced", numbers(*range(5)))
    strict, warm = planned(source(kafka, subscribe=topic)), planned(source(kafka, subscribe=topic))
    lenient = planned(source(kafka, subscribe=topic, **OFF))
    assert warm() == [0, 1, 2, 3, 4]
    again(kafka, topic, numbers(*range(10, 20)))
    for _ in range(2):  # the client knows the old topic, then the new one
        with pytest.raises(DataLoss, match=rf"{topic}-0 was to be read .*deleted and made again; .*failOnDataLoss to false"):
            strict()
    assert lenient() == []
    assert planned(source(kafka, subscribe=topic))() == list(range(10, 20))
