"""ZooKeeper's upkeep by its numbers: when clients that lost a server together come back, what a search without luck leaves behind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from wireproto.errors import AuthError, Disconnected, WireprotoError
from wireproto.net.retry import Policy
from wireproto.net.task import Steps
from wireproto.zookeeper import link as link_module
from wireproto.zookeeper.link import Link
from wireproto.zookeeper.search import Search


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


class Turns:
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
    turns: Any = Turns()
    search = Search(loop, lambda: conn, turns, establish, lambda: iter(()), lambda: None)  # type: ignore[arg-type]
    assert not search.active
    for _ in search._looking(conn, SimpleNamespace(next=lambda: 1.0)):  # type: ignore[arg-type]
        raise AssertionError("nothing to wait for")
    assert during == [True]
    assert not search.active
    assert bool(waits) is not isinstance(why, AuthError), "it looks again, but where nobody takes it"
