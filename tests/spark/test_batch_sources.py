"""The batch sources on the dev broker: what a Spark program sees of each protocol.

A test that Spark failed is run once more (`late.py`), on the broker that it has used: so each run has names of its own (`fresh`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

import wireproto
from spark.peers import QUIET
from wireproto.devbroker import DevBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WHEN = 1_357_034_400_000
OPTIONS = {
    "kafka": ("kafka-wire", "kafka.bootstrap.servers", "subscribe"),
    "pulsar": ("pulsar-wire", "service.url", "topic"),
    "rocketmq": ("rocketmq-wire", "nameServer", "topic"),
}
pytestmark = QUIET
Fresh = Callable[[str], str]


def load(spark: SparkSession, broker: DevBroker, protocol: str, topic: str, **options: str) -> DataFrame:
    name, servers, subject = OPTIONS[protocol]
    reader = spark.read.format(name).option(servers, broker.address(protocol)).option(subject, topic)
    return reader.options(**options).load()


def write(broker: DevBroker, protocol: str, topic: str, rows: list[tuple[bytes | None, bytes | None]], **send: Any) -> None:
    with wireproto.connect(broker.url(protocol)) as client:
        client.admin().create_topic(topic, partitions=4)
        with client.producer(topic) as out:
            for key, value in rows:
                out.send(value, key=key, timestamp=WHEN, **send)
            out.flush()


@pytest.mark.parametrize("protocol", OPTIONS)
def test_every_record_arrives_once_with_its_bytes_and_time(spark: SparkSession, dev_broker: DevBroker, fresh: Fresh, protocol: str) -> None:
    topic = fresh("spark-all")
    rows: list[tuple[bytes | None, bytes | None]] = [(b"k%d" % n, b"v%d" % n) for n in range(1000)]
    write(dev_broker, protocol, topic, rows)
    frame = load(spark, dev_broker, protocol, topic)
    assert frame.rdd.getNumPartitions() == 4
    found = frame.select("key", "value", "topic", "partition", "timestamp").collect()
    assert sorted((bytes(row.key), bytes(row.value)) for row in found) == sorted(rows)
    assert {row.topic for row in found} == {topic}
    assert {row.partition for row in found} <= {0, 1, 2, 3}
    assert {row.timestamp.replace(tzinfo=UTC) for row in found} == {datetime.fromtimestamp(WHEN / 1000, UTC)}


def test_kafka_has_the_columns_of_the_jvm_connector_in_its_order(spark: SparkSession, dev_broker: DevBroker, fresh: Fresh) -> None:
    topic = fresh("spark-columns")
    write(dev_broker, "kafka", topic, [(b"k", b"v")])
    frame = load(spark, dev_broker, "kafka", topic, includeHeaders="true")
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    assert frame.first().timestampType == 0


def test_headers_and_nulls_are_kept_apart_from_empties(spark: SparkSession, dev_broker: DevBroker, fresh: Fresh) -> None:
    topic = fresh("spark-nulls")
    with wireproto.connect(dev_broker.url("kafka")) as client:
        client.admin().create_topic(topic, partitions=1)
        with client.producer(topic) as out:
            out.send(None, key=b"tombstone")
            out.send(b"", key=None, headers=[("h", b"1"), ("h", None)])
            out.flush()
    first, second = load(spark, dev_broker, "kafka", topic, includeHeaders="true").orderBy("offset").collect()
    assert (bytes(first.key), first.value, first.headers) == (b"tombstone", None, None)
    assert (second.key, bytes(second.value)) == (None, b"")
    assert [(name, None if value is None else bytes(value)) for name, value in second.headers] == [("h", b"1"), ("h", None)]


def test_offsets_bound_the_read_and_a_narrow_schema_is_honoured(spark: SparkSession, dev_broker: DevBroker, fresh: Fresh) -> None:
    topic = fresh("spark-bounds")
    with wireproto.connect(dev_broker.url("kafka")) as client:
        client.admin().create_topic(topic, partitions=2)
        with client.producer(topic) as out:
            for n in range(20):
                out.send(b"%d" % n, partition=n % 2)
            out.flush()
    start, stop = json.dumps({topic: {"0": 2, "1": -2}}), json.dumps({topic: {"0": 5, "1": -1}})
    name, servers, subject = OPTIONS["kafka"]
    reader = spark.read.format(name).schema("offset bigint, value binary")
    options = {servers: dev_broker.address("kafka"), subject: topic, "startingOffsets": start, "endingOffsets": stop}
    found = reader.options(**options).load()
    assert found.columns == ["offset", "value"]
    assert sorted(int(row.value) for row in found.collect()) == sorted([4, 6, 8, *range(1, 20, 2)])


def test_an_empty_topic_gives_an_empty_frame(spark: SparkSession, dev_broker: DevBroker, fresh: Fresh) -> None:
    topic = fresh("spark-empty")
    write(dev_broker, "kafka", topic, [])
    assert load(spark, dev_broker, "kafka", topic).count() == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOfsets": "earliest"}, "did you mean startingOffsets"),
        ({"startingOffsets": "yesterday"}, "startingOffsets"),
        ({"includeHeaders": "perhaps"}, "includeHeaders"),
        ({"startingOffsets": '{"other": {"0": 1}}'}, "not read: other"),
    ],
)
def test_a_bad_option_is_named_on_the_driver(spark: SparkSession, dev_broker: DevBroker, options: dict[str, str], said: str) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match=said):
        load(spark, dev_broker, "kafka", "spark-options", **options)


def test_an_unknown_topic_is_named_on_the_driver(spark: SparkSession, dev_broker: DevBroker) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match="spark-nowhere"):
        load(spark, dev_broker, "kafka", "spark-nowhere").count()


def test_zookeeper_gives_a_row_per_node(spark: SparkSession, dev_broker: DevBroker, fresh: Fresh) -> None:
    root = "/" + fresh("spark")
    with wireproto.connect(dev_broker.url("zookeeper")) as client:
        tree = client.tree()
        tree.create(root, b"root")
        for n in range(3):
            tree.create(f"{root}/{n}", b"data %d" % n)
        tree.create(f"{root}/0/leaf", b"")
    frame = spark.read.format("zookeeper-wire").option("hosts", dev_broker.address("zookeeper")).option("root", root).load()
    found = {row.path: row for row in frame.collect()}
    assert {path: bytes(row.data) for path, row in found.items()} == {
        root: b"root",
        f"{root}/0": b"data 0",
        f"{root}/1": b"data 1",
        f"{root}/2": b"data 2",
        f"{root}/0/leaf": b"",
    }
    assert (found[root].numChildren, found[f"{root}/1"].dataLength, found[f"{root}/1"].version) == (3, 6, 0)


def test_a_view_has_its_options_and_a_table_is_refused(spark: SparkSession, dev_broker: DevBroker, fresh: Fresh) -> None:
    """Spark makes the reader of a table without the options that it keeps for it."""
    topic = fresh("spark-view")
    write(dev_broker, "kafka", topic, [(b"k", b"1"), (b"k", b"2")])
    options = f"`kafka.bootstrap.servers` '{dev_broker.address('kafka')}', subscribe '{topic}'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW wire_view USING `kafka-wire` OPTIONS ({options})")
    assert spark.sql("SELECT count(*) AS n FROM wire_view WHERE cast(value AS string) > '1'").collect()[0].n == 1
    with pytest.raises(Exception, match="hands the options of a CREATE TABLE to no Python source: CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE wire_table USING `kafka-wire` OPTIONS ({options})")
