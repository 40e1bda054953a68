"""What takes a producer's records under asyncio, as the core's `Appender` does elsewhere: its own `send`, with SendFutures for receipts.

May assume: the event loop's thread. Must not: wait for room, or know requests or queues.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from wireproto._codec import SendFuture
from wireproto.errors import BufferFull

if TYPE_CHECKING:
    from wireproto.flow.budget import Account

    from .outgoing import RocketBatch


class Gives(Protocol):
    """The producer: `producer.RocketProducer`."""

    topic: str

    @property
    def send(self) -> Callable[..., Any]: ...
    def give(self, receipt: Any, room: Any) -> None: ...


class Intake:
    """See the module, and `wireproto.flow.async_hooks.RecordIntake`."""

    def __init__(self, producer: Gives, account: Account) -> None:
        self._producer, self._account = producer, account
        self._face: Any = None
        self._lent = 0

    def await_by(self, face: Any) -> None:
        """Hand out SendFutures of this face."""
        self._face = face
        self._producer.give(self._future, self._room)

    def hold(self, on: bool) -> None:
        """Records wait for room in the face: it holds back what comes by itself."""

    def lend(self, size: int) -> None:
        """Room that was taken for the next record."""
        self._lent += size

    def send(self, value: bytes | None, **how: Any) -> SendFuture:
        """Take a record. Raises BufferFull, and tells the face how much it `needed`, when there is no room for it now."""
        made: Any = self._producer.send(value, **how, timeout=0.0)
        future: SendFuture = made
        return future

    def _room(self, size: int, until: float) -> None:
        lent, self._lent = self._lent, 0
        self._account.give(lent - size if lent >= size else lent)
        if lent < size:
            self._account.check()
            self._face.needed = size
            raise BufferFull(f"no room for {size} bytes now", topic=self._producer.topic)

    def _future(self, batch: RocketBatch, index: int) -> SendFuture:
        self._account.give(self._lent)  # it was not needed
        self._lent = 0
        future = SendFuture(self._face)
        future.bind(batch, index)
        return future
