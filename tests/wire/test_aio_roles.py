"""Roles under asyncio: made once, whoever waits for that; the time that their ends are given; what is plain; what a tree's watches tell."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import wireproto
import wireproto.aio
from patience import until
from pulsar_server import Link, PulsarServer, acknowledged, stored, success
from wireproto._codec import Columns
from wireproto.aio import roles, tree
from wireproto.deadlines import deadline_after
from wireproto.devbroker import DevBroker
from wireproto.errors import Closed, RoleUnsupported, TimedOut, UsageError
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.zookeeper.codes import EventType

LONG = 20.0
CREATED, CHANGED, CHILDREN = EventType.NODE_CREATED, EventType.NODE_DATA_CHANGED, EventType.NODE_CHILDREN_CHANGED


def last(link: Link, ask: Any) -> Any:
    return api.CommandGetLastMessageIdResponse(
        request_id=ask.request_id,
        last_message_id=api.MessageIdData(ledgerId=7, entryId=1),
        consumer_mark_delete_position=api.MessageIdData(ledgerId=7, entryId=2**64 - 1),
    )


def two(link: Link, ask: Any) -> None:
    """Entries 0 and 1, to each consumer."""
    if sum(flow.consumer_id == ask.consumer_id for flow in link.server.commands("flow")) == 1:
        for number in range(2):
            link.message(ask.consumer_id, number, stored([b"%d" % number], number))


def run(
    body: Callable[[wireproto.aio.Client, PulsarServer], Awaitable[Any]], answers: dict[str, Any] | None = None, **options: Any
) -> None:
    async def main(server: PulsarServer) -> None:
        async with wireproto.aio.connect(server.url, **options) as client:
            await asyncio.wait_for(body(client, server), 60.0)

    usual = {"subscribe": success, "ack": acknowledged, "getLastMessageId": last, "flow": two}
    with PulsarServer(**(usual | (answers or {}))) as server:
        asyncio.run(main(server))


async def turns(count: int = 30) -> None:
    """Let all run that can."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_message_is_shown_whole_and_comes_back_after_its_delay() -> None:
    async def main(url: str) -> None:
        async with wireproto.aio.connect(url) as client:
            await client.producer("jobs", batching=False).send(b"value", key=b"key", headers={"name": b"text"})
            async with client.queue("jobs", "g") as queue:
                first = await queue.receive(LONG)
                assert first is not None
                assert (first.value, first.key, first.headers, first.attempt) == (b"value", b"key", (("name", b"text"),), 1)
                assert first.position == first.record.position
                begun = time.monotonic()
                await first.release(after=lambda attempt: 0.3 + attempt)
                again = await queue.receive(LONG)
                assert again is not None
                assert time.monotonic() - begun >= 0.3
                assert (again.position, again.attempt) == (first.position, 2)
                await again.ack(LONG)

    with DevBroker(["pulsar"]) as broker:
        asyncio.run(main(broker.url("pulsar")))


