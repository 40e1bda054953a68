"""What goes in, what must come out, and who judges it.

    input     key  b"k<number % KEYS>"        value  "<number>:<64 hex digits of the number's own>"
    output    the same key                    value  "<NUMBER>:<DIGITS>|<SHA-256 of the input's value, repeated WORK times>"

A key's records have the order of their numbers, KEYS apart. The hash makes the transform take time, so that kills fall into it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field

KEYS = 997
WORK = 16
_PRIME = (1 << 255) - 19
_ODD = 0x9E3779B97F4A7C15F39CC0605CEDC8341082276BF3A27251F86C6A11D0C18E95
TRANSFORM = f"cast(concat(upper(cast(value AS string)), '|', sha2(cast(repeat(cast(value AS string), {WORK}) AS binary), 256)) AS binary)"


def key(number: int) -> bytes:
    return b"k%d" % (number % KEYS)


def value(number: int) -> bytes:
    return b"%d:%064x" % (number, number * _ODD % _PRIME)


def transformed(number: int) -> bytes:
    """What the job makes of the record, computed here by other means than its own."""
    plain = value(number)
    return plain.upper() + b"|" + hashlib.sha256(plain * WORK).hexdigest().encode()


@dataclass
class Judge:
    """Takes a target's records, partition by partition in their order, and keeps what is wrong with them.

    Attributes:
        total: how many numbers went in. ordered: whether a key's records must come in the order of their numbers.
        distinct: numbers seen so far. repeats: records beyond the first of a number.
        wrong: the first few sentences about what must not be, for a reader to start from.
    """

    total: int
    ordered: bool = True
    distinct: int = 0
    repeats: int = 0
    wrong: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._seen = bytearray(self.total)
        self._next = list(range(KEYS))
        self._home: dict[bytes, int] = {}
        self._faults: Counter[str] = Counter()

    def take(self, partition: int, place: str, found_key: bytes, found: bytes) -> None:
        """One record of the target; `place` is for texts."""
        head = found.partition(b":")[0]
        number = int(head) if head.isdigit() else -1
        if not 0 <= number < self.total or found_key != key(number):
            self._blame("strange", f"{place} holds {found_key!r}: {found[:80]!r}, which nobody wrote")
            return
        if self._home.setdefault(found_key, partition) != partition:
            self._blame("scattered", f"{place}: key {found_key!r} was in partition {self._home[found_key]} before")
        if self._seen[number]:
            self.repeats += 1
            if self._seen[number] < 255:
                self._seen[number] += 1
            return
        if found != transformed(number):
            self._blame("changed", f"{place} holds {found!r} for {transformed(number)!r}")
        self._seen[number] = 1
        self.distinct += 1
        slot = number % KEYS
        if self.ordered and number != self._next[slot]:
            self._blame("disorder", f"{place}: {number} of key {found_key!r} came where {self._next[slot]} was due")
        self._next[slot] = max(self._next[slot], number + KEYS)

    def _blame(self, kind: str, text: str) -> None:
        self._faults[kind] += 1
        if self._faults[kind] <= 3:
            self.wrong.append(f"{kind}: {text}")

    def verdict(self, *, once: bool) -> list[str]:
        """All that is wrong, now that there is no more; empty when all is right.

        Args:
            once: whether a number may come only once.
        """
        said = [*self.wrong, *(f"{count} records in {kind}" for kind, count in self._faults.items() if count > 3)]
        missing = [number for number, times in enumerate(self._seen) if not times]
        if missing:
            said.append(f"lost: {len(missing)} of {self.total} records, the first of them {missing[:10]}")
        if once and self.repeats:
            twice = [number for number, times in enumerate(self._seen) if times > 1]
            said.append(f"repeated: {self.repeats} records, of the numbers {twice[:10]} and so on, {len(twice)} in all")
        return said
