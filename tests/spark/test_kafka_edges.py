"""kafka-wire where a log is not a plain run of records: nulls, gaps, growth, transactions, loss, restarts. On a real broker."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import wireproto
from spark.logs import Driven, lags, run, watched
from spark.peers import QUIET
from spark.streams import JVM, WIRE, drain, expire, frame, grow, kept, offsets, put, stream, transaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from brokers import Kafka

pytestmark = [
    QUIET,
    pytest.mark.broker("kafka-4.3.1-transactions"),
]
Fresh = Callable[[str], str]
Filled = Callable[..., str]
WHEN = 1_700_000_000_000
OFF = {"failOnDataLoss": "false"}


def numbers(*ranges: range, partition: int = 0) -> list[Any]:
    return [(b"%d" % n, b"%d" % n, partition, WHEN + n) for part in ranges for n in part]


def source(kafka: Kafka, **options: str) -> Any:
    """The format, as Spark makes it."""
    from wireproto.spark.kafka import KafkaWire

    return KafkaWire({"kafka.bootstrap.servers": kafka.bootstrap, "startingOffsets": "earliest", **options})


def values(rows: Any) -> list[int]:
    return sorted(int(row.value) for row in rows.select("value").collect())


def test_nulls_headers_and_times_are_as_written(spark: SparkSession, kafka: Kafka, filled: Filled) -> None:
    topic = filled("facts", [(None, None, 0, WHEN), (b"", b"", 0, WHEN + 1, [("a", b"1"), ("a", None), ("é", b"")])])
    rows = frame(spark, kafka, subscribe=topic, includeHeaders="true").orderBy("offset").collect()
    assert [(row.key, row.value, row.headers) for row in rows] == [
        (None, None, None),
        (bytearray(), bytearray(), [("a", bytearray(b"1")), ("a", None), ("é", bytearray())]),
    ]
    assert [row.timestamp.timestamp() * 1000 for row in rows] == [WHEN, WHEN + 1]
    assert [row.timestampType for row in rows] == [0, 0]


def test_a_broker_s_own_time_is_told(spark: SparkSession, kafka: Kafka, filled: Filled) -> None:
    topic = filled("append-time", numbers(range(3)), message_timestamp_type="LogAppendTime")
    rows = frame(spark, kafka, subscribe=topic).collect()
    assert {row.timestampType for row in rows} == {1}
    assert all(row.timestamp.timestamp() * 1000 > WHEN + 10**6 for row in rows)


def test_facts_of_batches_come_on_request(spark: SparkSession, kafka: Kafka, filled: Filled) -> None:
    topic = filled("batches")
    put(kafka, topic, numbers(range(5)), **{"enable.idempotence": True})
    with transaction(kafka, topic, commit=True) as producer:
        producer.produce(topic, b"5")
    extra = "leaderEpoch,producerId,producerEpoch,sequence,isTransactional"
    rows = frame(spark, kafka, subscribe=topic, extraColumns=extra).orderBy("offset").collect()
    assert [row.isTransactional for row in rows] == [False] * 5 + [True]
    assert [row.sequence for row in rows] == [0, 1, 2, 3, 4, 0]
    assert len({row.producerId for row in rows}) == 2
    assert {(row.leaderEpoch, row.producerEpoch) for row in rows} == {(0, 0)}
    narrow = spark.read.format(WIRE).schema("sequence int, topic string").options(**{"kafka.bootstrap.servers": kafka.bootstrap})
    assert sorted(narrow.option("subscribe", topic).load().collect())[-1] == (4, topic)
    with pytest.raises(Exception, match=r"there is no column 'colour'.*extraColumns takes headers"):
        frame(spark, kafka, subscribe=topic, extraColumns="colour")


def test_empty_partitions_and_topics_give_nothing(spark: SparkSession, kafka: Kafka, filled: Filled) -> None:
    topic = filled("hollow", partitions=3)
    assert frame(spark, kafka, subscribe=topic).count() == 0
    put(kafka, topic, numbers(range(4), partition=1))
    assert values(frame(spark, kafka, subscribe=topic)) == [0, 1, 2, 3]
    expire(kafka, topic, 1, 4)
    assert frame(spark, kafka, subscribe=topic).count() == 0


def test_a_partition_ends_though_its_last_records_were_aborted(spark: SparkSession, kafka: Kafka, filled: Filled, tmp_path: Path) -> None:
    """Aborted and control records at the end, none of them to be handed out: reading ends where the log does."""
    topic = filled("gaps", numbers(range(3)))
    for name in ("one", "two"):
        with transaction(kafka, topic + name, commit=False) as producer:
            for n in range(10, 15):
                producer.produce(topic, b"%d" % n)
    committed = {"subscribe": topic, "kafka.isolation.level": "read_committed"}
    assert values(frame(spark, kafka, **committed)) == [0, 1, 2]
    assert len(values(frame(spark, kafka, subscribe=topic))) == 13
    assert values(frame(spark, kafka, minPartitions="5", **committed)) == [0, 1, 2]
    drain(stream(spark, kafka, startingOffsets="earliest", maxOffsetsPerTrigger="4", **committed), tmp_path)
    assert values(kept(spark, tmp_path)) == [0, 1, 2]
    assert offsets(tmp_path)[-1] == {topic: {"0": 15}}


def test_an_open_transaction_holds_a_reader_of_committed_records_back(spark: SparkSession, kafka: Kafka, filled: Filled) -> None:
    topic = filled("open", numbers(range(3)))
    with transaction(kafka, topic, commit=True) as producer:
        producer.produce(topic, b"3")
        producer.flush(30)
        put(kafka, topic, numbers(range(4, 6)))
        assert values(frame(spark, kafka, subscribe=topic, **{"kafka.isolation.level": "read_committed"})) == [0, 1, 2]
        assert values(frame(spark, kafka, subscribe=topic)) == [0, 1, 2, 3, 4, 5]
    assert values(frame(spark, kafka, subscribe=topic, **{"kafka.isolation.level": "read_committed"})) == [0, 1, 2, 3, 4, 5]


def test_a_query_that_turns_to_committed_records_waits_for_the_open_transaction(
    spark: SparkSession, kafka: Kafka, filled: Filled, tmp_path: Path
) -> None:
    topic = filled("turned", numbers(range(3)))
    with transaction(kafka, topic, commit=True) as producer:
        producer.produce(topic, b"3")
        producer.flush(30)
        drain(stream(spark, kafka, subscribe=topic, startingOffsets="earliest"), tmp_path)
        put(kafka, topic, numbers(range(4, 6)))
        drain(stream(spark, kafka, subscribe=topic, **{"kafka.isolation.level": "read_committed"}), tmp_path)
        assert values(kept(spark, tmp_path)) == [0, 1, 2, 3]
    drain(stream(spark, kafka, subscribe=topic, **{"kafka.isolation.level": "read_committed"}), tmp_path)
    assert values(kept(spark, tmp_path)) == [0, 1, 2, 3, 4, 5]


def test_partitions_added_meanwhile_are_read_from_their_beginning(
    spark: SparkSession, kafka: Kafka, filled: Filled, tmp_path: Path
) -> None:
    topic = filled("growing", numbers(range(5)))
    query = (
        stream(spark, kafka, subscribe=topic, startingOffsets="earliest")
        .writeStream.format("memory")
        .queryName("growing")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        grow(kafka, topic, 3)
        put(kafka, topic, numbers(range(5, 9), partition=2) + numbers(range(9, 12)))
        query.processAllAvailable()
        assert values(spark.table("growing")) == list(range(12))
        assert json.loads(query.lastProgress["sources"][0]["latestOffset"]) == {topic: {"0": 8, "1": 0, "2": 4}}
    finally:
        query.stop()


def test_a_partition_added_between_runs_is_read_too(spark: SparkSession, kafka: Kafka, filled: Filled, tmp_path: Path) -> None:
    topic = filled("grown", numbers(range(5)))
    drain(stream(spark, kafka, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="3"), tmp_path)
    grow(kafka, topic, 2)
    put(kafka, topic, numbers(range(5, 9), partition=1))
    drain(stream(spark, kafka, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="3"), tmp_path)
    assert values(kept(spark, tmp_path)) == list(range(9))


def test_expired_records_fail_the_query_or_are_passed_over_as_asked(
    spark: SparkSession, kafka: Kafka, filled: Filled, tmp_path: Path
) -> None:
    topic = filled("expired", numbers(range(10)))
    drain(stream(spark, kafka, subscribe=topic, startingOffsets="earliest"), tmp_path)
    put(kafka, topic, numbers(range(10, 20)))
    expire(kafka, topic, 0, 15)
    with pytest.raises(Exception, match=rf"{topic}-0 was to be read in \[10, 20\) and now holds \[15, 20\).*failOnDataLoss"):
        drain(stream(spark, kafka, subscribe=topic), tmp_path)
    drain(stream(spark, kafka, subscribe=topic, **OFF), tmp_path)
    assert values(kept(spark, tmp_path)) == [*range(10), *range(15, 20)]
    start = json.dumps({topic: {"0": 3}})
    with pytest.raises(Exception, match="failOnDataLoss"):
        frame(spark, kafka, subscribe=topic, startingOffsets=start).count()
    assert values(frame(spark, kafka, subscribe=topic, startingOffsets=start, **OFF)) == [*range(15, 20)]


def test_an_end_that_is_not_there_is_told_on_the_driver(spark: SparkSession, kafka: Kafka, filled: Filled) -> None:
    topic = filled("beyond", numbers(range(5)))
    end = json.dumps({topic: {"0": 9}})
    with pytest.raises(Exception, match=rf"endingOffsets asks for {topic}-0 up to 9, and the log ends at 5.*failOnDataLoss"):
        frame(spark, kafka, subscribe=topic, endingOffsets=end).count()
    assert values(frame(spark, kafka, subscribe=topic, endingOffsets=end, **OFF)) == [0, 1, 2, 3, 4]


def test_options_may_change_between_runs(spark: SparkSession, kafka: Kafka, filled: Filled, tmp_path: Path) -> None:
    topic = filled("changed", numbers(range(10)) + numbers(range(10, 20), partition=1), partitions=2)
    drain(stream(spark, kafka, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="5"), tmp_path)
    put(kafka, topic, numbers(range(20, 30)))
    more = {"subscribePattern": topic, "startingOffsets": "latest", "minPartitions": "4", "kafka.isolation.level": "read_committed"}
    drain(stream(spark, kafka, **more), tmp_path)
    put(kafka, topic, numbers(range(30, 35)))
    drain(stream(spark, kafka, assign=json.dumps({topic: [0, 1]}), maxBytesPerTrigger="200"), tmp_path)
    assert values(kept(spark, tmp_path)) == list(range(35))


@pytest.mark.no_rerun
def test_a_stream_from_the_end_loses_nothing_when_its_first_batch_is_run_again(
    spark: SparkSession, kafka: Kafka, filled: Filled, tmp_path: Path
) -> None:
    """Spark asks for the initial offset again then, and the end has moved."""
    topic = filled("late", numbers(range(5)))
    drain(stream(spark, kafka, subscribe=topic), tmp_path)
    (tmp_path / "checkpoint" / "commits" / "0").unlink()
    put(kafka, topic, numbers(range(5, 10)))
    drain(stream(spark, kafka, subscribe=topic), tmp_path)
    assert values(kept(spark, tmp_path)) == [5, 6, 7, 8, 9]


def test_a_checkpoint_of_another_source_is_refused(spark: SparkSession, kafka: Kafka, filled: Filled, tmp_path: Path) -> None:
    topic = filled("foreign", numbers(range(5)))
    rates = spark.readStream.format("rate").option("rowsPerSecond", "100").load()
    query = rates.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    while not any((tmp_path / "checkpoint" / "commits").glob("[0-9]*")):
        query.exception()
    query.stop()
    with pytest.raises(Exception, match=r"the checkpoint holds offsets of another source.*checkpointLocation"):
        drain(stream(spark, kafka, subscribe=topic), tmp_path)


def test_a_stream_into_a_missing_topic_is_refused_before_a_task_begins(
    spark: SparkSession, kafka: Kafka, filled: Filled, tmp_path: Path
) -> None:
    sign = tmp_path / "sign"
    table = watched(stream(spark, kafka, subscribe=filled("source", numbers(range(4))), startingOffsets="earliest").select("value"), sign)
    with pytest.raises(Exception, match=r"no topic 'nowhere': create it, correct the option topic, or set kafka\.auto\.create"):
        run(table, tmp_path, WIRE, topic="nowhere", **{"kafka.bootstrap.servers": kafka.bootstrap})
    assert not sign.exists()


def test_few_new_records_wait_for_more_or_for_their_time(kafka: Kafka, filled: Filled) -> None:
    topic = filled("patient", numbers(range(5)))
    patient, hasty = (source(kafka, subscribe=topic, minOffsetsPerTrigger="5", maxTriggerDelay=delay) for delay in ("1h", "300ms"))
    with Driven(patient) as many, Driven(hasty) as soon:
        assert many.step() == list(range(5))
        began = time.monotonic()  # before the step from whose planning the time counts
        assert soon.step() == list(range(5))
        put(kafka, topic, numbers(range(5, 8)))
        assert many.step() == []
        while not (late := soon.step()):
            pass
        assert late == [5, 6, 7]
        assert time.monotonic() - began >= 0.25
        put(kafka, topic, numbers(range(8, 10)))
        assert many.step() == list(range(5, 10))


def test_lag_is_told_by_progress_and_what_was_processed_is_committed_to_a_group(
    spark: SparkSession, kafka: Kafka, filled: Filled, fresh: Fresh, tmp_path: Path
) -> None:
    topic, group = filled("lag", numbers(range(5))), fresh("lag-tools")
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "2", "commitOffsetsToGroup": group}
    reports = drain(stream(spark, kafka, **options), tmp_path)
    assert lags(reports, topic) == [({"0": end}, {"0": 5}) for end in (2, 4, 5)]
    with wireproto.connect(kafka.url) as client:
        found = {key: place.text() for key, place in client.admin().group_positions(group, topic).items()}
    assert found in ({(topic, 0): "4"}, {(topic, 0): "5"})  # Spark commits a batch when it plans the next one


def test_a_query_goes_on_though_its_group_has_got_members(
    kafka: Kafka, filled: Filled, fresh: Fresh, caplog: pytest.LogCaptureFixture
) -> None:
    """What the broker says to a commit then is its own; on the dev broker `test_kafka_told.py` looks at more of it."""
    topic, group = filled("joined", numbers(range(3))), fresh("joined-lag")
    with Driven(source(kafka, subscribe=topic, commitOffsetsToGroup=group)) as query, wireproto.connect(kafka.url) as client:
        assert query.step() == [0, 1, 2]
        put(kafka, topic, numbers(range(3, 5)))
        with client.consumer(topic, group) as member:
            while not member.assignment:
                member.poll(1.0)
            assert query.step() == [3, 4]
        (line,) = [record.getMessage() for record in caplog.records if record.name == "wireproto.spark"]
        assert line.startswith("kafka-wire: the ends of a micro-batch were not committed: ")
        assert client.admin().group_positions(group, topic) == {(topic, 0): wireproto.LogOffset(topic, 0, 3)}


def test_assigned_partitions_that_are_not_there_are_left_out_as_by_the_connector(jvm: SparkSession, kafka: Kafka, filled: Filled) -> None:
    topic = filled("assigned", numbers(range(4)) + numbers(range(4, 6), partition=1), partitions=2)
    options = {"assign": json.dumps({topic: [1, 7]})}
    assert values(frame(jvm, kafka, **options)) == values(frame(jvm, kafka, JVM, **options)) == [4, 5]


def test_a_stream_writes_all_of_its_rows_and_keeps_their_order(spark: SparkSession, kafka: Kafka, filled: Filled, tmp_path: Path) -> None:
    topic = filled("from", [(b"%d" % (n % 7), b"%d" % n) for n in range(2000)], partitions=2)
    target = filled("to", partitions=3)
    rows = stream(spark, kafka, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="900", includeHeaders="true")
    query = (
        rows.select("key", "value", "headers")
        .writeStream.format(WIRE)
        .options(**{"kafka.bootstrap.servers": kafka.bootstrap, "topic": target, "checkpointLocation": str(tmp_path)})
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(150)
    found = frame(spark, kafka, subscribe=target).orderBy("partition", "offset").collect()
    assert sorted(int(row.value) for row in found) == list(range(2000))
    for key in {bytes(row.key) for row in found}:
        one = [int(row.value) for row in found if row.key == key]
        assert one == sorted(one)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kafka.isolation.levle": "read_committed"}, r"unknown option kafka.isolation.levle; did you mean kafka.isolation.level\?"),
        ({"startngOffsets": "earliest"}, r"unknown option 'startngoffsets'; did you mean startingOffsets\?"),
        ({"kafka.isolation.level": "some"}, "kafka.isolation.level is 'some'; it takes read-committed, read-uncommitted"),
        ({"kafka.ssl.truststore.location": "/x.jks"}, "kafka.ssl.truststore.type=PEM"),
        ({"kafka.security.protocol": "SASL_SSL"}, "GSSAPI"),
        ({"kafka.partitioner.class": "X"}, "partitioner.class"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay is 'soon'; it takes a time such as 30s"),
        ({"startingOffsets": '{"bad-options":{"0":-3}}'}, "-3"),
        ({"startingOffsets": '{"bad-options":{"0":"1:2"}}'}, "it takes an offset"),
        ({"startingOffsets": '{"elsewhere":{"0":1}}'}, "topics that are not read: elsewhere"),
    ],
)
def test_a_mistake_is_named_with_its_remedy(spark: SparkSession, kafka: Kafka, options: dict[str, str], said: str) -> None:
    with pytest.raises(Exception, match=said):
        frame(spark, kafka, subscribe="bad-options", **options)


def test_a_schema_that_does_not_fit_is_refused(spark: SparkSession, kafka: Kafka) -> None:
    reader = spark.read.format(WIRE).options(**{"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": "any"})
    with pytest.raises(Exception, match="the schema names a column 'colour'; this format has key, value"):
        reader.schema("colour string").load().count()
    with pytest.raises(Exception, match="the schema has offset as string; it is bigint"):
        reader.schema("offset string").load().count()
