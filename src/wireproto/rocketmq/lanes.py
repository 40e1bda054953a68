"""Which queue a producer's records go to, also while the topic gets more of them or loses some.

What it is: `Routing` knows all queues of a topic, and the route that says which of them a key goes to. The route is looked at again each
`route_age`, as by Java's client. A queue that is new takes records at once, but for those with a key: where a key goes changes with the
number of queues, so what is on its way arrives before any record goes by the new number. Records of a key stay in order of their sending.
So too when queues are gone, with a broker that left: until what is on its way there has arrived or failed, keys of those queues wait, and
the others go where they went.

    route     what keys go by
    coming    a route with other queues, which keys do not follow yet; None: there is none
    queues    all that were ever known, by partition

The sender's lock guards all of it. Must not: send.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from wireproto.errors import BufferFull, TimedOut, WireprotoError

if TYPE_CHECKING:
    from wireproto.flow.sender import Sender

    from .cluster import RocketCluster
    from .outgoing import RocketBatch
    from .route import Queue, Route

SOON = 5.0
"""Seconds between looks while some queues cannot be written to."""
MOVE = 5.0
"""Seconds that keys wait, before they go to queues that are new, for what is on its way; then they stay where they were for a while."""


class Routing:
    """See the module. From `refresh_later` on it looks for new queues, until it is closed or forgotten.

    Args:
        learnt: called with the lock held when queues or their addresses may be others; beside: called in the worker at each look.
    """

    def __init__(
        self, cluster: RocketCluster, route: Route, every: float, core: Sender, learnt: Callable[[], None], beside: Callable[[], None]
    ) -> None:
        self.route = route
        self.coming: Route | None = None
        self.queues: Sequence[Queue] = route.queues
        self.closed = False
        self._cluster, self._every, self._core, self._learnt, self._beside = cluster, every, core, learnt, beside

    def refresh_later(self) -> None:
        """Ask for the route again when it is old, while somebody holds the producer."""
        every = self._every if self._whole() else min(self._every, SOON)
        self._cluster.loop.call_at(time.monotonic() + every + 0.01, _refresh, weakref.ref(self))

    def _whole(self) -> bool:
        """Whether every queue can be written to, as far as the route says."""
        return all(queue.writable and queue.address for queue in self.queues)

    def refresh(self) -> None:
        """In the client's worker: take in what the name servers say now."""
        if not self._whole():  # a look after a refusal has made the route young again
            self._cluster.routes.stale(self.route.topic)
        with suppress(WireprotoError):  # what is known goes on to be used; senders find out what does not work
            self.look_up()
            self._beside()
        if not self.closed and not self._cluster.loop.closed:
            self.refresh_later()

    def look_up(self) -> None:
        """Where the queues are now; blocks."""
        route = self._cluster.route(self.route.topic, self._cluster.deadline(self._cluster.options.connect_timeout))
        with self._core.lock:
            self._learn(route)

    def _learn(self, route: Route) -> None:
        """Keys follow at once, unless that could overtake what is on its way."""
        self.queues = route.queues
        if route.keyed != self.route.keyed and self._placed():
            self.coming = route
        else:
            self.route, self.coming = route, None
        self._learnt()

    def _placed(self) -> list[Any]:
        """What is unsettled and may go to its own queue only."""
        return self._core.unsettled(_stays)

    def move_keys(self, timeout: float, keys: Sequence[bytes | None]) -> None:
        """Wait for what is on its way, then let keys go by the coming route. Senders of keys pass here until that is done.

        Raises:
            BufferFull: one of these keys goes to a broker that left, and what is on its way there is not settled within `timeout`.
        """
        began = time.monotonic()
        while True:
            with self._core.lock:
                if self.coming is None:
                    return
                waiting = self._placed()
                if not waiting:
                    self.route, self.coming = self.coming, None
                    self._learnt()
                    return
                gone = set(self.route.keyed) - set(self.coming.keyed)
                stuck = [batch for batch in waiting if batch.key in gone]
                if stuck and not any(key is not None and self.route.by_key(key) in gone for key in keys):
                    return
            try:
                for batch in stuck or waiting:
                    self._settled(batch, began + (timeout if stuck else min(timeout, MOVE)))
            except TimedOut:
                if stuck:
                    broker = self.queues[stuck[0].key].broker
                    raise BufferFull(f"records before this one wait for broker {broker}, which left the route") from None
                with self._core.lock:
                    self.coming = None  # until the route is looked at again
                return

    def _settled(self, batch: RocketBatch, deadline: float) -> None:
        self._core.hurry(batch)
        try:
            batch.outcome.wait(deadline)
        except WireprotoError:
            if not batch.outcome.done:
                raise


def _stays(batch: RocketBatch) -> bool:
    return bool(batch.count) and not batch.anywhere


def _refresh(held: weakref.ref[Routing]) -> None:
    """In the keeper, when a route is old."""
    routing = held()
    if routing is not None and not routing.closed:
        routing._cluster.loop.background(routing.refresh)
