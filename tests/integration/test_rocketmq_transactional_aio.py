"""RocketMQ's transactional messages under asyncio on real brokers: what is there to read, whoever is cancelled and when, and who answers
check-backs. Brokers here ask for the first time after 1 s, and then each second; see test_rocketmq_transactional.py."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import wireproto
import wireproto.aio
from brokers import RocketMQ
from integration import test_rocketmq_page as reading
from integration.test_rocketmq_transactional import PATIENCE, Decides, asked_again, comes, keys, ours, seen
from patience import LONG, until
from wireproto.aio import Client, HalfMessage, Transactional
from wireproto.errors import Aborted, Closed, OutcomeUnknown, UsageError
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.half import CheckedMessage, State

pytestmark = pytest.mark.parametrize("broker", ["rocketmq-4.9.7", "rocketmq-5.5.0"], indirect=True)
_numbers = itertools.count()


@pytest.fixture
def judge(broker: RocketMQ) -> Iterator[RocketClient]:
    """A synchronous client of its own, in whose hands nothing of a test is."""
    with wireproto.connect(broker.url) as opened:
        yield opened


@pytest.fixture
def topic(judge: RocketClient) -> str:
    name = f"atx-{os.getpid()}-{next(_numbers)}"
    judge.admin().create_topic(name, partitions=2)
    return name


class Awaited(Decides):
    """A check that is awaited, and says where it ran."""

    async def __call__(self, message: CheckedMessage) -> Any:
        await asyncio.sleep(0)
        return super().__call__(message)


def run(broker: RocketMQ, body: Callable[[Client], Awaitable[object]], **options: Any) -> None:
    async def main() -> None:
        async with wireproto.aio.connect(broker.url, **options) as client:
            await asyncio.wait_for(body(client), 2 * PATIENCE)

    asyncio.run(main())


async def aside(call: Callable[..., Any], *args: Any) -> Any:
    """What blocks, beside the event loop, which goes on."""
    return await asyncio.to_thread(call, *args)


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


PAGE = Path(__file__).parents[2] / "docs" / "asyncio.md"


class Database(reading.Database):
    """The reader's own, as that of the other page, awaited."""

    async def pay(self, number: int) -> None:  # type: ignore[override]
        super().pay(number)

    async def find(self, key: bytes) -> object | None:  # type: ignore[override]
        return super().find(key)

    async def is_over(self, key: bytes) -> bool:  # type: ignore[override]
        return True


