"""The queues that a producer sends to, and those that its topic gets later.

What it is: `Lanes` has a lane for each queue, and the route that says which of them a key goes to. The route is looked at again each
`route_age`, as by Java's client. A queue that is new takes records at once, but for those with a key: where a key goes changes with the
number of queues, so what is on its way arrives before any record goes by the new number. Records of a key stay in order of their sending.

    route     what keys go by
    larger    a route with more queues, which keys do not follow yet; None: there is none

`lock`, the producer's, guards all of it. Must not: send.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from typing import TYPE_CHECKING

from wireproto.errors import TimedOut, WireprotoError

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
        self.larger: Route | None = None
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
            if set(route.keyed) > set(self.route.keyed) and self.unsettled():
                self.larger = route
            else:
                self.route, self.larger = route, None

    def move_keys(self, timeout: float) -> None:
        """Wait for everything that is on its way, then let keys go by the larger route. Every sender passes here until that is done."""
        deadline = time.monotonic() + min(timeout, MOVE)
        while True:
            with self._lock:
                unsettled = self.unsettled()
                if self.larger is None:
                    return
                if not unsettled:
                    self.route, self.larger = self.larger, None
                    return
            try:
                for pending in unsettled:
                    self._producer.wait(pending, deadline)
            except TimedOut:
                with self._lock:
                    self.larger = None  # until the route is looked at again
                return


def _refresh(held: weakref.ref[Lanes]) -> None:
    """In the keeper, when a route is old."""
    lanes = held()
    if lanes is not None and not lanes.closed:
        lanes._cluster.loop.background(lanes.refresh)
