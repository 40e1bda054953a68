"""Several watches of one node on real servers: those from 3.9 keep them apart, those before keep the last one's mode alone."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import wireproto
from brokers import ZooKeeper
from patience import until
from wireproto.zookeeper.session import State

BOTH = pytest.mark.parametrize("broker", ["zookeeper-3.8.6", "zookeeper-3.9.5"], indirect=True)
SECONDS = 20.0
STAY = ("persistent", "recursive")
KINDS = ("get", "exists", "children", *STAY)
TOGETHER = [*itertools.permutations(KINDS, 2), *itertools.permutations(("children", *STAY)), *itertools.permutations(("get", *STAY))]
HAPPENS = [("create", "/a"), ("set", ""), ("set", ""), ("create", "/b"), ("set", "/a")]
TOLD: dict[str, list[tuple[int, str]]] = {
    "get": [(3, "")],
    "exists": [(3, "")],
    "children": [(4, "")],
    "persistent": [(4, ""), (3, ""), (3, ""), (4, "")],
    "recursive": [(1, "/a"), (3, ""), (3, ""), (1, "/b"), (3, "/a")],
}


@pytest.fixture
def clients(broker: ZooKeeper, fault_proxy: Any) -> Iterator[tuple[Any, Any]]:
    """One whose connection can be cut, and another one."""
    with (
        wireproto.connect(fault_proxy.url(broker.url), address_map=fault_proxy.address_map(broker.addresses)) as cut,
        wireproto.connect(broker.url) as other,
    ):
        yield cut, other


class Node:
    """A node with watches, and what each is told."""

    def __init__(self, tree: Any, other: Any, kinds: tuple[str, ...]) -> None:
        self._tree, self._other, self.kinds = tree, other, kinds
        self.path = other.create("/m-", sequence=True)
        self.told: dict[str, list[tuple[int, str]]] = {}
        self._callbacks: dict[str, Callable[[Any], Any]] = {}
        for kind in kinds:
            self.watch(kind)

    def watch(self, kind: str) -> None:
        told: list[tuple[int, str]] = []
        self.told[kind] = told
        note = self._callbacks[kind] = lambda event: told.append((int(event.type), event.path[len(self.path) :]))
        if kind in STAY:
            self._tree.add_watch(self.path, note, recursive=kind == "recursive")
        else:
            getattr(self._tree, kind)(self.path, watch=note)

    def remove(self, kind: str) -> None:
        self._tree.remove_watch(self.path, self._callbacks[kind])

    def happens(self) -> None:
        for call, below in HAPPENS:
            getattr(self._other, call)(self.path + below, b"x")

    def wrong(self, twice: bool = False) -> str:
        """What is not as it is to be; `twice`: a change of the children may be told more than once, or two of them once."""
        found: dict[str, Any] = {}
        for kind, told in self.told.items():
            expected = TOLD[kind]
            if twice and kind == "persistent":
                assert told.count((4, "")) >= 2, self.kinds
                told, expected = [event for event in told if event[0] != 4], [event for event in expected if event[0] != 4]
            if told != expected:
                found[kind] = told
        return f"{self.kinds}: {found}" if found else ""


def settled(tree: Any, other: Any) -> None:
    """Until the callbacks of everything that has happened have run: they run in order."""
    over = threading.Event()
    path = other.create("/o-", sequence=True)
    tree.get(path, watch=lambda _: over.set())
    other.set(path, b"")
    assert over.wait(SECONDS)


def judged(nodes: list[Node], broker: ZooKeeper) -> list[str]:
    old = broker.version < "3.9"
    return [said for node in nodes if (said := node.wrong(twice=old and {*STAY} <= {*node.told}))]


@BOTH
def test_watches_of_one_node_do_not_take_each_other_away(broker: ZooKeeper, clients: Any) -> None:
    tree, other = (client.tree() for client in clients)
    nodes = [Node(tree, other, kinds) for kinds in TOGETHER]
    for node in nodes:
        node.happens()
    settled(tree, other)
    assert judged(nodes, broker) == []
    for node in nodes:  # those that have fired are set again beside those that stay
        other.delete(f"{node.path}/a")
        other.delete(f"{node.path}/b")
    settled(tree, other)
    for node in nodes:
        for kind, told in node.told.items():
            told.clear()
            if kind not in STAY:
                node.watch(kind)
        node.happens()
    settled(tree, other)
    assert judged(nodes, broker) == []


@BOTH
def test_watches_of_one_node_are_all_set_again_on_the_next_connection(broker: ZooKeeper, clients: Any, fault_proxy: Any) -> None:
    tree, other = (client.tree() for client in clients)
    nodes = [Node(tree, other, kinds) for kinds in TOGETHER]
    states: list[State] = []
    tree.on_state(lambda event: states.append(event.state))
    fault_proxy.cut()
    until(lambda: states[-2:] == [State.SUSPENDED, State.CONNECTED])
    for node in nodes:
        node.happens()
    settled(tree, other)
    assert judged(nodes, broker) == []


@BOTH
def test_a_watch_that_is_taken_back_leaves_the_others_of_its_node(broker: ZooKeeper, clients: Any) -> None:
    tree, other = (client.tree() for client in clients)
    nodes = [(Node(tree, other, kinds), kind) for kinds in TOGETHER for kind in kinds if kind in STAY]
    for node, kind in nodes:
        node.remove(kind)
        del node.told[kind]
        node.happens()
    settled(tree, other)
    assert judged([node for node, _ in nodes], broker) == []


@BOTH
def test_a_worker_that_waits_hears_of_messages_beside_a_watch_of_its_list(broker: ZooKeeper, clients: Any) -> None:
    client, other = clients
    topic = f"jobs-{time.monotonic_ns()}"
    other.admin().create_topic(topic)
    worker = client.queue(topic)
    assert worker.receive(0.0) is None
    seen: list[Any] = []
    client.tree().add_watch(f"/{topic}/entries", seen.append, recursive=True)
    with other.producer(topic) as producer:
        for number in range(3):
            received: list[Any] = []
            waiting = threading.Thread(target=lambda got=received: got.append(worker.receive(SECONDS)))
            waiting.start()
            producer.send(b"%d" % number)
            producer.flush(SECONDS)
            waiting.join(SECONDS)
            assert [job.value for job in received] == [b"%d" % number]
            received[0].ack()
    until(lambda: len(seen) >= 6)  # each is created and deleted
