"""A close from another thread: the call that is waiting in the role ends then, and does not go on to its timeout."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from conformance.helpers import eventually
from conformance.seats import Seat
from patience import until
from wireproto.errors import Closed, TimedOut

CALLS = {"reader": "poll", "consumer": "poll", "queue": "receive"}
WAITS = 60.0
"""Seconds that the call may take; AT_ONCE are those in which it has to be over when its role is closed."""
AT_ONCE = 20.0


def opened(client: Any, role: str, topic: str, group: str) -> Any:
    return client.reader(topic) if role == "reader" else getattr(client, role)(topic, group)


def in_use(role: Any) -> bool:
    """Whether a thread is inside a call of the role."""
    try:
        role._only.wait(0.0)
    except TimedOut:
        return True
    return False


class Waiting(threading.Thread):
    """A thread in the one call of a role that waits for records. `came`: what it returned, or raised."""

    def __init__(self, role: Any, name: str) -> None:
        super().__init__(daemon=True)
        self.role, self.call = role, getattr(role, CALLS[name])
        self.came: list[Any] = []

    def __enter__(self) -> Waiting:
        self.start()
        until(lambda: in_use(self.role), "the other thread is in its call")
        return self

    def run(self) -> None:
        try:
            self.came.append(self.call(WAITS))
        except BaseException as why:
            self.came.append(why)

    def __exit__(self, *_: object) -> None:
        self.join(AT_ONCE)
        assert not self.is_alive(), "the call goes on though its role is closed"
        [end] = self.came
        assert end is None or isinstance(end, Closed)


@pytest.fixture(params=CALLS)
def role(request: pytest.FixtureRequest, seat: Seat) -> str:
    name: str = request.param
    if name != "reader" and not getattr(seat.features, name):
        pytest.skip(f"has no {name}")
    return name


@pytest.mark.parametrize("closing", ["role", "client"])
def test_a_close_ends_the_call_that_another_thread_waits_in(dial: Any, topic: str, group: str, role: str, closing: str) -> None:
    client = dial()
    made = opened(client, role, topic, group)
    close: Callable[[float], None] = made.close if closing == "role" else client.close
    if role == "consumer":
        eventually(lambda: made.poll(0.1) is None and bool(made.assignment), "an assignment")
    with Waiting(made, role):
        close(AT_ONCE)
    with pytest.raises(Closed):
        getattr(made, CALLS[role])(0.0)


@pytest.mark.parametrize("role", ["consumer"], indirect=True)
def test_a_close_ends_the_call_of_a_consumer_that_has_nothing_assigned_yet(dial: Any, topic: str, group: str, role: str) -> None:
    made = opened(dial(), role, topic, group)
    with Waiting(made, role):
        made.close(AT_ONCE)
