"""Spark's processes here begin with what was done once before: its JVMs with an archive of their classes, Python's with byte code."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark

import quick_spark
from spark.streams import drain, kept
from wireproto.spark import found

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_sessions_jvm_has_mapped_the_archive_of_classes(spark: SparkSession) -> None:
    number = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    assert str(quick_spark.archive()) in Path(f"/proc/{number}/maps").read_text()


def test_its_python_processes_read_no_archive_and_keep_byte_code(spark: SparkSession, tmp_path: Path) -> None:
    """The process that plans a stream, which hands its rows over itself here, and workers of tasks."""
    from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

    def imports() -> list[str]:  # here, so that it travels by its code, as the classes do
        """Where this process has PySpark and the formats from, and the archives among the places of its imports."""
        import sys

        import wireproto.spark.found as formats

        archives = [place for place in sys.path_importer_cache if place.endswith((".zip", ".jar")) and "pyspark" in place]
        return [str(sys.modules["pyspark"].__file__), str(formats.__cached__), *archives]

    class Stream(SimpleDataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:  # noqa: N802
            return {"at": 0}

        def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[str]], dict[str, int]]:
            return iter([(place,) for place in imports()] if start["at"] == 0 else []), {"at": 1}

        def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[str]]:  # noqa: N802
            return iter(())

    class Imports(DataSource):
        @classmethod
        def name(cls) -> str:
            return "imports"

        def schema(self) -> str:
            return "place string"

        def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:  # noqa: N802
            return Stream()

    def task(batches: Any) -> Any:
        import pyarrow as pa

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"place": imports()})

    spark.dataSource.register(Imports)
    drain(spark.readStream.format("imports").load(), tmp_path)
    for table in (kept(spark, tmp_path), spark.range(1, numPartitions=1).mapInArrow(task, "place string")):
        places = [row.place for row in table.collect()]
        assert places == [pyspark.__file__, found.__cached__]
        assert all(Path(place).exists() for place in places)
