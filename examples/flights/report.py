"""The Spark job: read the three logs and the tree, prove them equal to the source, and compute departure delays.

What it is: an ordinary PySpark program over our data sources. The proof sums 60 bits of each record's SHA-256, computed inside the JVM,
and compares the sum and the count with the same over the source file.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the name PySpark's own documentation uses)

import wireproto.spark

from .load import PARTITIONS, TOPIC
from .steps import Steps, retried_if_late, say

FORMATS = {
    "kafka": ("kafka-wire", "kafka.bootstrap.servers", "subscribe"),
    "pulsar": ("pulsar-wire", "service.url", "topic"),
    "rocketmq": ("rocketmq-wire", "nameServer", "topic"),
}
FLIGHT = "carrier string, flight int, tailnum string, origin string, dest string, hour int, dep_delay double"
PLANE = "tailnum string, seats int, manufacturer string"


@contextmanager
def errors_to(path: Path | None) -> Iterator[None]:
    """Let what is started meanwhile write its errors to this file, for as long as it lives; None: where ours go."""
    if path is None:
        yield
        return
    sys.stderr.flush()
    ours = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


def children() -> set[int]:
    """Process ids of what this process has started itself."""
    found: set[int] = set()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it ended meanwhile
            found.update(map(int, (thread / "children").read_text().split()))
    return found


def session(log: Path | None = None) -> SparkSession:
    """A local session on two cores, without a UI; planners and workers run this very interpreter. log: where it writes its own."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if log is not None:
        log.unlink(missing_ok=True)
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("flights")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "2g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.log.level", "ERROR")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.pyspark.python", sys.executable)
        .config("spark.pyspark.driver.python", sys.executable)
    )
    at_interrupt, others = signal.getsignal(signal.SIGINT), children()
    try:
        with errors_to(log):
            spark = builder.getOrCreate()
    except BaseException:  # a JVM whose start is cut off does not end with its input
        for process in children() - others:
            os.kill(process, signal.SIGKILL)
        raise
    signal.signal(signal.SIGINT, at_interrupt)  # PySpark's own asks a connection that is in the middle of a call
    wireproto.spark.register(spark)
    return spark


def close(spark: SparkSession) -> None:
    """Stop Spark. After an interrupted call the connection to its JVM is out of step: then the JVM is ended by ending its input."""
    gateway: Any = spark.sparkContext._gateway
    try:
        spark.stop()
    except Exception:
        pass
    finally:
        logging.disable(logging.CRITICAL)  # of Python's objects that are collected from now on py4j tells a JVM that is ending
        gateway.proc.stdin.close()
        try:
            gateway.proc.wait(10)
        except subprocess.TimeoutExpired:
            gateway.proc.kill()


def log(spark: SparkSession, protocol: str, servers: str) -> DataFrame:
    """One of the three logs."""
    name, address, topic = FORMATS[protocol]
    return spark.read.format(name).option(address, servers).option(topic, TOPIC).load()


def fingerprint(records: DataFrame) -> tuple[int, int, float]:
    """Count, sum of hashes (as in `dataset.fingerprint`) and the seconds of the read."""
    begin = time.perf_counter()
    digest = F.sha2(F.concat(F.col("key"), F.lit(b"\x00"), F.col("value")), 256)
    number = F.conv(F.substring(digest, 1, 15), 16, 10).cast("decimal(20,0)")
    row: Any = records.agg(F.count("*").alias("n"), F.sum(number).alias("h")).first()
    return int(row.n), int(row.h or 0), time.perf_counter() - begin


def partitions_used(records: DataFrame) -> int:
    """How many tasks a read of the log has: one per partition."""
    used = records.rdd.getNumPartitions()
    assert used == PARTITIONS, f"{used} tasks for {PARTITIONS} partitions"
    return used


def tree(spark: SparkSession, servers: str) -> DataFrame:
    """The nodes below ``/flights``: folder, name and data as text."""
    nodes = spark.read.format("zookeeper-wire").option("hosts", servers).option("root", "/flights").load()
    parts = F.split("path", "/")
    return nodes.select(F.get(parts, 2).alias("folder"), F.get(parts, 3).alias("name"), F.col("data").cast("string").alias("data"))


def delays(flights: DataFrame, nodes: DataFrame) -> DataFrame:
    """Mean departure delay in minutes, flights and mean seats, by airline and hour of day."""
    airlines = nodes.where("folder = 'airlines' and name is not null").select(
        F.col("name").alias("carrier"), F.get_json_object("data", "$.name").alias("airline")
    )
    planes = nodes.where("folder = 'planes' and name is not null").select(F.from_json("data", PLANE).alias("p")).select("p.*")
    rows = flights.select(F.from_json(F.col("value").cast("string"), FLIGHT).alias("f")).select("f.*")
    return (
        rows.join(F.broadcast(airlines), "carrier")
        .join(F.broadcast(planes), "tailnum", "left")
        .groupBy("carrier", "airline", "hour")
        .agg(
            F.count("*").alias("flights"),
            F.count("dep_delay").alias("departed"),
            F.avg("dep_delay").alias("delay"),
            F.avg("seats").alias("seats"),
        )
        .orderBy("carrier", "hour")
    )


def write(table: DataFrame, folder: Path) -> list[Any]:
    """Write the table as Parquet and return its rows."""
    table = table.cache()
    table.coalesce(1).write.mode("overwrite").parquet(str(folder / "delays.parquet"))
    return table.collect()


def whole(
    spark: SparkSession, urls: dict[str, str], flights: int, nodes: int, expected: tuple[int, int], out: Path, steps: Steps
) -> tuple[bool, list[Any]]:
    """Prove the logs and the tree equal to the source, join them and write the report: whether they are equal, and the report's rows."""
    good = True
    servers = {protocol: url.partition("://")[2] for protocol, url in urls.items()}
    for protocol in FORMATS:
        with steps.step(f"Spark reads {protocol}") as done:
            records = log(spark, protocol, servers[protocol])
            tasks = retried_if_late(partial(partitions_used, records))
            done.count, total, done.seconds = retried_if_late(partial(fingerprint, records))
            good = verdict(protocol, f"{done.count:>8,} records, hash {total:x}, {tasks} tasks", (done.count, total) == expected) and good
    with steps.step("Spark reads zookeeper") as done:
        nodes_read = tree(spark, servers["zookeeper"]).cache()
        done.count = retried_if_late(nodes_read.count)
        good = verdict("zookeeper", f"{done.count:>8,} nodes", done.count == nodes) and good
    with steps.step("Spark joins and writes", f"delays by airline and hour to {out / 'delays.parquet'}") as done:
        rows = retried_if_late(lambda: write(delays(log(spark, "kafka", servers["kafka"]), nodes_read), out))
        done.count = flights
    return good, rows


def verdict(name: str, found: str, equal: bool) -> bool:
    """Say what a proof found, and whether it is what was written."""
    say(f"proof {name:<9} {found}: {'equal' if equal else 'NOT EQUAL'}")
    return equal
