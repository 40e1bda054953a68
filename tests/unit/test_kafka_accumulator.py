"""The accumulator against a model of a broker that numbers batches as Kafka does: exactly once and in order, whatever gets lost."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wireproto.kafka.accumulator import Accumulator, Identity, Outgoing, Pace

PACE = Pace(linger=0.0, delivery_timeout=1e9, backoff=0.1, backoff_max=1.0, in_flight=5, idempotent=True)


class Builder:
    """Stands for the core's batch builder: holds the values."""

    def __init__(self) -> None:
        self.values: list[int] = []

    def seal(self, producer_id: int, epoch: int, sequence: int) -> tuple[int, int, int, tuple[int, ...]]:
        return producer_id, epoch, sequence, tuple(self.values)


@dataclass
class Log:
    """One partition of a broker: each producer's epoch, last sequence and last five batches."""

    values: list[int] = field(default_factory=list)
    state: dict[int, tuple[int, int, list[tuple[int, int]]]] = field(default_factory=dict)

    def append(self, batch: tuple[int, int, int, tuple[int, ...]]) -> int:
        """The error code: 0, 45 (out of order), 46 (older than the window) or 47 (of an epoch that is over)."""
        producer, epoch, sequence, values = batch
        known, last, recent = self.state.get(producer, (epoch, None, []))
        final = sequence + len(values) - 1
        if epoch < known:
            return 47
        if epoch > known:
            last, recent = -1, []
        if (sequence, final) in recent:
            return 0
        if last is not None and sequence != last + 1:
            return 46 if final <= last else 45
        self.values += values
        self.state[producer] = epoch, final, [*recent, (sequence, final)][-5:]
        return 0


def add(batches: Accumulator, value: int, now: float, partition: int = 0) -> None:
    batch = batches.current(partition, now)
    batch.builder.values.append(value)
    batch.count += 1


def make(pace: Pace = PACE) -> Accumulator:
    return Accumulator(pace, Builder, object)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 3, 5]), st.booleans())
def test_exactly_once_in_order_over_a_faulty_wire(seed: int, in_flight: int, holes: bool) -> None:
    """Requests are lost or held up to come late, replies are lost, brokers refuse for a while, and with `holes` some batches for good: what
    is acknowledged is there once, in the order of sending, and what failed once at most.

    What is late does not come in the one moment in which no producer could help it: between the refusal that begins a new epoch and the
    epoch's first batch.
    """
    chance = random.Random(seed)
    batches = make(Pace(0.0, 1e9, 0.1, 1.0, in_flight, True))
    log = Log()
    now, identity = 0.0, Identity(1, 0)
    total = chance.randrange(1, 60)
    sent = 0
    wire: list[Outgoing] = []
    late: list[tuple[int, int, int, tuple[int, ...]]] = []
    failed: set[int] = set()
    for _ in range(100_000):
        now += chance.random() * 0.2
        if sent < total and chance.random() < 0.5:
            add(batches, sent, now)
            sent += 1
            if chance.random() < 0.6:
                batches.close(0)
        faulty = sent < total or chance.random() < 0.3
        while chance.random() < 0.7 and (batch := batches.take(0, identity, now)) is not None:
            wire.append(batch)
        lane = batches.lane(0)
        fenced = lane.proven and lane.identity is not None and not lane.starting_over
        if late and fenced and chance.random() < 0.1:
            log.append(late.pop(0))
        if wire and chance.random() < 0.6:
            fate = chance.random() if faulty else 1.0
            if fate < 0.1:  # the connection goes: what was under way is lost or comes late, or its reply is lost
                reached = chance.randrange(len(wire) + 1)
                for batch in wire[:reached]:
                    log.append(batch.finish())
                if chance.random() < 0.5:
                    late += [batch.finish() for batch in wire[reached:]]
                for batch in wire:
                    batches.retry(batch, now, doubtful=True)
                wire.clear()
                continue
            batch = wire.pop(0)
            if holes and fate < 0.15:
                batches.refused(batch)
                failed.update(batch.builder.values)
                continue
            code = 6 if fate < 0.2 else log.append(batch.finish())
            if code == 0:
                batches.landed(batch)
            elif code in (45, 47):
                if batches.out_of_order(batch, now) == identity:
                    identity = identity.raised() or Identity(identity.producer_id + 1, 0)
            else:
                assert code == 6, "a batch fell out of the broker's window of five"
                batches.retry(batch, now, doubtful=False)
        if sent == total and not batches.unanswered() and not wire:
            break
    else:
        pytest.fail("it never came to an end")
    for batch in late:
        log.append(batch)
    assert [value for value in log.values if value not in failed] == [value for value in range(total) if value not in failed]
    assert len(set(log.values)) == len(log.values), "nothing is there twice"


