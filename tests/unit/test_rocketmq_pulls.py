"""Pulls sent ahead: whatever the order and size of the replies, every offset is handed on once, in order, within the room there is."""

from __future__ import annotations

import random
from typing import Any

import pytest

from wireproto._codec import ReadBudget, Slice
from wireproto.errors import Disconnected
from wireproto.flow.ahead import Ticket
from wireproto.net.client_log import ClientLog
from wireproto.rocketmq.codes import TopicNotExist
from wireproto.rocketmq.options import RocketOptions
from wireproto.rocketmq.pulls import LARGEST, Cursor, Pulls
from wireproto.rocketmq.route import Queue

FOUND, NOTHING, FILTERED = 0, 19, 20
NOW = 100.0


def queue(number: int = 0, address: str | None = "h:1") -> Queue:
    return Queue(number, "b", number, address, True, True)


def made(limit: int = 64 << 20, **options: Any) -> Pulls:
    room = ReadBudget()
    room.bound(limit)
    return Pulls(RocketOptions(**options), room, ClientLog("rocketmq", lambda when, call: None))


def one(start: int = 0, *, end: int = -1, stop: int | None = None, limit: int = 64 << 20, **options: Any) -> tuple[Pulls, Cursor]:
    """A plan with one queue, whose end is known, or not."""
    pulls = made(limit, **options)
    cursor = pulls.add("t", queue(), start, stop)
    cursor.end = end
    return pulls, cursor


def asked(pulls: Pulls, now: float = NOW) -> list[Ticket[Cursor]]:
    return [ticket for ask in pulls.plan.due(pulls, now) for ticket in ask.tickets]


def wanted(pulls: Pulls, now: float = NOW) -> list[tuple[int, int, bool]]:
    """Pulls to send, as (offset, number of messages, suspended)."""
    return [(ticket.offset, ticket.count, not ticket.size) for ticket in asked(pulls, now)]


def out(cursor: Cursor, offset: int) -> Ticket[Any]:
    return cursor.out[offset]


def found(pulls: Pulls, cursor: Cursor, offset: int, following: int, end: int, size: int = 1) -> None:
    pulls.answer(out(cursor, offset), (FOUND, following, 0, end, Slice(bytes(size))))


def empty(pulls: Pulls, cursor: Cursor, offset: int, following: int, end: int) -> None:
    pulls.answer(out(cursor, offset), (NOTHING if following == offset else FILTERED, following, 0, end, Slice(b"")))


def taken(pulls: Pulls, most: int = 1000, *, late: bool = False) -> list[tuple[int, int]]:
    """What is handed out in one turn: (first offset, next one) of each reply."""
    chunks = pulls.plan.take(most, late=late)
    for chunk in chunks:
        pulls.plan.moved(chunk, chunk.next)
    return [(chunk.start, chunk.next) for chunk in chunks]


@pytest.mark.parametrize("limit", [1, 3, 7, 32])
@pytest.mark.parametrize("ahead", [1, 2, 8])
@pytest.mark.parametrize("least", [1, 25, 100, 100_000])
@pytest.mark.parametrize("seed", range(6))
def test_every_offset_once_and_in_order(limit: int, ahead: int, least: int, seed: int) -> None:
    chance = random.Random(seed)
    room = chance.choice([1, 40, 1 << 20])
    end, start = chance.randrange(1, 500), chance.randrange(20)
    stop = chance.randrange(start, end + 1) if end > start else start
    pulls, cursor = one(start, stop=stop, limit=room, pull_ahead=ahead, min_bytes=least)
    patient = chance.random() < 0.5
    under_way: list[Ticket[Any]] = []
    seen: list[int] = []
    now = NOW
    for _ in range(10_000):
        now += 10.0
        under_way += asked(pulls, now)
        assert len(under_way) <= ahead
        assert len({ticket.offset for ticket in under_way}) == len(under_way)
        assert pulls.plan.memory.held <= room + LARGEST + 10 * ahead
        if cursor.done:
            break
        if under_way:
            ticket = under_way.pop(chance.randrange(len(under_way)))
            offset, size = ticket.offset, ticket.count
            assert offset + size <= max(stop, offset + 1)
            if chance.random() < 0.1:
                pulls.failed(ticket, Disconnected("gone"), now)
                cursor.look = False
            elif chance.random() < 0.1:
                empty(pulls, cursor, offset, offset + chance.choice((0, size)), end)
            else:
                found(pulls, cursor, offset, min(offset + min(size, limit), end), end, 10)
        else:
            assert cursor.ready_to_deliver(late=False)  # or it would be waited for in vain
        if patient and not (cursor.chunks and cursor.ready_to_deliver(late=False)):
            continue
        for first, following in taken(pulls, chance.choice([0, 30, 1000]), late=True):
            seen += range(first, following)
    assert seen == list(range(start, stop))
    assert not cursor.out
    assert pulls.plan.memory.held == 0


