"""Failures of a producer's records that nobody was told of yet: what its next flush, or its close, raises.

What it is: one a producer. A receipt that raises what its record failed with has told of that record; a flush tells the first of the
others, and they count as told. May be used by threads. Must not: keep a batch, or one more error for each record of thousands that fail.
"""

from __future__ import annotations

from collections.abc import Hashable

from wireproto.errors import WireprotoError

MOST = 1000
"""Failures that are kept apart; of those beyond, the first is told though its receipt may have told it."""


class Untold:
    """See the module."""

    def __init__(self) -> None:
        self._errors: dict[Hashable, tuple[WireprotoError, int, set[int]]] = {}  # … records, and those whose receipts have told
        self._beyond: WireprotoError | None = None

    def __len__(self) -> int:
        return len(self._errors)

    def __contains__(self, which: Hashable) -> bool:
        return which in self._errors

    def note(self, which: Hashable, why: WireprotoError, records: int = 1) -> None:
        """So many records of a batch failed; `which` names it. Of parts of it that fail one by one the first says why."""
        kept = self._errors.get(which)
        if kept is not None:
            self._errors[which] = kept[0], kept[1] + records, kept[2]
        elif len(self._errors) < MOST:
            self._errors[which] = why, records, set()
        elif self._beyond is None:
            self._beyond = why

    def told(self, which: Hashable, index: int = 0) -> None:
        """The receipt of one of its records has raised it."""
        kept = self._errors.get(which)
        if kept is not None:
            kept[2].add(index)
            if len(kept[2]) >= kept[1]:
                self._errors.pop(which, None)

    def take(self) -> WireprotoError | None:
        """The first that nobody was told of; all count as told from now on."""
        errors, self._errors = self._errors, {}
        beyond, self._beyond = self._beyond, None
        return next((why for why, _, _ in errors.values()), beyond)
