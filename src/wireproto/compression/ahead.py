"""Unpacking ahead: while the reader of several packed blocks takes some in, other threads unpack those behind them.

What it is: a pool of threads for the whole process, made at its first use, and `Ahead`, the blocks of one answer in the order in which they
will be asked for. Codecs leave the interpreter while they work, so that with two cores twice as much is unpacked in the same time. Blocks
are handed over in shares of some hundred microseconds' work, since handing over takes fifty.

Nothing is decided here. A block that cannot be unpacked, that would make its share larger than LARGEST, or that nobody has begun with when
its reader comes to it, is not there (`take` returns None): the reader unpacks it in its place, with its own limit, and raises its own
error.

May assume: blocks do not change. Must not: raise what is wrong with a block, wait for more than the share in hand, or hold more than DEEP
unpacked shares, none of them larger than LARGEST.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from . import Plain, unpack

Blocks = Sequence[tuple[str, memoryview]]
Share = list[Plain | None]

LARGEST: Final = 16 << 20
DEEP: Final = 4
SHARES: Final = {"gzip": 32 << 10, "zstd": 64 << 10, "snappy": 256 << 10}
"""Packed bytes that are worth handing over, by codec. LZ4 is not: it unpacks about as fast as memory is copied, and nothing was gained."""
_MOST: Final = 3

_count: int | None = None
_pool: ThreadPoolExecutor | None = None


def threads(count: int | None = None) -> int:
    """How many threads unpack ahead, in the whole process.

    Args:
        count: have so many from now on (0: none); None leaves it. At first there are as many as cores beside the caller's, at most three.
    """
    global _count, _pool
    if count is not None:
        if not 0 <= count <= 64:
            raise ValueError(f"{count} threads: 0 to 64")
        if count != _count and _pool is not None:
            _pool.shutdown(wait=False)
            _pool = None
        _count = count
    if _count is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        _count = min(cores - 1, _MOST)
    return _count


def _forked() -> None:
    """The child has none of the threads."""
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _start(blocks: Blocks, limit: int) -> Future[Share] | None:
    """Have a share unpacked; None when there are no threads (any more)."""
    global _pool
    try:
        if _pool is None:
            _pool = ThreadPoolExecutor(threads(), "wireproto-unpack")
        return _pool.submit(_unpacked, blocks, limit)
    except RuntimeError:  # the interpreter is ending, or no thread can be had
        return None


def _unpacked(blocks: Blocks, limit: int) -> Share:
    """A share: None for a block with which there is anything wrong, and for what comes when there is no room."""
    found: Share = []
    room = LARGEST
    for name, data in blocks:
        try:
            plain = unpack(name, data, min(limit, room))
        except Exception:
            found.append(None)
        else:
            found.append(plain)
            room -= len(plain)
    return found


def _shares(blocks: Blocks) -> list[int]:
    """Where each share begins."""
    starts, size = [0], 0.0
    for number, (name, data) in enumerate(blocks):
        if size >= 1.0:
            starts.append(number)
            size = 0.0
        size += len(data) / SHARES[name] if name in SHARES else 0.0
    return starts


class Ahead:
    """The packed blocks of one answer.

    Args:
        blocks: (codec's name, bytes), in the order in which they will be taken.
        limit: bytes that one block may unpack to; LARGEST holds for a share as well.

    Attributes:
        worth: whether there is anything to hand over.
    """

    def __init__(self, blocks: Blocks, limit: int) -> None:
        starts = _shares(blocks)
        self._shares = [blocks[start:end] for start, end in zip(starts, [*starts[1:], len(blocks)], strict=True)]
        self._place = [(share, at) for share, part in enumerate(self._shares) for at in range(len(part))]
        self._limit = limit
        self._begun = 0
        self._deep = min(DEEP, threads() + 1)
        self._under_way: dict[int, Future[Share]] = {}
        self._share = -1
        self._plain: Share = []
        self._helped: dict[int, Share] = {}
        self.worth = len(self._shares) > 1 and self._deep > 1

    def take(self, index: int) -> Plain | None:
        """A block, once: what it unpacked to, or None when the caller is to do that. What comes before it is dropped."""
        share, at = self._place[index]
        if share != self._share:
            self._turn_to(share)
        if not self._plain:
            return None
        plain, self._plain[at] = self._plain[at], None
        return plain

    def _turn_to(self, share: int) -> None:
        """Have the shares behind this one unpacked, as many as may be held. With one that nobody is at, its reader begins at once."""
        self._share = share
        for passed in [number for number in self._under_way if number < share]:
            self._under_way.pop(passed).cancel()
        for passed in [number for number in self._helped if number < share]:
            del self._helped[passed]
        self._begun = max(self._begun, share + 1)
        while self._begun < min(share + self._deep, len(self._shares)):
            started = _start(self._shares[self._begun], self._limit)
            if started is not None:
                self._under_way[self._begun] = started
            self._begun += 1
        running = self._under_way.pop(share, None)
        if running is None:
            self._plain = self._helped.pop(share, [])
        elif running.cancel():
            self._plain = []
        else:
            if not running.done():
                self._help()
            self._plain = running.result()

    def _help(self) -> None:
        """While another thread is at the share in hand, unpack the next one that nobody has begun with."""
        for later in sorted(self._under_way):
            if self._under_way[later].cancel():
                del self._under_way[later]
                self._helped[later] = _unpacked(self._shares[later], self._limit)
                return

    def close(self) -> None:
        """Give up what nobody has begun with; what is under way ends by itself."""
        for running in self._under_way.values():
            running.cancel()
        self._under_way.clear()
        self._helped.clear()
        self._plain = []
