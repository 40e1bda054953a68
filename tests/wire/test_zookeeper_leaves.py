"""What is let go of leaves nothing behind in a client that lives on: listeners, roles, their watches."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import Any

import pytest

import wireproto
import wireproto.aio
from patience import until
from wireproto.devbroker import DevBroker

PROTOCOL = "zookeeper"
MANY = 50


@pytest.fixture
def queue(client: Any) -> str:
    name = f"/leaves-{time.monotonic_ns()}"
    client.admin().create_topic(name)
    return name


def left(client: Any) -> tuple[int, int]:
    """Listeners, and callbacks of watches."""
    events = client.cluster.link.events
    return len(events._listeners), sum(len(callbacks) for book in events.table._books.values() for callbacks in book.values())


def test_a_listener_that_is_ended_is_gone_though_the_state_stays(client: Any) -> None:
    tree, before = client.tree(), left(client)
    heard: list[Any] = []
    stay = tree.on_state(heard.append)
    for _ in range(MANY):
        tree.on_state(heard.append)()
    until(lambda: left(client)[0] == before[0] + 1)
    stay()
    until(lambda: left(client)[0] == before[0])


def test_closed_roles_leave_no_watch_and_no_hook(client: Any, queue: str) -> None:
    before = left(client)
    for _ in range(MANY):
        with client.queue(queue) as worker:
            assert worker.receive(0.0) is None
        with client.reader(queue) as reader:
            assert reader.poll(0.0) is None
            reader.seek(wireproto.EARLIEST)
            assert reader.poll(0.0) is None
        with client.producer(queue):
            pass
        gc.collect()
    until(lambda: left(client) == before)
    assert len(client.cluster.link._hooks) < MANY


def test_a_worker_has_one_watch_on_each_list_however_often_it_looks(client: Any, queue: str) -> None:
    before = left(client)
    with client.queue(queue) as worker, client.producer(queue) as out:
        for _ in range(10):
            out.send(b"x").position(20.0)
            message = worker.receive(20.0)
            assert message is not None
            message.ack()
            assert worker.receive(0.0) is None
        assert left(client)[1] <= before[1] + 2


def test_a_watch_of_somebody_else_stays(client: Any, queue: str) -> None:
    tree = client.tree()
    watch = tree.watch()
    with client.reader(queue) as reader:
        assert reader.poll(0.0) is None
        tree.children(f"{queue}/entries", watch=watch)
    with client.producer(queue) as out:
        out.send(b"x").position(20.0)
    assert watch.wait(20.0) is not None


def test_trees_and_admins_under_asyncio_go_when_nobody_has_them(broker: DevBroker) -> None:
    async def run() -> None:
        async with wireproto.aio.connect(broker.url("zookeeper")) as client:
            for _ in range(MANY):
                assert await client.tree().exists("/") is not None
                await client.admin().list_topics()
            gc.collect()
            assert not client._roles
            assert not client._weak_roles
            tree = client.tree()
            assert tree in client._weak_roles
        with pytest.raises(wireproto.errors.Closed):
            await tree.exists("/")

    asyncio.run(run())
