"""How the ZooKeeper client's session ends, is thought lost, is gone on with and is made: states, identities, `ensure`."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import wireproto
import wireproto.aio
from brokers.proxy import FaultProxy
from patience import KEPT, LONG, until
from wireproto.devbroker import DevBroker, Faults
from wireproto.errors import Closed, TimedOut
from wireproto.zookeeper.codes import AuthFailed, NoNode, NotReadOnly, SessionExpired
from wireproto.zookeeper.errors import ConnectionLoss
from wireproto.zookeeper.session import SessionEvent, State

PROTOCOL = "zookeeper"
SECONDS = 20.0
PAUSE = 0.005
"""Seconds between two looks at what passes by itself: often enough to see it, and no processor is kept busy."""
CLIENT = {"timeout": SECONDS}


@pytest.fixture
def node(broker: DevBroker) -> str:
    with wireproto.connect(broker.url("zookeeper")) as client:
        return str(client.tree().create(f"/n-{time.monotonic_ns()}", b"0"))


class Told:
    """What a tree's listener is told."""

    def __init__(self, tree: Any) -> None:
        self.events: list[tuple[float, SessionEvent]] = []
        self._news = threading.Condition()
        tree.on_state(self._note)

    def _note(self, event: SessionEvent) -> None:
        with self._news:
            self.events.append((time.monotonic(), event))
            self._news.notify_all()

    @property
    def states(self) -> list[State]:
        return [event.state for _, event in self.events]

    def wait(self, *states: State) -> float:
        """Until these are the last; when that was."""
        with self._news:
            assert self._news.wait_for(lambda: self.states[-len(states) :] == list(states), SECONDS), self.states
            return self.events[-1][0]


# -- lost, by this machine's clock ------------------------------------------------------------------------------------------


def test_a_session_is_lost_by_the_clock_before_a_server_can_have_ended_it(broker: DevBroker, dial: Any, node: str, seen: Any) -> None:
    tree = dial(session_timeout=4.0).tree()
    told = Told(tree)
    pings = seen.wait("ping", 2, timeout=SECONDS)
    assert 0.0 < tree.safe_for() <= 3.0
    broker.pause("zookeeper")
    told.wait(State.CONNECTED, State.SUSPENDED)
    assert tree.state is State.SUSPENDED
    assert tree.safe_for() > 0.0
    lost = told.wait(State.SUSPENDED, State.LOST)
    last = max(ping.at for ping in [*pings, *seen.requests("ping")])
    assert lost < last + 3.0 + KEPT
    assert lost >= pings[0].at + 3.0 - 0.1, "three quarters of the time-out behind what was answered last"
    assert (tree.state, tree.safe_for()) == (State.LOST, 0.0)
    broker.resume("zookeeper")  # as behind an election, sessions have their whole time again
    told.wait(State.LOST, State.CONNECTED)
    assert tree.safe_for() > 0.0
    assert {event.session_id for _, event in told.events} == {tree.session[0]}


def test_a_session_that_was_lost_may_be_over(broker: DevBroker, proxy: FaultProxy, dial: Any) -> None:
    tree = dial(proxy.url(broker.url("zookeeper")), session_timeout=1.0).tree()
    told = Told(tree)
    proxy.refuse()
    told.wait(State.SUSPENDED, State.LOST)
    broker.call("zookeeper", "expire", tree.session[0])
    proxy.heal()
    told.wait(State.CONNECTED, State.SUSPENDED, State.LOST, State.EXPIRED, State.CONNECTED)


def test_a_server_that_answers_no_pings_makes_a_session_lost_though_it_answers_others(dial: Any, node: str, faults: Faults) -> None:
    """Bytes flow, so the connection is kept; when the server last heard of this session, nobody knows."""
    tree = dial(session_timeout=4.0).tree()
    told = Told(tree)
    faults.drop("ping", times=4)  # as many as make it lost: with more, answers would be taken for those of pings that are too long ago
    deadline = time.monotonic() + SECONDS
    while State.LOST not in told.states and time.monotonic() < deadline:
        tree.exists(node)
        time.sleep(PAUSE)
    faults.clear()
    told.wait(State.CONNECTED, State.LOST, State.CONNECTED)


