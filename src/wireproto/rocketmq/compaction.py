"""Asks whether a topic takes records with a key only: one that its brokers compact (5.x, attribute cleanup.policy=COMPACTION).

Trap: a broker refuses a single record without a key there, but acknowledges one inside a batch (320), and no client can ever read it. So
the producer has to know before it gathers. The policy of a topic cannot be changed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from wireproto.errors import BrokerError, ProtocolError, TransportError

from . import fastjson
from .codes import RequestCodeNotSupported, TopicNotExist
from .messages import GetTopicConfigRequest

if TYPE_CHECKING:
    from wireproto.net.task import Steps

    from .cluster import RocketCluster

POLICY, COMPACTED = "cleanup.policy", "COMPACTION"


def needing_keys(cluster: RocketCluster, topic: str, masters: Sequence[str], until: float) -> Steps[bool | None]:
    """Ask the topic's masters in turn until one answers; None when none does (or our account may not ask)."""
    for left, address in zip(range(len(masters), 0, -1), masters, strict=True):
        now = time.monotonic()
        try:
            share = now + max(0.0, until - now) / left
            reply = yield from cluster.invoking(address, GetTopicConfigRequest(topic=topic), until=share)
            tree = fastjson.loads(reply.body)
        except (RequestCodeNotSupported, TopicNotExist):  # an old broker, or a topic that the broker creates when it is written to
            return False
        except (TransportError, BrokerError, ProtocolError):
            continue
        attributes = tree.get("attributes") if isinstance(tree, dict) else None
        return isinstance(attributes, dict) and attributes.get(POLICY) == COMPACTED
    return None
