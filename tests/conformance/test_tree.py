"""ZooKeeper's tree: what nodes do, watches, and their survival of a new connection."""

from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from conformance.helpers import eventually
from conformance.seats import Seat
from wireproto.errors import BrokerError, Disconnected

pytestmark = pytest.mark.only("zookeeper")


@pytest.fixture
def tree(client: Any) -> Any:
    return client.tree()


@pytest.fixture
def root(tree: Any, request: pytest.FixtureRequest) -> Any:
    path = tree.create(f"/tree-{os.getpid()}-", sequence=True)
    yield path
    tree.delete(path, recursive=True)


def test_nodes_come_change_and_go(tree: Any, root: str) -> None:
    data = bytes(range(256))
    assert tree.create(f"{root}/a", data) == f"{root}/a"
    got, stat = tree.get(f"{root}/a")
    assert bytes(got) == data
    assert stat.version == 0
    assert tree.set(f"{root}/a", b"", version=0).version == 1
    assert bytes(tree.get(f"{root}/a")[0]) == b""
    with pytest.raises(BrokerError):
        tree.set(f"{root}/a", b"x", version=0)
    with pytest.raises(BrokerError):
        tree.create(f"{root}/a")
    tree.create(f"{root}/b/c/d", b"deep", parents=True)
    assert sorted(tree.children(root)[0]) == ["a", "b"]
    assert tree.exists(f"{root}/none") is None
    with pytest.raises(BrokerError):
        tree.delete(f"{root}/b")
    tree.delete(f"{root}/b", recursive=True)
    tree.delete(f"{root}/a", version=1)
    assert tree.children(root)[0] == []
    with pytest.raises(BrokerError) as caught:
        tree.get(f"{root}/a")
    assert caught.value.code == -101


def test_sequence_numbers_grow(tree: Any, root: str) -> None:
    made = [tree.create(f"{root}/n-", sequence=True) for _ in range(3)]
    assert made == [f"{root}/n-{number:010d}" for number in range(3)]


def test_ephemerals_go_with_their_session(dial: Any, tree: Any, root: str) -> None:
    other = dial()
    other.tree().create(f"{root}/e", b"", ephemeral=True)
    tree.catch_up(root)  # our server may be behind the one that took the node
    assert tree.exists(f"{root}/e") is not None
    other.close(10.0)
    eventually(lambda: tree.exists(f"{root}/e") is None, "the ephemeral node is gone", 30)


def test_a_watch_fires_once(tree: Any, root: str) -> None:
    fired: list[Any] = []
    first = threading.Event()

    def seen(event: Any) -> None:
        fired.append(event)
        first.set()

    tree.create(f"{root}/w", b"0")
    tree.get(f"{root}/w", watch=seen)
    tree.set(f"{root}/w", b"1")
    eventually(lambda: (tree.exists(root), first.is_set())[1], "the watch")
    tree.set(f"{root}/w", b"2")
    tree.sync(root)
    assert len(fired) == 1


def test_a_watch_can_be_taken_back_as_soon_as_it_is_set(tree: Any, root: str) -> None:
    tree.create(f"{root}/w", b"0")
    for number in range(200):
        told: list[Any] = []
        tree.add_watch(f"{root}/w", told.append)
        tree.remove_watch(f"{root}/w", told.append if number % 2 else None)
        assert not tree.has_watch(f"{root}/w")
    with pytest.raises(BrokerError):
        tree.remove_watch(f"{root}/w")


def test_a_watch_survives_a_new_connection(seat: Seat, dial: Any, tree: Any, root: str, fault_proxy: Any) -> None:
    url, options = seat.through(fault_proxy)
    watcher = dial(url, **options).tree()
    fired = threading.Event()
    tree.create(f"{root}/w", b"0")
    watcher.catch_up(root)  # its server may be behind ours
    watcher.get(f"{root}/w", watch=lambda _event: fired.set())
    fault_proxy.cut()
    tree.set(f"{root}/w", b"1")
    eventually(lambda: (watcher.exists(root), fired.is_set())[1], "the watch, after a reconnect", 60)


def test_the_session_and_its_nodes_outlive_a_lost_connection(seat: Seat, dial: Any, tree: Any, root: str, fault_proxy: Any) -> None:
    url, options = seat.through(fault_proxy)
    other = dial(url, **options).tree()
    other.create(f"{root}/e", b"kept", ephemeral=True)
    fault_proxy.cut()
    assert bytes(other.get(f"{root}/e")[0]) == b"kept"


def test_an_outage_of_the_leader_is_survived(seat: Seat, tree: Any, root: str) -> None:
    tree.create(f"{root}/a", b"1")
    written = b"1"
    with seat.away():
        if seat.place.broker_name.endswith("-ensemble"):
            for _ in range(10):  # a write in flight on a lost connection is reported, not repeated
                try:
                    tree.set(f"{root}/a", b"2", timeout=60.0)
                except Disconnected:
                    continue
                written = b"2"
                break
            assert written == b"2"
    assert bytes(tree.get(f"{root}/a", timeout=60.0)[0]) == written
