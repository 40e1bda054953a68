"""ZooKeeper under asyncio, on the dev broker: calls of the tree, watches, the queue's roles; what is cancelled leaves nothing, and no
thread is started."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import wireproto
import wireproto.aio
from brokers.proxy import FaultProxy
from wireproto._codec import Columns
from wireproto.devbroker import DevBroker
from wireproto.errors import Closed, RoleUnsupported, TimedOut, UsageError, ValueUnsupported
from wireproto.zookeeper.codes import EventType, NodeExists, NoNode, WatcherType
from wireproto.zookeeper.multi import Create, Set

LONG = 60.0
Body = Callable[[wireproto.aio.Client], Awaitable[Any]]


@pytest.fixture
def broker() -> Iterator[DevBroker]:
    with DevBroker(["zookeeper"]) as made:
        yield made


def run(broker: DevBroker, body: Body, **options: Any) -> Any:
    async def main() -> Any:
        async with wireproto.aio.connect(broker.url("zookeeper"), **options) as client:
            return await asyncio.wait_for(body(client), LONG)

    return asyncio.run(main())


def test_the_trees_calls_are_awaited_and_no_thread_is_started(broker: DevBroker) -> None:
    before = set(threading.enumerate())

    async def body(client: wireproto.aio.Client) -> None:
        tree = client.tree()
        assert await tree.create("/a/b/c", b"1", parents=True) == "/a/b/c"
        stat = await tree.set("/a/b/c", b"2")
        assert await tree.get("/a/b/c") == (b"2", stat)
        made = await tree.multi([Create("/a/x", b"x"), Set("/a/b/c", b"3")])
        assert made[0] == "/a/x"
        assert sorted((await tree.children("/a"))[0]) == ["b", "x"]
        assert await tree.exists("/none") is None
        with pytest.raises(NodeExists):
            await tree.create("/a")
        await tree.delete("/a", recursive=True)
        with pytest.raises(NoNode):
            await tree.get("/a")
        found = await asyncio.gather(*(tree.create("/n-", sequence=True) for _ in range(300)))
        assert len(set(found)) == 300
        assert found == sorted(found)  # they take effect in the order in which they were made
        assert tree.session[0] != 0
        assert {thread for thread in set(threading.enumerate()) - before if not thread.name.startswith("wireproto-offload")} == set()

    run(broker, body)


def test_a_watch_is_waited_for_and_events_are_iterated(broker: DevBroker) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        tree = client.tree()
        await tree.create("/w", b"")
        watch, told = tree.watch(), []
        await tree.get("/w", watch=watch)
        await tree.children("/w", watch=lambda event: told.append((event.type, threading.get_ident())))
        assert not watch.fired
        async with tree.events("/w", recursive=True) as events:
            await tree.set("/w", b"1")
            await tree.create("/w/c")
            await tree.delete("/w/c")
            seen = [(event.type, event.path) for event in [await anext(events) for _ in range(3)]]
        assert seen == [(EventType.NODE_DATA_CHANGED, "/w"), (EventType.NODE_CREATED, "/w/c"), (EventType.NODE_DELETED, "/w/c")]
        assert (await watch.wait(LONG)).type == EventType.NODE_DATA_CHANGED
        assert told == [(EventType.NODE_CHILDREN_CHANGED, threading.get_ident())]
        assert not await tree.has_watch("/w")
        assert await tree.watch().wait(0.01) is None

    run(broker, body)


def test_the_events_of_a_tree_end_with_its_session(broker: DevBroker) -> None:
    async def body(client: wireproto.aio.Client) -> list[Any]:
        events = await client.tree().events("/", recursive=True).__aenter__()
        waiting = asyncio.ensure_future(_all(events))
        await client.tree().create("/last")
        await client.close()
        return await waiting

    assert [event.type for event in run(broker, body)] == [EventType.NODE_CREATED, EventType.NONE]


@pytest.mark.parametrize("end", ["close", "leave"])
def test_every_iterator_of_one_nodes_events_ends_with_them(broker: DevBroker, end: str) -> None:
    async def body(client: wireproto.aio.Client) -> list[list[Any]]:
        tree = client.tree()
        path = await tree.create("/many-", sequence=True)
        events = tree.events(path)
        await events.__aenter__()
        waiting = [asyncio.ensure_future(_all(events)) for _ in range(3)]
        await tree.set(path, b"1")
        await (client.close() if end == "close" else events.__aexit__(None, None, None))
        told = await asyncio.wait_for(asyncio.gather(*waiting), LONG)
        assert await asyncio.wait_for(_all(events), LONG) == []
        return told

    told = [event.type for events in run(broker, body) for event in events]
    assert sorted(told) == sorted([EventType.NODE_DATA_CHANGED, *([EventType.NONE] if end == "close" else [])]), "each event goes to one"


async def _all(events: Any) -> list[Any]:
    return [event async for event in events]


def test_the_queues_roles_hand_on_what_was_sent(broker: DevBroker) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        out = client.producer("jobs")
        early = [out.send(b"%d" % number) for number in range(100)]  # before the producer is made
        places = await asyncio.gather(*early)
        places += await asyncio.gather(*(out.send(b"%d" % number) for number in range(100, 300)))
        assert [place.offset for place in places] == list(range(300))
        with pytest.raises(ValueUnsupported):
            out.send(b"v", key=b"k")
        await out.flush()
        read = [record.value async for batch in client.reader("jobs", stop=wireproto.LATEST) for record in batch]
        assert read == [b"%d" % number for number in range(300)]
        queue = client.queue("jobs", "g")
        first, second = await queue.receive(LONG), await queue.receive(LONG)
        assert (first.value, second.value) == (b"0", b"1")
        await first.release()
        await second.ack()
        await queue.close()
        async with client.queue("jobs", "g") as queue:
            async for delivery in queue:
                assert (delivery.value, delivery.attempt) == (b"0", 2)
                await delivery.ack()
                break
        assert (await client.admin().describe_topic("/jobs")).partitions[0].details["messages"] == 298

    run(broker, body)


def test_a_cancelled_call_leaves_nothing_behind_and_the_next_is_answered(broker: DevBroker) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        tree = client.tree()
        await tree.create("/slow", b"v")
        stalled = broker.faults("zookeeper")
        queue = client.queue("empty", "g")
        assert await queue.receive(0.1) is None
        for wait in (lambda: queue.receive(LONG), lambda: tree.watch().wait(LONG)):
            task = asyncio.ensure_future(wait())
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        stalled.delay("getData", 0.5)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(tree.get("/slow"), 0.05)
        assert (await tree.get("/slow"))[0] == b"v"
        async with client.producer("empty") as out:
            await out.send(b"job")
        delivery = await queue.receive(LONG)
        assert delivery.value == b"job"
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        assert {task for task in tasks if "main" not in repr(task.get_coro())} == set()

    run(broker, body)


@pytest.mark.parametrize(
    ("call", "name"), [("get", "getData"), ("exists", "exists"), ("children", "getChildren2"), ("add_watch", "addWatch")]
)
def test_a_cancelled_call_leaves_no_callback_behind(broker: DevBroker, call: str, name: str) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        tree, told = client.tree(), []
        await tree.create("/w", b"")
        broker.faults("zookeeper").delay(name, 1.0)
        given = {"callback": told.append} if call == "add_watch" else {"watch": told.append}
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(getattr(tree, call)("/w", **given), 0.05)
        await tree.sync("/")  # behind the reply that nobody waits for
        await tree.create("/w/c")
        await tree.set("/w", b"1")
        await tree.sync("/")
        await asyncio.sleep(0)
        assert told == []

    run(broker, body)


def test_a_close_that_is_cancelled_leaves_no_descriptor_open(broker: DevBroker) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    async def main() -> None:
        with FaultProxy() as proxy:
            url = proxy.url(broker.url("zookeeper"))
            before = descriptors()
            client = wireproto.aio.connect(url)
            await client.tree().create("/mine", ephemeral=True)
            proxy.refuse()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.close(), 0.3)
            await client.close()
            async with asyncio.timeout(LONG):
                while descriptors() > before:
                    await asyncio.sleep(0.01)

    asyncio.run(main())


@pytest.mark.parametrize("many", [1, 2])
def test_a_cancellation_while_events_are_left_leaves_no_watch_behind(broker: DevBroker, many: int) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        tree = client.tree()
        await tree.create("/w", b"")

        async def follow(recursive: bool) -> None:
            async with tree.events("/w", recursive=recursive) as events:
                await anext(events)
                broker.faults("zookeeper").delay("removeWatches", 0.2)
                asyncio.get_running_loop().call_later(0.1 * (many - 1), following[recursive].cancel)

        following = [asyncio.ensure_future(follow(recursive)) for recursive in (False, True)[:many]]
        while not all([await tree.has_watch("/w", WatcherType(4 + number)) for number in range(many)]):
            pass
        await tree.set("/w", b"1")
        ends = await asyncio.gather(*following, return_exceptions=True)
        assert [type(end) for end in ends] == [asyncio.CancelledError] * many
        async with asyncio.timeout(LONG):
            while await tree.has_watch("/w"):
                pass
        books = client._made.cluster.link.events.table._books
        assert not any(books.values())

    run(broker, body)


@pytest.mark.parametrize("kind", ["queue", "reader"])
def test_a_look_that_is_cancelled_leaves_no_callback_behind(broker: DevBroker, kind: str) -> None:
    """At whichever turn of the event loop."""

    async def body(client: wireproto.aio.Client) -> None:
        await client.admin().create_topic(f"looks-{kind}")
        for turns in range(200):
            role: Any = client.queue(f"looks-{kind}") if kind == "queue" else client.reader(f"looks-{kind}")
            await role
            looking = asyncio.ensure_future(role.receive(LONG) if kind == "queue" else role.poll(LONG))
            for _ in range(turns):
                await asyncio.sleep(0)
            looking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await looking
            await role.close()
        await client.tree().exists("/")  # behind all answers
        books = client._made.cluster.link.events.table._books
        assert not any(callbacks for book in books.values() for callbacks in book.values())

    run(broker, body)


@pytest.mark.parametrize("away", [True, False])
def test_a_workers_close_that_is_cancelled_hides_no_message(broker: DevBroker, away: bool) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        async with client.producer("jobs") as out:
            await out.send(b"job")
        queue = client.queue("jobs", "g")
        assert (await queue.receive(LONG)).value == b"job"
        inside = asyncio.ensure_future(queue.receive(LONG))
        await asyncio.sleep(0)
        if away:
            broker.faults("zookeeper").delay("createSession", 1.0)
            broker.kick("zookeeper")
        closing = asyncio.ensure_future(queue.close())
        await asyncio.sleep(0)
        closing.cancel()
        assert [type(end) for end in await asyncio.gather(closing, inside, return_exceptions=True)] == [asyncio.CancelledError, Closed]
        await queue.close()
        assert (await client.queue("jobs", "g").receive(LONG)).value == b"job"

    run(broker, body)


def test_what_is_closed_says_so_and_what_is_not_there(broker: DevBroker) -> None:
    async def main() -> None:
        client = wireproto.aio.connect(broker.url("zookeeper"))
        tree, out = client.tree(), client.producer("jobs")
        await out.send(b"v")
        with pytest.raises(RoleUnsupported):
            await client.consumer("jobs", "g")
        await client.close()
        with pytest.raises(Closed):
            await tree.get("/")
        with pytest.raises(Closed):
            out.send(b"v")
        with pytest.raises(Closed):
            client.queue("jobs", "g")

    asyncio.run(main())


def test_a_callback_that_nobody_would_await_is_refused(broker: DevBroker) -> None:
    async def callback(event: Any) -> None:
        pass

    async def body(client: wireproto.aio.Client) -> None:
        with pytest.raises(UsageError, match="plain function"):
            await client.tree().exists("/", watch=callback)

    run(broker, body)


def test_a_client_in_a_second_event_loop_says_where_it_belongs(broker: DevBroker) -> None:
    async def use(client: wireproto.aio.Client) -> None:
        await client.tree().exists("/")

    client = wireproto.aio.connect(broker.url("zookeeper"))
    asyncio.run(use(client))
    with pytest.raises(UsageError, match="belongs to the event loop"):
        asyncio.run(use(client))


FIRST: dict[str, Body] = {
    "tree": lambda client: client.tree().get("/", timeout=0.1),
    "tree, at once": lambda client: client.tree().get("/", timeout=0),
    "scope": lambda client: client.tree().any_session().ensure("/x", timeout=0.1),
    "admin": lambda client: client.admin().list_topics(timeout=0.1),
    "request": lambda client: client.request(None, operation="whoAmI", timeout=0.1),
    "seek": lambda client: client.reader("/q").seek(wireproto.EARLIEST, timeout=0.1),
    "batch": lambda client: client.producer("/q").send_batch(Columns.from_rows([b"1"]), timeout=0.1),
}


@pytest.mark.parametrize("call", FIRST.values(), ids=FIRST)
def test_the_first_call_keeps_its_time_where_servers_are_silent(call: Body) -> None:
    async def main(url: str) -> None:
        client = wireproto.aio.connect(url)
        with pytest.raises(TimedOut) as told:
            async with asyncio.timeout(10.0):
                await call(client)
        assert not told.value.doubtful
        await client.close(0.1)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        asyncio.run(main(f"zookeeper://127.0.0.1:{silent.getsockname()[1]}"))


def test_the_first_wait_for_what_may_not_come_keeps_its_time_and_flush_says_what_is_not_sent() -> None:
    async def main(url: str) -> None:
        client = wireproto.aio.connect(url)
        async with asyncio.timeout(10.0):
            assert await client.queue("/q").receive(0.1) is None
            assert await client.reader("/q").poll(0.1) is None
            out = client.producer("/q")
            out.send(b"1")
            with pytest.raises(TimedOut, match="1 records are not sent yet"):
                await out.flush(0.1)
        await client.close(0.1)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        asyncio.run(main(f"zookeeper://127.0.0.1:{silent.getsockname()[1]}"))
