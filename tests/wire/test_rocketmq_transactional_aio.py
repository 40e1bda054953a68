"""The transactional role under asyncio on the embedded broker, which refuses halves: where a check runs and what ends it, and what a send
is. What brokers do with halves is told by tests/integration/test_rocketmq_transactional_aio.py."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import wireproto.aio
from wire.test_rocketmq_transactional import LATE, UNKNOWN_HERE, Asked, undecided
from wireproto.deadlines import deadline_after
from wireproto.devbroker import DevBroker
from wireproto.errors import Closed, OptionError, ValueUnsupported
from wireproto.rocketmq import codes
from wireproto.rocketmq.half import CheckedMessage, HalfMessage, Place, State, Verdict

PROTOCOL = "rocketmq"


def under_asyncio(broker: DevBroker, body: Callable[[wireproto.aio.Client], Awaitable[object]]) -> None:
    async def main() -> None:
        async with wireproto.aio.connect(broker.url("rocketmq")) as client:
            await asyncio.wait_for(body(client), 60.0)

    asyncio.run(main())


async def turns_until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(LATE):
        while not condition():
            await asyncio.sleep(0)


def test_what_an_awaited_check_says_counts_and_what_it_is_ended_by_does_not(
    broker: DevBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    running: list[str] = []
    come: list[str] = []

    async def check(message: CheckedMessage) -> Any:
        assert not running
        running.append(message.transaction_id)
        await asyncio.sleep(0)
        running.clear()
        come.append(message.transaction_id)
        match message.transaction_id:
            case "raises":
                raise KeyError("no such row")
            case "cancelled":
                raise asyncio.CancelledError
            case "cancels":
                current = asyncio.current_task()
                assert current is not None
                current.cancel()
                await asyncio.sleep(0)
            case "nothing":
                return None
        return message.transaction_id

    names = ["raises", "commit", "cancelled", "odd", "cancels", "nothing", "abort"]

    async def body(client: wireproto.aio.Client) -> None:
        async with client.transactional("g", check) as work:
            asked = Asked(client._made, monkeypatch, check, work._role._checks)
            asked.take(*names)
            await turns_until(lambda: len(asked.answers) == 2)
            assert asked.answers == [("commit", 8, 0), ("abort", 12, 0)]
            asked.take("commit", table=5)
            await turns_until(lambda: len(asked.answers) == 3)
            assert asked.answers[-1] == ("commit", 12, 5), "this broker has carried it out: what it stored anew is taken off"
            monkeypatch.undo()

    with caplog.at_level("INFO", "wireproto.rocketmq"):
        under_asyncio(broker, body)
    assert come == names
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [line.split("the check of ")[1].split()[0] for line in told] == ["raises", "odd"]  # the log is told once of a kind
    assert "no such row" in told[0]


def test_the_close_ends_a_check_that_is_awaited_unless_that_is_who_closes(
    broker: DevBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[str] = []

    async def waits(message: CheckedMessage) -> Verdict:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(message.transaction_id)
        return "commit"

    async def body(client: wireproto.aio.Client) -> None:
        work = await client.transactional("g", waits)
        asked = Asked(client._made, monkeypatch, waits, work._role._checks)
        asked.take("a", "b")
        await turns_until(lambda: work._check is not None and work._check._now is not None)
        monkeypatch.undo()
        await work.close()
        assert (ended, asked.answers) == (["a"], [])

        async def closes(message: CheckedMessage) -> Verdict:
            await closing.close()
            ended.append("closed by its check")
            return "commit"

        closing = await client.transactional("h", closes)
        asked = Asked(client._made, monkeypatch, closes, closing._role._checks)
        asked.take("c")
        monkeypatch.undo()
        await turns_until(lambda: len(ended) == 2)
        assert asked.answers == []

    with caplog.at_level("INFO", "wireproto"):
        under_asyncio(broker, body)
    assert not any("the check of" in record.getMessage() for record in caplog.records)


def test_a_check_that_is_cancelled_before_it_begins_is_made_when_the_broker_asks_again(
    broker: DevBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    come: list[str] = []

    async def check(message: CheckedMessage) -> Verdict:
        come.append(message.transaction_id)
        return "commit"

    def about_to_run() -> list[asyncio.Task[Any]]:
        return [task for task in asyncio.all_tasks() if getattr(task.get_coro(), "__name__", "") == "_await"]

    async def body(client: wireproto.aio.Client) -> None:
        async with client.transactional("g", check) as work:
            asked = Asked(client._made, monkeypatch, check, work._role._checks)
            asked.take("a")
            await turns_until(about_to_run)
            assert come == []
            about_to_run()[0].cancel()
            await turns_until(lambda: not client._made.cluster.tasks.running(work._role._checks._key))
            asked.take("a", table=5)
            await turns_until(lambda: asked.answers)
            assert (come, asked.answers) == (["a"], [("a", 8, 5)])
            monkeypatch.undo()

    with caplog.at_level("INFO", "wireproto"):
        under_asyncio(broker, body)
    assert not any("the check of" in record.getMessage() for record in caplog.records)


def test_a_plain_check_runs_beside_the_event_loop(broker: DevBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def check(message: CheckedMessage) -> Verdict:
        threads.append(threading.get_ident())
        return "abort"

    async def body(client: wireproto.aio.Client) -> None:
        async with client.transactional("g", check) as work:
            asked = Asked(client._made, monkeypatch, check, work._role._checks)
            asked.take("a")
            await turns_until(lambda: asked.answers)
            assert asked.answers == [("a", 12, 0)]
            monkeypatch.undo()

    under_asyncio(broker, body)
    assert threading.get_ident() not in threads


def test_the_close_waits_for_an_end_whose_wait_was_cancelled(broker: DevBroker, topic: str, faults: Any) -> None:
    recording = broker.record("rocketmq")

    async def body(client: wireproto.aio.Client) -> None:
        work = await client.transactional("g", undecided)
        queue = (await client._here().drive(client._made.cluster.routing(topic, deadline_after(LATE)))).queues[0]
        made = HalfMessage(work._role, topic, (0, queue.broker, queue.queue_id), "A0", Place(0, 0))
        half = wireproto.aio.HalfMessage(work, made)
        faults.delay(UNKNOWN_HERE, 0.5)
        commit = asyncio.ensure_future(half.commit())
        await turns_until(lambda: half.state is State.COMMITTING)
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        assert half.state is State.COMMITTING
        await work.close()
        assert half.state is State.UNKNOWN, "answered: with a refusal, of this broker"

    under_asyncio(broker, body)
    assert len(recording.requests("EndTransaction")) == 1


def test_a_half_that_is_being_sent_is_any_coroutine_and_is_refused_like_one(broker: DevBroker, topic: str) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        work = client.transactional("g", undecided)
        with pytest.raises(codes.NoPermission):
            await work.send(b"v", topic=topic)
        with pytest.raises(codes.NoPermission):
            async with work.send(b"v", topic=topic):
                raise AssertionError("it is not stored")
        assert {type(why) for why in await asyncio.gather(*[work.send(b"v", topic=topic) for _ in range(3)], return_exceptions=True)} == {
            codes.NoPermission
        }
        with pytest.raises(codes.NoPermission):
            await asyncio.create_task(work.send(b"v", topic=topic))
        with pytest.raises(ValueUnsupported):
            await work.send(None, topic=topic)
        unsent = work.send(b"v", topic=topic)
        unsent.close()
        with pytest.raises(RuntimeError, match="cannot reuse"):
            await unsent
        await work.close()
        with pytest.raises(Closed):
            await work.send(b"v", topic=topic)
        for wrong in (None, "commit"):
            with pytest.raises(OptionError, match="check is a function"):
                await client.transactional("g", wrong)  # type: ignore[arg-type]

    under_asyncio(broker, body)
