"""The Sender against a model of brokers that number batches as Kafka's do: exactly once and in order, whatever gets lost.

`World` is a small cluster over a wire that loses requests, answers and whole connections, holds requests up so that they come late, moves
leaders, refuses for a while or for good, finds batches too large, lets time run out, and breaks into a sending with a signal.
How large is too large may change meanwhile, and some records are so alone.
"""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from chance import seed as chance_seed
from flow_parts import Batch, Link, Sealed, halves
from wireproto._codec import WireCore
from wireproto.errors import BrokerError, Closed, Disconnected, TimedOut, WireprotoError
from wireproto.flow.parts import found
from wireproto.flow.queue import PartitionQueue
from wireproto.flow.sender import Again, Refused, Sender, SendTimes, Split, StartOver, Stored, Verdict
from wireproto.kafka.identity import Identity, ProducerState


@dataclass
class Log:
    """One partition of a broker: each producer's epoch, last sequence and last five batches."""

    values: list[int] = field(default_factory=list)
    state: dict[int, tuple[int, int, list[tuple[int, int, int]]]] = field(default_factory=dict)
    most: int | None = None

    def append(self, batch: Sealed) -> tuple[int, int]:
        """The error code (0, 10 too large, 45 out of order, 46 older than the window, 47 of an epoch that is over), and the first offset.
        How large it is, a broker looks at first."""
        producer, epoch, sequence, values = batch
        if self.most is not None and (len(values) > self.most or any(large(value) for value in values)):
            return 10, -1
        assert producer >= 0, "sent without an identity"
        known, last, recent = self.state.get(producer, (epoch, None, []))
        final = sequence + len(values) - 1
        if epoch < known:
            return 47, -1
        if epoch > known:
            last, recent = -1, []
        for first, end, base in recent:
            if (first, end) == (sequence, final):
                return 0, base
        if last is not None and sequence != last + 1:
            return (46 if final <= last else 45), -1
        base = len(self.values)
        self.values += values
        self.state[producer] = epoch, final, [*recent, (sequence, final, base)][-5:]
        return 0, base


class Signal(BaseException):
    """What a signal handler raises."""


def large(value: int) -> bool:
    """Whether a record is too large alone, where there is a bound."""
    return value % 13 == 12


def place(batch: Batch) -> int:
    """The number of its partition."""
    return int(str(batch.queue.key))