def test_epochs_are_raised_until_they_are_used_up() -> None:
    assert Identity(7, 3).raised() == Identity(7, 4)
    assert Identity(7, 0x7FFD).raised() == Identity(7, 0x7FFE)
    assert Identity(7, 0x7FFE).raised() is None


def test_only_one_batch_flies_until_the_first_of_an_identity_has_landed() -> None:
    batches = make()
    for value in range(4):
        add(batches, value, 0.0)
        batches.close(0)
    first = batches.take(0, Identity(7, 0), 0.0)
    assert first is not None
    assert (first.sequence, first.identity) == (0, Identity(7, 0))
    assert batches.take(0, Identity(7, 0), 0.0) is None
    batches.landed(first)
    second, third = batches.take(0, Identity(7, 0), 0.0), batches.take(0, Identity(7, 0), 0.0)
    assert second is not None
    assert third is not None
    assert (second.sequence, third.sequence) == (1, 2)


def test_after_a_refusal_the_oldest_goes_first_with_its_numbers_when_all_are_back() -> None:
    batches = make()
    for value in range(3):
        add(batches, value, 0.0)
        batches.close(0)
    identity = Identity(7, 0)
    flown: list[Any] = [batches.take(0, identity, 0.0)]
    batches.landed(flown[0])
    flown += [batches.take(0, identity, 0.0), batches.take(0, identity, 0.0)]
    batches.retry(flown[1], 0.0, doubtful=True)
    assert batches.sendable(9.0) == [], "one is still under way"
    assert batches.out_of_order(flown[2], 0.0) is None, "it only follows one that failed"
    assert batches.sendable(0.05) == [], "the pause is not over"
    again = batches.take(0, identity, 9.0)
    assert again is flown[1]
    assert (again.sequence, again.doubtful, again.attempts) == (1, True, 2)


def test_a_hole_in_the_log_starts_the_partition_over_under_a_new_identity() -> None:
    batches = make()
    for value in range(3):
        add(batches, value, 0.0)
        batches.close(0)
    first: Any = batches.take(0, Identity(7, 0), 0.0)
    batches.landed(first)
    second: Any = batches.take(0, Identity(7, 0), 0.0)
    third: Any = batches.take(0, Identity(7, 0), 0.0)
    assert batches.out_of_order(second, 0.0) == Identity(7, 0)
    batches.out_of_order(third, 0.0)
    assert batches.take(0, None, 9.0) is None, "no new identity yet"
    again: Any = batches.take(0, Identity(8, 0), 9.0)
    assert again is second
    assert (again.identity, again.sequence) == (Identity(8, 0), 0)
    batches.landed(again)
    last: Any = batches.take(0, Identity(8, 0), 9.0)
    assert (last, last.sequence) == (third, 1)


def test_sequence_numbers_wrap_as_the_broker_counts() -> None:
    batches = make()
    lane = batches.lane(0)
    lane.identity, lane.next_sequence, lane.proven = Identity(1, 0), 0x7FFFFFFE, True
    for value in range(4):
        add(batches, value, 0.0)
    batch: Any = batches.take(0, Identity(1, 0), 0.0)
    assert batch.sequence == 0x7FFFFFFE
    assert lane.next_sequence == 2


def test_linger_expiry_and_wakeup() -> None:
    batches = make(Pace(linger=1.0, delivery_timeout=5.0, backoff=0.1, backoff_max=1.0, in_flight=5, idempotent=False))
    assert batches.wakeup(0.0) == float("inf")
    add(batches, 1, 10.0)
    assert batches.sendable(10.5) == []
    assert batches.wakeup(10.5) == 11.0
    assert batches.sendable(11.0) == [0]
    assert [batch.count for batch in batches.expired(15.0)] == [1]
    assert batches.unanswered() == []


def test_without_idempotence_one_batch_flies_at_a_time() -> None:
    batches = make(Pace(0.0, 5.0, 0.1, 1.0, 5, idempotent=False))
    for value in range(2):
        add(batches, value, 0.0)
        batches.close(0)
    first: Any = batches.take(0, None, 0.0)
    assert first.sequence == -1
    assert batches.take(0, None, 0.0) is None
    batches.landed(first)
    assert batches.take(0, None, 0.0) is not None
