"""A signal handler that raises, a fork or a cancellation while a group of acks is open: what was acked is acknowledged, nothing else is."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

import wireproto
import wireproto.aio
from interrupting import Signal
from patience import LONG, soon, until
from wireproto.devbroker import DevBroker
from wireproto.errors import Forked, UsageError

VALUES = [b"%d" % number for number in range(4)]
TOPIC = "t"
NEVER_SENT = 3600.0
"""As `ack_group_time`: no timer ends within a test."""


@pytest.fixture(scope="module", params=["pulsar", "rocketmq"])
def client(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A client of a broker whose topic holds the values, each in a batch of its own."""
    with DevBroker([request.param]) as broker, wireproto.connect(broker.url(request.param)) as opened:
        opened.admin().create_topic(TOPIC, partitions=1)
        with opened.producer(TOPIC) as out:
            for value in VALUES:
                out.send(value).position(10.0)
        yield opened


def committed(client: Any, group: str) -> int:
    """How many messages the group has done, from the first on."""
    place = client.admin().group_positions(group, TOPIC).get((TOPIC, 0))
    if place is None:
        return 0
    return int(place.entry + 1 if client.protocol == "pulsar" else place.offset)


@contextmanager
def working(client: Any, group: str, interval: float = NEVER_SENT) -> Iterator[tuple[Any, list[Any]]]:
    """A worker, and the first three messages, in hand."""
    with client.queue(TOPIC, group, ack_group_time=interval) as worker:
        deliveries = [worker.receive(LONG) for _ in range(3)]
        assert [delivery.value for delivery in deliveries] == VALUES[:3]
        yield worker, deliveries


def signals() -> Iterator[tuple[int, Signal]]:
    """Signals at one place after the other, until three in a row did not come: how many places there are depends on when answers come."""
    missed = 0
    for number in itertools.count(1):
        signal = Signal(number)
        yield number, signal
        missed = 0 if signal.came else missed + 1
        if missed == 3:
            return


def repeated(call: Callable[[], object]) -> None:
    """Call again what a signal broke into, which may have been done by then."""
    try:
        call()
    except UsageError as why:
        assert "acknowledged" in str(why)  # noqa: PT017


@pytest.mark.parametrize("interval", [NEVER_SENT, 0.0])
@pytest.mark.parametrize("wait", [False, True])
def test_an_ack_broken_into_anywhere_and_repeated_acknowledges_that_message_alone(client: Any, interval: float, wait: bool) -> None:
    for number, signal in signals():
        group = f"a{number}-{interval:g}-{wait}"
        with working(client, group, interval) as (worker, (first, second, _)):
            signal.within(lambda first=first: first.ack(wait=wait))
            repeated(first.ack)
            worker.flush()
            assert committed(client, group) == 1, f"after a signal at {signal.where}"
            second.ack()
            worker.flush()
            assert committed(client, group) == 2, f"after a signal at {signal.where}"
            for ended in (first, second):
                with pytest.raises(UsageError, match="acknowledged"):
                    ended.ack()
        assert committed(client, group) == 2, f"after a signal at {signal.where}"
    assert number > 8


def test_an_ack_broken_into_anywhere_keeps_back_none_before_it(client: Any) -> None:
    """Whether the timer was set before or is set anew; no further call is made."""
    for number, signal in signals():
        group = f"b{number}"
        with working(client, group, 0.02) as (_, (first, second, _)):
            first.ack()
            signal.within(second.ack)
            until(lambda group=group: committed(client, group) >= 1, f"after a signal at {signal.where}")
        assert committed(client, group) <= 2, f"after a signal at {signal.where}"
    assert number > 8


def test_a_flush_broken_into_anywhere_is_made_good_by_the_next(client: Any) -> None:
    for number, signal in signals():
        group = f"f{number}"
        with working(client, group) as (worker, (first, second, _)):
            first.ack()
            second.ack()
            signal.within(worker.flush)
            assert committed(client, group) in (0, 2), f"after a signal at {signal.where}"
            worker.flush()
            assert committed(client, group) == 2, f"after a signal at {signal.where}"
        assert committed(client, group) == 2, f"after a signal at {signal.where}"
    assert number > 8


def test_what_a_flush_broken_into_has_not_committed_is_committed_when_its_time_is_over(client: Any) -> None:
    for number, signal in signals():
        group = f"t{number}"
        with working(client, group, 0.05) as (worker, (first, second, _)):
            first.ack()
            second.ack()
            signal.within(worker.flush)
            until(lambda group=group: committed(client, group) == 2, f"after a signal at {signal.where}")
        assert committed(client, group) == 2, f"after a signal at {signal.where}"
    assert number > 8


