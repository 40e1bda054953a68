"""Warnings of kafka-wire where Spark's users read them: the standard error of real workers and planners, which configure no logging."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from patience import until
from spark.embedded import filled
from spark.logs import run, values
from wireproto.devbroker import DevBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Fresh = Callable[[str], str]
Said = Callable[[str], None]


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker(["kafka"]) as found:
        yield found


@pytest.fixture
def said(spark: SparkSession, standard_error: Path) -> Said:
    """Waits for a line that a process of Spark's writes in this test: the JVM passes them on in a thread of its own."""
    before = standard_error.stat().st_size

    def waited(line: str) -> None:
        until(lambda: line in standard_error.read_bytes()[before:].decode().splitlines(), f"no process of Spark's wrote {line!r}")

    return waited


def test_a_batch_s_planner_and_its_workers_write_their_warnings_to_standard_error(
    broker: DevBroker, spark: SparkSession, said: Said, fresh: Fresh
) -> None:
    topic = filled(broker, fresh("warned"), 5)
    broker.call("kafka", "trim", topic, 0, 3)
    options = {"assign": f'{{"{topic}": [0, 7]}}', "startingOffsets": f'{{"{topic}": {{"0": 0}}}}', "failOnDataLoss": "false"}
    table = spark.read.format("kafka-wire").options(**{"kafka.bootstrap.servers": broker.address("kafka"), **options}).load()
    assert values(table) == [3, 4]
    said(f"kafka-wire: option assign names {topic}-7, which the cluster does not have: the others are read")
    said(
        "kafka-wire: some data may have been lost because it is not there any more: it was aged out, or its topic was deleted, before it "
        f"was read. {topic}-0 was to be read in [0, 5) and now holds [3, 5)"
    )


def test_a_stream_s_planner_writes_its_warnings_to_standard_error(
    broker: DevBroker, spark: SparkSession, said: Said, fresh: Fresh, tmp_path: Path
) -> None:
    topic = filled(broker, fresh("warned"), 2)
    options = {"assign": f'{{"{topic}": [0, 7]}}', "startingOffsets": "earliest"}
    run(spark.readStream.format("kafka-wire").options(**{"kafka.bootstrap.servers": broker.address("kafka"), **options}).load(), tmp_path)
    said(f"kafka-wire: option assign names {topic}-7, which the cluster does not have: the others are read")
