"""kafka-wire against the JVM's own Kafka connector: one Spark, one broker, the same records, in turns.

Equal terms: `local[2]`, CRC checked by both, defaults unless the task says otherwise. CPU is that of Spark's whole process tree (JVM,
Python daemon, workers, planners), not the broker's.
The bars are of rate (wall time); the connector's best setting counts, so the sum over one partition is also run with minPartitions=2.
Needs PySpark 4.2.0 and, once, Maven.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

import wireproto
from brokers import Kafka, maven

from .harness import Bench, Job, Stretch

TICKS = os.sysconf("SC_CLK_TCK")
WIRE, JVM = "wireproto", "JVM connector"
FORMATS = {WIRE: "kafka-wire", JVM: "kafka"}
SOURCE = Path(__file__).resolve().parents[1] / "src"


def suite(bench: Bench) -> None:
    count = 400_000 if bench.quick else 2_000_000
    rounds = 2 if bench.quick else 4
    spark = session()
    try:
        with Kafka("4.3.1", fast=bench.quick) as broker, wireproto.connect(broker.url) as client:
            bench.brokers["kafka"] = f"Kafka {broker.version}, one node"
            fill(client, count)
            reads(bench, spark, broker, count, rounds)
            writes(bench, spark, broker, client, count // 2, rounds)
            streams(bench, spark, broker, count, rounds)
    finally:
        spark.stop()


def session() -> Any:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(SOURCE), *filter(None, [os.environ.get("PYTHONPATH")])])
    from pyspark.sql import SparkSession

    jars = maven.classpath("spark-kafka-4.2.0")
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "3g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.log.level", "ERROR")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.python.filterPushdown.enabled", "true")
        .config("spark.jars", jars.replace(os.pathsep, ","))
        .config("spark.driver.extraClassPath", jars)
        .getOrCreate()
    )


def fill(client: Any, count: int) -> None:
    """Records of 100 B (12 B keys) in one and in four partitions, and of 1 KiB in four."""
    for topic, partitions, size, rows in (("one", 1, 100, count), ("four", 4, 100, count), ("large", 4, 1024, count // 4)):
        client.admin().create_topic(topic, partitions=partitions)
        value = os.urandom(size)
        with client.producer(topic, linger=0.05, batch_size=16384) as out:
            for start in range(0, rows, 10_000):
                part = pa.record_batch({"key": [b"key-%08d" % n for n in range(start, start + 10_000)], "value": [value] * 10_000})
                out.send_batch(part, partition=start // 10_000 % partitions)


def tree_cpu() -> float:
    """CPU seconds of this process and everything below it, those that have ended included."""
    parents: dict[int, list[int]] = {}
    used: dict[int, float] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            facts = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(facts[1]), []).append(int(folder.name))
        used[int(folder.name)] = sum(int(ticks) for ticks in facts[11:15]) / TICKS
    below, total = [os.getpid()], 0.0
    while below:
        pid = below.pop()
        total += used.get(pid, 0.0)
        below += parents.get(pid, [])
    return total


class Tree(Stretch):
    """CPU of Spark's process tree, wall time."""

    def __enter__(self) -> Tree:
        self._cpu, self._wall = tree_cpu(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall, self.cpu = time.perf_counter() - self._wall, tree_cpu() - self._cpu


def timed(action: Any) -> Job:
    """The action as a job."""

    def job() -> Stretch:
        with Tree() as stretch:
            action()
        return stretch

    return job


def frame(spark: Any, broker: Kafka, form: str, topic: str, **options: str) -> Any:
    """A batch read."""
    reader = spark.read.format(FORMATS[form]).option("kafka.bootstrap.servers", broker.bootstrap)
    return reader.option("subscribe", topic).options(**options).load()


def reads(bench: Bench, spark: Any, broker: Kafka, count: int, rounds: int) -> None:
    def total(form: str, topic: str, **options: str) -> Job:
        return timed(lambda: frame(spark, broker, form, topic, **options).selectExpr("sum(length(value))").collect())

    def noop(form: str, topic: str, **options: str) -> Job:
        return timed(lambda: frame(spark, broker, form, topic, **options).write.format("noop").mode("overwrite").save())

    split = {"minPartitions": "2"}
    for topic, words in (("one", "1 partition"), ("four", "4 partitions")):
        more: dict[str, Job] = {}
        extra = {}
        if topic == "one":
            more = {"JVM, minPartitions=2": total(JVM, topic, **split), "wireproto, minPartitions=2": total(WIRE, topic, **split)}
            extra = {"JVM, minPartitions=2": 1.5}
        jobs = {WIRE: total(WIRE, topic), JVM: total(JVM, topic), **more}
        ours = "wireproto, minPartitions=2" if more else WIRE
        bench.compare(f"read, {words}, sum(length(value))", count, jobs, rounds=rounds, ours=ours, rates={JVM: 1.5, **extra}, gate=False)
        jobs = {WIRE: noop(WIRE, topic), JVM: noop(JVM, topic)}
        bench.compare(f"read, {words}, noop of all columns", count, jobs, rounds=rounds, rates={JVM: 1.5}, bars={JVM: 1.0}, gate=False)
    jobs = {WIRE: total(WIRE, "large"), JVM: total(JVM, "large")}
    bench.compare("read, 1 KiB values, 4 partitions, sum", count // 4, jobs, rounds=rounds, rates={JVM: 1.5}, gate=False)


def writes(bench: Bench, spark: Any, broker: Kafka, client: Any, count: int, rounds: int) -> None:
    client.admin().create_topic("written", partitions=4)
    table = spark.range(0, count, 1, 2).selectExpr(
        "cast(lpad(cast(id as string), 16, '0') as binary) as key", "cast(lpad(cast(id as string), 100, 'x') as binary) as value"
    )
    table = table.cache()
    table.count()

    def save(form: str, **options: str) -> Job:
        settings = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "written", **options}
        return timed(lambda: table.write.format(FORMATS[form]).options(**settings).mode("append").save())

    tuned = {"kafka.linger.ms": "20", "kafka.batch.size": "262144"}
    jobs = {WIRE: save(WIRE), JVM: save(JVM)}
    bench.compare("write, 4 partitions, defaults", count, jobs, rounds=rounds, rates={JVM: 1.2}, gate=False)
    jobs = {WIRE: save(WIRE, **tuned), JVM: save(JVM, **tuned)}
    bench.compare("write, 4 partitions, linger 20 ms, batches of 256 KiB", count, jobs, rounds=rounds, rates={JVM: 0.8}, gate=False)
    table.unpersist()


def streams(bench: Bench, spark: Any, broker: Kafka, count: int, rounds: int) -> None:
    def run(form: str, topic: str, **options: str) -> Any:
        reader = spark.readStream.format(FORMATS[form]).option("kafka.bootstrap.servers", broker.bootstrap)
        table = reader.option("subscribe", topic).option("startingOffsets", "earliest").options(**options).load()
        with tempfile.TemporaryDirectory() as folder:
            query = table.writeStream.format("noop").option("checkpointLocation", folder).trigger(availableNow=True).start()
            query.awaitTermination()
            return [report for report in query.recentProgress if report["numInputRows"]]

    def add_batch(form: str, topic: str, **options: str) -> Job:
        """The time of addBatch of all micro-batches."""

        def job() -> Stretch:
            with Tree() as stretch:
                found = run(form, topic, **options)
            stretch.wall = sum(report["durationMs"]["addBatch"] for report in found) / 1000
            return stretch

        return job

    size = {"maxOffsetsPerTrigger": str(count // 2)}
    jobs = {WIRE: add_batch(WIRE, "four", **size), JVM: add_batch(JVM, "four", **size)}
    bench.compare(f"stream, {count // 2} rows a micro-batch (addBatch)", count, jobs, rounds=rounds, rates={JVM: 1.0}, gate=False)

    def floor(form: str) -> Job:
        """The median micro-batch of two rows."""

        def job() -> Stretch:
            start = f'{{"one":{{"0":{count - 24}}}}}'
            with Tree() as stretch:
                found = run(form, "one", maxOffsetsPerTrigger="2", startingOffsets=start)
            times = sorted(report["durationMs"]["triggerExecution"] for report in found)
            stretch.wall = times[len(times) // 2] / 1000
            return stretch

        return job

    jobs = {WIRE: floor(WIRE), JVM: floor(JVM)}
    bench.compare("stream, 2 rows a micro-batch: whole trigger", 1, jobs, unit="trigger", rounds=2, rates={JVM: 1 / 1.3}, gate=False)
