"""`Watch` objects of the ZooKeeper client, sync and asyncio: passed again, and let go of."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

import wireproto
import wireproto.aio
from wireproto.devbroker import DevBroker

PROTOCOL = "zookeeper"
SECONDS = 20.0
CLIENT = {"timeout": SECONDS}


@pytest.fixture
def node(broker: DevBroker) -> str:
    with wireproto.connect(broker.url("zookeeper")) as client:
        return str(client.tree().create(f"/n-{time.monotonic_ns()}", b"0"))


# -- passed again -----------------------------------------------------------------------------------------------------------


def test_a_watch_that_is_passed_again_waits_for_the_next_event(dial: Any, node: str) -> None:
    tree, other = dial().tree(), dial().tree()
    watch = tree.watch()
    for number in range(3):
        assert tree.get(node, watch=watch)[0] == b"%d" % number
        assert not watch.fired
        assert watch.wait(0.0) is None
        other.set(node, b"%d" % (number + 1))
        assert watch.wait(SECONDS).path == node


def test_a_watch_that_was_seen_to_have_fired_waits_for_the_next_event_too(dial: Any, node: str) -> None:
    tree = dial().tree()
    watch = tree.watch()
    tree.get(node, watch=watch)
    tree.set(node, b"1")
    assert watch.fired
    tree.children(node, watch=watch)
    assert watch.wait(0.0) is None
    tree.create(f"{node}/below")
    assert watch.fired


def test_an_event_that_was_not_looked_at_stays_where_the_watch_is_passed_for_another_node(dial: Any, node: str) -> None:
    """Else one watch for several nodes would miss what happens while they are read."""
    tree = dial().tree()
    watch = tree.watch()
    tree.get(node, watch=watch)
    tree.set(node, b"1")
    tree.children(node, watch=watch)
    assert watch.wait(SECONDS).path == node


def test_an_asyncio_watch_that_is_passed_again_waits_for_the_next_event(broker: DevBroker, node: str) -> None:
    async def body() -> None:
        async with wireproto.aio.connect(broker.url("zookeeper"), **CLIENT) as client:
            tree = client.tree()
            watch = tree.watch()
            for number in range(3):
                assert (await tree.get(node, watch=watch))[0] == b"%d" % number
                assert not watch.fired
                assert await watch.wait(0.0) is None
                await tree.set(node, b"%d" % (number + 1))
                assert (await watch.wait(SECONDS)).path == node
            await tree.get(node, watch=watch)
            await tree.set(node, b"unseen")
            await tree.children(node, watch=watch)
            assert (await watch.wait(SECONDS)).path == node

    asyncio.run(body())
