"""Finds the node that a request belongs to, from the request itself. Sans-IO.

| destination | requests |
|---|---|
| controller | those that change topics, partitions' replicas, features, SCRAM users |
| group's coordinator | all that name a group, offsets committed within a transaction included |
| transaction's coordinator | those that name a transactional id |
| share coordinator | state of a share group's partition: its key is `group:topic id:partition` |
| leader | reading, writing and deleting records, and what is asked of a partition's log |
| one broker | configuration of that broker |
| any | all others |

Java's AdminClient, Producer and Consumer send them to the same places. Nothing is looked up: a name that the metadata lacks is for the
caller to find.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any, NamedTuple

from .metadata import Metadata

GROUP, TRANSACTION, SHARE = 0, 1, 2  # kinds of coordinator, by FindCoordinator's key types
_BROKER_RESOURCES = (4, 8)  # BROKER, BROKER_LOGGER


class Destination(NamedTuple):
    """Where a request goes.

    Attributes:
        kind: any, node, controller, leader or coordinator.
        name: the topic, group or transactional id.
        number: the node, the partition, or the kind of coordinator.
    """

    kind: str
    name: Any = ""
    number: int = 0


ANY = Destination("any")


def destination(message: Any, metadata: Metadata) -> Destination:
    """Return the node that a request belongs to.

    Args:
        message: a request of ``kafka.messages``.
        metadata: knows the names of topic ids.
    """
    sent_to = message.SENT_TO
    if sent_to == "controller":
        return Destination("controller")
    if sent_to == "group":
        name = _first(message, ("group_id", "groups", "groups_names", "group_ids"))
        return Destination("coordinator", name, GROUP)
    if sent_to == "transaction":
        name = _first(message, ("transactional_id", "v3_and_below_transactional_id", "transactions", "transactional_ids"))
        return Destination("coordinator", name, TRANSACTION) if name else ANY
    if sent_to == "share":
        return _share_state(message)
    if sent_to == "leader":
        return _leader(message, metadata)
    if sent_to == "configs":
        return _configured(message)
    return ANY


def _first(message: Any, fields: Iterable[str]) -> str:
    """Return the first name in these fields: text, the first of several, or the name in the first of several structs; "": none."""
    for field in fields:
        value = getattr(message, field, None)
        if value and not isinstance(value, str):
            value = value[0]
        if value and not isinstance(value, str):
            value = _first(value, ("group_id", "transactional_id"))
        if value:
            return str(value)
    return ""


def _share_state(message: Any) -> Destination:
    """Return the share coordinator of the first partition named."""
    for topic in message.topics:
        for part in topic.partitions:
            text = base64.urlsafe_b64encode(bytes(topic.topic_id)).decode().rstrip("=")
            return Destination("coordinator", f"{message.group_id}:{text}:{part.partition}", SHARE)
    return ANY


def _leader(message: Any, metadata: Metadata) -> Destination:
    """Return the leader of the first partition named."""
    for outer in getattr(message, "markers", None) or getattr(message, "dirs", None) or (message,):
        for topic in getattr(outer, "topics", None) or getattr(outer, "topic_data", None) or ():
            name = getattr(topic, "name", "") or getattr(topic, "topic", "") or metadata.name(getattr(topic, "topic_id", b"") or b"")
            numbers: Any = getattr(topic, "partitions", None) or getattr(topic, "partition_data", None)
            for entry in numbers or getattr(topic, "partition_indexes", ()):
                return Destination("leader", name, _number(entry)) if name else ANY
    return ANY


def _number(entry: Any) -> int:
    """Return the number of a partition's entry, or the entry, which is a number."""
    for field in ("partition_index", "index", "partition"):
        number = getattr(entry, field, None)
        if number is not None:
            return int(number)
    return int(entry)


def _configured(message: Any) -> Destination:
    """Return the first broker whose own configuration is named."""
    for resource in message.resources:
        if resource.resource_type in _BROKER_RESOURCES and resource.resource_name.isdigit():
            return Destination("node", number=int(resource.resource_name))
    return ANY
