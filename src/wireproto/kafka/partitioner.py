"""Which partition a record goes to when its sender names none.

What it is: Kafka's default choice. A key picks by its murmur2 hash, so that every client that hashes like the Java one sends equal
keys to the same partition; records without a key stick to one partition until about a batch's worth of bytes has gone there, then move
to another: full batches at an even spread.
May assume: the number of partitions, and which of them have a leader. Must not: read a clock, or hold randomness of its own; the
caller passes a source of it.

    murmur2, 32 bit, seed 0x9747b28c, little-endian 4-byte blocks, m = 0x5bd1e995, r = 24
    partition = (hash & 0x7fffffff) % partitions
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995
_SEED = 0x9747B28C


def murmur2(data: bytes) -> int:
    """Murmur2 of `data` as an unsigned 32-bit number, with the seed that the Java client uses."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if length != whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition of `key` among `partitions`, the same for every client that follows the Java one."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class Sticky:
    """Keeps keyless records of one topic on one partition for `stride` bytes, then moves on.

    Args:
        stride: bytes after which to move: the batch size.
        choose: picks one of a sequence at random (``random.choice``).
    """

    __slots__ = ("_choose", "_current", "_room", "_stride")

    def __init__(self, stride: int, choose: Callable[[Sequence[int]], int]) -> None:
        self._stride = max(stride, 1)
        self._choose = choose
        self._current = -1
        self._room = 0

    def pick(self, size: int, available: Sequence[int]) -> int:
        """The partition for a record of `size` bytes; `available` lists those that have a leader (never empty)."""
        if self._room <= 0 or self._current not in available:
            others = [p for p in available if p != self._current] if len(available) > 1 else available
            self._current = self._choose(others)
            self._room = self._stride
        self._room -= size
        return self._current