def test_a_write_is_not_sent_before_the_state_was_held_against_the_clock(dial: Any, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind a stop of the process: the writing thread may be the first that runs again."""
    for write in ("set", "set_async"):
        tree = dial(session_timeout=30.0).tree()
        told = Told(tree)
        told.wait(State.CONNECTED)
        tree._link.session.answered -= 23.0
        getattr(tree, write)(node, b"1")
        told.wait(State.CONNECTED, State.LOST)


def test_what_is_safe_grows_with_each_answer(dial: Any, seen: Any) -> None:
    tree = dial(session_timeout=4.0).tree()
    begin = time.monotonic()
    ends = [time.monotonic() + tree.safe_for()]
    pings = seen.wait("ping", 4, timeout=SECONDS)
    while ends[-1] < pings[2].at + 3.0 - 0.05 and time.monotonic() < begin + SECONDS:
        ends.append(time.monotonic() + tree.safe_for())
        time.sleep(PAUSE)
    assert ends[0] <= begin + 3.0 + 0.05
    assert ends[-1] >= pings[2].at + 3.0 - 0.05
    assert tree.state is State.CONNECTED


def test_what_is_safe_counts_from_when_the_question_left_and_not_from_its_answer(dial: Any, seen: Any, faults: Faults) -> None:
    tree = dial(session_timeout=3.0).tree()
    faults.delay("ping", 0.4, times=-1)
    seen.wait("ping", 3, timeout=SECONDS)  # so the first is answered, and the handshake is long ago
    over, most = time.monotonic() + 1.5, 0.0
    while time.monotonic() < over:
        most = max(most, tree.safe_for())
        time.sleep(PAUSE)
    assert 0.5 < most < 3.0 * 3 / 4 - 0.35


def test_what_is_safe_runs_out_where_the_leader_does_not_answer_though_its_server_does(dial: Any, faults: Faults) -> None:
    """A follower that is cut off goes on answering pings by itself, and the leader ends the session."""
    faults.drop("sync", times=-1)
    begin = time.monotonic()
    tree = dial(session_timeout=4.0).tree()
    until(lambda: tree.safe_for() == 0.0, limit=SECONDS)
    assert begin + 2.9 < time.monotonic() < begin + 4.0 + KEPT, "the leader knew of it at the handshake"
    assert tree.state is State.CONNECTED
    faults.clear()
    tree._link.current.close("as a server that has noticed")
    until(lambda: tree.safe_for() > 0.0, limit=SECONDS)


def test_what_is_safe_lasts_in_an_idle_tree_as_long_as_somebody_asks(dial: Any, seen: Any) -> None:
    tree = dial(session_timeout=6.0).tree()
    over, least = time.monotonic() + 8.0, tree.safe_for()
    while time.monotonic() < over:
        time.sleep(PAUSE)
        least = min(least, tree.safe_for())
    assert least > 0.0
    (first, *_) = sent = seen.requests("sync")
    assert first.message.path == "/"
    assert len(sent) <= 8.0 * 2 + 2, "one beside each ping"
    asked = len(seen.requests("sync"))
    pings = len(seen.requests("ping"))
    seen.wait("ping", pings + 9, timeout=SECONDS)
    assert len(seen.requests("sync")) <= asked + 7, "for a session's time-out"


def test_nobody_asks_the_leader_for_who_does_not_ask(dial: Any, seen: Any) -> None:
    dial(session_timeout=2.0)
    seen.wait("ping", 4, timeout=SECONDS)
    assert seen.requests("sync") == []


@pytest.mark.parametrize("call", ["set", "create", "catch_up", "sync", "asynchronous steps"])
def test_what_is_safe_rests_on_writes_too(dial: Any, node: str, faults: Faults, call: str) -> None:
    """The broker is in this process, which may get no processor for seconds: only one stop of ten would cost the connection."""
    tree = dial(session_timeout=15.0).tree()
    link = tree._link
    opened = time.monotonic()
    session, conn = link.session, link.current
    calls: dict[str, Callable[[], Any]] = {
        "set": lambda: tree.set(node, b"1"),
        "create": lambda: tree.create(f"{node}/x-", sequence=True),
        "catch_up": lambda: tree.catch_up(node),
        "sync": lambda: tree.sync(node),
        "asynchronous steps": lambda: tree.tasks.drive(tree.stepping.set(node, b"1"), time.monotonic() + SECONDS),
    }
    if call != "sync":
        faults.drop("sync", times=-1)
    told, end = [], 0.0
    while not told or end <= opened + session.timeout:  # until then it is safe by the handshake alone
        assert time.monotonic() < opened + LONG
        (_, pings), left = link._liveness._signs, time.monotonic()
        calls[call]()
        told = [sent for answered, sent in pings if answered <= left - session.delay]
        assert session.known >= max(told, default=0.0), "the leader had been told of that ping, and has answered"
        now, safe = time.monotonic(), tree.safe_for()
        end = now + safe if safe else 0.0
        time.sleep(PAUSE)
    assert link.current is conn, "no other handshake has made it safe"


def test_pings_of_a_long_session_come_every_ten_seconds() -> None:
    from wireproto.zookeeper.session import Session

    assert [Session(timeout).ping_every for timeout in (6.0, 60.0, 600.0, 7200.0)] == [1.0, 10.0, 10.0, 10.0]


# -- the end ----------------------------------------------------------------------------------------------------------------


def test_closing_without_a_connection_ends_the_session_all_the_same(broker: DevBroker, proxy: FaultProxy, dial: Any, node: str) -> None:
    client = dial(proxy.url(broker.url("zookeeper")), session_timeout=30.0)
    other = dial().tree()
    client.tree().create(f"{node}/mine", ephemeral=True)
    told = Told(client.tree())
    gone = other.watch()
    assert other.exists(f"{node}/mine", watch=gone) is not None
    proxy.refuse()
    told.wait(State.SUSPENDED)
    proxy.heal()
    begin = time.monotonic()
    client.close()
    assert gone.wait(SECONDS) is not None
    assert time.monotonic() - begin < KEPT


@pytest.mark.parametrize("face", ["sync", "asyncio"])
def test_a_close_between_two_servers_waits_for_the_next_one(
    broker: DevBroker, proxy: FaultProxy, dial: Any, node: str, caplog: pytest.LogCaptureFixture, face: str
) -> None:
    """Else what the session holds, a lock say, stays held by nobody for its whole time-out."""
    other = dial().tree()
    gone, mine = other.watch(), f"{node}/mine"
    url, refused = proxy.url(broker.url("zookeeper")), "no connection"

    def cut() -> None:
        assert other.exists(mine, watch=gone) is not None
        proxy.refuse()
        healing.start()

    def heal() -> None:
        until(lambda: refused in caplog.text)
        proxy.heal()

    async def closing() -> None:
        client = wireproto.aio.connect(url, session_timeout=30.0)
        await client.tree().create(mine, ephemeral=True)
        cut()
        await asyncio.to_thread(until, lambda: refused in caplog.text)
        await client.close()

    healing = threading.Thread(target=heal)
    if face == "asyncio":
        asyncio.run(closing())
    else:
        client = dial(url, session_timeout=30.0)
        client.tree().create(mine, ephemeral=True)
        cut()
        client.close()
    assert gone.wait(SECONDS) is not None
    healing.join(SECONDS)
    assert "was not closed" not in caplog.text


def test_a_close_whose_server_hangs_up_is_done_by_the_next_one(broker: DevBroker, dial: Any, faults: Faults, node: str) -> None:
    client, other = dial(session_timeout=30.0), dial().tree()
    client.tree().create(f"{node}/mine", ephemeral=True)
    before = faults.seen("closeSession")
    faults.disconnect("closeSession")
    client.close()
    assert other.exists(f"{node}/mine") is None
    assert faults.seen("closeSession") == before + 2


def test_a_close_whose_server_is_silent_is_done_by_the_next_one(broker: DevBroker, dial: Any, faults: Faults, node: str) -> None:
    client, other = dial(session_timeout=30.0), dial().tree()
    client.tree().create(f"{node}/mine", ephemeral=True)
    faults.stall("closeSession")
    begin = time.monotonic()
    client.close()
    assert time.monotonic() - begin < 2.5 + KEPT
    assert other.exists(f"{node}/mine") is None


@pytest.mark.parametrize("how", ["with a thread", "in a listener"])
def test_two_closes_of_one_client_just_after_a_cut_end_its_session(
    broker: DevBroker, proxy: FaultProxy, dial: Any, node: str, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    client, other = dial(proxy.url(broker.url("zookeeper")), session_timeout=30.0), dial().tree()
    gone = other.watch()
    client.tree().create(f"{node}/mine", ephemeral=True)
    assert other.exists(f"{node}/mine", watch=gone) is not None
    closing, done = threading.Event(), threading.Event()

    def close() -> None:
        closing.set()
        client.close()
        done.set()

    told = Told(client.tree())
    if how == "in a listener":
        client.tree().on_state(lambda event: close() if event.state is State.SUSPENDED else None)
    proxy.refuse()
    if how == "with a thread":
        told.wait(State.SUSPENDED)
        threading.Thread(target=close).start()
    assert closing.wait(SECONDS)
    until(lambda: client.tree().state is State.CLOSED)  # the first one looks for a server
    with pytest.raises(TimedOut, match="another thread is closing"):
        client.close(0.1)
    proxy.heal()
    client.close()
    assert done.wait(SECONDS)
    assert gone.wait(SECONDS) is not None
    assert "was not closed" not in caplog.text


def test_a_close_begins_with_another_server_than_the_silent_one(broker: DevBroker, proxy: FaultProxy, dial: Any, node: str) -> None:
    other, gone = dial().tree(), None
    with FaultProxy() as second:
        urls = [one.url(broker.url("zookeeper")) for one in (proxy, second)]
        client = dial(",".join([urls[0], urls[1].partition("://")[2]]), session_timeout=30.0, shuffle=False)
        client.tree().create(f"{node}/mine", ephemeral=True)
        gone = other.watch()
        assert other.exists(f"{node}/mine", watch=gone) is not None
        proxy.stall()
        begin = time.monotonic()
        client.close()
        assert time.monotonic() - begin < 2.5 + KEPT
        assert gone.wait(SECONDS) is not None
    proxy.heal()


def test_a_close_whose_answer_is_lost_learns_that_it_was_done(
    dial: Any, faults: Faults, seen: Any, caplog: pytest.LogCaptureFixture
) -> None:
    client = dial(session_timeout=30.0)
    faults.lose_reply("closeSession")
    with caplog.at_level("INFO", logger="wireproto.zookeeper"):
        client.close()
    assert "was not closed" not in caplog.text
    assert len(seen.requests("createSession")) == 2


def test_a_close_while_watches_are_set_again_ends_the_session(broker: DevBroker, dial: Any, faults: Faults, node: str, seen: Any) -> None:
    client, other = dial(session_timeout=30.0), dial().tree()
    client.tree().create(f"{node}/mine", ephemeral=True)
    kept = client.tree().watch()
    client.tree().get(node, watch=kept)
    faults.drop("setWatches")
    client.tree()._link.current.close("cut")
    seen.wait("setWatches", 1, timeout=SECONDS)
    client.close()
    assert other.exists(f"{node}/mine") is None


def test_a_close_is_not_taken_for_done_where_the_server_refuses_it(dial: Any, faults: Faults, caplog: pytest.LogCaptureFixture) -> None:
    client = dial()
    faults.error("closeSession", NotReadOnly.code, times=-1)
    with caplog.at_level("INFO", logger="wireproto.zookeeper"):
        client.close(1.0)
    assert "the session was not closed at the server" in caplog.text


def test_closing_does_not_wait_longer_for_servers_than_the_session_is_worth(broker: DevBroker, proxy: FaultProxy, dial: Any) -> None:
    for away, timeout, worth in ((proxy.refuse, 1.5, 1.5), (proxy.stall, 60.0, 5.0)):
        client = dial(proxy.url(broker.url("zookeeper")), session_timeout=timeout, connect_timeout=1.0)
        told = Told(client.tree())
        told.wait(State.CONNECTED)
        away()
        if away == proxy.refuse:
            told.wait(State.SUSPENDED)
        begin = time.monotonic()
        client.close(30.0)
        assert time.monotonic() - begin < worth + 3.0
        proxy.heal()


def test_closing_keeps_its_timeout_while_no_server_is_there(broker: DevBroker, proxy: FaultProxy, dial: Any) -> None:
    client = dial(proxy.url(broker.url("zookeeper")), session_timeout=60.0)
    told = Told(client.tree())
    proxy.refuse()
    told.wait(State.SUSPENDED)
    begin = time.monotonic()
    client.close(0.5)
    assert time.monotonic() - begin < 0.5 + 3.0


def test_who_waits_for_a_connection_is_told_of_the_end_at_once(broker: DevBroker, proxy: FaultProxy, dial: Any, node: str) -> None:
    client = dial(proxy.url(broker.url("zookeeper")), session_timeout=3.0)
    tree, told, failed = client.tree(), Told(client.tree()), []
    proxy.stall()  # also what is connected from now on: the session cannot be ended in time
    told.wait(State.CONNECTED)
    tree._link.current.close("cut")
    told.wait(State.SUSPENDED)

    def call() -> None:
        try:
            tree.get(node)
        except Closed:
            failed.append(time.monotonic())

    thread = threading.Thread(target=call)
    thread.start()
    begin = time.monotonic()
    client.close()
    ended = time.monotonic()
    assert 2.5 < ended - begin < 4.9
    thread.join(SECONDS)
    assert len(failed) == 1
    assert failed[0] < ended - 0.5, "and not when the close was over"


@pytest.mark.parametrize("wrong", ["id", "password", "ended"])
def test_a_session_that_cannot_be_gone_on_with_is_no_other_one(broker: DevBroker, dial: Any, seen: Any, wrong: str) -> None:
    first = dial()
    number, password = first.tree().session
    if wrong == "ended":
        first.close()
    given = {"id": (number + 999, password), "password": (number, bytes(16)), "ended": (number, password)}[wrong]
    before = len(seen.requests("createSession"))
    with pytest.raises(SessionExpired):
        dial(session=given)
    assert len(seen.requests("createSession")) == before + 1
    assert wrong == "ended" or first.tree().session == (number, password)


# -- identities -------------------------------------------------------------------------------------------------------------


def given(seen: Any, connection: int) -> list[bytes]:
    return [bytes(request.message.auth) for request in seen.requests("auth") if request.connection == connection]


def test_an_identity_that_nobody_answered_is_given_again_and_others_may_follow(
    broker: DevBroker, dial: Any, node: str, faults: Faults, seen: Any
) -> None:
    tree = dial().tree()
    faults.delay("auth", 1.6)
    with pytest.raises(TimedOut):
        tree.add_auth("digest", "ann:a", timeout=0.05)
    tree.add_auth("digest", "bob:b", timeout=SECONDS)
    tree.add_auth("digest", "bob:b", timeout=SECONDS)
    told = Told(tree)
    told.wait(State.CONNECTED)
    broker.kick("zookeeper")
    told.wait(State.SUSPENDED, State.CONNECTED)
    assert given(seen, 0) == [b"ann:a", b"bob:b", b"bob:b"]
    assert given(seen, 1) == [b"ann:a", b"bob:b"], "each once, however often it was given"
    assert {who.user for who in tree.whoami()} >= {"ann", "bob"}


def test_an_identity_is_given_no_more_when_it_was_refused_or_is_forgotten(broker: DevBroker, dial: Any, faults: Faults, seen: Any) -> None:
    tree = dial().tree()
    tree.add_auth("digest", "ann:a")
    tree.add_auth("digest", "bob:b")
    with pytest.raises(AuthFailed):
        tree.add_auth("nobody knows this", "x")
    tree.forget_auth("digest", "ann:a")
    tree.forget_auth("digest", "was never given")
    told = Told(tree)
    told.wait(State.CONNECTED)
    broker.kick("zookeeper")
    told.wait(State.SUSPENDED, State.CONNECTED)
    assert [request.message.auth for request in seen.requests("auth")][-1] == b"bob:b"
    last = max(request.connection for request in seen.requests("createSession"))
    assert given(seen, last) == [b"bob:b"]


# -- made although somebody deletes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["ensure", "create"])
def test_a_node_is_made_though_those_above_it_go_meanwhile(dial: Any, node: str, call: str, seen: Any) -> None:
    """As containers do when their last child is gone: whoever makes a node meets it between any two of its steps."""
    tree, other = dial().tree(), dial().tree()
    over = threading.Event()

    def delete() -> None:
        while not over.is_set():
            for path in (f"{node}/a/b", f"{node}/a"):
                try:
                    other.delete(path)
                except Exception:  # not there, or not empty
                    continue

    thread = threading.Thread(target=delete)
    thread.start()
    try:
        for number in range(400):
            path = f"{node}/a/b/{number}"
            if call == "ensure":
                assert tree.ensure(path) is True
            else:
                assert tree.create(path, parents=True) == path
            tree.delete(path)
    finally:
        over.set()
        thread.join(SECONDS)
    assert len(seen.requests("create")) > 400 + 2, "somebody did delete"


# -- what is doubtful -------------------------------------------------------------------------------------------------------


def test_a_timeout_tells_whether_the_write_may_have_been_done(
    broker: DevBroker, proxy: FaultProxy, dial: Any, node: str, faults: Faults
) -> None:
    tree = dial(proxy.url(broker.url("zookeeper"))).tree()
    told = Told(tree)
    writes: list[Callable[[], Any]] = [
        lambda: tree.set(node, b"1", timeout=0.1),
        lambda: tree.set_async(node, b"1").result(0.1),
        lambda: tree.create(f"{node}/x", timeout=0.1),
    ]
    faults.stall(None, times=-1)
    for write in writes:
        with pytest.raises(TimedOut) as late:
            write()
        assert late.value.doubtful
    with pytest.raises(TimedOut) as late:
        tree.get(node, timeout=0.1)
    assert not late.value.doubtful
    pending = tree.set_async(node, b"2")
    proxy.refuse()
    with pytest.raises(ConnectionLoss) as cut:
        pending.result(SECONDS)
    assert cut.value.doubtful
    told.wait(State.SUSPENDED)
    with pytest.raises(TimedOut, match="no connection") as late:
        tree.set(node, b"3", timeout=0.1)
    assert not late.value.doubtful


def test_names_beyond_the_first_plane_are_refused(dial: Any, node: str) -> None:
    tree = dial().tree()
    calls: list[Callable[[], Any]] = [
        lambda: tree.exists("/\U0001f600"),
        lambda: tree.create(f"{node}/\U00010000"),
        lambda: tree.get("/a\U0010ffff"),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="has '"):
            call()
    with pytest.raises(NoNode):
        tree.get("/\uf900")
