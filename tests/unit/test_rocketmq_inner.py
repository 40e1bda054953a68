"""Records that 5.x brokers store as one inner batch: a pull brings all of it, the fetcher hands out what lies between start and stop."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from wireproto._codec import ReadBudget, RocketBatchBuilder, Slice
from wireproto._net import Loop
from wireproto.devbroker.rocketmq import stored
from wireproto.position import QueueOffset
from wireproto.rocketmq.fetch import Fetcher
from wireproto.rocketmq.options import RocketOptions
from wireproto.rocketmq.route import Queue


class Client:
    """As much of one as a fetcher that sends nothing needs."""

    log = None
    writes_bare = True

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.fetch_budget = ReadBudget()


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop("test")
    yield loop
    loop.close()


def inner(base: int, count: int) -> bytes:
    """Records `base` up to `base + count` as they are stored together."""
    builder = RocketBatchBuilder()
    for number in range(base, base + count):
        builder.append(b"%d" % number)
    properties = b"INNER_BASE\x01%d\x02INNER_NUM\x01%d\x02" % (base, count)
    message = stored.Message("t", builder.finish(), properties, sys_flag=0xC0, born=1)
    return stored.encode(message, 0, base, 1000 + base, 1, ("127.0.0.1", 1))


@pytest.mark.parametrize("columns", [None, ("value",), ("timestamp", "value")])
@pytest.mark.parametrize(("start", "stop"), [(0, 5), (0, 10), (3, 4), (5, 15), (5, 10), (0, 20), (12, 13), (9, 11)])
def test_rows_behind_the_stop_are_cut(
    loop: Loop, start: int, stop: int, columns: tuple[str, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetcher = Fetcher(Client(loop), RocketOptions(columns=columns), group="g", purpose="pull")  # type: ignore[arg-type]
    fetcher.add("t", Queue(0, "b", 0, "h:1", True, True), start, stop, earliest=False)
    monkeypatch.setattr(fetcher, "_send", lambda: 0.0)
    found: list[bytes | None] = []
    while not fetcher.done:
        ticket = fetcher.plan.due(fetcher.pulls, 1.0)[0].tickets[0]
        base = ticket.offset // 10 * 10
        fetcher.pulls.answer(ticket, (0, base + 10, 0, 20, Slice(inner(base, 10))))
        fetched = fetcher._take()
        assert fetched is not None
        found += fetched.batch.values()
        last = min(base + 10, stop)
        assert fetched.end == last
        assert fetched.batch.next_positions == {("t", 0): QueueOffset("t", 0, last, "b", 0)}
    assert found == [b"%d" % number for number in range(start, stop)]
    assert fetcher.positions() == {("t", 0): stop}
