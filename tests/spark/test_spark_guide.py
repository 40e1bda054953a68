"""The guide's examples run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark.streams import frame, make, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from brokers import Kafka

GUIDE = Path(__file__).parents[2] / "docs" / "spark.md"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.broker("kafka-4.3.1")
def test_its_examples_run(spark: SparkSession, kafka: Kafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make(kafka, "orders", 2)
    make(kafka, "shouted")
    put(kafka, "orders", [(b"%d" % n, b"order %d" % n, n % 2) for n in range(20)])
    examples = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(examples) == 2
    for text in examples:
        exec(compile(text, str(GUIDE), "exec"), {"spark": spark, "servers": kafka.bootstrap, "checkpoint": str(tmp_path)})
    assert capsys.readouterr().out == "10\n"
    assert {bytes(row.value) for row in frame(spark, kafka, subscribe="shouted").collect()} == {b"ORDER %d" % n for n in range(20)}
