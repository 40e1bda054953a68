"""The embedded Pulsar beside a real one: the same random calls on both; values, entries, backlogs and errors are compared.

How: see alike.py. Each record is an entry of its own, acknowledged before the next is sent, so that both sides number entries alike;
ledgers are each broker's own and not compared, nor are publish times; any namespace is there on the embedded one. WIREPROTO_SEED chooses
the calls of the long form; those of the short one are always the same.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

import wireproto
from brokers.pulsar import Pulsar
from chance import seed
from integration.alike import SECONDS, Calls, Kind, compare
from wireproto import EARLIEST, LATEST, MessageId
from wireproto.devbroker import DevBroker

BROKERS = ["pulsar-4.2.4"]
BORN = 1_700_000_000_000


def told(record: Any) -> tuple[Any, ...]:
    """A record as both sides must have it."""
    return record.partition, record.position.entry, record.timestamp, record.key, record.value, record.headers


class PulsarCalls(Calls):
    def __init__(self, chance: random.Random, prefix: str) -> None:
        super().__init__(chance, prefix)
        self._time = BORN

    def _topic(self) -> str:
        return self.one_of(f"{self.prefix}-none", "a/b") if self.chance.random() < 0.06 else self.one_of(*self.names)

    def _group(self) -> str:
        return f"{self.prefix}-{self.one_of('a', 'b')}"

    def do_create(self) -> Kind:
        topic, partitions = self._topic(), self.one_of(0, 0, 1, 2, 3, -1)
        return False, lambda client: client.admin().create_topic(topic, partitions=partitions, timeout=SECONDS), f"{topic!r}, {partitions}"

    def do_delete(self) -> Kind:
        topic = self._topic() if self.chance.random() < 0.3 else f"{self.prefix}-none"
        return False, lambda client: client.admin().delete_topic(topic, timeout=SECONDS), repr(topic)

    def do_describe(self) -> Kind:
        topic = self._topic()

        def describe(client: Any) -> Any:
            found = client.admin().describe_topic(topic, timeout=SECONDS)
            return [part.partition for part in found.partitions], found.details["partitioned"]

        return True, describe, repr(topic)

    def do_list(self) -> Kind:
        return True, lambda client: [name for name in client.admin().list_topics(timeout=SECONDS) if self.prefix in name], ""

    def do_send(self) -> Kind:
        topic, count, key = self._topic(), self.one_of(1, 1, 2, 5), self.one_of(None, b"", b"k", b"other")
        headers, stamped = self.one_of((), (("h", b"v"), ("g", b""))), self.one_of(True, False)
        self._time += 1000
        times = [self._time + number if stamped else None for number in range(count)]

        def send(client: Any) -> Any:
            with client.producer(topic, timeout=SECONDS, keyless="round-robin") as out:
                places = [
                    out.send(b"%d" % number, key=key, headers=headers, timestamp=at, partition=0).position(SECONDS)
                    for number, at in enumerate(times)
                ]
            return [(place.entry, place.index) for place in places]

        return False, send, f"{topic!r}, {count}, {key!r}, {headers}, {stamped}"

    def do_read(self) -> Kind:
        topic, start = self._topic(), self.one_of(EARLIEST, EARLIEST, LATEST)

        def read(client: Any) -> Any:
            with client.reader(topic, start=start, stop=LATEST, timeout=SECONDS, create_topic=False) as reader:
                found = [record for batch in reader for record in batch]
            return [told(record)[:2] + told(record)[3:] for record in sorted(found, key=lambda one: one.position)]

        return True, read, f"{topic!r}, {start!r}"

    def do_places(self) -> Kind:
        topic, at = self._topic(), self.one_of(EARLIEST, LATEST)

        def places(client: Any) -> Any:
            found: dict[Any, MessageId] = client.admin().positions(topic, at, timeout=SECONDS)
            return {key: (place.entry, place.index, place.after) for key, place in found.items()}

        return True, places, f"{topic!r}, {at!r}"

    def do_consume(self) -> Kind:
        topic, group, mode = self._topic(), self._group(), self.one_of("exclusive", "failover")
        start, kept = self.one_of(EARLIEST, LATEST), self.chance.random()

        def consume(client: Any) -> Any:
            with client.consumer(topic, group, start=start, mode=mode, timeout=SECONDS, create_topic=False) as consumer:
                behind = sum(consumer.lag(timeout=SECONDS).values())
                found: list[Any] = []
                while len(found) < behind and (batch := consumer.poll(SECONDS)) is not None:
                    found += batch
                first = sorted(found, key=lambda one: (one.partition, one.position))
                committed = int(len(first) * kept)
                places: dict[Any, Any] = {}
                for record in reversed(first[committed:]):
                    places[topic, record.partition] = record.position
                if committed:
                    consumer.commit(places or None, timeout=SECONDS)
            return behind, [told(one)[:2] + told(one)[3:] for one in first]

        return False, consume, f"{topic!r}, {group}, {start!r}, {mode}, {kept:.2f}"

    def do_work(self) -> Kind:
        topic, group, most = self._topic(), self._group(), self.one_of(1, 2, 5)
        ends = [self.one_of("ack", "ack", "release", "nothing") for _ in range(most)]

        def work(client: Any) -> Any:
            with client.queue(topic, group, timeout=SECONDS, create_topic=False) as queue:
                backlog = client.admin().describe_group(group, topic=topic).details["backlog"]
                taken = [queue.receive(SECONDS) for _ in ends[:backlog]]
                for delivery, end in zip(taken, ends, strict=False):  # after the last: what is given back would come among the others
                    if end != "nothing":
                        getattr(delivery, end)()
            return backlog, sorted((one.record.partition, one.position.entry, one.value, one.key, one.attempt) for one in taken)

        return False, work, f"{topic!r}, {group}, {ends}"

    def do_group(self) -> Kind:
        topic, group = self._topic(), self._group()

        def group_(client: Any) -> Any:
            found = client.admin().describe_group(group, topic=topic, timeout=SECONDS)
            return found.state, found.details["backlog"], len(found.members)

        return True, group_, f"{topic!r}, {group}"


def beside(url: str, count: int, chance: random.Random, prefix: str) -> None:
    """So many calls on both."""
    with (
        DevBroker(["pulsar"], auto_create=False) as dev,
        wireproto.connect(url, timeout=SECONDS) as real,
        wireproto.connect(dev.url("pulsar"), timeout=SECONDS) as ours,
    ):
        compare(real, ours, PulsarCalls(chance, prefix), count)


@pytest.mark.parametrize("broker", BROKERS, indirect=True)
@pytest.mark.parametrize("chosen", [7])
def test_the_embedded_broker_answers_as_the_real_one_does(broker: Pulsar, chosen: int) -> None:
    beside(broker.url, 200, random.Random(chosen), f"alike-{chosen}")


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_the_embedded_broker_answers_as_the_real_one_does_for_long(broker: Pulsar) -> None:
    beside(broker.url, 10_000, random.Random(seed()), f"alike-long-{seed()}")
