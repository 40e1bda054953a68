"""What Spark's readers need of a protocol: its partitions, offsets, ranges, and their form in a checkpoint.

What it is: `Log`, one subclass a protocol; `batch.py` and `stream.py` know nothing else of one. It holds options alone, so it pickles;
clients are opened on the driver (`open`) and kept in workers (`worker.client`). A micro-batch's ranges are fixed on the driver, so a
task that is run again reads the same records; `bounds.py` tells what the bounds of a batch mean.

    partitions → ends / at_times → positions → to_json, from_json (the checkpoint) → spans (tasks) → read (workers)

Positions are those of the roles: a place to go on from, never a consumer group's. Whatever is true of positions that are numbers
(`LogOffset`) is done here; a log whose positions are none overrides `cut`, `limit`, `waiting` and the JSON form.
Must not: know Spark beyond its InputPartition.
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
REMEDY_FAIL = "; to go on without what is gone set failOnDataLoss to false"


class Span(InputPartition):
    """One task: a partition from `start` up to, not including, `stop`.

    Attributes:
        identity: tells its topic from another one of that name; None where nothing does.
        late_start, late_stop: a word or time to ask for again when the task runs; see `bounds.py`.
        first: nothing of its partition that is read lies before it.
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
        return self.topic, self.partition


