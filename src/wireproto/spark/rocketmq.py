"""Provides the format ``rocketmq-wire``: queue offsets as Kafka's offsets; keys, value and user properties as the common columns have them.

It is RocketMQ's `Log` and its data source, for brokers of 4.x and 5.x. A partition is a queue, which each client numbers for itself:
driver, workers and the next run of a query may have other numbers. So offsets JSON and checkpoints name the queue, as in ``{"topic":
{"broker-a/0": 23}}``; the driver numbers what it reads there, a worker finds the queue of its span by name (`here`), and rows have the
driver's number. Numbers without a queue, as older checkpoints have them, are accepted where they can mean only one queue. The writer is in
`rocketmq_sink.py`.

    nameServer    host:port, separated by ; or , or rocketmq://…      topic   names, separated by commas
    rocketmq.*    options of the client and its roles                  commitOffsetsToGroup   a group to commit to, for lag tools
    expectedBrokers   names of brokers that must be registered         the rest: see `options.py`
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from ..errors import OptionError
from ..position import EARLIEST, LATEST, Position, QueueOffset, TopicPartition, queue_name
from ..rocketmq.client import RocketClient
from ..rocketmq.codes import PullOffsetMoved, TopicNotExist
from ..rocketmq.errors import NoMaster
from .columns import COMMON, NOTHING, LogFormat, plain
from .log import Log, Positions, Span, Tree, moved, number
from .options import Options, ReadSettings, address, part, read_settings
from .source import LogSource, client_options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ..records import Batch
    from ..roles import Client
    from .options import Named, Place
    from .write import Sink

Name = tuple[str, int | str]
"""Topic, and the number or name of a queue."""

FORM = LogFormat(
    columns={**COMMON, "offset": ("bigint", plain("offset"))},
    default=("key", "value", "topic", "partition", "offset", "timestamp", "timestampType"),
    sources=NOTHING,
)
GATHERED = {"min_bytes": 1 << 20, "batch_bytes": 2 << 20, "pull_ahead": 16}
"""Reader options for a range that is there already. A reply has 32 messages at most, and each batch costs time in Arrow, so that replies
are gathered. Options that the user gives precede these."""


def name_of(place: Position) -> str:
    """Return the name of a position's queue."""
    assert isinstance(place, QueueOffset)
    return queue_name(place.broker, place.queue)


