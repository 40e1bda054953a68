"""Implements the Reader: partitions of a topic from a start to a stop, without a group.

Starts and stops are resolved to offsets once, when the reader is opened; then batches come from the fetcher. The stop LATEST is the high
watermark, or the last stable offset when only committed records are read; a partition ends when its position passes the stop, whether or
not there was a record at the stop. A reader of a whole topic without a stop reads partitions that are added, too. Without a stop it begins
with the partitions whose leaders answer; with a stop it waits for all of them, or a part would pass for the whole.

Ranges are cheap: where start and stop are positions of a topic that the client knows, opening a reader sends no request, and its
connections are kept for the next such reader when it is closed. Any other reader gives its connections up when it is done; a seek opens
them again. One thread at a time. Nothing is committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Self

from ..deadlines import deadline_after
from ..errors import OptionError, TransportError, WireprotoError
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
    """Implements `wireproto.roles.Reader` for Kafka. Made by `KafkaClient.reader`.

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
        self._resting = False  # it is done, and has no connections until it seeks
        self._fetcher = Fetcher(cluster, options, self._purpose)
        for key in starts:
            self._fetcher.asking.add(*key, starts[key], stops.get(key))
        self._when_abandoned(cluster.loop, partial(_give_back, cluster, self._fetcher, self._purpose, ranged))

    @classmethod
    def opening(cls, cluster: KafkaCluster, topic: str, start: Where, stop: Where | None, options: KafkaOptions) -> Steps[Self]:
        """Resolve start and stop to offsets, and make the reader."""
        deadline = cluster.deadline(options.timeout)
        exact = _exact(start, stop)
        entry = yield from (cluster.looking_up(topic, deadline) if exact is None else cluster.knowing(topic, deadline, exact))
        keys = [(topic, number) for number in _numbers(topic, sorted(entry.partitions), options)]
        first, last = positions.PLACES.ranges(start, stop, keys)
        stops = yield from timing.finding(cluster, last, deadline, options)
        later: dict[TopicPartition, WireprotoError] | None = {} if stop is None else None
        starts = yield from timing.finding(cluster, first, deadline, options, later=later)
        if later and not starts:
            starts, later = (yield from timing.finding(cluster, first, deadline, options)), None
        made = cls(cluster, topic, starts, stops, options, ranged=exact is not None)
        if later:
            made._fetcher.placing.add({key: first[key] for key in sorted(later)}, later, timing.finding)
        if stop is None and named(start) is None and options.partitions is None:
            made._fetcher.follow(topic)
        return made

    def __iter__(self) -> Iterator[Batch]:
        """Yield batches until every partition has reached its stop."""
        while not self.done:
            batch = self.poll(3600.0)
            if batch is not None:
                yield batch

    def poll(self, timeout: float = 1.0) -> Batch | None:
        """Return the next batch with records, or None when none came within `timeout` or the stop is reached.

        Args:
            timeout: seconds to wait for a batch.
        Raises:
            OffsetOutOfRange: the log does not hold the position (any more); seek to continue.
            ChecksumMismatch, DecompressionError, Malformed: a batch that cannot be decoded, with topic, partition and position
                (`on_corrupt="skip"` passes them over).
            DataLoss: the log was cut before the position, or its topic made again, and continues with other records; seek to continue
                (`diverges_at` says where). Closed, ConcurrentUse.
        """
        before = self._fetcher.plan.delivered
        try:
            with self._only:
                return self._fetcher.poll(deadline_after(timeout))
        except WireprotoError:
            raise
        except BaseException:
            self._fetcher.undo_poll(before)
            raise

    def polling(self, timeout: float = 1.0) -> Steps[Batch | None]:
        """Run `poll` as steps."""
        with self._only:
            return (yield from self._fetcher.polling(deadline_after(timeout)))

    @operation
    def seek(self, where: Where, *, timeout: float = 30.0) -> Steps[None]:
        """Continue from another place; what was fetched ahead is dropped. A Position or mapping moves only the partitions that it names.

        Without a stop a partition that has no leader, or a silent one, does not delay the others: it is moved when a leader answers.

        Args:
            where: EARLIEST, LATEST, AtTime, a Position, or a mapping of these by (topic, partition).
            timeout: seconds for the whole call.
        Raises:
            OptionError: no such place, or a partition that is not read here. BrokerError: a leader refuses. TimedOut, Closed,
                ConcurrentUse.
        """
        with self._only:
            plan, placing = self._fetcher.plan, self._fetcher.placing
            requests = positions.PLACES.requests(where, [*plan.cursors, *placing.waiting], "seek")
            deadline = deadline_after(timeout)
            later: dict[TopicPartition, WireprotoError] | None = None if self.stops else {}
            found = yield from timing.finding(self._cluster, requests, deadline, self._options, later=later)
            if later and not found and any(isinstance(why, TransportError) for why in later.values()):  # no leader has answered
                found, later = (yield from timing.finding(self._cluster, requests, deadline, self._options)), {}
            self._resting = False
            self._fetcher.place_later({key: requests[key] for key in sorted(later or ())}, later or {}, timing.finding)
            for key, offset in found.items():
                (self._fetcher.place if key in placing.waiting else plan.seek)(key, offset)

    @property
    def positions(self) -> Mapping[TopicPartition, Position]:
        """Return where each partition is read next, by (topic, partition)."""
        return {key: LogOffset(*key, cursor.position) for key, cursor in self._fetcher.plan.cursors.items()}

    @property
    def stops(self) -> Mapping[TopicPartition, Position]:
        """Return where each partition ends, as fixed when the reader was opened; empty when the log is followed."""
        cursors = self._fetcher.plan.cursors
        return {key: LogOffset(*key, cursor.stop) for key, cursor in cursors.items() if cursor.stop is not None}

    @property
    def done(self) -> bool:
        """Return whether every partition has reached its stop. The connections are closed then, unless the reader has positions alone."""
        done = self._fetcher.plan.done
        if done and not (self._resting or self._ranged):
            self._resting = True
            self._fetcher.rest()
        return done

    @property
    def topic_id(self) -> str | None:
        """Return the topic's id as the client knows it now, as `describe_topic` shows it; None where brokers have none (before Kafka 2.8).

        An offset of one topic means nothing in another topic of the same name.
        """
        entry = self._cluster.metadata.topics.get(self.topic)
        return None if entry is None else entry.shown_id

    def _wake(self) -> None:
        """End a poll that waits in another thread."""
        self._fetcher.wake()

    def _let_go(self, deadline: float) -> None:
        """Release connections and the plan."""
        _give_back(self._cluster, self._fetcher, self._purpose, self._ranged)


def _give_back(cluster: KafkaCluster, fetcher: Fetcher, purpose: str, ranged: bool) -> None:
    """Release what a reader holds. Runs in the I/O thread, too."""
    fetcher.close()
    cluster.give_back(purpose, keep=ranged)


def _exact(start: Where, stop: Where | None) -> list[int] | None:
    """Return the partitions of a range that is given by positions alone; None where brokers have to be asked."""
    first, last = named(start), named(stop)
    if first is None or last is None or not all(isinstance(place, Position) for place in (*first.values(), *last.values())):
        return None
    return [number for _, number in (*first, *last)]


def _numbers(topic: str, known: list[int], options: KafkaOptions) -> list[int]:
    """Return the numbers of the partitions that are read, as the option `partitions` says. Raises OptionError for an unknown one."""
    if options.partitions is None:
        return known
    unknown = [number for number in options.partitions if number not in known]
    if unknown:
        raise OptionError(f"there is no partition {unknown[0]}: the topic has {len(known)}", topic=topic)
    return list(options.partitions)
