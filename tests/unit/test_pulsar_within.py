"""What a worker and a group's member know of messages and places that a transaction holds."""

from __future__ import annotations

from wireproto.position import MessageId
from wireproto.pulsar.acks import Log
from wireproto.pulsar.unacked import Unacked

KEY = (7, 3)


def in_hand(size: int) -> Unacked:
    """An entry whose messages are all with the user but the first, which a transaction has."""
    hand = Unacked(None)  # type: ignore[arg-type]
    entry = hand.looks_at(KEY, size)
    assert entry is not None
    for index in range(max(size, 1)):
        assert hand.attempt(KEY, index, 0) == 1
        entry.waiting.discard(index)
        (entry.held if index else entry.delayed).add(index)
    return hand


def test_what_a_transaction_has_is_not_handed_out_again() -> None:
    hand = in_hand(3)
    assert hand.attempt(KEY, 0, 1) is None
    hand.begins()
    assert hand.attempt(KEY, 0, 2) is None, "nor when the consumer was opened anew"


def test_what_it_committed_is_done_with() -> None:
    hand = in_hand(3)
    hand.acknowledged(KEY, 0, 0)
    entry = hand.entries[KEY]
    assert (entry.delayed, entry.done, entry.held) == (set(), {0}, {1, 2})
    for index in (1, 2):
        hand.acknowledged(KEY, index, 5)
    assert KEY not in hand.entries
    assert hand.looks_at(KEY, 3) is None, "fetched before its broker heard of it"


def test_what_it_rolled_back_is_handed_out_when_it_comes_again() -> None:
    hand = in_hand(3)
    hand.back(KEY, 0)
    assert hand.attempt(KEY, 0, 1) == 2
    assert hand.attempt(KEY, 1, 1) is None, "the user has that one still"


def place(entry: int, *, after: bool = True) -> MessageId:
    return MessageId("t", -1, 7, entry, after=after)


def polled(log: Log, *entries: int) -> None:
    for entry in entries:
        log.passed(7, entry, 0)
    log.handed = place(entries[-1])


def test_a_mark_behind_what_was_handed_out_takes_nothing() -> None:
    log = Log()
    assert not log.taken((7, 5))
    polled(log, 5, 6)
    polled(log, 8)
    assert not log.taken((7, 4)), "markers of transactions are passed over by brokers, not by members"
    assert [log.taken((7, entry)) for entry in (5, 6, 8)] == [True] * 3


def test_what_was_committed_here_is_taken_by_nobody_else() -> None:
    log = Log()
    polled(log, 5, 6)
    log.committed_to(place(6), 0.0)
    assert not log.taken((7, 6))
    polled(log, 8, 9)
    assert not log.taken((7, 7))
    assert log.taken((7, 8))


def test_a_commit_that_left_some_out_tells_nothing_until_the_next() -> None:
    log = Log()
    polled(log, 5, 6, 7)
    log.committed_to(place(5), 0.0)
    assert not log.taken((7, 7))
    log.committed_to(place(7), 0.0)
    polled(log, 9)
    assert log.taken((7, 9))
