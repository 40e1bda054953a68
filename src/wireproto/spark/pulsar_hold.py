"""A durable subscription that stands where the query does, so that the broker keeps what was not read yet.

What it is: an exclusive subscription per partition, attached without permits: it is never sent a message. Its mark is moved by cumulative
acknowledgements, never by SEEK, so it only goes forward. Lives on the driver as long as the query; the subscription outlives it.
Belongs to one thread at a time. Must not: be pickled.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..position import MessageId, TopicPartition
from ..pulsar import PulsarApi_pb2 as api
from ..pulsar.feed import Feed, PartitionConsumer
from ..pulsar.frames import message_id
from ..pulsar.subscription import EXCLUSIVE, Subscription

if TYPE_CHECKING:
    from ..pulsar.cluster import PulsarCluster
    from .log import Positions

EARLIEST = 1
"""InitialPosition of a subscription that is new: it holds everything until the first acknowledgement."""


class Hold:
    """The query's subscription, on every partition that it has met."""

    def __init__(self, cluster: PulsarCluster, name: str) -> None:
        self._cluster = cluster
        self._subscription = Subscription(name, EXCLUSIVE, durable=True, initial=EARLIEST, consumer_name="spark", create_topic=False)
        self._parts: dict[TopicPartition, tuple[Feed, PartitionConsumer]] = {}

    def move(self, places: Positions) -> None:
        """Acknowledge everything before these positions.

        Raises:
            ConsumerBusy: somebody else reads this subscription.
        """
        deadline = self._cluster.deadline()
        for key, place in sorted(places.items()):
            feed, part = self._attached(key, deadline)
            assert isinstance(place, MessageId)
            if place.ledger < 0 or place.entry <= 0:
                continue  # nothing of this ledger is read; what lies before it was acknowledged by its own ends
            command = api.CommandAck(consumer_id=part.id, ack_type=api.CommandAck.Cumulative)
            command.message_id.append(message_id(place.ledger, place.entry - 1))
            self._cluster.drive(feed.ask_again(part, command, deadline), float("inf"))

    def _attached(self, key: TopicPartition, deadline: float) -> tuple[Feed, PartitionConsumer]:
        """The partition's consumer, attached again where its connection was lost."""
        found = self._parts.get(key)
        if found is None:
            topic, number = key
            full = dict(self._cluster.names(topic, deadline, create=False))[number]
            patience = max(1.0, deadline - time.monotonic())
            feed = Feed(self._cluster, [(topic, number, full)], self._subscription, window=1 << 16, patience=patience, flow=False)
            found = self._parts[key] = (feed, feed.parts[0])
        feed, part = found
        self._cluster.drive(feed.attached(part, deadline), float("inf"))
        return found
