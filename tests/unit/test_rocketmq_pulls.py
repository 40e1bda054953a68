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
@pytest.mark.parametrize("least", [1, 25, 100, 100_000])
@pytest.mark.parametrize("seed", range(6))
def test_every_offset_once_and_in_order(limit: int, ahead: int, least: int, seed: int) -> None:
    chance = random.Random(seed)
    end, start = chance.randrange(1, 500), chance.randrange(20)
    stop = chance.randrange(start, end + 1) if end > start else start
    pulls = QueuePulls(next=start, stop=stop, ahead=ahead, least=least)
    patient = chance.random() < 0.5
    out: list[tuple[int, int, bool]] = []
    seen: list[int] = []
    for _ in range(10_000):
        out += list(pulls.wanted())
        assert len(out) <= ahead
        assert len({offset for offset, _, _ in out}) == len(out)
        if pulls.done:
            break
        if out:
            offset, size, _ = out.pop(chance.randrange(len(out)))
            assert offset + size <= max(stop, offset + 1)
            if chance.random() < 0.1:
                pulls.failed(offset)
            elif chance.random() < 0.1:
                pulls.empty(offset, offset + chance.choice((0, size)), end)
            else:
                pulls.answered(offset, serve(end, limit, offset, size), end, bytes(10))
        else:
            assert pulls.ripe  # or it would be waited for in vain
        if patient and not pulls.ripe:
            continue
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


def test_a_batch_waits_for_its_bytes_while_more_is_known_to_be_there() -> None:
    pulls = QueuePulls(next=0, end=128, ahead=2, least=30)
    assert [offset for offset, _, _ in pulls.wanted()] == [0, 32]
    pulls.answered(0, 32, 128, bytes(10))
    assert pulls.has_ready
    assert not pulls.ripe
    pulls.answered(32, 64, 128, bytes(10))
    assert not pulls.ripe
    assert [offset for offset, _, _ in pulls.wanted()] == [64, 96]
    pulls.answered(96, 128, 128, bytes(10))
    assert not pulls.ripe  # 64 is a hole
    assert list(pulls.wanted()) == []
    pulls.answered(64, 96, 128, bytes(10))
    assert pulls.ripe
    assert [answer.offset for answer in pulls.take(1000)] == [0, 32, 64, 96]


def test_a_batch_waits_no_longer_where_a_pull_fails_or_the_end_is_reached() -> None:
    pulls = QueuePulls(next=0, end=100, ahead=2, least=1000)
    list(pulls.wanted())
    pulls.answered(0, 32, 100, bytes(10))
    assert not pulls.ripe
    pulls.failed(32)
    assert pulls.ripe
    assert [answer.offset for answer in pulls.take(1000)] == [0]
    assert [offset for offset, _, _ in pulls.wanted()] == [32, 64]
    pulls.answered(32, 64, 100, bytes(10))
    assert not pulls.ripe
    pulls.answered(64, 96, 96, bytes(10))
    assert pulls.ripe


def test_waiting_bytes_bound_what_is_sent_ahead() -> None:
    pulls = QueuePulls(next=0, end=10_000, ahead=4, least=50)
    for _ in range(20):
        for offset, size, _ in list(pulls.wanted()):
            pulls.answered(offset, offset + size, 10_000, bytes(10))
    assert pulls.upto == 8 * 32  # 50 bytes are there with five; no more are out then than fit `ahead`
    assert pulls.ripe


def test_seek_drops_what_is_out() -> None:
    pulls = QueuePulls(next=0, end=100)
    list(pulls.wanted())
    generation = pulls.generation
    pulls.seek(50)
    assert pulls.generation != generation
    assert next(iter(pulls.wanted())) == (50, 32, False)
