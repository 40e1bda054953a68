"""Sets of indexes within a batch, as ACK and MESSAGE carry them.

What it is: 64-bit words, least significant bit first; a set bit is a message still wanted. Words are signed on the wire.
Trailing words of zero may be left out by a broker, so a missing word counts as zeros.
"""

from __future__ import annotations

from collections.abc import Iterable

WORD = 64


def words(wanted: Iterable[int], size: int) -> tuple[int, ...]:
    """The indexes still wanted, of a batch of `size`, as words."""
    bits = 0
    for index in wanted:
        if 0 <= index < size:
            bits |= 1 << index
    return _split(bits, size)


def wanted_after(first: int, size: int) -> tuple[int, ...]:
    """All from `first` on: the rest of a batch whose beginning is done with."""
    return _split((1 << size) - (1 << min(first, size)), size)


def _split(bits: int, size: int) -> tuple[int, ...]:
    found = []
    for at in range(0, max(size, 1), WORD):
        word = bits >> at & 0xFFFFFFFFFFFFFFFF
        found.append(word - (1 << 64) if word >= 1 << 63 else word)
    return tuple(found)
