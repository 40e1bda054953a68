"""Starts, stops and what is handed out: the arithmetic of one Pulsar partition, and sets of indexes in a batch."""

from __future__ import annotations

import pytest

from wireproto.errors import OptionError
from wireproto.position import LATEST, LogOffset, MessageId
from wireproto.pulsar.acks import wanted_after, words
from wireproto.pulsar.places import FIRST, Cursor, resolver, unread


def at(ledger: int, entry: int, index: int = -1, after: bool = False) -> MessageId:
    return MessageId("t", -1, ledger, entry, index, after)


@pytest.mark.parametrize(
    ("position", "begin", "left_out"),
    [
        (at(3, 5), (3, 5, 0), None),
        (at(3, 5, 0), (3, 5, 0), None),
        (at(3, 5, 2), (3, 5, 0), (3, 5, 1)),
        (at(3, 5, -1, True), (3, 5, -1), (3, 5, -1)),
        (at(3, 5, 2, True), (3, 5, 0), (3, 5, 2)),
        (at(-1, -1), FIRST, None),
        (at(3, -1, -1, True), (3, -1, -1), (3, -1, -1)),
    ],
)
def test_where_a_start_begins(position: MessageId, begin: object, left_out: object) -> None:
    cursor = Cursor(unread("t", -1))
    cursor.start_at(position)
    assert (cursor.begin, cursor.after, cursor.next) == (begin, left_out, position)


@pytest.mark.parametrize(
    ("position", "before", "last"),
    [
        (at(3, 5), (3, 5, -1), (3, 4)),
        (at(3, 0), (3, 0, -1), (3, 0)),
        (at(3, 5, 0), (3, 5, -1), (3, 4)),
        (at(3, 5, 2), (3, 5, 2), (3, 5)),
        (at(3, 5, -1, True), (3, 6, -1), (3, 5)),
        (at(3, 5, 2, True), (3, 5, 3), (3, 5)),
    ],
)
def test_where_a_stop_ends(position: MessageId, before: object, last: tuple[int, int]) -> None:
    cursor = Cursor(unread("t", -1))
    cursor.stop_at(position)
    assert (cursor.before, cursor.last) == (before, last)
    assert cursor.reached(*last)
    assert cursor.reached(last[0] + 1, 0)


def test_what_was_handed_out_is_where_to_resume() -> None:
    cursor = Cursor(unread("t", -1))
    cursor.handed(3, 7)
    assert cursor.next == at(3, 7, -1, True)
    assert cursor.begin == (3, 7, -1)
    cursor.stop_at(at(3, 9, 4))
    cursor.handed(3, 9)
    assert cursor.next == at(3, 9, 4)


@pytest.mark.parametrize(
    ("start", "stop", "nothing"),
    [
        (at(3, 5), at(3, 5), True),
        (at(3, 5), at(3, 4), True),
        (at(3, 5), at(3, 5, -1, True), False),
        (at(3, 5, 2), at(3, 5, 2), True),
        (at(3, 5, 1), at(3, 5, 2), False),
        (at(3, 5, 1, True), at(3, 5, 2), True),
        (at(3, 5, -1, True), at(3, 5, -1, True), True),
        (at(3, 5, -1, True), at(3, 7), False),
        (at(4, 0), at(3, 7), True),
        (at(-1, -1), at(3, 7), False),
    ],
)
def test_a_stop_at_or_before_the_start_leaves_nothing(start: MessageId, stop: MessageId, nothing: bool) -> None:
    cursor = Cursor(unread("t", -1))
    cursor.start_at(start)
    cursor.stop_at(stop)
    assert cursor.starts_beyond_stop() is nothing


def test_partitions_are_known_by_any_form_of_their_topics_name() -> None:
    keys = [("t", 0), ("t", 1)]
    places = resolver(keys)
    one = MessageId("persistent://public/default/t", 1, 3, 4)
    assert places.requests(one, keys) == {("t", 1): one}
    assert places.requests({("public/default/t", 0): LATEST}, keys, "stop") == {("t", 0): LATEST}  # type: ignore[dict-item]
    alone = [("t", -1)]
    assert resolver(alone).requests(MessageId("t", 0, 1, 1), alone).keys() == {("t", -1)}
    for wrong in (MessageId("u", 0, 1, 1), MessageId("t", 5, 1, 1), LogOffset("t", 0, 1), 17):
        with pytest.raises(OptionError):
            places.requests(wrong, keys)  # type: ignore[arg-type]


def test_sets_of_indexes_are_words_of_64_bits_lowest_first() -> None:
    assert words({0, 2}, 3) == (0b101,)
    assert words(set(), 3) == (0,)
    assert wanted_after(2, 5) == (0b11100,)
    assert wanted_after(5, 5) == (0,)
    assert words(range(64), 64) == (-1,)
    assert words({63, 64}, 66) == (-(2**63), 1)
    assert wanted_after(64, 130) == (0, -1, 0b11)


def test_an_entry_that_comes_once_more_moves_nothing() -> None:
    """After a reconnect entries that were handed out come again, be it one by one."""
    cursor = Cursor(unread("t", 0))
    cursor.handed(7, 2)
    cursor.handed(7, 0)
    assert cursor.begin == cursor.after == (7, 2, -1)
    assert cursor.next == MessageId("t", 0, 7, 2, after=True)
    cursor.start_at(MessageId("t", 0, 7, 4, 1, after=True))
    cursor.handed(7, 3)
    assert cursor.after == (7, 4, 1)
    cursor.handed(7, 4)
    assert cursor.after == (7, 4, -1)


@pytest.mark.parametrize("stop", [at(3, 7, after=True), at(3, 8)])
def test_what_comes_from_behind_the_stop_does_not_move_where_to_go_on(stop: MessageId) -> None:
    """Entries that were on their way when the stop was reached: who goes on from the reader's position would miss them."""
    cursor = Cursor(at(-1, -1))
    cursor.stop_at(stop)
    for entry in range(12):
        cursor.handed(3, entry)
    cursor.handed(4, 0)
    assert cursor.next in (at(3, 7, after=True), at(3, 8))
