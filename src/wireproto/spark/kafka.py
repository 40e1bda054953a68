"""The format ``kafka-wire``: columns, order, option names and offsets JSON of the JVM's Kafka connector.

What it is: Kafka's `Log`, over ListOffsets and the fetcher of the readers, and its source. Options are in `kafka_options.py`, columns in
`kafka_columns.py`, the writer in `kafka_sink.py`. A worker fetches every range over the one connection that it keeps to a leader.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from ..errors import DataLoss, OptionError
from ..kafka import positions
from ..kafka.codes import GroupIdNotFound, OffsetOutOfRange, UnknownTopicId, UnknownTopicOrPartition
from ..kafka.fetcher import Fetcher
from ..kafka.messages import DescribeLogDirsRequest, FetchRequest, ListOffsetsRequest
from ..kafka.metadata import NO_ID
from ..position import Earliest, Latest, LogOffset, Position, TopicPartition
from .java_pattern import java_pattern
from .kafka_columns import FORM
from .kafka_options import READERS, read_options
from .kafka_versions import Offered
from .log import Log, Positions, Span, Tree, logger, named, number, numbers, places
from .options import Options, ReadSettings
from .source import LogSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ..kafka.client import KafkaClient
    from ..kafka.cluster import KafkaCluster
    from ..records import Batch
    from ..roles import Client
    from .write import Sink

_EARLIEST, _LATEST = -2, -1
_SLICE = 5.0
_PURPOSE = "spark"


def cluster_of(client: Client) -> KafkaCluster:
    return cast("KafkaClient", client).cluster


def identity(cluster: KafkaCluster, topic: str) -> bytes:
    """A topic's id as last told; NO_ID where brokers have none, or the topic is not known."""
    entry = cluster.metadata.topics.get(topic)
    return NO_ID if entry is None else entry.id


