"""The streaming half: flights from Kafka, made into departure delays, go to a Pulsar topic, each exactly once.

    python -m flights.stream KAFKA PULSAR CHECKPOINT      the query alone, in a program of its own

What it is: one Structured Streaming query with a checkpoint, run to what is there (`availableNow`) in micro-batches. It begins in a program
of its own, which is killed in its first micro-batch; the demo's own Spark goes on from the checkpoint. Then the last micro-batch runs
again, as after a crash before it was committed, in other tasks. What Pulsar holds is counted and hashed by our own Reader and compared with
the same over the source file.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the name PySpark's own documentation uses)
from pyspark.sql.streaming.query import StreamingQuery

import wireproto

from . import report
from .dataset import Flight, fingerprint
from .load import PARTITIONS
from .load import TOPIC as FLIGHTS
from .steps import BUSY, LATE, Failed, Steps, retried_if_late, say

TOPIC = "delays"
MICRO_BATCH = 100_000  # records
PATIENCE = 240.0  # seconds for Spark to start, and to plan
FLIGHT = "carrier string, flight int, origin string, dest string, dep_delay int"


def expected(flights: Iterable[Flight]) -> tuple[int, int]:
    """Count and hash of what the query must write: the flights that departed, by carrier, as JSON."""
    return fingerprint(delay for flight in flights if (delay := delayed(json.loads(flight.value))))


def delayed(row: dict[str, Any]) -> tuple[bytes, bytes] | None:
    """Key and value of one flight's record; None for one that did not depart."""
    if row["dep_delay"] is None:
        return None
    value = {name: row[name] for name in ("carrier", "flight", "origin", "dest")} | {"delay": row["dep_delay"]}
    return row["carrier"].encode(), json.dumps(value, separators=(",", ":")).encode()


def prepare(url: str) -> None:
    """Make the topic."""
    with wireproto.connect(url) as client:
        client.admin().create_topic(TOPIC, partitions=PARTITIONS)


def delays(spark: SparkSession, servers: str, tasks: int = PARTITIONS) -> DataFrame:
    """The flights that departed, as the records to write; `delayed` says the same in Python. tasks: into how many a micro-batch is cut."""
    source = spark.readStream.format("kafka-wire").option("kafka.bootstrap.servers", servers).option("subscribe", FLIGHTS)
    records = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", MICRO_BATCH).option("minPartitions", tasks).load()
    flights = records.select(F.from_json(F.col("value").cast("string"), FLIGHT).alias("f"), "timestamp").select("f.*", "timestamp")
    value = F.to_json(F.struct("carrier", "flight", "origin", "dest", F.col("dep_delay").alias("delay")))
    return flights.where("dep_delay is not null").select(F.col("carrier").alias("key"), value.alias("value"), "timestamp")


def begun(table: DataFrame, url: str, checkpoint: Path) -> StreamingQuery:
    """The query, on its way."""
    service, _, admin = url.partition("?admin=")
    writer = table.writeStream.format("pulsar-wire").option("service.url", service).option("admin.url", admin).option("topic", TOPIC)
    writer = writer.option("exactlyOnce", "true").option("checkpointLocation", str(checkpoint.absolute()))
    return writer.option("includeTimestamp", "true").trigger(availableNow=True).start()


def killed(servers: str, url: str, checkpoint: Path, log: Path) -> None:
    """Begin it in a program of its own, which is killed as soon as it has planned a micro-batch; what it says goes to the file `log`."""
    command = [sys.executable, "-m", "flights.stream", servers, url, str(checkpoint)]
    with log.open("wb") as said:
        program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=said, stderr=said, start_new_session=True)
    planned, deadline = checkpoint / "offsets" / "0", time.monotonic() + PATIENCE
    try:
        while not planned.exists():
            if program.poll() is not None:
                why = next((line for line in log.read_text(errors="replace").splitlines() if any(sign in line for sign in LATE)), "")
                raise Failed(f"the program that was to be killed ended before its first micro-batch; its log is {log}. {why}".strip())
            if time.monotonic() > deadline:
                raise Failed(f"the program that was to be killed planned no micro-batch in {PATIENCE:.0f} s; its log is {log}", BUSY)
            time.sleep(0.05)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.communicate()


def run(table: DataFrame, url: str, checkpoint: Path) -> tuple[int, float]:
    """Write what is there and end: rows that went in, and the seconds it took. Tells each micro-batch as it ends."""
    begin = time.perf_counter()
    query = begun(table, url, checkpoint)
    told = -1
    ended: bool | None = False
    while not ended:
        ended = query.awaitTermination(1)  # raises what ended the query, if it failed
        for batch in query.recentProgress:
            if batch["batchId"] > told and batch["numInputRows"]:
                told = batch["batchId"]
                rate = batch["numInputRows"] * 1000 / max(batch["batchDuration"], 1)
                say(f"micro-batch {told}: {batch['numInputRows']:>8,} records, {rate:>8,.0f} a second")
    return sum(batch["numInputRows"] for batch in query.recentProgress), time.perf_counter() - begin


def forget_last(checkpoint: Path) -> None:
    """Have the query run its last micro-batch again, as when it died after writing it and before saying so."""
    last = max((path for path in (checkpoint / "commits").iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def stored(url: str) -> tuple[int, int, float]:
    """Count and hash of what the topic holds, and the seconds of reading it."""
    begin = time.perf_counter()
    with wireproto.connect(url) as client:
        count, total = fingerprint(records(client))
    return count, total, time.perf_counter() - begin


def records(client: Any) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of every record in the topic."""
    for batch in client.reader(TOPIC, start=wireproto.EARLIEST, stop=wireproto.LATEST):
        yield from zip(batch.keys(), batch.values(), strict=True)


def whole(spark: SparkSession, urls: dict[str, str], wanted: tuple[int, int], out: Path, steps: Steps) -> bool:
    """The query, its replay and the proof: whether it holds."""
    checkpoint = out / "checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)  # of a run on other brokers
    servers = urls["kafka"].partition("://")[2]
    with steps.step("stream kafka to pulsar", "a first program, killed in its first micro-batch"):
        prepare(urls["pulsar"])
        retried_if_late(lambda: killed(servers, urls["pulsar"], checkpoint, out / "first-program.log"))
    with steps.step("stream on", "from its checkpoint") as done:
        done.count, done.seconds = retried_if_late(lambda: run(delays(spark, servers), urls["pulsar"], checkpoint))
    with steps.step("repeat the last micro-batch", "as after a crash, in other tasks"):
        forget_last(checkpoint)
        retried_if_late(lambda: run(delays(spark, servers, 2 * PARTITIONS), urls["pulsar"], checkpoint))
    with steps.step("count what pulsar holds", "by our own reader, each record once") as done:
        done.count, total, done.seconds = stored(urls["pulsar"])
        return report.verdict("stream", f"{done.count:>8,} records, hash {total:x}, each once", (done.count, total) == wanted)


def end_with_input() -> None:
    """Kill this program, its JVM and its workers when standard input ends: Ctrl-C may come to the demo before it knows of us."""
    sys.stdin.buffer.read()
    os.killpg(0, signal.SIGKILL)


def main(servers: str, url: str, checkpoint: str) -> None:
    """The first program: a group of processes of its own, which ends with its standard input."""
    threading.Thread(target=end_with_input, daemon=True).start()
    spark = report.session()
    begun(delays(spark, servers), url, Path(checkpoint)).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
