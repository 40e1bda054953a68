"""A Spark stream at work: Structured Streaming by our format, from a checkpoint, into files that are named by the micro-batch.

    python -m campaign.streaming PLAN.json JOURNAL

A micro-batch that is run again writes the same file again, so each record is there once if the source tells of each once.
The line ``finish`` on its input: all that is there is read, and the process ends. Exit code 1: the query failed; start it again.
`told` makes a reader's history of the files, for the judges. Must not: run under a faked clock, which Spark's own Python cannot bear.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LIMIT = 20_000  # records to a micro-batch
PACE = "1 second"


def told(name: str, topic: str, rows: Path, began: float, ended: float) -> Iterator[list[Any]]:
    """Events of one reader, as journals have them: what the files hold, in the order of micro-batches."""
    yield [began, "life", name, 0, {"start": "earliest"}]
    for file in sorted(rows.glob("*.json")):
        logs: dict[str, list[Any]] = {}
        for partition, offset, value in json.loads(file.read_text()):
            logs.setdefault(f"{topic}/{partition}", []).append([[offset], value])
        for log, found in logs.items():
            yield [ended, "got", name, 0, log, found]
    yield [ended, "ended", name, 0, ""]


def rows_of(folder: Path, name: str) -> Path:
    """Where a stream's files lie."""
    return folder / f"{name}-rows"


def keep(rows: Path, batch: Any, number: int) -> None:
    """A micro-batch becomes one file, in one step."""
    found = [[row.partition, row.offset, bytes(row.value).decode().rstrip()] for row in batch.collect()]
    fresh = rows / f"{number:09}.new"
    fresh.write_text(json.dumps(found))
    fresh.replace(rows / f"{number:09}.json")


def source(plan: dict[str, Any]) -> dict[str, str]:
    """The stream's options: the brokers behind their proxies."""
    pairs = ",".join(f"{old}={new}" for old, new in plan["options"]["address_map"].items())
    servers = plan["url"].partition("://")[2].partition("/")[0]
    known = {"kafka.bootstrap.servers": servers, "kafka.address_map": pairs, "subscribe": plan["roles"][0]["topic"]}
    return known | {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(LIMIT)}


def main() -> int:
    plan, folder = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[1]).parent
    rows = rows_of(folder, plan["name"])
    rows.mkdir(exist_ok=True)
    finish = threading.Event()
    threading.Thread(target=_listen, args=(finish,), daemon=True).start()
    warnings.simplefilter("ignore")  # PySpark's own imports warn on new library versions
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import SparkSession

    from spark.kills.job import CONF

    builder: Any = SparkSession.builder
    for name, value in CONF.items():
        builder = builder.config(name, value)
    stream = builder.getOrCreate().readStream.format("kafka-wire").options(**source(plan)).load()
    writer = stream.select("partition", "offset", "value").writeStream.foreachBatch(lambda batch, number: keep(rows, batch, number))
    query = writer.option("checkpointLocation", str(folder / f"{plan['name']}-checkpoint")).trigger(processingTime=PACE).start()
    try:
        while query.isActive and not finish.wait(0.5):
            pass
        query.processAllAvailable()
        query.stop()
    except StreamingQueryException as why:
        print(f"the query failed: {why}", flush=True)
        return 1
    return 0


def _listen(finish: threading.Event) -> None:
    for line in sys.stdin:
        if line.strip() == "finish":
            finish.set()
    os._exit(3)


if __name__ == "__main__":
    sys.exit(main())
