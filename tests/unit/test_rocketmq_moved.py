"""What becomes of "no such offset" (21), at each place about the ends of a queue."""

from __future__ import annotations

from typing import Any

import pytest

from wireproto._codec import ReadBudget, Slice
from wireproto.errors import DataLoss
from wireproto.flow.ahead import Ticket
from wireproto.rocketmq.codes import PullOffsetMoved
from wireproto.rocketmq.options import RocketOptions
from wireproto.rocketmq.pulls import Cursor, Pulls
from wireproto.rocketmq.route import Queue

LOW, HIGH = 10, 50
QUEUE = Queue(0, "b", 0, "h:1", True, True)


class Log:
    """As much of the client's log as is told to."""

    def warning(self, *words: object) -> None:
        pass

    info = warning


def asked(offset: int, *, reset: str, lenient: bool, caught_up: bool = True) -> tuple[Pulls, Cursor]:
    """Pulls whose only one, at `offset`, is out."""
    log: Any = Log()
    pulls = Pulls(RocketOptions(reset=reset), ReadBudget(), log)
    cursor = pulls.add("t", QUEUE, offset, lenient=lenient)
    cursor.caught_up = caught_up
    assert [ticket.offset for ticket in due(pulls)] == [offset]
    return pulls, cursor


def due(pulls: Pulls) -> list[Ticket[Cursor]]:
    return [ticket for ask in pulls.plan.due(pulls, 1.0) for ticket in ask.tickets]


def moved(pulls: Pulls, cursor: Cursor, offset: int, following: int, high: int = HIGH) -> None:
    ticket: Any = cursor.out[offset]
    pulls.answer(ticket, (21, following, LOW, high, Slice(b"")))


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize("reset", ["raise", "earliest", "latest", "nearest"])
@pytest.mark.parametrize("offset", [0, LOW - 1, HIGH + 1, 1 << 40])
def test_outside_of_the_queue_the_option_says_where_to_go(offset: int, reset: str, lenient: bool) -> None:
    pulls, cursor = asked(offset, reset=reset, lenient=lenient)
    moved(pulls, cursor, offset, LOW)
    if reset == "raise" and not lenient:
        (chunk,) = pulls.plan.take()
        assert isinstance(chunk.error, PullOffsetMoved)
        assert f"holds {LOW} up to {HIGH}" in str(chunk.error)
        assert chunk.error.position == QUEUE.at("t", offset)
        assert cursor.position == offset
        assert not cursor.caught_up, "it counted for that answer alone"
        assert [ticket.offset for ticket in due(pulls)] == [offset], "it is told again"
    else:
        assert cursor.position == (LOW if lenient or reset in ("earliest", "nearest") else HIGH)


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize("reset", ["raise", "earliest", "latest", "nearest"])
def test_at_the_end_it_is_no_news(reset: str, lenient: bool) -> None:
    pulls, cursor = asked(HIGH, reset=reset, lenient=lenient, caught_up=False)
    moved(pulls, cursor, HIGH, HIGH)
    assert cursor.position == HIGH
    assert not cursor.out
    (ticket,) = due(pulls)
    assert (ticket.offset, ticket.size) == (HIGH, 0), "it is held"


@pytest.mark.parametrize("reset", ["raise", "earliest", "latest", "nearest"])
@pytest.mark.parametrize("offset", [LOW, LOW + 1, HIGH - 1])
def test_within_the_queue_the_broker_says_where_to_go(reset: str, offset: int) -> None:
    pulls, cursor = asked(offset, reset=reset, lenient=False)
    moved(pulls, cursor, offset, 30)
    assert cursor.position == 30


@pytest.mark.parametrize("reset", ["raise", "earliest", "latest", "nearest"])
@pytest.mark.parametrize("lenient", [False, True])
def test_beyond_the_end_it_is_believed_when_the_queue_shows_all_of_the_log(reset: str, lenient: bool) -> None:
    pulls, cursor = asked(HIGH + 1, reset=reset, lenient=lenient, caught_up=False)
    moved(pulls, cursor, HIGH + 1, HIGH)
    assert cursor.position == HIGH + 1
    assert due(pulls) == []
    assert pulls.unseen == {"h:1"}, "it is waited for until it has caught up"
    pulls.shown("h:1", None, 1.0)
    assert [ticket.offset for ticket in due(pulls)] == [HIGH + 1]
    moved(pulls, cursor, HIGH + 1, HIGH)
    assert pulls.plan.take() or cursor.position in (LOW, HIGH)


