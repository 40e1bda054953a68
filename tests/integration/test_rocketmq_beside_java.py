"""Java's push consumer and ours in one group while one of two masters is killed and comes back: who reads what, and what is committed.

Java looks at its queues and at the route each second here, not each 20 and 30 s: so both see the outage while it lasts, and may differ
in what they make of it.
"""

from __future__ import annotations

import base64
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

import wireproto
from brokers import RocketMQ, java
from patience import until
from wireproto.errors import WireprotoError
from wireproto.position import TopicPartition
from wireproto.rocketmq.client import RocketClient

KILLED = 2  # in `servers`: the name server is 0, broker-a 1
QUEUES = 8
BRISK = {**os.environ, "JAVA_TOOL_OPTIONS": "-Drocketmq.client.rebalance.waitInterval=1000 -Djudge.route=1000"}
PATIENCE = 120.0
_numbers = itertools.count()


class Pair:
    """Our consumer, and Java's in another process. `ours` and `javas`: what each was handed, by partition, in its order."""

    def __init__(self, broker: RocketMQ, client: RocketClient, topic: str, program: java.Program) -> None:
        self.client, self.topic, self.group, self.program = client, topic, f"g-{topic}", program
        route = client.cluster.route(topic, client.deadline(30.0), fresh=True).queues
        masters = {f"broker-{'ab'[n]}": port for n, port in enumerate(broker.broker_ports)}
        self._partitions = {(masters[queue.broker], queue.queue_id): queue.partition for queue in route}
        self.homes = {queue.partition: queue.broker for queue in route}
        self.ours: list[tuple[int, bytes]] = []
        self.javas: list[tuple[int, bytes]] = []
        self.sent: list[bytes] = []
        self.consumer = client.consumer(topic, self.group, rebalance_interval=0.5, heartbeat_interval=0.5)
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        for line in self.program.lines():
            self.javas.append((self._partitions[line["store"], line["queue"]], base64.b64decode(line["body"])))

    def poll(self) -> None:
        """What a program does: take what there is, commit it, and leave what fails in an outage to the next time."""
        with suppress(WireprotoError):
            batch = self.consumer.poll(0.1)
            if batch is not None:
                self.ours += [(batch.partition, value) for value in batch.values() if value is not None]
            self.consumer.commit(timeout=1.0)

    def wait(self, condition: Callable[[], object], what: str) -> None:
        until(lambda: (self.poll(), condition())[1], what, PATIENCE)

    def handed(self) -> set[bytes]:
        return {value for _, value in [*self.ours, *self.javas]}

    def held(self) -> set[int]:
        return {key[1] for key in self.consumer.assignment}

    def write(self, *partitions: int) -> dict[bytes, int]:
        """One record to each of these, acknowledged."""
        values = {b"%d" % (len(self.sent) + n): partition for n, partition in enumerate(partitions)}
        self.sent += values
        with self.client.producer(self.topic, delivery_timeout=PATIENCE) as producer:
            for receipt in [producer.send(value, partition=partition) for value, partition in values.items()]:
                receipt.position(PATIENCE)
        return values

    def owners(self, *partitions: int) -> tuple[set[int], set[int]]:
        """Of the partitions those whose next record we were handed, and those whose Java was."""
        before, others = len(self.ours), len(self.javas)
        values = self.write(*partitions)
        self.wait(lambda: values.keys() <= self.handed(), f"nobody reads {self.topic}: {values.keys() - self.handed()}")
        ours, javas = self.ours[before:], self.javas[others:]
        return {at for at, value in ours if value in values}, {at for at, value in javas if value in values}

    def settle(self, *partitions: int) -> None:
        """Until each of these has one owner, both have some, and ours are those that we hold."""
        self.wait(lambda: self._settled(*partitions), f"no owner or two: {self.held()}")

    def _settled(self, *partitions: int) -> bool:
        ours, javas = self.owners(*partitions)
        return not ours & javas and bool(ours) and bool(javas) and ours == self.held() & {*partitions}

    def positions(self) -> dict[TopicPartition, int]:
        return {key: place.offset for key, place in self.client.admin().group_positions(self.group, self.topic).items()}


@contextmanager
def paired(broker: RocketMQ) -> Iterator[Pair]:
    topic = f"beside-{os.getpid()}-{next(_numbers)}"
    with wireproto.connect(broker.url, route_age=0.5, request_timeout=5.0) as client:
        client.admin().create_topic(topic, partitions=QUEUES)
        until(lambda: len(client.cluster.route(topic, client.deadline(10.0), fresh=True).queues) == QUEUES)
        words = ("push", broker.name_server, topic, f"g-{topic}", "1000000")
        with java.Program(f"rocketmq-{broker.version}", "RocketJudge", *words, env=BRISK) as program:
            pair = Pair(broker, client, topic, program)
            yield pair
            pair.consumer.close(10.0)


def held_to_an_outage(broker: RocketMQ) -> None:
    everything = range(QUEUES)
    with paired(broker) as pair:
        pair.settle(*everything)
        stays = [partition for partition, home in pair.homes.items() if home == "broker-a"]
        assert len(stays) == QUEUES // 2
        for _ in range(5):  # so that there is something on its way, and on the one that dies
            pair.write(*everything)
        broker.kill(KILLED)
        try:
            pair.settle(*stays)
            pair.owners(*stays)
        finally:
            broker.start(KILLED)
        pair.settle(*everything)
        pair.wait(lambda: pair.handed() == {*pair.sent}, "not each record that was acknowledged was handed out")  # Java's word may be late
        ends = {key: place.offset for key, place in pair.client.admin().positions(pair.topic).items()}
        pair.wait(lambda: pair.positions() == ends, f"commits and the log differ: {pair.positions()}, {ends}")
        counted = {key: place.offset for key, place in pair.consumer.committed().items()}
        assert counted == {key: ends[key] for key in counted}
        assert {key[1] for key in counted} == pair.held()
        over = len(pair.ours), len(pair.javas)
        pair.program.child.kill()
        pair.wait(lambda: len(pair.held()) == QUEUES, "Java's queues did not come to us")
        last = pair.write(*everything)
        pair.wait(lambda: last.keys() <= pair.handed(), "the last ones")
        assert len(pair.javas) == over[1]
        assert sorted(value for _, value in pair.ours[over[0] :]) == sorted(last), "what was committed before came again"


@pytest.mark.parametrize("broker", ["rocketmq-5.5.0-cluster"], indirect=True)
def test_a_master_that_dies_and_comes_back_costs_the_group_nothing(broker: RocketMQ) -> None:
    held_to_an_outage(broker)


@pytest.mark.soak
@pytest.mark.broker("rocketmq-4.9.7")
def test_a_master_of_the_older_line_that_dies_and_comes_back_costs_the_group_nothing() -> None:
    with RocketMQ("4.9.7", nodes=2, name_servers=2) as broker:
        held_to_an_outage(broker)
