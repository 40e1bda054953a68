"""Drop-in for the JVM's connector: the same rows, schema, offsets and refusals on the same topics of a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark.peers import QUIET
from spark.streams import JVM, WIRE, drain, frame, kept, make, offsets, put, stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from brokers import Kafka

pytestmark = [
    QUIET,
    pytest.mark.broker("kafka-4.3.1-transactions"),
]

WHEN = 1_700_000_000_000
ROWS = [
    (f"k{n}".encode() if n % 3 else None, f"v{n}".encode() if n % 5 else None, n % 3, WHEN + n * 1000, [("h", b"x"), ("h", None)] * (n % 2))
    for n in range(300)
]


@pytest.fixture(scope="module")
def topic(kafka: Kafka) -> str:
    """Three partitions: keys, values and headers, some of them null."""
    make(kafka, "same-rows", 3)
    put(kafka, "same-rows", ROWS)
    return "same-rows"


def same(one: DataFrame, other: DataFrame) -> int:
    """The rows of two frames, which must be the same."""
    assert one.schema == other.schema
    left, right = one.collect(), other.collect()
    key = str
    assert sorted(left, key=key) == sorted(right, key=key)
    return len(left)


def both(spark: SparkSession, kafka: Kafka, **options: Any) -> int:
    return same(frame(spark, kafka, JVM, **options), frame(spark, kafka, WIRE, **options))


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 300),
        ({"includeHeaders": "true"}, 300),
        ({"startingOffsets": '{"same-rows":{"0":10,"1":-2,"2":99}}', "endingOffsets": '{"same-rows":{"0":-1,"1":5,"2":100}}'}, 96),
        ({"startingTimestamp": str(WHEN + 150_000), "endingTimestamp": str(WHEN + 200_000)}, 50),
        ({"startingOffsetsByTimestamp": json.dumps({"same-rows": {n: WHEN + 30_000 * (n + 1) for n in range(3)}})}, 240),
        ({"endingOffsetsByTimestamp": json.dumps({"same-rows": {n: WHEN + 30_000 * (n + 1) for n in range(3)}})}, 60),
        ({"startingTimestamp": str(WHEN + 10**9), "startingOffsetsByTimestampStrategy": "latest"}, 0),
        ({"startingTimestamp": str(WHEN + 150_000), "startingOffsets": "earliest"}, 150),
        ({"minPartitions": "7"}, 300),
        ({"maxRecordsPerPartition": "30"}, 300),
        ({"kafka.isolation.level": "read_committed", "failOnDataLoss": "false", "groupIdPrefix": "g"}, 300),
    ],
)
def test_a_batch_has_the_same_rows(jvm: SparkSession, kafka: Kafka, topic: str, options: dict[str, str], count: int) -> None:
    assert both(jvm, kafka, subscribe=topic, **options) == count


@pytest.mark.parametrize("options", [{"subscribePattern": "same-r.w."}, {"assign": '{"same-rows":[0,2]}'}])
def test_topics_are_chosen_alike(jvm: SparkSession, kafka: Kafka, topic: str, options: dict[str, str]) -> None:
    assert both(jvm, kafka, **options) in (200, 300)


@pytest.mark.parametrize(
    "options",
    [{}, {"minPartitions": "2"}, {"minPartitions": "7"}, {"minPartitions": "8", "startingOffsets": '{"same-rows":{"0":90,"1":0,"2":50}}'}],
)
def test_ranges_are_cut_into_as_many_tasks(jvm: SparkSession, kafka: Kafka, topic: str, options: dict[str, str]) -> None:
    tasks = [frame(jvm, kafka, form, subscribe=topic, **options).rdd.getNumPartitions() for form in (JVM, WIRE)]
    assert tasks[0] == tasks[1]


@pytest.mark.parametrize(
    ("options", "said", "theirs"),
    [
        ({}, "subscribe", "must be specified"),
        ({"subscribe": "same-rows", "subscribePattern": "same.*"}, "Only one", "Only one"),
        ({"subscribe": " , "}, "subscribe", "No topics to subscribe"),
        ({"subscribePattern": " "}, "subscribePattern", "Pattern to subscribe is empty"),
        ({"assign": "same-rows"}, "assign", "No topicpartitions to assign"),
        ({"assign": "{1"}, '"topicA":\\[0,1\\]', "Expected e.g."),
        ({"subscribe": "same-rows", "startingOffsets": "latest"}, "latest", "starting offset can't be latest"),
        ({"subscribe": "same-rows", "startingOffsets": '{"same-rows":{"0":0,"1":0,"2":-1}}'}, "latest", "same-rows-2 can't be latest"),
        ({"subscribe": "same-rows", "endingOffsets": "earliest"}, "earliest", "ending offset can't be earliest"),
        ({"subscribe": "same-rows", "endingOffsets": '{"same-rows":{"0":-2,"1":0,"2":-1}}'}, "earliest", "same-rows-0 can't be earliest"),
        ({"subscribe": "same-rows", "startingOffsets": "soon"}, "startingOffsets|Expected", "Expected e.g."),
        ({"subscribe": "same-rows", "startingOffsets": '{"same-rows":{"0":0}}'}, "same-rows", "don't match what are assigned"),
        ({"subscribe": "same-rows", "startingTimestamp": "noon"}, "noon", "Expected a single long value"),
        ({"subscribe": "same-rows", "startingTimestamp": str(WHEN + 10**9)}, "No offset matched", "No offset matched"),
        ({"subscribe": "same-rows", "startingOffsetsByTimestamp": "{}{"}, "123456789", "don't match what are assigned"),
        ({"subscribe": "same-rows", "startingOffsetsByTimestampStrategy": "maybe", "startingTimestamp": "1"}, "(?i)maybe", "MAYBE"),
        ({"subscribe": "same-rows", "failOnDataLoss": "perhaps"}, "perhaps", "perhaps"),
        ({"subscribe": "same-rows", "minPartitions": "0"}, "minPartitions", "minPartitions must be positive"),
        ({"subscribe": "same-rows", "maxRecordsPerPartition": "0"}, "(?i)maxRecordsPerPartition", "perpartition must be positive"),
        ({"subscribe": "same-rows", "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "3"}, "(?i)min", "is higher than"),
        ({"subscribe": "same-rows", "kafka.auto.offset.reset": "none"}, "auto.offset.reset", "auto.offset.reset"),
        ({"subscribe": "same-rows", "kafka.key.deserializer": "X"}, "key.deserializer", "key.deserializer"),
        ({"subscribe": "same-rows", "kafka.value.deserializer": "X"}, "value.deserializer", "value.deserializer"),
        ({"subscribe": "same-rows", "kafka.enable.auto.commit": "true"}, "enable.auto.commit", "enable.auto.commit"),
        ({"subscribe": "same-rows", "kafka.interceptor.classes": "X"}, "interceptor.classes", "interceptor.classes"),
        ({"subscribe": "same-rows", "kafka.bootstrap.servers": ""}, "bootstrap", "Failed to create new KafkaAdminClient"),
        (
            {"subscribe": "same-rows", "kafka.sasl.mechanism": "NONE", "kafka.security.protocol": "SASL_PLAINTEXT"},
            "kafka.sasl.mechanism is 'NONE'",
            "Failed to create new KafkaAdminClient",
        ),
        ({"subscribe": "same-rows", "kafka.fetch.min.bytes": "many"}, "fetch.min.bytes|many", "fetch.min.bytes"),
        ({"subscribe": "nowhere"}, "(?i)nowhere|UnknownTopic", "UnknownTopicOrPartition"),
    ],
)
def test_a_mistake_is_refused_by_both(jvm: SparkSession, kafka: Kafka, topic: str, options: dict[str, str], said: str, theirs: str) -> None:
    fast = {"fetchOffset.numRetries": "1", "kafka.default.api.timeout.ms": "15000", "kafka.request.timeout.ms": "12000"}
    with pytest.raises(Exception, match=theirs):
        frame(jvm, kafka, JVM, **fast, **options).count()
    with pytest.raises(Exception, match=said):
        frame(jvm, kafka, WIRE, **options).count()


@pytest.mark.parametrize("option", ["endingOffsets", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(jvm: SparkSession, kafka: Kafka, topic: str, tmp_path: Path, option: str) -> None:
    value = {"endingOffsets": "latest"}.get(option, '{"same-rows":{"0":1,"1":1,"2":1}}')
    for form in (JVM, WIRE):
        with pytest.raises(Exception, match="not valid in"):
            drain(stream(jvm, kafka, form, subscribe=topic, **{option: value}), tmp_path / form)


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": "earliest"},
        {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "110"},
        {"startingOffsets": '{"same-rows":{"0":50,"1":-2,"2":-1}}', "maxOffsetsPerTrigger": "61", "minPartitions": "5"},
        {"startingTimestamp": str(WHEN + 200_000), "maxOffsetsPerTrigger": "41"},
        {"startingOffsets": "latest"},
    ],
)
def test_a_stream_has_the_same_micro_batches(jvm: SparkSession, kafka: Kafka, topic: str, tmp_path: Path, options: dict[str, str]) -> None:
    reports = {form: drain(stream(jvm, kafka, form, subscribe=topic, **options), tmp_path / form) for form in (JVM, WIRE)}
    assert offsets(tmp_path / WIRE) == offsets(tmp_path / JVM)
    counts = {form: [report["numInputRows"] for report in found if report["numInputRows"]] for form, found in reports.items()}
    assert counts[WIRE] == counts[JVM]
    same(kept(jvm, tmp_path / JVM), kept(jvm, tmp_path / WIRE))


def test_a_checkpoint_of_the_jvm_connector_goes_on_under_ours(
    jvm: SparkSession, kafka: Kafka, tmp_path: Path, fresh: Callable[[str], str]
) -> None:
    topic = fresh("handed-over")
    make(kafka, topic, 2)
    put(kafka, topic, [(None, b"%d" % n, n % 2) for n in range(50)])
    drain(stream(jvm, kafka, JVM, subscribe=topic, startingOffsets="earliest"), tmp_path)
    put(kafka, topic, [(None, b"%d" % n, n % 2) for n in range(50, 80)])
    drain(stream(jvm, kafka, WIRE, subscribe=topic, startingOffsets="earliest"), tmp_path)
    put(kafka, topic, [(None, b"%d" % n, n % 2) for n in range(80, 100)])
    drain(stream(jvm, kafka, JVM, subscribe=topic, startingOffsets="earliest"), tmp_path)
    values = [int(row.value) for row in kept(jvm, tmp_path).collect()]
    assert sorted(values) == list(range(100))


def test_what_is_written_is_the_same(jvm: SparkSession, kafka: Kafka, topic: str, fresh: Callable[[str], str]) -> None:
    source = frame(jvm, kafka, JVM, subscribe=topic, includeHeaders="true")
    written = {}
    for form in (JVM, WIRE):
        target = fresh("written")
        make(kafka, target, 4)
        rows = source.selectExpr("cast(key as string) as key", "value", "headers", f"'{target}' as topic", "2 as partition", "timestamp")
        rows.where("value is not null").write.format(form).option("kafka.bootstrap.servers", kafka.bootstrap).mode("append").save()
        rows.select("key", "value", "headers").where("key is not null").write.format(form).options(
            **{"kafka.bootstrap.servers": kafka.bootstrap, "topic": target, "kafka.compression.type": "zstd", "kafka.acks": "all"}
        ).mode("append").save()
        written[form] = frame(jvm, kafka, JVM, subscribe=target, includeHeaders="true").select("key", "value", "partition", "headers")
    assert same(written[JVM].where("partition < 5"), written[WIRE]) == 440


@pytest.mark.parametrize(
    ("columns", "options", "said", "theirs"),
    [
        (["key"], {"topic": "t"}, "Required attribute 'value' not found", "Required attribute 'value' not found"),
        (["value"], {}, "topic option required when no 'topic' attribute is present", "topic option required when no 'topic' attribute"),
        (["1 as value"], {"topic": "t"}, "value", "value attribute unsupported type int"),
        (["value", "1 as key"], {"topic": "t"}, "key", "key attribute unsupported type int"),
        (["value", "1 as topic"], {}, "topic", "topic attribute unsupported type int"),
        (["value", "'a' as partition"], {"topic": "t"}, "partition", "partition attribute unsupported type string"),
        (["value", "'a' as headers"], {"topic": "t"}, "headers", "headers attribute unsupported type string"),
        (["value", "cast(null as string) as topic"], {}, "null topic present in the data", "contains a null topic"),
        (["value"], {"topic": "t", "kafka.key.serializer": "X"}, "key.serializer", "'key.serializer' is not supported"),
        (["value"], {"topic": "t", "kafka.value.serializer": "X"}, "value.serializer", "'value.serializer' is not supported"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_by_both(
    jvm: SparkSession, kafka: Kafka, columns: list[str], options: dict[str, str], said: str, theirs: str
) -> None:
    rows = jvm.sql("SELECT X'6b' AS key, X'76' AS value").selectExpr(*columns)
    for form, words in ((JVM, theirs), (WIRE, said)):
        with pytest.raises(Exception, match=words):
            rows.write.format(form).options(**{"kafka.bootstrap.servers": kafka.bootstrap, **options}).mode("append").save()


def test_overwrite_is_refused_by_both(jvm: SparkSession, kafka: Kafka, topic: str) -> None:
    rows = frame(jvm, kafka, WIRE, subscribe=topic).select("value")
    for form in (JVM, WIRE):
        with pytest.raises(Exception, match=r"(?i)append"):
            rows.write.format(form).options(**{"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic}).mode("overwrite").save()


def test_an_interrupted_first_batch_of_the_jvm_goes_on_under_ours(
    jvm: SparkSession, kafka: Kafka, tmp_path: Path, fresh: Callable[[str], str]
) -> None:
    """Its end is in the checkpoint, its commit is not: the same offsets are read again."""
    topic = fresh("interrupted")
    make(kafka, topic)
    put(kafka, topic, [(None, b"%d" % n) for n in range(30)])
    drain(stream(jvm, kafka, JVM, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=20), tmp_path)
    (tmp_path / "checkpoint" / "commits" / "1").unlink()
    put(kafka, topic, [(None, b"%d" % n) for n in range(30, 40)])
    reports = drain(stream(jvm, kafka, WIRE, subscribe=topic, startingOffsets="earliest"), tmp_path)
    (source,) = reports[0]["sources"]
    assert [json.loads(source[name]) for name in ("startOffset", "endOffset")] == [{topic: {"0": 20}}, {topic: {"0": 30}}]
    assert sorted(int(row.value) for row in kept(jvm, tmp_path).collect()) == list(range(40))
