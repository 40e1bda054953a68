"""How the ZooKeeper client asks for several watches of one node, so that servers with one mode for all of them keep each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import wireproto
from patience import soon, until
from wireproto.devbroker import DevBroker, Faults
from wireproto.errors import TimedOut
from wireproto.zookeeper.codes import WatcherType
from wireproto.zookeeper.events import Watching
from wireproto.zookeeper.watch import CHILD, DATA, PERSISTENT, RECURSIVE, ZXID_AFTER_ALL, WatchTable

PROTOCOL = "zookeeper"
SECONDS = 20.0
CLIENT = {"timeout": SECONDS}


@pytest.fixture
def node(broker: DevBroker) -> str:
    with wireproto.connect(broker.url("zookeeper")) as client:
        return str(client.tree().create(f"/n-{time.monotonic_ns()}", b"0"))


def in_thread(call: Callable[..., Any], *args: Any, **given: Any) -> threading.Thread:
    thread = threading.Thread(target=call, args=args, kwargs=given)
    thread.start()
    return thread


def test_a_watch_that_fires_once_is_asked_for_behind_the_answer_of_one_that_stays(dial: Any, node: str, faults: Faults, seen: Any) -> None:
    tree, other = dial().tree(), dial().tree()
    once = tree.watch()
    staying: list[Any] = []
    faults.delay("addWatch", 0.3)
    adding = in_thread(tree.add_watch, node, staying.append, recursive=True)
    until(lambda: bool(tree.link.events._setting))
    assert tree.get(node, watch=once)[0] == b"0"
    adding.join(SECONDS)
    assert [request.name for request in seen.requests() if request.name in ("addWatch", "getData")] == ["addWatch", "getData"]
    assert tree.has_watch(node, WatcherType.DATA), "the one that stays tells of the same"
    other.set(node, b"1")
    assert once.wait(SECONDS) is not None
    assert not tree.has_watch(node, WatcherType.DATA)
    other.set(node, b"2")
    until(lambda: len(staying) == 2)


def test_a_watch_that_stays_is_asked_for_behind_the_answer_of_one_that_fires_once(dial: Any, node: str, faults: Faults, seen: Any) -> None:
    tree, other = dial().tree(), dial().tree()
    once = tree.watch()
    faults.delay("getChildren2", 0.3)
    listing = tree.children_async(node, watch=once)
    tree.add_watch(node, lambda _: None, recursive=True)
    assert listing.result(SECONDS)[0] == []
    names = [request.name for request in seen.requests()]
    assert names[names.index("addWatch") + 1] == "setWatches", "the list's watch is set again behind the one that replaces it"
    other.create(f"{node}/below")
    assert once.wait(SECONDS) is not None


def test_a_call_that_waits_for_another_watch_of_its_node_keeps_its_time(dial: Any, node: str, faults: Faults) -> None:
    tree = dial().tree()
    faults.delay("addWatch", 1.0)
    adding = in_thread(tree.add_watch, node, lambda _: None)
    until(lambda: bool(tree.link.events._setting))
    with pytest.raises(TimedOut):
        tree.get(node, watch=tree.watch(), timeout=0.05)
    adding.join(SECONDS)


def test_a_call_that_waits_for_another_watch_of_its_node_is_woken_by_that_ones_answer(dial: Any, node: str, faults: Faults) -> None:
    tree = dial().tree()
    faults.delay("addWatch", 0.3)
    adding = in_thread(tree.add_watch, node, lambda _: None)
    until(lambda: bool(tree.link.events._setting))
    steps = tree.link.events.setting(Watching(DATA, node, print), soon())
    event, _ = next(steps)
    assert not event.done
    adding.join(SECONDS)
    until(lambda: event.done)
    with pytest.raises(StopIteration):
        steps.send(True)


def test_a_call_that_waits_for_a_watch_whose_request_was_never_sent_is_woken_when_that_is_let_go_of(dial: Any, node: str) -> None:
    """As where a signal handler raises between the two."""
    events = dial().tree().link.events
    unsent = Watching(PERSISTENT, node, print)
    assert list(events.setting(unsent, soon())) == []
    steps = events.setting(Watching(DATA, node, print), soon())
    event, _ = next(steps)
    del unsent
    until(lambda: event.done)
    with pytest.raises(StopIteration):
        steps.send(True)


def test_the_watch_of_a_list_is_set_again_behind_the_recursive_one_of_its_node() -> None:
    table = WatchTable()
    for kind, path in ((CHILD, "/a"), (CHILD, "/b"), (RECURSIVE, "/b"), (PERSISTENT, "/c"), (RECURSIVE, "/c")):
        table.add(kind, path, print)
    first, listed, both = table.rearm(7)
    assert (first.child_watches, first.relative_zxid) == (("/a",), 7)
    assert (listed.child_watches, listed.relative_zxid) == (("/b",), 7)
    assert (both.child_watches, both.relative_zxid) == (("/c",), ZXID_AFTER_ALL), "one that stays is not told what happened meanwhile"