@pytest.mark.parametrize("ahead", [1, 2, 8])
@pytest.mark.parametrize("most", [3, 7, 32])
@pytest.mark.parametrize("seed", range(8))
def test_a_queue_with_holes_is_read_once_and_in_order(seed: int, most: int, ahead: int) -> None:
    """A compacted topic's: a pull of so many messages brings as many of those that are left, and goes on behind them."""
    chance = random.Random(seed)
    end, start = 400, chance.randrange(50)
    kept = sorted(chance.sample(range(end), chance.randrange(1, 120)))
    stop = chance.choice([end, chance.randrange(start, end + 1)])
    pulls, cursor = one(start, stop=stop, pull_ahead=ahead, min_bytes=chance.choice([1, 50]))
    under_way: list[Ticket[Any]] = []
    seen: list[int] = []
    for turn in range(10_000):
        under_way += asked(pulls, NOW + 10.0 * turn)
        if cursor.done:
            break
        if under_way:
            ticket = under_way.pop(chance.randrange(len(under_way)))
            left = [offset for offset in kept if offset >= ticket.offset][: min(ticket.count, most)]
            if left:
                found(pulls, cursor, ticket.offset, left[-1] + 1, end, len(left))
            else:
                empty(pulls, cursor, ticket.offset, end, end)
        for first, following in taken(pulls, chance.choice([0, 30, 1000]), late=True):
            seen += [offset for offset in kept if first <= offset < min(following, stop)]
    assert seen == [offset for offset in kept if start <= offset < stop]


def test_at_the_end_one_pull_waits_at_the_broker() -> None:
    pulls, cursor = one(10)
    assert wanted(pulls) == [(10, 32, False)], "where the end is is not known"
    assert wanted(pulls) == []
    empty(pulls, cursor, 10, 10, 10)
    assert wanted(pulls) == [(10, 32, True)]
    assert wanted(pulls) == []
    empty(pulls, cursor, 10, 10, 10)
    assert wanted(pulls) == [(10, 32, True)]
    found(pulls, cursor, 10, 42, 100)
    assert wanted(pulls) == [(42, 32, False), (74, 32, False)]


def test_filtered_out_messages_are_passed_over() -> None:
    pulls, cursor = one(0, stop=40)
    assert wanted(pulls) == [(0, 32, False)]
    empty(pulls, cursor, 0, 32, 100)
    assert taken(pulls, 100) == [(0, 32)]
    assert wanted(pulls) == [(32, 8, False)]


def test_a_hole_is_filled_and_later_replies_stay_good() -> None:
    pulls, cursor = one(0, end=96, pull_ahead=3)
    assert wanted(pulls) == [(0, 32, False), (32, 32, False), (64, 32, False)]
    found(pulls, cursor, 0, 20, 96)
    found(pulls, cursor, 32, 64, 96)
    assert taken(pulls, 100) == [(0, 20)]
    assert wanted(pulls)[0] == (20, 12, False)
    found(pulls, cursor, 20, 32, 96)
    assert taken(pulls, 100) == [(20, 32), (32, 64)]


def test_a_hole_is_asked_for_though_the_queue_ends_before_it_now() -> None:
    """A crash cut the log behind what was told before it: what lies behind the hole must not hold up the pull at its end."""
    pulls, cursor = one(0, end=64, pull_ahead=2)
    assert wanted(pulls) == [(0, 32, False), (32, 32, False)]
    found(pulls, cursor, 32, 64, 64)
    empty(pulls, cursor, 0, 0, 0)
    assert wanted(pulls) == [(0, 32, True)]


def test_a_batch_waits_for_its_bytes_while_more_is_known_to_be_there() -> None:
    pulls, cursor = one(0, end=128, pull_ahead=2, min_bytes=30)
    assert [offset for offset, _, _ in wanted(pulls)] == [0, 32]
    found(pulls, cursor, 0, 32, 128, 10)
    assert taken(pulls) == []
    found(pulls, cursor, 32, 64, 128, 10)
    assert taken(pulls) == []
    assert [offset for offset, _, _ in wanted(pulls)] == [64, 96]
    found(pulls, cursor, 96, 128, 128, 10)
    assert taken(pulls) == []  # 64 is a hole
    assert wanted(pulls) == []
    found(pulls, cursor, 64, 96, 128, 10)
    assert taken(pulls) == [(0, 32), (32, 64), (64, 96), (96, 128)]


