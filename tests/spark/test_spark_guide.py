"""The guide's examples run as they stand, on real brokers. (By its name this runs when most of those are up for other tests.)"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient

import pulsar
import wireproto
from brokers import Kafka, Pulsar, RocketMQ, ZooKeeper, plugin
from patience import LONG
from spark.peers import QUIET
from spark.streams import frame, make, put, stream
from wireproto.errors import BrokerError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GUIDE = Path(__file__).parents[2] / "docs" / "spark.md"
SHOUTED = {b"ORDER %d" % n for n in range(20)}
pytestmark = QUIET


def run(headings: str, many: int, **names: Any) -> None:
    """The examples below the headings that this pattern matches, as many as there must be."""
    sections = re.split(r"^##+ ", GUIDE.read_text(), flags=re.MULTILINE)
    examples = [text for part in sections if re.match(headings, part) for text in re.findall(r"```python\n(.*?)```", part, re.DOTALL)]
    assert len(examples) == many
    for text in examples:
        exec(compile(text, str(GUIDE), "exec"), names)


def gone(admin: Any, *topics: str) -> None:
    """See that they are not there: a test that Spark failed is run once more (`late.py`)."""
    for topic in topics:
        with suppress(BrokerError):
            admin.delete_topic(topic)


@pytest.mark.broker("kafka-4.3.1-transactions")
def test_kafka(spark: SparkSession, kafka: Kafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with wireproto.connect(kafka.url) as ours:
        gone(ours.admin(), "orders", "shouted")
    make(kafka, "orders", 2)
    make(kafka, "shouted")
    put(kafka, "orders", [(b"%d" % n, b"order %d" % n, n % 2) for n in range(20)])
    run("From the JVM|Further options|Platforms without", 3, spark=spark, servers=kafka.bootstrap, checkpoint=str(tmp_path))
    assert capsys.readouterr().out == "10\n"
    assert {bytes(row.value) for row in frame(spark, kafka, subscribe="shouted").collect()} == SHOUTED


@pytest.mark.broker("kafka-4.3.1-transactions")
def test_kafka_once(spark: SparkSession, kafka: Kafka, tmp_path: Path) -> None:
    with wireproto.connect(kafka.url) as ours:
        gone(ours.admin(), "raw", "clean")
    make(kafka, "raw", 2)
    make(kafka, "clean")
    put(kafka, "raw", [(None, b"order %d" % n) for n in range(20)])
    rows = stream(spark, kafka, subscribe="raw", startingOffsets="earliest").selectExpr("upper(cast(value AS string)) AS value")
    run("Exactly once to Kafka", 1, rows=rows, servers=kafka.bootstrap, checkpoint=str(tmp_path))
    assert sorted(bytes(row.value) for row in frame(spark, kafka, subscribe="clean").collect()) == sorted(SHOUTED)


@pytest.mark.broker("pulsar-4.2.4")
def test_pulsar(spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    broker = plugin.start(request.config, "pulsar-4.2.4")
    assert isinstance(broker, Pulsar)
    source, target = "persistent://public/default/orders", "persistent://public/once/shouted"
    with wireproto.connect(broker.url) as ours:
        if "public/once" not in broker.call("GET", "/admin/v2/namespaces/public"):
            broker.call("PUT", "/admin/v2/namespaces/public/once")
        admin: Any = ours.admin()
        admin.set_deduplication("public/once", True)
        gone(admin, source, target)
        for topic in (source, target):
            admin.create_topic(topic, partitions=2)
    client = pulsar.Client(broker.service, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(source)
    for n in range(20):
        producer.send(b"order %d" % n)
    run("Pulsar", 1, spark=spark, service=broker.service, admin=broker.admin, checkpoint=str(tmp_path))
    reader = client.create_reader(target, pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(60_000).data())
    client.close()
    assert sorted(found) == sorted(SHOUTED)


@pytest.mark.broker("rocketmq-5.5.0")
def test_rocketmq(spark: SparkSession, request: pytest.FixtureRequest) -> None:
    broker = plugin.start(request.config, "rocketmq-5.5.0")
    assert isinstance(broker, RocketMQ)
    with wireproto.connect(broker.url) as client:
        gone(client.admin(), "orders", "shouted")
        for topic in ("orders", "shouted"):
            client.admin().create_topic(topic, partitions=2)
        with client.producer("orders") as out:
            for n in range(20):
                out.send(b"order %d" % n, key=b"%d" % n, headers={"n": b"%d" % n})
        run("RocketMQ", 1, spark=spark, name_server=broker.name_server)
        records = [record for batch in client.reader("shouted", stop=wireproto.LATEST) for record in batch]
    assert {(record.key, record.value) for record in records} == {(b"%d" % n, b"ORDER %d" % n) for n in range(20)}
    assert len(records) == 20


@pytest.mark.broker("zookeeper-3.9.5")
def test_zookeeper(spark: SparkSession, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> None:
    broker = plugin.start(request.config, "zookeeper-3.9.5")
    assert isinstance(broker, ZooKeeper)
    client = KazooClient(hosts=broker.addresses[0], timeout=LONG)  # as long as the server gives: its ten seconds are short under load
    client.start(LONG)
    for path in ("/orders", "/copies"):
        client.delete(path, recursive=True) if client.exists(path) else None
    for n in range(5):
        client.create(f"/orders/{n}", b"order %d" % n, makepath=True)
    run("ZooKeeper", 1, spark=spark, hosts=broker.addresses[0])
    copies = {name: client.get(f"/copies/orders/{name}")[0] for name in client.get_children("/copies/orders")}
    client.stop()
    client.close()
    assert capsys.readouterr().out == "5\n"
    assert copies == {str(n): b"order %d" % n for n in range(5)}
