"""Takes a producer's records under asyncio, as the core's `Appender` does elsewhere: by its own `send`, with SendFutures as receipts.

Runs in the event loop's thread and never waits for room.
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
    """Is the part of `producer.RocketProducer` that an intake uses."""

    topic: str

    @property
    def send(self) -> Callable[..., Any]:
        """Return the function that takes a record."""
        ...

    def give(self, receipt: Any, room: Any) -> None:
        """Return other receipts, and make room in another way."""
        ...


class Intake:
    """Takes records for an asyncio producer; implements `wireproto.flow.async_hooks.RecordIntake`."""

    def __init__(self, producer: Gives, account: Account) -> None:
        self._producer, self._account = producer, account
        self._face: Any = None
        self._lent = 0

    def await_by(self, face: Any) -> None:
        """Return SendFutures of this asyncio producer from now on."""
        self._face = face
        self._producer.give(self._future, self._room)

    def hold(self, on: bool) -> None:
        """Do nothing: while records wait for room, the asyncio producer itself holds back new ones."""

    def lend(self, size: int) -> None:
        """Note bytes of the send budget that were taken for the next record."""
        self._lent += size

    def send(self, value: bytes | None, **how: Any) -> SendFuture:
        """Take a record. Raises BufferFull, and sets `needed` of the asyncio producer, when there is no room for it now."""
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
