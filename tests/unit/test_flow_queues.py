"""The Sender's rules one by one, over a wire that does as it is told: linger, links, pauses, expiry, failures, numbers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from flow_parts import Batch, Link, Quiet
from wireproto.errors import BrokerError, Closed, Disconnected, TimedOut
from wireproto.flow.queue import Gate, UnnumberedSequencer
from wireproto.flow.sender import TURN, Again, SendTimes, StartOver, Stored
from wireproto.kafka.identity import Identity, ProducerState


def test_a_batch_lingers_for_more_records_and_one_timer_sees_to_it() -> None:
    wire = Quiet(SendTimes(linger=1.0, delivery_timeout=9.0))
    first = wire.put(1)
    wire.sender.drain()
    assert (wire.sent, wire.alarms) == ([], [1.0])
    wire.now = 0.5
    assert wire.put(2) is first
    wire.put(3, "b")
    assert wire.alarms == [1.0], "the earlier one serves both"
    wire.now = 1.0
    wire.sender.tick()
    assert wire.sent == [[first]]
    assert wire.alarms[-1] == 1.5
    assert wire.put(4) is not first, "it takes no more"


def test_what_waits_for_an_answer_can_be_told_from_what_waits_to_be_sent() -> None:
    wire = Quiet(SendTimes(linger=1.0, delivery_timeout=9.0))
    first = wire.put(1, "a", full=True)
    wire.sender.drain()
    wire.put(2, "b")
    assert wire.sender.keys_in_flight(["a", "b", "c"]) == {"a"}
    wire.sender.answered([(first, Stored(0))])
    assert wire.sender.keys_in_flight(["a", "b", "c"]) == set()


def test_what_may_not_leave_yet_takes_more_records_meanwhile() -> None:
    wire = Quiet(SendTimes(linger=0.0, delivery_timeout=9.0))
    first = wire.put(1)
    wire.sender.release([first])
    second = wire.put(2)
    wire.sender.release([second])
    assert wire.put(3) is second
    wire.sender.release([second])
    assert wire.sent == [[first]]
    wire.sender.answered([(first, Stored(0))])
    assert [batch.values for request in wire.sent for batch in request] == [[1], [2, 3]]


def test_what_many_keys_hold_leaves_turn_by_turn_until_the_link_is_crowded() -> None:
    """However much became due at once: `transmit` cannot wait for room. Who had a turn comes after who had none."""
    wire = Quiet(SendTimes(linger=1.0, delivery_timeout=9.0), UnnumberedSequencer(9))
    for number, key in enumerate("abcde" * 2):
        wire.put(number, key, full=True).grow(0, TURN // 2)
    wire.congested = lambda link: len(wire.sent) >= 3  # type: ignore[method-assign]
    wire.sender.drain()
    assert [[batch.values[0] for batch in request] for request in wire.sent] == [[0, 1], [2, 3], [4, 5]]


def test_a_batch_beyond_a_turn_leaves_by_itself() -> None:
    wire = Quiet(SendTimes(linger=1.0, delivery_timeout=9.0))
    for number, size in enumerate((1, TURN + 1, 1)):
        wire.put(number, number, full=True).grow(0, size)
    wire.sender.drain()
    assert [[batch.values[0] for batch in request] for request in wire.sent] == [[0], [1], [2]]


def test_keys_of_one_link_leave_together_and_the_oldest_is_first() -> None:
    wire = Quiet(SendTimes(linger=1.0, delivery_timeout=9.0))
    made = [wire.put(number, key) for number, key in enumerate("cab")]
    wire.sender.hurry_all()
    assert wire.sent == [made]


def test_without_a_link_the_keys_are_asked_for_once_and_leave_when_it_is_there() -> None:
    wire = Quiet(SendTimes(linger=1.0, delivery_timeout=9.0))
    link, wire.link = wire.link, None
    made = [wire.put(1, "a"), wire.put(2, "b")]
    wire.sender.hurry_all()
    wire.sender.drain()
    assert wire.wanted == [{"a", "b"}]
    wire.link = link
    wire.sender.drain()
    assert wire.sent == [], "until the wire says so"
    wire.sender.ready(("a",))
    wire.sender.ready(None)
    assert wire.sent == [made[:1], made[1:]]


def test_a_crowded_link_is_looked_at_again_soon() -> None:
    wire = Quiet(SendTimes(linger=1.0, delivery_timeout=9.0))
    wire.full = True
    batch = wire.put(1, full=True)
    wire.sender.drain()
    assert (wire.sent, wire.alarms[-1]) == ([], 0.005)
    wire.full, wire.now = False, 0.005
    wire.sender.tick()
    assert wire.sent == [[batch]]


def test_a_batch_in_flight_fails_when_its_time_is_over_and_is_not_sent_again() -> None:
    wire = Quiet(SendTimes(linger=0.0, delivery_timeout=3.0))
    batch, after = wire.put(1, full=True), None
    wire.sender.drain()
    assert wire.sender.wakeup() == 3.0
    wire.now = 2.0
    after = wire.put(2, full=True)
    wire.sender.drain()
    wire.now = 3.0
    wire.sender.tick()
    assert isinstance(batch.outcome.error, TimedOut)
    assert wire.told == [(batch, batch.outcome.error)]
    assert wire.sent == [[batch]], "its answer may still come: nothing overtakes it"
    wire.sender.answered([(batch, Again(Disconnected("gone"), doubtful=True))])
    wire.now = 4.0
    wire.sender.tick()
    assert wire.sent == [[batch], [after]]
    wire.sender.answered([(after, Stored(7))])
    assert (after.outcome.value, batch.outcome.value) == (7, None)


def test_a_late_answer_to_what_is_over_changes_no_outcome() -> None:
    wire = Quiet(SendTimes(linger=0.0, delivery_timeout=3.0))
    batch = wire.put(1, full=True)
    wire.sender.drain()
    wire.now = 3.0
    wire.sender.tick()
    wire.sender.answered([(batch, Stored(5))])
    assert isinstance(batch.outcome.error, TimedOut)
    assert len(wire.told) == 1


def test_pauses_grow_with_failures_and_end_with_the_first_success() -> None:
    wire = Quiet(SendTimes(linger=0.0, delivery_timeout=1e9))
    batch = wire.put(1, full=True)
    wire.sender.drain()
    pauses = []
    for _ in range(6):
        wire.sender.answered([(batch, Again(BrokerError("busy")))])
        wire.sender.drain()
        until = wire.sender.queue("a").held_until
        pauses.append(until - wire.now)
        sendings = len(wire.sent)
        wire.now = until - 0.001
        wire.sender.tick()
        assert len(wire.sent) == sendings, "the pause is not over"
        wire.now = until
        wire.sender.tick()
    assert all(0.8 * base <= pause <= 1.2 * base for base, pause in zip((0.1, 0.2, 0.4, 0.8, 1.0, 1.0), pauses, strict=True)), pauses
    assert (batch.attempts, batch.doubtful) == (7, False)
    wire.sender.answered([(batch, Stored(0))])
    assert (wire.sender.queue("a").failures, wire.sender.queue("a").held_until) == (0, 0.0)


def test_a_failed_queue_ends_with_all_that_it_holds_and_refuses_more() -> None:
    wire = Quiet(SendTimes(linger=9.0, delivery_timeout=99.0))
    flying = wire.put(1, full=True)
    wire.sender.drain()
    waiting, opened, other = wire.put(2, full=True), wire.put(3), wire.put(4, "b")
    why = Closed("the topic ended")
    wire.sender.fail(["a"], why)
    assert [batch for batch, _ in wire.told] == [flying, waiting, opened]
    assert wire.sender.queue("a").gate is Gate.FAILED
    with pytest.raises(Closed, match="the topic ended"):
        wire.put(5)
    assert not other.outcome.done


def flush(wire: Quiet, mine: Callable[[Any], bool]) -> None:
    """Two seconds, in which nothing that it waits for comes."""
    steps = wire.sender.flushing(2.0, mine)
    with suppress(StopIteration):
        next(steps)
        while True:
            steps.send(False)


def test_a_flush_tells_what_it_met_last_when_its_time_is_over() -> None:
    """In the partition that it waits for, and while the batch was there."""
    wire = Quiet(SendTimes(linger=0.0, delivery_timeout=99.0))
    batch = wire.put(1)
    with pytest.raises(TimedOut, match="not all records were acknowledged within 2 s"):
        flush(wire, lambda batch: True)
    assert wire.sent == [[batch]], "a flush does not linger"
    wire.sender.answered([(batch, Again(BrokerError("the disk is full")))])
    with pytest.raises(TimedOut, match="last trouble: the disk is full"):
        flush(wire, lambda batch: True)
    flush(wire, lambda batch: False)
    other = wire.put(2, "b")
    with pytest.raises(TimedOut, match=r"within 2 s$"):
        flush(wire, lambda batch: batch is other)
    wire.sender.answered([(batch, Stored(0))])
    wire.now = 1.0
    wire.put(3)
    with pytest.raises(TimedOut, match=r"within 1 s$"):
        flush(wire, lambda batch: batch is not other)


def test_only_one_batch_is_in_flight_until_the_first_of_an_identity_is_stored() -> None:
    wire = Quiet(SendTimes(linger=0.0, delivery_timeout=99.0), ProducerState(Identity(7, 0), 5))
    made = [wire.put(number, full=True) for number in range(7)]
    wire.sender.drain()
    assert wire.sent == [made[:1]]
    wire.sender.answered([(made[0], Stored(0))])
    assert [batch.sequence for (batch,) in wire.sent] == [0, 1, 2, 3, 4, 5], "five behind the first"
    assert {batch.identity for (batch,) in wire.sent} == {Identity(7, 0)}


def test_no_batch_leaves_that_is_five_behind_the_oldest_unanswered_one() -> None:
    wire = Quiet(SendTimes(linger=0.0, delivery_timeout=99.0), ProducerState(Identity(7, 0), 5))
    made = [wire.put(number, full=True) for number in range(9)]
    wire.sender.drain()
    wire.sender.answered([(made[0], Stored(0))])
    wire.sender.answered([(batch, Stored(0)) for batch in made[2:6]])
    assert len(wire.sent) == 6, "the second is not answered, and brokers remember five"
    wire.sender.answered([(made[1], Stored(0))])
    assert len(wire.sent) == 9


def test_after_a_refusal_the_oldest_goes_first_with_its_numbers_when_all_are_back() -> None:
    wire = Quiet(SendTimes(linger=0.0, delivery_timeout=99.0), ProducerState(Identity(7, 0), 5))
    made = [wire.put(number, full=True) for number in range(3)]
    wire.sender.drain()
    wire.sender.answered([(made[0], Stored(0))])
    wire.sender.answered([(made[1], Again(Disconnected("gone"), doubtful=True))])
    wire.now = 50.0
    wire.sender.tick()
    assert len(wire.sent) == 3, "one is still in flight"
    wire.sender.answered([(made[2], StartOver(BrokerError("it does not follow")))])
    assert wire.sent[3:] == [[made[1]], [made[2]]]
    assert (made[1].sequence, made[1].doubtful, made[1].identity) == (1, True, Identity(7, 0)), "only what follows a failed one"


def test_a_hole_in_the_log_starts_the_partition_over_in_the_next_epoch_and_no_other() -> None:
    state = ProducerState(Identity(7, 0), 5)
    wire = Quiet(SendTimes(linger=0.0, delivery_timeout=99.0), state)
    made = [wire.put(number, full=True) for number in range(3)]
    other = wire.put(9, "b", full=True)
    wire.sender.drain()
    wire.sender.answered([(made[0], Stored(0)), (other, Stored(0))])
    wire.sender.answered([(made[1], StartOver(BrokerError("it does not follow")))])
    assert state.identity == Identity(7, 0), "not before all are back"
    wire.sender.answered([(made[2], StartOver(BrokerError("it does not follow")))])
    assert wire.sent[-1] == [made[1]]
    assert (made[1].identity, made[1].sequence) == (Identity(7, 1), 0)
    wire.sender.answered([(made[1], Stored(1))])
    assert (made[2].identity, made[2].sequence) == (Identity(7, 1), 1)
    assert wire.put(8, "b", full=True).count
    wire.sender.drain()
    assert (wire.sent[-1][0].identity, wire.sent[-1][0].sequence) == (Identity(7, 0), 1), "the other partition stays in its epoch"


def test_epochs_are_raised_until_they_are_used_up_and_then_a_new_id_is_waited_for() -> None:
    assert Identity(7, 3).raised() == Identity(7, 4)
    assert Identity(7, 0x7FFD).raised() == Identity(7, 0x7FFE)
    assert Identity(7, 0x7FFE).raised() is None
    state = ProducerState(Identity(7, 0x7FFE), 5)
    wire = Quiet(SendTimes(linger=0.0, delivery_timeout=99.0), state)
    batch = wire.put(1, full=True)
    wire.sender.drain()
    wire.sender.answered([(batch, StartOver(BrokerError("it does not follow")))])
    assert (state.identity, wire.wanted, len(wire.sent)) == (None, [{"a"}], 1)
    state.identity = Identity(8, 0)
    wire.sender.ready(None)
    assert (wire.sent[-1], batch.identity, batch.sequence) == ([batch], Identity(8, 0), 0)


def test_sequence_numbers_wrap_as_the_broker_counts() -> None:
    wire = Quiet(SendTimes(linger=9.0, delivery_timeout=99.0), ProducerState(Identity(1, 0), 5))
    first = wire.put(0, full=True)
    wire.sender.drain()
    wire.sender.answered([(first, Stored(0))])
    wire.sender.queue("a").mark.next = 0x7FFFFFFE
    for value in range(4):
        batch = wire.put(value)
    wire.sender.hurry(batch)
    assert batch.sequence == 0x7FFFFFFE
    assert wire.sender.queue("a").mark.next == 2


def test_what_is_discarded_was_never_taken() -> None:
    wire = Quiet(SendTimes(linger=1.0, delivery_timeout=9.0))
    batch = wire.put(1)
    with wire.sender.lock:
        wire.sender.discard("a")
    wire.sender.hurry_all()
    assert (wire.sent, wire.sender.unsettled(lambda batch: True), wire.put(2) is batch) == ([], [], False)


@pytest.mark.parametrize("reached", [True, False])
def test_a_signal_that_breaks_into_a_sending_costs_the_connection_and_nothing_else(reached: bool) -> None:
    """Nobody knows whether the request went: no answer to it may be taken for one to the next sending."""
    wire = Quiet(SendTimes(linger=9.0, delivery_timeout=99.0))
    batch, link, transmit = wire.put(1), wire.link, wire.transmit

    def broken(link: Link, batches: list[Batch]) -> None:
        if reached:
            transmit(link, batches)
        raise KeyboardInterrupt

    wire.transmit = broken  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        wire.sender.hurry(batch)
    assert wire.alarms[-1] == 0.0, "the I/O thread mends"
    wire.sender.tick()
    assert link is not None
    assert link.closed
    assert (batch.doubtful, len(batch.queue.ready), len(batch.queue.in_flight)) == (True, 1, 0)
    wire.transmit, wire.link = transmit, Link(0)  # type: ignore[method-assign]
    wire.now = 2.0  # behind the pause
    wire.sender.tick()
    assert wire.sent[-1] == [batch]
    assert (batch.attempts, len(wire.sent)) == (2, 1 + reached)
    wire.sender.answered([(batch, Stored(3))])
    assert batch.outcome.value == 3


def test_a_new_batch_leaves_at_once_where_its_queue_is_idle_and_takes_more_where_it_is_not() -> None:
    wire = Quiet(SendTimes(linger=0.0, delivery_timeout=9.0))
    with wire.sender.lock:
        early = wire.sender.current("a")
        early.hold(0)
    wire.sender.set_off(early)  # by the long way: the link has not been used yet
    assert wire.alarms == [9.0], "its time is seen to"
    wire.sender.stored(early, 0)
    first = wire.put(1)
    wire.sender.set_off(first)
    second = wire.put(2)
    wire.sender.set_off(second)
    assert wire.put(3) is second
    assert wire.sent == [[early], [first]]
    wire.sender.stored(first, 1)
    assert [batch.values for request in wire.sent for batch in request] == [[0], [1], [2, 3]]
    assert (first.outcome.value, first.over, second.number) == (1, True, 3)


def test_what_may_go_anywhere_leaves_a_key_that_fails_and_the_rest_stays_in_order() -> None:
    wire = Quiet(SendTimes(linger=0.0, delivery_timeout=90.0))
    first = wire.put(1, full=True)
    wire.sender.drain()
    stays, goes = wire.put(2, full=True), wire.put(3, full=True)
    wire.sender.drain()
    wire.sender.answered([(first, Again(BrokerError("busy"), to=lambda batch: None if batch is stays else "b"))])
    assert wire.sent == [[first], [first]], "by the other key, at once"
    assert [batch.queue.key for batch in (first, stays, goes)] == ["b", "a", "b"]
    wire.sender.stored(first, 0)
    assert wire.sent[2:] == [[goes]]
    wire.now = wire.alarms[-1]
    wire.sender.tick()
    assert wire.sent[3:] == [[stays]], "behind the pause of its key"


def test_a_key_that_cannot_be_reached_is_asked_for_again_after_a_pause_without_what_may_leave_it() -> None:
    wire = Quiet(SendTimes(linger=0.0, delivery_timeout=90.0))
    link, wire.link = wire.link, None
    goes, stays = wire.put(1, full=True), wire.put(2, full=True)
    wire.sender.drain()
    wire.sender.unreached("a", Disconnected("gone"), lambda batch: "b" if batch is goes else None)
    assert wire.wanted == [{"a"}, {"b"}]
    assert goes.queue.key == "b"
    assert "gone" in stays.queue.last_error_text(stays)
    wire.now = wire.alarms[-1]
    assert 0.0 < wire.now < 1.0
    for _ in range(2):
        wire.sender.tick()
        assert wire.wanted[2:] == [{"a"}], "once"
    wire.link = link
    wire.sender.ready(None)
    assert sorted(batch.values for request in wire.sent for batch in request) == [[1], [2]]
    assert stays.queue.key == "a"


def test_a_link_that_goes_between_looking_and_taking_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Quiet(SendTimes(linger=0.0, delivery_timeout=99.0))
    first, second = wire.put(1, "a", full=True), wire.put(2, "b", full=True)
    looks: list[Any] = []

    def target(key: Any) -> Any:
        looks.append(key)
        return None if looks.count(key) == 2 and key == "a" else wire.link

    monkeypatch.setattr(wire, "target", target)
    wire.sender.drain()
    assert wire.sent == [[second]]
    assert wire.wanted == [{"a"}]
    assert not wire.sender.due
    wire.sender.ready(["a"])
    assert wire.sent == [[second], [first]]


def test_an_open_batch_lingers_on_while_those_before_it_leave() -> None:
    wire = Quiet(SendTimes(linger=9.0, delivery_timeout=99.0), UnnumberedSequencer(5))
    first = wire.put(1, full=True)
    second = wire.put(2)
    wire.sender.drain()
    assert wire.sent == [[first]]
    assert wire.put(3) is second
    wire.sender.answered([(first, Stored(0))])
    assert wire.sent == [[first]]
    assert wire.put(4) is second
    wire.now = 9.0
    wire.sender.tick()
    assert wire.sent == [[first], [second]]


def test_a_batch_that_leaves_behind_a_pause_lingers_no_longer() -> None:
    """It takes records until then; no timer rings for it afterwards."""
    wire = Quiet(SendTimes(linger=9.0, delivery_timeout=99.0))
    first = wire.put(1, full=True)
    wire.sender.drain()
    wire.sender.answered([(first, Again(BrokerError("busy")))])
    wire.sender.abandon(lambda batch: batch is first, Closed("given up"))
    wire.now = 0.01
    second = wire.put(2)
    wire.now = 1.0
    wire.sender.tick()
    assert wire.sent == [[first], [second]]
    assert wire.sender.wakeup() == pytest.approx(99.01)


def test_a_queue_that_was_emptied_meanwhile_asks_nobody_for_a_link() -> None:
    wire = Quiet(SendTimes(linger=0.0, delivery_timeout=99.0))
    wire.link = None
    wire.put(1, full=True)
    wire.sender.abandon(lambda batch: True, Closed("the producer was closed"))
    wire.sender.drain()
    assert (wire.wanted, wire.sender.due) == ([], False)


def test_a_success_ends_the_pause_of_the_others_of_its_queue() -> None:
    wire = Quiet(SendTimes(linger=0.0, delivery_timeout=50.0), UnnumberedSequencer(2))
    first, second = wire.put(1, full=True), wire.put(2, full=True)
    wire.sender.drain()
    wire.sender.answered([(first, Again(BrokerError("busy")))])
    third = wire.put(3, full=True)
    wire.sender.drain()
    assert wire.sent == [[first], [second]], "until both are back"
    wire.sender.answered([(second, Stored(1))])
    assert wire.sent[2:] == [[first], [third]]
    assert wire.sender.wakeup() == 50.0, "no pause is waited for any more"
