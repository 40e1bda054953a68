"""Bad weather on real ZooKeeper servers: processes that are stopped, members without a quorum, closed parents, logs being written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import wireproto
from brokers import ZooKeeper
from brokers.proxy import FaultProxy
from patience import LONG
from wireproto.errors import AuthError, Truncated
from wireproto.zookeeper import acl as access
from wireproto.zookeeper.codes import NotReadOnly, SessionExpired
from wireproto.zookeeper.files import read_log
from wireproto.zookeeper.messages import ACL
from wireproto.zookeeper.session import SessionEvent, State

SECONDS = 30.0
ONE = pytest.mark.parametrize("broker", ["zookeeper-3.9.5"], indirect=True)


@pytest.fixture
def dial(broker: ZooKeeper) -> Iterator[Callable[..., Any]]:
    opened: list[Any] = []

    def make(url: str = "", **options: Any) -> Any:
        opened.append(wireproto.connect(url or broker.url, **{"timeout": SECONDS} | options))
        return opened[-1]

    yield make
    for client in opened:
        client.close(5.0)


@pytest.fixture
def node(dial: Any) -> Iterator[str]:
    tree = dial().tree()
    path = tree.create(f"/w-{time.monotonic_ns()}", b"0")
    yield path
    tree.add_auth("digest", "super:test")
    tree.delete(path, recursive=True)


class Told:
    """What a tree's listener is told."""

    def __init__(self, tree: Any) -> None:
        self.events: list[SessionEvent] = []
        self._news = threading.Condition()
        tree.on_state(self._note)

    def _note(self, event: SessionEvent) -> None:
        with self._news:
            self.events.append(event)
            self._news.notify_all()

    def wait(self, *states: State) -> None:
        """Until these are the last."""
        with self._news:
            there = lambda: [event.state for event in self.events[-len(states) :]] == list(states)  # noqa: E731
            assert self._news.wait_for(there, SECONDS), self.events


HOLDER = """
    import sys, time, wireproto
    from wireproto.zookeeper.session import State
    client = wireproto.connect(sys.argv[1], session_timeout=2.0)
    tree = client.tree()
    scope = tree.session_scope()
    scope.create(sys.argv[2] + "/lock", ephemeral=True)
    states = []
    tree.on_state(lambda event: states.append(event.state.value))
    last = time.monotonic()
    print("held", flush=True)
    while True:
        woke = time.monotonic() - last > 1.5
        last = time.monotonic()
        state, safe = scope.state, scope.safe_for()
        try:
            scope.set(sys.argv[2], b"holder")
        except Exception as why:
            outcome = type(why).__name__
        else:
            outcome = "written"
        if woke:
            print(state.value, safe, outcome, flush=True)
            break
    while "expired" not in states:
        time.sleep(0.01)
    print(*states, flush=True)
    try:
        scope.set(sys.argv[2], b"holder")
    except Exception as why:
        print(type(why).__name__, scope.state.value, scope.safe_for(), flush=True)
"""


