"""Acknowledgements that belong to transactions which are not over, of one subscription.

What it is: which messages of which entry each transaction has taken, as bits, one a message. May assume: bits beyond the entry's messages
are never given. Must not: acknowledge anything.

A message has one taker at a time. An acknowledgement outside of transactions is taken all the same, and wins.
"""

from __future__ import annotations

from .buffer import TxnId


class Conflict(Exception):
    """Another transaction has taken the message, or it is acknowledged."""


class PendingAcks:
    """One subscription's.

    Attributes:
        up_to: who acknowledges everything before an entry, that entry, and which of its messages besides; None: nobody.
    """

    def __init__(self) -> None:
        self._taken: dict[int, dict[TxnId, int]] = {}
        self.up_to: tuple[TxnId, int, int] | None = None

    def __bool__(self) -> bool:
        """Whether transactions have taken any message by itself."""
        return bool(self._taken)

    def taken(self, number: int) -> int:
        """Bits of an entry's messages that transactions have taken."""
        found = 0
        for bits in self._taken.get(number, {}).values():
            found |= bits
        return found

    def take(self, transaction: TxnId, number: int, bits: int) -> None:
        """Raises Conflict."""
        if self.taken(number) & bits:
            raise Conflict(f"entry {number} has been acknowledged by another transaction")
        of_entry = self._taken.setdefault(number, {})
        of_entry[transaction] = of_entry.get(transaction, 0) | bits

    def take_up_to(self, transaction: TxnId, number: int, bits: int) -> None:
        """Everything before this entry, and these messages of it. Raises Conflict."""
        if self.up_to is not None and self.up_to[0] != transaction:
            raise Conflict(f"entries before {number} have been acknowledged by another transaction")
        self.up_to = max((transaction, number, bits), self.up_to or (transaction, 0, 0))

    def ended(self, transaction: TxnId) -> tuple[dict[int, int], tuple[int, int]]:
        """The transaction is over: the bits it had taken, by entry; before which entry it had everything, and which bits of that."""
        bits = {number: of_entry.pop(transaction) for number, of_entry in self._taken.items() if transaction in of_entry}
        for number in bits:
            if not self._taken[number]:
                del self._taken[number]
        whole = 0, 0
        if self.up_to is not None and self.up_to[0] == transaction:
            whole, self.up_to = self.up_to[1:], None
        return bits, whole

    def clear(self) -> None:
        """Forget all of it."""
        self._taken.clear()
        self.up_to = None
