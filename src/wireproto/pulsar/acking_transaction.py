"""Declares what a queue or a consumer uses of the transaction that it acknowledges in.

Types alone: how a transaction ends is in `transactions`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from wireproto._net import Call
    from wireproto.errors import Aborted, WireprotoError
    from wireproto.net.task import Steps
    from wireproto.position import Position, TopicPartition

    from .coordinators import TransactionId


class AckingTransaction(Protocol):
    """A transaction that is open; its end waits for the steps that run within it.

    Attributes:
        id: its number at its coordinator.
        asked: ACKs that were sent and are not answered.
        committed: where the group resumes after it, by consumer and partition.
    """

    id: TransactionId
    asked: dict[object, Call]
    committed: dict[tuple[int, TopicPartition], Position]

    def registering(self, topic: str, subscription: str, until: float) -> Steps[None]:
        """Make a subscription part of the transaction, once. Steps.

        Args:
            topic: full name of the partition. subscription: its name. until: deadline, as `time.monotonic()`.
        """
        ...

    def holds(self, over: Callable[[bool], object]) -> None:
        """Call `over` when the transaction has ended, in the I/O thread, with whether it was committed."""
        ...

    def fails(self, why: WireprotoError) -> None:
        """Have the transaction rolled back, for this reason."""
        ...

    def lost(self, text: str) -> Aborted:
        """Return the error to raise because the transaction has to be rolled back."""
        ...