@pytest.mark.parametrize("fails", [False, True], ids=["done", "in doubt"])
def test_the_page_s_transaction_does_what_it_says(
    broker: RocketMQ, judge: RocketClient, topic: str, fails: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = re.findall(r"^```python real-broker\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    source = block.replace('"payments"', f'"{topic}"').replace('"orders"', f'"orders-{topic}"')
    assert source.count(topic) == 2
    names: dict[str, Any] = {"wireproto": wireproto, "database": Database(fails=fails)}
    exec(compile(source, PAGE.name, "exec"), names)

    async def body(client: Client) -> None:
        if not fails:
            await names["pay"](client)
            return
        with pytest.raises(OSError, match="its own answer was lost"):
            await names["pay"](client)
        assert await aside(ours, judge, topic) == [], "nobody here knows what is true"
        async with client.transactional(f"orders-{topic}", check=names["check"]):
            await aside(comes, judge, topic, ["7"])

    run(broker, body)
    assert keys(seen(broker, topic)) == ["7"]
    assert ("State.COMMITTED" in capsys.readouterr().out) == (not fails)


# --- ends ---


def test_what_is_committed_is_seen_as_it_was_sent_and_nothing_else(broker: RocketMQ, judge: RocketClient, topic: str) -> None:
    check = Decides()

    async def body(client: Client) -> None:
        async with client.transactional(f"g-{topic}", check=check) as work:
            async with work.send(b"v" * 9000, topic=topic, key=b"block", headers={"TAGS": b"t", "colour": b"red"}) as half:
                assert (half.state, half.topic) == (State.OPEN, topic)
                assert await aside(ours, judge, topic) == []
            assert half.state is State.COMMITTED
            by_hand, away = await asyncio.gather(
                work.send(b"b", topic=topic, key=b"by-hand", partition=1), work.send(b"a", topic=topic, key=b"away")
            )
            assert by_hand.partition == 1
            async with by_hand, away:
                await by_hand.commit()
                await away.abort()
            assert (by_hand.state, away.state) == (State.COMMITTED, State.ABORTED)
            for end in (by_hand.commit, by_hand.abort):
                with pytest.raises(UsageError, match="is committed; its end is sent only once"):
                    await end()
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(work.send(b"v", topic=topic, key=b"%d" % number)) for number in range(8)]
            await asyncio.gather(*(task.result().commit() for task in tasks))
        ids.extend([half.transaction_id, by_hand.transaction_id])

    ids: list[str] = []
    run(broker, body)
    found = {message["keys"]: message for message in seen(broker, topic)}
    assert sorted(found) == sorted(["block", "by-hand", *map(str, range(8))])
    assert found["block"]["properties"]["colour"] == "red"
    assert [found[key]["msgId"] for key in ("block", "by-hand")] == ids
    assert check.asked == []


@pytest.mark.parametrize("kind", [Decides, Awaited], ids=["a plain check", "an async check"])
def test_an_exception_leaves_a_half_to_the_check_wherever_that_runs(
    broker: RocketMQ, judge: RocketClient, topic: str, kind: type[Decides]
) -> None:
    check = kind(yes="commit", no="abort", odd=KeyError("no such row"))

    async def body(client: Client) -> None:
        async with client.transactional(f"g-{topic}", check=check) as work:
            for key in (b"yes", b"no", b"odd"):
                with pytest.raises(ZeroDivisionError):
                    async with work.send(b"v", topic=topic, key=key) as half:
                        1 / 0  # noqa: B018
                assert half.state is State.UNKNOWN
                with pytest.raises(UsageError, match="left to the check"):
                    await half.commit()
            await aside(comes, judge, topic, ["yes"])
            await aside(until, lambda: {*check.keys()} == {"yes", "no", "odd"}, "not all were asked about", PATIENCE)
            check.words["odd"] = "commit"
            await aside(comes, judge, topic, ["odd", "yes"])

    run(broker, body)
    assert check.threads.isdisjoint({threading.current_thread().name}) == (kind is Decides)
    if kind is Awaited:
        assert check.threads == {threading.current_thread().name}
    assert keys(seen(broker, topic)) == ["odd", "yes"]
    assert {message.value for message in check.asked} == {b"v"}


def test_one_async_check_runs_at_a_time_and_is_broken_off_by_the_close(broker: RocketMQ, judge: RocketClient, topic: str) -> None:
    running: list[str] = []
    ended: list[str] = []

    async def check(message: CheckedMessage) -> str:
        assert not running
        running.append(message.transaction_id)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append(running.pop())
        return "commit"

    async def body(client: Client) -> None:
        async with client.transactional(f"g-{topic}", check=check) as work:
            for _ in range(3):
                await work.send(b"v", topic=topic, key=b"left")
            await aside(until, lambda: running, "no check", PATIENCE)
            marker = await work.send(b"v", topic=topic, key=b"marker")
            await aside(asked_again, marker.made)
            await marker.abort()
            assert len(running) == 1
            assert not ended
        assert len(ended) == 1, "the close waits for what it breaks off"
        other = Decides(left="commit")
        async with client.transactional(f"g-{topic}", check=other):  # nothing was said of them
            await aside(comes, judge, topic, ["left"] * 3)

    run(broker, body)
    assert not running
    assert keys(seen(broker, topic)) == ["left"] * 3


# --- cancellation ---


async def whole(work: Transactional, topic: str, key: bytes, did: set[str], came: list[HalfMessage]) -> None:
    async with work.send(key, topic=topic, key=key) as half:
        came.append(half)
        did.add(key.decode())


def test_whenever_a_block_is_cancelled_its_message_is_there_as_its_work_is(
    broker: RocketMQ, judge: RocketClient, topic: str, fault_proxy: Any
) -> None:
    """Turns of the event loop in which there is something to break off, from its beginning to its end: of the send, and of the commit,
    which is so short that it is aimed at as well."""
    did: set[str] = set()
    broken: set[str] = set()
    check = Decides()

    class Knows(dict[str, str]):
        def get(self, key: str, default: Any = None) -> str:
            return "commit" if key in did else "abort"

    check.words = Knows()
    recording = fault_proxy.record("rocketmq")

    async def body(client: Client) -> None:
        async with client.transactional(f"g-{topic}", check=check) as work:
            await (await work.send(b"v", topic=topic, key=b"warm")).abort()
            behind = 0
            for turns in itertools.count():
                came: list[HalfMessage] = []
                key = b"%d" % turns
                task = asyncio.ensure_future(whole(work, topic, key, did, came))
                for _ in range(turns * (1 + turns // 4)):
                    await asyncio.sleep(0)
                    if task.done():
                        break
                if task.done():
                    await task
                    behind += 1
                    if behind == 3:  # one that was quick is not the end
                        break
                    continue
                await cancelled(task)
                broken.add(key.decode())
                for half in came:
                    assert half.state in (State.UNKNOWN, State.COMMITTING, State.COMMITTED)
                if turns % 8 == 0:
                    await whole(work, topic, b"behind-" + key, did, came)
            for turns in range(4):
                key = b"aimed-%d" % turns
                task = asyncio.ensure_future(whole(work, topic, key, did, []))
                while key.decode() not in did:
                    await asyncio.sleep(0)
                for _ in range(turns):
                    await asyncio.sleep(0)
                if task.done():
                    await task
                    break
                await cancelled(task)
                broken.add(key.decode())
            await aside(comes, judge, topic, sorted(did))
            marker = await work.send(b"v", topic=topic, key=b"marker")
            for _ in range(2):  # a round of checks later nothing else has come
                await aside(asked_again, marker.made)
            await marker.abort()

    run(broker, body, address_map=fault_proxy.address_map(broker.addresses))
    assert broken & did, "no commit was broken off"
    assert broken - did, "no send was broken off"
    assert keys(seen(broker, topic)) == sorted(did)
    ends = Counter(end.message.transaction_id for end in recording.requests("EndTransaction") if not end.message.from_transaction_check)
    assert set(ends.values()) == {1}


@contextmanager
def answers_held(proxy: Any) -> Iterator[None]:
    proxy.stall("down")
    try:
        yield
    finally:
        proxy.heal()


async def asked_of(recording: Any, name: str, count: int) -> None:
    await aside(until, lambda: len(recording.requests(name)) >= count, f"no {name}")


def test_a_cancelled_send_is_rolled_back_whatever_the_check_would_say(
    broker: RocketMQ, judge: RocketClient, topic: str, fault_proxy: Any
) -> None:
    check = Decides(lost="commit")
    recording = fault_proxy.record("rocketmq")

    async def body(client: Client) -> None:
        async with client.transactional(f"g-{topic}", check=check) as work:
            await (await work.send(b"v", topic=topic, key=b"first")).commit()
            with answers_held(fault_proxy):
                sending = asyncio.ensure_future(work.send(b"v", topic=topic, key=b"lost"))
                await asked_of(recording, "SendMessageV2", 2)
                await cancelled(sending)
            await asked_of(recording, "EndTransaction", 2)
            first, lost = recording.requests("EndTransaction")[:2]
            assert [end.message.commit_or_rollback for end in (first, lost)] == [8, 12]
            assert lost.message.from_transaction_check is True

    run(broker, body, address_map=fault_proxy.address_map(broker.addresses))
    assert check.asked == []
    assert keys(seen(broker, topic)) == ["first"]


def test_an_end_that_has_left_goes_on_when_its_wait_is_cancelled(
    broker: RocketMQ, judge: RocketClient, topic: str, fault_proxy: Any
) -> None:
    check = Decides()
    recording = fault_proxy.record("rocketmq")

    async def body(client: Client) -> None:
        async with client.transactional(f"g-{topic}", check=check) as work:
            seen_again, forgotten, away = [await work.send(b"v", topic=topic, key=key) for key in (b"again", b"forgotten", b"away")]
            with answers_held(fault_proxy):
                tasks = [asyncio.ensure_future(end()) for end in (seen_again.commit, forgotten.commit, away.abort)]
                await asked_of(recording, "EndTransaction", 3)
                for task in tasks:
                    await cancelled(task)
                assert [half.state for half in (seen_again, forgotten, away)] == [State.COMMITTING, State.COMMITTING, State.ABORTING]
                with pytest.raises(UsageError, match="is being committed; its end is sent only once"):
                    await seen_again.abort()
                with pytest.raises(OutcomeUnknown, match="the commit was requested"):
                    await seen_again.commit(timeout=0.05)
                waiting = asyncio.ensure_future(seen_again.commit())
            await waiting
            assert seen_again.state is State.COMMITTED
        assert [half.state for half in (forgotten, away)] == [State.COMMITTED, State.ABORTED]
        await aside(comes, judge, topic, ["again", "forgotten"])
        assert len(recording.requests("EndTransaction")) == 3

    run(broker, body, address_map=fault_proxy.address_map(broker.addresses))
    assert check.asked == []
    assert keys(seen(broker, topic)) == ["again", "forgotten"]


def test_a_cancelled_commit_that_has_not_left_may_be_awaited_again(
    broker: RocketMQ, judge: RocketClient, topic: str, fault_proxy: Any
) -> None:
    """But where the end of a block was cancelled, nobody does: the check is asked."""
    check = Decides(block="commit")
    recording = fault_proxy.record("rocketmq")

    async def body(client: Client) -> None:
        async with client.transactional(f"g-{topic}", check=check) as work:
            half = await work.send(b"v", topic=topic, key=b"again")
            kept: list[HalfMessage] = []
            before = len(recording.requests("GetRouteInfoByTopic"))

            async def block() -> None:
                async with work.send(b"v", topic=topic, key=b"block") as mine:
                    kept.append(mine)
                    fault_proxy.stall("down")

            tasks = [asyncio.ensure_future(block())]
            await aside(until, lambda: kept, "no half")
            tasks.append(asyncio.ensure_future(half.commit()))
            await asked_of(recording, "GetRouteInfoByTopic", before + 2)
            for task in tasks:
                await cancelled(task)
            assert (half.state, kept[0].state) == (State.OPEN, State.UNKNOWN)
            fault_proxy.heal()
            await half.commit()
            assert half.state is State.COMMITTED
            await aside(comes, judge, topic, ["again", "block"])
        ends = [end.message.from_transaction_check for end in recording.requests("EndTransaction")]
        assert sorted(ends) == [False, True]

    run(broker, body, address_map=fault_proxy.address_map(broker.addresses), route_age=0.0)
    assert check.keys() == ["block"]
    assert keys(seen(broker, topic)) == ["again", "block"]


# --- the end of the role ---


def test_a_closed_role_leaves_its_halves_to_the_group(broker: RocketMQ, judge: RocketClient, topic: str, fault_proxy: Any) -> None:
    check = Decides()
    recording = fault_proxy.record("rocketmq")

    async def body(client: Client) -> None:
        group = f"g-{topic}"
        work = await client.transactional(group, check=check)
        half = await work.send(b"v", topic=topic, key=b"open")
        with answers_held(fault_proxy):
            sending = asyncio.ensure_future(work.send(b"v", topic=topic, key=b"sent"))
            await asked_of(recording, "SendMessageV2", 2)
            closing = asyncio.ensure_future(work.close())
            with pytest.raises(
                Aborted, match="whether the half message is stored is not known"
            ):  # and no Closed, which would say that nothing is stored
                await sending
        await closing
        await work.close()
        assert len(recording.requests("UnregisterClient")) == 1
        with pytest.raises(Closed):
            await work.send(b"v", topic=topic)
        with pytest.raises(Closed, match="other producers of its group"):
            await half.commit()
        assert half.state is State.OPEN
        async with client.transactional(group, check=Decides(open="commit", sent="abort")):
            await aside(comes, judge, topic, ["open"])

    run(broker, body, address_map=fault_proxy.address_map(broker.addresses))
    assert check.asked == []
    assert keys(seen(broker, topic)) == ["open"]


def test_a_close_that_is_cancelled_leaves_the_group_all_the_same(
    broker: RocketMQ, judge: RocketClient, topic: str, fault_proxy: Any
) -> None:
    recording = fault_proxy.record("rocketmq")

    async def body(client: Client) -> None:
        work = await client.transactional(f"g-{topic}", check=Decides())
        half = await work.send(b"v", topic=topic, key=b"v")
        with answers_held(fault_proxy):
            commit = asyncio.ensure_future(half.commit())
            await asked_of(recording, "EndTransaction", 1)
            closing = asyncio.ensure_future(work.close())
            begun = time.monotonic()
            await asyncio.sleep(0)
            await cancelled(closing)
        await work.close()
        await commit
        assert half.state is State.COMMITTED
        assert time.monotonic() - begun < LONG
        assert len(recording.requests("UnregisterClient")) == 1

    run(broker, body, address_map=fault_proxy.address_map(broker.addresses))
    assert keys(seen(broker, topic)) == ["v"]
