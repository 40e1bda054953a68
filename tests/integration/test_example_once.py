"""The example of consume, process, produce: two programs of one group, killed again and again, bill each order once."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

import wireproto
from brokers import Kafka, Pulsar
from brokers.process import spawn
from chance import seed
from integration.pulsar_tools import PREFIX, pulsar, read_theirs, theirs
from kafka_committed import seen
from patience import LONG, soon

ROOT = Path(__file__).parents[2]
EACH = 100
"""Orders for each kill."""
_numbers = itertools.count()


def program(url: str, source: str, target: str, name: str, out: Path, idle: int) -> subprocess.Popen[bytes]:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    command = [sys.executable, str(ROOT / "examples" / "once.py"), url, source, target, name, "--idle", str(idle)]
    with out.open("ab") as log:
        return spawn(command, env={**os.environ, "PYTHONPATH": paths}, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def bills(broker: Kafka | Pulsar, target: str) -> list[bytes]:
    """As clients see them that are not ours."""
    if isinstance(broker, Kafka):
        return sorted(seen(broker, target))
    with theirs(broker) as official:
        return sorted(message.data() for number in range(2) for message in read_theirs(official, f"{target}-partition-{number}"))


@contextmanager
def arriving(broker: Kafka | Pulsar, target: str) -> Iterator[Callable[[float], bytes | None]]:
    """The same, one after the other as they are committed: the next bill, or None if none came within so many seconds."""
    if isinstance(broker, Kafka):
        settings = {"bootstrap.servers": ",".join(broker.addresses), "group.id": "arriving", "enable.auto.commit": False}
        consumer = confluent_kafka.Consumer(settings)
        consumer.assign([confluent_kafka.TopicPartition(target, number, 0) for number in range(2)])

        def polled(seconds: float) -> bytes | None:
            message = consumer.poll(seconds)
            if message is None:
                return None
            assert message.error() is None, message.error()
            value: bytes | None = message.value()
            return value

        try:
            yield polled
        finally:
            consumer.close()
        return
    with theirs(broker) as official:
        subscribed = official.subscribe(PREFIX + target, "arriving", initial_position=pulsar.InitialPosition.Earliest)

        def received(seconds: float) -> bytes | None:
            try:
                value: bytes = subscribed.receive(int(seconds * 1000)).data()
            except pulsar.Timeout:
                return None
            return value

        yield received


def wait(next_bill: Callable[[float], bytes | None], billed: set[bytes], count: int) -> None:
    """Until so many orders are billed."""
    deadline = soon(120.0)
    while len(billed) < count:
        assert soon(0.0) < deadline, f"{len(billed)} of {count}"
        value = next_bill(1.0)
        billed |= {value} if value is not None else set()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kills", [2, pytest.param(4, marks=pytest.mark.soak)])
@pytest.mark.parametrize("broker", ["kafka-4.3.1-transactions", "pulsar-4.2.4-transactions"], indirect=True)
def test_each_order_is_billed_once_whatever_is_killed(broker: Kafka | Pulsar, kills: int, tmp_path: Path) -> None:
    orders = kills * EACH
    chance, stem = random.Random(seed()), f"{os.getpid()}-{next(_numbers)}"
    source, target, out = f"orders-{stem}", f"bills-{stem}", tmp_path / "out"
    expected = sorted(b"a bill for %03d" % number for number in range(orders))
    # a program that is killed holds up the rest no longer than this: on Pulsar by its open transaction, out of the box for a minute
    options, idle = ("?session_timeout=3&heartbeat_interval=0.5", 9) if isinstance(broker, Kafka) else ("&transaction_timeout=10", 15)
    url = broker.url + options
    with wireproto.connect(broker.url) as client:
        admin: Any = client.admin()
        for topic in (source, target):
            admin.create_topic(topic, partitions=2)
        programs = [program(url, source, target, f"{stem}-{number}", out, idle) for number in range(2)]
        billed: set[bytes] = set()
        try:
            with client.producer(source) as producer, arriving(broker, target) as next_bill:
                for first in range(0, orders, EACH):
                    for number in range(first, first + EACH):
                        producer.send(b"%03d" % number, partition=number % 2)
                        producer.flush(LONG)  # a batch is what a poll hands out
                    least = first + chance.randrange(EACH // 2)
                    wait(next_bill, billed, least)
                    which = chance.randrange(2)
                    programs[which].kill()
                    programs[which].wait()
                    programs[which] = program(url, source, target, f"{stem}-{which}", out, idle)
                wait(next_bill, billed, orders)
            assert sorted(billed) == expected
            for one in programs:
                assert one.wait(LONG) == 0, out.read_text()
        finally:
            for one in programs:
                one.kill()
                one.wait()
    assert bills(broker, target) == expected
