"""Spark's JVMs here start from an archive of their classes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import quick_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_sessions_jvm_has_mapped_the_archive_of_classes(spark: SparkSession) -> None:
    number = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    assert str(quick_spark.archive()) in Path(f"/proc/{number}/maps").read_text()
