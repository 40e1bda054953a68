"""Checks whether a message that a member of a group gives back will come again.

A broker whose setting `retryQueueNums` of the group is 0 takes a message that is given back (36), answers with success, and keeps nothing
of it. Where that setting is higher than the number of queues of the group's retry topic, since it was raised after the topic was created,
the broker puts some messages into queues that no client can read; with a setting of 0 that topic is created without queues (4.9.7 and
5.5.0). So the setting is asked for before: by 352 of 5.x, by the table of all groups (201) of 4.9. If a broker refuses to answer, the
setting is assumed to be right.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from wireproto.errors import AuthError, BrokerError
from wireproto.net.retry import Verdict, verdict

from .acl import FIRST_5X
from .bodies import retry_queues
from .codes import TopicNotExist
from .errors import NotRetried
from .messages import GetAllSubscriptionGroupConfigRequest, GetSubscriptiongroupConfigRequest

if TYPE_CHECKING:
    from wireproto.net.task import Steps

    from .cluster import RocketCluster

AGE = 5.0
"""Seconds for which a broker's setting is cached: an operator may change it."""


class Retries:
    """Knows what brokers do with messages that members of one group give back."""

    def __init__(self, cluster: RocketCluster, group: str) -> None:
        self._cluster, self._group = cluster, group
        self._settings: dict[str, tuple[float, int | None]] = {}

    def check(self, address: str, until: float) -> Steps[None]:
        """Raise NotRetried where a message given back to this broker would not come again, or perhaps would not."""
        count = yield from self._setting(address, until)
        if count is None:
            return
        name = f"retryQueueNums of group {self._group}"
        if count <= 0:
            raise NotRetried(
                f"{name} is {count}: the broker would drop a message that is returned for redelivery; set it to at least 1", peer=address
            )
        readable = yield from self._readable(address, until, fresh=False)
        if readable is None or readable < count:  # the topic may have been created, or got queues, since
            readable = yield from self._readable(address, until, fresh=True)
        if readable is not None and readable < count:
            text = f"{name} is {count}, but its retry topic has {readable} readable queues: a returned message may never be redelivered"
            raise NotRetried(f"{text}; set readQueueNums of %RETRY%{self._group} to {count}", peer=address)

    def _setting(self, address: str, until: float) -> Steps[int | None]:
        """Return how many retry queues the group is to have; None: the broker refuses to say."""
        at, count = self._settings.get(address, (0.0, None))
        if at and time.monotonic() < at + AGE:
            return count
        conn = yield from self._cluster.connecting(address, until)
        old = (conn.context or 0) < FIRST_5X
        message = GetAllSubscriptionGroupConfigRequest() if old else GetSubscriptiongroupConfigRequest(group=self._group)
        try:
            reply = yield from self._cluster.asking(conn, message, until=until, again=True)
            count = retry_queues(reply.body, self._group)
        except BrokerError as why:
            if verdict(why, final=(AuthError,)) is not Verdict.NEVER:
                raise
            count = None
        self._settings[address] = time.monotonic(), count
        return count

    def _readable(self, address: str, until: float, *, fresh: bool) -> Steps[int | None]:
        """Return the number of readable queues of the retry topic at a broker; None: there is no topic yet, it will have the set number."""
        try:
            route = yield from self._cluster.routing(f"%RETRY%{self._group}", until, fresh=fresh)
        except TopicNotExist:
            return None
        return sum(queue.address == address for queue in route.readable()) if address in route.masters else None
