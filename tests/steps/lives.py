"""What a client does while a step of it meets a fault: sends, reads up to the end, is a member of a group, works through a queue.

What it is: `LIVES`, each with what is prepared, done, and looked at afterwards by somebody whom no fault meets; and the requests that it
consists of, with the codes that a broker may answer to each and that the vendor's client has an opinion on. A life ends with an error of
the client's, or with `Unheard` when its polls were given nothing for `TIMEOUT` seconds; an AssertionError says that a record was lost or
came twice where it must not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from wireproto import EARLIEST, LATEST
from wireproto.errors import TimedOut

TIMEOUT = 6.0
TOPIC = "t"
GROUP = "g"
SENT = [b"%d" % number for number in range(5)]
POLL = 0.5
BEATS = 4


class Unheard(TimedOut):
    """Polls came back empty for as long as this life waits."""


@dataclass(frozen=True)
class Request:
    """A step that is one request: its name, the codes that a broker may answer there, and how many of its kind come before it."""

    step: str
    name: str
    codes: tuple[int, ...] = ()
    after: int = 0


@dataclass(frozen=True)
class Life:
    """Args:
    run: given the protocol and a client that meets the fault.
    requests: by protocol; one that has none has no such life.
    pushes: what brokers say unasked, by protocol.
    last: the request during whose answer a connection falls dark, by protocol.
    prepare, check: given the protocol and a client that meets none.
    """

    name: str
    run: Callable[[str, Any], None]
    requests: dict[str, tuple[Request, ...]]
    pushes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    last: dict[str, str] = field(default_factory=dict)
    prepare: Callable[[str, Any], None] = lambda protocol, client: None
    check: Callable[[str, Any], None] = lambda protocol, client: None


def sends(protocol: str, client: Any) -> None:
    if protocol == "zookeeper":
        out = client.producer(TOPIC, timeout=TIMEOUT, delivery_timeout=TIMEOUT)
    else:
        out = client.producer(TOPIC, delivery_timeout=TIMEOUT)
    out.send(b"x", timeout=TIMEOUT).position(TIMEOUT * 2)


def write(protocol: str, client: Any) -> None:
    with client.producer(TOPIC) as out:
        for value in SENT:
            out.send(value).position(TIMEOUT)


def reads(protocol: str, client: Any) -> None:
    to_the_end(client.reader(TOPIC, start=EARLIEST, stop=LATEST))


def to_the_end(reader: Any) -> None:
    """Read what was sent, until the reader is done."""
    found: list[bytes] = []
    heard = time.monotonic()
    while not reader.done:
        batch = reader.poll(timeout=POLL)
        if batch is not None:
            found += [record.value for record in batch]
        elif time.monotonic() - heard > TIMEOUT:
            raise Unheard(f"{len(found)} of {len(SENT)} records")
    reader.close(TIMEOUT)
    assert found == SENT, found


def joins(protocol: str, client: Any) -> None:
    """A member reads all, commits, stays for some beats, leaves."""
    found: list[bytes] = []
    options = {"kafka": {"heartbeat_interval": 0.1, "session_timeout": 2.0}}.get(protocol, {})
    consumer = client.consumer(TOPIC, GROUP, **options)
    heard = time.monotonic()
    while len(set(found)) < len(SENT):
        batch = consumer.poll(timeout=POLL)
        if batch is not None:
            found += [record.value for record in batch]
        elif time.monotonic() - heard > TIMEOUT:
            raise Unheard(f"{len(found)} of {len(SENT)} records")
    consumer.commit(timeout=TIMEOUT)
    if protocol == "kafka":
        for _ in range(BEATS):
            consumer.poll(timeout=0.1)
    consumer.close(TIMEOUT)
    assert found == SENT, found


def is_committed(protocol: str, client: Any) -> None:
    """Who takes over is given nothing of what was committed."""
    with client.consumer(TOPIC, GROUP) as consumer:
        limit = time.monotonic() + TIMEOUT
        while time.monotonic() < limit and not consumer.assignment:
            batch = consumer.poll(timeout=0.1)
            assert batch is None, [record.value for record in batch]


def subscribe(protocol: str, client: Any) -> None:
    if protocol != "zookeeper":
        client.queue(TOPIC, GROUP).close(TIMEOUT)
    write(protocol, client)


def works(protocol: str, client: Any) -> None:
    """A worker takes all, acknowledges each, leaves; RocketMQ's gives one back before."""
    found: set[bytes] = set()
    queue = client.queue(TOPIC, GROUP)
    heard = time.monotonic()
    while len(found) < len(SENT):
        delivery = queue.receive(timeout=POLL)
        if delivery is not None and protocol == "rocketmq" and delivery.value == SENT[-1] and delivery.attempt == 1:
            delivery.release(timeout=TIMEOUT)
            heard = time.monotonic()
        elif delivery is not None:
            found.add(delivery.value)
            delivery.ack(timeout=TIMEOUT, wait=protocol == "rocketmq")  # whose commits in groups are told later
            heard = time.monotonic()
        elif time.monotonic() - heard > TIMEOUT:
            raise Unheard(f"{len(found)} of {len(SENT)} messages")
    queue.close(TIMEOUT)
    assert found == set(SENT), found


