"""Adds to a `SubscriptionState` the connection of its consumer, and sends what is sent for it.

Belongs to one thread at a time, with its `MessageStream`. It does not open itself again: `subscriber` does.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from google.protobuf.message import Message

from wireproto._codec import decode_pulsar
from wireproto._net import Call, Connection
from wireproto.errors import Disconnected, WireprotoError

from . import PulsarApi_pb2 as api
from .frames import encode
from .subscriber import SubscriptionTask
from .subscription import Subscription, SubscriptionState


class PartitionConsumer(SubscriptionState):
    """One partition that a role reads, and the connection of its consumer.

    Attributes:
        conn: connection of the consumer while it is open, else None.
        link: connection of the last SUBSCRIBE, also while it is in flight.
        subscription_task: keeps the partition subscribed; None: nothing does.
        trouble: why the last attempt to open it failed.
        refused_since: when a refusal that does not pass by itself came first, as `time.monotonic()`.
        queued: whether it is in the stream's queue of partitions with frames.
    """

    def __init__(self, topic: str, partition: int, name: str, given: Subscription, window: int) -> None:
        super().__init__(topic, partition, name, given, window)
        self.conn: Connection | None = None
        self.link: Connection | None = None  # of the SUBSCRIBE that is on its way, too
        self.subscription_task: SubscriptionTask | None = None
        self.trouble: Exception | None = None
        self.refused_since: float | None = None
        self.queued = False

    @property
    def stage(self) -> str:
        """What is being waited for while it is not open."""
        return self.subscription_task.stage if self.subscription_task is not None else "it was closed"

    def lost(self) -> None:
        """Note that the consumer is gone at the broker: what was not handed over is redelivered."""
        super().lost()
        self.conn = None

    def submit(self, command: Message) -> Call:
        """Send a request about this consumer and return the call; raises Disconnected while it is not open."""
        conn, token, frame = self.request(command)
        return conn.submit(token, frame)

    def request(self, command: Any) -> tuple[Connection, int, bytes]:
        """Return what `submit` sends: connection, request id and frame; raises Disconnected while it is not open."""
        if self.conn is None:
            raise Disconnected("the consumer is not attached", topic=self.topic, partition=self.partition)
        command.request_id = self.conn.next_token()
        return self.conn, command.request_id, encode(command)

    def tell(self, command: Message) -> None:
        """Send a command that is not answered; it is lost with the connection."""
        if self.conn is not None:
            with suppress(WireprotoError):
                self.conn.send(encode(command))

    def flow(self) -> None:
        """Grant what the window has room for (FLOW)."""
        more = self.grant()
        if more:
            self.tell(api.CommandFlow(consumer_id=self.id, messagePermits=more))
            self.permits.sent()

    def handed(self, messages: int, size: int, *, new: bool = True) -> None:
        """Count `messages` of `size` bytes that left the queue, and grant more.

        Args:
            messages: number of messages. size: bytes. new: whether there was anything among them that the user had not been given before.
        """
        self.permits.handed(messages, size)
        if new and self.subscription_task is not None:
            self.subscription_task.made_progress = True
        self.flow()

    def arrived(self, messages: int, size: int) -> None:
        """Note that `messages` of `size` bytes were decoded; `left` decreases as the user receives them."""
        self.permits.measured(messages, size)
        if self.subscription_task is not None:
            self.subscription_task.made_progress = True

    def left(self, messages: int) -> None:
        """Count messages of those that `arrived` and are not kept any more, and grant more."""
        self.permits.left(messages)
        if self.permits.seen >= self.permits.look_at:
            self.flow()

    def dropped(self, frames: list[bytes]) -> None:
        """Count frames that the user does not receive, because the broker counts them too. More is granted when this member is active."""
        if frames:
            _, facts = decode_pulsar(frames, topic=self.topic, partition=self.partition, check_crc=False, columns=())
            self.permits.handed(sum(fact.permits for fact in facts), sum(map(len, frames)))
