"""The queues that a producer sends to, and those that its topic gets later.

What it is: `Lanes` has a lane for each queue, and the route that says which of them a key goes to. The route is looked at again each
`route_age`, as by Java's client. A queue that is new takes records at once, but for those with a key: where a key goes changes with the
number of queues, so what is on its way arrives before any record goes by the new number. Records of a key stay in order of their sending.
So too when queues are gone, with a broker that left: until what is on its way there has arrived or failed, keys of those queues wait, and
the others go where they went.

    route     what keys go by
    coming    a route with other queues, which keys do not follow yet; None: there is none

`lock`, the producer's, guards all of it. Must not: send.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from wireproto.errors import BufferFull, TimedOut, WireprotoError

from .outbox import Lane

if TYPE_CHECKING:
    from .cluster import RocketCluster
    from .outbox import Owner, Pending
    from .route import Route

MOVE = 5.0
"""Seconds that keys wait, before they go to queues that are new, for what is on its way; then they stay where they were for a while."""


class Lanes:
    """The lanes of one producer. From `refresh_later` on it looks for new queues, until it is closed or forgotten.

    Attributes:
        all: a lane for each queue, in order of their partitions.
    """

    def __init__(
        self, producer: Owner, cluster: RocketCluster, route: Route, lock: contextlib.AbstractContextManager[bool]
    ) -> None:
        self.route = route
        self.coming: Route | None = None
        self.all = [Lane(queue, producer) for queue in route.queues]
        self.closed = False
        self._producer, self._cluster, self._lock = producer, cluster, lock

    def unsettled(self) -> list[Pending]:
        """Everything that is on its way or waits to be. Under the lock."""
        return [pending for lane in self.all for pending in (*lane.flying, *lane.waiting)]

    def refresh_later(self) -> None:
        """Ask for the route again when it is old, while somebody holds the producer."""
        when = time.monotonic() + self._producer.options.route_age + 0.01
        self._cluster.loop.call_at(when, _refresh, weakref.ref(self))

    def refresh(self) -> None:
        """In the client's worker: take in what the name servers say now."""
        with contextlib.suppress(WireprotoError):  # what is known goes on to be used; senders find out what does not work
            self.look_up()
            self._producer.learn_keys()
        if not self.closed and not self._cluster.loop.closed:
            self.refresh_later()

    def look_up(self) -> None:
        """Where the queues are now; blocks."""
        self._learn(self._cluster.route(self._producer.topic, self._cluster.deadline(self._producer.options.connect_timeout)))

    def _learn(self, route: Route) -> None:
        """Lanes for new queues. Keys follow at once, unless that could overtake what is on its way."""
        with self._lock:
            for lane, queue in zip(self.all, route.queues, strict=False):
                lane.queue = queue
            self.all += [Lane(queue, self._producer) for queue in route.queues[len(self.all) :]]
            if route.keyed != self.route.keyed and self._placed():
                self.coming = route
            else:
                self.route, self.coming = route, None

    def _placed(self) -> list[Pending]:
        """What is unsettled and may go to its own queue only."""
        return [pending for pending in self.unsettled() if not pending.free]

    def move_keys(self, timeout: float, keys: Sequence[bytes | None]) -> None:
        """Wait for what is on its way, then let keys go by the coming route. Senders of keys pass here until that is done.

        Raises:
            BufferFull: one of these keys goes to a broker that left, and what is on its way there is not settled within `timeout`.
        """
        began = time.monotonic()
        while True:
            with self._lock:
                if self.coming is None:
                    return
                waiting = self._placed()
                if not waiting:
                    self.route, self.coming = self.coming, None
                    return
                gone = set(self.route.keyed) - set(self.coming.keyed)
                stuck = [pending for pending in waiting if pending.lane.queue.partition in gone]
                if stuck and not any(key is not None and self.route.by_key(key) in gone for key in keys):
                    return
            try:
                for pending in stuck or waiting:
                    self._producer.wait(pending, began + (timeout if stuck else min(timeout, MOVE)))
            except TimedOut:
                if stuck:
                    broker = stuck[0].lane.queue.broker
                    raise BufferFull(f"records before this one wait for broker {broker}, which left the route") from None
                with self._lock:
                    self.coming = None  # until the route is looked at again
                return


def _refresh(held: weakref.ref[Lanes]) -> None:
    """In the keeper, when a route is old."""
    lanes = held()
    if lanes is not None and not lanes.closed:
        lanes._cluster.loop.background(lanes.refresh)