@ONE
def test_a_process_that_was_stopped_knows_that_its_session_may_be_gone_before_it_writes(broker: ZooKeeper, dial: Any, node: str) -> None:
    tree = dial().tree()
    code = [sys.executable, "-c", textwrap.dedent(HOLDER), broker.url, node]
    with subprocess.Popen(code, stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            gone = tree.watch()
            assert tree.exists(f"{node}/lock", watch=gone) is not None
            os.kill(holder.pid, signal.SIGSTOP)
            assert gone.wait(SECONDS) is not None
            tree.set(node, b"the next holder")
            os.kill(holder.pid, signal.SIGCONT)
            state, safe, outcome = holder.stdout.readline().split()
            assert float(safe) == 0.0
            # a server may have answered before this thread of the holder went on: then it is known that the session is gone
            assert (state, outcome) in [("lost", "ConnectionLoss"), ("lost", "SessionExpired"), ("expired", "SessionExpired")]
            told = holder.stdout.readline().split()
            assert told[0] == "connected"
            assert told.index("lost") < told.index("expired")
            assert holder.stdout.readline() == "SessionExpired expired 0.0\n"
            assert tree.get(node)[0] == b"the next holder"
        finally:
            holder.kill()


@ONE
@pytest.mark.parametrize("wrong", ["ended", "password"])
def test_a_session_that_cannot_be_gone_on_with_is_no_other_one(dial: Any, wrong: str) -> None:
    first = dial()
    number, password = first.tree().session
    if wrong == "ended":
        first.close()
    with pytest.raises(SessionExpired):
        dial(session=(number, password if wrong == "ended" else bytes(16)))


@ONE
@pytest.mark.parametrize("call", ["ensure", "create"])
def test_nodes_are_made_below_one_that_may_not_be_read(dial: Any, node: str, call: str) -> None:
    owner, tree = dial(user="ann", password="secret").tree(), dial().tree()
    mine = access.digest_acl("ann", "secret")
    closed = owner.create(f"{node}/closed", acl=[mine, ACL(perms=4 + 8, id=access.ANYONE)])
    open_to_all = [ACL(perms=31, id=access.ANYONE)]
    if call == "ensure":
        assert tree.ensure(closed) is False
        assert tree.ensure(f"{closed}/a/b", acl=open_to_all) is True
    else:
        assert tree.create(f"{closed}/a/b", acl=open_to_all, parents=True) == f"{closed}/a/b"
    assert owner.exists(f"{closed}/a/b") is not None


@ONE
def test_a_log_is_read_while_its_server_writes_it(broker: ZooKeeper, dial: Any, node: str) -> None:
    """What is not whole yet is Truncated and nothing else, and reading goes on from there."""
    tree, over = dial().tree(), threading.Event()

    def write() -> None:
        number = 0
        while not over.is_set():
            for call in [tree.set_async(node, b"%d" % (number + place) * 300) for place in range(50)]:
                call.result(SECONDS)
            number += 50

    thread = threading.Thread(target=write)
    thread.start()
    try:
        logs = sorted((broker.folder / "node-0" / "data" / "version-2").glob("log.*"), key=lambda path: int(path.suffix[1:], 16))
        place, zxids, unfinished, begin = 0, [], 0, time.monotonic()
        while time.monotonic() - begin < 3.0 or len(zxids) <= 100:
            assert time.monotonic() - begin < LONG, f"{len(zxids)} entries, {unfinished} of which were not whole when they were met"
            try:
                for entry in read_log(logs[-1], start=place):
                    place = entry.end
                    zxids.append(entry.header.zxid)
            except Truncated:
                unfinished += 1
    finally:
        over.set()
        thread.join(SECONDS)
    assert zxids == list(range(zxids[0], zxids[0] + len(zxids)))


@pytest.fixture(scope="module")
def identified() -> Iterator[ZooKeeper]:
    """A server that serves nobody without an identity, pings included."""
    with ZooKeeper(settings={"enforce.auth.enabled": "true", "enforce.auth.schemes": "digest"}) as made:
        yield made


@pytest.mark.parametrize("silent", [False, True])
def test_a_server_that_wants_an_identity_is_given_up(identified: ZooKeeper, silent: bool) -> None:
    """It hangs up behind what it answers: each next connection would end so, too."""
    with wireproto.connect(identified.url, timeout=SECONDS, session_timeout=2.0) as client:
        tree = client.tree()
        told = Told(tree)
        if not silent:
            with pytest.raises(AuthError, match="SESSIONCLOSEDREQUIRESASLAUTH"):
                tree.get("/")
        told.wait(State.AUTH_FAILED)
        assert [event.state for event in told.events] in (
            [State.CONNECTED, State.AUTH_FAILED],
            [State.CONNECTED, State.SUSPENDED, State.AUTH_FAILED],
        )
        with pytest.raises(AuthError, match="SESSIONCLOSEDREQUIRESASLAUTH"):
            tree.get("/")


def test_a_server_that_wants_an_identity_serves_who_has_one_after_a_lost_connection_too(identified: ZooKeeper) -> None:
    with FaultProxy() as proxy, wireproto.connect(proxy.url(identified.url), user="ann", password="x", session_timeout=2.0) as client:
        tree = client.tree()
        told = Told(tree)
        assert tree.exists("/") is not None
        proxy.cut()
        told.wait(State.SUSPENDED, State.CONNECTED)
        assert tree.exists("/") is not None


@pytest.fixture(scope="module")
def members() -> Iterator[ZooKeeper]:
    """Members that serve sessions of their own when they have no quorum."""
    with ZooKeeper(nodes=3, settings={"localSessionsEnabled": "true", "localSessionsUpgradingEnabled": "true"}) as made:
        yield made


def test_a_client_of_a_member_without_a_quorum_comes_back_to_one_with_it(members: ZooKeeper) -> None:
    alone = members.addresses[0]
    with wireproto.connect(members.url, timeout=SECONDS) as writer:
        writer.tree().create("/n", b"0")
        writer.tree().catch_up("/n")
    for number in (1, 2):
        members.kill(number)
    deadline = time.monotonic() + SECONDS
    while True:  # it takes a while until the member knows
        try:
            client = wireproto.connect(f"zookeeper://{alone}", read_only=True, timeout=5.0, session_timeout=20.0)
            break
        except wireproto.WireprotoError:
            if time.monotonic() > deadline:
                raise
    with client:
        tree = client.tree()
        told = Told(tree)
        told.wait(State.CONNECTED_READ_ONLY)
        watch = tree.watch()
        assert tree.get("/n", watch=watch)[0] == b"0"
        with pytest.raises(NotReadOnly):
            tree.set("/n", b"1")
        for number in (1, 2):
            members.start(number)
        told.wait(State.CONNECTED)
        assert State.EXPIRED not in [event.state for event in told.events]
        assert tree.set("/n", b"1").version == 1
        assert watch.wait(SECONDS) is not None