def lost(offset: int = HIGH + 1) -> tuple[Pulls, Cursor]:
    """Pulls of a queue that ends before what was read."""
    pulls, cursor = asked(offset, reset="raise", lenient=False)
    moved(pulls, cursor, offset, LOW)
    return pulls, cursor


ANSWERS = {
    "the same": (21, LOW, LOW, HIGH, b""),
    "the end": (19, HIGH + 1, LOW, HIGH + 1, b""),
    "within": (21, HIGH + 2, LOW, HIGH + 9, b""),
    "records": (0, HIGH + 5, LOW, HIGH + 9, b"xxxx"),
    "filtered": (20, HIGH + 5, LOW, HIGH + 9, b""),
}


@pytest.mark.parametrize("answer", list(ANSWERS))
def test_a_log_that_is_not_the_one_that_was_read_is_told_until_a_seek(answer: str) -> None:
    pulls, cursor = lost()
    for _ in range(3):
        (chunk,) = pulls.plan.take()
        assert isinstance(chunk.error, PullOffsetMoved)
        assert isinstance(chunk.error, DataLoss)
        (ticket,) = due(pulls)
        assert ticket.size > 0, "it is not held by the broker"
        code, following, low, high, body = ANSWERS[answer]
        pulls.answer(ticket, (code, following, low, high, Slice(body)))
        assert cursor.position == HIGH + 1
    pulls.seek(cursor, LOW)
    assert pulls.plan.take() == ()
    (ticket,) = due(pulls)
    assert ticket.offset == LOW
    pulls.answer(ticket, (0, LOW + 5, LOW, HIGH, Slice(b"x")))
    assert [(chunk.start, chunk.next, chunk.error) for chunk in pulls.plan.take()] == [(LOW, LOW + 5, None)]


def test_a_log_that_is_not_the_one_that_was_read_is_told_behind_a_signal_too() -> None:
    pulls, _ = lost()
    pulls.restart()
    assert pulls.plan.take() == ()
    (ticket,) = due(pulls)
    pulls.answer(ticket, (0, HIGH + 5, LOW, HIGH + 9, Slice(b"x")))
    (chunk,) = pulls.plan.take()
    assert isinstance(chunk.error, DataLoss)


def test_who_is_set_elsewhere_by_an_administrator_goes_on_there() -> None:
    set_to: list[object] = []
    log: Any = Log()
    pulls = Pulls(RocketOptions(reset="raise"), ReadBudget(), log, lambda key, offset: set_to.append((key, offset)))
    cursor = pulls.add("t", QUEUE, HIGH + 1)
    cursor.caught_up = True
    due(pulls)
    moved(pulls, cursor, HIGH + 1, LOW)
    pulls.plan.take()
    (ticket,) = due(pulls)
    pulls.answer(ticket, (21, LOW, LOW, HIGH, Slice(b"")), "OFFSET_RESET")
    assert set_to == [(("t", 0), LOW)]
    (ticket,) = due(pulls)
    pulls.answer(ticket, (0, LOW + 5, LOW, HIGH, Slice(b"x")))
    (chunk,) = pulls.plan.take()
    assert chunk.error is None


def test_of_a_pull_sent_ahead_it_only_tells_the_end() -> None:
    pulls, cursor = asked(20, reset="raise", lenient=False)
    ticket: Any = cursor.out[20]
    pulls.answer(ticket, (0, 25, LOW, 100, Slice(b"x")))
    ahead = [ticket.offset for ticket in due(pulls)]
    assert ahead[:2] == [25, 30]
    moved(pulls, cursor, ahead[-1], LOW)
    assert cursor.end == HIGH
    assert cursor.position == 20
    assert not any(chunk.error for chunk in pulls.plan.take())
