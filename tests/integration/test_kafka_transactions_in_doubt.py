"""Transactions whose requests and answers are lost, on real brokers: what is committed is seen once, and nothing of what is rolled back.

Between client and broker stands `kafka_losing`. First each kind of request by itself, its answer lost, itself lost, both twice. Then
histories by chance: consume, process, produce, with requests lost anywhere, transactions rolled back, and the transactional name taken over
in the middle of one whose owner goes on. Judged by librdkafka's read_committed consumer and the group's positions.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

import wireproto
from brokers import Kafka
from chance import seed as chance_seed
from kafka_committed import settled
from kafka_losing import Losing
from patience import LONG
from wireproto.errors import Aborted, Fenced, WireprotoError
from wireproto.kafka.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)

_numbers = itertools.count()
AT_ONCE, RECORDS = 5, 30
KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        InitProducerIdRequest,
        AddPartitionsToTxnRequest,
        AddOffsetsToTxnRequest,
        ProduceRequest,
        TxnOffsetCommitRequest,
        EndTxnRequest,
    )
}
FATES = ("unanswered", "lost", "unanswered unanswered", "lost unanswered")
LEVEL_1_ALONE = (AddPartitionsToTxnRequest.API_KEY, AddOffsetsToTxnRequest.API_KEY)
pytestmark = pytest.mark.parametrize(
    "broker", ["kafka-4.4.0-transactions", "kafka-4.3.1-transactions", "kafka-4.3.1-level-1", "kafka-3.9.2-transactions"], indirect=True
)


def level_2(broker: Kafka) -> bool:
    """Whether Produce and TxnOffsetCommit make their partitions part of a transaction by themselves (KIP-890)."""
    return broker.version.startswith("4.") and not broker.features


def made(broker: Kafka, count: int, kind: str) -> tuple[str, str]:
    """A topic with so many records, and an empty one."""
    name = f"{kind}-{os.getpid()}-{next(_numbers)}"
    source, topic = f"in-{name}", f"out-{name}"
    with wireproto.connect(broker.url) as client:
        client.admin().create_topic(source, partitions=2)
        client.admin().create_topic(topic, partitions=2)
        with client.producer(source) as producer:
            for number in range(count):
                producer.send(b"%03d" % number, partition=number % 2)
                if number % 6 == 5:
                    producer.flush(LONG)  # a batch is what a poll hands out
    return source, topic


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_lost_request_or_answer_changes_nothing(broker: Kafka, kind: str) -> None:
    """With each of the fates: beside one another, since most of it is waiting."""

    def meets(fates: str) -> None:
        try:
            check_that_nothing_changes(broker, KINDS[kind].API_KEY, fates)
        except Exception as why:
            raise AssertionError(f"{kind} {fates}: {type(why).__name__}: {why}") from why

    with ThreadPoolExecutor(len(FATES)) as pool:
        list(pool.map(meets, FATES))


def check_that_nothing_changes(broker: Kafka, key: int, fates: str) -> None:
    """Each record's output is there once, and in order, though requests with this number of an API meet these fates."""
    source, topic = made(broker, 20, "each")
    ahead: list[str] = []
    with (
        closing(Losing(broker.addresses, lambda asked: ahead.pop() if asked == key and ahead else "passed")) as proxy,
        wireproto.connect(broker.url, address_map=proxy.address_map, timeout=LONG) as client,
        client.consumer(source, source, partition_bytes=1) as log,
    ):
        ahead += fates.split()
        left, turns, expected = 20, 0, []
        with client.transactions(source) as work:
            while left:
                batch = log.poll(LONG)
                assert batch is not None
                turns += 1
                turn = work.begin(timeout=LONG)
                for value in batch.values():
                    turn.send(value, topic=topic, partition=0)
                turn.commit_positions(log, batch.next_positions, timeout=LONG)
                if turns % 3 == 2:
                    turn.abort(timeout=LONG)
                    log.rewind()
                else:
                    turn.commit(timeout=LONG)
                    left -= len(batch)
                    expected += batch.values()
                ahead[:] = ahead or fates.split()
        asked = 0 if key in LEVEL_1_ALONE and level_2(broker) else len(fates.split())
        met = proxy.fates[key, "unanswered"] + proxy.fates[key, "lost"]
        assert met >= asked if asked else not met
        assert sum(place.offset for place in log.committed(timeout=LONG).values()) == 20
    settled(broker, topic, expected)


