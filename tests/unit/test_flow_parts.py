"""The floor's small parts one by one: the timer that several want, failures that nobody was told of, a producer of many topics."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from wireproto._codec import Columns
from wireproto._net import Loop as Engine
from wireproto.errors import BrokerError, Closed, TimedOut, WireprotoError
from wireproto.flow import unreported_errors
from wireproto.flow.alarm import Alarm
from wireproto.flow.topics import TopicsProducer
from wireproto.flow.unreported_errors import UnreportedErrors

# a timer ----------------------------------------------------------------------------------------------------------------------------


class Timer:
    def __init__(self, when: float, ring: Callable[[], object]) -> None:
        self.when, self.ring = when, ring
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Loop:
    """Stands for the engine: timers that ring when they are told to."""

    def __init__(self) -> None:
        self.timers: list[Timer] = []

    def call_at(self, when: float, ring: Callable[[], object]) -> Timer:
        self.timers.append(Timer(when, ring))
        return self.timers[-1]

    @property
    def set(self) -> list[float]:
        return [timer.when for timer in self.timers if not timer.cancelled]


def alarm() -> tuple[Alarm, Loop, list[str]]:
    loop: Any = Loop()
    rung: list[str] = []
    return Alarm(loop, lambda: rung.append("due")), loop, rung


def test_an_alarm_rings_at_the_soonest_of_its_times() -> None:
    made, loop, rung = alarm()
    for when in (5.0, 7.0, 5.0):
        made.set(when)
        assert loop.set == [5.0], "it is never put off"
    made.set(3.0)
    assert loop.set == [3.0], "one timer"
    assert not rung
    loop.timers[-1].ring()
    assert rung == ["due"]


def test_an_alarm_that_has_rung_can_be_set_for_later_also_while_it_rings() -> None:
    loop: Any = Loop()
    made = Alarm(loop, lambda: made.set(9.0))
    made.set(3.0)
    loop.timers[-1].ring()
    assert [timer.when for timer in loop.timers] == [3.0, 9.0]
    made.set(10.0)
    assert len(loop.timers) == 2


def test_an_alarm_that_is_stopped_is_silent_until_it_is_set_again() -> None:
    made, loop, _ = alarm()
    made.stop()
    made.set(3.0)
    made.stop()
    assert loop.set == []
    made.stop()
    made.set(8.0)
    assert loop.set == [8.0], "what was set before does not count any more"


# failures that nobody was told of -----------------------------------------------------------------------------------------------------

ONE, TWO = BrokerError("one"), BrokerError("two")


def test_an_alarm_that_rings_while_the_client_closes_raises_nothing_in_the_io_thread() -> None:
    """Who sets it then is told."""
    loop = Engine("closing")
    rung: list[float] = []

    def due() -> None:
        rung.append(time.monotonic())
        alarm.set(time.monotonic() + 60.0)

    alarm = Alarm(loop, due)
    loop.close()
    alarm._ring()
    assert len(rung) == 1
    with pytest.raises(Closed):
        alarm.set(time.monotonic())


def test_the_first_failure_that_no_receipt_told_is_taken_once() -> None:
    kept = UnreportedErrors()
    assert kept.take() is None
    kept.note(1, ONE)
    kept.note(2, TWO)
    kept.reported(1)
    assert len(kept) == 1
    assert kept.take() is TWO
    assert kept.take() is None, "all count as told"
    kept.note(1, ONE)
    kept.note(2, TWO)
    assert (kept.take(), kept.take()) == (ONE, None)


def test_a_batch_is_told_when_each_of_its_records_is() -> None:
    kept = UnreportedErrors()
    kept.note("batch", ONE, 3)
    for index in (0, 1, 1, 0):
        kept.reported("batch", index)
    assert len(kept) == 1
    kept.reported("other", 2)
    assert len(kept) == 1
    kept.reported("batch", 2)
    assert (len(kept), kept.take()) == (0, None)
    kept.reported("batch", 2)  # its receipt tells it again


def test_of_thousands_that_fail_few_are_kept_and_none_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unreported_errors.MOST == 1000
    monkeypatch.setattr(unreported_errors, "MOST", 3)
    kept, last = UnreportedErrors(), BrokerError("the fourth")
    for number in range(3):
        kept.note(number, ONE)
    kept.note(3, last)
    kept.note(4, TWO)
    assert len(kept) == 3
    for number in range(3):
        kept.reported(number)
    assert kept.take() is last, "the first of those that are not kept apart"
    assert kept.take() is None
    kept.note(5, TWO)
    assert kept.take() is TWO


# many topics --------------------------------------------------------------------------------------------------------------------------


class One:
    """A producer of one topic: keeps what it was called with, and fails as told."""

    def __init__(self, topic: str, timeout: float) -> None:
        self.topic, self.timeout = topic, timeout
        self.calls: list[tuple[str, Any]] = []
        self.problem: WireprotoError | None = None
        self.takes = 0.0

    def send(self, value: Any, **how: Any) -> Any:
        self.calls.append(("send", (value, how)))
        return f"receipt of {self.topic}"

    def send_batch(self, columns: Any, *, partition: int | None = None, timeout: float = 30.0) -> list[Any]:
        self.calls.append(("send_batch", (columns, partition, timeout)))
        return [f"rows of {self.topic}"]

    def flush(self, timeout: float = 30.0) -> None:
        self._end("flush", timeout)

    def close(self, timeout: float = 30.0) -> None:
        self._end("close", timeout)

    def _end(self, what: str, timeout: float) -> None:
        self.calls.append((what, timeout))
        time.sleep(self.takes)
        if self.problem is not None:
            raise self.problem


class Many:
    """Makes them; `made` holds each."""

    def __init__(self) -> None:
        self.made: list[One] = []
        self.beside: Callable[[], object] = lambda: None

    def __call__(self, topic: str, timeout: float) -> Any:
        made = One(topic, timeout)
        self.made.append(made)
        self.beside()
        return made


def many() -> tuple[TopicsProducer[Any], Many]:
    make = Many()
    return TopicsProducer(make), make


def test_each_topic_gets_one_producer_at_its_first_record() -> None:
    out, make = many()
    how: dict[str, Any] = {"key": b"k", "headers": {"h": b"v"}, "timestamp": 7, "partition": 3, "timeout": 2.5}
    assert out.send(b"x", topic="a", **how) == "receipt of a"
    out.send(b"y", topic="a")
    out.send(b"z", topic="b")
    assert [(one.topic, one.timeout) for one in make.made] == [("a", 2.5), ("b", 30.0)]
    assert make.made[0].calls[0] == ("send", (b"x", how))
    assert out.to("a") is make.made[0]


def test_rows_go_by_topic_and_all_keep_one_deadline() -> None:
    out, make = many()
    rows = Columns.from_rows([b"x"])
    assert out.send_batch(rows, topic="a", partition=2, timeout=9.0) == ["rows of a"]
    assert make.made[0].calls == [("send_batch", (rows, 2, 9.0))]
    assert make.made[0].timeout == 9.0
    batch = pa.RecordBatch.from_pydict({"topic": ["a", "b", "a"], "value": [b"0", b"1", b"2"]})
    make.beside = lambda: time.sleep(0.2)
    assert out.send_batch(batch, partition=1, timeout=900.0) == ["rows of a", "rows of b"]
    assert 800.0 < make.made[1].timeout <= 900.0
    for one in make.made:
        name, (part, partition, left) = one.calls[-1]
        assert (name, partition) == ("send_batch", 1)
        assert 800.0 < left <= 899.8, "what the look-up took is not left for it"
        assert list(part.values()) == {"a": [b"0", b"2"], "b": [b"1"]}[one.topic]
    out.send_batch(batch, timeout=-1.0)
    assert make.made[0].calls[-1][1][2] == 0.0


@pytest.mark.parametrize("what", ["flush", "close"])
def test_the_end_of_all_topics_is_asked_of_each_and_the_first_failure_is_told(what: str) -> None:
    out, make = many()
    for topic in "abc":
        out.send(b"x", topic=topic)
    make.made[0].problem, make.made[1].problem = ONE, TWO
    make.made[0].takes = 0.2
    with pytest.raises(BrokerError) as caught:
        getattr(out, what)(500.0)
    assert caught.value is ONE
    ends = [one.calls[-1] for one in make.made]
    assert [name for name, _ in ends] == [what] * 3
    assert 400.0 < ends[0][1] <= 500.0
    assert 400.0 < ends[1][1] <= 499.8
    make.made[0].problem = make.made[1].problem = None
    make.made[0].takes = 0.0
    getattr(out, what)(0.0)
    assert [one.calls[-1] for one in make.made] == [(what, 0.0)] * 3


def test_only_the_topics_that_were_named_last_are_kept() -> None:
    out, make = many()
    for topic in "abcd":
        out.send(b"x", topic=topic)
    out.keep(4, 5.0)
    assert out.topics == ["a", "b", "c", "d"]
    make.made[0].problem = ONE
    with pytest.raises(BrokerError) as caught:
        out.keep(2, 5.0)
    assert caught.value is ONE
    assert out.topics == ["c", "d"]
    assert [one.calls[-1][0] for one in make.made] == ["close", "close", "send", "send"]
    out.send(b"x", topic="a")
    assert [one.topic for one in make.made] == ["a", "b", "c", "d", "a"], "looked up again"
    out.keep(0, 5.0)
    assert out.topics == []


def test_a_closed_one_takes_no_more_and_says_of_which_topic() -> None:
    out, make = many()
    out.send(b"x", topic="a")
    out.close()
    with pytest.raises(Closed, match="the producer is closed") as caught:
        out.send(b"x", topic="b")
    assert caught.value.topic == "b"
    for topic in (None, "a", "b"):
        with pytest.raises(Closed):
            out.send_batch(Columns.from_rows([b"x"]), topic=topic)
    assert [one.topic for one in make.made] == ["a"]
    assert make.made[0].calls[-1][0] == "close"


def test_of_two_made_at_once_one_is_kept_and_the_other_closed_without_waiting() -> None:
    out, make = many()

    def again() -> None:
        make.beside = lambda: None
        assert out.to("a") is make.made[1]

    make.beside = again
    assert out.to("a") is make.made[1], "the one that was there first"
    assert make.made[0].calls == [("close", 0.0)]
    assert make.made[1].calls == []


def test_one_that_is_closed_while_a_topic_is_looked_up_leaves_no_producer_behind() -> None:
    out, make = many()
    make.beside = out.close
    with pytest.raises(Closed):
        out.to("a")
    assert make.made[0].calls[-1] == ("close", 0.0)


def test_a_topic_that_cannot_be_looked_up_is_asked_for_again() -> None:
    out, make = many()

    def fail() -> None:
        make.beside = lambda: None
        raise TimedOut("no route")

    make.beside = fail
    with pytest.raises(TimedOut):
        out.send(b"x", topic="a")
    assert out.send(b"x", topic="a") == "receipt of a"