def test_a_batch_waits_no_longer_where_a_pull_fails_or_the_end_is_reached() -> None:
    pulls, cursor = one(0, end=100, pull_ahead=2, min_bytes=1000)
    wanted(pulls)
    found(pulls, cursor, 0, 32, 100, 10)
    assert taken(pulls) == []
    pulls.failed(out(cursor, 32), Disconnected("gone"), NOW)
    assert taken(pulls) == [(0, 32)]
    cursor.look = False
    assert [offset for offset, _, _ in wanted(pulls, NOW + 1)] == [32, 64]
    found(pulls, cursor, 32, 64, 100, 10)
    assert taken(pulls) == []
    found(pulls, cursor, 64, 96, 96, 10)
    assert taken(pulls) == [(32, 64), (64, 96)]


def test_waiting_bytes_bound_what_is_sent_ahead() -> None:
    pulls, cursor = one(0, end=10_000, pull_ahead=4, min_bytes=50)
    for _ in range(20):
        for offset, size, _ in wanted(pulls):
            found(pulls, cursor, offset, offset + size, 10_000, 10)
    assert cursor.ahead == 8 * 32  # 50 bytes are there with five; no more are out then than fit `pull_ahead`
    assert cursor.ready_to_deliver(late=False)


def test_seek_drops_what_is_out() -> None:
    pulls, cursor = one(0, end=100)
    old = asked(pulls)
    found(pulls, cursor, 32, 64, 100)
    pulls.plan.seek(cursor.key, 50)
    pulls.answer(old[0], (FOUND, 32, 0, 100, Slice(b"x")))
    assert taken(pulls, late=True) == []
    assert wanted(pulls)[0] == (50, 32, False)


# bytes ----------------------------------------------------------------------------------------------------------------------------------


def test_all_queues_of_a_client_count_in_one_room() -> None:
    """Also what waits behind a hole; and who has no room hands out what there is though it is less than `min_bytes`."""
    pulls = made(40_000, pull_ahead=8, min_bytes=1 << 20, batch_bytes=1 << 20)
    cursors = [pulls.add("t", queue(number), 0) for number in range(4)]
    for cursor in cursors:
        cursor.end, cursor.mean = 10_000, 100
    for _ in range(100):
        for ticket in asked(pulls):
            pulls.answer(ticket, (FOUND, ticket.offset + 32, 0, 10_000, Slice(bytes(3200))))
        assert pulls.plan.memory.held <= 40_000
    assert pulls.plan.memory.held > 36_000
    assert taken(pulls) != []
    assert asked(pulls) != []


def test_a_hole_is_filled_though_what_is_behind_it_takes_all_the_room() -> None:
    pulls, cursor = one(0, end=96, limit=6400, pull_ahead=3)
    cursor.mean = 100
    first, second = asked(pulls)
    pulls.answer(second, (FOUND, 64, 0, 96, Slice(bytes(6400))))
    pulls.failed(first, Disconnected("gone"), NOW)
    cursor.look = False
    assert wanted(pulls, NOW + 1) == [(0, 32, False)]


def test_pulls_held_by_brokers_take_no_room_from_others() -> None:
    pulls = made(10_000)
    cursors = [pulls.add("t", queue(number), 5) for number in range(1000)]
    for cursor in cursors:
        cursor.end = 5
    assert len(wanted(pulls)) == 1000
    assert pulls.plan.memory.held == 0
    found(pulls, cursors[7], 5, 6, 6, 500)
    assert pulls.plan.memory.held == 500


def test_what_a_closed_plan_held_is_free() -> None:
    pulls, cursor = one(0, end=96)
    asked(pulls)
    found(pulls, cursor, 32, 64, 96, 100)
    found(pulls, cursor, 0, 32, 96, 100)
    assert pulls.plan.memory.held > 200
    pulls.plan.close()
    assert pulls.plan.memory.held == 0


# troubles -------------------------------------------------------------------------------------------------------------------------------


