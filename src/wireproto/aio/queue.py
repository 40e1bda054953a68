"""Receives and acknowledges a queue's messages under asyncio.

Everything runs in the event loop's thread. The module knows no protocol.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from wireproto import records
from wireproto.position import Position
from wireproto.records import Record

from .roles import AsyncRole


class Delivery:
    """A received queue message that is not acknowledged yet; see `wireproto.records.Delivery`.

    Attributes:
        record: the message.
        attempt: number of its deliveries as the broker counts, from 1.
        made: the synchronous delivery.
    """

    __slots__ = ("_queue", "attempt", "made", "record")

    def __init__(self, queue: Queue, made: records.Delivery) -> None:
        self._queue, self.made = queue, made
        self.record: Record = made.record
        self.attempt = made.attempt

    @property
    def topic(self) -> str:
        """The topic that the message was sent to; see `wireproto.records.Delivery.topic`."""
        return self.made.topic

    @property
    def value(self) -> bytes | None:
        """The message's value; None is null."""
        return self.record.value

    @property
    def key(self) -> bytes | None:
        """The message's key; None where it has none."""
        return self.record.key

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """Pairs of name and value, in the order sent."""
        return self.record.headers

    @property
    def position(self) -> Position:
        """The message's position."""
        return self.record.position

    async def ack(self, timeout: float = 30.0, *, wait: bool = False) -> None:
        """Acknowledge the message: this worker does not receive it again. See `wireproto.records.Delivery.ack`.

        Args:
            timeout: seconds for the call.
            wait: return when the broker has confirmed it (Pulsar's and RocketMQ's acknowledgements are sent in groups otherwise).

        Raises:
            UsageError: it was acknowledged or released before. Revoked, which is one: the message was taken away, for another worker, say.
            TimedOut, Unreachable: no answer; it may be delivered again.
        """
        await self._queue.end(self.made, True, timeout, wait)

    async def release(self, timeout: float = 30.0, *, after: float | Callable[[int], float] | None = None) -> None:
        """Return the message to the broker, which delivers it again, here or to another worker.

        Args:
            timeout: seconds for the call.
            after: seconds until it is returned, or a function of `attempt` that gives them (`Backoff`); None: as the broker decides.

        Raises:
            OptionError: `after` with another protocol than Pulsar. UsageError, Revoked: as `ack`.
            TimedOut, Unreachable: no answer.
        """
        if after is None:
            await self._queue.end(self.made, False, timeout)
        else:
            self.made.release(timeout, after=after)


class Queue(AsyncRole[Any]):
    """A queue consumer; see `wireproto.roles.QueueConsumer`. ``async for delivery in queue`` never ends by itself."""

    async def receive(self, timeout: float = 1.0) -> Delivery | None:
        """Return the next message, or None when none came within `timeout`.

        Args:
            timeout: seconds to wait for a message, making the role included.

        Raises:
            ConcurrentUse: another coroutine is in a call of this queue. Closed: the queue or its client was closed.
            What `wireproto.roles.QueueConsumer.receive` raises, and why the role could not be made.
        """
        made = await self._come("receiving", timeout)
        return None if made is None else Delivery(self, made)

    async def __aiter__(self) -> AsyncIterator[Delivery]:
        while True:
            delivery = await self.receive(3600.0)
            if delivery is not None:
                yield delivery

    async def flush(self, timeout: float = 30.0) -> None:
        """Send the acknowledgements that are waiting, and wait until the broker has answered them all. Pulsar and RocketMQ.

        Args:
            timeout: seconds to wait.

        Raises:
            AsyncUnsupported: the protocol's queue has no flush. BrokerError: the broker refused some, which may be delivered again.
            Revoked: another member of the group has their queue (RocketMQ). TimedOut: some were not answered in time.
        """
        await self._do("flush", timeout=timeout)

    async def end(self, made: records.Delivery, ack: bool, timeout: float, wait: bool = False) -> None:
        """Acknowledge or return a message: the work of `Delivery.ack` and `Delivery.release`.

        Args:
            made: the synchronous delivery. ack: acknowledge it, else return it.
            timeout: seconds for the call. wait: see `Delivery.ack`.

        Raises:
            UsageError, Revoked, TimedOut, Unreachable: see `Delivery.ack`.
        """
        await self._host.drive(self._made_of(made._end)(made, ack, timeout, wait))
