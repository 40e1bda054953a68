"""The Reader: partitions of a topic from a start to a stop, without a group.

What it is: starts and stops made offsets once, at open; then batches from the fetcher. The stop LATEST is the high watermark, or the last
stable offset when only committed records are read; a partition ends when its position passes the stop, whether or not a record stood there.
A reader of a whole topic without a stop reads partitions that are added, too. Without a stop it begins with the partitions that have
leaders; to a stop it waits for all, or a part would pass for the whole. Ranges are cheap: where start and stop are positions of a topic
that the client knows, opening asks for nothing, and the connections of such a reader that was closed are the next one's. Any other that
says that it is done has none any more, unless it seeks.
May assume: one thread at a time. Must not: commit anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Self

from ..deadlines import deadline_after
from ..errors import OptionError, WireprotoError
from ..flow.abandoned_role import AbandonedRole
from ..flow.resolve import named
from ..net.task import Steps, operation
from ..position import LogOffset, Position, TopicPartition, Where
from ..records import Batch
from . import positions, timing
from .fetcher import Fetcher

if TYPE_CHECKING:
    from .cluster import KafkaCluster
    from .options import KafkaOptions


class KafkaReader(AbandonedRole):
    """See `wireproto.roles.Reader`. Made by `KafkaClient.reader`.

    A Position or a mapping as start or stop restricts the reader to the partitions named; `partitions=` does so too.
    """

    waits = True

    def __init__(
        self,
        cluster: KafkaCluster,
        topic: str,
        starts: Mapping[TopicPartition, int],
        stops: Mapping[TopicPartition, int],
        options: KafkaOptions,
        *,
        ranged: bool = False,
    ) -> None:
        super().__init__("reader", cluster.loop)
        self._cluster = cluster
        self._tasks = cluster.tasks
        self.topic = topic
        self._options = options
        self._purpose = cluster.bulk()
        self._ranged = ranged
        self._resting = False  # it came to its end, and has no connections until it seeks
        self._fetcher = Fetcher(cluster, options, self._purpose)
        for key in starts:
            self._fetcher.asking.add(*key, starts[key], stops.get(key))
        self._when_abandoned(cluster.loop, partial(_give_back, cluster, self._fetcher, self._purpose, ranged))

    @classmethod
    def opening(cls, cluster: KafkaCluster, topic: str, start: Where, stop: Where | None, options: KafkaOptions) -> Steps[Self]:
        """Find out where to start and stop, and make the reader."""
        deadline = cluster.deadline(options.timeout)
        exact = _exact(start, stop)
        entry = yield from (cluster.looking_up(topic, deadline) if exact is None else cluster.knowing(topic, deadline, exact))
        keys = [(topic, number) for number in _numbers(topic, sorted(entry.partitions), options)]
        first, last = positions.PLACES.ranges(start, stop, keys)
        stops = yield from timing.finding(cluster, last, deadline, options)
        leaderless: set[TopicPartition] | None = set() if stop is None else None
        starts = yield from timing.finding(cluster, first, deadline, options, leaderless=leaderless)
        if leaderless and not starts:
            starts, leaderless = (yield from timing.finding(cluster, first, deadline, options)), None
        made = cls(cluster, topic, starts, stops, options, ranged=exact is not None)
        if leaderless:
            made._fetcher.placing.add({key: first[key] for key in sorted(leaderless)}, timing.finding)
        if stop is None and named(start) is None and options.partitions is None:
            made._fetcher.follow(topic)
        return made

    def __iter__(self) -> Iterator[Batch]:
        while not self.done:
            batch = self.poll(3600.0)
            if batch is not None:
                yield batch

    def poll(self, timeout: float = 1.0) -> Batch | None:
        """The next batch with records, or None when none came within `timeout` or the stop is reached.

        Raises:
            OffsetOutOfRange: the log does not hold the position (any more); seek to go on. ChecksumMismatch, DecompressionError,
            Malformed: with topic, partition and position (`on_corrupt="skip"` passes them over). Closed, ConcurrentUse.
            DataLoss: the log was cut before the position, or its topic made again, and goes on with other records; seek to go on
            (`diverges_at` tells where).
        """
        before = self._fetcher.plan.handed
        try:
            with self._only:
                return self._fetcher.poll(deadline_after(timeout))
        except WireprotoError:
            raise
        except BaseException:
            self._fetcher.broken_off(before)
            raise

    def polling(self, timeout: float = 1.0) -> Steps[Batch | None]:
        """`poll`, as steps."""
        with self._only:
            return (yield from self._fetcher.polling(deadline_after(timeout)))

    @operation
    def seek(self, where: Where, *, timeout: float = 30.0) -> Steps[None]:
        """Go on from there; drops what was fetched ahead. A Position or mapping moves only the partitions that it names.

        Without a stop a partition that has no leader holds up no others: it goes on from there when it has one.
        """
        with self._only:
            plan, placing = self._fetcher.plan, self._fetcher.placing
            requests = positions.PLACES.requests(where, [*plan.cursors, *placing.waiting], "seek")
            deadline = deadline_after(timeout)
            leaderless: set[TopicPartition] | None = None if self.stops else set()
            found = yield from timing.finding(self._cluster, requests, deadline, self._options, leaderless=leaderless)
            self._resting = False
            self._fetcher.place_later({key: requests[key] for key in sorted(leaderless or ())}, timing.finding)
            for key, offset in found.items():
                (self._fetcher.place if key in placing.waiting else plan.seek)(key, offset)

    @property
    def positions(self) -> Mapping[TopicPartition, Position]:
        return {key: LogOffset(*key, cursor.position) for key, cursor in self._fetcher.plan.cursors.items()}

    @property
    def stops(self) -> Mapping[TopicPartition, Position]:
        """Where each partition ends, as fixed at open; empty when the log is followed."""
        cursors = self._fetcher.plan.cursors
        return {key: LogOffset(*key, cursor.stop) for key, cursor in cursors.items() if cursor.stop is not None}

    @property
    def done(self) -> bool:
        done = self._fetcher.plan.done
        if done and not (self._resting or self._ranged):
            self._resting = True
            self._fetcher.rest()
        return done

    @property
    def topic_id(self) -> str | None:
        """The id of the topic as the client knows it now, as `describe_topic` tells it; None where brokers have none (before Kafka 2.8).
        Offsets mean nothing in another topic of that name."""
        entry = self._cluster.metadata.topics.get(self.topic)
        return None if entry is None else entry.shown_id

    def _wake(self) -> None:
        self._fetcher.wake()

    def _let_go(self, deadline: float) -> None:
        _give_back(self._cluster, self._fetcher, self._purpose, self._ranged)


def _give_back(cluster: KafkaCluster, fetcher: Fetcher, purpose: str, ranged: bool) -> None:
    """What a reader has for itself. In the I/O thread, too."""
    fetcher.close()
    cluster.give_back(purpose, keep=ranged)


def _exact(start: Where, stop: Where | None) -> list[int] | None:
    """The partitions of a range that is given in positions alone; None where there is something to ask for."""
    first, last = named(start), named(stop)
    if first is None or last is None or not all(isinstance(place, Position) for place in (*first.values(), *last.values())):
        return None
    return [number for _, number in (*first, *last)]


def _numbers(topic: str, known: list[int], options: KafkaOptions) -> list[int]:
    """The partitions that may be read."""
    if options.partitions is None:
        return known
    unknown = [number for number in options.partitions if number not in known]
    if unknown:
        raise OptionError(f"there is no partition {unknown[0]}: the topic has {len(known)}", topic=topic)
    return list(options.partitions)