SUBSCRIBE = (0, 1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 17, 18, 19, 22)
"""Codes of Pulsar's SUBSCRIBE, alike for all of its roles."""
PRODUCER = (0, 1, 2, 3, 4, 6, 7, 8, 11, 14, 15, 16, 17, 18, 22, 25)
SENDS = Life(
    "sends",
    sends,
    {
        "kafka": (
            Request("handshake", "ApiVersions", (35,)),
            Request("metadata", "Metadata", (3, 5, 17, 29, 41, 129, -1)),
            Request("producer id", "InitProducerId", (14, 15, 16, 31, 51, 53)),
            Request("send", "Produce", (2, 3, 5, 6, 7, 9, 10, 18, 19, 20, 22, 29, 31, 32, 44, 45, 46, 47, 56, 59, 76, 87, 90, 100, -1)),
        ),
        "pulsar": (
            Request("handshake", "connect", (0, 3, 4, 6, 10)),
            Request("partitions", "partitionMetadata", (0, 1, 2, 3, 4, 6, 11, 14, 17)),
            Request("look-up", "lookupTopic", (0, 1, 2, 3, 4, 6, 11, 14, 17)),
            Request("producer", "producer", PRODUCER),
            Request("send", "send", (0, 1, 2, 4, 6, 9, 15, 22, 25)),
            Request("close", "close_producer"),
        ),
        "rocketmq": (
            Request("route", "GetRouteInfoByTopic", (1, 2, 17)),
            Request("handshake", "HeartBeat", (1, 2, 16)),
            Request("topic's policy", "GetTopicConfig", (1, 2, 3, 17)),
            Request("send", "SendMessageV2", (1, 2, 10, 11, 12, 13, 14, 16, 17, 204, 205, 1500)),
        ),
        "zookeeper": (
            Request("handshake", "createSession"),
            Request("make the queue", "exists", (-1, -101, -102, -112, -124, -127)),
            Request("send", "create", (-1, -4, -8, -101, -102, -110, -112, -114, -118, -119, -124, -125, -127)),
            Request("close", "closeSession"),
        ),
    },
    last={"kafka": "Produce", "pulsar": "send_receipt", "rocketmq": "SendMessageV2", "zookeeper": "create"},
)
READS = Life(
    "reads",
    reads,
    {
        "kafka": (
            Request("read: its ends", "ListOffsets", (3, 5, 6, 9, 29, 43, 56, 74, 75, 78, 100, 103, -1)),
            Request("read", "Fetch", (1, 2, 3, 5, 6, 9, 29, 56, 70, 71, 74, 75, 76, 78, 100, 103, 106, -1)),
        ),
        "pulsar": (
            Request("read: subscribe", "subscribe", SUBSCRIBE),
            Request("read: its end", "getLastMessageId", (0, 1, 2, 4, 6, 13)),
            Request("read: permits", "flow"),
        ),
        "rocketmq": (
            Request("read: its beginning", "GetMinOffset", (1, 2)),
            Request("read: its end", "GetMaxOffset", (1, 2)),
            Request("read", "PullMessage", (1, 2, 14, 16, 17, 24, 25, 26, 215)),
        ),
        "zookeeper": (
            Request("read: names", "getChildren2", (-1, -101, -102, -112, -118, -124, -127)),
            Request("read", "getData", (-1, -102, -112, -118, -124, -127)),
        ),
    },
    pushes={"pulsar": ("message",)},
    last={"kafka": "Fetch", "pulsar": "message", "rocketmq": "PullMessage", "zookeeper": "getData"},
    prepare=write,
)
JOINS = Life(
    "is a member",
    joins,
    {
        "kafka": (
            Request("group: coordinator", "FindCoordinator", (14, 15, 24, 30, -1)),
            Request("group: join", "JoinGroup", (14, 15, 16, 22, 23, 24, 25, 26, 27, 30, 79, 81, 82)),
            Request("group: share", "SyncGroup", (14, 15, 16, 22, 25, 27, 30, 82)),
            Request("group: places", "OffsetFetch", (3, 14, 15, 16, 22, 25, 29, 30, 88, 100)),
            Request("group: commit", "OffsetCommit", (3, 7, 12, 14, 15, 16, 22, 25, 27, 28, 29, 30, 82, 100, 113)),
            Request("group: beat", "Heartbeat", (14, 15, 16, 22, 25, 27, 30, 82)),
            Request("group: leave", "LeaveGroup", (15, 16, 25)),
        ),
        "pulsar": (
            Request("group: subscribe", "subscribe", SUBSCRIBE),
            Request("group: commit", "ack", (0, 1, 2, 4, 6, 13)),
            Request("group: leave", "close_consumer", (0, 6)),
        ),
        "rocketmq": (
            Request("group: members", "GetConsumerListByGroup", (1, 2, 14)),
            Request("group: places", "QueryConsumerOffset", (1, 2, 14, 16, 22)),
            Request("group: commit", "UpdateConsumerOffset", (1, 2, 14, 16)),
            Request("group: leave", "UnregisterClient", (1, 2)),
        ),
    },
    pushes={"pulsar": ("active_consumer_change", "message"), "rocketmq": ("NotifyConsumerIdsChanged",)},
    last={"kafka": "OffsetCommit", "pulsar": "ackResponse", "rocketmq": "UpdateConsumerOffset"},
    prepare=write,
    check=is_committed,
)
WORKS = Life(
    "works",
    works,
    {
        "pulsar": (
            Request("queue: subscribe", "subscribe", SUBSCRIBE),
            Request("queue: acknowledge", "ack", (0, 1, 2, 4, 6, 13)),
            Request("queue: leave", "close_consumer", (0, 6)),
        ),
        "rocketmq": (
            Request("queue: members", "GetConsumerListByGroup", (1, 2, 14)),
            Request("queue: places", "QueryConsumerOffset", (1, 2, 14, 16, 22)),
            Request("queue: give back", "ConsumerSendMsgBack", (1, 2, 14, 16)),
            Request("queue: acknowledge", "UpdateConsumerOffset", (1, 2, 14, 16)),
        ),
        "zookeeper": (
            Request("queue: names", "getChildren2", (-1, -101, -102, -112, -118, -124, -127)),
            Request("queue: claim", "create", (-1, -101, -102, -110, -112, -118, -119, -124, -127)),
            Request("queue: take", "getData", (-1, -101, -102, -112, -118, -124, -127)),
            Request("queue: acknowledge", "multi", (-1, -101, -102, -103, -112, -118, -119, -124, -127)),
        ),
    },
    pushes={"pulsar": ("message",), "zookeeper": ("notification",)},
    last={"pulsar": "ackResponse", "rocketmq": "UpdateConsumerOffset", "zookeeper": "multi"},
    prepare=subscribe,
)
LIVES = (SENDS, READS, JOINS, WORKS)
LOGINS = {"kafka": (Request("log in", "SaslHandshake", (33, 34)), Request("log in", "SaslAuthenticate", (34, 58)))}
"""Steps of who has to prove who it is, before it sends."""