class History:
    """One group's records, worked on under one name by lives that follow each other."""

    def __init__(self, broker: Kafka, seed: int) -> None:
        self.broker, self.seed, self.chance = broker, seed, random.Random(seed)
        self.source, self.topic = made(broker, RECORDS, f"history-{seed}")
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._rough = self.chance.choice((0.02, 0.1, 0.3))
        self._mishaps = self.chance.randrange(3, 25)
        keys = [kind.API_KEY for kind in KINDS.values()]
        self._keys = frozenset(self.chance.sample(keys, self.chance.randrange(1, len(keys) + 1)))
        self._late = level_2(broker)  # before it who lost the name and asks for it anew may get it: docs/kafka.md tells
        self.done: list[bytes] = []
        self.taken = threading.Event()  # the next life has the name
        self.zombies: list[threading.Thread] = []
        self.wrong: list[str] = []

    def fate(self, key: int) -> str:
        with self._lock:
            if key not in self._keys or not self._mishaps or self.chance.random() >= self._rough:
                return "passed"
            self._mishaps -= 1
            held = self._late and key != InitProducerIdRequest.API_KEY  # late, it fences who has the name by then, and rightly
            found = self.chance.choice(("lost", "unanswered", "unanswered", *(("held",) if held else ())))
            self.counts[found] += 1
            return found

    def run(self) -> Counter[str]:
        with closing(Losing(self.broker.addresses, self.fate)) as proxy:
            while len(self.done) < RECORDS:
                self.life(proxy)
            for zombie in self.zombies:
                zombie.join(LONG)
                assert not zombie.is_alive()
        assert not self.wrong, self.wrong
        settled(self.broker, self.topic, sorted(self.done), ordered=False)
        with wireproto.connect(self.broker.url) as client:
            places = client.admin().group_positions(self.source, self.source)
            assert sum(place.offset for place in places.values()) == RECORDS
        return self.counts + Counter(records=len(self.done))

    def life(self, proxy: Losing) -> None:
        """Up to the end, or to where the next one takes the name."""
        client: Any = wireproto.connect(self.broker.url, address_map=proxy.address_map, timeout=LONG)
        work = client.transactions(self.source)
        self.taken.set()
        handed_on = False
        try:
            with client.consumer(self.source, self.source, partition_bytes=1) as log:
                while len(self.done) < RECORDS and not handed_on:
                    handed_on = self.turn(work, log)
        finally:
            if handed_on:
                self.taken = threading.Event()
                zombie = threading.Thread(target=self.goes_on, args=(client, work, self.taken))
                self.zombies.append(zombie)
                zombie.start()
            else:
                client.close()

    def turn(self, work: Any, log: Any) -> bool:
        """One transaction; whether the next life begins before its end."""
        batch = log.poll(LONG)
        assert batch is not None, "nothing comes any more"
        values = batch.values()
        turn = work.begin(timeout=LONG)
        try:
            for value in values:
                turn.send(value, topic=self.topic, partition=self.chance.randrange(2))
            if self.chance.random() < 0.3:
                work.topics.flush(LONG)
            turn.commit_positions(log, batch.next_positions, timeout=LONG)
            choice = self.chance.random()
            if choice < 0.1 and self._late and len(self.zombies) < 3:
                self.counts["handed on"] += 1
                return True
            if choice < 0.3:
                turn.abort(timeout=LONG)
                self.counts["rolled back"] += 1
                log.rewind()
                return False
            turn.commit(timeout=LONG)
        except Aborted:
            self.counts["aborted"] += 1
            if not turn.ended:
                turn.abort(timeout=LONG)
            log.rewind()
            return False
        self.done += values
        return False

    def goes_on(self, client: Any, work: Any, taken: threading.Event) -> None:
        """Who has lost the name to the next life, and does not know: commits."""
        try:
            assert taken.wait(LONG)
            work.now.commit(timeout=LONG)
            self.wrong.append("who lost the name has committed")
        except (Fenced, Aborted):
            self.counts["kept out"] += 1
        except WireprotoError as why:
            self.wrong.append(f"{type(why).__name__}: {why}")
        finally:
            client.close()


def histories(broker: Kafka, seeds: range) -> Counter[str]:
    def one(seed: int) -> Counter[str]:
        try:
            return History(broker, seed).run()
        except Exception as why:
            raise AssertionError(f"seed {seed}: {type(why).__name__}: {why}") from why

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return sum(pool.map(one, seeds), Counter())


def test_each_record_has_its_outputs_once(broker: Kafka, oracle: Any) -> None:
    first = chance_seed() * 10_000
    found = histories(broker, range(first, first + 10))
    seen = ("lost", "unanswered", "rolled back", *(("handed on", "kept out") if level_2(broker) else ()))
    assert all(found[what] for what in seen), found
    oracle(f"{broker.name} histories of transactions", **found)


@pytest.mark.soak
def test_each_record_has_its_outputs_once_a_thousand_times(broker: Kafka, oracle: Any) -> None:
    first = chance_seed() * 10_000 + 1000
    oracle(f"{broker.name} histories of transactions", **histories(broker, range(first, first + 1000)))
