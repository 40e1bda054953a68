"""A signal handler that raises in the middle of a poll: whatever it breaks into, no record is lost or repeated, and no commit covers one
that was not handed out."""

from __future__ import annotations

import functools
import itertools
import signal as signals
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import wireproto
from interrupting import Signal
from wireproto import EARLIEST
from wireproto.devbroker import DevBroker
from wireproto.errors import Closed, ConcurrentUse

VALUES = [b"%d" % number for number in range(6)]
TOPIC, WIDE = "t", "wide"
"""One partition, which is read alone; three, whose answers wait for their turns."""


@contextmanager
def filled(protocol: str, **options: Any) -> Iterator[Any]:
    """A client of a broker whose topic holds the values, each in a batch of its own."""
    with DevBroker([protocol]) as broker, wireproto.connect(broker.url(protocol), **options) as opened:
        opened.admin().create_topic(TOPIC, partitions=1)
        with opened.producer(TOPIC) as out:
            for value in VALUES:
                out.send(value).position(10.0)
        opened.admin().create_topic(WIDE, partitions=3)
        with opened.producer(WIDE) as out:
            for number, value in enumerate(VALUES):
                out.send(value, partition=number % 3).position(10.0)
        yield opened


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with filled("kafka", max_wait=0.002) as opened:  # hundreds of polls begin behind the end, where an answer comes after that long
        yield opened


@pytest.fixture(scope="module", params=["pulsar", "rocketmq"])
def other(request: pytest.FixtureRequest) -> Iterator[Any]:
    with filled(request.param) as opened:
        yield opened


def poll(role: Any, got: list[bytes], signal: Signal | None = None) -> bool:
    """Once more, broken into by the signal or not; whether it was."""
    came: list[Any] = []

    def call() -> None:
        came.append(role.poll(10.0))

    if signal is not None and signal.within(call):
        return True
    if signal is None:
        call()
    got += came[0].values() if came[0] is not None else []
    return False


def interrupted(role: Any, number: int, before: int) -> bool:
    """All that polls hand out, one of them broken into behind so many values; whether there were so many places."""
    got: list[bytes] = []
    while len(got) < before:
        poll(role, got)
    return rest(role, got, Signal(number))


def rest(role: Any, got: list[bytes], signal: Signal) -> bool:
    """The next poll is broken into; then whatever is left comes. Whether there were so many places."""
    poll(role, got, signal)
    for _ in range(len(VALUES)):
        if len(got) < len(VALUES):
            poll(role, got)
    by_partition = [[value for value in got if int(value) % 3 == number] for number in range(3)]
    assert sorted(got) == VALUES, f"after a signal at {signal.where}"
    assert all(part == sorted(part) for part in by_partition), f"after a signal at {signal.where}"
    return signal.came


@pytest.mark.parametrize("topic", [TOPIC, WIDE])
@pytest.mark.parametrize("before", [0, 2])
def test_a_signal_anywhere_in_a_reader_s_poll_loses_and_repeats_nothing(client: Any, before: int, topic: str) -> None:
    for number in itertools.count(1):
        with client.reader(topic, partition_bytes=1) as reader:
            if not interrupted(reader, number, before):
                break
    assert number > 5


@pytest.mark.parametrize("topic", [TOPIC, WIDE])
@pytest.mark.parametrize("before", [0, 2])
def test_a_signal_anywhere_in_a_member_s_poll_loses_and_repeats_nothing(client: Any, before: int, topic: str) -> None:
    with client.consumer(topic, f"g{before}", partition_bytes=1) as log:
        for number in itertools.count(1):
            came = interrupted(log, number, before)
            log.commit()
            assert sum(place.offset for place in log.committed().values()) == len(VALUES)
            if not came:
                break
            log.seek(EARLIEST)
    assert number > 5


def test_signals_in_two_polls_one_after_the_other_lose_and_repeat_nothing(client: Any) -> None:
    """The first as the batch is about to be returned, the second where the next poll goes back to it."""
    for last, first in itertools.product(range(1, 13), range(1, 25)):
        with client.reader(WIDE, partition_bytes=1) as reader:
            got: list[bytes] = []
            poll(reader, got)
            poll(reader, got, Signal(places(client, 1) - last))
            rest(reader, got, Signal(first))


@functools.cache
def places(client: Any, before: int) -> int:
    """In how many places a signal may come in a poll behind so many others."""
    with client.reader(WIDE, partition_bytes=1) as reader:
        got: list[bytes] = []
        for _ in range(before):
            poll(reader, got)
        signal = Signal(1 << 30)
        poll(reader, got, signal)
        return (1 << 30) - signal.left


