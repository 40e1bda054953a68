"""Provides the format ``kafka-wire``, with the columns, their order, option names and offsets JSON of the JVM's Kafka connector.

It is Kafka's `Log`, over the Admin and the Reader, and its data source. Options are in `kafka_options.py`, columns in `kafka_columns.py`,
the writer in `kafka_sink.py`. A worker's client keeps the metadata of a topic, and the connection to the leader of a range, for the next
task.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from ..errors import DataLoss, OptionError
from ..kafka.codes import GroupIdNotFound, OffsetOutOfRange, UnknownTopicId, UnknownTopicOrPartition
from ..kafka.messages import DescribeLogDirsRequest, FetchRequest, ListOffsetsRequest
from ..position import EARLIEST, LATEST, AtTime, Earliest, Latest, Position, TopicPartition
from .java_pattern import java_pattern
from .kafka_columns import FORM
from .kafka_options import READERS, read_options
from .kafka_versions import need
from .log import Log, Positions, Span, Tree, logger, named, numbers
from .options import Options, ReadSettings
from .source import LogSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ..kafka.client import KafkaClient
    from ..kafka.reader import KafkaReader
    from ..records import Batch, TopicInfo
    from ..roles import Client
    from .write import Sink

_SLICE = 5.0  # seconds of a poll at most; then the end of the log is looked up
_ID = "#"  # a character that no topic's name has


class KafkaLog(Log):
    """Kafka's topics; positions are offsets."""

    protocol = "kafka"
    form = FORM
    subject = "subscribe"
    record_times = True
    gone = (UnknownTopicOrPartition, UnknownTopicId)

    def __init__(self, settings: ReadSettings) -> None:
        super().__init__(settings)
        self._ids: dict[str, str] = {}
        self._absent: list[TopicPartition] = []

    @property
    def committed(self) -> bool:
        """Return whether only committed records are read (kafka.isolation.level)."""
        return self.settings.client.get("isolation") == "committed"

    def check(self, client: Client) -> None:
        """Raise OptionError where brokers are too old for what the options ask."""
        settings = self.settings
        timed = sorted({"startingTimestamp", "endingTimestamp", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"} & settings.given)
        if timed:
            need(client, f"option {timed[0]}", "0.10.1", "give offsets", ListOffsetsRequest, 1)
        if self.committed:
            need(client, "kafka.isolation.level read_committed", "0.11", "leave it out", FetchRequest, 4)
        if settings.max_bytes is not None:
            need(client, "option maxBytesPerTrigger", "1.0", "use maxOffsetsPerTrigger", DescribeLogDirsRequest)

    def partitions(self, client: Client) -> list[TopicPartition]:
        """Return the partitions that are chosen by assign, subscribe or subscribePattern and exist now.

        Raises:
            UnknownTopicOrPartition: a topic of subscribe or assign does not exist.
            OptionError: no partition of assign exists; if only some are missing, that is logged.
        """
        settings = self.settings
        if settings.pattern is not None:
            match = java_pattern(settings.pattern).search
            found = {name: info for name, info in self._described(client, None).items() if match(name)}
        else:
            found = self._described(client, {name for name, _ in settings.assigned} or settings.topics)
        keys = sorted((name, part.partition) for name, info in found.items() for part in info.partitions)
        if settings.assigned:
            keys = self._assigned(keys)
        self._ids = {name: info.details["topic_id"] for name, info in found.items() if info.details["topic_id"] is not None}
        return keys

    def _described(self, client: Client, names: Iterable[str] | None) -> dict[str, TopicInfo]:
        """Describe topics; None: all of them."""
        kafka = cast("KafkaClient", client)
        try:
            return kafka.admin().describe_topics(names, timeout=kafka.timeout)
        except UnknownTopicOrPartition as why:
            why.text = f"there is no topic {why.topic!r}: create it, or correct the option {self.subject}"
            raise

    def _assigned(self, known: list[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions of the option assign that exist."""
        strange = sorted(set(self.settings.assigned) - set(known))
        if len(strange) == len(self.settings.assigned):
            raise OptionError(f"option assign names {named(strange)}, which the cluster does not have")
        if strange and strange != self._absent:
            logger.warning("kafka-wire: option assign names %s, which the cluster does not have: the others are read", named(strange))
        self._absent = strange
        return sorted(set(self.settings.assigned) & set(known))

    def _positions(self, client: Client, places: Mapping[TopicPartition, Earliest | Latest | AtTime], committed: bool) -> Positions:
        """Resolve words and times, of all topics together."""
        kafka = cast("KafkaClient", client)
        topics = {topic for topic, _ in places}
        return kafka.admin().positions(topics, places, committed=committed, timeout=kafka.timeout)

    def ends(self, client: Client, keys: Iterable[TopicPartition], where: Earliest | Latest) -> Positions:
        """Look up where the partitions begin or end now, for the isolation level of the options."""
        return self._positions(client, dict.fromkeys(keys, where), self.committed)

    def written(self, client: Client, keys: Iterable[TopicPartition]) -> Positions:
        """Look up where the partitions end, uncommitted records included."""
        return self._positions(client, dict.fromkeys(keys, LATEST), committed=False)

    def at_times(self, client: Client, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, Position | None]:
        """Look up the first offset at or after a time (milliseconds since 1970); None where no readable record is that late."""
        latest = self.ends(client, times, LATEST)
        found = self._positions(client, {key: AtTime(moment) for key, moment in times.items()}, self.committed)
        return {key: place if place < latest[key] else None for key, place in found.items()}

    def row_bytes(self, client: Client, keys: list[TopicPartition]) -> dict[TopicPartition, float]:
        """Estimate the bytes of a row: bytes on the leader's disk by offsets there."""
        kafka = cast("KafkaClient", client)
        first, last = numbers(self.ends(client, keys, EARLIEST)), numbers(self.ends(client, keys, LATEST))
        sizes = kafka.admin().sizes({topic for topic, _ in keys}, timeout=kafka.timeout)
        return {key: max(1.0, sizes.get(key, 0) / max(1, last[key] - first[key])) for key in keys}

    def check_group(self, client: Client) -> None:
        """Raise OptionError for a group with members: brokers take commits for such a group only from its members."""
        try:
            members = client.admin().describe_group(self.settings.group or "").members
        except GroupIdNotFound:
            return
        if members:
            raise OptionError(
                f"option commitOffsetsToGroup: the group {self.settings.group} has members ({members[0].client}), and brokers "
                "accept commits for it from members only; name a group without members"
            )

    def commit(self, client: Client, ends: Positions) -> Collection[TopicPartition]:
        """Commit the ends to the group of commitOffsetsToGroup, which must have no members."""
        return cast("KafkaClient", client).admin().commit(self.settings.group, ends) if self.settings.group else ()

    def cut(self, client: Client, spans: list[Span]) -> list[Span]:
        """Split spans as minPartitions and maxRecordsPerPartition ask, and set their topics' ids."""
        return self.known(client, super().cut(client, spans))

    def known(self, client: Client, spans: list[Span]) -> list[Span]:
        """Set the spans' topic ids (KIP-516)."""
        for span in spans:
            span.identity = self._ids.get(span.topic)
        return spans

    def topic_ids(self) -> dict[str, str]:
        """Return the ids of the topics that the last call of `partitions` found; brokers before 2.8 have none."""
        return self._ids

    def with_ids(self, tree: dict[str, Any], ids: Mapping[str, str]) -> dict[str, Any]:
        """Add the ids, each as a topic ``name#id`` without partitions.

        No topic can have that name, and to the JVM's connector an entry without partitions means nothing.
        """
        return {**tree, **{f"{topic}{_ID}{one}": {} for topic, one in ids.items() if topic in tree}}

    def ids_in(self, tree: Tree) -> dict[str, str]:
        """Return the ids that `with_ids` added, by topic."""
        return dict(name.split(_ID, 1) for name in tree if _ID in name)

    def pin(self, tree: dict[str, Any], keys: Iterable[TopicPartition]) -> dict[str, Any]:
        """Mark the offsets of these partitions by writing them as 23.0.

        To JSON and to the JVM's connector this is the same number, but the connector never writes one so.
        """
        for topic, partition in keys:
            if str(partition) in tree.get(topic, {}):
                tree[topic][str(partition)] = float(tree[topic][str(partition)])
        return tree

    def pinned(self, tree: Tree, key: TopicPartition) -> bool:
        """Return whether `pin` marked this partition."""
        return isinstance(tree.get(key[0], {}).get(str(key[1])), float)

    def place_from_json(self, topic: str, partition: int, value: Any) -> Position:
        """Return the position of an offset, marked or not; raises OptionError for anything else."""
        return super().place_from_json(topic, partition, int(value) if isinstance(value, float) and value.is_integer() else value)

    def read(self, client: Client, span: Span, columns: tuple[str, ...]) -> Iterator[Batch]:
        """Yield the batches of the span from its leader.

        Raises:
            DataLoss: records are gone, or the topic was deleted and made again (unless failOnDataLoss is false).
            TimedOut: no record came within `ReadSettings.poll_timeout` seconds.
            UnknownTopicOrPartition, UnknownTopicId: the partition does not exist any more.
        """
        with self._reader(client, span, columns) as reader:
            if not same(span.identity, reader.topic_id):  # this client's metadata may be older than the driver's: look the topic up
                client.admin().describe_topic(span.topic, timeout=client.timeout)
            if same(span.identity, reader.topic_id):
                yield from self._fetched(client, span, reader)
            if not same(span.identity, reader.topic_id):
                self.lost(f"{span.topic}-{span.partition} was to be read up to {span.stop}, and its topic was deleted and made again")

    def _reader(self, client: Client, span: Span, columns: tuple[str, ...]) -> KafkaReader:
        """Make the reader of a span; raises UnknownTopicOrPartition where its partition does not exist any more."""
        kafka = cast("KafkaClient", client)
        try:
            return kafka.reader(span.topic, start=span.start, stop=span.stop, columns=self.form.core(columns))
        except OptionError as why:
            there = kafka.admin().describe_topic(span.topic, timeout=kafka.timeout)
            if span.partition in {part.partition for part in there.partitions}:
                raise
            raise UnknownTopicOrPartition(topic=span.topic, partition=span.partition) from why

    def _fetched(self, client: Client, span: Span, reader: KafkaReader) -> Iterator[Batch]:
        """Yield the batches of the span, without records that are gone."""
        deadline = time.monotonic() + self.settings.poll_timeout
        while not reader.done:
            try:
                batch = reader.poll(max(0.0, min(deadline - time.monotonic(), _SLICE)))
            except OffsetOutOfRange:
                reader.seek(self._behind_the_gap(client, span, reader.positions[span.key]))
                continue
            except DataLoss as why:
                at = reader.positions[span.key]
                self.lost(f"{span.topic}-{span.partition} was to be read in [{at}, {span.stop}): {why.text}")
                reader.seek(at)
                continue
            if batch is not None:
                yield batch
                deadline = time.monotonic() + self.settings.poll_timeout
            elif not reader.done:
                if self._cut_off(client, span, reader.positions[span.key]):
                    return
                if time.monotonic() >= deadline:
                    raise self.stalled(span)

    def _now(self, client: Client, span: Span, where: Earliest | Latest) -> Position:
        """Look up where the span's partition begins or ends now, uncommitted records included."""
        return self._positions(client, {span.key: where}, committed=False)[span.key]

    def _behind_the_gap(self, client: Client, span: Span, at: Position) -> Position:
        """Report that the log does not hold `at` any more, and return the position at which to continue."""
        first, last = self._now(client, span, EARLIEST), self._now(client, span, LATEST)
        self.lost(f"{span.topic}-{span.partition} was to be read in [{at}, {span.stop}) and now holds [{first}, {last})")
        return min(first, span.stop) if first > at else span.stop

    def _cut_off(self, client: Client, span: Span, at: Position) -> bool:
        """Return whether the log now ends before the span does, and report that; called when no record came for a while."""
        last = self._now(client, span, LATEST)
        if last >= span.stop or last > at:
            return False
        self.lost(f"{span.topic}-{span.partition} was to be read up to {span.stop} and now ends at {last}")
        return True


def same(before: str | None, now: str | None) -> bool:
    """Return whether two topic ids may be of one topic; brokers before 2.8 have no ids."""
    return before is None or now is None or before == now


class KafkaWire(LogSource):
    """Reads Kafka topics as Arrow, and writes them."""

    log = KafkaLog

    def read_settings(self, options: Options) -> ReadSettings:
        """Return what reading needs; see `kafka_options.read_options`."""
        return read_options(options)

    def sink(self, options: Options, schema: StructType) -> Sink:
        """Return the sink: `kafka_exactly.ExactlyOnce` with exactlyOnce=true, else `KafkaSink`."""
        from .kafka_sink import KafkaSink, write_options

        options.accept(READERS)
        settings = write_options(options)
        if not settings.once:
            return KafkaSink(settings, schema)
        from .kafka_exactly import ExactlyOnce

        return ExactlyOnce(settings, schema)
