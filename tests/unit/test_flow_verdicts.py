"""What becomes of batches, verdict by verdict: requests that do not leave, queues that start over, ends, times, lanes, and who is told."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from flow_parts import Batch, Link, Quiet
from wireproto.errors import BrokerError, BufferFull, Closed, Disconnected, Malformed, TimedOut, ValueUnsupported, WireprotoError
from wireproto.flow.queue import PartitionQueue, UnnumberedSequencer
from wireproto.flow.sender import AT_ONCE, Again, Refused, SendTimes, StartOver, Stored

PACE = SendTimes(linger=0.0, delivery_timeout=1e9)


class ClientLog:
    """The client's log: cause and line."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, Any, str]] = []

    def info(self, cause: Any, text: str, *args: object) -> None:
        self.lines.append(("info", cause, text % args))

    def warning(self, cause: Any, text: str, *args: object) -> None:
        self.lines.append(("warning", cause, text % args))


def values(wire: Quiet) -> list[list[int]]:
    return [batch.values for request in wire.sent for batch in request]


def on_its_way(wire: Quiet, value: int = 1, key: Any = "a") -> Batch:
    """A batch of one record, sent and not answered."""
    batch = wire.put(value, key, full=True)
    wire.sender.drain()
    assert batch in batch.queue.in_flight
    return batch


