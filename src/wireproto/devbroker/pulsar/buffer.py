"""Keeps a topic's transactions: up to which entry it may be read, and which entries are never delivered.

It has entry ids by transaction, and must be given every entry of a transaction, and every end; it stores no entries.

An entry that comes after the end of its transaction is accepted, as brokers do: after a roll-back no reader sees it, and after a commit
it opens the transaction in this topic again, so that readers wait before it for ever.
"""

from __future__ import annotations

from typing import NamedTuple


class TxnId(NamedTuple):
    """A transaction's id; `most` is its coordinator's number."""

    most: int
    least: int


class Buffer:
    """The transactions of one topic.

    Attributes:
        hidden: entries that readers do not get: markers, and what was rolled back.
    """

    def __init__(self) -> None:
        self.hidden: set[int] = set()
        self._open: dict[TxnId, list[int]] = {}
        self._rolled_back: set[TxnId] = set()

    def stored(self, transaction: TxnId, number: int) -> None:
        """Note an entry of a transaction."""
        if transaction in self._rolled_back:
            self.hidden.add(number)
        else:
            self._open.setdefault(transaction, []).append(number)

    def ended(self, transaction: TxnId, committed: bool, marker: int) -> None:
        """Note the end of a transaction, and the entry that is its marker."""
        entries = self._open.pop(transaction, [])
        self.hidden.add(marker)
        if not committed:
            self._rolled_back.add(transaction)
            self.hidden.update(entries)

    def readable(self, end: int) -> int:
        """Return the entry before which readers stop: the first one of an open transaction, or `end`."""
        return min((entries[0] for entries in self._open.values()), default=end)