def test_a_client_of_another_make_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a protocol of another distribution may have one."""
    monkeypatch.setattr("wireproto.aio.client.make_client", lambda url, options, protocol: SimpleNamespace())
    with pytest.raises(UsageError, match="SimpleNamespace has no engine that an event loop could drive"):
        wireproto.aio.connect("other://127.0.0.1")


def test_what_a_protocol_has_not_is_refused_where_it_is_asked_for() -> None:
    async def main(broker: DevBroker) -> None:
        async with wireproto.aio.connect(broker.url("zookeeper")) as client:
            with pytest.raises(RoleUnsupported, match="zookeeper has no transactions"):
                client.transactions("name")
            with pytest.raises(RoleUnsupported, match="zookeeper has no transactional messages"):
                client.transactional("group", lambda message: None)
            for call in (client.admin().list_transactions, client.admin().list_groups):
                with pytest.raises(UsageError):
                    await call()

    with DevBroker(["zookeeper", "rocketmq"]) as broker:
        asyncio.run(main(broker))
        for protocol in ("zookeeper", "rocketmq"):
            with wireproto.connect(broker.url(protocol)) as client, pytest.raises(RoleUnsupported, match=f"{protocol} has no transactions"):
                client.transactions("name")


# -- made once ------------------------------------------------------------------------------------------------------------


def test_a_role_is_made_once_whoever_waits_for_it_and_ceases_to() -> None:
    waits: list[Any] = []

    async def body(client: wireproto.aio.Client, server: PulsarServer) -> None:
        reader = client.reader("t")
        first = asyncio.ensure_future(reader.poll(30.0))
        await asyncio.to_thread(until, lambda: waits)  # noted a moment after it is counted
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert first.cancelled()
        second, third = asyncio.ensure_future(reader.poll(30.0)), asyncio.ensure_future(_made(reader))
        await turns()
        link, ask = waits[0]
        link.send(success(link, ask))
        assert await second is not None
        assert await third is reader
        assert server.count("subscribe") == 1

    run(body, {"subscribe": lambda link, ask: waits.append((link, ask))})


def test_a_call_that_makes_its_role_keeps_its_time_and_the_next_one_finds_it_made() -> None:
    waits: list[Any] = []

    async def body(client: wireproto.aio.Client, server: PulsarServer) -> None:
        reader = client.reader("t")
        assert await reader.poll(0.05) is None
        with pytest.raises(TimedOut):
            await reader.seek(wireproto.EARLIEST, timeout=0.05)
        await asyncio.to_thread(until, lambda: waits)
        link, ask = waits[0]
        link.send(success(link, ask))
        assert await reader.poll(30.0) is not None
        assert server.count("subscribe") == 1

    run(body, {"subscribe": lambda link, ask: waits.append((link, ask))})


def test_a_role_that_cannot_be_made_in_its_own_time_says_so_and_is_made_again_by_the_next_call() -> None:
    async def body(client: wireproto.aio.Client, server: PulsarServer) -> None:
        reader = client.reader("t", timeout=1.0)  # enough to come to the request that is not answered
        for count in (1, 2):
            with pytest.raises(TimedOut):
                await reader.poll(30.0)
            assert server.count("subscribe") == count

    run(body, {"subscribe": lambda link, ask: None})


async def _made(role: Any) -> Any:
    return await role


def test_a_reader_is_done_at_its_stop_and_not_before() -> None:
    async def body(client: wireproto.aio.Client, server: PulsarServer) -> None:
        reader = client.reader("t", stop=wireproto.LATEST)
        assert not reader.done, "it is not made yet"
        assert reader.positions == {}
        await reader
        assert not reader.done
        found: list[bytes] = []
        async for batch in reader:
            found += batch.values()
        assert found == [b"0", b"1"]
        assert reader.done
        assert [place.entry for place in reader.positions.values()] == [1]

    run(body)


def test_what_a_consumer_is_told_at_once_is_told_to_its_role() -> None:
    told: list[Any] = []
    made = SimpleNamespace(
        pause=lambda parts: told.append(("pause", parts)),
        resume=lambda parts: told.append(("resume", parts)),
        assignment=frozenset({("t", 0)}),
    )
    consumer = roles.Consumer.__new__(roles.Consumer)
    consumer._role, consumer._what = None, "consumer"
    assert consumer.assignment == frozenset()
    for call in (consumer.pause, consumer.resume):
        with pytest.raises(Closed, match="the consumer is not open: poll it first"):
            call([("t", 0)])
    consumer._role = made
    assert consumer.assignment == {("t", 0)}
    consumer.pause([("t", 0)])
    consumer.resume([("t", 1)])
    assert told == [("pause", [("t", 0)]), ("resume", [("t", 1)])]


# -- the time that ends are given -----------------------------------------------------------------------------------------


def given(monkeypatch: pytest.MonkeyPatch, module: str) -> list[Any]:
    """What that module's clock is asked."""
    asked: list[Any] = []

    def brief(timeout: Any) -> float:
        asked.append(timeout)
        return deadline_after(5.0)

    monkeypatch.setattr(f"wireproto.{module}.deadline_after", brief)
    return asked


