"""The Reader role: queues by offset, without a group.

What it is: a `Fetcher` over the queues that the start names, up to the stops fixed when it opens. LATEST as a stop is the queue's max
offset then. Reading ends when the next offset has reached the stop, whatever was stored there.
Belongs to one thread at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Self

from wireproto.errors import OptionError, WireprotoError
from wireproto.flow.role import Role
from wireproto.net.task import operation
from wireproto.position import Earliest, Position, TopicPartition, Where

from ..due import due
from .fetch import Fetcher
from .times import Offsets

if TYPE_CHECKING:
    from wireproto.net.task import Steps
    from wireproto.records import Batch

    from .cluster import RocketCluster
    from .options import RocketOptions

READERS_GROUP = "TOOLS_CONSUMER"
"""A group that exists on every broker: readers need one in name only."""


class RocketReader(Role):
    """Reads a topic's queues. Made by `RocketClient.reader`."""

    def __init__(self, cluster: RocketCluster, topic: str, options: RocketOptions) -> None:
        super().__init__("reader", cluster.loop)
        self.topic = topic
        self.options = options
        self._cluster = cluster
        self._tasks = cluster.tasks
        group = options.group or READERS_GROUP
        self._offsets = Offsets(cluster, topic, group)
        self._fetcher = Fetcher(cluster, options, group=group, purpose="pull")

    @classmethod
    def opening(cls, cluster: RocketCluster, topic: str, start: Where, stop: Where | None, options: RocketOptions) -> Steps[Self]:
        """Find out where to start and stop, and make the reader."""
        until = cluster.deadline(options.timeout)
        made = cls(cluster, topic, options)
        yield from cluster.routing(topic, until)
        starts, stops = yield from made._offsets.ranges(start, stop, until)
        route = yield from cluster.routing(topic, until)
        for key, offset in starts.items():
            made._fetcher.add(topic, route.queues[key[1]], offset, stops.get(key), earliest=isinstance(start, Earliest))
        return made

    def poll(self, timeout: float = 1.0) -> Batch | None:
        """The next batch, or None when none came within `timeout` or the stop is reached (see `done`).

        Raises:
            PullOffsetMoved: the records that come next are gone (with the option reset, reading goes on elsewhere).
            BrokerError, TransportError: refused for good, or nothing has worked for `recovery_timeout`.
            ProtocolError: what came cannot be read; names the position.
        """
        before = self._fetcher.handing
        try:
            with self._only:
                found = self._fetcher.poll(due(timeout))
                return found.batch if found is not None else None
        except WireprotoError:
            raise
        except BaseException:  # a signal handler's: what was not returned comes with the next poll
            self._fetcher.take_back(before)
            raise

    def polling(self, timeout: float = 1.0) -> Steps[Batch | None]:
        """`poll`, as steps."""
        with self._only:
            found = yield from self._fetcher.polling(due(timeout))
            return found.batch if found is not None else None

    def __iter__(self) -> Iterator[Batch]:
        while not self.done:
            batch = self.poll(60.0)
            if batch is not None and len(batch):
                yield batch

    @operation
    def seek(self, where: Where, *, timeout: float = 30.0) -> Steps[None]:
        """Go on from there; drops what was fetched ahead. Queues that `where` does not name stay where they are."""
        with self._only:
            until = due(timeout)
            held = self._fetcher.plan.cursors
            for key, offset in (yield from self._offsets.where(where, until, "seek")).items():
                if key in held:
                    self._fetcher.seek(key, offset, earliest=isinstance(where, Earliest))
                elif isinstance(where, Mapping | Position):
                    raise OptionError(f"this reader does not read partition {key[1]}", topic=self.topic)

    @property
    def positions(self) -> Mapping[TopicPartition, Position]:
        """Where each partition is read next."""
        return dict(self._fetcher.places())

    @property
    def done(self) -> bool:
        """Whether every partition has reached its stop."""
        return self._fetcher.done

    def _let_go(self, deadline: float) -> None:
        """Drop what was fetched ahead."""
        self._fetcher.close()
