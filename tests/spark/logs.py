"""What the tests of pulsar-wire and rocketmq-wire share: runs of a stream to what is there, a sink that is run again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECONDS = 60


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
