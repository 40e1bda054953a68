"""A batch that was too large as one, or in which some records were refused, and goes on in parts: where each of its records is by then,
and when all of it has an outcome.

What it is: what stands between the parts, which are queued and sent as any batch, and the whole, which receipts, the send budget and the
delivery timeout still know. The protocol makes it, with its parts, and gives it to the sender in `verdicts.Split`; each part's outcome is
`outcome()`, and its owner the `Parts`.
May assume: parts are settled once each, by any thread. Must not: send, or know a protocol.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from itertools import accumulate
from typing import Any

from wireproto.errors import WireprotoError


class Parts:
    """The parts of one batch.

    Attributes:
        batches: the parts, in order; set before it is given to the sender, as what is in none of them (`refuse`).
        ended: called with the whole when each has its outcome, by the sender's leave; perhaps twice.
    """

    def __init__(self, whole: Any) -> None:
        self.whole = whole
        self.batches: list[Any] = []
        self.ended: Callable[[Any], None] = _nobody
        self._refused: dict[int, _Refused] = {}
        self._gaps: list[int] = []

    def outcome(self) -> PartOutcome:
        """For one of the parts."""
        return PartOutcome(self)

    def find(self, index: int) -> tuple[Any, int]:
        """The part that has a record of the whole, and the record's index there; of one that was refused what stands for it."""
        refused = self._refused.get(index)
        if refused is not None:
            return refused, 0
        index -= bisect_left(self._gaps, index)
        ends = list(accumulate(part.count for part in self.batches))
        number = bisect_right(ends, index)
        return self.batches[number], index - (ends[number - 1] if number else 0)

    def refuse(self, index: int, why: WireprotoError) -> None:
        """A record of the whole that is in no part: it failed. In their order."""
        refused = self._refused[index] = _Refused(self, why)
        self._gaps.append(index)
        self.failed(refused, why)

    def look(self) -> None:
        """A part has its outcome."""
        if all(part.outcome.done for part in self.batches):
            self.ended(self.whole)

    # --- as the parts' owner: see `flow.producer` ---

    def settled(self, size: int) -> None:
        """The whole holds what its records take of the send budget, until it ends."""

    def failed(self, part: Any, why: WireprotoError) -> None:
        """For the whole's owner, it is so many of the whole's records."""
        if self.whole.owner is not None:
            self.whole.owner.failed(part, why)


class PartOutcome:
    """As the engine's event, but that nobody waits for it: they wait for the whole's."""

    __slots__ = ("_parts", "done", "error", "value")

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.done = False
        self.value: Any = None
        self.error: BaseException | None = None

    def set(self, value: Any = None) -> None:
        self._know(value, None)

    def fail(self, error: BaseException) -> None:
        self._know(None, error)

    def _know(self, value: Any, error: BaseException | None) -> None:
        if not self.done:
            self.value, self.error = value, error
            self.done = True
        self._parts.look()


class _Refused:
    """Stands for a record that is in no part, as a batch of its own would."""

    count = 1

    def __init__(self, parts: Parts, why: WireprotoError) -> None:
        self.serial = parts.whole.serial
        self.outcome = PartOutcome(parts)
        self.outcome.error, self.outcome.done = why, True


def _nobody(whole: Any) -> None:
    """The sender has not taken it yet."""


def found(batch: Any, index: int) -> tuple[Any, int]:
    """The batch that settles a record, and the record's index there: the one that it was put into, or a part of it. All are settled."""
    while type(batch.outcome.value) is Parts:
        batch, index = batch.outcome.value.find(index)
    return batch, index
