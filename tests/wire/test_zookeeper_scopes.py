"""What belongs to one session ends with it: what a scope says of itself, whom it tells, and what was on its way in it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import wireproto
import wireproto.aio
from patience import until
from wireproto.devbroker import DevBroker, Faults
from wireproto.zookeeper.codes import SessionExpired
from wireproto.zookeeper.errors import ConnectionLoss
from wireproto.zookeeper.multi import Set
from wireproto.zookeeper.session import SessionEvent, State

PROTOCOL, SECONDS = "zookeeper", 20.0
CLIENT = {"timeout": SECONDS}


@pytest.fixture
def node(dial: Any) -> str:
    return str(dial().tree().create(f"/n-{time.monotonic_ns()}", b"0"))


@pytest.fixture
def over(broker: DevBroker) -> Callable[[Any], None]:
    """Ends a tree's session; returns when the next one is there."""

    def end(tree: Any) -> None:
        before = tree.session[0]
        assert broker.call("zookeeper", "expire", before)
        until(lambda: tree.session[0] not in (0, before) and tree.state is State.CONNECTED, limit=SECONDS)

    return end


# -- what it says -----------------------------------------------------------------------------------------------------------


def test_a_scope_says_what_its_own_session_is(dial: Any, node: str, over: Any) -> None:
    tree = dial(session_timeout=4.0).tree()
    scope = tree.session_scope()
    scope.create(f"{node}/lock", ephemeral=True)
    own = tree.session
    assert (scope.session, scope.state) == (own, State.CONNECTED)
    assert scope.safe_for() > 0.0
    over(tree)
    until(lambda: tree.safe_for() > 0.0, limit=SECONDS)
    assert tree.exists(f"{node}/lock") is None
    assert (scope.safe_for(), scope.state, scope.session) == (0.0, State.EXPIRED, own)
    assert scope.session_scope().safe_for() == 0.0, "a scope within it is of the same session"
    assert tree.session_scope().safe_for() > 0.0


def test_a_scope_that_is_made_between_two_sessions_is_of_the_next(broker: DevBroker, dial: Any, node: str, faults: Faults) -> None:
    tree = dial().tree()
    before, expired = tree.session, threading.Event()
    tree.on_state(lambda event: expired.set() if event.state is State.EXPIRED else None)
    faults.delay("createSession", 0.0)  # what tells of the end is not slow, what makes the next session is
    faults.delay("createSession", 1.0)
    broker.call("zookeeper", "expire", before[0])
    assert expired.wait(SECONDS)
    scope = tree.session_scope()
    heard: list[SessionEvent] = []
    scope.on_state(heard.append)
    assert scope.safe_for() == 0.0
    assert scope.set(node, b"1").version == 1
    assert scope.session == tree.session != before
    until(lambda: State.CONNECTED in [event.state for event in heard], limit=SECONDS)
    assert {event.state for event in heard} <= {State.NEW, State.CONNECTED}