def test_several_pulls_that_fail_for_one_reason_are_one_refusal() -> None:
    pulls, cursor = one(0, end=1000)
    for ticket in asked(pulls):
        pulls.failed(ticket, Disconnected("gone"), NOW)
    assert cursor.failures == 1
    assert pulls.wakeup(NOW) < NOW + 0.1
    assert asked(pulls, NOW + 0.1) == []
    assert pulls.stale == {"t"}, "its broker is looked up first"


def test_what_will_not_pass_is_raised_behind_what_is_there_and_once() -> None:
    pulls, cursor = one(0, end=1000, pull_ahead=3, recovery_timeout=10.0)
    first, second, third = asked(pulls)
    pulls.answer(first, (FOUND, 32, 0, 1000, Slice(b"x")))
    pulls.failed(second, TopicNotExist("no"), NOW)
    assert asked(pulls, NOW) == []
    pulls.failed(third, TopicNotExist("no"), NOW + 11)
    assert taken(pulls) == [(0, 32)]
    (chunk,) = pulls.plan.take(1000)
    assert isinstance(chunk.error, TopicNotExist)
    assert (chunk.error.topic, chunk.error.partition) == ("t", 0)
    assert not pulls.plan.take(1000)
    assert cursor.position == 32


def test_a_queue_whose_broker_moved_is_asked_where_it_is_now() -> None:
    pulls, cursor = one(0, end=1000, pull_ahead=2)
    old = asked(pulls)
    found(pulls, cursor, 0, 32, 1000)
    pulls.follow(cursor, queue(0, "h:2"))
    pulls.answer(old[1], (FOUND, 64, 0, 1000, Slice(b"x")))
    (ask,) = pulls.plan.due(pulls, NOW)
    assert ask.link == "h:2"
    assert [ticket.offset for ticket in ask.tickets] == [0, 32], "what another had told is read again"


def test_after_a_signal_nothing_counts_as_under_way() -> None:
    pulls, cursor = one(0, end=1000, pull_ahead=2)
    old = asked(pulls)
    found(pulls, cursor, 0, 32, 1000)
    pulls.plan.take(1000)
    pulls.restart()
    assert pulls.plan.memory.held == 0
    assert [offset for offset, _, _ in wanted(pulls)] == [0, 32]
    pulls.answer(old[1], (FOUND, 64, 0, 1000, Slice(b"x")))
    assert cursor.ahead == 0


def test_a_reply_that_brings_nothing_and_moves_nowhere_is_asked_for_anew() -> None:
    pulls, cursor = one(0, end=100, pull_ahead=1)
    assert wanted(pulls) == [(0, 32, False)]
    found(pulls, cursor, 0, 0, 100, 5)
    assert taken(pulls, late=True) == []
    assert pulls.plan.memory.held == 0
    assert wanted(pulls) == [(0, 32, False)]
    found(pulls, cursor, 0, 1, 100, 5)
    assert taken(pulls) == [(0, 1)]


def two(**options: Any) -> tuple[Pulls, Cursor, Cursor]:
    """Two queues of one broker, whose ends are known."""
    pulls = made(**options)
    first, second = (pulls.add("t", queue(number), 0) for number in range(2))
    first.end = second.end = 1000
    return pulls, first, second


def test_who_had_no_queue_for_a_while_has_not_failed_meanwhile() -> None:
    pulls, cursor = one(end=100, recovery_timeout=30.0)
    pulls.refused(cursor, Disconnected("gone"), NOW)
    pulls.plan.remove(cursor.key)
    again = pulls.add("t", queue(1), 0)
    pulls.refused(again, Disconnected("gone"), NOW + 40.0)
    assert not again.chunks
    pulls.refused(again, Disconnected("gone"), NOW + 80.0)
    assert [type(chunk.error) for chunk in again.chunks] == [Disconnected], "now it has"


def test_whoever_works_ends_the_time_of_trouble_for_all() -> None:
    """A queue that fails now and then, while others are read, is no reason to give up."""
    pulls, first, second = two(pull_ahead=1, recovery_timeout=10.0)
    asked(pulls)
    pulls.failed(out(first, 0), Disconnected("gone"), NOW)
    found(pulls, second, 0, 32, 1000)
    assert taken(pulls) == [(0, 32)]
    first.look = False
    assert [ticket.cursor for ticket in asked(pulls, NOW + 11)] == [first, second]
    pulls.failed(out(first, 0), Disconnected("gone"), NOW + 11)
    assert [chunk.error for chunk in first.chunks] == []
    assert first.failures == 2, "its own attempts go on growing apart"
    pulls.failed(out(second, 32), Disconnected("gone"), NOW + 15)
    first.look = False
    assert [ticket.cursor for ticket in asked(pulls, NOW + 22)] == [first]
    pulls.failed(out(first, 0), Disconnected("gone"), NOW + 22)
    assert isinstance(first.chunks[-1].error, Disconnected), "nothing has worked since"


