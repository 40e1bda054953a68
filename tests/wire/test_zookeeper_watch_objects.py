"""`Watch` objects of the ZooKeeper client, sync and asyncio: passed again, and let go of."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
import weakref
from typing import Any

import pytest

import wireproto
import wireproto.aio
from wireproto.devbroker import DevBroker
from wireproto.zookeeper.watch import CHILD

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


# -- let go of --------------------------------------------------------------------------------------------------------------


def noted(tree: Any, path: str) -> int:
    return len(tree.link.events.table._books[CHILD].get(path, {}))


def test_watches_that_nobody_holds_are_kept_by_no_one(dial: Any, node: str) -> None:
    """One that is made anew in each round of a loop: nobody can wait for those of the rounds before."""
    tree = dial().tree()
    last, refs = None, []
    for _ in range(300):
        last = tree.watch()
        refs.append(weakref.ref(last))
        tree.children(node, watch=last)
    gc.collect()
    assert sum(ref() is not None for ref in refs) == 1
    assert noted(tree, node) < 50
    tree.create(f"{node}/below")
    assert last.wait(SECONDS).path == node
    assert noted(tree, node) == 0


def test_asyncio_watches_that_nobody_holds_are_kept_by_no_one(broker: DevBroker, node: str) -> None:
    async def body() -> None:
        async with wireproto.aio.connect(broker.url("zookeeper"), **CLIENT) as client:
            tree = client.tree()
            last, refs = None, []
            for _ in range(300):
                last = tree.watch()
                refs.append(weakref.ref(last))
                await tree.children(node, watch=last)
            gc.collect()
            assert sum(ref() is not None for ref in refs) == 1
            assert noted(tree, node) < 50
            await tree.create(f"{node}/below")
            assert (await last.wait(SECONDS)).path == node

    asyncio.run(body())


def test_a_watch_that_nobody_holds_is_not_set_again_and_can_be_taken_back(broker: DevBroker, dial: Any, node: str, seen: Any) -> None:
    tree = dial().tree()
    tree.children(node, watch=tree.watch())
    kept = tree.watch()
    tree.get(node, watch=kept)
    gc.collect()
    broker.kick("zookeeper")
    armed = seen.wait("setWatches", 1, timeout=SECONDS)[0].message
    assert (armed.data_watches, armed.child_watches) == ((node,), ())
    tree.children(node, watch=tree.watch())
    gc.collect()
    tree.remove_watch(node, kept)
    assert not tree.has_watch(node), "also the one that nobody waits for"


def test_callbacks_that_grow_in_number_are_named_in_the_log(dial: Any, node: str, caplog: pytest.LogCaptureFixture) -> None:
    tree = dial().tree()
    with caplog.at_level(logging.WARNING, "wireproto.zookeeper"):
        for _ in range(1023):
            tree.children_async(node, watch=lambda _: None)
        tree.children(node)
        assert not caplog.records
        tree.children(node, watch=lambda _: None)
        tree.children(node)
    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        f"1024 callbacks wait for a change of the children of {node}"
    ]
