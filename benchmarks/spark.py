"""kafka-wire against the JVM's own Kafka connector, reads of Pulsar and RocketMQ against a plain socket: one Spark, one broker, the
same records, in turns.

Equal terms: `local[2]`, CRC checked by both, acks=all and idempotence for both, defaults unless the task says otherwise. CPU is that of
Spark's whole process tree (JVM, Python daemon, workers, planners) and of this program, not the broker's.
The bars are of rate (wall time) and, for reads, of CPU; the connector's best setting counts, so the sum over one partition is also run
with minPartitions=2. Where the JVM's connector may be ahead its bar may be below 1: a Python source pays for its workers, on small
micro-batches and large batches written most. Beside each stands what Spark takes for the same rows by itself (`spark_floors.py`).
Needs PySpark 4.2.0 and, once, Maven.
"""

from __future__ import annotations

import compileall
import json
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

import wireproto
from brokers import Kafka, Pulsar, RocketMQ, maven
from wireproto import EARLIEST, LATEST

from .clients.stored import expect
from .harness import Bench, Job, Stretch

TICKS = os.sysconf("SC_CLK_TCK")
WIRE, JVM, FLOOR, RAW, DRAIN = "wireproto", "JVM connector", "floor: pre-built", "floor: raw socket", "floor: rows drained"
FORMATS = {WIRE: "kafka-wire", JVM: "kafka"}
CLONE = Path(__file__).resolve().parents[1]
CPU = ("cpu",)  # our own figures: of Spark's whole process tree
KEYS, VALUE = [b"key-%08d" % number for number in range(10_000)], os.urandom(100)


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
        with Pulsar(fast=bench.quick) as pulsar, wireproto.connect(pulsar.url) as client:
            bench.brokers["pulsar"] = f"Pulsar {pulsar.version} standalone"
            pulsar_reads(bench, spark, pulsar, client, count // 2, rounds)
        with RocketMQ("5.5.0", fast=bench.quick) as rocketmq, wireproto.connect(rocketmq.url) as client:
            bench.brokers["rocketmq"] = f"RocketMQ {rocketmq.version}"
            rocketmq_reads(bench, spark, rocketmq, client, count // 5, rounds)
    finally:
        spark.stop()


def session() -> Any:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(CLONE / "src"), str(CLONE), *filter(None, [os.environ.get("PYTHONPATH")])])
    from pyspark.sql import SparkSession

    from . import spark_floors

    for folder in (CLONE / "src", CLONE / "benchmarks"):
        compileall.compile_dir(folder, quiet=1)  # as an installed package is: Spark starts many a Python process
    jars = maven.classpath("spark-kafka-4.2.0")
    spark = (
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
    for source in spark_floors.SOURCES:
        spark.dataSource.register(source)
    return spark


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
    """CPU seconds of this process, and of Spark's JVM and everything below it, those that have ended included."""
    from pyspark import SparkContext

    parents: dict[int, list[int]] = {}
    used: dict[int, float] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            facts = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(facts[1]), []).append(int(folder.name))
        used[int(folder.name)] = sum(int(ticks) for ticks in facts[11:15]) / TICKS
    gateway: Any = SparkContext._gateway
    below, total = [gateway.proc.pid], time.process_time()
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


def floor_rows(spark: Any, form: str, rows: dict[int, int], size: int, source: str = "floor-rows", **options: str) -> Any:
    """A batch read of pre-built columns."""
    settings = {"format": form, "rows": json.dumps(rows), "size": str(size), **options}
    return spark.read.format(source).options(**settings).load()