@pytest.mark.parametrize("by", ["reader", "consumer", "rewind"])
def test_a_signal_anywhere_in_a_seek_leaves_it_done_or_not_done(client: Any, by: str) -> None:
    """In each partition."""
    for number in itertools.count(1):
        role = client.reader(WIDE) if by == "reader" else client.consumer(WIDE, f"s{by}{number}")
        with role:
            before: list[bytes] = []
            while not before:
                poll(role, before)
            signal = Signal(number)
            signal.within(role.rewind if by == "rewind" else functools.partial(role.seek, EARLIEST))
            behind: list[bytes] = []
            stood = {place.partition: place.offset for place in role.positions.values()}
            for _ in VALUES:
                if sum(place.offset for place in role.positions.values()) < len(VALUES):
                    poll(role, behind)
            for partition in range(3):
                mine = [value for value in behind if int(value) % 3 == partition]
                done = VALUES[partition::3]
                not_done = done[stood[partition] :]
                assert mine == done or (signal.came and mine == not_done), f"after a signal at {signal.where}"
            if not signal.came:
                break
    assert number > 5


def test_a_commit_behind_a_broken_poll_covers_only_what_was_handed_out(client: Any) -> None:
    for number in itertools.count(1):
        with client.consumer(TOPIC, f"h{number}", partition_bytes=1) as log:
            got: list[bytes] = []
            while len(got) < 2:
                poll(log, got)
            signal = Signal(number)
            if not poll(log, got, signal):
                break
            log.commit()
            assert log.committed()[TOPIC, 0].offset == len(got), f"after a signal at {signal.where}"
    assert number > 5


def test_a_signal_anywhere_in_a_new_member_s_first_poll_loses_and_repeats_nothing(client: Any) -> None:
    for number in itertools.count(1):
        with client.consumer(TOPIC, f"f{number}", partition_bytes=1) as log:
            if not interrupted(log, number, 0):
                break
    assert number > 50


def test_what_a_member_holds_behind_a_broken_rebalance_is_of_its_generation(client: Any) -> None:
    """What is left of the generation before may be another member's by now, and a commit would move it."""
    for number in itertools.count(1):
        signal = Signal(number)
        with client.consumer(TOPIC, f"h{number}", partition_bytes=1) as log:
            poll(log, [])
            log._coordinator.rejoin()
            poll(log, [], signal)
            log.poll(0.0)
            assert not log.assignment or log._settled == log._coordinator.membership.generation, f"after a signal at {signal.where}"
        if not signal.came:
            break
    assert number > 100


def test_a_signal_anywhere_in_a_rebalance_loses_and_repeats_nothing(client: Any) -> None:
    for number in itertools.count(1):
        with client.consumer(TOPIC, f"r{number}", partition_bytes=1) as log:
            got: list[bytes] = []
            while len(got) < 2:
                poll(log, got)
            log.commit()
            log._coordinator.rejoin()
            came = rest(log, got, Signal(number))
            log.commit()
            assert log.committed()[TOPIC, 0].offset == len(VALUES)
            if not came:
                break
    assert number > 100


@pytest.mark.parametrize("role", ["reader", "consumer"])
def test_a_signal_anywhere_in_the_first_poll_of_another_protocol_loses_and_repeats_nothing(other: Any, role: str) -> None:
    for number in itertools.count(1):
        with other.reader(TOPIC) if role == "reader" else other.consumer(TOPIC, f"o{number}") as log:
            if not interrupted(log, number, 0):
                break
    assert number > 50


def test_a_close_by_a_signal_handler_is_told_at_once_that_it_cannot_wait_for_the_poll_it_interrupts(client: Any) -> None:
    told: list[BaseException] = []

    def handler(*_: object) -> None:
        try:
            log.close(30.0)
        except ConcurrentUse as why:
            told.append(why)

    before = signals.signal(signals.SIGALRM, handler)
    log = client.consumer(TOPIC, "handler")
    try:
        signals.setitimer(signals.ITIMER_REAL, 0.2)
        with pytest.raises(Closed):
            poll_on(log)
    finally:
        signals.setitimer(signals.ITIMER_REAL, 0.0)
        signals.signal(signals.SIGALRM, before)
        log.close(10.0)
    assert "signal handler" in str(told[0])


def poll_on(role: Any) -> None:
    """For good."""
    while True:
        role.poll(10.0)
