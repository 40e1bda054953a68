"""The streaming half: flights from Kafka, made into departure delays, go to a Pulsar topic that stores each of them once.

What it is: one Structured Streaming query with a checkpoint, run to what is there (`availableNow`) in micro-batches. Then its last
micro-batch runs again, as after a crash before it was committed. What Pulsar holds is counted and hashed by our own Reader and compared
with the same over the source file.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the name PySpark's own documentation uses)

import wireproto

from .dataset import Flight, fingerprint
from .load import PARTITIONS
from .load import TOPIC as FLIGHTS

TOPIC, NAMESPACE = "delays", "public/default"
MICRO_BATCH = 100_000  # records
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


def prepare(url: str, timeout: float = 60.0) -> None:
    """Make the topic, in a namespace where the broker drops what a producer sends again: the sink asks for that."""
    deadline = time.monotonic() + timeout
    with wireproto.connect(url) as client:
        admin: Any = client.admin()
        admin.set_deduplication(NAMESPACE, True)
        admin.create_topic(TOPIC, partitions=PARTITIONS)
        parts = [f"{TOPIC}-partition-{number}" for number in range(PARTITIONS)]
        while not all(admin.deduplication(part) == "Enabled" for part in parts):
            if time.monotonic() > deadline:
                raise SystemExit(f"Pulsar does not de-duplicate {TOPIC}")
            time.sleep(0.1)


def delays(spark: SparkSession, servers: str) -> DataFrame:
    """The flights that departed, as the records to write; `delayed` says the same in Python."""
    source = spark.readStream.format("kafka-wire").option("kafka.bootstrap.servers", servers).option("subscribe", FLIGHTS)
    records = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", MICRO_BATCH).load()
    flights = records.select(F.from_json(F.col("value").cast("string"), FLIGHT).alias("f"), "timestamp").select("f.*", "timestamp")
    value = F.to_json(F.struct("carrier", "flight", "origin", "dest", F.col("dep_delay").alias("delay")))
    return flights.where("dep_delay is not null").select(F.col("carrier").alias("key"), value.alias("value"), "timestamp")


def run(table: DataFrame, service: str, checkpoint: Path) -> tuple[int, float]:
    """Write what is there and end: rows that went in, and the seconds it took. Tells each micro-batch as it ends."""
    begin = time.perf_counter()
    query = (
        table.writeStream.format("pulsar-wire")
        .option("service.url", service)
        .option("topic", TOPIC)
        .option("includeTimestamp", "true")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    told, ended = -1, False
    while not ended:
        ended = query.awaitTermination(1)  # raises what ended the query, if it failed
        for report in query.recentProgress:
            if report["batchId"] > told and report["numInputRows"]:
                told = report["batchId"]
                rate = report["numInputRows"] * 1000 / max(report["batchDuration"], 1)
                print(f"  micro-batch {told}: {report['numInputRows']:>8,} records, {rate:>8,.0f} records/s", flush=True)
    return sum(report["numInputRows"] for report in query.recentProgress), time.perf_counter() - begin


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


def whole(spark: SparkSession, urls: dict[str, str], wanted: tuple[int, int], out: Path) -> tuple[bool, list[tuple[str, int, float]]]:
    """The query, its replay and the proof: whether it holds, and the steps with their records and seconds."""
    checkpoint = out / "checkpoint"
    shutil.rmtree(checkpoint, ignore_errors=True)  # of a run on other brokers
    prepare(urls["pulsar"])
    print("streaming from Kafka to Pulsar", flush=True)
    table = delays(spark, urls["kafka"].partition("://")[2])
    count, seconds = run(table, urls["pulsar"], checkpoint)
    print("its last micro-batch again, as after a crash", flush=True)
    forget_last(checkpoint)
    run(table, urls["pulsar"], checkpoint)
    found, total, reading = stored(urls["pulsar"])
    good = (found, total) == wanted
    print(f"proof {'stream':<9} {found:>8,} records, hash {total:x}, each once: {'equal' if good else 'NOT EQUAL'}", flush=True)
    return good, [("spark streams to pulsar", count, seconds), ("our reader counts them", found, reading)]
