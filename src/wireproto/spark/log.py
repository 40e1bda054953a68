"""Defines what Spark's readers need of a protocol: its partitions, offsets, ranges, and their form in a checkpoint.

`Log` has one subclass for each protocol; `batch.py` and `stream.py` know nothing else of a protocol. A `Log` holds options only, so it can
be pickled; clients are opened on the driver (`open`) and kept in workers (`worker.client`). The ranges of a micro-batch are fixed on the
driver, so a task that runs again reads the same records; `bounds.py` explains what the bounds of a batch mean.

    partitions → ends / at_times → positions → to_json, from_json (the checkpoint) → spans (tasks) → read (workers)

Positions are those of the roles: where to continue reading, independent of any consumer group. What holds for positions that are numbers
(`LogOffset`) is implemented here; a log with other positions overrides `cut`, `limit`, `waiting` and the JSON form. This module must not
know Spark beyond its InputPartition.
"""

from __future__ import annotations

import logging
import time
from abc import ABC
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pyspark.sql.datasource import InputPartition

from .. import connect
from ..errors import AuthError, BrokerError, DataLoss, OptionError, TimedOut, TransportError, WireprotoError
from ..net.retry import Verdict, verdict
from ..position import LATEST, AtTime, Earliest, Latest, LogOffset, Position, TopicPartition, parse_position
from . import plan

if TYPE_CHECKING:
    from ..records import Batch
    from ..roles import Client
    from .columns import LogFormat
    from .options import Named, Place, ReadSettings

logger = logging.getLogger("wireproto.spark")
Positions = dict[TopicPartition, Position]
Tree = Mapping[str, Any]
T = TypeVar("T", bound=Position)

LOST = "some data may have been lost because it is not there any more: it was aged out, or its topic was deleted, before it was read."
REMEDY_FAIL = "; to continue without the lost records set failOnDataLoss to false"


class Span(InputPartition):
    """One task's range of a partition, from `start` up to, not including, `stop`.

    Attributes:
        identity: the topic's id, which differs when a topic is deleted and made again; None where the protocol has no ids.
        late_start, late_stop: a word or time that the task resolves again when it runs; see `bounds.py`.
        first: whether this is the first range of its partition in the read.
    """

    identity: str | None = None
    late_start: Place | None = None
    late_stop: Place | None = None
    first = False

    def __init__(self, topic: str, partition: int, start: Position, stop: Position) -> None:
        super().__init__((topic, partition, start.text(), stop.text()))
        self.topic, self.partition, self.start, self.stop = topic, partition, start, stop

    @property
    def key(self) -> TopicPartition:
        """Return (topic, partition)."""
        return self.topic, self.partition