class Log(ABC):
    """One protocol's topics, as the settings choose them.

    Attributes:
        protocol: scheme of the client's URL. form: its columns. subject: the option that names topics, for error texts.
        record_times: whether `at_times` goes by the column timestamp, so that filters on it may bound a read.
        gone: errors which say that a topic is not there.
        lag_only: whether `commit` is for lag tools alone, so that it may come before Spark has the micro-batch's end on its disk.
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
        """A client of the driver's own."""
        return connect(self.settings.url, **self.settings.client)

    def partitions(self, client: Client) -> list[TopicPartition]:
        """The partitions that there are now of the topics chosen, sorted."""
        admin = client.admin()
        return sorted((topic, part.partition) for topic in self.settings.topics for part in admin.describe_topic(topic).partitions)

    def ends(self, client: Client, keys: Iterable[TopicPartition], where: Earliest | Latest) -> Positions:
        """Where the partitions begin or end now; those that are gone are left out."""
        wanted = set(keys)
        found: Positions = {}
        for topic in sorted({topic for topic, _ in wanted}):
            found.update(self.located(client, topic, where, {number for of, number in wanted if of == topic}))
        return found

    def located(self, client: Client, topic: str, where: Earliest | Latest | AtTime, partitions: set[int]) -> Positions:
        """What a word or time means now in these partitions of a topic."""
        return dict(client.admin().positions(topic, where, partitions=partitions, timeout=client.timeout))

    def written(self, client: Client, keys: Iterable[TopicPartition]) -> Positions:
        """Where the partitions end, with what is not committed yet: nothing before it is lost, it may only have to be waited for."""
        return self.ends(client, keys, LATEST)

    def at_times(self, client: Client, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, Position | None]:
        """The first position at or after a time (milliseconds); None where nothing is that late."""
        found: dict[TopicPartition, Position | None] = {}
        for topic in sorted({topic for topic, _ in times}):
            latest = self.located(client, topic, LATEST, {number for name, number in times if name == topic})
            for moment in {moment for (name, _), moment in times.items() if name == topic}:
                wanted = {number for (name, number), when in times.items() if name == topic and when == moment}
                for key, place in self.located(client, topic, AtTime(moment), wanted).items():
                    found[key] = place if key in latest and place < latest[key] else None
        return found

    def check(self, client: Client) -> None:  # noqa: B027
        """Refuse what this cluster cannot do for these settings (a broker too old)."""

    def cut(self, client: Client, spans: list[Span]) -> list[Span]:
        """Spans split as minPartitions and maxRecordsPerPartition ask."""
        settings = self.settings
        ranges = [(span.key, number(span.start), number(span.stop)) for span in spans]
        like = {span.key: span.start for span in spans}
        return [
            Span(*key, moved(like[key], start), moved(like[key], stop))
            for key, start, stop in plan.split(ranges, settings.min_partitions, settings.max_records)
        ]

    def numbered(self, client: Client, bound: Named, option: str) -> dict[TopicPartition, Place]:
        """A bound of partitions, some of them perhaps called by name, by partition number; only RocketMQ's have names."""
        if named := [text for _, text in bound if isinstance(text, str)]:
            raise OptionError(f"option {option} names {min(named)}: {self.protocol} has partition numbers")
        return {(topic, int(number)): place for (topic, number), place in bound.items()}

    def away(self, client: Client, missing: Positions) -> Positions:
        """Those of the partitions which are not shown only because their broker is away: a query stands still there."""
        return {}

    def known(self, client: Client, spans: list[Span]) -> list[Span]:
        """The spans, with what tells their topics from others of their names."""
        return spans

    def limit(self, client: Client, start: Positions, latest: Positions) -> Positions:
        """Ends of a micro-batch under maxOffsetsPerTrigger and maxBytesPerTrigger."""
        settings, ends = self.settings, latest
        first = {key: number(place) for key, place in start.items()}
        if settings.max_rows is not None:
            ends = moved_all(ends, plan.limited(settings.max_rows, first, numbers(ends)))
        if settings.max_bytes is not None:
            weights = self.row_bytes(client, list(ends))
            ends = moved_all(ends, plan.limited(settings.max_bytes, first, numbers(ends), weights))
        return ends

    def waiting(self, client: Client, start: Positions, latest: Positions) -> int:
        """Rows between two sets of positions, for minOffsetsPerTrigger."""
        return sum(max(0, number(end) - number(start[key])) for key, end in latest.items() if key in start)

    def row_bytes(self, client: Client, keys: list[TopicPartition]) -> dict[TopicPartition, float]:
        """About how many bytes a row of each partition takes, for maxBytesPerTrigger."""
        raise OptionError(f"maxBytesPerTrigger: {self.protocol} does not tell sizes; use maxOffsetsPerTrigger")

    def began(self, position: Position) -> bool:
        """Whether a partition that begins here has lost nothing since it was made."""
        return number(position) == 0

    def hold(self, client: Client, ends: Positions) -> None:  # noqa: B027
        """A query begins here: have the cluster keep what follows; only where an option asks for it."""

    def check_group(self, client: Client) -> None:  # noqa: B027
        """Refuse a group that `commit` could not commit to, before a stream begins."""

    def commit(self, client: Client, ends: Positions) -> Collection[TopicPartition]:
        """Tell the cluster what was processed, for lag tools; only where an option asks for it.

        Returns:
            the partitions for which nothing was stored, since they are not there.
        """
        return ()

    def topic_ids(self) -> dict[str, str]:
        """What tells each topic that `partitions` showed last from another one of its name; only Kafka's have such a thing."""
        return {}

    # --- in checkpoints ---

    def to_json(self, positions: Positions) -> dict[str, Any]:
        """Positions as JSON's values: ``{"topic": {"0": 23}}``."""
        tree: dict[str, dict[str, Any]] = {}
        for topic, partition in sorted(positions):
            tree.setdefault(topic, {})[str(partition)] = self.place_to_json(positions[topic, partition])
        return tree

    def from_json(self, client: Client, tree: Tree) -> Positions:
        """What `to_json` made; anything else, as the checkpoint of another source, raises OptionError."""
        found: Positions = {}
        try:
            for topic, inner in tree.items():
                for text, value in inner.items():
                    found[topic, int(text)] = self.place_from_json(topic, int(text), value)
        except (AttributeError, ValueError, TypeError, OptionError) as why:
            raise self.foreign(tree) from why
        return found

    def foreign(self, tree: Tree) -> OptionError:
        """The error for what this log did not write."""
        return OptionError(
            f"the checkpoint holds offsets of another source ({str(tree)[:120]}); {self.protocol}-wire has offsets like "
            f"{self.example()}: give the query a checkpointLocation of its own"
        )

    def place_to_json(self, position: Position) -> Any:
        return number(position)

    def place_from_json(self, topic: str, partition: int, value: Any) -> Position:
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise OptionError(f"{value!r} is no offset")
        return LogOffset(topic, partition, value)

    def with_ids(self, tree: dict[str, Any], ids: Mapping[str, str]) -> dict[str, Any]:
        """What `to_json` made, with the ids of its topics beside."""
        return tree

    def ids_in(self, tree: Tree) -> dict[str, str]:
        """The ids that `with_ids` put beside the positions."""
        return {}

    def pin(self, tree: dict[str, Any], keys: Iterable[TopicPartition]) -> dict[str, Any]:
        """What `to_json` made, marked: in these partitions the first micro-batch only pins the place where its query begins."""
        return tree

    def pinned(self, tree: Tree, key: TopicPartition) -> bool:
        """Whether `pin` marked this partition. Only Kafka's checkpoints may be another source's."""
        return True

    def example(self) -> str:
        """How `to_json` looks."""
        return '{"topic": {"0": 23}}'

    # --- in workers ---

    def here(self, client: Client, span: Span) -> Span:
        """A span as the driver planned it, by the partition numbers of this client."""
        return span

    def read(self, client: Client, span: Span, columns: tuple[str, ...]) -> Iterator[Batch]:
        """Batches of the span, in order; whatever stands in it and is not there any more is passed over or raises DataLoss."""
        return self.drained(client, span)

    def drained(self, client: Client, span: Span, **options: Any) -> Iterator[Batch]:
        """Batches of the span from a reader with these options."""
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
        """The error for records that do not come though they must be there."""
        return TimedOut(
            f"no record came within {self.settings.poll_timeout:g} s while reading up to {span.stop}",
            topic=span.topic,
            partition=span.partition,
        )

    # --- for all ---

    def lost(self, what: str) -> None:
        """Records are gone: fail, or say so where failOnDataLoss is false, in the log of the process that noticed (driver or worker)."""
        if self.settings.fail_on_data_loss:
            raise DataLoss(f"{LOST} {what}{REMEDY_FAIL}")
        logger.warning("%s-wire: %s %s", self.protocol, LOST, what)


