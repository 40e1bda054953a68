"""Chooses the partition of a record that names none.

Kafka's default choice. A key picks by its murmur2 hash, so that every client that hashes like the Java one sends equal keys to the same
partition; records without a key stick to one partition until about a batch's worth of bytes has gone there, then move to another: full
batches at an even spread. Reads no clock and has no randomness of its own: the caller passes a source of it, the number of partitions, and
which of them have a leader that answers.

    partition_for_key(key, partitions)      (murmur2(key) & 0x7fffffff) % partitions, in the core
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .._codec import kafka_partition as partition_for_key

__all__ = ["Sticky", "partition_for_key"]


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
        """Return the partition for a record of `size` bytes; `available` lists those that may be chosen (never empty)."""
        if self._room <= 0 or self._current not in available:
            others = [p for p in available if p != self._current] if len(available) > 1 else available
            self._current = self._choose(others)
            self._room = self._stride
        self._room -= size
        return self._current

    def lend(self) -> int:
        """Take what is left of the stride, in bytes, for the caller to count down."""
        room, self._room = self._room, 0
        return room