def test_a_session_that_ends_while_it_is_asked_for_is_safe_for_no_moment(
    broker: DevBroker, dial: Any, over: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next session's answer is in hand when the scope sees that its own is over."""
    tree = dial().tree()
    scope, vitals = tree.session_scope(), tree._link._liveness
    real = vitals.safe_for

    def late() -> float:
        monkeypatch.undo()
        over(tree)
        until(lambda: real() > 0.0, limit=SECONDS)
        return float(real())

    monkeypatch.setattr(vitals, "safe_for", late)
    assert scope.safe_for() == 0.0


# -- whom it tells, and what it gives ---------------------------------------------------------------------------------------


def test_what_listens_in_a_scope_hears_of_its_sessions_end_last(dial: Any, over: Any) -> None:
    tree = dial().tree()
    scope, own = tree.session_scope(), tree.session[0]
    heard: list[SessionEvent] = []
    all_heard: list[SessionEvent] = []
    scope.on_state(heard.append)
    tree.on_state(all_heard.append)
    over(tree)
    late: list[SessionEvent] = []
    scope.on_state(late.append)
    until(lambda: late and all_heard[-1].session_id == tree.session[0], limit=SECONDS)
    assert [event.state for event in heard] == [State.CONNECTED, State.SUSPENDED, State.EXPIRED]
    assert {event.session_id for event in heard} == {own}
    assert late == heard[-1:]
    over(tree)
    until(lambda: all_heard[-1].session_id == tree.session[0], limit=SECONDS)
    assert (len(heard), len(late)) == (3, 1)
    assert len(tree._link.events._listeners) == 1, "whose session is over is let go of"


def test_an_ended_scope_gives_no_identity_and_takes_no_watch_back(dial: Any, node: str, over: Any) -> None:
    tree = dial().tree()
    scope = tree.session_scope()
    over(tree)
    with pytest.raises(SessionExpired):
        scope.add_auth("digest", "ann:a")
    assert "ann" not in {who.user for who in tree.whoami()}
    assert tree._link._identities == []
    mine: list[Any] = []
    tree.add_watch(node, mine.append)
    tree.add_watch(node, print)
    with pytest.raises(SessionExpired):
        scope.remove_watch(node, mine.append)
    tree.set(node, b"1")
    until(lambda: mine, limit=SECONDS)
    tree.remove_watch(node, mine.append)


def test_an_identity_that_waits_while_its_scopes_session_ends_is_not_the_next_ones(broker: DevBroker, dial: Any, faults: Faults) -> None:
    tree = dial().tree()
    scope, suspended = tree.session_scope(), threading.Event()
    tree.on_state(lambda event: suspended.set() if event.state is State.SUSPENDED else None)
    faults.delay("createSession", 1.5)
    broker.call("zookeeper", "expire", tree.session[0])
    assert suspended.wait(SECONDS)
    with pytest.raises(SessionExpired):
        scope.add_auth("digest", "ann:a")
    assert tree._link._identities == []


# -- what is on its way -----------------------------------------------------------------------------------------------------


IN_FLIGHT: dict[str, tuple[str, Callable[[Any, str], Any]]] = {
    "set": ("setData", lambda tree, node: tree.set(node, b"mine")),
    "set_async": ("setData", lambda tree, node: tree.set_async(node, b"mine").result(SECONDS)),
    "create with parents": ("create", lambda tree, node: tree.create(f"{node}/mine", parents=True)),
    "multi": ("multi", lambda tree, node: tree.multi([Set(node, b"mine")])),
}


@pytest.mark.parametrize("write", IN_FLIGHT)
def test_a_write_in_flight_in_a_scope_may_be_done_though_its_session_ends(
    dial: Any, node: str, over: Any, faults: Faults, seen: Any, write: str
) -> None:
    """It is not SessionExpired, which says that it is not done: nobody can know, and nobody repeats it in the next session."""
    tree = dial().tree()
    message, call = IN_FLIGHT[write]
    faults.drop(message)

    def end() -> None:
        seen.wait(message, timeout=SECONDS)
        over(tree)

    ends = threading.Thread(target=end)
    with tree.session_scope() as scope:
        ends.start()
        with pytest.raises(ConnectionLoss) as lost:
            call(scope, node)
    ends.join(SECONDS)
    assert lost.value.doubtful
    assert tree.get(node)[0] == b"mine" or tree.exists(f"{node}/mine") is not None
    assert len(seen.requests(message)) == 1


# -- asyncio ----------------------------------------------------------------------------------------------------------------


def test_a_scope_under_asyncio_ends_with_its_session(broker: DevBroker, node: str) -> None:
    async def until_next(tree: Any, own: int) -> None:
        gone = asyncio.Event()
        back = asyncio.Event()
        tree.on_state(lambda event: gone.set() if event.state is State.EXPIRED else back.set() if gone.is_set() else None)
        await asyncio.to_thread(broker.call, "zookeeper", "expire", own)
        await asyncio.wait_for(back.wait(), SECONDS)

    async def body() -> None:
        async with wireproto.aio.connect(broker.url("zookeeper")) as client:
            tree = client.tree()
            await tree.set(node, b"1")
            scope, heard = tree.session_scope(), []
            own = tree.session
            scope.on_state(heard.append)
            assert scope.safe_for() > 0.0
            await until_next(tree, own[0])
            assert await tree.any_session().exists(node) is not None
            assert tree.session != own
            assert (scope.safe_for(), scope.state, scope.session) == (0.0, State.EXPIRED, own)
            with pytest.raises(SessionExpired):
                await scope.add_auth("digest", "ann:a")
            with pytest.raises(SessionExpired):
                await scope.set(node, b"2")
            assert [event.state for event in heard] == [State.CONNECTED, State.SUSPENDED, State.EXPIRED]

    asyncio.run(body())
