"""Keeps a durable subscription at a position that its user sets, so that brokers keep what lies behind it.

Attaches an exclusive subscription per partition without permits: it is never sent a message. Its mark-delete position is moved by
cumulative acknowledgements, never by SEEK, so it only goes forward. The subscription outlives the object. Belongs to one thread at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from wireproto.deadlines import deadline_after
from wireproto.errors import OptionError
from wireproto.flow.closing_role import ClosingRole
from wireproto.net.task import Steps, operation
from wireproto.position import MessageId, Position, TopicPartition

from . import PulsarApi_pb2 as api
from .frames import message_id
from .message_stream import MessageStream
from .partition_consumer import PartitionConsumer
from .places import resolver
from .subscription import EXCLUSIVE, OLDEST, Subscription

if TYPE_CHECKING:
    from .cluster import PulsarCluster

WINDOW = 1 << 16
"""Bytes for the partitions' mailboxes; no messages come."""


class PinnedSubscription(ClosingRole):
    """One subscription on every partition that `move` or `drop` named. Made by `PulsarClient.hold`."""

    def __init__(self, cluster: PulsarCluster, group: str, consumer_name: str | None = None) -> None:
        super().__init__("hold", cluster.loop)
        self._cluster = cluster
        self._tasks = cluster.tasks
        self._given = Subscription(group, EXCLUSIVE, durable=True, initial=OLDEST, consumer_name=consumer_name, create_topic=False)
        self._parts: dict[TopicPartition, tuple[MessageStream, PartitionConsumer]] = {}

    @operation
    def move(self, places: Mapping[TopicPartition, Position], *, timeout: float = 30.0) -> Steps[None]:
        """Have the brokers keep what lies behind these positions, and release what lies before them.

        A subscription that does not exist is created, and keeps all that its partition has until it is moved. It never goes back. Of a
        batch that a position lies in, the whole is kept.

        Args:
            places: the first positions not done, by (topic, partition). timeout: seconds for the call.

        Raises:
            ConsumerBusy: the subscription has other consumers. TopicNotFound: there is no such topic.
            OptionError: a position of another partition or kind of broker, or there is no such partition. TimedOut: not all was moved in
                time.
            Closed: this was closed. ConcurrentUse: another thread is in a call.
        """
        deadline = deadline_after(timeout)
        with self._only:
            for key, place in sorted(places.items()):
                position = resolver([key]).position(key, place, "the place")
                assert isinstance(position, MessageId)
                stream, part = yield from self._attached(key, deadline)
                last = position.entry if position.after and position.index < 0 else position.entry - 1
                if position.ledger < 0 or last < 0:
                    continue  # nothing of this ledger is done; what lies before it was acknowledged by its own positions
                command = api.CommandAck(consumer_id=part.id, ack_type=api.CommandAck.Cumulative)
                command.message_id.append(message_id(position.ledger, last))
                yield from stream.ask_again(part, command, deadline)

    @operation
    def drop(self, places: Iterable[TopicPartition], *, timeout: float = 30.0) -> Steps[None]:
        """Delete the subscription in these partitions: brokers keep nothing for it there any more. One that does not exist is no error.

        Args:
            places: (topic, partition) pairs. timeout: seconds for the call.

        Raises:
            ConsumerBusy: the subscription has other consumers. TopicNotFound: there is no such topic. TimedOut: not all was done in time.
            OptionError: there is no such partition. Closed: this was closed. ConcurrentUse: another thread is in a call.
        """
        deadline = deadline_after(timeout)
        with self._only:
            for key in sorted(places):
                stream, part = yield from self._attached(key, deadline)
                yield from stream.ask_again(part, api.CommandUnsubscribe(), deadline)
                del self._parts[key]
                stream.end()

    def _attached(self, key: TopicPartition, deadline: float) -> Steps[tuple[MessageStream, PartitionConsumer]]:
        """Attach the partition's consumer, or attach it again where its connection was lost."""
        found = self._parts.get(key)
        if found is None:
            topic, number = key
            names = dict((yield from self._cluster.naming(topic, deadline, create=False)))
            if number not in names:
                raise OptionError(f"there is no partition {number}: the topic has {len(names)}", topic=topic)
            recovery_timeout = self._cluster.options.timeout
            stream = MessageStream(
                self._cluster, [(topic, number, names[number])], self._given, window=WINDOW, recovery_timeout=recovery_timeout, flow=False
            )
            found = self._parts[key] = (stream, stream.parts[0])
        stream, part = found
        yield from stream.attached(part, deadline)
        return found

    def end(self) -> None:
        """Close, without waiting for the brokers."""
        for stream, _ in self._parts.values():
            stream.end()

    def _closing_steps(self, deadline: float) -> Steps[None]:
        for stream, _ in self._parts.values():
            yield from stream.closing(deadline)