def test_the_calls_of_a_producer_have_the_time_that_they_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is left of it, for the role's own."""

    async def body(client: wireproto.aio.Client, server: PulsarServer) -> None:
        out = await client.producer("t")
        asked, own = given(monkeypatch, "aio.producer"), given(monkeypatch, "flow.producer")
        await out.flush(7.0)
        await out.send_batch(Columns.from_rows([b"1"]), timeout=8.0)
        await out.close(9.0)
        assert asked == [7.0, 8.0, 9.0]
        flushed, sent, closed = own[0], own[1], own[-1]
        assert 0.0 < sent <= 5.0
        assert 0.0 < flushed <= 5.0
        assert 0.0 < closed <= 5.0

    run(body)


def test_ends_have_the_time_that_they_were_given(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(client: wireproto.aio.Client, server: PulsarServer) -> None:
        asked = given(monkeypatch, "aio.roles")
        reader = await client.reader("t")
        ending = reader._role.ending
        passed: list[float] = []
        monkeypatch.setattr(reader._role, "ending", lambda timeout: passed.append(timeout) or ending(timeout))
        await reader.close(7.0)
        assert (asked, passed) == ([7.0], [7.0])
        asked = given(monkeypatch, "aio.client")
        await client.close(8.0)
        assert asked == [8.0]
        asked = given(monkeypatch, "aio.tree")
        watch = tree.Watch()
        watch("told")
        assert await watch.wait(9.0) == "told"
        assert asked == [9.0]

    run(body)


# -- trees ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def broker() -> Iterator[DevBroker]:
    with DevBroker(["zookeeper"]) as made:
        yield made


def test_a_watch_has_not_fired_until_it_is_called() -> None:
    async def main() -> None:
        watch = tree.Watch()
        assert (watch.fired, watch.event) == (False, None)
        assert await watch.wait(0.01) is None
        waits = asyncio.ensure_future(watch.wait(30.0))
        await turns()
        assert not waits.done()
        watch("told")
        assert await waits == "told"
        assert (watch.fired, watch.event) == (True, "told")

    asyncio.run(main())


@pytest.mark.parametrize("recursive", [False, True])
def test_events_are_those_of_the_node_alone_unless_all_below_are_asked_for(broker: DevBroker, recursive: bool) -> None:
    async def main() -> None:
        async with wireproto.aio.connect(broker.url("zookeeper")) as client, asyncio.timeout(60.0):
            nodes = client.tree()
            await nodes.create("/a")
            how = {"recursive": True} if recursive else {}
            async with nodes.events("/a", **how) as events:
                await nodes.create("/a/b")
                await nodes.set("/a/b", b"1")
                await nodes.set("/a", b"2")
                found: list[tuple[int, str]] = []
                async for event in events:
                    found.append((event.type, event.path))
                    if event.path == "/a" and event.type == CHANGED:
                        break
        if recursive:
            assert found == [(CREATED, "/a/b"), (CHANGED, "/a/b"), (CHANGED, "/a")]
        else:
            assert found == [(CHILDREN, "/a"), (CHANGED, "/a")]

    asyncio.run(main())


def test_what_of_a_tree_does_not_wait_is_plain(broker: DevBroker) -> None:
    async def main() -> None:
        async with wireproto.aio.connect(broker.url("zookeeper")) as client, asyncio.timeout(60.0):
            nodes = client.tree()
            await nodes.create("/a")
            assert inspect.iscoroutinefunction(nodes.get)
            states: list[Any] = []
            assert not inspect.isawaitable(nodes.on_state(states.append))
            assert not callable(nodes.session)
            with pytest.raises(AttributeError):
                _ = nodes._no_such_thing

    asyncio.run(main())