def even(rows: int, partitions: int) -> dict[int, int]:
    """So many rows in each partition."""
    return dict.fromkeys(range(partitions), rows // partitions)


def total(table: Any) -> None:
    """All columns to the JVM, one of them used."""
    table.selectExpr("sum(length(value))").collect()


def noop(table: Any) -> None:
    """All columns to the JVM, all of them copied into rows."""
    table.write.format("noop").mode("overwrite").save()


def frame(spark: Any, broker: Kafka, form: str, topic: str, **options: str) -> Any:
    """A batch read."""
    reader = spark.read.format(FORMATS[form]).option("kafka.bootstrap.servers", broker.bootstrap)
    return reader.option("subscribe", topic).options(**options).load()


def reads(bench: Bench, spark: Any, broker: Kafka, count: int, rounds: int) -> None:
    def job(use: Any, form: str, topic: str, **options: str) -> Job:
        return timed(lambda: use(frame(spark, broker, form, topic, **options)))

    def floor(use: Any, partitions: int, size: int = 100) -> Job:
        rows = even(count if size == 100 else count // 4, partitions)
        return timed(lambda: use(floor_rows(spark, "kafka", rows, size)))

    split = {"minPartitions": "2"}
    ours, theirs = f"{WIRE}, minPartitions=2", "JVM, minPartitions=2"
    more = {theirs: job(total, JVM, "one", **split), ours: job(total, WIRE, "one", **split)}
    jobs = {WIRE: job(total, WIRE, "one"), JVM: job(total, JVM, "one"), **more, FLOOR: floor(total, 2)}
    task = "read, 1 partition, sum(length(value))"
    bench.compare(task, count, jobs, rounds=rounds, ours=ours, rates=(JVM, theirs), shown=(WIRE, FLOOR), measures=CPU)
    jobs = {WIRE: job(total, WIRE, "four"), JVM: job(total, JVM, "four"), FLOOR: floor(total, 4)}
    bench.compare("read, 4 partitions, sum(length(value))", count, jobs, rounds=rounds, rates=(JVM,), shown=(FLOOR,), measures=CPU)
    for topic, words, partitions in (("one", "1 partition", 1), ("four", "4 partitions", 4)):
        jobs = {WIRE: job(noop, WIRE, topic), JVM: job(noop, JVM, topic), FLOOR: floor(noop, partitions)}
        bench.compare(f"read, {words}, noop of all columns", count, jobs, rounds=rounds, rates=(JVM,), shown=(FLOOR,), measures=CPU)
    jobs = {WIRE: job(total, WIRE, "large"), JVM: job(total, JVM, "large"), FLOOR: floor(total, 4, 1024)}
    bench.compare("read, 1 KiB values, 4 partitions, sum", count // 4, jobs, rounds=rounds, by="wall", shown=(FLOOR,), measures=CPU)


def writes(bench: Bench, spark: Any, broker: Kafka, client: Any, count: int, rounds: int) -> None:
    client.admin().create_topic("written", partitions=4)
    table = spark.range(0, count, 1, 2).selectExpr(
        "cast(lpad(cast(id as string), 16, '0') as binary) as key", "cast(lpad(cast(id as string), 100, 'x') as binary) as value"
    )
    table = table.cache()
    table.count()

    def save(form: str, **options: str) -> Job:
        settings = {"kafka.bootstrap.servers": broker.bootstrap, "topic": "written", **options}
        job = timed(lambda: table.write.format(FORMATS[form]).options(**settings).mode("append").save())

        def checked() -> Stretch:
            before = ends()
            stretch = job()
            assert isinstance(stretch, Stretch)
            expect(ends() - before, count)
            return stretch

        return checked

    def ends() -> int:
        return sum(place.offset for place in client.admin().positions("written", LATEST).values())

    tuned = {"kafka.linger.ms": "20", "kafka.batch.size": "262144"}
    drained = {DRAIN: timed(lambda: table.write.format("floor-drain").mode("append").save())}
    jobs = {WIRE: save(WIRE), JVM: save(JVM), **drained}
    bench.compare("write, 4 partitions, defaults", count, jobs, rounds=rounds, by="wall", shown=(DRAIN,), measures=CPU)
    jobs = {WIRE: save(WIRE, **tuned), JVM: save(JVM, **tuned), **drained}
    task = "write, 4 partitions, linger 20 ms, batches of 256 KiB"
    bench.compare(task, count, jobs, rounds=rounds, by="wall", ahead=(JVM,), shown=(DRAIN,), measures=CPU)
    table.unpersist()


def streams(bench: Bench, spark: Any, broker: Kafka, count: int, rounds: int) -> None:
    def follow(form: str, topic: str, **options: str) -> Any:
        reader = spark.readStream.format(FORMATS[form]).option("kafka.bootstrap.servers", broker.bootstrap)
        return reader.option("subscribe", topic).option("startingOffsets", "earliest").options(**options).load()

    def floor(rows: dict[int, int], batches: int) -> Any:
        settings = {"format": "kafka", "rows": json.dumps(rows), "size": "100", "batches": str(batches)}
        return spark.readStream.format("floor-rows").options(**settings).load()

    def run(table: Any, rows: int) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            query = table.writeStream.format("noop").option("checkpointLocation", folder).trigger(availableNow=True).start()
            query.awaitTermination()
            found = [report for report in query.recentProgress if report["numInputRows"]]
            expect(sum(report["numInputRows"] for report in found), rows)
            return found

    def added(make: Any) -> Job:
        """The time of addBatch of all micro-batches."""

        def job() -> Stretch:
            with Tree() as stretch:
                found = run(make(), count)
            stretch.wall = sum(report["durationMs"]["addBatch"] for report in found) / 1000
            return stretch

        return job

    def median(make: Any) -> Job:
        """The median micro-batch of two rows."""

        def job() -> Stretch:
            with Tree() as stretch:
                found = run(make(), 24)
            times = sorted(report["durationMs"]["triggerExecution"] for report in found)
            stretch.wall = times[len(times) // 2] / 1000
            return stretch

        return job

    half = count // 2
    size = {"maxOffsetsPerTrigger": str(half)}
    jobs = {form: added(lambda form=form: follow(form, "four", **size)) for form in FORMATS}
    jobs[FLOOR] = added(lambda: floor(even(half, 4), 2))
    bench.compare(f"stream, {half} rows a micro-batch (addBatch)", count, jobs, rounds=rounds, by="wall", shown=(FLOOR,), measures=CPU)
    few = {"maxOffsetsPerTrigger": "2", "startingOffsets": f'{{"one":{{"0":{count - 24}}}}}'}
    jobs = {form: median(lambda form=form: follow(form, "one", **few)) for form in FORMATS}
    jobs[FLOOR] = median(lambda: floor({0: 2}, 12))
    task = "stream, 2 rows a micro-batch: whole trigger (CPU of a query of 12)"
    bench.compare(task, 1, jobs, unit="trigger", rounds=2, by="wall", ahead=(JVM,), shown=(FLOOR,), measures=CPU)


def stored(client: Any, topic: str, count: int) -> None:
    """Records of 100 B (12 B keys) in four partitions."""
    client.admin().create_topic(topic, partitions=4)
    with client.producer(topic, linger=0.05) as out:
        part = pa.record_batch({"key": KEYS, "value": [VALUE] * len(KEYS)})
        for number in range(count // len(KEYS)):
            out.send_batch(part, partition=number % 4)


def pulsar_reads(bench: Bench, spark: Any, broker: Pulsar, client: Any, count: int, rounds: int) -> None:
    stored(client, "four", count)
    rows: Counter[int] = Counter()
    places: set[tuple[int, int, int]] = set()
    with client.reader("four", start=EARLIEST, stop=LATEST, columns=("ledger", "entry")) as reader:
        for batch in reader:
            rows[batch.partition] += len(batch)
            found = pa.record_batch(batch)
            ledgers, numbers = (found[name].to_pylist() for name in ("ledger", "entry"))
            places.update(zip([batch.partition] * len(batch), ledgers, numbers, strict=True))
    entries = Counter(partition for partition, _, _ in places)
    where = {"host": "127.0.0.1", "port": str(broker.binary_port), "topic": "four", "entries": json.dumps(entries)}
    theirs = lambda: floor_rows(spark, "pulsar", rows, 100, "floor-pulsar", **where)  # noqa: E731
    ours = lambda: spark.read.format("pulsar-wire").option("service.url", broker.url).option("topic", "four").load()  # noqa: E731
    beside_raw(bench, "Pulsar", count, ours, theirs, rounds)


def rocketmq_reads(bench: Bench, spark: Any, broker: RocketMQ, client: Any, count: int, rounds: int) -> None:
    stored(client, "four", count)
    rows = {key[1]: place.offset for key, place in client.admin().positions("four", LATEST).items()}
    where = {"host": "127.0.0.1", "port": str(broker.broker_ports[0]), "topic": "four"}
    theirs = lambda: floor_rows(spark, "rocketmq", rows, 100, "floor-rocketmq", **where)  # noqa: E731
    names = broker.url.partition("://")[2]
    ours = lambda: spark.read.format("rocketmq-wire").option("nameServer", names).option("topic", "four").load()  # noqa: E731
    beside_raw(bench, "RocketMQ", count, ours, theirs, rounds)


def beside_raw(bench: Bench, name: str, count: int, ours: Any, theirs: Any, rounds: int) -> None:
    """Reads against a socket that decodes nothing. What they give is counted once."""
    for table in (ours(), theirs()):
        if table.count() != count:
            raise AssertionError(f"{name}: {table.count()} rows instead of {count}")
    for words, use in (("sum(length(value))", total), ("noop of all columns", noop)):
        jobs = {WIRE: timed(lambda use=use: use(ours())), RAW: timed(lambda use=use: use(theirs()))}
        bench.compare(f"read {name}, 4 partitions, {words}", count, jobs, rounds=rounds, by="wall", ahead=(RAW,), measures=CPU)
