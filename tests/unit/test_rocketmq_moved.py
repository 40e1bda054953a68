"""What a fetcher makes of "no such offset" (21), at each place about the ends of its queue."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from wireproto._net import Loop
from wireproto.net.told import Told
from wireproto.rocketmq.codes import PullOffsetMoved
from wireproto.rocketmq.fetch import Fetcher, Fetching
from wireproto.rocketmq.options import RocketOptions
from wireproto.rocketmq.route import Queue

LOW, HIGH = 10, 50
QUEUE = Queue(0, "b", 0, "h:1", True, True)


class Client:
    """As much of one as a fetcher that sends nothing needs."""

    writes_bare = True

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.told = Told("rocketmq", loop.call_at)


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop("test")
    yield loop
    loop.close()


def asked(loop: Loop, offset: int, *, on_moved: str, lenient: bool, caught_up: bool = True) -> tuple[Fetcher, Fetching]:
    """A fetcher whose only pull, at `offset`, is out."""
    fetcher = Fetcher(Client(loop), RocketOptions(on_moved=on_moved), group="g", purpose="pull")  # type: ignore[arg-type]
    fetcher.add("t", QUEUE, offset, earliest=lenient)
    item: Any = fetcher._held["t", 0]
    item.caught_up = caught_up
    assert [at for at, _, _ in item.pulls.wanted()] == [offset]
    return fetcher, item


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize("on_moved", ["error", "earliest", "latest"])
@pytest.mark.parametrize("offset", [0, LOW - 1, HIGH + 1, 1 << 40])
def test_outside_of_the_queue_the_option_says_where_to_go(loop: Loop, offset: int, on_moved: str, lenient: bool) -> None:
    fetcher, item = asked(loop, offset, on_moved=on_moved, lenient=lenient)
    if on_moved == "error" and not lenient:
        with pytest.raises(PullOffsetMoved, match=f"holds {LOW} up to {HIGH}") as caught:
            fetcher._moved(item, offset, LOW, LOW, HIGH)
        assert caught.value.position == QUEUE.at("t", offset)
        assert item.pulls.next == offset, "it is told again"
    else:
        fetcher._moved(item, offset, LOW, LOW, HIGH)
        assert item.pulls.next == (LOW if lenient or on_moved == "earliest" else HIGH)


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize("on_moved", ["error", "earliest", "latest"])
def test_at_the_end_it_is_no_news(loop: Loop, on_moved: str, lenient: bool) -> None:
    fetcher, item = asked(loop, HIGH, on_moved=on_moved, lenient=lenient, caught_up=False)
    fetcher._moved(item, HIGH, HIGH, LOW, HIGH)
    assert item.pulls.next == HIGH
    assert item.pulls.idle
    assert list(item.pulls.wanted()) == [(HIGH, 32, True)]


@pytest.mark.parametrize("on_moved", ["error", "earliest", "latest"])
@pytest.mark.parametrize("offset", [LOW, LOW + 1, HIGH - 1])
def test_within_the_queue_the_broker_says_where_to_go(loop: Loop, offset: int, on_moved: str) -> None:
    fetcher, item = asked(loop, offset, on_moved=on_moved, lenient=False)
    fetcher._moved(item, offset, 30, LOW, HIGH)
    assert item.pulls.next == 30


@pytest.mark.parametrize("on_moved", ["error", "earliest", "latest"])
@pytest.mark.parametrize("lenient", [False, True])
def test_beyond_the_end_it_is_believed_when_the_queue_shows_all_of_the_log(loop: Loop, on_moved: str, lenient: bool) -> None:
    fetcher, item = asked(loop, HIGH + 1, on_moved=on_moved, lenient=lenient, caught_up=False)
    fetcher._moved(item, HIGH + 1, HIGH, LOW, HIGH)
    assert item.unseen
    assert item.pulls.next == HIGH + 1


def test_of_a_pull_sent_ahead_it_only_tells_the_end(loop: Loop) -> None:
    fetcher, item = asked(loop, 20, on_moved="error", lenient=False)
    item.pulls.answered(20, 25, 100, b"x")
    ahead = [at for at, _, _ in item.pulls.wanted()]
    assert ahead[:2] == [25, 30]
    fetcher._moved(item, 57, LOW, LOW, HIGH)
    assert item.pulls.end == HIGH
    assert item.pulls.next == 20
