"""A signal handler that raises anywhere in what acknowledges within a transaction, on a real broker: acknowledged is what was committed.

The places are those of `interrupting.Signal`, one after the other, each in a transaction of its own; nothing may hang behind any. In `make
test` neighbouring places take turns in what the program does then, and the seed says which begins; `make soak` has all of it at each place.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest

import wireproto
from brokers.pulsar import Pulsar
from chance import seed
from integration.pulsar_tools import new_topic, read_theirs, theirs
from interrupting import Signal
from patience import until
from wireproto.errors import Aborted, Revoked

SECONDS = 20.0
MOMENT = 1.0
"""Seconds in which nothing comes that is not on its way."""
PROMPT = 10.0
"""Seconds that an end may take: far more than it needs, and less than anything in it gives up after."""
SOAK = pytest.mark.soak
ENDS = ("goes on", "leaves")
CASES = [(given, end) for end in ENDS for given in (True, False)]
"""Whether positions are given, which makes no difference at all but five of four hundred places, and what the program does then."""

pytestmark = pytest.mark.parametrize("broker", ["pulsar-4.2.4-transactions"], indirect=True)


@pytest.fixture
def client(broker: Pulsar) -> Iterator[Any]:
    with wireproto.connect(broker.url) as opened:
        yield opened


@pytest.fixture
def source(broker: Pulsar) -> str:
    return new_topic(broker)


@pytest.fixture
def topic(broker: Pulsar) -> str:
    return new_topic(broker)


def settled(broker: Pulsar, topic: str, expected: list[bytes]) -> None:
    """A commit is seen a moment after its coordinator has answered."""
    with theirs(broker) as judge:

        def made() -> list[bytes]:
            return [message.data() for message in read_theirs(judge, topic)]

        until(lambda: made() == expected, f"{made()} is {expected}")


@contextmanager
def told(broken: Signal) -> Iterator[None]:
    """What fails tells where the signal was."""
    try:
        yield
    except Exception as why:
        why.add_note(f"after a signal {broken.where}")
        raise


def follows(work: Any, topic: str, value: bytes, log: Any = None) -> None:
    """The next transaction works, and commits what a consumer's group has got and not committed."""
    turn = work.begin(timeout=PROMPT)
    turn.send(value, topic=topic)
    if log is not None:
        turn.commit_positions(log, timeout=PROMPT)
    turn.commit(timeout=PROMPT)


def goes_on(turn: Any, again: Any) -> None:
    """The program catches what the handler raised: it makes the call again, and commits."""
    with suppress(Aborted, Revoked):
        again()
    with suppress(Aborted):
        turn.commit(timeout=PROMPT)


def leaves(turn: Any) -> None:
    """What the handler raised leaves the block."""
    turn.abort(timeout=PROMPT)


@pytest.mark.parametrize("ends", [pytest.param(ENDS, id="in turns"), *(pytest.param([end], id=end, marks=SOAK) for end in ENDS)])
def test_after_a_signal_anywhere_in_an_ack_a_message_is_done_where_its_transaction_was_committed_and_comes_again_else(
    broker: Pulsar, client: Any, source: str, topic: str, ends: Sequence[str]
) -> None:
    """What of it the transaction was not told of is in hand still, and given back by hand."""
    expected: list[bytes] = []
    producer = client.producer(source, batching=False)
    work = client.transactions("work", linger=0.0)
    queue = client.queue(source, "g")
    turns = itertools.islice(itertools.cycle(ends), seed() % len(ends), None)
    for number, end in zip(itertools.count(1), turns, strict=False):
        value = b"%d" % number
        producer.send(value).position(SECONDS)
        delivery = queue.receive(SECONDS)
        assert delivery is not None
        assert delivery.value == value, "what was committed is done"
        turn = work.begin(timeout=PROMPT)
        turn.send(b"of " + value, topic=topic)
        broken = Signal(number)
        ack = partial(turn.ack, delivery)
        interrupted = broken.within(ack)
        with told(broken):
            if interrupted and end == "leaves":
                leaves(turn)
            else:
                goes_on(turn, ack if interrupted else turn.check)
            assert turn.ended
            if turn.state.value == "committed":
                expected.append(b"of " + value)
            else:
                assert interrupted
                with suppress(Revoked):
                    delivery.release()
                again = queue.receive(SECONDS)
                assert again is not None
                assert again.value == value
                again.ack()
            follows(work, topic, b"behind " + value)
        expected.append(b"behind " + value)
        if not broken.came:
            break
    assert number > 100
    assert queue.receive(MOMENT) is None
    work.close(PROMPT)
    queue.close(PROMPT)
    settled(broker, topic, expected)


@pytest.mark.parametrize(
    "cases",
    [pytest.param(CASES, id="in turns"), *(pytest.param([case], id=f"{case[0]}-{case[1]}", marks=SOAK) for case in CASES)],
)
def test_after_a_signal_anywhere_in_commit_positions_a_group_goes_on_where_the_transaction_was_committed_and_stays_else(
    broker: Pulsar, client: Any, source: str, topic: str, cases: Sequence[tuple[bool, str]]
) -> None:
    expected: list[bytes] = []
    producer = client.producer(source, batching=False)
    work = client.transactions("work", linger=0.0)
    log = client.consumer(source, "g", mode="exclusive")  # a failover consumer is fed a second after each `rewind`
    turns = itertools.islice(itertools.cycle(cases), seed() % len(cases), None)
    for number, (given, end) in zip(itertools.count(1), turns, strict=False):
        value = b"%d" % number
        producer.send(value).position(SECONDS)
        batch = log.poll(SECONDS)
        assert batch is not None
        assert batch.values() == [value], "what was committed does not come again"
        turn = work.begin(timeout=PROMPT)
        turn.send(b"of " + value, topic=topic)
        broken = Signal(number)
        commits = partial(turn.commit_positions, log, batch.next_positions if given else None)
        interrupted = broken.within(commits)
        with told(broken):
            if interrupted and end == "leaves":
                leaves(turn)
            else:
                goes_on(turn, commits if interrupted else turn.check)
            assert turn.ended
            if turn.state.value == "committed":
                expected.append(b"of " + value)
            else:
                assert interrupted
                log.rewind(timeout=PROMPT)
                again = log.poll(SECONDS)
                assert again is not None
                assert again.values() == [value]
            follows(work, topic, b"behind " + value, log)  # with the position, where it is not committed yet
        expected.append(b"behind " + value)
        if not broken.came:
            break
    assert number > 100
    log.rewind(timeout=PROMPT)
    assert log.poll(MOMENT) is None
    work.close(PROMPT)
    log.close(PROMPT)
    settled(broker, topic, expected)
