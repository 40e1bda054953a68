"""Warns where members of a consumer group read different topics.

Members share the queues of a topic among all members of the group that a broker lists, whatever each of them reads. One that reads other
topics gets a share as well, whose records no member reads: of two members with a topic each, either reads half of its topic. No broker
refuses that, and Java's clients do not report it. Brokers answer with the topics of the member whose heartbeat was the last (203). So a
member looks at them before its first heartbeat, and again when a member has come, whose heartbeat then was the last. It only warns, since
the others may be about to read the same topics, one after the other; among members of one client it is certain, and refused.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from wireproto.errors import UsageError, WireprotoError

from .bodies import ConsumerConnection
from .messages import GetConsumerConnectionListRequest

if TYPE_CHECKING:
    from wireproto.net.task import Steps

    from .cluster import RocketCluster

NEXT_BROKER_AFTER, ALL_BROKERS_TIMEOUT = 0.2, 1.0
"""Seconds after which the next broker is asked, too, while one does not answer; and seconds that all of them have."""


class Subscriptions:
    """Compares what one member reads with what others of its group read.

    Args:
        group: name of the consumer group. member: the member's client id.
        topics: those that it reads, with or without the group's retry topic.
    """

    def __init__(self, cluster: RocketCluster, group: str, member: str, topics: Collection[str]) -> None:
        self._cluster, self._group, self._member = cluster, group, member
        self.topics = self._without_retries(topics)
        self._known: frozenset[str] = frozenset()
        self._warned: set[frozenset[str]] = set()

    def _without_retries(self, topics: Iterable[str]) -> frozenset[str]:
        return frozenset(topics) - {f"%RETRY%{self._group}"}

    def refuse(self, other: Subscriptions) -> None:
        """Raise UsageError where a member of the same client and group reads other topics."""
        if other._group == self._group and other.topics != self.topics:
            text = f"this client has a member of group {self._group} that reads {_names(other.topics)}, and this one is to read"
            raise UsageError(f"{text} {_names(self.topics)}: {WHY}")

    def look_at_newcomers(self, masters: Collection[str], members: Iterable[str], until: float) -> Steps[None]:
        """Call `look`, if there are members that were not there at the last look."""
        others = frozenset(members) - {self._member}
        new, self._known = others - self._known, others
        if new:
            yield from self.look(masters, until)

    def look(self, masters: Collection[str], until: float) -> Steps[None]:
        """Warn if the member whose heartbeat was the last reads other topics. Errors are ignored."""
        if not masters:
            return
        late = min(until, time.monotonic() + ALL_BROKERS_TIMEOUT)
        message = GetConsumerConnectionListRequest(consumer_group=self._group)

        def ask(address: str) -> Steps[ConsumerConnection]:
            reply = yield from self._cluster.invoking(address, message, until=late, purpose=self._member)
            return ConsumerConnection.decode(reply.body)

        with suppress(WireprotoError):
            asked = ((f"topics of group {self._group} at {address}", ask(address)) for address in masters)
            found = yield from self._cluster.tasks.race(asked, late, NEXT_BROKER_AFTER)
            topics = self._without_retries(found.topics)
            others = sorted(one.client_id for one in found.connections if one.client_id != self._member)
            if topics and others and topics != self.topics and topics not in self._warned:
                self._warned.add(topics)
                facts = _names(topics), _names(self.topics), WHY, ", ".join(others[:5]) + (" …" if others[5:] else "")
                self._cluster.log.warning(
                    ("subscriptions", self._group, topics),
                    "group %s: one member subscribes to %s and this one to %s: %s (the group's other members: %s)",
                    self._group,
                    *facts,
                )


WHY = (
    "the group's queues are shared among all its members, and queues of a topic that their owner does not read are not consumed; "
    "use one group per set of topics"
)


def _names(topics: Iterable[str]) -> str:
    return ", ".join(sorted(topics))
