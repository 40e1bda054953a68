"""A signal handler that raises in the middle of a send, as Ctrl-C does: whatever it breaks into, what comes next is stored, and soon.

The handler raises at one place after the other where the interpreter looks for signals, in the client's own code: behind a call of C, and
where Python code begins. What is tried again is tried after a moment here: these are hundreds of places.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

import wireproto
from interrupting import Signal
from wireproto.devbroker import DevBroker
from wireproto.errors import WireprotoError
from wireproto.flow.linger import SendTimes
from wireproto.kafka import sending as kafka
from wireproto.net.retry import Policy
from wireproto.pulsar import partition_producer
from wireproto.pulsar import sending as pulsar

SOON = 5.0
"""Seconds: more than a busy machine stops for, and less than what is held up takes to come by itself (`request_timeout`)."""
PROMPT = Policy(first=0.002, ceiling=0.02)
"""Pauses before another try."""
_numbers = itertools.count()


@pytest.fixture(autouse=True)
def prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """RocketMQ's are short anyway."""
    for module in (kafka, pulsar):
        monkeypatch.setattr(module, "SendTimes", partial(SendTimes, backoff=PROMPT))
    monkeypatch.setattr(kafka, "_AGAIN", PROMPT)
    monkeypatch.setattr(partition_producer, "RETRY", PROMPT)


@pytest.fixture(params=["kafka", "pulsar", "rocketmq"])
def client(request: pytest.FixtureRequest) -> Iterator[Any]:
    with DevBroker([request.param]) as broker, wireproto.connect(broker.url(request.param)) as opened:
        yield opened


def waited(out: Any) -> None:
    """One that is waited for: the short way."""
    out.send(b"x", partition=0).position(SOON)


def several(out: Any) -> None:
    """Behind one that is on its way."""
    out.send(b"x", partition=0)
    out.send(b"y", partition=0)
    out.send(b"z", partition=0).position(SOON)


def flushed(out: Any) -> None:
    out.send(b"x", partition=0)
    out.flush(SOON)


def rows(out: Any) -> None:
    out.send_batch(pa.table({"value": pa.array([b"x"] * 3, pa.binary())}), partition=0)
    out.flush(SOON)


def filled(out: Any) -> None:
    """More than one batch takes, each way."""
    for _ in range(3):
        out.send(b"x" * 40_000, partition=0)
    out.send_batch(pa.table({"value": pa.array([b"y" * 40_000] * 3, pa.binary())}), partition=0)
    out.flush(SOON)


@pytest.mark.parametrize(("work", "linger"), [(waited, 0.0), (several, 0.0), (flushed, 0.02), (rows, 0.02), (filled, 0.02)])
@pytest.mark.parametrize("fresh", [False, True], ids=["used", "new"])
def test_a_signal_anywhere_in_sending_holds_up_nothing_that_comes_later(
    client: Any, work: Callable[[Any], None], fresh: bool, linger: float
) -> None:
    topic = f"t-{next(_numbers)}"
    client.admin().create_topic(topic, partitions=1)
    stuck = []
    out = client.producer(topic, linger=linger)
    for number in itertools.count(1):
        signal = Signal(number)
        signal.within(partial(work, out))
        try:
            out.send(b"after-%d" % number, partition=0).position(SOON)
            out.flush(SOON)
        except WireprotoError as why:
            stuck.append(f"{signal.where}: {why}")
            with suppress(WireprotoError):
                out.close(0.0)
            out = client.producer(topic, linger=linger)
        if not signal.came:
            break
        if fresh:
            out.close(SOON)
            out = client.producer(topic, linger=linger)
    assert stuck == [], len(stuck)