@pytest.mark.parametrize("what", ["found", "nothing"])
def test_a_queue_that_works_again_begins_with_the_shortest_pause(what: str) -> None:
    pulls, cursor = one(0, end=1000, pull_ahead=1)
    for failures in (1, 2, 3):
        asked(pulls, NOW + failures)
        pulls.failed(out(cursor, 0), Disconnected("gone"), NOW + failures)
        cursor.look = False
        assert cursor.failures == failures
    asked(pulls, NOW + 10)
    (found if what == "found" else empty)(pulls, cursor, 0, 32 if what == "found" else 0, 1000)
    assert (cursor.failures, cursor.failing_since) == (0, 0.0)


def test_only_a_reply_that_the_broker_s_bytes_cut_makes_later_ones_smaller() -> None:
    pulls, cursor = one(0, end=100, pull_ahead=1)
    for following, end, step in ((5, 100, 5), (10, 100, 10), (20, 100, 20), (40, 100, 32), (43, 43, 32)):
        ((offset, count, _),) = wanted(pulls)
        found(pulls, cursor, offset, following, end)
        assert cursor.step == step, (offset, count, following)
        taken(pulls)
    assert wanted(pulls) == [(43, 32, True)], "the last one was short because the queue ends there"


def test_a_seek_forgets_what_was_doubted_of_the_place_before() -> None:
    pulls, cursor = one(500, end=100, pull_ahead=1)
    (ticket,) = asked(pulls)
    pulls.answer(ticket, (21, 100, 0, 100, Slice(b"")))
    assert cursor.unseen
    assert asked(pulls) == []
    pulls.plan.seek(cursor.key, 10)
    assert wanted(pulls) == [(10, 32, False)], "nobody waits for the broker's log for its sake"
    cursor.deliver_now = cursor.caught_up = True
    pulls.plan.seek(cursor.key, 20)
    assert (cursor.deliver_now, cursor.unseen, cursor.caught_up) == (False, False, False)


@pytest.mark.parametrize(("sizes", "mean"), [((3200,), 562), ((64_000,), 2001), ((64_000, 3200), 1051), ((64_000, 96_000), 3001)])
def test_the_guess_of_a_message_s_size_rises_at_once_and_falls_by_halves(sizes: tuple[int, ...], mean: int) -> None:
    """What is read ahead must not outgrow the room for it."""
    pulls, cursor = one(0, end=1000, pull_ahead=1)
    for size in sizes:
        ((offset, _, _),) = wanted(pulls)
        found(pulls, cursor, offset, offset + 32, 1000, size)
        taken(pulls, 1 << 20)
    assert cursor.mean == mean
    (ticket,) = asked(pulls)
    assert ticket.size == 32 * cursor.mean


@pytest.mark.parametrize(("stop", "counts"), [(31, [31]), (32, [32]), (33, [32, 1]), (64, [32, 32]), (65, [32, 32, 1])])
def test_nothing_behind_the_stop_is_asked_for(stop: int, counts: list[int]) -> None:
    pulls, _ = one(0, end=1000, stop=stop)
    assert [count for _, count, _ in wanted(pulls)] == counts


def test_nobody_is_looked_for_while_all_that_is_stored_waits_to_be_handed_out() -> None:
    pulls, cursor = one(0, end=32, pull_ahead=2)
    asked(pulls)
    found(pulls, cursor, 0, 32, 32)
    cursor.look = True
    assert asked(pulls) == []
    assert pulls.stale == set()
    taken(pulls)
    assert asked(pulls) == []
    assert pulls.stale == {"t"}, "now there is something to ask for"


@pytest.mark.parametrize("answered", [0, 1, 2])
def test_nobody_is_looked_for_while_no_more_may_be_asked_for(answered: int) -> None:
    """So many pulls are out or wait, and the broker of the next one is not known: that matters when there is a next one."""
    pulls, cursor = one(0, end=1000, pull_ahead=2)
    asked(pulls)
    for offset in (0, 32)[:answered]:
        found(pulls, cursor, offset, offset + 32, 1000)
    cursor.look = True
    assert asked(pulls) == []
    assert pulls.stale == set()