class RocketMQLog(Log):
    """RocketMQ's topics; positions are queue offsets."""

    protocol = "rocketmq"
    form = FORM
    gone = (TopicNotExist,)

    def check(self, client: Client) -> None:
        """Raise NoMaster where a broker of expectedBrokers is not registered.

        A route names only brokers that are up, so the rows of that broker would be left out.
        """
        if self.settings.brokers:
            there = cast(RocketClient, client).admin().brokers(timeout=client.timeout)
            if absent := [name for name in self.settings.brokers if there.get(name) is None]:
                known = ", ".join(name for name, master in there.items() if master is not None) or "none"
                text = f"no master of {', '.join(absent)} is registered at the name server, which has {known}"
                raise NoMaster(f"{text}: run the query when it is back, or correct the option expectedBrokers")

    def partitions(self, client: Client) -> list[TopicPartition]:
        """Return the partitions that the topics have now; raises TopicNotExist with its remedy."""
        with self.missing_topics():
            return super().partitions(client)

    @contextmanager
    def missing_topics(self) -> Iterator[None]:
        """Add the remedy to the error for a topic that does not exist."""
        try:
            yield
        except TopicNotExist as why:
            why.text = f"there is no topic {why.topic!r}: create it, or correct the option {self.subject}"
            raise

    # --- queues by name ---

    def to_json(self, positions: Positions) -> dict[str, Any]:
        """Return positions as values for JSON, by queue name: ``{"topic": {"broker-a/0": 23}}``."""
        tree: dict[str, dict[str, Any]] = {}
        for topic, name, offset in sorted((place.topic, name_of(place), number(place)) for place in positions.values()):
            tree.setdefault(topic, {})[name] = offset
        return tree

    def from_json(self, client: Client, tree: Tree) -> Positions:
        """Return the positions of a checkpoint, by this client's partition numbers.

        Raises:
            OptionError: the checkpoint is another source's, or has a number that may mean several queues. TopicNotExist.
        """
        found: Positions = {}
        try:
            names = {(topic, part(text)): offset for topic, inner in tree.items() for text, offset in inner.items()}
            given = {(topic, name): self.place_from_json(topic, 0, offset) for (topic, name), offset in names.items()}
        except (AttributeError, ValueError, TypeError, OptionError) as why:
            raise self.foreign(tree) from why
        with self.missing_topics():
            queues = self.queues(client, given, "the checkpoint")
        for key, queue in queues.items():
            found[key[0], queue.partition] = moved(queue, number(given[key]))
        return found

    def example(self) -> str:
        """Return an example of offsets, for error texts."""
        return '{"topic": {"broker-a/0": 23}}'

    def queues(self, client: Client, names: Iterable[Name], what: str) -> dict[Name, QueueOffset]:
        """Look up the beginning of each queue, by its name or number.

        Args:
            names: (topic, number or name). what: what has the names, for errors.
        Raises:
            OptionError: a number may mean several queues.
        """
        admin, wanted = cast(RocketClient, client).admin(), list(names)
        found: dict[Name, QueueOffset] = {}
        for topic in dict.fromkeys(topic for topic, _ in wanted):
            ours = [name for of, name in wanted if of == topic]
            for name, queue in admin.queues(topic, ours, what=what, timeout=client.timeout).items():
                found[topic, name] = queue
        return found

    def numbered(self, client: Client, bound: Named, option: str) -> dict[TopicPartition, Place]:
        """Return a bound by this client's partition numbers; raises OptionError for a number that may mean several queues."""
        found: dict[TopicPartition, Place] = {}
        named = {(topic, name_of(place) if isinstance(place, QueueOffset) else name): place for (topic, name), place in bound.items()}
        for key, queue in self.queues(client, named, f"option {option}").items():
            place = named[key]
            found[key[0], queue.partition] = moved(queue, number(place)) if isinstance(place, Position) else place
        return found

    def away(self, client: Client, missing: Positions) -> Positions:
        """Return those of the missing partitions whose broker is in no route, since it was stopped.

        A broker that is there and does not have the queue any more has lost it.
        """
        there = cast(RocketClient, client).admin().brokers(timeout=client.timeout)
        return {key: place for key, place in missing.items() if isinstance(place, QueueOffset) and place.broker not in there}

    def here(self, client: Client, span: Span) -> Span:
        """Return a span as planned by the driver with the partition number of this client."""
        start, stop = span.start, span.stop
        (queue,) = self.queues(client, [(span.topic, name_of(start))], "a task").values()
        found = Span(span.topic, queue.partition, moved(queue, number(start)), moved(queue, number(stop)))
        found.late_start, found.late_stop, found.first = span.late_start, span.late_stop, span.first
        return found

    # --- ranges ---

    def cut(self, client: Client, spans: list[Span]) -> list[Span]:
        """Split what is still there of the spans, as minPartitions and maxRecordsPerPartition ask."""
        return super().cut(client, self.still_there(client, spans))

    def still_there(self, client: Client, spans: list[Span]) -> list[Span]:
        """Return the spans without what brokers have deleted, which is reported as lost.

        Raises:
            NoMaster: the broker of a queue is away. DataLoss: records are gone (unless failOnDataLoss is false).
        """
        keys = [span.key for span in spans]
        first, last = self.ends(client, keys, EARLIEST), self.ends(client, keys, LATEST)
        found: list[Span] = []
        for span in spans:
            if span.key not in first or span.key not in last:
                raise NoMaster(f"the broker that holds {name_of(span.start)} of {span.topic} is away; run the query when it is back")
            low, high = number(first[span.key]), number(last[span.key])
            if number(span.start) < low or number(span.stop) > high:
                self.lost(f"{span.topic}-{span.partition} was to be read in [{span.start}, {span.stop}) and now holds [{low}, {high})")
            start = max((span.start, first[span.key]), key=number)
            stop = min((span.stop, last[span.key]), key=number)
            if number(start) < number(stop):
                found.append(Span(*span.key, start, stop))
        return found

    def commit(self, client: Client, ends: Positions) -> Collection[TopicPartition]:
        """Commit the ends to the group of commitOffsetsToGroup, which must have no members; brokers of 5.x need it to be created before."""
        return cast(RocketClient, client).admin().commit(self.settings.group, ends) if self.settings.group else ()

    def read(self, client: Client, span: Span, columns: tuple[str, ...]) -> Iterator[Batch]:
        """Yield the batches of the span.

        Raises:
            DataLoss: records are gone (unless failOnDataLoss is false).
            TimedOut: no record came within `ReadSettings.poll_timeout` seconds.
        """
        moved = "raise" if self.settings.fail_on_data_loss else "earliest"
        gathered = {name: value for name, value in GATHERED.items() if name not in self.settings.client}
        try:
            yield from self.drained(client, span, columns=self.form.core(columns), reset=moved, **gathered)
        except PullOffsetMoved as why:
            self.lost(f"{span.topic}-{span.partition} lost records while it was read up to {span.stop}: {why.text}")
            raise


class RocketMQWire(LogSource):
    """Reads RocketMQ topics as Arrow, one task per queue or a part of one, and writes them."""

    log = RocketMQLog

    def read_settings(self, options: Options) -> ReadSettings:
        """Return what reading needs.

        Raises:
            OptionError: an option is missing or has a value that it cannot have.
        """
        url = address(options, "nameServer", "rocketmq", between=";")
        topics = options.names("topic")
        if not topics:
            raise OptionError("option topic is missing: the topics to read, separated by commas")
        client = client_options(options, "rocketmq.")
        more = {"poll_timeout": options.seconds("pollTimeout", 120.0), "group": options.text("commitOffsetsToGroup") or None}
        brokers = options.names("expectedBrokers")
        return read_settings(options, url=url, client=client, topics=topics, brokers=brokers, **more)

    def sink(self, options: Options, schema: StructType) -> Sink:
        """Return the sink, which writes at least once."""
        from .rocketmq_sink import RocketMQSink, write_options

        return RocketMQSink(write_options(options), schema)
