"""Every broker of the catalogue boots, keeps its data over a crash as judged by its own official client, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from brokers import Broker, RocketMQ, judge
from brokers.kafka import Kafka
from brokers.pulsar import Pulsar
from brokers.zookeeper import ZooKeeper

KAFKAS = ["kafka-3.9.2", "kafka-3.9.2-zookeeper", pytest.param("kafka-4.3.1", marks=pytest.mark.soak), "kafka-4.4.0"]


@pytest.mark.parametrize("broker", KAFKAS, indirect=True)
def test_kafka_keeps_records_over_a_crash(broker: Kafka) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for outcome in admin.create_topics([NewTopic("kept", 1)]).values():
        outcome.result(30)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(100):
        producer.produce("kept", str(number).encode())
    assert producer.flush(30) == 0
    broker.kill()
    broker.start()
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition("kept", 0, 0)])
    deadline, got = time.monotonic() + 60, []
    while len(got) < 100 and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and not message.error():
            got.append(int(message.value()))
    consumer.close()
    assert got == list(range(100))


@pytest.mark.soak
@pytest.mark.parametrize("broker", ["pulsar-4.2.4"], indirect=True)
def test_pulsar_keeps_records_over_a_crash(broker: Pulsar) -> None:
    import pulsar

    broker.call("PUT", "/admin/v2/persistent/public/default/kept")
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
    client = pulsar.Client(broker.service, logger=logger)
    producer = client.create_producer("persistent://public/default/kept")
    for number in range(100):
        producer.send(str(number).encode())
    client.close()
    broker.kill()
    broker.start()
    client = pulsar.Client(broker.service, logger=logger)
    reader = client.create_reader("persistent://public/default/kept", pulsar.MessageId.earliest)
    assert [int(reader.read_next(30_000).data()) for _ in range(100)] == list(range(100))
    client.close()


LINES = ["rocketmq-4.9.7", "rocketmq-5.5.0", pytest.param("rocketmq-5.5.0-binary", marks=pytest.mark.soak)]


@pytest.mark.parametrize("broker", LINES, indirect=True)
def test_rocketmq_keeps_records_over_a_crash(broker: RocketMQ) -> None:
    names, lines = broker.name_server, [{"body": "AAEC", "keys": f"k{n}"} for n in range(20)]
    judge.ask(broker.version, "create", names, "Kept", "1", f"127.0.0.1:{broker.broker_ports[0]}")
    sent = judge.ask(broker.version, "send", names, "Kept", input=lines)
    assert [line["status"] for line in sent] == ["SEND_OK"] * 20
    broker.kill()
    broker.start()
    got = judge.ask(broker.version, "pull", names, "Kept")
    assert [(line["keys"], line["body"]) for line in got] == [(f"k{n}", "AAEC") for n in range(20)]


@pytest.mark.parametrize("broker", ["zookeeper-3.8.6", "zookeeper-3.9.5", "zookeeper-3.9.5-ensemble"], indirect=True)
def test_zookeeper_keeps_nodes_over_a_crash(broker: ZooKeeper) -> None:
    from kazoo.client import KazooClient

    def client() -> KazooClient:
        made = KazooClient(hosts=broker.url.partition("://")[2], timeout=10)
        made.start(30)
        return made

    first = client()
    first.create("/kept", b"\x00\xff")
    first.stop()
    first.close()
    broker.kill()
    broker.start()
    second = client()
    assert second.get("/kept")[0] == b"\x00\xff"
    second.stop()
    second.close()


@pytest.mark.broker("zookeeper-3.9.5")
def test_nothing_is_left_when_the_starter_is_killed(tmp_path: Path, broker: Broker) -> None:
    """Another one, by the command line; SIGKILL to it takes the JVM along."""
    ready = tmp_path / "ready"
    command = [sys.executable, "-m", "brokers", "start", "zookeeper", "--ready-file", str(ready)]
    environment = dict(os.environ) | {"PYTHONPATH": str(Path(__file__).parents[1])}
    child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (ready.exists() and ready.read_text().endswith("\n")):
        assert child.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (pid,) = json.loads(ready.read_text())["pids"]
    child.send_signal(signal.SIGKILL)
    child.wait(10)
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < deadline, f"the JVM {pid} outlived the process that started it"
        time.sleep(0.05)
