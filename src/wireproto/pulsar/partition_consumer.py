"""What a role has of one partition that it reads, and the connection of its consumer.

What it is: a `SubscriptionState` and what is sent for it. Belongs to one thread at a time, with its `MessageStream`. Must not: open itself again.
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
    """A partition, and the connection of its consumer.

    Attributes:
        conn: while it is open.
        trouble: why the last attempt to open it failed.
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
        super().lost()
        self.conn = None

    def submit(self, command: Message) -> Call:
        """Send a request about this consumer; raises Disconnected while it is not open."""
        conn, token, frame = self.request(command)
        return conn.submit(token, frame)

    def request(self, command: Any) -> tuple[Connection, int, bytes]:
        """What `submit` sends, and where."""
        if self.conn is None:
            raise Disconnected("the consumer is not attached", topic=self.topic, partition=self.partition)
        command.request_id = self.conn.next_token()
        return self.conn, command.request_id, encode(command)

    def tell(self, command: Message) -> None:
        """Send a command that is not answered; lost with the connection."""
        if self.conn is not None:
            with suppress(WireprotoError):
                self.conn.send(encode(command))

    def flow(self) -> None:
        """Grant what the window has room for."""
        more = self.grant()
        if more:
            self.tell(api.CommandFlow(consumer_id=self.id, messagePermits=more))
            self.permits.sent()

    def handed(self, messages: int, size: int, *, new: bool = True) -> None:
        """`messages` of `size` bytes left the queue: count them and grant anew. What was there before is no fruit of a new subscription."""
        self.permits.handed(messages, size)
        if new and self.subscription_task is not None:
            self.subscription_task.fruitful = True
        self.flow()

    def arrived(self, messages: int, size: int) -> None:
        """`messages` of `size` bytes were decoded; `left` follows as they are handed out."""
        self.permits.measured(messages, size)
        if self.subscription_task is not None:
            self.subscription_task.fruitful = True

    def left(self, messages: int) -> None:
        """So many of what `arrived` are not held any more: count them and grant anew."""
        self.permits.left(messages)
        if self.permits.seen >= self.permits.look_at:
            self.flow()

    def dropped(self, frames: list[bytes]) -> None:
        """They are not handed out: the broker has counted them all the same. Granted anew is when this member is fed."""
        if frames:
            _, facts = decode_pulsar(frames, topic=self.topic, partition=self.partition, check_crc=False, columns=())
            self.permits.handed(sum(fact.permits for fact in facts), sum(map(len, frames)))
