"""Streams and batch writes with exactlyOnce=true under Spark itself: each row is there once, as the JVM's connector reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark.logs import forget_last, run
from spark.peers import QUIET
from spark.streams import JVM, frame, make, stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from brokers import Kafka

pytestmark = [QUIET, pytest.mark.broker("kafka-4.3.1-transactions")]
Fresh = Callable[[str], str]
Filled = Callable[..., str]
ONCE = {"exactlyOnce": "true"}


def read(spark: SparkSession, kafka: Kafka, topic: str) -> list[int]:
    """Values, sorted, as the JVM's connector reads committed records."""
    table = frame(spark, kafka, JVM, subscribe=topic, **{"kafka.isolation.level": "read_committed"})
    return sorted(int(row.value) for row in table.select("value").collect())


def test_a_stream_writes_each_row_once_whatever_its_replays_are_cut_into(
    jvm: SparkSession, kafka: Kafka, filled: Filled, tmp_path: Path
) -> None:
    """Its last micro-batch runs again, in as many tasks as never before; and goes on behind it."""
    source, target = filled("once-in", [(None, b"%d" % n, n % 2) for n in range(100)], partitions=2), filled("once-out", partitions=3)
    sink = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": target, **ONCE}
    for parts, limit in (("2", "60"), ("5", "30"), ("3", "500")):
        table = stream(jvm, kafka, subscribe=source, startingOffsets="earliest", minPartitions=parts, maxOffsetsPerTrigger=limit)
        run(table.select("value"), tmp_path, "kafka-wire", **sink)
        assert read(jvm, kafka, target) == list(range(100))
        forget_last(tmp_path)


def test_a_task_that_fails_is_tried_again_and_leaves_nothing(jvm: SparkSession, kafka: Kafka, filled: Filled, tmp_path: Path) -> None:
    """Rows of a first attempt are stored, and rolled back, as is what a query that fails for good has written."""
    source, target = filled("failing-in", [(None, b"%d" % n) for n in range(50)]), filled("failing-out")
    sink = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": target, **ONCE, "checkpointLocation": str(tmp_path)}

    def failing(batches: Any) -> Any:
        yield from batches
        raise RuntimeError("behind its rows")

    table = stream(jvm, kafka, subscribe=source, startingOffsets="earliest").select("value")
    query = table.mapInArrow(failing, table.schema).writeStream.format("kafka-wire").options(**sink).trigger(availableNow=True).start()
    with pytest.raises(Exception, match="behind its rows"):
        query.awaitTermination(150)
    query = table.writeStream.format("kafka-wire").options(**sink).trigger(availableNow=True).start()
    assert query.awaitTermination(150)
    assert read(jvm, kafka, target) == list(range(50))


def test_batch_writes_are_all_or_nothing(jvm: SparkSession, kafka: Kafka, filled: Filled) -> None:
    target = filled("once-batch", partitions=2)
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": target, **ONCE}
    table = jvm.range(1000).repartition(4).selectExpr("cast(cast(id AS string) AS binary) AS value")
    failing = table.selectExpr("if(value = cast('777' AS binary), cast(raise_error('no') AS binary), value) AS value")
    with pytest.raises(Exception, match="no"):
        failing.write.format("kafka-wire").options(**options).mode("append").save()
    assert read(jvm, kafka, target) == []
    table.write.format("kafka-wire").options(**options).mode("append").save()
    assert read(jvm, kafka, target) == list(range(1000))


def test_rows_choose_their_topics_within_one_transaction(jvm: SparkSession, kafka: Kafka, filled: Filled, tmp_path: Path) -> None:
    source = filled("many-in", [(None, b"%d" % n) for n in range(40)])
    stem = filled("many-out")
    for kind in "ab":
        make(kafka, f"{stem}-{kind}")
    table = stream(jvm, kafka, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=15)
    rows = table.selectExpr("value", f"concat('{stem}-', if(cast(cast(value AS string) AS int) % 2 = 0, 'a', 'b')) AS topic")
    run(rows, tmp_path, "kafka-wire", **{"kafka.bootstrap.servers": kafka.bootstrap, **ONCE})
    assert [read(jvm, kafka, f"{stem}-{kind}") for kind in "ab"] == [list(range(0, 40, 2)), list(range(1, 40, 2))]