class World(WireCore):
    """Three partitions on two nodes, a Sender, and what goes wrong."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = 0.0
        self.alarm = float("inf")
        self.logs = [Log(most=self.chance.choice((None, None, 1, 2, 4))) for _ in range(3)]
        self.splits = 0
        self.leaders = [self.chance.randrange(2) for _ in self.logs]
        self.known = list(self.leaders)
        self.links: dict[int, Link] = {}
        self.every_link: list[Link] = []
        self.late: list[tuple[int, Sealed]] = []
        self.wanted: set[int] = set()
        self.calm = False
        self.holes = self.chance.random() < 0.5
        self.told: list[Batch] = []
        self.held = 0
        self.state = ProducerState(None if self.chance.random() < 0.3 else Identity(1, 0), self.chance.choice((1, 3, 5)))
        pace = SendTimes(linger=self.chance.choice((0.0, 0.3)), delivery_timeout=self.chance.choice((6.0, 1e9)))
        self.sender = Sender(self, self.state, pace, self.make, self.arm, lambda: self.now)
        self.batches: list[Batch] = []
        self.given = 0
        self.lanes = self.chance.choice((1, 1, 3))

    # the sender's hooks

    def make(self, queue: PartitionQueue, serial: int, now: float) -> Batch:
        batch = Batch(queue, serial, now)
        self.batches.append(batch)
        return batch

    def arm(self, when: float) -> None:
        self.alarm = min(self.alarm, when)

    def target(self, key: Any) -> Link | None:
        link = self.links.get(self.known[key])
        return link if link is not None and not link.closed else None

    def congested(self, link: Link) -> bool:
        return not self.calm and self.chance.random() < 0.05

    def requests(self, link: Link, batches: list[Batch]) -> list[list[Batch]]:
        assert len({place(batch) for batch in batches}) == len(batches), "one batch of a partition in a request"
        cut = self.chance.randrange(1, len(batches) + 1)
        return [part for part in (batches[:cut], batches[cut:]) if part]

    def transmit(self, link: Link, batches: list[Batch]) -> None:
        fate = 1.0 if self.calm else self.chance.random()
        if fate < 0.02:
            raise Signal
        if link.closed or fate < 0.04:
            raise Disconnected("gone")
        link.sent.append([(batch, batch.bytes(), batch.attempts) for batch in batches])
        if fate < 0.05:
            raise Signal

    def drop(self, link: Link) -> None:
        link.closed = True

    def want(self, keys: set[Any]) -> None:
        self.wanted |= keys

    def settled(self, batches: list[Batch]) -> None:
        for batch in batches:
            assert batch.over
            if batch.owner is None:  # else it is a part
                self.held -= 0 if batch.settled else batch.count
            batch.settled = True

    def failed_values(self) -> set[int]:
        settled = [(value, found(batch, index)[0]) for batch in self.batches for index, value in enumerate(batch.values)]
        return {value for value, part in settled if part.outcome.error is not None}

    def failed(self, batch: Batch, why: WireprotoError) -> None:
        assert batch not in self.told, "told once"
        self.told.append(batch)

    def overdue(self, batch: Batch) -> WireprotoError:
        late: TimedOut = batch.queue.explain(TimedOut("late"), batch)
        return late

    # what happens

    def send(self) -> None:
        key = self.chance.randrange(3)
        with self.sender.lock:
            lane = self.given % self.lanes
            batch = self.sender.current_of(key, lane) if lane else self.sender.current(key)
            batch.hold(self.given)
            self.held += 1
            self.given += 1
            first = batch.count == 1
            if self.chance.random() < 0.5:
                self.sender.seal(key)
        if first and not self.sender.pace.linger and not batch.sealed and self.chance.random() < 0.5:
            self.step(partial(self.sender.set_off, batch))
        elif first:
            self.sender.opened(batch)

    def step(self, what: Any) -> None:
        with contextlib.suppress(Signal):
            what()

    def provide(self) -> None:
        """What the sender wanted."""
        if self.state.identity is None:
            self.state.identity = Identity(1, 0)
        self.known = list(self.leaders)
        for node in self.known:
            if node not in self.links or self.links[node].closed:
                self.links[node] = Link(node)
                self.every_link.append(self.links[node])
        self.wanted.clear()
        self.sender.ready()

    def lose(self, link: Link) -> None:
        """The connection goes: what was under way is lost or comes late, or its answers are lost."""
        link.closed = True
        reached = self.chance.randrange(len(link.sent) + 1)
        for request in link.sent[:reached]:
            for batch, data, _ in request:
                self.logs[place(batch)].append(data)
        if self.chance.random() < 0.5:
            self.late += [(place(batch), data) for request in link.sent[reached:] for batch, data, _ in request]
        left, link.sent = link.sent, []
        for request in left:
            self.step(partial(self.sender.answered, [(batch, Again(Disconnected("gone"), doubtful=True)) for batch in self.ours(request)]))
        self.sender.link_lost(link)

    def ours(self, request: list[tuple[Batch, Sealed, int]]) -> list[Batch]:
        """The batches that have not gone out again since: what is said of an older sending does not count, nor when it is said."""
        return [batch for batch, _, sending in request if batch.attempts == sending]

    def answer(self, link: Link) -> None:
        request = link.sent.pop(0)
        outcomes = [(batch, self.judge(link, batch, data)) for batch, data, _ in request]
        if not self.calm and self.chance.random() < 0.05:  # a prompt that a signal ended half-way: all of it is said again
            self.step(partial(self.sender.answered, [pair for pair in outcomes if isinstance(pair[1], Stored)]))
        self.step(partial(self.sender.answered, outcomes))

    def judge(self, link: Link, batch: Batch, data: Sealed) -> Verdict:
        key = place(batch)
        fate = 1.0 if self.calm else self.chance.random()
        if link.node != self.leaders[key]:
            self.wanted.add(key)
            return Again(BrokerError("not the leader"), now=fate < 0.5)
        if fate < 0.1:
            return Again(BrokerError("busy"))
        if self.holes and fate < 0.13:
            return Refused(BrokerError("no"))
        code, base = self.logs[key].append(data)
        assert code != 46, "a batch fell out of the broker's window of five"
        if code == 10:
            if batch.count == 1 or batch.doubtful:
                return Refused(BrokerError("too large"))
            self.splits += 1
            return Split(BrokerError("too large"), halves(batch))
        return Stored(base) if not code else StartOver(BrokerError(f"code {code}"))

    def fenced(self, key: int) -> bool:
        """Whether a batch of the newest epoch is stored: before that what comes late is taken, and no producer could help it."""
        mark = self.sender.queue(key).mark
        return mark is not None and mark.confirmed and not mark.starting_over

    def disturb(self) -> None:
        fate = self.chance.random()
        links = [link for link in self.links.values() if not link.closed]
        if fate < 0.05 and links:
            self.lose(self.chance.choice(links))
        elif fate < 0.08:
            self.leaders[self.chance.randrange(3)] ^= 1
        elif fate < 0.16 and self.late and self.fenced(self.late[0][0]):
            key, data = self.late.pop(0)
            self.logs[key].append(data)
        elif fate < 0.162:
            self.chance.choice(self.logs).most = self.chance.choice((None, 1, 2, 4))
        elif fate < 0.167:
            doomed = self.chance.randrange(3)
            self.sender.abandon(lambda batch: place(batch) == doomed, Closed("abandoned"))

    def run(self, total: int) -> None:
        for _ in range(20_000):
            self.now += self.chance.random() * 0.2
            if self.given < total and self.chance.random() < 0.7:
                self.send()
            elif self.given == total and self.chance.random() < 0.05:
                self.calm = True
            if not self.calm:
                self.step(self.disturb)
            if self.now >= self.alarm:
                self.alarm = float("inf")
                self.step(self.sender.tick)
            if self.wanted and self.chance.random() < 0.5:
                self.step(self.provide)
            busy = [link for link in self.every_link if link.sent]
            if busy and self.chance.random() < 0.7:
                link = self.chance.choice(busy)
                self.step(partial(self.lose if link.closed else self.answer, link))
            if self.chance.random() < 0.3:
                self.step(self.sender.drain)
            if self.given == total and not self.sender.unsettled(lambda batch: True):
                break
        else:
            raise AssertionError("it never came to an end")
        for key, data in self.late:
            if self.fenced(key):
                self.logs[key].append(data)

    def check(self) -> None:
        assert self.held == 0, "what is settled holds nothing"
        assert all(batch.outcome.done for batch in self.batches if batch.settled)
        failed = self.failed_values()
        for key, log in enumerate(self.logs):
            assert len(set(log.values)) == len(log.values), "nothing is there twice"
            mine = [batch for batch in self.batches if place(batch) == key and batch.count]
            acked = [value for batch in sorted(mine, key=lambda one: one.values[0]) for value in batch.values if value not in failed]
            assert [value for value in log.values if value not in failed] == acked, "all that is acknowledged, in order"
            for batch in mine:
                for index, value in enumerate(batch.values):
                    part, at = found(batch, index)
                    if part.outcome.error is None:
                        assert log.values[part.outcome.value + at] == value, "a receipt names its own place"
            assert not self.sender.queue(key).ready


@pytest.mark.parametrize("share", range(8))
def test_exactly_once_in_order_over_a_faulty_wire(share: int) -> None:
    first = chance_seed() * 100_000 + share * 1000
    splits = 0
    for seed in range(first, first + 250):
        world = World(seed)
        try:
            world.run(world.chance.randrange(1, 60))
            world.check()
            splits += world.splits
        except Exception as why:
            raise AssertionError(f"seed {seed}: {why}") from why
    assert splits > 100  # 307 on the average, 40 is the deviation
