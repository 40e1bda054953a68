"""Tracks a batch that is sent in parts, since it was too large or some of its records were refused: where each record is, and the outcome.

The parts are queued and sent as any batch; the whole is what receipts, the send budget and the delivery timeout know. The protocol makes
`Parts`, and gives it to the sender in `verdicts.Split`; each part's outcome is `outcome()`, and its owner the `Parts`. Parts are settled
once each, by any thread.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from itertools import accumulate
from typing import Any

from wireproto.errors import WireprotoError


class Parts:
    """The parts of one batch.

    Args:
        whole: the batch.

    Attributes:
        batches: the parts, in order; set before it is given to the sender, as are the records that are in none of them (`refuse`).
        ended: set by the sender; called with the whole when each part has its outcome, perhaps twice.
    """

    def __init__(self, whole: Any) -> None:
        self.whole = whole
        self.batches: list[Any] = []
        self.ended: Callable[[Any], None] = _not_taken
        self._refused: dict[int, _Refused] = {}
        self._gaps: list[int] = []

    def outcome(self) -> PartOutcome:
        """Make the outcome of one of the parts."""
        return PartOutcome(self)

    def find(self, index: int) -> tuple[Any, int]:
        """Return the part that has a record of the whole, and the record's index there; for a refused record, an object that has its error.

        Args:
            index: of the record in the whole.
        """
        refused = self._refused.get(index)
        if refused is not None:
            return refused, 0
        index -= bisect_left(self._gaps, index)
        ends = list(accumulate(part.count for part in self.batches))
        number = bisect_right(ends, index)
        return self.batches[number], index - (ends[number - 1] if number else 0)

    def refuse(self, index: int, why: WireprotoError) -> None:
        """Fail a record of the whole that is in no part. Called in the order of the records.

        Args:
            index: of the record in the whole. why: its error.
        """
        refused = self._refused[index] = _Refused(self, why)
        self._gaps.append(index)
        self.failed(refused, why)

    def look(self) -> None:
        """End the whole if each part has its outcome; called when one of them has."""
        if all(part.outcome.done for part in self.batches):
            self.ended(self.whole)

    # --- as the parts' owner: see `flow.producer` ---

    def settled(self, size: int) -> None:
        """Do nothing: the whole holds the bytes of its records in the send budget, until it ends."""

    def failed(self, part: Any, why: WireprotoError) -> None:
        """Report to the whole's owner that a part failed: that many of the whole's records."""
        if self.whole.owner is not None:
            self.whole.owner.failed(part, why)


class PartOutcome:
    """The outcome of a part: as the engine's event, but not waited for, since callers wait for the whole's.

    Attributes:
        done: whether it is known. value, error: as of an event.
    """

    __slots__ = ("_parts", "done", "error", "value")

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.done = False
        self.value: Any = None
        self.error: BaseException | None = None

    def set(self, value: Any = None) -> None:
        """Set the outcome of a stored part."""
        self._know(value, None)

    def fail(self, error: BaseException) -> None:
        """Set the outcome of a failed part."""
        self._know(None, error)

    def _know(self, value: Any, error: BaseException | None) -> None:
        if not self.done:
            self.value, self.error = value, error
            self.done = True
        self._parts.look()


class _Refused:
    """Takes the place of the batch for a record that is in no part."""

    count = 1

    def __init__(self, parts: Parts, why: WireprotoError) -> None:
        self.serial = parts.whole.serial
        self.outcome = PartOutcome(parts)
        self.outcome.error, self.outcome.done = why, True


def _not_taken(whole: Any) -> None:
    """Do nothing, before the sender has taken the parts."""


def found(batch: Any, index: int) -> tuple[Any, int]:
    """Return the batch that settles a record, and the record's index there: the batch that it was put into, or a part of it.

    All batches are settled.
    """
    while type(batch.outcome.value) is Parts:
        batch, index = batch.outcome.value.find(index)
    return batch, index
