"""Chooses the queue that a producer's records go to, also while the topic gets more queues or loses some.

`QueueSelector` knows all queues of a topic, and the route that says which of them a key goes to. The route is looked up again each
`route_age`, as by Java's client. A new queue takes records without a key at once. Where a key goes changes with the number of queues, so
what is under way to a queue has to arrive, or fail, before the keys of that queue go by the new number. So records of a key stay in the
order in which they were sent, and only keys of a broker's own queues wait for that broker. They wait without blocking their sender, in a
lane: a queue of the sender that nothing is sent from, one for each pair of an old and a new partition.

    route     the route that keys go by
    coming    a route with other queues, which the keys of some queues do not follow yet; None: there is none
    before    those queues, the batches that were under way to each when the route came, and the lanes behind it
    latest    the route that is applied once all keys follow the coming one; None: no other was seen since
    queues    all that were ever known, by partition

The sender's lock guards all of it. It sends nothing itself.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from wireproto.errors import WireprotoError

from .outgoing import lane, lane_ends

if TYPE_CHECKING:
    from wireproto.flow.sender import Sender
    from wireproto.net.task import Steps

    from .cluster import RocketCluster
    from .outgoing import RocketBatch
    from .route import Queue, Route

SOON = 5.0
"""Seconds between looks while some queues cannot be written to."""


class QueueSelector:
    """Chooses queues for records; see the module. From `refresh_later` on it looks for new queues, until it is closed or collected.

    Args:
        route: the first route. every: seconds between looks at the route. core: the sender.
        learnt: called with the lock held when queues or their addresses may have changed. beside: steps that are run at each look.
    """

    def __init__(
        self,
        cluster: RocketCluster,
        route: Route,
        every: float,
        core: Sender,
        learnt: Callable[[], None],
        beside: Callable[[], Steps[None]],
    ) -> None:
        self.route = route
        self.coming: Route | None = None
        self.before: dict[int, tuple[list[RocketBatch], set[int]]] = {}
        self.latest: Route | None = None
        self.queues: Sequence[Queue] = route.queues
        self.closed = False
        self._cluster, self._every, self._core, self._learnt, self._beside = cluster, every, core, learnt, beside

    def refresh_later(self) -> None:
        """Look the route up again when it is old, while the producer lives."""
        every = self._every if self._whole() else min(self._every, SOON)
        self._cluster.loop.call_at(time.monotonic() + every + 0.01, _refresh, weakref.ref(self))

    def _whole(self) -> bool:
        """Return whether every queue can be written to, as far as the route says."""
        return all(queue.writable and queue.address for queue in self.queues)

    def _refreshing(self) -> Steps[None]:
        """Look the route up, and again later."""
        if not self._whole():  # a look-up after a refusal may have refreshed the cached route since
            self._cluster.routes.stale(self.route.topic)
        with suppress(WireprotoError):  # what is known is used on; sending shows what does not work
            yield from self.looking_up()
            yield from self._beside()
        if not self.closed and not self._cluster.loop.closed:
            self.refresh_later()

    def looking_up(self) -> Steps[None]:
        """Look up where the queues are now."""
        route = yield from self._cluster.routing(self.route.topic, self._cluster.deadline(self._cluster.options.connect_timeout))
        with self._core.lock:
            self._learn(route)

    def _learn(self, route: Route) -> None:
        """Take in a route: keys follow it at once, unless that could overtake what is under way. Lock held."""
        self.queues = route.queues
        if self.coming is not None:
            same = route.keyed == self.coming.keyed
            self.coming, self.latest = (route, None) if same else (self.coming, route)
        elif route.keyed == self.route.keyed:
            self.route = route
        else:
            self.coming = route
            for batch in self._core.unsettled(_stays):
                if batch.key in self.route.keyed:
                    self.before.setdefault(batch.key, ([], set()))[0].append(batch)
            self._follow()
        self._learnt()

    def place(self, key: bytes) -> int:
        """Return where a record with this key goes: a partition, or the key of a lane. Lock held."""
        queue = self.route.by_key(key)
        if self.coming is None:
            return queue
        new = self.coming.by_key(key)
        if new == queue or queue not in self.before:
            return new
        found = lane(queue, new)
        self.before[queue][1].add(found)
        return found

    def moving(self, route: Route) -> bool:
        """Return whether keys do not all go by this route any more. Lock held."""
        return self.coming is not None or self.route is not route

    def settled(self) -> None:
        """Let keys follow the coming route that may; called in the I/O thread when something has arrived or failed."""
        with self._core.lock:
            self._follow()
        self._core.drain()

    def _follow(self) -> None:
        """Move the keys of queues to which nothing is under way any more to the coming route, with what waits in their lanes."""
        if self.coming is None:
            return
        left = set(self._core.unsettled(_stays))
        for queue in [queue for queue, (batches, _) in self.before.items() if left.isdisjoint(batches)]:
            for key in self.before.pop(queue)[1]:
                self._core.move(key, _new_place)
        if not self.before:
            self.route, self.coming, latest, self.latest = self.coming, None, self.latest, None
            self._learnt()
            if latest is not None:
                self._learn(latest)


def _new_place(batch: RocketBatch) -> int:
    return lane_ends(batch.key)[1]


def _stays(batch: RocketBatch) -> bool:
    return bool(batch.count) and not batch.anywhere


def _refresh(held: weakref.ref[QueueSelector]) -> None:
    """Begin to look the route up; called in the I/O thread when it is old."""
    routing = held()
    if routing is not None and not routing.closed:
        routing._cluster.tasks.spawn(routing._refreshing(), f"queues of {routing.route.topic}")