class Log(ABC):
    """The topics of one protocol that the settings choose.

    A `client` argument is the driver's client in the methods "on the driver", the worker's in those "in workers".

    Attributes:
        protocol: scheme of the client's URL. form: its columns. subject: the option that names topics, for error texts.
        record_times: whether `at_times` uses the times of the column timestamp, so that filters on that column may bound a read.
        gone: errors that mean that a topic does not exist.
        lag_only: whether `commit` only serves lag tools, so that it may come before Spark has stored the micro-batch's end.
        settings: the options.
    """

    protocol: ClassVar[str]
    form: ClassVar[LogFormat]
    subject: ClassVar[str] = "topic"
    record_times: ClassVar[bool] = False
    gone: ClassVar[tuple[type[WireprotoError], ...]] = ()
    lag_only: ClassVar[bool] = True

    def __init__(self, settings: ReadSettings) -> None:
        self.settings = settings

    # --- on the driver ---

    def open(self) -> Client:
        """Open a client of the driver's own; the caller closes it."""
        return connect(self.settings.url, **self.settings.client)

    def partitions(self, client: Client) -> list[TopicPartition]:
        """Return the partitions that the chosen topics have now, sorted, as (topic, partition)."""
        admin = client.admin()
        return sorted((topic, part.partition) for topic in self.settings.topics for part in admin.describe_topic(topic).partitions)

    def ends(self, client: Client, keys: Iterable[TopicPartition], where: Earliest | Latest) -> Positions:
        """Look up where the partitions begin or end now; those that are gone are left out.

        Args:
            keys: partitions. where: EARLIEST or LATEST.
        """
        wanted = set(keys)
        found: Positions = {}
        for topic in sorted({topic for topic, _ in wanted}):
            found.update(self.located(client, topic, where, {number for of, number in wanted if of == topic}))
        return found

    def located(self, client: Client, topic: str, where: Earliest | Latest | AtTime, partitions: set[int]) -> Positions:
        """Resolve a word or time in these partitions of one topic."""
        return dict(client.admin().positions(topic, where, partitions=partitions, timeout=client.timeout))

    def written(self, client: Client, keys: Iterable[TopicPartition]) -> Positions:
        """Look up where the partitions end, uncommitted records included.

        Nothing before that end is lost; a reader may only have to wait until transactions end.
        """
        return self.ends(client, keys, LATEST)

    def at_times(self, client: Client, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, Position | None]:
        """Look up the first position at or after a time.

        Args:
            times: milliseconds since 1970, by partition.
        Returns:
            the position by partition; None where no record is that late.
        """
        found: dict[TopicPartition, Position | None] = {}
        for topic in sorted({topic for topic, _ in times}):
            latest = self.located(client, topic, LATEST, {number for name, number in times if name == topic})
            for moment in {moment for (name, _), moment in times.items() if name == topic}:
                wanted = {number for (name, number), when in times.items() if name == topic and when == moment}
                for key, place in self.located(client, topic, AtTime(moment), wanted).items():
                    found[key] = place if key in latest and place < latest[key] else None
        return found

    def check(self, client: Client) -> None:  # noqa: B027
        """Refuse settings that this cluster does not support (its brokers are too old); raises OptionError or the protocol's own error."""

    def cut(self, client: Client, spans: list[Span]) -> list[Span]:
        """Split spans as minPartitions and maxRecordsPerPartition ask."""
        settings = self.settings
        ranges = [(span.key, number(span.start), number(span.stop)) for span in spans]
        like = {span.key: span.start for span in spans}
        return [
            Span(*key, moved(like[key], start), moved(like[key], stop))
            for key, start, stop in plan.split(ranges, settings.min_partitions, settings.max_records)
        ]

    def numbered(self, client: Client, bound: Named, option: str) -> dict[TopicPartition, Place]:
        """Return a bound by partition number; in RocketMQ's, partitions may be given as queue names.

        Args:
            bound: by (topic, partition number or queue name). option: the option that it is from, for errors.
        Raises:
            OptionError: it has a name, and the protocol has numbers only.
        """
        if named := [text for _, text in bound if isinstance(text, str)]:
            raise OptionError(f"option {option} names {min(named)}: {self.protocol} has partition numbers")
        return {(topic, int(number)): place for (topic, number), place in bound.items()}

    def away(self, client: Client, missing: Positions) -> Positions:
        """Return those of the missing partitions whose broker is only away: the query does not advance there, and nothing is lost.

        Args:
            missing: partitions that `ends` did not return, with the positions of the query there.
        """
        return {}

    def known(self, client: Client, spans: list[Span]) -> list[Span]:
        """Return the spans with `identity` set, where the protocol has ids of topics."""
        return spans

    def limit(self, client: Client, start: Positions, latest: Positions) -> Positions:
        """Return the ends of a micro-batch under maxOffsetsPerTrigger and maxBytesPerTrigger.

        Args:
            start: where the micro-batch begins. latest: where the log ends now.
        """
        settings, ends = self.settings, latest
        first = {key: number(place) for key, place in start.items()}
        if settings.max_rows is not None:
            ends = moved_all(ends, plan.limited(settings.max_rows, first, numbers(ends)))
        if settings.max_bytes is not None:
            weights = self.row_bytes(client, list(ends))
            ends = moved_all(ends, plan.limited(settings.max_bytes, first, numbers(ends), weights))
        return ends

    def waiting(self, client: Client, start: Positions, latest: Positions) -> int:
        """Count the rows between two sets of positions, for minOffsetsPerTrigger."""
        return sum(max(0, number(end) - number(start[key])) for key, end in latest.items() if key in start)

    def row_bytes(self, client: Client, keys: list[TopicPartition]) -> dict[TopicPartition, float]:
        """Estimate the bytes that a row of each partition takes, for maxBytesPerTrigger.

        Raises:
            OptionError: the protocol does not tell sizes.
        """
        raise OptionError(f"maxBytesPerTrigger: {self.protocol} does not report sizes; use maxOffsetsPerTrigger")

    def began(self, position: Position) -> bool:
        """Return whether a new partition whose log begins at this position has lost nothing since it was made."""
        return number(position) == 0

    def hold(self, client: Client, ends: Positions) -> None:  # noqa: B027
        """Make the cluster keep the records from these positions on, where an option asks for it: called when a query begins."""

    def check_group(self, client: Client) -> None:  # noqa: B027
        """Refuse a group that `commit` could not commit to, before a stream begins."""

    def commit(self, client: Client, ends: Positions) -> Collection[TopicPartition]:
        """Commit the processed positions to the group, for lag tools, where an option asks for it.

        Returns:
            the partitions for which nothing was stored, since they do not exist.
        """
        return ()

    def topic_ids(self) -> dict[str, str]:
        """Return the ids of the topics that the last call of `partitions` found; only Kafka has them."""
        return {}

    # --- in checkpoints ---

    def to_json(self, positions: Positions) -> dict[str, Any]:
        """Return positions as values for JSON: ``{"topic": {"0": 23}}``."""
        tree: dict[str, dict[str, Any]] = {}
        for topic, partition in sorted(positions):
            tree.setdefault(topic, {})[str(partition)] = self.place_to_json(positions[topic, partition])
        return tree

    def from_json(self, client: Client, tree: Tree) -> Positions:
        """Return the positions that `to_json` wrote.

        Raises:
            OptionError: the tree has another form, as that in the checkpoint of another source.
        """
        found: Positions = {}
        try:
            for topic, inner in tree.items():
                for text, value in inner.items():
                    found[topic, int(text)] = self.place_from_json(topic, int(text), value)
        except (AttributeError, ValueError, TypeError, OptionError) as why:
            raise self.foreign(tree) from why
        return found

    def foreign(self, tree: Tree) -> OptionError:
        """Build the error for a checkpoint that this log did not write."""
        return OptionError(
            f"the checkpoint holds offsets of another source ({str(tree)[:120]}); {self.protocol}-wire has offsets like "
            f"{self.example()}: give the query a checkpointLocation of its own"
        )

    def place_to_json(self, position: Position) -> Any:
        """Return one position as a value for JSON."""
        return number(position)

    def place_from_json(self, topic: str, partition: int, value: Any) -> Position:
        """Return the position that `place_to_json` wrote; raises OptionError for any other value."""
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise OptionError(f"{value!r} is no offset")
        return LogOffset(topic, partition, value)

    def with_ids(self, tree: dict[str, Any], ids: Mapping[str, str]) -> dict[str, Any]:
        """Return what `to_json` made, with the ids of its topics added where the protocol has them."""
        return tree

    def ids_in(self, tree: Tree) -> dict[str, str]:
        """Return the ids that `with_ids` added, by topic."""
        return {}

    def pin(self, tree: dict[str, Any], keys: Iterable[TopicPartition]) -> dict[str, Any]:
        """Return what `to_json` made, with a mark on these partitions.

        There, the first micro-batch is empty: it only stores the position at which the query begins.
        """
        return tree

    def pinned(self, tree: Tree, key: TopicPartition) -> bool:
        """Return whether `pin` marked this partition.

        It is always true but for Kafka, since only Kafka's checkpoints may be from another connector, which has no such mark.
        """
        return True

    def example(self) -> str:
        """Return an example of what `to_json` makes, for error texts."""
        return '{"topic": {"0": 23}}'

    # --- in workers ---

    def here(self, client: Client, span: Span) -> Span:
        """Return a span as planned by the driver with the partition number of this client."""
        return span

    def read(self, client: Client, span: Span, columns: tuple[str, ...]) -> Iterator[Batch]:
        """Yield the batches of the span, in order; records in it that are gone are skipped, or raise DataLoss.

        Args:
            columns: names of the Spark columns that are wanted, so that no other has to be decoded.
        Raises:
            DataLoss: records are gone (unless failOnDataLoss is false). TimedOut: no record came within `ReadSettings.poll_timeout`
                seconds.
        """
        return self.drained(client, span)

    def drained(self, client: Client, span: Span, **options: Any) -> Iterator[Batch]:
        """Yield the batches of the span from a reader with these options; raises TimedOut as `read` does."""
        start, stop = {span.key: span.start}, {span.key: span.stop}
        deadline = time.monotonic() + self.settings.poll_timeout
        with client.reader(span.topic, start=start, stop=stop, **options) as reader:
            while not reader.done:
                batch = reader.poll(max(0.0, deadline - time.monotonic()))
                if batch is not None:
                    yield batch
                    deadline = time.monotonic() + self.settings.poll_timeout
                elif not reader.done and time.monotonic() >= deadline:
                    raise self.stalled(span)

    def stalled(self, span: Span) -> TimedOut:
        """Build the error for records that do not arrive although the log has them."""
        return TimedOut(
            f"no record came within {self.settings.poll_timeout:g} s while reading up to {span.stop}",
            topic=span.topic,
            partition=span.partition,
        )

    # --- on the driver and in workers ---

    def lost(self, what: str) -> None:
        """Report that records are gone: raise DataLoss, or log a warning where failOnDataLoss is false.

        The warning is in the log of the process that noticed it (driver or worker).
        """
        if self.settings.fail_on_data_loss:
            raise DataLoss(f"{LOST} {what}{REMEDY_FAIL}")
        logger.warning("%s-wire: %s %s", self.protocol, LOST, what)


