"""A queue's worker under asyncio, and what it is handed.

May assume: the event loop's thread. Must not: know a protocol.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from wireproto import records
from wireproto.position import Position
from wireproto.records import Record

from .roles import AsyncRole


class Delivery:
    """A queue message in hand; see `wireproto.records.Delivery`.

    Attributes:
        record: the message. attempt: which time this is that it is handed out, from 1. made: the synchronous one.
    """

    __slots__ = ("_queue", "attempt", "made", "record")

    def __init__(self, queue: Queue, made: records.Delivery) -> None:
        self._queue, self.made = queue, made
        self.record: Record = made.record
        self.attempt = made.attempt

    @property
    def topic(self) -> str:
        """The topic that it was sent to; see `wireproto.records.Delivery.topic`."""
        return self.made.topic

    @property
    def value(self) -> bytes | None:
        return self.record.value

    @property
    def key(self) -> bytes | None:
        return self.record.key

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        return self.record.headers

    @property
    def position(self) -> Position:
        return self.record.position

    async def ack(self, timeout: float = 30.0, *, wait: bool = False) -> None:
        """Done with it; see `wireproto.records.Delivery.ack`."""
        await self._queue.end(self.made, True, timeout, wait)

    async def release(self, timeout: float = 30.0, *, after: float | Callable[[int], float] | None = None) -> None:
        """Give it back; see `wireproto.records.Delivery.release`."""
        if after is None:
            await self._queue.end(self.made, False, timeout)
        else:
            self.made.release(timeout, after=after)


class Queue(AsyncRole[Any]):
    """See `wireproto.roles.QueueConsumer`. ``async for delivery in queue`` goes on for ever."""

    async def receive(self, timeout: float = 1.0) -> Delivery | None:
        """The next message, or None when none came within `timeout` seconds; one coroutine at a time (ConcurrentUse)."""
        made = await self._come("receiving", timeout)
        return None if made is None else Delivery(self, made)

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        while True:
            delivery = await self.receive(3600.0)
            if delivery is not None:
                yield delivery

    async def flush(self, timeout: float = 30.0) -> None:
        """Pulsar's: send the acks that wait, and wait until the broker has answered them all."""
        await self._do("flush", timeout=timeout)

    async def end(self, made: records.Delivery, ack: bool, timeout: float, wait: bool = False) -> None:
        """What `Delivery.ack` and `release` do."""
        await self._host.drive(self._made_of(made._end)(made, ack, timeout, wait))
