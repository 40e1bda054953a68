"""What a topic knows of transactions that have entries in it: up to where it may be read, and what is never handed out.

What it is: entry ids and whose they are. May assume: it is told of every entry of a transaction, and of every end. Must not: store any.

An entry that comes behind the end of its transaction is taken, as brokers take it: behind a roll-back nobody sees it, and behind a commit
it opens the transaction in this topic again, so that readers stand before it for ever.
"""

from __future__ import annotations

from typing import NamedTuple


class TxnId(NamedTuple):
    """A transaction's number; `most` is its coordinator's."""

    most: int
    least: int


class Buffer:
    """One topic's.

    Attributes:
        hidden: entries that are not for readers: markers, and what was rolled back.
    """

    def __init__(self) -> None:
        self.hidden: set[int] = set()
        self._open: dict[TxnId, list[int]] = {}
        self._rolled_back: set[TxnId] = set()

    def stored(self, transaction: TxnId, number: int) -> None:
        """An entry of a transaction."""
        if transaction in self._rolled_back:
            self.hidden.add(number)
        else:
            self._open.setdefault(transaction, []).append(number)

    def ended(self, transaction: TxnId, committed: bool, marker: int) -> None:
        """The transaction is over; the entry that tells of it."""
        entries = self._open.pop(transaction, [])
        self.hidden.add(marker)
        if not committed:
            self._rolled_back.add(transaction)
            self.hidden.update(entries)

    def readable(self, end: int) -> int:
        """Entries before this one may be handed out: those of an open transaction may not, nor what is behind them."""
        return min((entries[0] for entries in self._open.values()), default=end)
