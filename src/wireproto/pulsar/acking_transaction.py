"""What a queue or a consumer asks of the transaction that it acknowledges in.

What it is: types alone. Must not: know how a transaction ends.
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
    """A transaction that is open; its end waits for who is `inside` it.

    Attributes:
        id: its number. asked: ACKs that have left and are not answered. committed: where consumers' groups go on after it, by consumer.
    """

    id: TransactionId
    asked: dict[object, Call]
    committed: dict[tuple[int, TopicPartition], Position]

    def registering(self, topic: str, subscription: str, until: float) -> Steps[None]:
        """Make a subscription part of it, once."""
        ...

    def holds(self, over: Callable[[bool], object]) -> None:
        """Called when it has ended, in the I/O thread: whether it was committed."""
        ...

    def fails(self, why: WireprotoError) -> None:
        """It cannot be committed any more."""
        ...

    def lost(self, text: str) -> Aborted:
        """What is raised because of that."""
        ...
