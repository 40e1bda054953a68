"""What the tests of the formats share: runs of a stream to what is there, a sink that is run again, a stream driven without Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECONDS = 150


def run(table: DataFrame, folder: Path, form: str = "parquet", **options: Any) -> list[Any]:
    """A stream to what is there now, into files or a format; its progress reports."""
    writer = table.writeStream.format(form).option("checkpointLocation", str(folder / "checkpoint")).options(**options)
    if form == "parquet":
        writer = writer.option("path", str(folder / "rows"))
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(SECONDS), "the stream did not end"
    finally:
        query.stop()
    return list(query.recentProgress)


def kept(spark: SparkSession, folder: Path) -> list[int]:
    """Values that `run` wrote, sorted."""
    return values(spark.read.parquet(str(folder / "rows")))


def values(table: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in table.select("value").collect())


def counts(reports: list[Any]) -> list[int]:
    return [report["numInputRows"] for report in reports if report["numInputRows"]]


def forget_last(folder: Path) -> int:
    """Have the query run its last micro-batch again, as after a crash before it was committed: its number."""
    commits = folder / "checkpoint" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
    return last


def ends(folder: Path) -> list[Any]:
    """Ends of the micro-batches, as the checkpoint has them."""
    files = sorted((path for path in (folder / "checkpoint" / "offsets").iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    return [json.loads(path.read_text().splitlines()[2]) for path in files]


def watched(table: DataFrame, sign: Path) -> DataFrame:
    """The table, whose tasks leave a sign when they begin."""
    path = str(sign)

    def passed(batches: Any) -> Any:
        from pathlib import Path

        Path(path).touch()
        yield from batches

    return table.mapInArrow(passed, table.schema)


def lags(reports: list[Any], topic: str) -> list[tuple[Any, Any]]:
    """(end of the micro-batch, end of the log) as each progress report with rows tells them."""
    sources = [report["sources"][0] for report in reports if report["numInputRows"]]
    return [(json.loads(one["endOffset"])[topic], json.loads(one["latestOffset"])[topic]) for one in sources]


def foreign(folder: Path, offsets: str) -> None:
    """Put another source's offsets into the place of the checkpoint's."""
    for path in (folder / "checkpoint" / "offsets").iterdir():
        if path.name.isdigit():
            lines = path.read_text().splitlines()
            path.write_text("\n".join([*lines[:2], offsets]))
        else:
            path.unlink()


def planned(source: Any) -> Callable[[], list[int]]:
    """Plans a batch of values on the driver; what it gives back reads it as the tasks would, later."""
    from pyspark.sql.types import BinaryType, StructField, StructType

    reader = source.reader(StructType([StructField("value", BinaryType())]))
    parts = reader.partitions()
    return lambda: sorted(int(value) for part in parts for batch in reader.read(part) for value in batch.column(0).to_pylist())


class Driven:
    """A stream of values, driven in this process as Spark drives it: micro-batch by micro-batch, its tasks one after the other."""

    def __init__(self, source: Any, at: Any = None) -> None:
        """`at`: where a former query stood, whose checkpoint this one goes on from."""
        from pyspark.sql.types import BinaryType, StructField, StructType

        self.stream = source.streamReader(StructType([StructField("value", BinaryType())]))
        self.at = at or self.stream.initialOffset()

    def asked(self, version: str = "4.2") -> Any:
        """Where the next micro-batch ends, as this version of PySpark asks for it."""
        stream = self.stream
        given = stream.latestOffset(self.at, stream.getDefaultReadLimit()) if version == "4.2" else stream.latestOffset()
        return json.loads(json.dumps(given))

    def task(self, start: Any, end: Any) -> list[int]:
        """The values of a micro-batch, sorted."""
        parts = self.stream.partitions(start, end)
        return sorted(int(value) for part in parts for batch in self.stream.read(part) for value in batch.column(0).to_pylist())

    def step(self, version: str = "4.2") -> list[int]:
        """The values of the next micro-batch, sorted."""
        end = self.asked(version)
        found = self.task(self.at, end)
        if end != self.at:
            self.stream.commit(end)
        self.at = end
        return found

    def __enter__(self) -> Driven:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.stop()
