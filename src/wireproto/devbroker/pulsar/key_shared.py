"""Assigns keys to the consumers of a Key_Shared subscription, and lets keys wait for their former consumer (PIP-379), as in 4.2.4.

    | mode       | hashes    | a consumer has                                                                            |
    |------------|-----------|-------------------------------------------------------------------------------------------|
    | AUTO_SPLIT | 1..65535  | 100 points on a ring; of each the hashes up to it that no other point is nearer to        |
    | STICKY     | 0..65535  | the ranges that it asked for, which must not be another's; other hashes wait              |

A hash that goes to another consumer drains first: none of its entries is delivered there as long as the former consumer holds entries of
it, unless the consumers allow out-of-order delivery. All pending entries of a hash must be with one consumer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, Generic, Protocol, TypeVar

from ..._codec import key_hash
from ...pulsar import PulsarApi_pb2 as api

POINTS = 100
"""Points of each consumer on the ring (subscriptionKeySharedConsistentHashingReplicaPoints)."""
SIZE = 65536

Range = tuple[int, int]
"""First and last hash."""


class Member(Protocol):
    """A consumer, as far as the choice needs it."""

    name: str
    ranges: Sequence[Range]
    pending: dict[int, int]


M = TypeVar("M", bound=Member)


class RangeTaken(Exception):
    """The ranges that a consumer asks for are wrong or another's."""


class AutoSplit(Generic[M]):
    """ConsistentHashingStickyKeyConsumerSelector: a point belongs to the first consumer that has it; after that one leaves, to the next."""

    def __init__(self) -> None:
        self._ring: dict[int, list[M]] = {}
        self._sorted: list[int] = []
        self._numbers: dict[int, tuple[str, int]] = {}  # by a consumer's id(): its name, and its number among those of that name

    @staticmethod
    def slot(sticky: int) -> int:
        """Return the slot of a key's hash of 31 bits; never 0."""
        return sticky % (SIZE - 1) + 1

    def add(self, member: M) -> None:
        """Add a consumer's points."""
        taken = {number for name, number in self._numbers.values() if name == member.name}
        self._numbers[id(member)] = (member.name, next(n for n in range(len(taken) + 1) if n not in taken))
        for point in self._points(member):
            self._ring.setdefault(point, []).append(member)
        self._sorted = sorted(self._ring)

    def remove(self, member: M) -> None:
        """Remove a consumer's points."""
        for point in self._points(member):
            self._ring[point].remove(member)
            if not self._ring[point]:
                del self._ring[point]
        del self._numbers[id(member)]
        self._sorted = sorted(self._ring)

    def select(self, slot: int) -> M | None:
        """Return the consumer of a slot, or None."""
        if not self._sorted:
            return None
        at = bisect_left(self._sorted, slot)
        return self._ring[self._sorted[at if at < len(self._sorted) else 0]][0]

    def ranges(self, member: M) -> list[Range]:
        """Return a consumer's ranges of hashes, as `stats` shows them."""
        found: list[Range] = []
        start = 1
        for end in [*self._sorted, *([SIZE - 1] if self._sorted and self._sorted[-1] < SIZE - 1 else [])]:
            if self.select(end) is member:
                joined = bool(found) and found[-1][1] == start - 1
                found[-1:] = [(found[-1][0], end)] if joined else [*found[-1:], (start, end)]
            start = end + 1
        return found

    def _points(self, member: M) -> list[int]:
        name, number = self._numbers[id(member)]
        return [self.slot(key_hash("murmur3", f"{name}\0{number}\0{point}".encode())) for point in range(POINTS)]


class Sticky(Generic[M]):
    """HashRangeExclusiveStickyKeyConsumerSelector: each consumer has the ranges that it asked for."""

    def __init__(self) -> None:
        self._members: list[M] = []

    @staticmethod
    def slot(sticky: int) -> int:
        """Return the slot of a key's hash of 31 bits; never 0."""
        return sticky % SIZE or 1

    def add(self, member: M) -> None:
        """Add a consumer; raises RangeTaken."""
        if not member.ranges:
            raise RangeTaken("Ranges for KeyShared policy must not be empty.")
        own = sorted(member.ranges)
        for start, end in own:
            if start > end:
                raise RangeTaken(f"Fixed hash range start > end for range: [{start},{end}]")
        for (start, end), (later, last) in pairwise(own):
            if later <= end:
                raise RangeTaken(f"Consumer's own ranges conflict: [{start},{end}] overlaps with [{later},{last}]")
        for other in self._members:
            if any(max(a, c) <= min(b, d) for a, b in own for c, d in other.ranges):
                raise RangeTaken(f"Range conflict with consumer {other.name}")
        self._members.append(member)

    def remove(self, member: M) -> None:
        """Remove a consumer."""
        self._members.remove(member)

    def select(self, slot: int) -> M | None:
        """Return the consumer of a slot, or None."""
        return next((each for each in self._members for start, end in each.ranges if start <= slot <= end), None)

    def ranges(self, member: M) -> list[Range]:
        """Return a consumer's ranges of hashes, as `stats` shows them."""
        return sorted(member.ranges)


class KeyShared(Generic[M]):
    """The keys of one subscription.

    Args:
        meta: KeySharedMeta of its first consumer; the others must agree.
        sticky_of: returns the hash of an entry's key, 31 bits.
    """

    def __init__(self, meta: Any, sticky_of: Callable[[int], int]) -> None:
        self._policy = policy_of(meta)
        self._sticky_of = sticky_of
        self.ordered = not meta.allowOutOfOrderDelivery
        self._selector: AutoSplit[M] | Sticky[M] = Sticky() if meta.keySharedMode == api.STICKY else AutoSplit()
        self._drains = self.ordered and meta.keySharedMode != api.STICKY
        self._draining: dict[int, tuple[M, list[int]]] = {}  # by slot: its former consumer, and the entries that this one held then

    def agrees(self, meta: Any) -> bool:
        """Return whether a consumer asks for the same mode and order."""
        return policy_of(meta) == self._policy

    def add(self, member: M, members: Iterable[M]) -> None:
        """Add a consumer to `members`; raises RangeTaken."""
        self._selector.add(member)
        self._drain(members)

    def remove(self, member: M, members: Iterable[M]) -> None:
        """Remove a consumer, whose entries are given back; `members` are those that stay."""
        self._selector.remove(member)
        self._drain(members)

    def ranges(self, member: M) -> list[Range]:
        """Return a consumer's ranges of hashes."""
        return self._selector.ranges(member)

    def slot(self, number: int) -> int:
        """Return the slot that decides an entry's consumer."""
        return self._selector.slot(self._sticky_of(number))

    def select(self, slot: int) -> M | None:
        """Return the consumer that gets entries of a slot now; None: they wait."""
        member = self._selector.select(slot)
        former, held = self._draining.get(slot, (None, []))
        if former is None or former is member:
            return member
        if any(number in former.pending for number in held):
            return None
        del self._draining[slot]
        return member

    def _drain(self, members: Iterable[M]) -> None:
        self._draining.clear()
        for member in members if self._drains else ():
            for number in member.pending:
                slot = self.slot(number)
                if self._selector.select(slot) is not member:
                    self._draining.setdefault(slot, (member, []))[1].append(number)


def policy_of(meta: Any) -> tuple[int, bool]:
    """Return the settings that all consumers of a subscription must share."""
    return meta.keySharedMode, meta.allowOutOfOrderDelivery