# requests that do not leave -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("short", [True, False], ids=["alone", "among others"])
@pytest.mark.parametrize(
    ("why", "again"),
    [(BufferFull("no room"), True), (Disconnected("gone"), True), (ValueUnsupported("no"), False), (Malformed("no"), False)],
    ids=lambda value: type(value).__name__ if isinstance(value, WireprotoError) else str(value),
)
def test_what_cannot_be_sent_goes_again_where_that_may_pass_and_fails_where_it_cannot(
    why: WireprotoError, again: bool, short: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = Quiet(PACE)
    wire.sender.stored(on_its_way(wire), 0)

    def broken(link: Any, batches: list[Batch]) -> None:
        raise why

    batch = wire.put(2, full=not short)
    with monkeypatch.context() as patch:
        patch.setattr(wire, "transmit", broken)
        (partial(wire.sender.set_off, batch) if short else wire.sender.drain)()
    assert wire.link is not None
    assert not wire.link.closed, "it is known that nothing left"
    if not again:
        assert (batch.outcome.error, wire.told, batch in wire.free) == (why, [(batch, why)], True)
        assert wire.put(3).queue.held_until == 0.0, "the next one may leave"
        return
    assert not batch.outcome.done
    assert (batch.doubtful, 0.08 <= batch.queue.held_until <= 0.12) == (False, True)
    assert "last trouble" in batch.queue.last_error_text(batch)
    for _ in range(2):  # what it was set for before may come first
        wire.now = wire.alarms[-1]
        wire.sender.tick()
    assert values(wire) == [[1], [2]]


def test_of_several_requests_the_one_that_does_not_leave_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Quiet(PACE)
    made = [wire.put(number, key, full=True) for number, key in enumerate("abc")]
    wire.requests = lambda link, batches: [[batch] for batch in batches]  # type: ignore[method-assign]
    transmit = wire.transmit

    def partly(link: Link, batches: list[Batch]) -> None:
        if batches == [made[1]]:
            raise ValueUnsupported("no")
        transmit(link, batches)

    monkeypatch.setattr(wire, "transmit", partly)
    wire.sender.drain()
    assert wire.sent == [[made[0]], [made[2]]]
    assert [batch.outcome.done for batch in made] == [False, True, False]


def test_a_signal_between_two_requests_puts_back_those_that_were_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Quiet(PACE)
    made = [wire.put(number, key, full=True) for number, key in enumerate("abc")]
    wire.requests = lambda link, batches: [[batch] for batch in batches]  # type: ignore[method-assign]
    transmit = wire.transmit

    def broken(link: Link, batches: list[Batch]) -> None:
        if batches == [made[1]]:
            raise KeyboardInterrupt
        transmit(link, batches)

    with monkeypatch.context() as patch:
        patch.setattr(wire, "transmit", broken)
        with pytest.raises(KeyboardInterrupt):
            wire.sender.drain()
    assert wire.alarms[-1] == 0.0, "the timer goes on with it"
    wire.sender.tick()
    assert [(len(batch.queue.in_flight), len(batch.queue.ready)) for batch in made] == [(1, 0), (0, 1), (0, 1)]
    wire.sender.answered([(made[0], Again(Disconnected("gone"), doubtful=True))])  # the connection is lost with it
    wire.now = 5.0
    wire.sender.tick()
    assert values(wire)[1:] in ([[0], [1], [2]], [[1], [2], [0]])


# who starts over --------------------------------------------------------------------------------------------------------------------


def test_who_starts_over_does_so_at_once_a_few_times_and_with_pauses_then() -> None:
    wire = Quiet(PACE)
    batch = on_its_way(wire)
    for _ in range(AT_ONCE):
        sendings = len(wire.sent)
        wire.sender.answered([(batch, StartOver(BrokerError("it does not follow")))])
        assert len(wire.sent) == sendings + 1, "at once"
        assert not wire.sender.queue("a").held_until
    for _ in range(2):
        sendings = len(wire.sent)
        wire.sender.answered([(batch, StartOver(BrokerError("it does not follow")))])
        assert len(wire.sent) == sendings, "behind a pause"
        assert 0.5 < wire.sender.queue("a").held_until - wire.now <= 1.2, "as long as after so many refusals"
        wire.now = wire.sender.queue("a").held_until
        wire.sender.tick()
        assert len(wire.sent) == sendings + 1
    assert AT_ONCE == 3
    assert "it does not follow" in batch.queue.last_error_text(batch)
    wire.sender.answered([(batch, Stored(0))])
    second = on_its_way(wire, 2)
    sendings = len(wire.sent)
    wire.sender.answered([(second, StartOver(BrokerError("it does not follow")))])
    assert len(wire.sent) == sendings + 1, "at once again: one was stored meanwhile"


def test_again_without_a_pause_leaves_at_once_and_counts_as_no_failure() -> None:
    wire = Quiet(PACE)
    batch = on_its_way(wire)
    wire.sender.answered([(batch, Again(BrokerError("moved"), now=True))])
    assert wire.sent == [[batch], [batch]]
    assert (batch.queue.failures, batch.queue.held_until, batch.doubtful, batch.attempts) == (0, 0.0, False, 2)
    assert "moved" in batch.queue.last_error_text(batch)


# who is told ------------------------------------------------------------------------------------------------------------------------


def test_the_log_hears_of_what_goes_again_and_of_what_failed() -> None:
    log = ClientLog()
    wire = Quiet(PACE, log=log)
    batch, other = on_its_way(wire), on_its_way(wire, 2, "b")
    wire.sender.answered([(other, Stored(0))])
    assert log.lines == [], "what goes well is not told"
    busy, over, no = BrokerError("busy"), BrokerError("it does not follow"), BrokerError("no")
    wire.sender.answered([(batch, Again(busy, now=True))])
    assert log.lines.pop() == ("info", ("resent", BrokerError), f"a: 1 records are sent again: {busy}")
    wire.sender.answered([(batch, StartOver(over))])
    assert log.lines.pop() == ("info", ("resent", BrokerError), f"a: 1 records are sent again: {over}")
    wire.sender.answered([(batch, Refused(no))])
    assert log.lines.pop() == ("warning", ("refused", BrokerError), f"1 records were not stored: {no}")
    wire.sender.answered([(batch, Refused(no))])
    assert log.lines == [], "once"
    third = on_its_way(wire, 3)
    wire.sender.answered([(third, Again(None, now=True))])
    assert log.lines == [], "nobody knows why"


def test_a_refusal_that_comes_twice_is_one_failure() -> None:
    wire = Quiet(PACE)
    batch = on_its_way(wire)
    why = BrokerError("no")
    for _ in range(2):
        wire.sender.answered([(batch, Refused(why))])
    assert wire.told == [(batch, why)]
    assert batch.outcome.error is why
    assert on_its_way(wire, 2) is not batch


def test_outcomes_are_told_when_the_room_is_free_and_the_failure_noted() -> None:
    """Who waits for it finds everything done."""
    wire = Quiet(PACE)
    for verdict in (Stored(7), Refused(BrokerError("no"))):
        batch = on_its_way(wire)
        found: list[tuple[bool, int]] = []
        note = lambda value, batch=batch, found=found: found.append((batch in wire.free, len(wire.told)))  # noqa: E731
        batch.outcome.set = batch.outcome.fail = note  # type: ignore[method-assign]
        wire.sender.answered([(batch, verdict)])
        assert found == [(True, len(wire.told))]
    assert len(wire.told) == 1


# ends -------------------------------------------------------------------------------------------------------------------------------


def test_what_is_given_up_fails_and_is_sent_no_more_and_the_queue_goes_on_behind_its_answer() -> None:
    wire = Quiet(SendTimes(linger=9.0, delivery_timeout=99.0))
    flying, ready, opened, other = on_its_way(wire), wire.put(2, full=True), wire.put(3), wire.put(4, "b")
    why = Closed("the producer was closed")
    wire.sender.abandon(lambda batch: batch is not other, why)
    assert wire.told == [(flying, why), (ready, why), (opened, why)]
    assert [batch.outcome.error for batch in (flying, ready, opened)] == [why] * 3
    assert (opened.sealed, other.outcome.done) == (True, False)
    assert wire.sender.unsettled(lambda batch: True) == [other]
    later = wire.put(5, full=True)
    wire.sender.drain()
    assert wire.sent == [[flying]], "it may be stored: what follows is behind its answer"
    wire.sender.answered([(flying, Stored(0))])
    assert wire.sent == [[flying], [later]]
    assert len(wire.told) == 3
    wire.sender.hurry_all()
    assert wire.sent[2:] == [[other]]


def test_a_queue_that_ends_before_it_had_anything_takes_nothing_either() -> None:
    wire = Quiet(PACE)
    wire.sender.fail(["a"], Closed("the topic ended"))
    for take in (partial(wire.sender.current, "a"), partial(wire.sender.current_of, "a", "lane")):
        with pytest.raises(Closed, match="the topic ended") as first, wire.sender.lock:
            take()
        with pytest.raises(Closed) as second, wire.sender.lock:
            take()
        assert first.value is not second.value, "an error object belongs to one thread"
    assert wire.put(1, "b").count == 1


def test_what_comes_back_to_a_queue_that_ended_is_not_sent_again() -> None:
    wire = Quiet(PACE)
    batch = on_its_way(wire)
    wire.sender.fail(["a"], Closed("the topic ended"))
    wire.sender.answered([(batch, Again(Disconnected("gone"), doubtful=True))])
    wire.now = 5.0
    wire.sender.tick()
    wire.sender.ready(None)
    assert wire.sent == [[batch]]
    assert not wire.sender.due
    assert len(wire.told) == 1


# times ------------------------------------------------------------------------------------------------------------------------------


def test_the_timer_is_asked_for_what_comes_first_and_only_where_that_is_sooner() -> None:
    wire = Quiet(SendTimes(linger=2.0, delivery_timeout=10.0))
    assert wire.sender.wakeup() == float("inf")
    first = wire.put(1)
    assert wire.sender.wakeup() == 2.0
    wire.sender.hurry(first)
    assert wire.sender.wakeup() == 10.0
    wire.now = 1.0
    wire.put(2, "b")
    assert wire.sender.wakeup() == 3.0
    wire.sender.answered([(first, Again(BrokerError("busy")))])
    assert 1.08 <= wire.sender.wakeup() <= 1.12, "the end of its pause"
    assert wire.alarms == sorted(wire.alarms, reverse=True), "it is never put off"
    assert len(set(wire.alarms)) == len(wire.alarms)


def test_a_batch_that_stays_empty_ends_unnoticed() -> None:
    """The record that it was opened for was refused."""
    wire = Quiet(SendTimes(linger=1.0, delivery_timeout=3.0))
    with wire.sender.lock:
        empty = wire.sender.current("a")
    full = wire.put(1, "b")
    wire.now = 3.0
    wire.sender.tick()
    assert wire.told == [(full, full.outcome.error)]
    assert (empty.outcome.done, wire.sender.unsettled(lambda batch: True)) == (False, [])
    assert wire.put(2) is not empty


def test_an_empty_batch_whose_linger_is_over_is_not_sent_and_the_next_one_is() -> None:
    wire = Quiet(SendTimes(linger=1.0, delivery_timeout=30.0))
    with wire.sender.lock:
        empty = wire.sender.current("a")
    batch = wire.put(1, "b")
    wire.now = 1.0
    wire.sender.tick()
    assert wire.sent == [[batch]]
    assert empty.sealed
    second = wire.put(2)
    wire.now = 2.0
    wire.sender.tick()
    assert wire.sent == [[batch], [second]]


def test_a_timer_that_a_signal_breaks_into_is_set_again(monkeypatch: pytest.MonkeyPatch) -> None:
    wire = Quiet(SendTimes(linger=1.0, delivery_timeout=30.0))
    batch = wire.put(1)

    def broken(link: Any, batches: list[Batch]) -> None:
        raise KeyboardInterrupt

    wire.now = 1.0
    with monkeypatch.context() as patch:
        patch.setattr(wire, "transmit", broken)
        with pytest.raises(KeyboardInterrupt):
            wire.sender.tick()
    assert 0.0 in wire.alarms
    wire.link = Link(0)
    for _ in range(2):
        wire.sender.tick()
        wire.now = max(wire.alarms[-1], wire.now)
    wire.sender.tick()
    assert wire.sent == [[batch]]


def test_the_oldest_of_what_leaves_together_is_first_whichever_was_sealed_first() -> None:
    wire = Quiet(SendTimes(linger=9.0, delivery_timeout=99.0))
    first = wire.put(1, "a")
    wire.now = 1.0
    second = wire.put(2, "b")
    for key in "ba":
        with wire.sender.lock:
            wire.sender.seal(key)
    assert list(wire.sender._due) == ["b", "a"]
    wire.sender.drain()
    assert wire.sent == [[first, second]]


# links ------------------------------------------------------------------------------------------------------------------------------


def test_a_link_that_is_lost_is_forgotten() -> None:
    wire = Quiet(PACE)
    for number in range(20):
        batch = on_its_way(wire, number)
        wire.sender.answered([(batch, Stored(0))])
        assert len(wire.sender._outlets) == 1
        lost, wire.link = wire.link, Link(number)
        wire.sender.link_lost(lost)
    assert wire.sender._outlets == {}


@pytest.mark.parametrize("full", [True, False])
def test_who_comes_while_another_sends_leaves_it_to_that_one(full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread a link at a time; nobody waits for another, and nothing is left lying."""
    wire = Quiet(PACE)
    wire.sender.stored(on_its_way(wire), 0)
    transmit = wire.transmit
    begun, go_on = threading.Event(), threading.Event()

    def slow(link: Link, batches: list[Batch]) -> None:
        if batches[0].values == [2]:
            begun.set()
            assert go_on.wait(30.0)
        transmit(link, batches)

    monkeypatch.setattr(wire, "transmit", slow)
    second = wire.put(2, full=full)
    thread = threading.Thread(target=wire.sender.drain if full else partial(wire.sender.set_off, second), daemon=True)
    thread.start()
    assert begun.wait(30.0)
    third, fourth = wire.put(3, "b", full=True), wire.put(4, "c")
    wire.sender.drain()
    wire.sender.set_off(fourth)
    assert values(wire) == [[1]], "nobody sends beside another"
    go_on.set()
    thread.join(30.0)
    assert not thread.is_alive()
    assert sorted(values(wire)) == [[1], [2], [3], [4]]
    assert all(batch in batch.queue.in_flight for batch in (second, third, fourth))


class Unnumbered(UnnumberedSequencer):
    """A sequencer that gives no numbers until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may = False

    def admit(self, queue: PartitionQueue, batch: Any, now: float) -> bool:
        return self.may


@pytest.mark.parametrize("how", ["drain", "set_off"])
def test_what_cannot_be_numbered_yet_is_asked_for_once_and_leaves_when_it_can(how: str) -> None:
    sequencer = Unnumbered()
    wire = Quiet(PACE, sequencer)
    batch = wire.put(1, full=how == "drain")
    for _ in range(3):
        (wire.sender.drain if how == "drain" else partial(wire.sender.hurry, batch))()
    assert (wire.sent, wire.wanted) == ([], [{"a"}])
    assert batch.number == 0
    sequencer.may = True
    wire.sender.ready(["a"])
    assert wire.sent == [[batch]]
    assert (batch.number, batch.attempts) == (1, 1)


def test_trouble_that_is_met_while_a_batch_waits_is_told_with_it() -> None:
    wire = Quiet(SendTimes(linger=0.0, delivery_timeout=3.0))
    wire.link = None
    batch = wire.put(1, full=True)
    wire.sender.drain()
    wire.now = 1.0
    wire.sender.note_error(["a", "b"], Disconnected("no leader"))
    assert batch.queue.last_error_text(batch) == f"; last trouble: {Disconnected('no leader')}"
    assert batch.queue.held_until == 0.0, "that is no refusal"
    wire.now = 3.0
    wire.sender.tick()
    assert isinstance(batch.outcome.error, TimedOut)
    assert "no leader" in batch.outcome.error.text


# other keys -------------------------------------------------------------------------------------------------------------------------


def test_what_goes_by_another_key_is_in_the_order_of_creation_there_and_numbered_anew() -> None:
    wire = Quiet(PACE)
    before = on_its_way(wire, 0, "b")
    first = wire.put(1, "a", full=True)
    between = wire.put(2, "b", full=True)
    last = wire.put(3, "a")
    wire.link, link = None, wire.link
    wire.sender.drain()
    wire.sender.note_error(["a"], Disconnected("gone"))
    with wire.sender.lock:
        wire.sender.move("a", lambda batch: "b")
    assert [batch.queue.key for batch in (first, last)] == ["b", "b"]
    assert last.sealed
    assert list(before.queue.ready) == [first, between, last]
    assert "gone" in before.queue.last_error_text(first), "what it met goes along"
    wire.link = link
    wire.sender.answered([(before, Stored(0))])
    wire.sender.ready(None)
    for batch in (first, between, last):
        assert wire.sent[-1] == [batch]
        wire.sender.answered([(batch, Stored(0))])
    assert [batch.number for batch in (before, first, between, last)] == [1, 2, 3, 4]


def test_what_moves_from_a_key_that_was_waited_for_waits_no_longer() -> None:
    wire = Quiet(PACE)
    wire.link, link = None, wire.link
    batch = wire.put(1, "lane", full=True)
    wire.sender.drain()
    wire.link = link
    with wire.sender.lock:
        wire.sender.move("lane", lambda batch: "a")
    wire.sender.drain()
    assert wire.sent == [[batch]]
    later = wire.put(2, "lane", full=True)
    wire.sender.drain()
    assert wire.sent[1:] == [[later]], "what comes to it later finds the link that is there now"
    wire.sender.ready(None)
    assert len(wire.sent) == 2


# several open batches of a key ---------------------------------------------------------------------------------------------------------


def beside(wire: Quiet, value: int, lane: Any) -> Batch:
    with wire.sender.lock:
        batch: Batch = wire.sender.current_of("a", lane) if lane is not None else wire.sender.current("a")
        batch.hold(value)
    if batch.count == 1:
        wire.sender.opened(batch)
    return batch


Way = Callable[[Quiet, Batch], object]


def _ticks(wire: Quiet, batch: Batch) -> None:
    wire.now = 1.0
    wire.sender.tick()


WAYS: dict[str, Way] = {
    "hurry": lambda wire, batch: wire.sender.hurry(batch),
    "set off": lambda wire, batch: wire.sender.set_off(batch),
    "hurry all": lambda wire, batch: wire.sender.hurry_all(),
    "hurried": lambda wire, batch: wire.sender.hurried(lambda other: other is batch),
    "linger": _ticks,
}


@pytest.mark.parametrize("way", WAYS)
def test_batches_of_several_lanes_are_sealed_together_and_leave_in_order(way: str) -> None:
    wire = Quiet(SendTimes(linger=1.0, delivery_timeout=9.0), UnnumberedSequencer(5))
    made = [beside(wire, number, lane) for number, lane in enumerate(["x", None, "y"])]
    assert beside(wire, 7, "x") is made[0]
    WAYS[way](wire, made[2])
    assert wire.sent == [[batch] for batch in made]
    assert all(batch.sealed for batch in made)
    assert beside(wire, 8, "x") is not made[0]


def test_a_batch_of_a_lane_whose_time_is_over_takes_no_more() -> None:
    wire = Quiet(SendTimes(linger=9.0, delivery_timeout=3.0))
    early = beside(wire, 1, "x")
    wire.now = 1.0
    late = beside(wire, 2, "y")
    wire.now = 3.0
    wire.sender.tick()
    assert [batch for batch, _ in wire.told] == [early]
    assert early.sealed
    assert not late.sealed
    assert beside(wire, 3, "x") is not early
    assert beside(wire, 4, "y") is late


# steps cost what there is to do ----------------------------------------------------------------------------------------------------------


def test_what_waits_is_not_looked_at_until_that_comes() -> None:
    """For an answer, the end of a pause, a link: nothing is due meanwhile, and nobody is asked again."""
    wire = Quiet(PACE)
    batch = wire.put(1, full=True)
    assert wire.sender.due
    wire.sender.drain()
    wire.put(2, full=True)
    wire.sender.drain()
    assert not wire.sender.due, "an answer"
    wire.sender.answered([(batch, Again(BrokerError("busy")))])
    assert not wire.sender.due, "the end of a pause"
    wire.put(3, full=True)
    assert not wire.sender.due, "though more comes"
    wire.now, wire.link = 5.0, None
    wire.sender.tick()
    wire.put(4, full=True)
    wire.sender.drain()
    assert (wire.sender.due, wire.wanted) == (False, [{"a"}]), "a link"


def test_what_is_due_for_a_link_that_came_up_meanwhile_leaves_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its leader is another one by the time when the first request is out."""
    wire = Quiet(PACE)
    made, other = {key: wire.put(1, key, full=True) for key in "ab"}, Link(1)
    links: dict[Any, Any] = {"a": wire.link, "b": wire.link}
    monkeypatch.setattr(wire, "target", links.__getitem__)
    full: list[Link] = []
    monkeypatch.setattr(wire, "congested", full.__contains__)

    def transmit(link: Link, batches: list[Batch]) -> None:
        wire.sent.append(batches)
        links["c"] = other
        wire.put(9, "c", full=True)
        monkeypatch.setattr(wire, "transmit", lambda link, batches: wire.sent.append(batches))

    monkeypatch.setattr(wire, "transmit", transmit)
    wire.sender.drain()
    assert [batch.queue.key for request in wire.sent for batch in request] == ["a", "b", "c"]
    assert not wire.sender.due
    assert made["a"].queue.in_flight


@pytest.mark.parametrize("lane", [None, "x"])
def test_who_hurries_a_batch_that_is_full_sends_it(lane: Any) -> None:
    wire = Quiet(SendTimes(linger=9.0, delivery_timeout=99.0))
    batch = beside(wire, 1, lane)
    with wire.sender.lock:
        wire.sender.seal("a")
    wire.sender.hurry(batch)
    assert wire.sent == [[batch]]


def test_a_flush_waits_for_each_batch_that_holds_records_and_is_not_settled() -> None:
    wire = Quiet(SendTimes(linger=9.0, delivery_timeout=99.0))
    made = [wire.put(number, key) for number, key in enumerate("abc")]
    with wire.sender.lock:
        wire.sender.current("empty")
    steps: Any = wire.sender.flushing(7.0, lambda batch: True)
    assert next(steps) == (made[0].outcome, 7.0)
    assert wire.sent == [made]
    later = wire.put(9, "d")
    wire.sender.answered([(made[0], Stored(0)), (made[1], Refused(BrokerError("no")))])
    assert steps.send(True) == (made[2].outcome, 7.0), "whatever the outcome of the others"
    wire.sender.answered([(made[2], Stored(0))])
    with pytest.raises(StopIteration):
        steps.send(True)
    assert not later.outcome.done, "what came later is not waited for"


def test_what_has_ended_is_not_kept() -> None:
    wire = Quiet(SendTimes(linger=1.0, delivery_timeout=99.0))
    flying, waiting, opened, other = on_its_way(wire), wire.put(2, full=True), wire.put(3), wire.put(4, "b")
    wire.sender.fail(["a"], Closed("the topic ended"))
    assert wire.sender.unsettled(lambda batch: True) == [other]
    wire.sender.answered([(flying, Stored(0))])
    assert [batch for batch, _ in wire.told] == [flying, waiting, opened]
    with wire.sender.lock:
        wire.sender.current("c")
        wire.sender.seal("c")
        wire.sender.seal("never used")
    assert wire.sender.unsettled(lambda batch: True) == [other], "nothing was in it"
