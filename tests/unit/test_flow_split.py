"""A batch that goes on in parts: their places and numbers in the queue, their outcomes and the whole's."""

from __future__ import annotations

import pytest

from flow_parts import Batch, Quiet, halves
from wireproto.errors import BrokerError, Closed, TimedOut
from wireproto.flow.parts import found
from wireproto.flow.queue import UnnumberedSequencer
from wireproto.flow.sender import Again, Refused, SendTimes, Split, StartOver, Stored
from wireproto.flow.unreported_errors import UnreportedErrors

WHY = BrokerError("too large")


def made(wire: Quiet, *sizes: int) -> list[Batch]:
    """Batches of so many records, each sent by itself."""
    batches = []
    for size in sizes:
        for left in range(size, 0, -1):
            batch = wire.put(left, full=left == 1)
        batches.append(batch)
        wire.sender.drain()
    return batches


def test_parts_go_on_in_the_place_of_the_whole_and_are_counted_with_what_follows() -> None:
    wire = Quiet(SendTimes(linger=1.0, delivery_timeout=60.0), UnnumberedSequencer(3))
    first, second, third = made(wire, 1, 4, 1)
    parts = halves(second)
    wire.sender.answered([(second, Split(WHY, parts))])
    one, two = parts.batches
    assert len(wire.sent) == 3, "nothing is sent before all that is in flight has come back"
    (last,) = made(wire, 1)
    wire.sender.answered([(third, Again(None))])
    wire.sender.answered([(first, Stored(0))])
    wire.now = 10.0
    wire.sender.tick()
    assert wire.sent[3:] == [[one], [two], [third]]
    assert [batch.number for batch in (first, one, two, third)] == [1, 2, 3, 4]
    wire.sender.answered([(one, Stored(1))])
    assert (wire.sent[6:], last.number) == ([[last]], 5)


def test_a_part_that_is_sent_again_keeps_its_place() -> None:
    wire = Quiet(SendTimes(linger=1.0, delivery_timeout=60.0), UnnumberedSequencer(2))
    (whole,) = made(wire, 4)
    parts = halves(whole)
    wire.sender.answered([(whole, Split(WHY, parts))])
    one, two = parts.batches
    for batch in (two, one):
        wire.sender.answered([(batch, Again(None, now=True))])
    assert wire.sent == [[whole], [one], [two], [one], [two]]


def test_a_record_is_found_in_the_part_that_has_it_and_the_whole_ends_with_the_last() -> None:
    wire = Quiet(SendTimes(linger=1.0, delivery_timeout=60.0))
    (whole,) = made(wire, 5)
    parts = halves(whole)
    wire.sender.answered([(whole, Split(WHY, parts))])
    one, two = parts.batches
    smaller = halves(two)
    wire.sender.answered([(one, Stored(7))])
    wire.sender.answered([(two, Split(WHY, smaller))])
    three, four = smaller.batches
    wire.sender.answered([(three, Refused(WHY))])
    assert (wire.sender.unsettled(lambda batch: True), whole.outcome.done) == ([whole], False)
    wire.free.clear()
    wire.sender.answered([(four, Stored(9))])
    assert [found(whole, index) for index in range(5)] == [(one, 0), (one, 1), (three, 0), (four, 0), (four, 1)]
    assert ([batch for batch, _ in wire.told], wire.free) == ([three], [four, two, whole]), "the whole's room is free when all has ended"
    assert wire.sender.unsettled(lambda batch: True) == []


def test_what_is_said_twice_of_a_batch_splits_it_once() -> None:
    wire = Quiet(SendTimes(linger=1.0, delivery_timeout=60.0))
    (whole,) = made(wire, 2)
    first, second = halves(whole), halves(whole)
    wire.sender.answered([(whole, Split(WHY, first))])
    wire.sender.answered([(whole, Split(WHY, second))])
    for part in first.batches:
        wire.sender.answered([(part, Stored(0))])
    assert (wire.sent[1:], whole.outcome.value) == ([[part] for part in first.batches], first)


def test_the_time_of_the_whole_is_that_of_its_parts() -> None:
    wire = Quiet(SendTimes(linger=1.0, delivery_timeout=60.0))
    (whole,) = made(wire, 2)
    (late,) = made(wire, 2)
    parts = halves(whole)
    wire.sender.answered([(whole, Split(WHY, parts))])
    one, two = parts.batches
    wire.sender.answered([(one, Stored(3))])
    wire.now = 60.0
    wire.sender.tick()
    assert (one.outcome.value, type(two.outcome.error), whole.outcome.value) == (3, TimedOut, parts)
    wire.sender.answered([(two, Again(None))])
    assert wire.sent == [[whole], [one], [two]], "what is over is not sent again"
    assert late.outcome.done, "it was made at the same time"


def test_a_batch_whose_time_is_over_in_flight_is_not_split() -> None:
    wire = Quiet(SendTimes(linger=1.0, delivery_timeout=60.0))
    (whole,) = made(wire, 2)
    wire.now = 60.0
    wire.sender.tick()
    (after,) = made(wire, 1)
    wire.sender.answered([(whole, Split(WHY, halves(whole)))])
    assert (wire.sent, type(whole.outcome.error)) == ([[whole], [after]], TimedOut)


def test_parts_are_abandoned_with_the_whole_and_fail_with_their_queue() -> None:
    for end in ("abandon", "fail"):
        wire = Quiet(SendTimes(linger=1.0, delivery_timeout=60.0))
        (whole,) = made(wire, 2)
        parts = halves(whole)
        wire.sender.answered([(whole, Split(WHY, parts))])
        if end == "abandon":
            wire.sender.abandon(lambda batch, mine=whole: batch is mine, Closed("away"))  # type: ignore[misc]
        else:
            wire.sender.fail(["a"], Closed("away"))
        assert [type(part.outcome.error) for part in parts.batches] == [Closed, Closed]
        assert (whole.outcome.done, wire.sender.unsettled(lambda batch: True)) == (True, [])


def test_what_does_not_fit_behind_another_one_costs_no_pause() -> None:
    """Only where the oldest itself does not fit, time after time, something is wrong that time may mend."""
    wire = Quiet(SendTimes(linger=1.0, delivery_timeout=60.0), UnnumberedSequencer(6))
    first, *others = made(wire, 2, 1, 1, 1, 1, 1)
    parts = halves(first)
    wire.sender.answered([(first, Split(WHY, parts))])
    for batch in others:
        wire.sender.answered([(batch, StartOver(BrokerError("it does not follow")))])
    assert wire.sent[6:] == [[batch] for batch in (*parts.batches, *others[:4])]


def test_of_records_that_fail_in_parts_each_is_told_by_its_own_receipt() -> None:
    unreported = UnreportedErrors()
    other = BrokerError("another")
    unreported.note(5, WHY, 1)
    unreported.note(5, other, 2)
    for index in (0, 3):
        unreported.reported(5, index)
    assert len(unreported) == 1
    unreported.reported(5, 4)
    assert unreported.take() is None
    unreported.note(6, WHY, 1)
    unreported.note(6, other, 1)
    assert unreported.take() is WHY


@pytest.mark.parametrize("outcome", ["set", "fail"])
def test_a_part_has_one_outcome(outcome: str) -> None:
    wire = Quiet(SendTimes(linger=1.0, delivery_timeout=60.0))
    (whole,) = made(wire, 2)
    one = halves(whole).batches[0].outcome
    one.set(1) if outcome == "set" else one.fail(WHY)
    one.set(2)
    one.fail(Closed("late"))
    assert (one.value, one.error) == ((1, None) if outcome == "set" else (None, WHY))
