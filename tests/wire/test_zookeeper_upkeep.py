"""What our ZooKeeper client sends without being asked: pings, the next server's handshake, watches and identities given again."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import wireproto
from patience import KEPT
from wireproto.devbroker import DevBroker, Faults
from wireproto.zookeeper.codes import EventType
from wireproto.zookeeper.session import SessionEvent, State
from wireproto.zookeeper.watch import PACKET

PROTOCOL, SECONDS = "zookeeper", 20.0
CLIENT = {"timeout": SECONDS}


@pytest.fixture
def node(broker: DevBroker) -> str:
    with wireproto.connect(broker.url("zookeeper")) as client:
        return str(client.tree().create(f"/n-{time.monotonic_ns()}", b"0"))


def waiter(tree: Any) -> Callable[[State], bool]:
    """A function that waits until the session has come to a state behind that of now."""
    states: list[State] = []
    news = threading.Condition()

    def note(event: SessionEvent) -> None:
        with news:
            states.append(event.state)
            news.notify_all()

    def wait(state: State) -> bool:
        with news:
            return news.wait_for(lambda: state in states[1:], SECONDS)

    tree.on_state(note)
    return wait


def test_an_idle_session_keeps_its_connection_by_pings(dial: Any, seen: Any) -> None:
    tree = dial(session_timeout=4.5).tree()
    conn = tree._link.current
    pings = seen.wait("ping", 9, timeout=SECONDS)  # beyond the session's time-out
    assert {ping.connection for ping in pings} == {0}
    assert tree._link.current is conn
    assert len(seen.requests("createSession")) == 1
    assert pings[8].at - pings[0].at >= 8 * 0.75 - 1.0, "a sixth of the time-out lies between them"


def test_a_busy_session_pings_as_well(dial: Any, seen: Any) -> None:
    """A server that answers reads from memory may have lost its quorum; and a write of the client's may hang."""
    tree = dial(session_timeout=12.0).tree()  # what a busy machine takes from it is no reason to come anew
    enough = threading.Event()

    def be_busy() -> None:
        while not enough.is_set():
            tree.exists("/")
            enough.wait(0.005)  # hundreds of times between two pings, and no processor is kept busy

    thread = threading.Thread(target=be_busy)
    thread.start()
    try:
        seen.wait("ping", 2, timeout=SECONDS)
    finally:
        enough.set()
        thread.join(SECONDS)
    assert len(seen.requests("createSession")) == 1


def test_a_server_that_falls_silent_is_left_in_time(dial: Any, faults: Faults, node: str, seen: Any) -> None:
    tree = dial(session_timeout=12.0).tree()  # of which a busy machine may take some seconds
    session = tree.session
    connected = seen.replies("createSession")[0].at
    seen.clear()
    wait = waiter(tree)
    faults.stall("ping")
    (again,) = seen.wait("createSession", 1, timeout=SECONDS)
    heard = max([connected, *(reply.at for reply in seen.replies() if reply.at < again.at)])
    assert 8.0 <= again.at - heard < 12.0, "after two thirds of the time-out: else the session is over before another server is reached"
    assert wait(State.CONNECTED)
    assert tree.session == session
    assert tree.get(node)[0] == b"0"


@pytest.mark.parametrize(
    ("accepts", "session", "share"), [(True, 3.0, 1.5), (False, 1.2, 1.0)], ids=["accepts and says nothing", "does not accept"]
)
def test_a_silent_server_does_not_eat_the_others_time(broker: DevBroker, dial: Any, accepts: bool, session: float, share: float) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=8 if accepts else 0) as silent:
        fillers = [socket.socket() for _ in range(0 if accepts else 3)]
        for filler in fillers:  # its queue is full: further attempts are not answered
            filler.setblocking(False)
            filler.connect_ex(silent.getsockname())
        url = f"zookeeper://127.0.0.1:{silent.getsockname()[1]},{broker.address('zookeeper')}"
        begin = time.monotonic()
        dial(url, shuffle=False, session_timeout=session, timeout=20.0, connect_timeout=10.0)
        took = time.monotonic() - begin
        assert share <= took < share + KEPT, "each server has its share of the session's time, and a second at least"
        for filler in fillers:
            filler.close()


def test_every_watch_is_set_again_in_packets_that_servers_take(broker: DevBroker, dial: Any, node: str, seen: Any) -> None:
    tree = dial().tree()
    names = [f"{node}/{'long' * 25}-{number:05d}" for number in range(2500)]
    for call in [tree.create_async(name) for name in names]:
        call.result(SECONDS)
    fired: list[str] = []
    everything = threading.Event()

    def note(event: Any) -> None:
        fired.append(event.path)
        if len(fired) == len(names):
            everything.set()

    for call in [tree.get_async(name, watch=note) for name in names]:
        call.result(SECONDS)
    wait = waiter(tree)
    seen.clear()
    broker.kick("zookeeper")
    assert wait(State.CONNECTED)
    packets = seen.requests("setWatches")
    assert len(packets) == 3
    assert all(len(packet.frame) <= PACKET + 64 for packet in packets)
    assert sorted(itertools.chain.from_iterable(packet.message.data_watches for packet in packets)) == names
    for call in [tree.set_async(name, b"x") for name in names]:
        call.result(SECONDS)
    assert everything.wait(SECONDS), f"{len(fired)} of {len(names)}"
    assert sorted(fired) == names


def test_a_watch_on_a_missing_node_is_set_again_as_one(broker: DevBroker, dial: Any, node: str, seen: Any) -> None:
    tree = dial().tree()
    missing, there = tree.watch(), tree.watch()
    assert tree.exists(f"{node}/new", watch=missing) is None
    assert tree.exists(node, watch=there) is not None
    wait = waiter(tree)
    seen.clear()
    broker.kick("zookeeper")
    assert wait(State.CONNECTED)
    (packet,) = seen.requests("setWatches")
    assert (packet.message.exist_watches, packet.message.data_watches) == ((f"{node}/new",), (node,))
    assert not missing.fired
    tree.create(f"{node}/new")
    assert missing.wait(SECONDS).type is EventType.NODE_CREATED
    assert not there.fired


def test_identities_are_given_first_on_every_connection(broker: DevBroker, dial: Any, node: str, seen: Any) -> None:
    tree = dial(user="ann", password="secret").tree()
    tree.add_auth("digest", "bob:x")
    kept = tree.watch()
    tree.get(node, watch=kept)
    wait = waiter(tree)
    broker.kick("zookeeper")
    assert wait(State.CONNECTED)
    tree.get(node)
    first, second = ([request for request in seen.requests() if request.connection == number] for number in (0, 1))
    assert [request.name for request in first][:2] == ["createSession", "auth"]
    assert (first[1].message.scheme, bytes(first[1].message.auth)) == ("digest", b"ann:secret")
    assert [request.name for request in second][:4] == ["createSession", "auth", "auth", "setWatches"]
    assert [bytes(request.message.auth) for request in second[1:3]] == [b"ann:secret", b"bob:x"]
