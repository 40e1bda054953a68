"""Unpacks ahead: while the reader of several packed blocks decodes some, other threads unpack the next ones.

The process has one pool of threads, made at its first use. `Ahead` has the blocks of one answer, in the order in which they will be taken.
Codecs release the GIL while they work, so that two cores unpack twice as much in the same time. Blocks are passed to the threads in shares
of some hundred microseconds' work, since passing one takes fifty.

Errors are left to the reader. `take` returns None for a block that cannot be unpacked, that would make its share larger than LARGEST, or
whose share no thread has begun with when the reader comes to it: the reader then unpacks it itself, with its own limit and its own error.

Blocks must not change meanwhile. `Ahead` waits for no more than the current share, and holds at most DEEP unpacked shares, none of them
larger than LARGEST.
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
"""Most unpacked bytes of one share."""
DEEP: Final = 4
"""Most shares that are unpacked, or being unpacked, at a time."""
SHARES: Final = {"gzip": 32 << 10, "zstd": 64 << 10, "snappy": 256 << 10}
"""Packed bytes of a share, by codec. LZ4 has none: it unpacks about as fast as memory is copied, so nothing was gained."""
_MOST: Final = 3
"""Most threads, unless `threads` sets another number."""

_count: int | None = None
_pool: ThreadPoolExecutor | None = None


def threads(count: int | None = None) -> int:
    """Return the number of threads that unpack ahead, in the whole process, and set it if `count` is given.

    Args:
        count: the number from now on, 0 to 64 (0: none); None: unchanged. The default is one less than there are cores, at most three.

    Raises:
        ValueError: `count` is out of range.
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
    """Drop the pool in a forked child, which has none of its threads."""
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _start(blocks: Blocks, limit: int) -> Future[Share] | None:
    """Have a thread unpack a share; None when there are no threads."""
    global _pool
    try:
        if _pool is None:
            _pool = ThreadPoolExecutor(threads(), "wireproto-unpack")
        return _pool.submit(_unpacked, blocks, limit)
    except RuntimeError:  # the interpreter is ending, or no thread can be had
        return None


def _unpacked(blocks: Blocks, limit: int) -> Share:
    """Unpack a share's blocks; None for a block that fails, or that does not fit into LARGEST bytes with those before it."""
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
    """Divide blocks into shares, and return the index of the first block of each."""
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
        limit: bytes that one block may unpack to; a share may unpack to LARGEST bytes.

    Attributes:
        worth: whether there is more than one share, and a thread to unpack ahead.
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
        """Return a block's plain bytes, or None if the caller has to unpack it itself. Earlier shares are dropped.

        Args:
            index: the block's place in `blocks`. Each is taken once, in order.
        """
        share, at = self._place[index]
        if share != self._share:
            self._turn_to(share)
        if not self._plain:
            return None
        plain, self._plain[at] = self._plain[at], None
        return plain

    def _turn_to(self, share: int) -> None:
        """Make `share` the current one, and start unpacking the next ones, as many as may be held.

        If no thread has begun with the current share, it is cancelled and the reader unpacks it.
        """
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
        """Unpack the next share that no thread has begun with, while another thread is still unpacking the current one."""
        for later in sorted(self._under_way):
            if self._under_way[later].cancel():
                del self._under_way[later]
                self._helped[later] = _unpacked(self._shares[later], self._limit)
                return

    def close(self) -> None:
        """Cancel the shares that no thread has begun with; those under way end by themselves."""
        for running in self._under_way.values():
            running.cancel()
        self._under_way.clear()
        self._helped.clear()
        self._plain = []
