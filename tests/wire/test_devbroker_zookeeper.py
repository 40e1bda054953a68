"""The embedded ZooKeeper where access is limited: who may read, what access lists there are, what it takes to be served at all.

What is here was seen on ZooKeeper 3.9.5; tests/integration/test_zookeeper_alike.py compares the two call by call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import wireproto
from wireproto.devbroker import DevBroker
from wireproto.errors import AuthError, BrokerError, TransportError
from wireproto.zookeeper.acl import CREATOR_ALL, digest_acl
from wireproto.zookeeper.codes import BadArguments, InvalidAcl, NoAuth, NotReadOnly, Unimplemented, WatcherType
from wireproto.zookeeper.messages import ACL, CreateRequest, ExistsRequest, Id
from wireproto.zookeeper.session import State

SECONDS = 20.0
ANYONE = Id(scheme="world", id="anyone")


@pytest.fixture
def broker() -> Iterator[DevBroker]:
    with DevBroker(["zookeeper"]) as made:
        yield made


@pytest.fixture
def dial(broker: DevBroker) -> Iterator[Callable[..., Any]]:
    opened: list[Any] = []

    def make(**options: Any) -> Any:
        opened.append(wireproto.connect(broker.url("zookeeper"), **{"timeout": SECONDS} | options))
        return opened[-1]

    yield make
    for client in opened:
        client.close(5.0)


def test_what_may_not_be_read_is_not_shown(dial: Any) -> None:
    ann, tree = dial(user="ann", password="secret").tree(), dial().tree()
    ann.create("/hers", b"secret", acl=CREATOR_ALL)
    for call in (tree.get, tree.exists, tree.children, tree.get_acl):
        with pytest.raises(NoAuth):
            call("/hers")
    ann.set_acl("/hers", [digest_acl("ann", "secret"), ACL(perms=1, id=ANYONE)])
    assert [item.id.id for item in tree.get_acl("/hers")[0]] == ["ann:x", "anyone"]
    assert [item.id.id for item in ann.get_acl("/hers")[0]] == [digest_acl("ann", "secret").id.id, "anyone"]


def test_who_may_not_read_a_node_is_not_told_of_it_and_its_watch_is_gone(dial: Any) -> None:
    ann, tree = dial(user="ann", password="secret").tree(), dial().tree()
    ann.create("/hers", b"0")
    watch, stays = tree.watch(), tree.watch()
    tree.get("/hers", watch=watch)
    other = dial().tree()
    other.add_watch("/hers", stays)
    ann.set_acl("/hers", CREATOR_ALL)
    ann.set("/hers", b"1")
    for one in (tree, other):
        one.exists("/")
    assert not watch.fired
    assert not stays.fired
    assert not tree.has_watch("/hers", WatcherType.DATA)
    ann.set_acl("/hers", [ACL(perms=31, id=ANYONE)])
    ann.set("/hers", b"2")
    for one in (tree, other):
        one.exists("/")
    assert not watch.fired
    assert stays.fired


@pytest.mark.parametrize(
    ("scheme", "name"),
    [
        ("ip", "300.1"),
        ("ip", "1.2.3.4/33"),
        ("sasl", "ann"),
        ("x509", "CN=a"),
        ("super", ""),
        ("digest", "ann"),
        ("digest", "a:b:c"),
        ("auth", ""),
    ],
)
def test_access_lists_that_a_server_does_not_take(dial: Any, scheme: str, name: str) -> None:
    tree = dial().tree()
    tree.create("/n")
    acl = [ACL(perms=31, id=Id(scheme=scheme, id=name))]
    for call in (lambda: tree.create("/a", acl=acl), lambda: tree.set_acl("/n", acl)):
        with pytest.raises(InvalidAcl):
            call()


def test_the_servers_own_nodes_stay(dial: Any) -> None:
    tree = dial().tree()
    for path in ("/zookeeper", "/zookeeper/quota", "/zookeeper/config"):
        with pytest.raises(BadArguments):
            tree.delete(path)


def test_limits_that_would_not_be_kept_are_refused(dial: Any) -> None:
    tree = dial().tree()
    with pytest.raises(Unimplemented):
        tree.create("/zookeeper/quota/a")
    assert tree.exists("/zookeeper/quota") is not None


def test_names_beyond_the_first_plane_are_no_names_there(dial: Any) -> None:
    client = dial()
    with pytest.raises(BadArguments):
        client.request(CreateRequest(path="/\U0001f600", data=b"", acl=(ACL(perms=31, id=ANYONE),), flags=0))
    with pytest.raises(BrokerError, match="NONODE"):
        client.request(ExistsRequest(path="/\U0001f600", watch=False))


def test_a_server_that_wants_an_identity_serves_nobody_without(broker: DevBroker, dial: Any) -> None:
    broker.call("zookeeper", "restrict", wants_identity=True)
    with pytest.raises(AuthError, match="SESSIONCLOSEDREQUIRESASLAUTH"):
        dial().tree().exists("/")
    assert dial(user="ann", password="secret").tree().exists("/") is not None


class Told:
    """What a tree's listener is told."""

    def __init__(self, tree: Any) -> None:
        self.states: list[State] = []
        self.ids: list[int] = []
        self._news = threading.Condition()
        tree.on_state(self._note)

    def _note(self, event: Any) -> None:
        with self._news:
            self.states.append(event.state)
            self.ids.append(event.session_id)
            self._news.notify_all()

    def wait(self, *states: State) -> None:
        """Until these are the last."""
        with self._news:
            assert self._news.wait_for(lambda: self.states[-len(states) :] == list(states), SECONDS), self.states


