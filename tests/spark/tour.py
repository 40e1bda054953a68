"""A short way through all four formats on one session: what must work on every PySpark that is supported, and through Spark Connect.

    python -m spark.tour       on a local session of its own and a dev broker; exit code 0 when it saw what it must see

What it is: functions that read, write and stream, and tell what they saw; `EXPECTED` is what that must be.
May assume: PySpark 4.0 and its API, no more; a session that has neither a SparkContext nor a JVM.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import wireproto
from wireproto.devbroker import DevBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS, SECONDS = 40, 120
ADDRESS = {  # format, the option of the address, the option of the topic
    "kafka": ("kafka-wire", "kafka.bootstrap.servers", "subscribe"),
    "pulsar": ("pulsar-wire", "service.url", "topic"),
    "rocketmq": ("rocketmq-wire", "nameServer", "topic"),
}
EVERY = list(range(ROWS))
EXPECTED: dict[str, Any] = {
    **{f"{protocol} read": EVERY for protocol in ADDRESS},
    **{f"{protocol} written": EVERY for protocol in ADDRESS},
    "zookeeper read": [f"/read/{n}" for n in range(4)],
    "zookeeper written": [f"/written/{n}" for n in range(4)],
    "kafka filtered": EVERY[1::4],
    "kafka headers": [("n", b"%d" % n) for n in EVERY],
    "kafka to pulsar": [(n, f"k{n}", ("n", b"%d" % n)) for n in range(2 * ROWS)],
    "pulsar to rocketmq": EVERY,
    "rocketmq to zookeeper": [f"/streamed/{n}" for n in EVERY],
}


def whole(spark: SparkSession, broker: DevBroker, folder: Path) -> dict[str, Any]:
    """All of it; what it saw."""
    return reads(spark, broker) | writes(spark, broker) | streams(spark, broker, folder)


def reads(spark: SparkSession, broker: DevBroker) -> dict[str, Any]:
    """Batches of every format."""
    seen: dict[str, Any] = {}
    for protocol in ADDRESS:
        fill(broker, protocol, "read", EVERY)
        seen[f"{protocol} read"] = values(log(spark, broker, protocol, "read"))
    rows = log(spark, broker, "kafka", "read", includeHeaders="true")
    seen["kafka filtered"] = values(rows.where("partition = 1 and offset >= 0 and timestamp > '2001-01-01'"))
    found = sorted(rows.select("value", "headers").collect(), key=lambda row: int(row.value))
    seen["kafka headers"] = [(row.headers[0].key, bytes(row.headers[0].value)) for row in found]
    with wireproto.connect(broker.url("zookeeper")) as client:
        tree = client.tree()
        tree.create("/read", b"")
        for n in range(4):
            tree.create(f"/read/{n}", b"%d" % n)
    seen["zookeeper read"] = nodes(spark, broker, "/read")
    return seen


def writes(spark: SparkSession, broker: DevBroker) -> dict[str, Any]:
    """Batches to every format."""
    seen: dict[str, Any] = {}
    numbers = spark.range(ROWS).selectExpr("cast(id as string) as value", "concat('k', id) as key")
    for protocol, (name, address, _) in ADDRESS.items():
        make(broker, protocol, "written")
        numbers.write.format(name).option(address, broker.address(protocol)).option("topic", "written").mode("append").save()
        seen[f"{protocol} written"] = values(log(spark, broker, protocol, "written"))
    table = spark.range(4).selectExpr("concat('/written/', id) as path", "cast(cast(id as string) as binary) as data")
    hosts = broker.address("zookeeper")
    table.write.format("zookeeper-wire").option("hosts", hosts).option("createParents", "true").mode("append").save()
    seen["zookeeper written"] = nodes(spark, broker, "/written")
    return seen


def streams(spark: SparkSession, broker: DevBroker, folder: Path) -> dict[str, Any]:
    """A stream of each log to another format; the first one goes on from its checkpoint."""
    seen: dict[str, Any] = {}
    limits = {"maxOffsetsPerTrigger": "24"} if spark.version >= "4.2" else {}  # before, availableNow ends after one micro-batch
    make(broker, "kafka", "out-of-kafka")
    make(broker, "pulsar", "into-pulsar")
    make(broker, "rocketmq", "into-rocketmq")
    with wireproto.connect(broker.url("pulsar")) as client:
        admin: Any = client.admin()
        admin.set_deduplication("public/default", True)
    service = {"service.url": broker.url("pulsar"), "topic": "into-pulsar"}  # its query names the admin interface
    for part in (range(ROWS), range(ROWS, 2 * ROWS)):
        fill(broker, "kafka", "out-of-kafka", part)
        records = stream(spark, broker, "kafka", "out-of-kafka", includeHeaders="true", **limits)
        run(records.select("key", "value", "headers"), "pulsar-wire", folder / "pulsar", **service)
    found = log(spark, broker, "pulsar", "into-pulsar", includeHeaders="true").collect()
    rows = [(int(row.value), bytes(row.key).decode(), *((one.key, bytes(one.value)) for one in row.headers)) for row in found]
    seen["kafka to pulsar"] = sorted(rows)
    numbers = stream(spark, broker, "pulsar", "read").select("key", "value")
    run(numbers, "rocketmq-wire", folder / "rocketmq", nameServer=broker.address("rocketmq"), topic="into-rocketmq")
    seen["pulsar to rocketmq"] = values(log(spark, broker, "rocketmq", "into-rocketmq"))
    paths = stream(spark, broker, "rocketmq", "read").selectExpr("concat('/streamed/', cast(value as string)) as path", "value as data")
    run(paths, "zookeeper-wire", folder / "zookeeper", hosts=broker.address("zookeeper"), createParents="true")
    seen["rocketmq to zookeeper"] = nodes(spark, broker, "/streamed")
    return seen


# --- what they share ---


def make(broker: DevBroker, protocol: str, topic: str) -> None:
    with wireproto.connect(broker.url(protocol)) as client:
        client.admin().create_topic(topic, partitions=4)


def fill(broker: DevBroker, protocol: str, topic: str, numbers: Any) -> None:
    """Numbers as records; the topic is made where it is not there yet."""
    with wireproto.connect(broker.url(protocol)) as client:
        if topic not in client.admin().list_topics():
            client.admin().create_topic(topic, partitions=4)
        with client.producer(topic) as out:
            for n in numbers:
                out.send(b"%d" % n, key=b"k%d" % n, headers={"n": b"%d" % n}, partition=n % 4)


def log(spark: SparkSession, broker: DevBroker, protocol: str, topic: str, **options: str) -> DataFrame:
    name, address, subject = ADDRESS[protocol]
    return spark.read.format(name).options(**{address: broker.address(protocol), subject: topic, **options}).load()


def stream(spark: SparkSession, broker: DevBroker, protocol: str, topic: str, **options: str) -> DataFrame:
    name, address, subject = ADDRESS[protocol]
    options = {address: broker.address(protocol), subject: topic, "startingOffsets": "earliest", **options}
    return spark.readStream.format(name).options(**options).load()


def run(table: DataFrame, name: str, checkpoint: Path, **options: str) -> None:
    """Write a stream of what is there."""
    writer = table.writeStream.format(name).option("checkpointLocation", str(checkpoint)).options(**options)
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(SECONDS), "the stream did not end"
    finally:
        query.stop()


def values(table: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in table.select("value").collect())


def nodes(spark: SparkSession, broker: DevBroker, root: str) -> list[str]:
    """Paths below a root, in the order of their numbers."""
    table = spark.read.format("zookeeper-wire").option("hosts", broker.address("zookeeper")).option("root", root).load()
    found = [row.path for row in table.select("path", "data").collect() if row.path != root]
    return sorted(found, key=lambda path: int(path.rpartition("/")[2]))


def main() -> int:
    """On a session of its own, by the formats' names alone."""
    warnings.simplefilter("ignore")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    import pyspark
    from pyspark.sql import SparkSession

    remote = "--remote" in sys.argv
    builder = SparkSession.builder.remote("local[2]") if remote else SparkSession.builder.master("local[2]")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "700m",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        with DevBroker() as broker, tempfile.TemporaryDirectory() as folder:
            seen = whole(spark, broker, Path(folder))
    finally:
        spark.stop()
    wrong = {name: seen.get(name) for name, wanted in EXPECTED.items() if seen.get(name) != wanted}
    print(f"PySpark {pyspark.__version__}{' Connect' if remote else ''}: {len(EXPECTED) - len(wrong)} of {len(EXPECTED)} as they must be")
    for name, found in wrong.items():
        print(f"  {name}: {found}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
