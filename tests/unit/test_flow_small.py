"""Small promises of the floor that larger tests pass by: what ends in time, what wakes nobody, what is told in how many words."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from flow_parts import Quiet
from patience import LATE, quickest
from wireproto._net import Loop
from wireproto.errors import BrokerError, Closed, OptionError, TimedOut
from wireproto.flow import unacked_warning
from wireproto.flow.budget import Budget
from wireproto.flow.producer import BatchProducer
from wireproto.flow.queue import PartitionQueue, UnnumberedSequencer
from wireproto.flow.resolve import Resolver
from wireproto.flow.sender import Again, SendTimes
from wireproto.kafka.identity import Identity, ProducerState
from wireproto.net.task import Steps, Tasks
from wireproto.position import LogOffset

# queues, senders ------------------------------------------------------------------------------------------------------------------------


def test_a_queue_tells_whether_there_was_anything_to_seal() -> None:
    wire = Quiet(SendTimes(linger=9.0, delivery_timeout=99.0))
    assert PartitionQueue("a", UnnumberedSequencer()).seal() is False, "no batch"
    with wire.sender.lock:
        wire.sender.current("a")
        assert wire.sender.queue("a").seal() is False, "an empty one"
        wire.sender.current_of("a", "lane")
        assert wire.sender.queue("a").seal() is False, "an empty one of a lane"
    batch = wire.put(1)
    with wire.sender.lock:
        assert wire.sender.queue("a").seal() is True
    assert list(batch.queue.ready) == [batch]


@pytest.mark.parametrize("linger", [0.0, 0.3])
@pytest.mark.parametrize("stuck", ["no link", "no answer", "refused"])
def test_a_record_has_most_of_the_delivery_timeout_though_it_joins_a_batch_that_cannot_leave(stuck: str, linger: float) -> None:
    """That counts from a batch's first record, so an open one takes more for an eighth of it only."""
    wire = Quiet(SendTimes(linger=linger, delivery_timeout=60.0), ProducerState(Identity(1, 0), 1))
    if stuck == "no link":
        wire.link = None
    sent: dict[int, float] = {}
    for number in range(1300):
        wire.now = number / 10
        if number < 600 and number % 3 == 0:
            wire.put(number)
            sent[number] = wire.now
        if wire.now >= min(wire.alarms, default=1e9):
            wire.alarms.clear()
            wire.sender.tick()
        if stuck == "refused" and wire.sent:
            (batch,) = wire.sent.pop()
            wire.sender.answered([(batch, Again(BrokerError("busy")))])
        for batch, _ in wire.told:
            for value in batch.values:
                given = wire.now - sent.pop(value)
                assert 60.0 * 7 / 8 - 0.2 <= given <= 60.0 + 0.4
        wire.told.clear()
    assert not sent


@pytest.mark.parametrize("end", ["abandon", "fail", "discard"])
def test_what_was_given_up_while_it_lingered_wakes_nobody(end: str) -> None:
    wire = Quiet(SendTimes(linger=1.0, delivery_timeout=9.0))
    wire.put(1)
    if end == "abandon":
        wire.sender.abandon(lambda batch: True, Closed("given up"))
    elif end == "fail":
        wire.sender.fail(["a"], Closed("the topic ended"))
    else:
        with wire.sender.lock:
            wire.sender.discard("a")
    assert wire.sender.wakeup() == float("inf")


# places ---------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "here, of which there are none$"),
        (1, r"here, t\[0\]$"),
        (4, r"here, t\[0\], t\[1\], t\[2\], t\[3\]$"),
        (5, r"here, t\[0\] … t\[4\]$"),
    ],
)
def test_up_to_four_partitions_are_named(count: int, text: str) -> None:
    with pytest.raises(OptionError, match=text):
        Resolver(LogOffset).requests(LogOffset("t", 9, 0), [("t", number) for number in range(count)])


# a producer's end ------------------------------------------------------------------------------------------------------------------------


class One(BatchProducer):
    """A producer of nothing, whose records leave, or do not."""

    def __init__(self, loop: Loop, *, leaving: bool = False) -> None:
        runtime: Any = SimpleNamespace(loop=loop, tasks=Tasks(loop))
        self.parted: list[float] = []
        self.leaving = leaving
        core: Any = Quiet(SendTimes(linger=0.0, delivery_timeout=99.0)).sender
        super().__init__(runtime, Budget(loop, 1 << 20), "t", core, linger=0.0, delivery_timeout=99.0)

    def _leaving(self) -> bool:
        return self.leaving

    def _closing_steps(self, deadline: float) -> Steps[None]:
        self.parted.append(deadline)
        yield from ()


def test_a_flush_waits_for_what_needs_no_answer_to_have_left_and_tells_when_it_has_not() -> None:
    loop = Loop("test")
    try:
        producer = One(loop, leaving=True)

        def flush() -> None:
            with pytest.raises(TimedOut, match=r"not all records were sent within 0\.3 s") as caught:
                producer.flush(0.3)
            assert caught.value.topic == "t"

        assert 0.3 * 0.9 <= quickest(flush, 3) < 0.3 + LATE
        producer.leaving = False
        producer.flush(0.0)
    finally:
        loop.close()


def test_brokers_are_to_forget_a_producer_within_the_time_of_its_close() -> None:
    loop = Loop("test")
    try:
        producer = One(loop)
        begun = time.monotonic()
        producer.close(100.0)
        assert [begun + 100.0 <= until <= time.monotonic() + 100.0 for until in producer.parted] == [True]
        producer.close(100.0)
        assert len(producer.parted) == 1
        with pytest.raises(Closed):
            producer._usable()
    finally:
        loop.close()


# records that nobody waited for -----------------------------------------------------------------------------------------------------------


def test_a_program_s_end_is_looked_at_from_its_first_client_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registered anew with the first one, so that it runs before what was registered earlier, and once."""
    registered: list[str] = []
    exits = SimpleNamespace(register=lambda what: registered.append("on"), unregister=lambda what: registered.append("off"))
    monkeypatch.setattr(unacked_warning, "atexit", exits)
    clients: list[Any] = [type("Client", (), {"holders": lambda self: []})() for _ in range(2)]
    monkeypatch.setattr(unacked_warning, "_watched", type(unacked_warning._watched)())
    unacked_warning.watch(clients[0])
    assert registered == ["off", "on"]
    unacked_warning.watch(clients[1])
    assert registered == ["off", "on"]
    assert set(unacked_warning._watched) == set(clients)
