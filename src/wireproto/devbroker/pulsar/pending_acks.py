"""Keeps a subscription's acknowledgements that belong to open transactions.

It has the messages of each entry that each transaction has acknowledged, as bits, one for each message; no bits beyond the entry's messages
may be given. It acknowledges nothing itself.

A message belongs to one transaction at a time. An acknowledgement outside of transactions is accepted all the same, and wins.
"""

from __future__ import annotations

from .buffer import TxnId


class Conflict(Exception):
    """Another transaction has acknowledged the message, or it is acknowledged already."""


class PendingAcks:
    """The pending acknowledgements of one subscription.

    Attributes:
        up_to: a cumulative one: its transaction, the entry before which it has everything, and bits of that entry; None: there is none.
    """

    def __init__(self) -> None:
        self._taken: dict[int, dict[TxnId, int]] = {}
        self.up_to: tuple[TxnId, int, int] | None = None

    def __bool__(self) -> bool:
        """Return whether transactions have acknowledged any message individually."""
        return bool(self._taken)

    def taken(self, number: int) -> int:
        """Return the bits of an entry's messages that transactions have acknowledged."""
        found = 0
        for bits in self._taken.get(number, {}).values():
            found |= bits
        return found

    def take(self, transaction: TxnId, number: int, bits: int) -> None:
        """Acknowledge messages of an entry in a transaction; raises Conflict."""
        if self.taken(number) & bits:
            raise Conflict(f"entry {number} has been acknowledged by another transaction")
        of_entry = self._taken.setdefault(number, {})
        of_entry[transaction] = of_entry.get(transaction, 0) | bits

    def take_up_to(self, transaction: TxnId, number: int, bits: int) -> None:
        """Acknowledge everything before an entry, and these messages of it, in a transaction; raises Conflict."""
        if self.up_to is not None and self.up_to[0] != transaction:
            raise Conflict(f"entries before {number} have been acknowledged by another transaction")
        self.up_to = max((transaction, number, bits), self.up_to or (transaction, 0, 0))

    def ended(self, transaction: TxnId) -> tuple[dict[int, int], tuple[int, int]]:
        """Remove a transaction's acknowledgements and return them.

        Returns:
            bits by entry; and of a cumulative one, the entry before which it has everything, and bits of that entry.
        """
        bits = {number: of_entry.pop(transaction) for number, of_entry in self._taken.items() if transaction in of_entry}
        for number in bits:
            if not self._taken[number]:
                del self._taken[number]
        whole = 0, 0
        if self.up_to is not None and self.up_to[0] == transaction:
            whole, self.up_to = self.up_to[1:], None
        return bits, whole

    def clear(self) -> None:
        """Drop all of them."""
        self._taken.clear()
        self.up_to = None
