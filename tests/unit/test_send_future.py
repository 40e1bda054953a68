"""SendFuture: whether asyncio takes it for one of its own, and what a cancellation leaves."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest

from wireproto._codec import KafkaBatchBuilder, OutBatch, SendFuture, settle_futures
from wireproto.errors import TimedOut


class Intake:
    """What a producer's futures ask."""

    def __init__(self) -> None:
        self.io = asyncio.get_running_loop()
        self.awaits: list[OutBatch] = []

    def awaited(self, batch: OutBatch) -> None:
        self.awaits.append(batch)

    def place(self, batch: OutBatch, index: int) -> int:
        if batch.outcome.error is not None:
            raise batch.outcome.error
        return int(batch.outcome.value) + index

    def reason(self, batch: OutBatch, index: int) -> BaseException | None:
        error: BaseException | None = batch.outcome.error
        return error


class Sent:
    """A batch on its way, and futures of its records."""

    def __init__(self, count: int) -> None:
        self.intake = Intake()
        outcome = SimpleNamespace(done=False, value=None, error=None)
        self.batch = OutBatch(SimpleNamespace(key=("t", 0)), 1, 0.0, KafkaBatchBuilder(), outcome, None, None)
        self.futures = [self.one(index) for index in range(count)]

    def one(self, index: int) -> SendFuture:
        future = SendFuture(self.intake)
        future.bind(self.batch, index)
        return future

    def settle(self, value: int = 0, error: BaseException | None = None) -> None:
        self.batch.outcome.done, self.batch.outcome.value, self.batch.outcome.error = True, value, error
        settle_futures(self.batch)

    def settle_soon(self, value: int = 0, error: BaseException | None = None) -> None:
        self.intake.io.call_later(0.01, self.settle, value, error)


def run(body: Callable[[Sent], Awaitable[Any]], count: int = 3) -> Any:
    async def main() -> Any:
        return await asyncio.wait_for(body(Sent(count)), 30.0)

    return asyncio.run(main())


async def gathered(sent: Sent) -> Any:
    return await asyncio.gather(*sent.futures)


async def waited(sent: Sent) -> Any:
    done, pending = await asyncio.wait(sent.futures)
    assert not pending
    return sorted(future.result() for future in done)


async def waited_for(sent: Sent) -> Any:
    return [await asyncio.wait_for(future, 20.0) for future in sent.futures]


async def shielded(sent: Sent) -> Any:
    return [await asyncio.shield(future) for future in sent.futures]


async def in_coroutines(sent: Sent) -> Any:
    async def one(future: SendFuture) -> Any:
        return await future

    return await asyncio.gather(*(one(future) for future in sent.futures))


async def as_completed(sent: Sent) -> Any:
    return sorted([await one for one in asyncio.as_completed(sent.futures)])


@pytest.mark.parametrize("way", [gathered, waited, waited_for, shielded, in_coroutines, as_completed])
def test_every_way_of_asyncio_to_wait_gets_the_places(way: Callable[[Sent], Awaitable[Any]]) -> None:
    async def body(sent: Sent) -> None:
        sent.settle_soon(100)
        assert await way(sent) == [100, 101, 102]
        assert sent.intake.awaits == [sent.batch], "the batch is told once that it is waited for"
        assert sent.batch.waiters is None
        assert await sent.futures[1] == 101, "again, when it is known already"
        assert await asyncio.gather(*sent.futures) == [100, 101, 102]

    run(body)


def test_a_failure_reaches_each_who_waits() -> None:
    async def body(sent: Sent) -> None:
        sent.settle_soon(error=TimedOut("not stored"))
        found = await asyncio.gather(*sent.futures, return_exceptions=True)
        assert [type(one) for one in found] == [TimedOut] * 3
        with pytest.raises(TimedOut):
            await sent.futures[0]
        assert isinstance(sent.futures[0].exception(), TimedOut)

    run(body)


def test_a_cancelled_one_among_others_is_told_by_gather() -> None:
    async def body(sent: Sent) -> None:
        assert sent.futures[0].cancel("enough")
        assert sent.futures[1].cancel()
        sent.settle_soon(5)
        found = await asyncio.gather(*sent.futures, return_exceptions=True)
        assert [type(one) for one in found] == [asyncio.CancelledError, asyncio.CancelledError, int]
        assert found[0].args == ("enough",)

    run(body)