def test_a_close_broken_into_anywhere_commits_the_open_group(client: Any) -> None:
    for number, signal in signals():
        group = f"c{number}"
        with working(client, group) as (worker, (first, second, _)):
            first.ack()
            second.ack()
            signal.within(worker.close)
            worker.close()
            assert committed(client, group) == 2, f"after a signal at {signal.where}"
    assert number > 8


def test_a_receive_broken_into_anywhere_keeps_the_open_group(client: Any) -> None:
    for number, signal in signals():
        group = f"r{number}"
        with working(client, group) as (worker, (first, second, _)):
            first.ack()
            second.ack()
            signal.within(lambda worker=worker: worker.receive(LONG))
            worker.flush()
            assert committed(client, group) == 2, f"after a signal at {signal.where}"
    assert number > 8


def in_a_child(work: Callable[[], bool]) -> bool:
    """Whether `work` returned true in a forked child, which ends without the interpreter's own end."""
    pid = os.fork()
    if not pid:
        done = False
        try:
            done = work()
        finally:
            os._exit(0 if done else 1)
    deadline = soon(LONG)
    while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0:
        if time.monotonic() > deadline:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            pytest.fail("the child hung")
        time.sleep(0.01)
    return os.waitstatus_to_exitcode(ended[1]) == 0


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("call", ["ack", "ack and wait", "release", "receive", "flush", "close", "nothing"])
def test_a_child_commits_nothing_of_an_open_group_and_loses_none_of_it(client: Any, call: str) -> None:
    group = f"fork-{call.replace(' ', '-')}"
    with working(client, group) as (worker, deliveries):
        first, second, third = deliveries
        first.ack()
        second.ack()

        def refused() -> bool:
            nonlocal worker, deliveries, first, second, third
            calls: dict[str, Callable[[], object]] = {
                "ack": third.ack,
                "ack and wait": lambda: third.ack(5.0, wait=True),
                "release": lambda: third.release(5.0),
                "receive": lambda: worker.receive(0.1),
                "flush": lambda: worker.flush(5.0),
                "close": lambda: worker.close(5.0),
            }
            try:
                calls.get(call, lambda: None)()
                right = call == "nothing"
            except Forked:
                right = call != "nothing"
            calls.clear()
            worker = deliveries = first = second = third = None  # type: ignore[assignment]
            gc.collect()
            return right

        assert in_a_child(refused)
        assert committed(client, group) == 0
        worker.flush()
        assert committed(client, group) == 2
        third.ack()
    assert committed(client, group) == 3


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_group_whose_time_ends_while_a_child_is_alive_is_committed_by_the_parent(client: Any) -> None:
    with working(client, "fork-timer", 0.2) as (_, (first, second, _)):
        reading, writing = os.pipe()
        first.ack()
        pid = os.fork()
        if not pid:
            os.close(writing)
            os.read(reading, 1)  # until the parent has closed its end
            os._exit(0)
        os.close(reading)
        try:
            second.ack()
            until(lambda: committed(client, "fork-timer") == 2)
        finally:
            os.close(writing)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


# -- cancelled ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["flush", "ack and wait"])
@pytest.mark.parametrize("protocol", ["pulsar", "rocketmq"])
def test_a_coroutine_cancelled_while_acks_are_sent_loses_none_and_acknowledges_no_other(protocol: str, call: str) -> None:
    async def cancelled(turns: int, waiting: Coroutine[Any, Any, None]) -> bool:
        """Whether it was cancelled after so many turns of the event loop: it may have ended before."""
        task = asyncio.ensure_future(waiting)
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    async def main(url: str, admin: Any) -> None:
        async with wireproto.aio.connect(url) as client:
            for turns in range(30):
                group = f"{call.replace(' ', '-')}-{turns}"
                async with client.queue(TOPIC, group, ack_group_time=NEVER_SENT) as worker:
                    first, second, _ = [await worker.receive(LONG) for _ in range(3)]
                    assert first is not None
                    assert second is not None
                    await first.ack()
                    if call == "flush":
                        await second.ack()
                        broken = await cancelled(turns, worker.flush())
                    else:
                        broken = await cancelled(turns, second.ack(wait=True))
                        with suppress(UsageError):
                            await second.ack()
                    assert await asyncio.to_thread(committed, admin, group) in (0, 1, 2)
                    await worker.flush()
                    assert await asyncio.to_thread(committed, admin, group) == 2, f"cancelled after {turns} turns"
                if not broken:
                    break
            assert turns > 0

    with DevBroker([protocol]) as broker, wireproto.connect(broker.url(protocol)) as admin:
        admin.admin().create_topic(TOPIC, partitions=1)
        with admin.producer(TOPIC) as out:
            for value in VALUES:
                out.send(value).position(10.0)
        asyncio.run(main(broker.url(protocol), admin))
