"""Transactions whose requests and answers are lost, on real brokers: what is committed is seen once, and nothing of what is rolled back.

Between client and broker stands `kafka_losing`. First each kind of request by itself, its answer lost, itself lost, both twice. Then
histories by chance: consume, process, produce, of several polls a transaction, with requests lost anywhere, transactions rolled back, the
partitions moved to another processor and back at any step, and the transactional name taken over in the middle of one whose owner goes on.
Judged by the read_committed consumers of librdkafka and Java, and by the group's positions.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

import wireproto
from brokers import Kafka, java
from chance import seed as chance_seed
from kafka_committed import settled
from kafka_losing import Losing
from patience import LONG, soon
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
AT_ONCE, RECORDS = 5, 36
INPUTS = [b"%03d" % number for number in range(RECORDS)]
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


def made(broker: Kafka, count: int, kind: str, flushed: int = 6) -> tuple[str, str]:
    """A topic with so many records, and an empty one; `flushed`: how many at once, so that a batch has half as many."""
    name = f"{kind}-{os.getpid()}-{next(_numbers)}"
    source, topic = f"in-{name}", f"out-{name}"
    with wireproto.connect(broker.url) as client:
        client.admin().create_topic(source, partitions=2)
        client.admin().create_topic(topic, partitions=2)
        with client.producer(source) as producer:
            for number in range(count):
                producer.send(b"%03d" % number, partition=number % 2)
                if number % flushed == flushed - 1:
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
    """One group's records, worked on under one name by lives that follow each other, and beside them by a member that comes and goes.

    A transaction has what up to four polls returned; partitions move between the two processors, each of a name of its own, at any step.
    Requests of the first one are lost.
    """

    def __init__(self, broker: Kafka, seed: int) -> None:
        self.broker, self.seed, self.chance = broker, seed, random.Random(seed)
        self.source, self.topic = made(broker, RECORDS, f"history-{seed}", flushed=4)
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
        self._deadline = soon(2 * LONG)

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
        beside = threading.Thread(target=self.comes_and_goes, args=(random.Random(-self.seed - 1),))
        beside.start()
        try:
            with closing(Losing(self.broker.addresses, self.fate)) as proxy:
                while self.under_way() or not self.taken.is_set():  # who has handed on waits for the next, though the other did the rest
                    self.life(proxy)
                for zombie in self.zombies:
                    zombie.join(LONG)
                    assert not zombie.is_alive()
        finally:
            beside.join(2 * LONG)
        assert not beside.is_alive()
        assert not self.wrong, self.wrong
        assert sorted(self.done) == INPUTS
        settled(self.broker, self.topic, INPUTS, ordered=False)
        with wireproto.connect(self.broker.url) as client:
            places = client.admin().group_positions(self.source, self.source)
            assert sum(place.offset for place in places.values()) == RECORDS
        return self.counts + Counter(records=len(self.done))

    def under_way(self) -> bool:
        """Whether records are left; raises when something has gone wrong, or nothing comes any more."""
        assert not self.wrong, self.wrong
        if len(self.done) >= RECORDS:
            return False
        if time.monotonic() > self._deadline:
            self.wrong.append(f"nothing comes any more behind {sorted(self.done)}")
        return True

    def member(self, client: Any, within: list[bytes]) -> Any:
        """A consumer of the group; `within`: what its open transaction has of it."""

        def revoked(_: object) -> None:
            self.counts["revoked"] += 1
            self.counts["revoked within"] += bool(within)

        return client.consumer(self.source, self.source, partition_bytes=1, heartbeat_interval=0.05, on_revoked=revoked)

    def life(self, proxy: Losing) -> None:
        """Up to the end, or to where the next one takes the name."""
        client: Any = wireproto.connect(self.broker.url, address_map=proxy.address_map, timeout=LONG)
        work = client.transactions(self.source)
        self.taken.set()
        handed_on = False
        within: list[bytes] = []
        try:
            with self.member(client, within) as log:
                while self.under_way() and not handed_on:
                    handed_on = self.turn(work, log, within, self.chance, main=True)
        finally:
            if handed_on:
                self.taken = threading.Event()
                zombie = threading.Thread(target=self.goes_on, args=(client, work, self.taken))
                self.zombies.append(zombie)
                zombie.start()
            else:
                client.close()

    def comes_and_goes(self, chance: random.Random) -> None:
        """The other member: it joins, works on what it gets, and leaves, now and then in the middle of a transaction."""
        try:
            with wireproto.connect(self.broker.url, timeout=LONG) as client, client.transactions(f"{self.source}-beside") as work:
                while self.under_way():
                    time.sleep(chance.random() * 0.1)
                    within: list[bytes] = []
                    with self.member(client, within) as log:
                        for _ in range(chance.randrange(1, 6)):
                            if not self.under_way() or self.turn(work, log, within, chance, main=False):
                                break
        except Exception as why:
            self.wrong.append(f"beside: {type(why).__name__}: {why}")

    def turn(self, work: Any, log: Any, within: list[bytes], chance: random.Random, *, main: bool) -> bool:
        """One transaction; whether the member's life is over: the main one's next begins before its end, the other has left the group."""
        turn = work.begin(timeout=LONG)
        polls, left = 0, False
        places: dict[Any, Any] = {}
        how = chance.choice(("given", "given", "not given", "given each"))
        try:
            for _ in range(chance.randrange(1, 5)):
                batch = log.poll(0.05)
                if batch is None:
                    continue
                polls += 1
                for value in batch.values():
                    turn.send(value, topic=self.topic, partition=chance.randrange(2))
                    within.append(value)
                places |= batch.next_positions
                if how == "given each":
                    turn.commit_positions(log, batch.next_positions, timeout=LONG)
                elif chance.random() < 0.2:
                    work.topics.flush(LONG)
            if how != "given each":
                turn.commit_positions(log, *([places] if how == "given" else []), timeout=LONG)
            choice = chance.random()
            if choice < 0.1 and within and main and self._late and len(self.zombies) < 3:  # an empty one asks nobody
                self.counts["handed on"] += 1
                return True
            if choice > 0.8 and not main:
                left = True
                log.close()  # what the transaction has of it stands: nobody reads on before its end
                self.counts["left within"] += bool(within)
            elif choice < 0.3:
                turn.abort(timeout=LONG)
                self.counts["rolled back"] += 1
                log.rewind()
                return False
            turn.commit(timeout=LONG)
        except Aborted:
            self.counts["aborted"] += 1
            if not turn.ended:
                turn.abort(timeout=LONG)
            if not left:
                log.rewind()
            return left
        else:
            self.done += within
            self.counts[f"of several polls, {how}"] += polls > 1
            return left
        finally:
            within.clear()

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
    def one(seed: int) -> tuple[str, Counter[str]]:
        try:
            history = History(broker, seed)
            return history.topic, history.run()
        except Exception as why:
            raise AssertionError(f"seed {seed}: {type(why).__name__}: {why}") from why

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(one, seeds))
    read = java.run(
        f"kafka-{broker.version}", "KafkaCommitted", ",".join(broker.addresses), input=[topic for topic, _ in found], timeout=600
    )
    for (topic, _), line in zip(found, read, strict=True):
        assert (line["topic"], sorted(line["values"])) == (topic, [value.decode() for value in INPUTS]), f"as Java reads {topic}"
    return sum((counts for _, counts in found), Counter()) + Counter(topics_read_by_Java=len(read))


def test_each_record_has_its_outputs_once(broker: Kafka, oracle: Any) -> None:
    first = chance_seed() * 10_000
    found = histories(broker, range(first, first + 10))
    several = [f"of several polls, {how}" for how in ("given", "not given", "given each")]
    moved = ["revoked within", "left within", "aborted"]
    seen = ("lost", "unanswered", "rolled back", *several, *moved, *(("handed on", "kept out") if level_2(broker) else ()))
    assert all(found[what] for what in seen), found
    oracle(f"{broker.name} histories of transactions", **found)


@pytest.mark.soak
def test_each_record_has_its_outputs_once_a_thousand_times(broker: Kafka, oracle: Any) -> None:
    first = chance_seed() * 10_000 + 1000
    oracle(f"{broker.name} histories of transactions", **histories(broker, range(first, first + 1000)))
