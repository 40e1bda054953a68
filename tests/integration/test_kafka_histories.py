"""Random histories of an idempotent producer on a real broker: what its receipts say, and what the log holds then.

Between them stands a proxy that loses, holds up and releases late by chance (`kafka_unruly`); the producer's time runs out, and some topics
take less than a batch. Acknowledged is what is in the log once, at its place, and in the order of sending; failed is what is there once at
most. `tests/unit/test_flow_sender.py` does the same with a model of a broker, far more often; this one has the real broker's rules.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import count
from queue import SimpleQueue
from typing import Any

import pytest

import wireproto
from brokers import Broker
from chance import seed as chance_seed
from kafka_unruly import Unruly
from patience import LONG, soon
from wireproto import LATEST
from wireproto.errors import BrokerError, TimedOut, WireprotoError

AT_ONCE, PARTITIONS = 10, 2
_numbers = count()


@pytest.fixture
def topics(broker: Broker) -> SimpleQueue[str]:
    """Whoever has a history takes one and puts it back: it is nobody else's meanwhile."""
    free: SimpleQueue[str] = SimpleQueue()
    with wireproto.connect(broker.url) as client:
        for number in range(AT_ONCE):
            name = f"histories-{next(_numbers)}"
            client.admin().create_topic(name, partitions=PARTITIONS, config={"max.message.bytes": "600"} if number % 2 else None)
            free.put(name)
    return free


class History:
    """What one producer did, and what became of it."""

    def __init__(self, broker: Any, topic: str, seed: int) -> None:
        self.chance = random.Random(seed)
        self.topic = topic
        self.seed = seed
        with wireproto.connect(broker.url) as client:
            self.begins = client.admin().positions(topic, LATEST)
            with closing(Unruly(broker.addresses[0], seed)) as proxy:
                self.run(broker, proxy)
            self.fates = Counter(proxy.fates)
            reader: Any
            with client.reader(topic, start=self.begins, stop=LATEST) as reader:
                self.log = [(record.partition, record.position.offset, record.value) for batch in reader for record in batch]

    def run(self, broker: Any, proxy: Unruly) -> None:
        chance = self.chance
        self.sent: list[tuple[int, bytes, Any]] = []
        options: Any = {
            "linger": chance.choice((0.0, 0.003)),
            "batch_size": chance.choice((200, 1000, 4000)),
            "max_in_flight": chance.choice((1, 3, 5)),
            "delivery_timeout": chance.choice((1.0, 3.0, 30.0, 30.0)),
            "request_timeout": 0.3,
        }
        through = {broker.addresses[0]: f"127.0.0.1:{proxy.port}"}
        with wireproto.connect(broker.url, address_map=through, timeout=60.0, **options) as ours:
            producer = ours.producer(self.topic)
            for number in range(chance.randrange(20, 150)):
                value = b"%d %d " % (self.seed, number) + bytes(chance.randrange(120))
                partition = chance.randrange(PARTITIONS)
                self.sent.append((partition, value, producer.send(value, partition=partition)))
                if chance.random() < 0.1:
                    with suppress(WireprotoError):
                        self.sent[-1][2].position(chance.random() * 0.05)
            with suppress(TimedOut, BrokerError):
                producer.flush(60.0)
            for partition in range(PARTITIONS):
                self.recover(producer, partition)
            self.outcomes = [self.outcome(receipt) for _, _, receipt in self.sent]
            with suppress(TimedOut, BrokerError):
                producer.close(10.0)

    def recover(self, producer: Any, partition: int) -> None:
        """Behind all mishaps a record is stored, sooner or later."""
        deadline = soon(LONG)
        for number in count():
            assert time.monotonic() < deadline, "nothing is stored any more"
            value = b"%d last %d %d" % (self.seed, partition, number)
            self.sent.append((partition, value, producer.send(value, partition=partition)))
            with suppress(TimedOut):
                self.sent[-1][2].position(35.0)
                return

    def outcome(self, receipt: Any) -> Any:
        assert receipt.done, "a flush waits for all"
        try:
            return receipt.position(0.0)
        except WireprotoError as why:
            return why

    def check(self) -> Counter[str]:
        """Compare the log with the receipts; how many of what there were."""
        found = Counter(value for _, _, value in self.log)
        assert set(found.values()) <= {1}, "a record is there twice"
        assert found.keys() <= {value for _, value, _ in self.sent}
        places = {(partition, offset): value for partition, offset, value in self.log}
        acked = [(partition, value, place) for (partition, value, _), place in zip(self.sent, self.outcomes, strict=True) if good(place)]
        for partition, value, place in acked:
            assert places.get((partition, place.offset)) == value, "what is acknowledged is not at its place"
        for number in range(PARTITIONS):
            kept = {value for partition, value, _ in acked if partition == number}
            mine = [value for partition, _, value in self.log if partition == number and value in kept]
            assert mine == [value for partition, value, _ in acked if partition == number], "the order is another one"
        failed = len(self.sent) - len(acked)
        return self.fates + Counter(acknowledged=len(acked), failed=failed, stored=len(self.log))


def good(outcome: Any) -> bool:
    return not isinstance(outcome, WireprotoError)


def histories(broker: Any, topics: SimpleQueue[str], seeds: range) -> Counter[str]:
    def one(seed: int) -> Counter[str]:
        topic = topics.get()
        try:
            return History(broker, topic, seed).check()
        except Exception as why:
            raise AssertionError(f"seed {seed}: {why}") from why
        finally:
            topics.put(topic)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return sum(pool.map(one, seeds), Counter())


@pytest.mark.parametrize("broker", ["kafka-4.3.1"], indirect=True)
def test_what_receipts_say_is_what_the_log_holds(broker: Any, topics: SimpleQueue[str], oracle: Any) -> None:
    first = chance_seed() * 10_000
    found = histories(broker, topics, range(first, first + 20))
    assert all(found[what] for what in ("held", "late", "lost", "unanswered", "failed")), found
    oracle("kafka-4.3.1 histories", **found)


@pytest.mark.soak
@pytest.mark.parametrize("broker", ["kafka-4.3.1"], indirect=True)
def test_what_receipts_say_is_what_the_log_holds_a_thousand_times(broker: Any, topics: SimpleQueue[str], oracle: Any) -> None:
    first = chance_seed() * 10_000 + 1000
    oracle("kafka-4.3.1 histories", **histories(broker, topics, range(first, first + 1000)))
