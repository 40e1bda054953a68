"""Filters on kafka-wire: the rows of a query are the same with and without push-down, and what is pushed is not read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spark.peers import QUIET
from spark.streams import frame, make, put

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from brokers import Kafka

pytestmark = [
    QUIET,
    pytest.mark.broker("kafka-4.3.1-transactions"),
]
WHEN = 1_700_000_000_000
PUSH = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def topics(kafka: Kafka) -> str:
    """Two topics of two partitions; times do not rise with offsets throughout."""
    for topic in ("push-a", "push-b"):
        make(kafka, topic, 2)
        put(kafka, topic, [(None, b"%d" % n, n % 2, WHEN + (n * 37 % 100) * 1000) for n in range(100)])
    return "push-a,push-b"


def rows_made(rows: DataFrame) -> int:
    """How many rows our source gave Spark for this frame, which has been collected."""
    leaves = rows._jdf.queryExecution().executedPlan().collectLeaves()
    return sum(int(leaves.apply(n).metrics().apply("numOutputRows").value()) for n in range(leaves.size()))


@pytest.mark.parametrize(
    ("condition", "read"),
    [
        ("topic = 'push-a'", 100),
        ("topic in ('push-b', 'x') and partition = 1", 50),
        ("topic <> 'push-a' and partition < 1", 50),
        ("topic like 'push%'", 200),
        ("topic is null", 0),
        ("partition is not null and not partition in (0)", 100),
        ("offset >= 10 and offset < 20", 40),
        ("offset > 10 and offset <= 20 and partition = 0", 20),
        ("offset = 7", 4),
        ("offset in (7, 9)", 200),
        ("offset = -1", 0),
        ("offset <=> 49", 4),
        ("not offset = 7", 200),
        (f"timestamp >= timestamp_millis({WHEN + 99_000})", 74),  # from the first such time of a partition on
        (f"timestamp > timestamp_millis({WHEN + 99_000})", 74),
        (f"timestamp = timestamp_millis({WHEN + 50_000})", 194),
        (f"timestamp < timestamp_millis({WHEN + 50_000})", 200),
        ("topic = 'push-a' or offset = 3", 200),
        ("topic = null", 0),
        ("value = binary('5') and topic = 'push-b'", 100),
    ],
)
def test_rows_are_the_same_with_and_without(spark: SparkSession, kafka: Kafka, topics: str, condition: str, read: int) -> None:
    """The same rows come, and of those that the condition keeps out no more are read than are said here."""
    found, made = {}, {}
    for on in ("true", "false"):
        spark.conf.set(PUSH, on)
        try:
            rows = frame(spark, kafka, subscribe=topics, pushDownPredicate="true").where(condition)
            found[on] = sorted((row.topic, row.partition, row.offset) for row in rows.collect())
            made[on] = rows_made(rows)
        finally:
            spark.conf.set(PUSH, "true")
    assert found["true"] == found["false"]
    folded = condition == "topic = null"  # which Spark sees through by itself
    assert made == {"true": read, "false": 0 if folded else 200}


def test_what_is_pushed_is_not_planned(spark: SparkSession, kafka: Kafka, topics: str) -> None:
    rows = frame(spark, kafka, subscribe=topics, pushDownPredicate="true")
    assert rows.where("topic = 'push-a' and partition = 1").rdd.getNumPartitions() == 1
    assert rows.where("offset >= 1000").where("topic = 'push-a'").rdd.getNumPartitions() == 1
    assert rows.where(f"timestamp >= timestamp_millis({WHEN + 10**9})").count() == 0
    plan = rows.where("topic = 'push-a' and offset < 5")._jdf.queryExecution().executedPlan().toString()
    assert " Filter " not in plan  # Spark does not look again


def test_a_frame_that_did_not_ask_for_it_may_be_used_again(spark: SparkSession, kafka: Kafka, topics: str) -> None:
    rows = frame(spark, kafka, subscribe=topics)
    assert rows.where("topic = 'push-a' and partition = 1 and offset < 10").count() == 10
    assert rows.count() == 200
    assert rows.where("partition = 0").union(rows.where("partition = 1")).count() == 200
