"""The plan of roles that read: nothing skipped, nothing twice, bytes within the bound and given back, everybody in turn."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from wireproto._codec import Chunk, ReadBudget
from wireproto.errors import Disconnected
from wireproto.flow.ahead import Cursor, PlannedFetch, ReadAhead, Ticket
from wireproto.net.retry import Policy

AGAIN = Policy(first=0.1, factor=2.0, ceiling=1.0, jitter=0.2)
STEP = 1000


class Bytes:
    """One question of a cursor at a time, for up to so many bytes, of whoever leads it."""

    def __init__(self, most: int = 1 << 30) -> None:
        self.most = most
        self.leaders: dict[Any, int | None] = {}

    def link(self, cursor: Cursor) -> int | None:
        return self.leaders.get(cursor.key, 0)

    def next_requests(self, cursor: Cursor) -> Iterator[tuple[int, int, int]]:
        if not cursor.out and cursor.held < STEP:
            yield cursor.ahead, STEP, STEP


def room(limit: int) -> ReadBudget:
    made = ReadBudget()
    made.bound(limit)
    return made


def plan_of(count: int, limit: int = 1 << 30, most: int = 1 << 30, **options: Any) -> tuple[ReadAhead[Cursor, Chunk], Bytes]:
    asking = Bytes(most)
    plan: ReadAhead[Cursor, Chunk] = ReadAhead(room(limit), AGAIN, **options)
    for number in range(count):
        plan.add(Cursor(("t", number), 0))
    return plan, asking


def answer(plan: ReadAhead[Cursor, Chunk], ticket: Ticket[Cursor], records: int, size: int) -> None:
    """So many records, if it still counts."""
    if plan.answered(ticket):
        cursor = ticket.cursor
        plan.push(Chunk(cursor, cursor.generation, ticket.offset, ticket.offset + records, size=size))


def tickets(asks: list[PlannedFetch[Cursor]]) -> list[Ticket[Cursor]]:
    return [ticket for ask in asks for ticket in ask.tickets]


def numbers(asks: list[PlannedFetch[Cursor]]) -> list[int]:
    return [ticket.cursor.key[1] for ticket in tickets(asks)]


# --- the model ---


class World:
    """Brokers with logs that grow, links that break, leaders that move, and one who reads, seeks, pauses and gives up."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.now = 0.0
        self.logs = [[chance.randrange(1, STEP // 3) for _ in range(chance.randrange(5, 60))] for _ in range(chance.randrange(1, 9))]
        self.limit = chance.choice([STEP, 3 * STEP, 20 * STEP])
        self.plan, self.asking = plan_of(0, self.limit, chance.choice([2 * STEP, 1 << 30]), randomness=chance.random)
        self.expected: dict[int, int] = {}
        for number, log in enumerate(self.logs):
            self.asking.leaders["t", number] = number % 3
            self.expected[number] = chance.randrange(len(log))
            self.plan.add(Cursor(("t", number), self.expected[number], len(log)))
        self.out: list[PlannedFetch[Cursor]] = []
        self.beyond = 0  # tickets that the bound may be exceeded by, since it was

    def step(self, *, quiet: bool = False) -> None:
        self.now += self.chance.random() * 0.3
        self.chance.choice([self.ask, self.ask, self.reply, self.reply, self.read, self.read, self.read if quiet else self.disturb])()
        self.check()

    def check(self) -> None:
        cursors = self.plan.cursors.values()
        asked = sum(ticket.size for ask in self.out for ticket in ask.tickets)
        assert self.plan.memory.held == asked + sum(chunk.size for cursor in cursors for chunk in cursor.chunks)
        assert all(cursor.held == sum(chunk.size for chunk in cursor.chunks) for cursor in cursors)
        paused = sum(1 for cursor in cursors if cursor.paused and cursor.chunks)
        given_up = sum(1 for ask in self.out for ticket in ask.tickets if ticket.cursor.out.get(ticket.offset) is not ticket)
        self.beyond = max(self.beyond, paused + given_up) if self.plan.memory.held > self.limit else 0
        assert self.plan.memory.held <= self.limit + STEP * (1 + self.beyond)

    def ask(self) -> None:
        busy = {ask.link for ask in self.out}
        asks = self.plan.due(self.asking, self.now, busy.__contains__)
        assert not busy & {ask.link for ask in asks}, "one question a link"
        for ask in asks:
            assert sum(ticket.size for ticket in ask.tickets) == ask.size <= self.asking.most
        self.out += asks

    def reply(self) -> None:
        if not self.out:
            return
        ask = self.out.pop(self.chance.randrange(len(self.out)))
        how = self.chance.random()
        spare = ask.size
        for ticket in ask.tickets:
            cursor = ticket.cursor
            if how < 0.15:
                self.plan.failed(ticket, self.now)
            elif self.plan.answered(ticket):
                if how < 0.25:
                    self.plan.refused(cursor, self.now)
                elif how < 0.35:
                    self.plan.passed_over(ticket)
                else:
                    spare -= self.answer(cursor, ticket, min(spare, ticket.count))

    def answer(self, cursor: Cursor, ticket: Ticket[Cursor], spare: int) -> int:
        """What fits; its size."""
        log = self.logs[cursor.key[1]]
        self.plan.well(cursor)
        cursor.end = len(log)
        upto = size = 0
        for upto in range(ticket.offset, len(log)):
            if size + log[upto] > spare:
                break
            size += log[upto]
        else:
            upto = len(log)
        assert ticket.offset == cursor.ahead
        if size:
            self.plan.push(Chunk(cursor, cursor.generation, ticket.offset, upto, size=size))
        else:
            self.plan.passed_over(ticket)
        return size

    def read(self) -> None:
        taken = self.plan.take(self.chance.choice([0, 500, 5 * STEP]))
        cursor = taken[0].cursor if taken else None
        for chunk in taken:
            assert chunk.cursor is cursor
            assert not chunk.cursor.paused
            number = chunk.cursor.key[1]
            assert max(chunk.start, chunk.cursor.position) == self.expected[number], "nothing skipped, nothing twice"
            stays = self.chance.random() < 0.2 and chunk is taken[-1] and self.expected[number] + 1 < chunk.next
            upto = self.expected[number] + 1 if stays else chunk.next
            if stays:
                self.plan.put_back(chunk)
            self.plan.moved(chunk, upto)
            self.expected[number] = upto
            assert chunk.cursor.position == upto

    def disturb(self) -> None:
        number = self.chance.randrange(len(self.logs))
        key = "t", number
        cursor = self.plan.cursors[key]
        what = self.chance.random()
        if what < 0.3:
            self.expected[number] = self.chance.randrange(len(self.logs[number]))
            self.plan.seek(key, self.expected[number])
        elif what < 0.6:
            cursor.paused = not cursor.paused
        elif what < 0.9:
            self.asking.leaders[key] = self.chance.choice([None, 0, 1, 2])
            self.plan.relink(self.asking)
        else:
            self.expected[number] = self.chance.randrange(len(self.logs[number]))
            self.plan.add(Cursor(key, self.expected[number], len(self.logs[number])))


@pytest.mark.parametrize("seed", range(150))
def test_nothing_is_skipped_or_repeated_and_the_bytes_are_kept(seed: int) -> None:
    """Whatever comes: seeks, other leaders, refusals, lost links, answers that come late, chunks that are put back."""
    world = World(seed)
    for _ in range(300):
        world.step()
    for number, cursor in enumerate(world.plan.cursors.values()):
        cursor.paused = False
        world.asking.leaders["t", number] = 0
    world.plan.relink(world.asking)
    for _ in range(20_000):
        if world.plan.done:
            break
        world.step(quiet=True)
    assert world.plan.done, "everybody comes to the end"
    assert [world.expected[number] for number in range(len(world.logs))] == [len(log) for log in world.logs]
    while world.out:
        world.reply()
        world.check()
    world.plan.close()
    assert world.plan.memory.held == 0


# --- turns ---


@pytest.mark.parametrize("links", [1, 2])
@pytest.mark.parametrize("limit", [1 << 30, 8 * STEP], ids=["room", "little room"])
@pytest.mark.parametrize("most", [5 * STEP, 1 << 30], ids=["small answers", "large answers"])
def test_no_partition_is_served_less_than_half_its_share(links: int, limit: int, most: int) -> None:
    """A broker fills an answer in the order of the request, until it is full."""
    plan, asking = plan_of(24, limit, most)
    for number in range(24):
        asking.leaders["t", number] = number % links
    out: list[PlannedFetch[Cursor]] = []
    served: Counter[int] = Counter()
    for _ in range(24 * 50 // 4):
        out += plan.due(asking, 0.0, {ask.link for ask in out}.__contains__)
        (chunk, *_) = plan.take() or [None]
        if chunk is not None:
            served[chunk.cursor.key[1]] += chunk.size
            plan.moved(chunk, chunk.next)
            continue
        ask = out.pop(0)
        spare = min(most, 5 * STEP)
        for ticket in ask.tickets:
            ticket.cursor.end = 1 << 40
            if spare >= STEP:
                spare -= STEP
                answer(plan, ticket, 10, STEP)
            else:
                assert plan.answered(ticket)
                plan.passed_over(ticket)
    share = sum(served.values()) / 24
    assert min(served[number] for number in range(24)) >= share / 2, served


def handed_out(plan: Any, most: int = 0) -> list[Any]:
    """The next chunks, whose records are handed out."""
    chunks = list(plan.take(most))
    if chunks:
        plan.moved(chunks[-1], chunks[-1].next)
    return chunks


def test_cursors_that_hold_chunks_are_handed_out_in_turn() -> None:
    """A turn is one chunk, or as many as fit; what was put back is the next one."""
    plan, asking = plan_of(3)
    for size in (100, 200, 300):
        for ticket in tickets(plan.due(asking, 0.0)):
            answer(plan, ticket, 10, size)
    assert [chunk.cursor.key[1] for _ in range(3) for chunk in handed_out(plan)] == [0, 1, 2]
    first, *more = handed_out(plan, 500)
    assert [(chunk.start, chunk.size) for chunk in (first, *more)] == [(10, 200), (20, 300)]
    (second,) = plan.take(499)
    assert second.cursor.key[1] == 1
    plan.put_back(second)
    assert handed_out(plan) == [second]
    assert [chunk.cursor.key[1] for _ in range(3) for chunk in handed_out(plan)] == [2, 1, 2]
    assert plan.take() == ()


def test_an_error_is_raised_in_its_place_and_alone() -> None:
    plan, asking = plan_of(1)
    for number in range(3):
        (ticket,) = tickets(plan.due(asking, 0.0))
        if number < 2:
            answer(plan, ticket, 10, 100)
    assert plan.answered(ticket)
    cursor = ticket.cursor
    plan.refused(cursor, 0.0)
    plan.push(Chunk(cursor, 0, 20, 20, error=Disconnected("gone")))
    assert plan.due(asking, 100.0) == [], "nothing is asked for behind it"
    assert [chunk.start for chunk in handed_out(plan, 5000)] == [0, 10]
    (chunk,) = plan.take(5000)
    assert isinstance(chunk.error, Disconnected)
    assert numbers(plan.due(asking, 0.0)) == [0], "whoever goes on asks at once"


@pytest.mark.parametrize("when", ["taken", "put back behind a part of it", "renewed"])
def test_what_was_on_its_way_out_when_a_handler_raised_is_asked_for_again(when: str) -> None:
    plan, asking = plan_of(1)
    (ticket,) = tickets(plan.due(asking, 0.0))
    if when == "renewed":
        plan.renew(ticket, Chunk(ticket.cursor, ticket.cursor.generation, 0, 10, records=b"", size=0))
    else:
        answer(plan, ticket, 10, 100)
        (chunk,) = plan.take()
        if when.startswith("put back"):
            plan.put_back(Chunk(chunk.cursor, chunk.generation, 5, chunk.next, chunk.records, chunk.size))
    assert plan.delivering is ticket.cursor
    assert list(plan.take()) == []
    assert (ticket.cursor.position, plan.delivering) == (0, None)
    assert numbers(plan.due(asking, 0.0)) == [0]


# --- asking ---


def test_who_was_not_asked_for_longest_comes_first() -> None:
    plan, asking = plan_of(4, limit=2 * STEP)
    first = plan.due(asking, 0.0)
    assert numbers(first) == [0, 1]
    for ticket in tickets(first):
        assert plan.answered(ticket)
    second = plan.due(asking, 0.0)
    assert numbers(second) == [2, 3]
    answer(plan, tickets(second)[0], 1, 10)
    assert plan.answered(tickets(second)[1])
    plan.passed_over(tickets(second)[1])
    assert numbers(plan.due(asking, 0.0))[0] == 3, "it keeps its place"


def test_one_that_has_nothing_may_ask_without_room_and_only_once() -> None:
    shared, asking = room(STEP), Bytes()
    plans = [ReadAhead[Cursor, Chunk](shared, AGAIN) for _ in range(2)]
    for plan in plans:
        for number in range(3):
            plan.add(Cursor(("t", number), 0))
    assert numbers(plans[0].due(asking, 0.0)) == [0]
    (ticket,) = tickets(plans[1].due(asking, 0.0))
    assert (ticket.cursor.key[1], shared.held) == (0, 2 * STEP)
    assert plans[1].due(asking, 0.0) == [], "something comes"
    answer(plans[1], ticket, 1, 500)
    assert plans[1].due(asking, 0.0) == [], "something is there"
    ticket.cursor.paused = True
    assert numbers(plans[1].due(asking, 0.0)) == [1], "that is not handed out now"
    plans[1].close()
    plans[1].close()
    assert shared.held == STEP


def test_a_question_for_what_is_not_there_yet_holds_up_nobody() -> None:
    """The broker keeps it until something comes; meanwhile another may be asked for, though there is no room."""
    plan, asking = plan_of(2, limit=STEP)
    asking.leaders["t", 1] = 1
    idle, busy = plan.cursors.values()
    idle.end = 0
    assert numbers(plan.due(asking, 0.0, {1}.__contains__)) == [0]
    assert numbers(plan.due(asking, 0.0, {0}.__contains__)) == [1]
    assert busy.out
    plan, asking = plan_of(2, limit=STEP)
    plan.memory.add(STEP)
    for cursor in plan.cursors.values():
        cursor.end = 0
    assert numbers(plan.due(asking, 0.0)) == [0], "one of them is asked, if nobody else"
    assert plan.due(asking, 0.0) == []


def test_pauses_between_attempts_grow_and_differ() -> None:
    plan, asking = plan_of(1, randomness=lambda: 0.5)
    (cursor,) = plan.cursors.values()
    for pause in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
        (ticket,) = tickets(plan.due(asking, 100.0))
        assert plan.failed(ticket, 100.0)
        assert cursor.retry_at == pytest.approx(100.0 + pause)
        assert plan.wakeup(100.0) == cursor.retry_at
        assert plan.due(asking, 100.0 + pause - 0.01) == []
        cursor.retry_at = 0.0
    assert cursor.failing_since == 100.0
    plan.well(cursor)
    assert (cursor.failures, cursor.failing_since) == (0, 0.0)
    other, _ = plan_of(1, randomness=lambda: 0.0)
    (cursor,) = other.cursors.values()
    other.refused(cursor, 100.0)
    assert cursor.retry_at == pytest.approx(100.08)


def test_a_link_that_is_busy_or_not_known_is_not_asked() -> None:
    plan, asking = plan_of(3)
    asking.leaders = {("t", 0): 0, ("t", 1): None, ("t", 2): 2}
    assert numbers(plan.due(asking, 0.0, {2}.__contains__)) == [0]
    assert plan.memory.held == STEP


def test_another_leader_is_asked_at_once_and_the_old_ones_answer_is_dropped() -> None:
    plan, asking = plan_of(2)
    asks = plan.due(asking, 0.0)
    asking.leaders["t", 0] = 1
    plan.relink(asking)
    old, stays = tickets(asks)
    (new,) = tickets(plan.due(asking, 0.0, {0}.__contains__))
    assert (new.link, new.offset) == (1, 0)
    assert not plan.answered(old), "late"
    answer(plan, new, 5, 50)
    assert plan.answered(stays)
    assert plan.memory.held == 50
    asking.leaders["t", 1] = None
    (ticket,) = tickets(plan.due(asking, 0.0))
    plan.relink(asking)
    assert plan.answered(ticket), "nobody else is known"


def test_what_was_taken_before_a_seek_moves_nothing_and_is_not_put_back() -> None:
    """A callback may seek between the two."""
    plan, asking = plan_of(1)
    (ticket,) = tickets(plan.due(asking, 0.0))
    answer(plan, ticket, 10, 100)
    (chunk,) = plan.take()
    plan.seek(("t", 0), 50)
    plan.put_back(chunk)
    plan.moved(chunk, 10)
    assert (ticket.cursor.position, plan.take(), plan.memory.held) == (50, (), 0)


def test_what_was_asked_and_not_sent_can_be_asked_anew_and_gives_its_bytes_back_once() -> None:
    """A signal handler came between the two."""
    plan, asking = plan_of(2)
    lost = tickets(plan.due(asking, 0.0))
    plan.only_out(())
    assert plan.memory.held == 0
    assert numbers(plan.due(asking, 0.0)) == [0, 1]
    assert {plan.answered(ticket) for ticket in lost} == {False}
    assert plan.memory.held == 2 * STEP


def test_what_comes_to_a_closed_plan_counts_nowhere() -> None:
    """Whatever was under way; the room is others' by now."""
    plan, asking = plan_of(3)
    out = tickets(plan.due(asking, 0.0))
    answer(plan, out[0], 10, 100)
    plan.memory.add(7)
    plan.close()
    assert plan.memory.held == 7
    answer(plan, out[1], 10, 100)
    plan.hold(out[2].cursor, 50)
    plan.failed(out[2], 0.0)
    plan.take(1000)
    plan.seek(("t", 1), 5)
    plan.remove(("t", 2))
    assert plan.memory.held == 7
