"""Reads queues by offset, without a group: the Reader role.

The reader is a `Fetcher` over the queues that the start names, up to the stops fixed when it opens. LATEST as a stop is the queue's max
offset then. Reading ends when the next offset has reached the stop, whatever was stored there. Without a stop, and where the start names no
queue, queues that the topic gets later are read, too (`new_queues.py`).
Belongs to one thread at a time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Self

from wireproto.errors import OptionError, WireprotoError
from wireproto.flow.role import Role
from wireproto.net.task import operation
from wireproto.position import AtTime, Earliest, Latest, Position, TopicPartition, Where

from ..deadlines import deadline_after
from .fetch import Fetcher
from .new_queues import NewQueues
from .offset_lookup import OffsetLookup
from .transient_errors import passes

if TYPE_CHECKING:
    from wireproto.net.task import Steps
    from wireproto.records import Batch

    from .cluster import RocketCluster
    from .fetch import Fetched
    from .options import RocketOptions

ENOUGH = 5.0
"""Seconds that a broker has to answer where its queues begin; after that reading begins with the queues of the other brokers."""
READERS_GROUP = "TOOLS_CONSUMER"
"""A group that exists on every broker: a pull has to name one, though readers use no group."""


class RocketReader(Role):
    """Polls batches of a topic's queues. Made by `RocketClient.reader`."""

    def __init__(self, cluster: RocketCluster, topic: str, options: RocketOptions) -> None:
        super().__init__("reader", cluster.loop)
        self.topic = topic
        self.options = options
        self._cluster = cluster
        self._tasks = cluster.tasks
        group = options.group or READERS_GROUP
        self._offsets = OffsetLookup(cluster, topic, group)
        self._fetcher = Fetcher(cluster, options, group=group, purpose="pull")
        self._new_queues: NewQueues | None = None

    @classmethod
    def opening(cls, cluster: RocketCluster, topic: str, start: Where, stop: Where | None, options: RocketOptions) -> Steps[Self]:
        """Look up the offsets to start and stop at, and make the reader."""
        until = cluster.deadline(options.timeout)
        made = cls(cluster, topic, options)
        yield from cluster.routing(topic, until)
        follows = start if stop is None and isinstance(start, Earliest | Latest | AtTime) else None
        if follows is not None:
            starts, stops = yield from made._begins(follows, until)
        else:
            starts, stops = yield from made._offsets.ranges(start, stop, until)
        route = yield from cluster.routing(topic, until)
        for key, offset in starts.items():
            made._fetcher.add(topic, route.queues[key[1]], offset, stops.get(key), earliest=isinstance(start, Earliest))
        if follows is not None:
            made._new_queues = NewQueues(cluster, options, made._offsets, made._fetcher, follows, route)
        return made

    def _begins(self, start: Where, until: float) -> Steps[tuple[dict[TopicPartition, int], dict[TopicPartition, int]]]:
        """Look up where a reader without a stop begins.

        After `ENOUGH` seconds queues whose broker does not answer are left out, if another broker has answered. They are read as soon as
        their broker answers (`NewQueues`), like those whose broker is away.
        """
        now = time.monotonic()
        try:
            return (yield from self._offsets.ranges(start, None, min(now + ENOUGH, now + (until - now) / 2)))
        except WireprotoError as why:
            if not (why.known and passes(why)):
                if not passes(why):
                    raise
                return (yield from self._offsets.ranges(start, None, until))
            known, reason = why.known, why
        route = yield from self._cluster.routing(self.topic, until)
        for queue in route.readable():
            key = self.topic, queue.partition
            if key not in known:
                text = "%s[%d]: broker %s does not tell where it begins, and it is read as soon as it does: %s"
                self._cluster.log.warning(("no answer", key), text, *key, queue.broker, reason)
        return {key: place.offset for key, place in known.items()}, {}

    def poll(self, timeout: float = 1.0) -> Batch | None:
        """Return the next batch, or None when none came within `timeout` or the stop is reached (see `done`).

        Args:
            timeout: seconds; 0: what is here already.
        Raises:
            PullOffsetMoved: the records that come next are gone (with the option reset, reading continues elsewhere).
            BrokerError, TransportError: refused for good, or nothing has worked for `recovery_timeout`.
            ProtocolError: what came cannot be decoded; names the position.
            ConcurrentUse: another thread is in a call. Closed: the role or the client was closed.
        """
        before = self._fetcher.delivering
        try:
            with self._only:
                if self._new_queues is not None:
                    self._new_queues.look()
                found = self._fetcher.poll(deadline_after(timeout), self._fetching)
                return found.batch if found is not None else None
        except WireprotoError:
            raise
        except BaseException:  # raised by a signal handler: what was not returned comes with the next poll
            self._fetcher.take_back(before)
            raise

    def polling(self, timeout: float = 1.0) -> Steps[Batch | None]:
        """Run `poll` as steps."""
        with self._only:
            found = yield from self._fetching(deadline_after(timeout))
            return found.batch if found is not None else None

    def _fetching(self, deadline: float) -> Steps[Fetched | None]:
        coming = self._new_queues
        if coming is None:
            return (yield from self._fetcher.polling(deadline))
        while True:
            coming.look()
            found = yield from self._fetcher.polling(min(deadline, coming.next_look))
            if found is not None or time.monotonic() >= deadline:
                return found

    def __iter__(self) -> Iterator[Batch]:
        while not self.done:
            batch = self.poll(60.0)
            if batch is not None and len(batch):
                yield batch

    @operation
    def seek(self, where: Where, *, timeout: float = 30.0) -> Steps[None]:
        """Continue from there; drops what was fetched ahead. Queues that `where` does not name stay where they are.

        Args:
            where: EARLIEST, LATEST, AtTime (milliseconds since 1970), a position, or a mapping of positions. timeout: seconds.
        Raises:
            OptionError: a partition that this reader does not read, or no position.
            NoMaster: the broker of a queue is away. NoQueue: a queue may not be read now, and `where` is a time. None was moved.
            TransportError, TimedOut: a broker does not answer. BrokerError: a broker refuses. None was moved.
            ConcurrentUse: another thread is in a call. Closed: the role or the client was closed.
        """
        with self._only:
            until = deadline_after(timeout)
            held = self._fetcher.plan.cursors
            found = yield from self._offsets.seeking(where, tuple(held), until)
            if strange := found.keys() - held.keys():
                raise OptionError(f"this reader does not read partition {min(strange)[1]}", topic=self.topic)
            for key, offset in found.items():
                self._fetcher.seek(key, offset, earliest=isinstance(where, Earliest))
            route = self._cluster.routes.known(self.topic)
            if self._new_queues is not None and route is not None and isinstance(where, Earliest | Latest | AtTime):
                self._new_queues.moved(where, route)

    @property
    def positions(self) -> Mapping[TopicPartition, Position]:
        """Return the position of the next record of each partition."""
        return dict(self._fetcher.places())

    @property
    def done(self) -> bool:
        """Return whether every partition has reached its stop."""
        return self._new_queues is None and self._fetcher.done

    def _let_go(self, deadline: float) -> None:
        """Drop what was fetched ahead."""
        if self._new_queues is not None:
            self._new_queues.close()
        self._fetcher.close()