def number(position: Position) -> int:
    """Return the offset of a position; raises OptionError for a position that is no offset."""
    if not isinstance(position, LogOffset):
        raise OptionError(f"{position!r} is not an offset")
    return position.offset


def numbers(positions: Mapping[TopicPartition, Position]) -> dict[TopicPartition, int]:
    """Return the offsets of positions, by partition."""
    return {key: number(place) for key, place in positions.items()}


def places(offsets: Mapping[TopicPartition, int]) -> Positions:
    """Return offsets as positions, by partition."""
    return {key: LogOffset(*key, offset) for key, offset in offsets.items()}


def moved(place: Position, offset: int) -> Position:
    """Return a position at another offset of the same partition."""
    number(place)
    return replace(place, offset=offset)  # type: ignore[call-arg]


def moved_all(like: Positions, offsets: Mapping[TopicPartition, int]) -> Positions:
    """Return positions at these offsets, of the kind that `like` has for their partitions."""
    return {key: moved(like[key], offset) for key, offset in offsets.items()}


def remade(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return the topics that were deleted and made again, by their ids: offsets of the old topic mean nothing in the new one."""
    return sorted(topic for topic, one in before.items() if now.get(topic, one) != one)


def named(keys: Iterable[TopicPartition]) -> str:
    """Format partitions for an error text."""
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(keys))


def retried(log: Log, action: Any) -> Any:
    """Run `action()`, and again after a pause where a broker refused it for the moment or was away.

    It is tried as often as fetchOffset.numRetries says. Each try has the client's timeout, so that a query survives an outage that is not
    longer than all of them.
    """
    for left in range(log.settings.tries - 1, -1, -1):
        try:
            return action()
        except (BrokerError, TransportError) as why:
            if not left or verdict(why, brief=True, transient=(TimedOut,), final=(AuthError,)) is Verdict.NEVER:
                raise
            logger.warning("%s-wire: brokers are asked again, %d times more at most: %s", log.protocol, left, why)
            time.sleep(log.settings.pause)
    raise AssertionError("tries is at least 1")


def parse_place(topic: str, partition: int, value: Any) -> Position:
    """Parse a position from its text, the form in checkpoints of logs other than Kafka."""
    return parse_position(str(value), topic, partition)
