"""Assigns the partitions of subscribed topics to the members of a group.

The assignors that other clients call ``range`` and ``roundrobin``, with the same results as theirs. A member offers both, in its order of
preference; the coordinator takes one that all members offer. Pure functions of their arguments.

    range         per topic, members in order of id get consecutive partitions, the first ones one more when the division leaves a rest
    roundrobin    all partitions of all topics in order, to one member after the other, passing over those that do not subscribe

    subscription and assignment travel as opaque bytes in JoinGroup and SyncGroup:
        int16 version | ConsumerProtocolSubscription or ConsumerProtocolAssignment in that version
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping

from ..errors import Malformed
from ..position import TopicPartition
from .messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription, ConsumerProtocolTopicPartition

_VERSION = struct.Struct(">h")


def range_assign(members: Mapping[str, Iterable[str]], partitions: Mapping[str, int]) -> dict[str, list[TopicPartition]]:
    """Assign partitions to members.

    Args:
        members: member id to the topics it subscribes to.
        partitions: topic to its number of partitions; unknown topics are left out.
    Returns:
        every member id, with its partitions in order (possibly none).
    """
    shares: dict[str, list[TopicPartition]] = {member: [] for member in members}
    interested: dict[str, list[str]] = {}
    for member in sorted(members):
        for topic in members[member]:
            interested.setdefault(topic, []).append(member)
    for topic in sorted(interested):
        holders = interested[topic]
        each, rest = divmod(partitions.get(topic, 0), len(holders))
        start = 0
        for index, member in enumerate(holders):
            stop = start + each + (index < rest)
            shares[member].extend((topic, partition) for partition in range(start, stop))
            start = stop
    return shares


def roundrobin_assign(members: Mapping[str, Iterable[str]], partitions: Mapping[str, int]) -> dict[str, list[TopicPartition]]:
    """Assign partitions to members; arguments and result as those of `range_assign`."""
    shares: dict[str, list[TopicPartition]] = {member: [] for member in members}
    wanted = {member: frozenset(topics) for member, topics in members.items()}
    circle = sorted(members)
    turn = 0
    for topic in sorted(frozenset().union(*wanted.values())):
        for partition in range(partitions.get(topic, 0)):
            while topic not in wanted[circle[turn % len(circle)]]:
                turn += 1
            shares[circle[turn % len(circle)]].append((topic, partition))
            turn += 1
    return shares


ASSIGNORS: Mapping[str, Callable[[Mapping[str, Iterable[str]], Mapping[str, int]], dict[str, list[TopicPartition]]]] = {
    "range": range_assign,
    "roundrobin": roundrobin_assign,
}
"""The assignors by the name under which members offer them, in our order of preference."""


def encode_subscription(topics: Iterable[str]) -> bytes:
    """Encode the topics that a member subscribes to, for JoinGroup."""
    return _VERSION.pack(0) + ConsumerProtocolSubscription(topics=tuple(sorted(topics))).encode(0)


def decode_subscription(data: bytes) -> tuple[str, ...]:
    """Decode the topics of a member's subscription, of any version: newer ones only add fields at the end. Raises ProtocolError."""
    message, _ = ConsumerProtocolSubscription.decode_from(data, _version(data, ConsumerProtocolSubscription.MAX_VERSION), start=2)
    return tuple(message.topics)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode the partitions that the leader assigns to a member, for SyncGroup."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    assigned = tuple(ConsumerProtocolTopicPartition(topic=topic, partitions=tuple(numbers)) for topic, numbers in by_topic.items())
    return _VERSION.pack(0) + ConsumerProtocolAssignment(assigned_partitions=assigned).encode(0)


def decode_assignment(data: bytes) -> frozenset[TopicPartition]:
    """Decode the partitions assigned to a member; an empty assignment may also be no bytes at all. Raises ProtocolError."""
    if not data:
        return frozenset()
    message, _ = ConsumerProtocolAssignment.decode_from(data, _version(data, ConsumerProtocolAssignment.MAX_VERSION), start=2)
    return frozenset((entry.topic, partition) for entry in message.assigned_partitions for partition in entry.partitions)


def _version(data: bytes, newest: int) -> int:
    """Return the version to decode: that of the data, at most `newest`."""
    if len(data) < 2:
        raise Malformed("group metadata is shorter than its version number", offset=0)
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise Malformed(f"group metadata of version {version}", offset=0)
    return min(version, newest)
