"""The short way of a batch that somebody waits for: what a signal handler leaves that raises in the middle of it."""

from __future__ import annotations

from typing import Any

import pytest

from flow_parts import Batch, Quiet
from wireproto._codec import SequencerCore
from wireproto.errors import Disconnected
from wireproto.flow.queue import PartitionQueue
from wireproto.flow.sender import SendTimes

PACE = SendTimes(linger=1.0, delivery_timeout=100.0)


class Signal(BaseException):
    """What a signal handler raises."""


class Broken(SequencerCore):
    """A sequencer that a handler breaks into, once, in the method of that name."""

    def __init__(self) -> None:
        self.where = ""

    def window(self, queue: PartitionQueue) -> int:
        self.hit("window")
        return 1

    def admit(self, queue: PartitionQueue, batch: Any, now: float) -> bool:
        self.hit("admit")
        return True

    def acked(self, queue: PartitionQueue, batch: Any) -> None:
        """Nothing is kept."""

    starts_over = acked

    def drained(self, queue: PartitionQueue) -> None:
        """Nothing is kept."""

    def hit(self, where: str) -> None:
        if self.where == where:
            self.where = ""
            raise Signal


def warm(wire: Quiet) -> None:
    """A first batch is sent and stored, so that the link is known."""
    first = wire.put(1)
    wire.sender.hurry(first)
    wire.sender.stored(first, 0)
    assert wire.sent == [[first]]
    assert first.outcome.done


@pytest.mark.parametrize("where", ["window", "admit"])
def test_a_handler_that_raises_while_a_batch_is_numbered_costs_neither_the_batch_nor_the_link(where: str) -> None:
    sequencer = Broken()
    wire = Quiet(PACE, sequencer)
    warm(wire)
    second = wire.put(2)
    sequencer.where = where
    with pytest.raises(Signal):
        wire.sender.set_off(second)
    wire.sender.drain()
    assert wire.sent[1:] == [[second]]
    assert (second.number, second.attempts) == (2, 1)
    wire.sender.stored(second, 1)
    third = wire.put(3)
    wire.sender.hurry(third)
    assert wire.sent[2:] == [[third]], "the link's turn is free"


@pytest.mark.parametrize("why", [Signal(), Disconnected("gone")])
def test_a_batch_whose_request_did_not_leave_goes_back_and_the_link_s_turn_is_free(
    why: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = Quiet(PACE)
    warm(wire)
    second = wire.put(2)

    def broken(link: Any, batches: list[Batch]) -> None:
        raise why

    with monkeypatch.context() as patch:
        patch.setattr(wire, "transmit", broken)
        if isinstance(why, Signal):
            with pytest.raises(Signal):
                wire.sender.set_off(second)
            wire.sender.tick()  # the I/O thread mends
        else:
            wire.sender.set_off(second)
    assert wire.link is not None
    assert (wire.link.closed, second.doubtful) == (isinstance(why, Signal),) * 2, "nobody knows whether it left"
    assert not second.outcome.done
    wire.now = 10.0  # behind the pause
    wire.sender.tick()
    assert wire.sent[1:] == [[second]]


def test_a_batch_that_is_stored_lets_the_next_one_of_its_queue_leave() -> None:
    wire = Quiet(PACE)
    warm(wire)
    second = wire.put(2)
    wire.sender.set_off(second)
    third = wire.put(3)
    wire.sender.set_off(third)
    assert wire.sent[1:] == [[second]], "one in flight"
    wire.sender.stored(second, 1)
    assert wire.sent[2:] == [[third]]


def test_a_timer_that_rings_for_what_is_in_flight_rings_again_for_its_delivery_timeout() -> None:
    wire = Quiet(PACE)
    batch = wire.put(1)
    wire.sender.hurry(batch)
    wire.now = 1.5
    wire.sender.tick()
    assert wire.alarms[-1] == 100.0
    wire.now = 100.0
    wire.sender.tick()
    assert [told for told, _ in wire.told] == [batch]
