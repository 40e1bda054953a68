"""Where EARLIEST, LATEST and points in time lie in a topic now.

What it is: a subscription of its own for the question, exclusive and not durable, that reads nothing.

    EARLIEST    GET_LAST_MESSAGE_ID of a consumer that began at the first entry tells how far it is: before that entry
    LATEST      the same answer's last message
    AtTime      SEEK to the time, SUBSCRIBE anew, and the same question

A broker closes the consumer over a SEEK and, where the subscription is not durable, lets the subscription go as well, in a thread of its
own (PersistentSubscription.removeConsumer): the consumer that comes next may be closed over that, and what comes after it begins where it
says itself, as if nothing had been sought. So one consumer only may follow a SEEK, and its place is believed only where it differs from
the one that it would have without; else the question is put again from another beginning, each time under a new name.

Must not: leave a subscription behind, or grant permits.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING

from wireproto.errors import WireprotoError
from wireproto.flow.resolve import Request
from wireproto.position import AtTime, Latest, MessageId, TopicPartition

from . import PulsarApi_pb2 as api
from .feed import Feed, Place
from .partition_consumer import EXCLUSIVE, PartitionConsumer, Subscription
from .places import FIRST

if TYPE_CHECKING:
    from .cluster import PulsarCluster


def find(
    cluster: PulsarCluster, topic: str, names: Mapping[int, str], chosen: Mapping[TopicPartition, Request], deadline: float
) -> dict[TopicPartition, MessageId]:
    """Positions of partitions; the place after the last record where there is none at or behind the one asked for.

    Args:
        names: full name of each partition.
        chosen: what is asked of each partition.
    """
    patience = max(0.0, deadline - time.monotonic())
    feed = Feed(cluster, [(topic, number, names[number]) for _, number in chosen], _subscription(), window=1 << 16, patience=patience)
    found: dict[TopicPartition, MessageId] = {}
    try:
        for part in feed.parts:
            where = chosen[topic, part.partition]
            if isinstance(where, MessageId):
                found[topic, part.partition] = where
                continue
            if isinstance(where, AtTime):
                end, mark = _at(feed, part, where.ms, deadline)
            else:
                part.start = FIRST
                feed.attached(part, deadline, flow=False)
                end, mark = feed.place(part, deadline, flow=False)
            if isinstance(where, Latest) or mark >= end:
                found[topic, part.partition] = MessageId(topic, part.partition, *end, after=True)
            else:
                found[topic, part.partition] = MessageId(topic, part.partition, mark[0], mark[1] + 1)
    finally:
        feed.close(min(deadline, time.monotonic() + 5.0))
    return found


def _subscription() -> Subscription:
    return Subscription(f"positions-{uuid.uuid4().hex[:12]}", EXCLUSIVE, durable=False, create_topic=False)


def _at(feed: Feed, part: PartitionConsumer, ms: int, deadline: float) -> tuple[Place, Place]:
    """(place of the last message, place before the first one published at `ms` or later)."""
    first: Place | None = None
    while True:
        part.subscription = _subscription()
        # SUBSCRIBE goes one entry back, for the case that the one named was read in part
        part.start = FIRST if first is None else (first[0], first[1] + 2, -1)
        feed.attached(part, deadline, flow=False)
        try:
            end, unsought = feed.here(part, deadline)
            if first is None and unsought >= end:
                return end, unsought  # the topic is empty
            feed.ask(part, api.CommandSeek(consumer_id=part.id, message_publish_time=ms), deadline)
            part.detach()
            feed.attach(part, deadline, flow=False)
            end, mark = feed.here(part, deadline)
        except WireprotoError as why:
            part.abandon()
            part.failed(why, feed.patience)
            continue
        part.close(deadline)
        part.detach()
        if mark != unsought:
            return end, mark
        # the consumer's own beginning: the place sought, or the SEEK is forgotten; another beginning tells
        first = unsought if first is None else None
