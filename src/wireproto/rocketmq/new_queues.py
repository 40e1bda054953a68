"""Finds queues that a topic gets while a reader follows it, and those whose broker was away when it opened.

A task looks at the route now and then; a queue that may be read and is not yet is read from then on. Where it begins:

    it came later           its first record
    it was known, and away  where the start says: LATEST is what was stored since the reader opened, or since its seek to LATEST

One thread at a time calls it. It never waits: `look` takes in the result of a task. It may run twice for the same result, since a signal
handler may raise anywhere.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from wireproto.errors import Closed, WireprotoError
from wireproto.net.task import NEVER, Steps, Task, after
from wireproto.position import AtTime, Earliest, Latest

from .transient_errors import TransientErrors

if TYPE_CHECKING:
    from wireproto.position import TopicPartition

    from .cluster import RocketCluster
    from .fetch import Fetcher
    from .offset_lookup import OffsetLookup
    from .options import RocketOptions
    from .route import Queue, Route

    Found = dict[TopicPartition, tuple[Queue, int]]

SOON = 5.0
"""Seconds between looks while a known queue is not read."""
AGAIN = 1.0
"""Seconds until a look that failed is repeated."""


class NewQueues:
    """Adds queues to a reader's fetcher as they appear.

    Args:
        offsets: the topic's look-ups. fetcher: the reader's, to which queues are added.
        start: EARLIEST, LATEST or AtTime: where queues begin that are known already.
        route: the topic's route when the reader opened.
    """

    def __init__(
        self,
        cluster: RocketCluster,
        options: RocketOptions,
        offsets: OffsetLookup,
        fetcher: Fetcher,
        start: Earliest | Latest | AtTime,
        route: Route,
    ) -> None:
        self._cluster, self._options, self._offsets, self._fetcher, self._topic = cluster, options, offsets, fetcher, route.topic
        self._transient = TransientErrors(options.recovery_timeout)
        self._task: Task[tuple[Found, WireprotoError | None]] | None = None
        self.moved(start, route)

    def moved(self, start: Earliest | Latest | AtTime, route: Route) -> None:
        """Begin again at `start`, since the reader was opened or has sought there."""
        self._start = AtTime(int(time.time() * 1000)) if isinstance(start, Latest) else start
        self._known = frozenset(route.homes)
        self._task, self._due = None, time.monotonic() + self._pause(route)

    def _pause(self, route: Route) -> float:
        whole = not self._unread(route.queues)
        return self._options.route_age if whole else min(self._options.route_age, SOON)

    def _unread(self, queues: Iterable[Queue]) -> list[Queue]:
        cursors = self._fetcher.plan.cursors
        read = {cursor.queue.home for cursor in list(cursors.values())}
        return [queue for queue in queues if queue.home not in read and (self._topic, queue.partition) not in cursors]

    @property
    def next_look(self) -> float:
        """Return when `look` has something to do at the latest; the end of a task wakes the fetcher sooner."""
        return self._due if self._task is None else NEVER

    def look(self) -> None:
        """Read the queues that a task has found, and begin the next one when it is due.

        Raises:
            WireprotoError: an error that does not pass, or has lasted `recovery_timeout`.
        """
        task = self._task
        if task is None:
            if time.monotonic() >= self._due:
                self._task = task = self._cluster.tasks.spawn(self._looking(), f"queues of {self._topic}")
                after(task, self._fetcher.wake)
        elif task.done:
            self._take(task)

    def _take(self, task: Task[tuple[Found, WireprotoError | None]]) -> None:
        found, problem = task.result()
        for key, (queue, offset) in found.items():
            if key not in self._fetcher.plan.cursors:
                self._fetcher.add(self._topic, queue, offset, earliest=not offset)
        route = self._cluster.routes.known(self._topic)
        pause = AGAIN if problem is not None or route is None else self._pause(route)
        self._task, self._due = None, time.monotonic() + pause
        if problem is None:
            self._transient.over("new queues")
        elif not self._transient.pass_over("new queues", problem, time.monotonic()):
            raise problem

    def close(self) -> None:
        """End the task that looks, since the reader is closed."""
        if self._task is not None:
            self._task.cancel(Closed("the reader was closed"))

    def _looking(self) -> Steps[tuple[Found, WireprotoError | None]]:
        """Find the queues that are to be read from now on, and where they begin; returns the first error, too."""
        cluster, until = self._cluster, time.monotonic() + self._options.request_timeout
        known = cluster.routes.known(self._topic)
        if known is not None and self._unread(known.queues):
            cluster.routes.stale(self._topic)
        found: Found = {}
        try:
            route = yield from cluster.routing(self._topic, until)
        except WireprotoError as why:
            return found, why
        problems: list[WireprotoError] = []

        def begin(queue: Queue) -> Steps[None]:
            try:
                found[self._topic, queue.partition] = queue, (yield from self._beginning(queue, until))
            except WireprotoError as why:
                problems.append(why)

        new = self._unread(queue for queue in route.readable() if queue.address is not None)
        yield from cluster.gathering({queue.home: begin(queue) for queue in new}, "the beginning")
        return found, problems[0] if problems else None

    def _beginning(self, queue: Queue, until: float) -> Steps[int]:
        if isinstance(self._start, Earliest) or queue.home not in self._known:
            return 0
        yield from self._offsets.all_shown([queue], until)
        return (yield from self._offsets.of(queue, self._start, until))
