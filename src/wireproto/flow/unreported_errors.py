"""Keeps the delivery errors of a producer's records until a receipt, `flush` or `close` raises them.

`UnreportedErrors` is one per producer. A receipt that raises its record's error reports it; `flush` and `close` raise the first error that
no receipt has raised, and with that all are reported. Any thread may call it. It keeps no batch, and of thousands of failed records not an
error each.
"""

from __future__ import annotations

from collections.abc import Hashable

from wireproto.errors import WireprotoError

MOST = 1000
"""Failed batches that are kept one by one; of those beyond, the first error is raised even if its receipt has raised it already."""


class UnreportedErrors:
    """Holds the errors that no call has raised yet."""

    def __init__(self) -> None:
        self._errors: dict[Hashable, tuple[WireprotoError, int, set[int]]] = {}  # error, records, indexes reported
        self._beyond: WireprotoError | None = None

    def __len__(self) -> int:
        return len(self._errors)

    def __contains__(self, which: Hashable) -> bool:
        return which in self._errors

    def note(self, which: Hashable, why: WireprotoError, records: int = 1) -> None:
        """Note that `records` of the batch `which` failed with `why`. If parts of a batch fail one by one, the first error is kept."""
        kept = self._errors.get(which)
        if kept is not None:
            self._errors[which] = kept[0], kept[1] + records, kept[2]
        elif len(self._errors) < MOST:
            self._errors[which] = why, records, set()
        elif self._beyond is None:
            self._beyond = why

    def reported(self, which: Hashable, index: int = 0) -> None:
        """Note that the receipt of the record at `index` of the batch `which` has raised the error."""
        kept = self._errors.get(which)
        if kept is not None:
            kept[2].add(index)
            if len(kept[2]) >= kept[1]:
                self._errors.pop(which, None)

    def take(self) -> WireprotoError | None:
        """Return the first unreported error, or None, and count all as reported."""
        errors, self._errors = self._errors, {}
        beyond, self._beyond = self._beyond, None
        return next((why for why, _, _ in errors.values()), beyond)
