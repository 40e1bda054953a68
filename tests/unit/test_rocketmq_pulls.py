"""Pulls sent ahead: whatever the order and size of the replies, every offset is handed on once, in order."""

from __future__ import annotations

import random

import pytest

from wireproto.rocketmq.pulls import QueuePulls


def serve(end: int, limit: int, offset: int, size: int) -> int:
    """A broker's next offset: at most `limit` messages, or as far as there are any."""
    return min(offset + min(size, limit), end)


@pytest.mark.parametrize("limit", [1, 3, 7, 32])
@pytest.mark.parametrize("ahead", [1, 2, 8])
@pytest.mark.parametrize("seed", range(8))
def test_every_offset_once_and_in_order(limit: int, ahead: int, seed: int) -> None:
    chance = random.Random(seed)
    end, start = chance.randrange(1, 500), chance.randrange(20)
    stop = chance.randrange(start, end + 1) if end > start else start
    pulls = QueuePulls(next=start, stop=stop, ahead=ahead)
    out: list[tuple[int, int, bool]] = []
    seen: list[int] = []
    for _ in range(10_000):
        out += list(pulls.wanted())
        assert len(out) <= ahead
        if pulls.done:
            break
        if out:
            offset, size, _ = out.pop(chance.randrange(len(out)))
            assert offset + size <= max(stop, offset + 1)
            if chance.random() < 0.1:
                pulls.failed(offset)
            else:
                pulls.answered(offset, serve(end, limit, offset, size), end, bytes(10))
        else:
            assert pulls.has_ready
        for answer in pulls.take(chance.choice([0, 30, 1000])):
            seen += range(answer.offset, answer.next_offset)
    assert seen == list(range(start, stop))
    assert pulls.idle


def test_at_the_end_one_pull_waits_at_the_broker() -> None:
    pulls = QueuePulls(next=10)
    assert list(pulls.wanted()) == [(10, 32, True)]
    assert list(pulls.wanted()) == []
    pulls.empty(10, 10, 10)
    assert list(pulls.wanted()) == [(10, 32, True)]
    pulls.answered(10, 42, 100, b"x")
    assert list(pulls.wanted()) == [(42, 32, False), (74, 32, False)]


def test_filtered_out_messages_are_passed_over() -> None:
    pulls = QueuePulls(next=0, stop=40)
    assert list(pulls.wanted()) == [(0, 32, True)]
    pulls.empty(0, 32, 100)
    assert [answer.next_offset for answer in pulls.take(100)] == [32]
    assert list(pulls.wanted()) == [(32, 8, False)]


def test_a_hole_is_filled_and_later_replies_stay_good() -> None:
    pulls = QueuePulls(next=0, end=96, ahead=3)
    assert list(pulls.wanted()) == [(0, 32, False), (32, 32, False), (64, 32, False)]
    pulls.answered(0, 20, 96, b"a")
    pulls.answered(32, 64, 96, b"c")
    assert [answer.offset for answer in pulls.take(100)] == [0]
    assert next(iter(pulls.wanted())) == (20, 12, False)
    pulls.answered(20, 32, 96, b"b")
    assert [answer.offset for answer in pulls.take(100)] == [20, 32]


def test_seek_drops_what_is_out() -> None:
    pulls = QueuePulls(next=0, end=100)
    list(pulls.wanted())
    generation = pulls.generation
    pulls.seek(50)
    assert pulls.generation != generation
    assert next(iter(pulls.wanted())) == (50, 32, False)
