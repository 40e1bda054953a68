"""ZooKeeper's upkeep by its numbers: when clients that lost a server together come back, what a search without luck leaves behind, what
is looked at again and when."""

from __future__ import annotations

import threading
import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from wireproto.errors import AuthError, BufferFull, Disconnected, TimedOut, WireprotoError
from wireproto.net.retry import Policy
from wireproto.net.task import Steps
from wireproto.zookeeper import link as link_module
from wireproto.zookeeper.link import Link
from wireproto.zookeeper.liveness import Liveness
from wireproto.zookeeper.quorum_search import QuorumSearch
from wireproto.zookeeper.session import Session, State
from wireproto.zookeeper.session_setup import _armed


def pause(monkeypatch: pytest.MonkeyPatch, session: float, short_lived: int, chance: float = 1.0) -> float:
    """Of a link whose last connections were so many short-lived ones."""
    monkeypatch.setattr(link_module.random, "random", lambda: chance)
    one: Any = Link.__new__(Link)
    one.session = SimpleNamespace(timeout=session)
    one._short_lived = short_lived
    one._rounds = Policy(first=1.0, factor=2.0, ceiling=1000.0, jitter=0.0)
    return one._pause()


@pytest.mark.parametrize(
    ("session", "short_lived", "seconds"),
    [
        (1000.0, 0, 0.5),  # half a second at most
        (10.0, 1, 0.5),
        (4.0, 0, 0.2),  # and a twentieth of the session's time
        (1000.0, 2, 1.5),  # who loses one connection after the other waits longer and longer
        (1000.0, 4, 4.5),
        (4.0, 4, 1.0),  # never beyond a quarter of it
    ],
)
def test_clients_that_lost_a_server_together_spread(
    monkeypatch: pytest.MonkeyPatch, session: float, short_lived: int, seconds: float
) -> None:
    assert pause(monkeypatch, session, short_lived) == pytest.approx(seconds)


def test_the_first_of_them_comes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pause(monkeypatch, 10.0, 0, chance=0.0) == 0.0


class SerialExecutor:
    def add(self, steps: Steps[None]) -> None:
        raise AssertionError("nobody asked for another turn")


@pytest.mark.parametrize("why", [None, Disconnected("gone"), AuthError("no")])
def test_a_search_that_is_over_asks_for_a_quorum_no_more(why: WireprotoError | None) -> None:
    """Else the next server without one would be refused, though the client takes such."""
    conn: Any = SimpleNamespace(closed=False)
    during: list[bool] = []
    waits: list[Any] = []

    def establish() -> Steps[None]:
        during.append(search.active)
        if why is not None:
            raise why
        yield from ()

    loop: Any = SimpleNamespace(call_at=lambda when, *what: waits.append(what))
    turns: Any = SerialExecutor()
    search = QuorumSearch(loop, lambda: conn, turns, establish, lambda: iter(()), lambda: None)  # type: ignore[arg-type]
    assert not search.active
    for _ in search._looking(conn, SimpleNamespace(next=lambda: 1.0)):  # type: ignore[arg-type]
        raise AssertionError("nothing to wait for")
    assert during == [True]
    assert not search.active
    assert bool(waits) is not isinstance(why, AuthError), "it looks again, but where nobody takes it"


def no_room(*_: Any) -> None:
    raise BufferFull("too much waits for the peer to read")


def test_where_nobody_may_wait_for_room_it_is_looked_for_again_soon() -> None:
    one: Any = Link.__new__(Link)
    one._conn = SimpleNamespace(post=no_room, peer="peer")
    one._max_body, one.session_number = 100, 0
    request: Any = SimpleNamespace(body=b"", repeats=True, code=1, path="/")
    begin = time.monotonic()
    until: Any = next(one.submitting(request, begin + 1000.0))
    assert begin < until < time.monotonic() + 0.05
    with pytest.raises(TimedOut, match="not sent in time"):
        next(one.submitting(request, begin))


def test_a_ping_that_finds_no_room_is_followed_by_the_next() -> None:
    again: list[Any] = []
    loop: Any = SimpleNamespace(call_at=lambda when, *what: again.append(what))
    conn: Any = SimpleNamespace(closed=False, last_read=time.monotonic(), context=deque(), send=no_room, peer="peer")
    session = Session(30.0)
    session.state = State.CONNECTED
    vitals = Liveness(loop, session, threading.Lock(), lambda: conn, lambda state: None)
    vitals._tick(conn)
    assert again == [(vitals._tick, conn)]


def test_a_session_that_was_lost_and_found_is_held_against_the_clock_again() -> None:
    timers: list[tuple[float, Any]] = []
    loop: Any = SimpleNamespace(call_at=lambda when, what, *_: timers.append((when, what)), forked=False)
    conn: Any = SimpleNamespace()
    session = Session(4.0)
    session.state, session.answered = State.CONNECTED, time.monotonic()
    vitals = Liveness(loop, session, threading.Lock(), lambda: conn, lambda state: setattr(session, "state", state))
    vitals.begin(conn)
    [_, (due, clock)] = timers
    assert due == session.answered + 3.0
    session.answered -= 4.0
    clock()
    assert session.state is State.LOST
    assert len(timers) == 2, "nothing is left to look at"
    conn.context.append(asked := time.monotonic())
    vitals.answered(conn)
    assert session.state is State.CONNECTED
    assert timers[2:] == [(asked + 3.0, clock)]
    clock()
    assert timers[3:] == [(asked + 3.0, clock)], "as long as it lives"


def test_what_the_leader_answers_proves_the_pings_that_it_has_been_told_of_by_then() -> None:
    """Servers keep a ping to themselves for half a tick, a quarter of the least time-out; what another server was told proves nothing."""
    loop: Any = SimpleNamespace(call_at=lambda *_: None, call_soon=lambda *_: None, forked=False)
    conn: Any = SimpleNamespace()
    session = Session(4.0)
    session.state = State.CONNECTED
    vitals = Liveness(loop, session, threading.Lock(), lambda: conn, lambda state: None)
    vitals.begin(conn)
    now = time.monotonic()
    for sent in (now - 2.0, now - 1.0):
        conn.context.append(sent)
        vitals.answered(conn)  # now
    assert vitals.safe_for() == 0.0, "pings alone prove nothing"
    vitals.led(conn, now + 0.9)
    assert vitals.safe_for() == 0.0, "the leader may not have been told yet"
    vitals.led(SimpleNamespace(), now + 1.1)  # type: ignore[arg-type]
    assert vitals.safe_for() == 0.0
    vitals.led(conn, now + 1.1)
    assert session.known == now - 1.0
    assert 1.5 < vitals.safe_for() <= 2.0, "three quarters behind the last answered ping it is LOST"
    vitals.begin(conn)
    assert session.known == now - 1.0
    session.answered = now
    vitals.led(conn, now + 9.0)
    assert session.known == now - 1.0, "nothing is known of this connection's server"


def test_watches_that_are_not_set_again_in_time_are_a_time_out() -> None:
    call: Any = SimpleNamespace(conn=SimpleNamespace(last_read=0.0, peer="peer"))
    steps = _armed(call, time.monotonic(), 0.0)
    assert next(steps)[0] is call
    with pytest.raises(TimedOut, match="has not answered the request to set the watches again"):
        steps.send(False)
