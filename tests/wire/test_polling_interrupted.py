"""A signal handler that raises in the middle of a poll: whatever it breaks into, no record is lost or repeated, and no commit covers one
that was not handed out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import wireproto
from interrupting import Signal
from wireproto import EARLIEST
from wireproto.devbroker import DevBroker

VALUES = [b"%d" % number for number in range(6)]
TOPIC = "t"


@contextmanager
def filled(protocol: str, **options: Any) -> Iterator[Any]:
    """A client of a broker whose topic holds the values, each in a batch of its own."""
    with DevBroker([protocol]) as broker, wireproto.connect(broker.url(protocol), **options) as opened:
        opened.admin().create_topic(TOPIC, partitions=1)
        with opened.producer(TOPIC) as out:
            for value in VALUES:
                out.send(value).position(10.0)
        yield opened


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with filled("kafka", max_wait=0.02) as opened:
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
    assert got == VALUES, f"after a signal at {signal.where}"
    return signal.came


@pytest.mark.parametrize("before", [0, 2])
def test_a_signal_anywhere_in_a_reader_s_poll_loses_and_repeats_nothing(client: Any, before: int) -> None:
    for number in itertools.count(1):
        with client.reader(TOPIC, partition_bytes=1) as reader:
            if not interrupted(reader, number, before):
                break
    assert number > 5


@pytest.mark.parametrize("before", [0, 2])
def test_a_signal_anywhere_in_a_member_s_poll_loses_and_repeats_nothing(client: Any, before: int) -> None:
    with client.consumer(TOPIC, f"g{before}", partition_bytes=1) as log:
        for number in itertools.count(1):
            came = interrupted(log, number, before)
            log.commit()
            assert log.committed()[TOPIC, 0].offset == len(VALUES)
            if not came:
                break
            log.seek(EARLIEST)
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