def test_a_client_that_has_seen_no_quorum_finds_it_without_losing_anything(broker: DevBroker, dial: Any) -> None:
    dial().tree().create("/n", b"0")
    broker.call("zookeeper", "restrict", read_only=True)
    with pytest.raises((TransportError, BrokerError)):
        dial(connect_timeout=0.5)
    tree = dial(read_only=True).tree()
    told = Told(tree)
    told.wait(State.CONNECTED_READ_ONLY)
    assert tree.state is State.CONNECTED_READ_ONLY
    watch = tree.watch()
    assert tree.get("/n", watch=watch)[0] == b"0"
    with pytest.raises(NotReadOnly):
        tree.set("/n", b"1")
    broker.call("zookeeper", "restrict", read_only=False)
    told.wait(State.CONNECTED)
    assert State.EXPIRED not in told.states
    assert told.ids[-1] != told.ids[0]
    assert tree.set("/n", b"1").version == 1
    assert watch.wait(SECONDS) is not None


def test_a_server_with_a_quorum_is_looked_for_while_another_one_serves(broker: DevBroker) -> None:
    """The connection to the one without stays until there is a better one."""
    with DevBroker(["zookeeper"]) as other:
        other.call("zookeeper", "restrict", read_only=True)
        broker.pause("zookeeper")
        url = f"zookeeper://{other.address('zookeeper')},{broker.address('zookeeper')}"
        with wireproto.connect(url, read_only=True, shuffle=False, timeout=SECONDS) as client:
            tree = client.tree()
            told = Told(tree)
            conn = tree._link.current
            watch = tree.watch()
            tree.exists("/later", watch=watch)
            seen = other.record("zookeeper")
            seen.wait("createSession", 2, timeout=SECONDS)  # it looks, also at this one, again and again
            assert tree._link.current is conn
            assert told.states == [State.CONNECTED_READ_ONLY]
            broker.resume("zookeeper")
            told.wait(State.CONNECTED_READ_ONLY, State.CONNECTED)
            assert conn.closed
            assert tree.create("/later") == "/later"
            assert watch.wait(SECONDS) is not None