def test_nothing_is_told_before_it_is_known() -> None:
    async def body(sent: Sent) -> None:
        future = sent.futures[0]
        assert not future.done()
        assert not future.cancelled()
        with pytest.raises(asyncio.InvalidStateError):
            future.result()
        with pytest.raises(asyncio.InvalidStateError):
            future.exception()
        called: list[Any] = []
        future.add_done_callback(called.append)
        future.add_done_callback(called.append)
        future.add_done_callback(lambda _: called.append("other"))
        assert future.remove_done_callback(called.append) == 2
        sent.settle(7)
        await asyncio.sleep(0)
        assert called == ["other"]
        assert future.result() == 7
        assert future.exception() is None

    run(body)


def test_a_callback_runs_in_its_context() -> None:
    async def body(sent: Sent) -> None:
        name: ContextVar[str] = ContextVar("name", default="nobody")
        seen: list[str] = []
        name.set("somebody")
        sent.futures[0].add_done_callback(lambda _: seen.append(name.get()))
        sent.futures[0].add_done_callback(lambda _: seen.append(name.get()))
        name.set("another")
        sent.settle()
        await asyncio.sleep(0)
        assert seen == ["somebody"] * 2

    run(body)


def test_cancelled_futures_leave_nothing_behind_and_the_others_go_on() -> None:
    async def body(sent: Sent) -> None:
        work = [asyncio.ensure_future(in_coroutine(future)) for future in sent.futures]
        together = asyncio.gather(*sent.futures[:1000])
        await asyncio.sleep(0)
        for one in work[1:]:
            one.cancel()
        together.cancel()
        with pytest.raises(asyncio.CancelledError):
            await together
        ends = await asyncio.gather(*work[1:], return_exceptions=True)
        assert {type(end) for end in ends} == {asyncio.CancelledError}
        assert all(future.cancelled() for future in sent.futures[1:])
        assert not sent.futures[1].cancel(), "once"
        with pytest.raises(asyncio.CancelledError):
            sent.futures[1].result()
        last = sent.one(5)
        sent.intake.io.call_soon(sent.settle, 9)
        assert await last == 14
        with pytest.raises(asyncio.CancelledError):  # it was in the cancelled gather, too
            await work[0]

    run(body, 10_000)


def test_a_cancelled_future_lets_go_of_its_callbacks() -> None:
    class Callback:
        def __call__(self, future: Any) -> None:
            told.append(future)

    told: list[Any] = []

    async def body(sent: Sent) -> None:
        callbacks = [Callback() for _ in sent.futures]
        gone = [weakref.ref(callback) for callback in callbacks]
        for future, callback in zip(sent.futures, callbacks, strict=True):
            future.add_done_callback(callback)
            assert future.cancel()
        callbacks.clear()
        del callback
        await asyncio.sleep(0)
        assert told == sent.futures
        assert sent.batch.waiters is not None, "the batch is still on its way"
        gc.collect()
        assert not [ref for ref in gone if ref() is not None]

    run(body, 10_000)


async def in_coroutine(future: SendFuture) -> Any:
    return await future


def test_one_that_waits_for_room_is_bound_later_or_fails() -> None:
    async def body(sent: Sent) -> None:
        queued, refused = SendFuture(sent.intake), SendFuture(sent.intake)
        assert "waits for room" in repr(queued)
        both = asyncio.gather(queued, refused, return_exceptions=True)
        await asyncio.sleep(0)
        assert sent.intake.awaits == []
        queued.bind(sent.batch, 2)
        refused.fail(TimedOut("no room"))
        assert sent.intake.awaits == [sent.batch]
        sent.settle(40)
        place, failure = await both
        assert place == 42
        assert isinstance(failure, TimedOut)

    run(body)


def test_what_a_callback_raises_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def body(sent: Sent) -> None:
        called: list[Any] = []
        reported: list[Any] = []
        sent.intake.io.set_exception_handler(lambda _, facts: reported.append(facts["exception"]))
        sent.futures[0].add_done_callback(lambda _: 1 / 0)
        for future in sent.futures[1:]:
            future.add_done_callback(called.append)
        sent.intake.io.call_soon(sent.settle, 1)
        while len(called) < 2:
            await asyncio.sleep(0)
        assert [type(why) for why in reported] == [ZeroDivisionError]

    run(body)
