"""Each blocking call of RocketMQ's roles keeps its own `timeout` where nobody answers, and each role is made in its client's; on the
embedded broker. The administrator's calls: see test_call_timeouts.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pytest

from patience import LATE
from wireproto._codec import Columns
from wireproto.devbroker.faults import Faults
from wireproto.errors import TimedOut, WireprotoError
from wireproto.position import LATEST, LogOffset
from wireproto.rocketmq.client import RocketClient

PROTOCOL, BROKER = "rocketmq", {"auto_create": False}
LIMIT = 0.4
"""Seconds that each call has: ten times as much, or what it takes without one, is beyond `LATE`."""
BIG = bytes(60_000)
"""Of which the send budget holds one."""

Call = Callable[[float], object]


@dataclass
class Seat:
    """Roles over one topic with a record, made while the broker answers. brief: a client whose roles are to be made in `LIMIT` seconds."""

    client: RocketClient
    brief: RocketClient
    topic: str
    consumers: list[Any]
    worker: Any
    deliveries: list[Any]
    flushed: Any
    reader: Any
    early: Any
    full: Any
    receipt: Any

    @property
    def place(self) -> dict[tuple[str, int], LogOffset]:
        return {(self.topic, 0): LogOffset(self.topic, 0, 1)}


@pytest.fixture
def seat(dial: Callable[..., RocketClient], topic: str, faults: Faults) -> Seat:
    client, brief = dial(), dial()
    with client.producer(topic) as out:
        out.send(b"x").position(30.0)
    consumers = [client.consumer(topic, f"c{number}-{topic}") for number in range(5)]
    worker = client.queue(topic, f"w-{topic}")
    others = [client.queue(topic, f"w{number}-{topic}", ack_group_time=600.0) for number in range(3)]
    full = dial(buffer_memory=1 << 16).producer(topic)
    full.send(b"y").position(30.0)
    reader = client.reader(topic, start=LATEST)
    deliveries = [one.receive(30.0) for one in others]
    deliveries[2].ack()
    early = brief.reader(topic)
    brief._options = early.options = replace(brief._options, timeout=LIMIT)  # not before: what is made here may take longer
    faults.drop(None, times=-1)
    return Seat(client, brief, topic, consumers, worker, deliveries, others[2].flush, reader, early, full, full.send(BIG))


CALLS: dict[str, Callable[[Seat], Call]] = {
    "admin.commit": lambda at: lambda left: at.client.admin().commit("g", at.place, timeout=left),
    "commit": lambda at: lambda left: at.consumers[0].commit(at.place, timeout=left),
    "committed": lambda at: lambda left: at.consumers[1].committed(timeout=left),
    "lag": lambda at: lambda left: at.consumers[2].lag(timeout=left),
    "seek": lambda at: lambda left: at.consumers[3].seek(LATEST, timeout=left),
    "release": lambda at: at.deliveries[0].release,
    "ack": lambda at: lambda left: at.deliveries[1].ack(left, wait=True),
    "queue.flush": lambda at: at.flushed,
    "send": lambda at: lambda left: at.full.send(BIG, timeout=left),
    "send_batch": lambda at: lambda left: at.full.send_batch(Columns.from_rows([BIG]), timeout=left),
    "flush": lambda at: at.full.flush,
    "position": lambda at: at.receipt.position,
    "reader.poll": lambda at: at.reader.poll,
    "poll": lambda at: at.consumers[4].poll,
    "receive": lambda at: at.worker.receive,
    "a producer": lambda at: lambda left: at.brief.producer(at.topic),
    "a reader": lambda at: lambda left: at.brief.reader(at.topic, start=LATEST),
    "a consumer": lambda at: lambda left: at.brief.consumer(at.topic, "g"),
    "a worker": lambda at: lambda left: at.brief.queue(at.topic, "g"),
    "reader.seek": lambda at: lambda left: at.early.seek(LATEST, timeout=left),
}
LEAVING = dict.fromkeys(("a consumer", "a worker"), 1.0)
"""Seconds more that one has which could not be made, to leave its group."""
ENDS = {
    **dict.fromkeys(("send", "send_batch"), "BufferFull"),
    **dict.fromkeys(("reader.poll", "poll", "receive"), "nothing"),
    "a producer": "something",  # the route is known, and what is not told now is asked for again later
}
"""How a call ends that is not raised TimedOut in."""


def measured(call: Call) -> tuple[str, float]:
    """What it ended with, and after how many seconds."""
    begun = time.monotonic()
    try:
        what = "nothing" if call(LIMIT) is None else "something"
    except WireprotoError as why:
        what = "TimedOut" if isinstance(why, TimedOut) else type(why).__name__
    return what, time.monotonic() - begun


def test_no_call_stays_longer_than_its_timeout(seat: Seat) -> None:
    """All beside each other; a slow one has another try, for the machine may be busy: what ignores its timeout is slow again."""
    calls = {name: make(seat) for name, make in CALLS.items()}
    with ThreadPoolExecutor(len(calls)) as pool:
        found = dict(zip(calls, pool.map(measured, calls.values()), strict=True))
    for name, call in calls.items():
        assert found[name][0] == ENDS.get(name, "TimedOut"), (name, found[name])
        seconds = [found[name][1]]
        most = LIMIT + LEAVING.get(name, 0.0) + LATE
        while min(seconds) >= most and len(seconds) < 3:
            seconds.append(measured(call)[1])
        assert 0.9 * LIMIT <= min(seconds) < most, (name, seconds)
