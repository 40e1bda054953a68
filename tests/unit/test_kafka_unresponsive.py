"""Which connections of a Kafka producer count as silent, and what they hold: told by hand, looked at by a clock of numbers."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from wireproto.kafka.unresponsive import UnresponsiveLeaders


@dataclass(eq=False)
class Link:
    """What `UnresponsiveLeaders` looks at of a connection."""

    pending: int = 0
    frames_read: int = 0
    closed: bool = False
    context: Any = field(default_factory=lambda: SimpleNamespace(muted_until=0.0))

    def ask(self) -> None:
        self.pending += 1

    def answer(self) -> None:
        self.pending -= 1
        self.frames_read += 1


A, B = ("t", 0), ("t", 1)


@pytest.fixture
def link() -> Link:
    return Link()


@pytest.fixture
def owing() -> Any:
    return UnresponsiveLeaders()


def test_who_owes_an_answer_for_two_seconds_is_silent_until_it_comes(owing: Any, link: Link) -> None:
    link.ask()
    owing.sent(link, A)
    assert owing.look(1.0)
    assert owing.look(2.9)
    assert not owing.silent
    owing.look(3.0)
    assert owing.silent == {link: {A}}
    link.answer()
    assert not owing.look(4.0), "nobody owes anything"
    assert not owing.silent


def test_who_was_idle_before_is_not_silent_sooner(owing: Any, link: Link) -> None:
    link.ask()
    owing.sent(link, A)
    owing.look(1.0)
    link.answer()
    owing.look(2.0)
    link.ask()
    owing.sent(link, A)
    for now in (10.0, 11.9):
        owing.look(now)
        assert not owing.silent
    owing.look(12.0)
    assert owing.silent


def test_who_answers_one_thing_after_the_other_is_never_silent(owing: Any, link: Link) -> None:
    link.ask()
    for now in range(10):
        link.ask()
        owing.sent(link, A)
        assert owing.look(float(now))
        assert not owing.silent
        link.answer()


def test_a_silent_one_holds_what_it_was_sent_since_about_its_last_answer(owing: Any, link: Link) -> None:
    link.ask()
    owing.sent(link, A)
    owing.look(1.0)
    link.ask()
    owing.sent(link, B)
    owing.look(2.0)
    owing.look(3.0)
    assert owing.silent == {link: {A, B}}
    link.answer()
    for now in (4.0, 5.0, 6.0):
        owing.look(now)
    assert owing.silent == {link: {B}}, "A was answered"


def test_a_closed_one_is_forgotten(owing: Any, link: Link) -> None:
    link.ask()
    owing.sent(link, A)
    link.closed = True
    assert not owing.look(1.0)
    assert not owing.silent


def test_one_that_a_quota_mutes_is_silent_only_when_it_stays_so(owing: Any, link: Link) -> None:
    link.ask()
    owing.sent(link, A)
    link.context.muted_until = 5.5
    for now in range(1, 8):
        owing.look(float(now))
        assert not owing.silent, now
    owing.look(8.0)
    assert owing.silent
