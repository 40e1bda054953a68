"""Faults at each step of our transactions on a real broker: whatever happens, all of a transaction is there or nothing, its readers go on,
what each call says is true, and the next transaction works."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

import wireproto
from brokers.pulsar import Pulsar
from chance import seed
from integration.pulsar_tools import PREFIX, loses_nothing, new_topic, pulsar, read_theirs, theirs
from patience import LATE, LONG, until
from wireproto.errors import Aborted, OutcomeUnknown, TimedOut, WireprotoError
from wireproto.pulsar import codes

SECONDS = 20.0
MOMENT = 1.0

real = pytest.mark.parametrize("broker", ["pulsar-4.2.4-transactions"], indirect=True)


@pytest.fixture
def judge(broker: Pulsar) -> Iterator[Any]:
    with theirs(broker) as official:
        yield official


@pytest.fixture
def topic(broker: Pulsar) -> str:
    return new_topic(broker)


@pytest.fixture
def through(broker: Pulsar, fault_proxy: Any) -> Iterator[Any]:
    """A client behind the proxy."""
    with wireproto.connect(fault_proxy.url(broker.url), address_map=fault_proxy.address_map(broker.addresses)) as opened:
        yield opened


def there(judge: Any, topic: str) -> list[bytes]:
    """What the official reader gets in front of a plain record that is sent now, but for others of those: so nothing holds it up."""
    producer = judge.create_producer(PREFIX + topic)
    end = producer.send(b"end").serialize()
    producer.close()
    reader = judge.create_reader(PREFIX + topic, pulsar.MessageId.earliest)
    found = []
    while (message := reader.read_next(int(LONG * 1000))).message_id().serialize() != end:
        found += [] if message.data() == b"end" else [message.data()]
    reader.close()
    return found


@pytest.mark.parametrize("broker", ["pulsar-4.2.4"], indirect=True)
def test_a_cluster_without_transactions_says_which_setting_that_is(broker: Pulsar) -> None:
    with wireproto.connect(broker.url) as client:
        for _ in range(2):
            with pytest.raises(codes.NotAllowedError, match="transactionCoordinatorEnabled"):
                client.transactions("work")


# --- the end, and an answer that is lost ---


@real
def test_a_commit_whose_answer_was_lost_may_be_unknown(judge: Any, topic: str, through: Any, fault_proxy: Any) -> None:
    """Its coordinator commits it and forgets it: who asks again is told that there is no such transaction."""
    with through.transactions("work") as work:
        turn = work.begin()
        receipt = turn.send(b"sent", topic=topic)
        work.topics.flush()
        fault_proxy.stall("down")
        with pytest.raises(TimedOut):
            turn.commit(timeout=LATE)
        until(lambda: there(judge, topic) == [b"sent"], "it is committed")
        fault_proxy.cut()
        fault_proxy.heal()
        with pytest.raises(OutcomeUnknown) as told:
            turn.commit()
        assert told.value.doubtful
        assert turn.state.name == "UNKNOWN"
        with pytest.raises(OutcomeUnknown):
            receipt.position(SECONDS)
        with work.begin() as turn:
            turn.send(b"next", topic=topic)
    assert there(judge, topic) == [b"sent", b"next"]


@real
def test_a_commit_that_was_lost_on_its_way_is_asked_for_again(judge: Any, topic: str, through: Any, fault_proxy: Any) -> None:
    with through.transactions("work") as work:
        turn = work.begin()
        receipt = turn.send(b"sent", topic=topic)
        work.topics.flush()
        fault_proxy.drop("up")
        with pytest.raises(TimedOut):
            turn.commit(timeout=LATE)
        assert read_theirs(judge, topic) == []
        fault_proxy.heal()
        fault_proxy.cut()
        turn.commit()
        receipt.position(SECONDS)
    assert there(judge, topic) == [b"sent"]


@real
def test_an_abort_whose_answer_was_lost_is_one(judge: Any, topic: str, through: Any, fault_proxy: Any) -> None:
    with through.transactions("work") as work:
        turn = work.begin()
        turn.send(b"sent", topic=topic)
        work.topics.flush()
        fault_proxy.stall("down")
        with pytest.raises(TimedOut):
            turn.abort(timeout=LATE)
        fault_proxy.cut()
        fault_proxy.heal()
        turn.abort()
        assert turn.state.value == "rolled back"
        with work.begin() as turn:
            turn.send(b"next", topic=topic)
    assert there(judge, topic) == [b"next"]


# --- records ---


@real
def test_a_record_whose_receipt_was_lost_is_not_sent_again(judge: Any, topic: str, through: Any, fault_proxy: Any) -> None:
    frames = fault_proxy.record("pulsar")
    with through.transactions("work", linger=0.0) as work:
        with work.begin() as turn:
            turn.send(b"first", topic=topic)
        turn = work.begin()
        turn.send(b"second", topic=topic)
        work.topics.flush()
        fault_proxy.stall("down")
        turn.send(b"third", topic=topic)
        frames.wait("send", 3, timeout=LONG)
        fault_proxy.cut()
        fault_proxy.heal()
        with pytest.raises(Aborted):
            turn.commit()
        assert len(frames.requests("send")) == 3
        with work.begin() as turn:
            turn.send(b"fourth", topic=topic)
    assert there(judge, topic) == [b"first", b"fourth"]


# --- all of it, at every point ---


def work_once(client: Any, source: str, topics: list[str], value: bytes) -> str:
    """Consume, process, produce, once; how that ended, as far as this side was told."""
    state = "not begun"
    options = {"timeout": LONG, "transaction_timeout": LONG / 2}  # who reads behind it waits less than LONG
    try:
        with client.queue(source, "g", timeout=LONG) as queue, client.transactions("work", **options) as work:
            delivery = queue.receive(LONG)
            assert delivery is not None
            try:
                with work.begin() as turn:
                    for topic in topics:
                        turn.send(value + b" of " + delivery.value, topic=topic)
                    turn.ack(delivery)
            finally:
                state = work.now.state.value if work.now is not None else state
    except WireprotoError:
        pass  # what the state says
    return state


@real
def test_a_connection_that_is_cut_at_any_point_has_all_of_it_or_nothing(broker: Pulsar, judge: Any, through: Any, fault_proxy: Any) -> None:
    """Cut when so many bytes came down, over the whole length of a transaction of two topics and a queue."""
    chance = random.Random(seed())
    topics, source = [new_topic(broker), new_topic(broker)], new_topic(broker)
    told: dict[bytes, str] = {}
    with wireproto.connect(broker.url) as client, client.producer(source, batching=False) as out:
        for number in range(16):
            out.send(b"input").position(SECONDS)
            value = b"%02d" % number
            fault_proxy.cut_after(chance.randrange(1, 900))
            told[value] = work_once(through, source, topics, value)
            fault_proxy.heal()
    one, two = ([value[:2] for value in there(judge, topic)] for topic in topics)
    assert one == two
    assert len(set(one)) == len(one), "each once"
    for value, outcome in told.items():
        assert outcome == "ended, with an unknown outcome" or (value in one) == (outcome == "committed"), (value, outcome)
    assert one, "some of them were committed"
    consumer = judge.subscribe(PREFIX + source, "g", consumer_type=pulsar.ConsumerType.Shared)
    left = 0
    try:
        while True:
            consumer.receive(int((MOMENT if left >= 16 - len(one) else LONG) * 1000))
            left += 1
    except pulsar.Timeout:
        consumer.close()
    assert left == 16 - len(one), "as many inputs are done with as outputs are there"


@real
@pytest.mark.no_rerun
def test_a_broker_that_is_killed_between_two_steps_has_all_of_it_or_nothing(broker: Pulsar, judge: Any) -> None:
    """Killed once, and started again, while four clients have a transaction each: one begun, one with its record sent, one with its input
    acknowledged, and one whose commit is on its way. A fifth one loses nothing of what it sends without transactions."""
    with ExitStack() as stack:
        works = {step: Work(broker, stack) for step in ("begun", "sent", "acknowledged", "to be committed")}
        for step, work in works.items():
            reached = next(work.steps)
            while reached not in (step, "acknowledged"):
                reached = next(work.steps)
        ending = works["to be committed"].turn
        with ThreadPoolExecutor(1) as pool, loses_nothing(broker) as sends:
            broker.pause()
            works["to be committed"].ending = pool.submit(ending.commit, timeout=LONG * 2)
            until(lambda: ending.shut)
            broker.kill()
            sends()
            broker.start()
        for step, work in works.items():
            outcome = work.outcome()
            stored = there(judge, work.topic)
            assert stored in ([], [b"made"]), step
            committed = bool(stored)
            if outcome != "unknown":
                assert committed == (outcome == "committed"), step
            again = work.queue.receive(MOMENT if committed else LONG)
            assert (again is None) == committed, step
            with work.transactions.begin(timeout=LONG) as turn:
                turn.send(b"next", topic=work.topic, timeout=LONG)
                if again is not None:
                    turn.ack(again, timeout=LONG)
        for step, work in works.items():
            assert there(judge, work.topic)[-1] == b"next", step


class Work:
    """A client with one transaction, of one input and one output.

    Attributes:
        steps: its steps, each done when its name is yielded. ending: its commit, where that was asked for before the steps were done.
    """

    def __init__(self, broker: Pulsar, stack: ExitStack) -> None:
        self.topic, source = new_topic(broker), new_topic(broker)
        client: Any = stack.enter_context(wireproto.connect(broker.url, timeout=LONG))
        with client.producer(source, batching=False) as out:
            out.send(b"input").position(SECONDS)
        self.transactions = stack.enter_context(client.transactions("work", transaction_timeout=LONG * 3))
        self.queue = stack.enter_context(client.queue(source, "g"))
        self.turn: Any = None
        self.ending: Future[Any] | None = None
        self.steps = self._steps(self.queue.receive(SECONDS))

    def _steps(self, delivery: Any) -> Iterator[str]:
        self.turn = self.transactions.begin()
        yield "begun"
        self.turn.send(b"made", topic=self.topic, timeout=LONG)
        self.transactions.topics.flush(LONG)
        yield "sent"
        self.turn.ack(delivery, timeout=LONG)
        yield "acknowledged"
        self.turn.commit(timeout=LONG * 2)

    def outcome(self) -> str:
        """Do the steps that are left, and return "committed", "rolled back" or "unknown".

        Unknown is what only a commit that was sent before the crash may be. Where the answer to END_TXN is lost, its repetition is answered
        by TransactionNotFound if the transaction has ended by then, and that is the answer for one that was rolled back as well.
        """
        try:
            if self.ending is not None:
                self.ending.result(LONG * 3)
            for _ in self.steps:
                pass
        except Aborted:
            self.turn.abort(timeout=LONG * 2)
            return "rolled back"
        except OutcomeUnknown:
            assert self.ending is not None
            return "unknown"
        return "committed"