class KafkaLog(Log):
    """Kafka's topics; positions are offsets."""

    protocol = "kafka"
    form = FORM
    subject = "subscribe"
    record_times = True
    gone = (UnknownTopicOrPartition, UnknownTopicId)

    def __init__(self, settings: ReadSettings) -> None:
        super().__init__(settings)
        self._ids: dict[str, bytes] = {}
        self._absent: list[TopicPartition] = []

    @property
    def committed(self) -> bool:
        return self.settings.client.get("isolation") == "committed"

    def check(self, client: Client) -> None:
        """Refuse a broker too old for what the options ask."""
        offered, settings = Offered(client), self.settings
        timed = sorted({"startingTimestamp", "endingTimestamp", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"} & settings.given)
        if timed:
            offered.need(f"option {timed[0]}", "0.10.1", "give offsets", ListOffsetsRequest, 1)
        if self.committed:
            offered.need("kafka.isolation.level read_committed", "0.11", "leave it out", FetchRequest, 4)
        if settings.max_bytes is not None:
            offered.need("option maxBytesPerTrigger", "1.0", "use maxOffsetsPerTrigger", DescribeLogDirsRequest)

    def partitions(self, client: Client) -> list[TopicPartition]:
        found = cluster_of(client)
        if self.settings.assigned:
            known = {key for name in {name for name, _ in self.settings.assigned} for key in self._of(found, name)}
            strange = sorted(set(self.settings.assigned) - known)
            if len(strange) == len(self.settings.assigned):
                raise OptionError(f"option assign names {named(strange)}, which the cluster does not have")
            if strange and strange != self._absent:
                logger.warning("kafka-wire: option assign names %s, which the cluster does not have: the others are read", named(strange))
            self._absent = strange
            self._made_again(found, {name for name, _ in known})
            return sorted(set(self.settings.assigned) & known)
        names: Iterable[str] = self.settings.topics
        if self.settings.pattern is not None:
            match = java_pattern(self.settings.pattern).search
            names = [name for name in client.admin().list_topics() if match(name)]
        else:
            deadline = found.deadline()
            found.drive(found.retrying(lambda: found.refreshing(names, deadline), deadline), deadline)
        keys = sorted(key for name in names for key in self._of(found, name))
        self._made_again(found, {name for name, _ in keys})
        return keys

    def _made_again(self, cluster: KafkaCluster, names: Iterable[str]) -> None:
        """Offsets of a topic mean nothing in another one of its name: notice by the topic's id, where brokers have one (2.8)."""
        before, self._ids = self._ids, {name: identity(cluster, name) for name in names}
        for name, now in self._ids.items():
            if before.get(name, now) != now and NO_ID not in (before[name], now):
                self.lost(f"the topic {name} was deleted and made again while the query ran")

    def _of(self, cluster: KafkaCluster, topic: str) -> list[TopicPartition]:
        """A topic's partitions, from the metadata just asked for, or asked for with patience where it is not there."""
        entry = cluster.metadata.topics.get(topic)
        if entry is None or entry.error or not entry.partitions or self.settings.assigned:
            try:
                entry = cluster.topic_entry(topic, cluster.deadline())
            except UnknownTopicOrPartition as why:
                why.text = f"there is no topic {topic!r}: create it, or correct the option {self.subject}"
                raise
        return [(topic, partition) for partition in entry.partitions]

    def _list(
        self, client: Client, keys: Iterable[TopicPartition], moment: int, *, committed: bool | None = None
    ) -> dict[TopicPartition, int]:
        found = cluster_of(client)
        wanted = sorted(set(keys))
        level = self.committed if committed is None else committed
        return positions.list_offsets(found, wanted, moment, found.deadline(), committed=level) if wanted else {}

    def ends(self, client: Client, keys: Iterable[TopicPartition], where: Earliest | Latest) -> Positions:
        return places(self._list(client, keys, _EARLIEST if isinstance(where, Earliest) else _LATEST))

    def written(self, client: Client, keys: Iterable[TopicPartition]) -> Positions:
        return places(self._list(client, keys, _LATEST, committed=False))

    def at_times(self, client: Client, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, Position | None]:
        found: dict[TopicPartition, Position | None] = {}
        for moment in set(times.values()):
            asked = [key for key, wanted in times.items() if wanted == moment]
            for key, offset in self._list(client, asked, moment).items():
                found[key] = LogOffset(*key, offset) if offset >= 0 else None
        return found

    def row_bytes(self, client: Client, keys: list[TopicPartition]) -> dict[TopicPartition, float]:
        """Bytes on the leader's disk by offsets there."""
        found = cluster_of(client)
        first, last = numbers(self.ends(client, keys, Earliest())), numbers(self.ends(client, keys, Latest()))
        sizes: dict[TopicPartition, int] = {}
        for node in {entry.id for key in keys if (entry := found.metadata.leader(*key)) is not None}:
            reply = found.ask(DescribeLogDirsRequest(topics=None), found.deadline(), found.to_node(node))
            for folder in reply.results:
                for topic in folder.topics:
                    for part in topic.partitions:
                        key = (topic.name, part.partition_index)
                        sizes[key] = max(sizes.get(key, 0), part.partition_size)
        return {key: max(1.0, sizes.get(key, 0) / max(1, last[key] - first[key])) for key in keys}

    def check_group(self, client: Client) -> None:
        try:
            members = client.admin().describe_group(self.settings.group or "").members
        except GroupIdNotFound:
            return
        if members:
            raise OptionError(
                f"option commitOffsetsToGroup: the group {self.settings.group} has members of its own ({members[0].client}), and brokers "
                "take no commits for it from others; name a group that nobody is a member of"
            )

    def commit(self, client: Client, ends: Positions) -> None:
        """Store the ends for the group of commitOffsetsToGroup; it must have no members of its own."""
        if self.settings.group:
            cast("KafkaClient", client).admin().commit(self.settings.group, ends)

    def cut(self, client: Client, spans: list[Span]) -> list[Span]:
        return self.known(client, super().cut(client, spans))

    def known(self, client: Client, spans: list[Span]) -> list[Span]:
        for span in spans:
            span.identity = identity(cluster_of(client), span.topic)
        return spans

    def pin(self, tree: dict[str, Any], keys: Iterable[TopicPartition]) -> dict[str, Any]:
        """Marked offsets are written as 23.0: the same number to JSON and to the JVM's connector, which itself never writes one so."""
        for topic, partition in keys:
            if str(partition) in tree.get(topic, {}):
                tree[topic][str(partition)] = float(tree[topic][str(partition)])
        return tree

    def pinned(self, tree: Tree, key: TopicPartition) -> bool:
        return isinstance(tree.get(key[0], {}).get(str(key[1])), float)

    def place_from_json(self, topic: str, partition: int, value: Any) -> Position:
        return super().place_from_json(topic, partition, int(value) if isinstance(value, float) and value.is_integer() else value)

    def read(self, client: Client, span: Span, columns: tuple[str, ...]) -> Iterator[Batch]:
        found = cluster_of(client)
        if span.topic not in found.metadata.topics or not self._same(found, span):
            found.topic_entry(span.topic, found.deadline())
        if self._same(found, span):
            yield from self._fetched(client, span, columns)
        if not self._same(found, span):
            self.lost(f"{span.topic}-{span.partition} was to be read up to {span.stop}, and its topic was deleted and made again")

    def _same(self, cluster: KafkaCluster, span: Span) -> bool:
        """Whether the topic is the one that the driver saw, as far as this client knows."""
        now = identity(cluster, span.topic)
        return span.identity == now or NO_ID in (span.identity, now) or not span.identity

    def _fetched(self, client: Client, span: Span, columns: tuple[str, ...]) -> Iterator[Batch]:
        """Batches of the span from its leader."""
        found = cluster_of(client)
        options = found.options.for_role("reader", {"columns": self.form.core(columns)})
        fetcher = Fetcher(found, options, _PURPOSE)
        cursor = fetcher.asking.add(*span.key, number(span.start), number(span.stop))
        patience = time.monotonic() + self.settings.poll_timeout
        try:
            while not cursor.done:
                try:
                    batch = fetcher.poll(min(patience, time.monotonic() + _SLICE))
                except OffsetOutOfRange:
                    fetcher.plan.seek(span.key, self._behind_the_gap(client, span, cursor.position))
                    continue
                except DataLoss as why:
                    self.lost(f"{span.topic}-{span.partition} was to be read in [{cursor.position}, {span.stop}): {why.text}")
                    fetcher.plan.seek(span.key, cursor.position)
                    continue
                if batch is not None:
                    yield batch
                    patience = time.monotonic() + self.settings.poll_timeout
                elif not cursor.done:
                    if self._cut_off(client, span, cursor.position):
                        return
                    if time.monotonic() >= patience:
                        raise self.stalled(span)
        finally:
            fetcher.close()

    def _behind_the_gap(self, client: Client, span: Span, at: int) -> int:
        """Where to go on when the log does not hold an offset any more."""
        (first,) = self._list(client, [span.key], _EARLIEST).values()
        (last,) = self._list(client, [span.key], _LATEST, committed=False).values()
        what = f"{span.topic}-{span.partition} was to be read in [{at}, {span.stop}) and now holds [{first}, {last})"
        self.lost(what)
        return min(first, number(span.stop)) if first > at else number(span.stop)

    def _cut_off(self, client: Client, span: Span, at: int) -> bool:
        """No record came for a while: whether the log now ends before the span does."""
        (last,) = self._list(client, [span.key], _LATEST, committed=False).values()
        if last >= number(span.stop) or last > at:
            return False
        self.lost(f"{span.topic}-{span.partition} was to be read up to {span.stop} and now ends at {last}")
        return True


class KafkaWire(LogSource):
    """Reads Kafka topics as Arrow, and writes them."""

    log = KafkaLog

    def read_settings(self, options: Options) -> ReadSettings:
        return read_options(options)

    def sink(self, options: Options, schema: StructType) -> Sink:
        from .kafka_sink import KafkaSink, write_options

        options.accept(READERS)
        return KafkaSink(write_options(options), schema)