def number(position: Position) -> int:
    """The offset of a position that is one."""
    if not isinstance(position, LogOffset):
        raise OptionError(f"{position!r} is not an offset")
    return position.offset


def numbers(positions: Mapping[TopicPartition, Position]) -> dict[TopicPartition, int]:
    return {key: number(place) for key, place in positions.items()}


def places(offsets: Mapping[TopicPartition, int]) -> Positions:
    return {key: LogOffset(*key, offset) for key, offset in offsets.items()}


def moved(place: Position, offset: int) -> Position:
    """Another offset of the same partition."""
    number(place)
    return replace(place, offset=offset)  # type: ignore[call-arg]


def moved_all(like: Positions, offsets: Mapping[TopicPartition, int]) -> Positions:
    return {key: moved(like[key], offset) for key, offset in offsets.items()}


def remade(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Topics that were deleted and made again, by their ids: offsets of the one mean nothing in the other."""
    return sorted(topic for topic, one in before.items() if now.get(topic, one) != one)


def named(keys: Iterable[TopicPartition]) -> str:
    """Partitions for an error text."""
    return ", ".join(f"{topic}-{partition}" for topic, partition in sorted(keys))


def retried(log: Log, action: Any) -> Any:
    """`action()`, again after a pause where a broker refused it for the moment or was away, as often as fetchOffset.numRetries says.

    Each try has the client's timeout, so that a query outlives an outage that is no longer than all of them.
    """
    for left in range(log.settings.tries - 1, -1, -1):
        try:
            return action()
        except (BrokerError, TransportError) as why:
            if not left or verdict(why, brief=True, passing=(TimedOut,), final=(AuthError,)) is Verdict.NEVER:
                raise
            logger.warning("%s-wire: brokers are asked again, %d times more at most: %s", log.protocol, left, why)
            time.sleep(log.settings.pause)
    raise AssertionError("tries is at least 1")


def parse_place(topic: str, partition: int, value: Any) -> Position:
    """A position from its text, as checkpoints of logs other than Kafka hold it."""
    return parse_position(str(value), topic, partition)
