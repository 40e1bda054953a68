"""The Spark job: read the three logs and the tree, prove them equal to the source, and compute departure delays.

What it is: an ordinary PySpark program over our data sources. The proof sums 60 bits of each record's SHA-256, computed inside the JVM,
and compares the sum and the count with the same over the source file.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (the name PySpark's own documentation uses)

from .load import PARTITIONS, TOPIC

FORMATS = {
    "kafka": ("kafka-wire", "kafka.bootstrap.servers", "subscribe"),
    "pulsar": ("pulsar-wire", "service.url", "topic"),
    "rocketmq": ("rocketmq-wire", "nameServer", "topic"),
}
FLIGHT = "carrier string, flight int, tailnum string, origin string, dest string, hour int, dep_delay double"
PLANE = "tailnum string, seats int, manufacturer string"


def session() -> SparkSession:
    """A local session on two cores, without a UI; planners and workers run this very interpreter."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return (
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
        .getOrCreate()
    )


def close(spark: SparkSession) -> None:
    """Stop Spark. After an interrupted call the connection to its JVM is out of step: then the JVM is ended by ending its input."""
    gateway: Any = spark.sparkContext._gateway
    try:
        spark.stop()
    except Exception:
        pass
    finally:
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
