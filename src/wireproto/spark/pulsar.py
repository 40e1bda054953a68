"""Provides the format ``pulsar-wire``: like the other logs, with ledger, entry and batch index in the place of an offset.

It is Pulsar's `Log` and its data source. Options are in `pulsar_options.py`, the writer in `pulsar_sink.py`; `pulsar_ids.py` orders ids,
`pulsar_count.py` counts what ids cannot tell. The option subscription names one that is kept at the query's position
(`PinnedSubscription`).

In offsets JSON and checkpoints a position is its text, ``12:3:-1`` for the beginning of entry 3; "after entry 3" is written as the
beginning of entry 4, so that positions have one order. The partition number is -1 in a topic without partitions.

What is gone. Entries of a ledger are numbered without gaps, ledgers are not: where a ledger that was not read to its end is deleted whole,
nothing shows how much of it was unread. That counts as lost (failOnDataLoss); with the option ``subscription`` it does not happen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

from ..errors import OptionError
from ..position import EARLIEST, Earliest, Latest, MessageId, Position, TopicPartition
from ..pulsar.client import PulsarClient
from ..pulsar.codes import TopicNotFound
from . import pulsar_count
from .columns import COMMON, NOTHING, LogFormat, plain
from .log import Log, Positions, Span, parse_place
from .options import Options, ReadSettings
from .pulsar_ids import normal
from .pulsar_options import READERS, read_options
from .source import LogSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ..pulsar.pinned_subscription import PinnedSubscription
    from ..records import Batch
    from ..roles import Client
    from .write import Sink

FORM = LogFormat(
    columns={
        **COMMON,
        "ledger": ("bigint", plain("ledger")),
        "entry": ("bigint", plain("entry")),
        "index": ("int", plain("index")),
    },
    default=("key", "value", "topic", "partition", "ledger", "entry", "index", "timestamp", "timestampType"),
    sources=NOTHING,
    position="ledger",
)


LAST_ID = 12  # the first protocol version with GET_LAST_MESSAGE_ID


class PulsarLog(Log):
    """Pulsar's topics; positions are message ids, which cannot be subtracted."""

    protocol = "pulsar"
    form = FORM
    gone = (TopicNotFound,)
    lag_only = False  # what is committed may be deleted

    def __init__(self, settings: ReadSettings) -> None:
        super().__init__(settings)
        self._counter = pulsar_count.Counter()
        self._hold: PinnedSubscription | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for workers: options only."""
        return {"settings": self.settings, "_counter": pulsar_count.Counter(), "_hold": None}

    # --- on the driver ---

    def check(self, client: Client) -> None:
        """Raise OptionError for a broker that cannot tell where a topic ends."""
        info = cast(PulsarClient, client).broker_info()
        if info.protocol_version < LAST_ID:
            raise OptionError(
                f"pulsar-wire needs a broker that reports a topic's last message id (protocol version {LAST_ID}); the one at "
                f"{self.settings.url} is {info.server_version!r} with protocol version {info.protocol_version}: upgrade it"
            )

    def partitions(self, client: Client) -> list[TopicPartition]:
        """Return the partitions that the topics have now; raises TopicNotFound with its remedy."""
        try:
            return super().partitions(client)
        except TopicNotFound as why:
            why.text = f"there is no topic {why.topic!r}: create it, or correct the option {self.subject}"
            raise

    def ends(self, client: Client, keys: Iterable[TopicPartition], where: Earliest | Latest) -> Positions:
        """Look up where the partitions begin or end now, as ids in their one form."""
        return {key: normal(place) for key, place in super().ends(client, keys, where).items()}

    def at_times(self, client: Client, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, Position | None]:
        """Look up the first message at or after a publish time (milliseconds since 1970); None where no message is that late."""
        return {key: None if place is None else normal(place) for key, place in super().at_times(client, times).items()}

    def cut(self, client: Client, spans: list[Span]) -> list[Span]:
        """Split what is still there of the spans: by ledgers and entries (with admin.url), else by publish time."""
        found = self.still_there(client, spans)
        least = self.settings.min_partitions
        if least is None or not found or len(found) >= least:
            return found
        return pulsar_count.split(self, cast(PulsarClient, client), found, least)

    def still_there(self, client: Client, spans: list[Span]) -> list[Span]:
        """Return the spans; one whose beginning is gone starts at what is left of it, and that is reported as lost."""
        first = self.ends(client, [span.key for span in spans], EARLIEST)
        found: list[Span] = []
        for span in spans:
            there = first.get(span.key)
            start = cast(MessageId, span.start)
            if isinstance(there, MessageId) and start.ledger >= 0 and (there.ledger, there.entry) > (start.ledger, start.entry):
                self.lost(
                    f"{span.topic}-{span.partition} was to be read from {start} and now begins at {there} (the option subscription keeps "
                    "what is not read yet)"
                )
                if there < span.stop:
                    found.append(Span(*span.key, there, span.stop))
            else:
                found.append(span)
        return found

    def limit(self, client: Client, start: Positions, latest: Positions) -> Positions:
        """Return the ends of a micro-batch under maxOffsetsPerTrigger and maxBytesPerTrigger.

        Rows are counted by reading ahead, in whole entries.
        """
        settings = self.settings
        return pulsar_count.limited(cast(PulsarClient, client), start, latest, settings.max_rows, settings.max_bytes, settings.poll_timeout)

    def waiting(self, client: Client, start: Positions, latest: Positions) -> int:
        """Count the rows that wait, up to minOffsetsPerTrigger."""
        settings = self.settings
        return self._counter.count(cast(PulsarClient, client), start, latest, settings.min_rows or 0, settings.poll_timeout)

    def began(self, position: Position) -> bool:
        """Return whether a partition that begins at this id begins with the first entry of a ledger."""
        return isinstance(position, MessageId) and position.entry <= 0

    def hold(self, client: Client, ends: Positions) -> None:
        """Move the subscription to these positions, so that brokers keep what lies behind them."""
        if self.settings.group is not None:
            if self._hold is None:
                self._hold = cast(PulsarClient, client).hold(self.settings.group, consumer_name="spark")
            self._hold.move(ends, timeout=client.timeout)

    def commit(self, client: Client, ends: Positions) -> Collection[TopicPartition]:
        """Move the subscription to the processed positions; everything before them may be deleted."""
        self.hold(client, ends)
        return ()

    # --- in checkpoints ---

    def place_to_json(self, position: Position) -> Any:
        """Return the id's text."""
        return position.text()

    def place_from_json(self, topic: str, partition: int, value: Any) -> Position:
        """Return the position of an id's text, in its one form; raises OptionError for anything else."""
        if not isinstance(value, str) or ":" not in value:
            raise OptionError(f"{value!r} is no message id")
        return normal(parse_place(topic, partition, value))

    def example(self) -> str:
        """Return an example of offsets, for error texts."""
        return '{"topic": {"0": "12:3:-1"}}'

    # --- in workers ---

    def read(self, client: Client, span: Span, columns: tuple[str, ...]) -> Iterator[Batch]:
        """Yield the batches of the span.

        Raises:
            DataLoss: the beginning of the span is gone (unless failOnDataLoss is false).
            TimedOut: no record came within `ReadSettings.poll_timeout` seconds.
        """
        yield from self.drained(client, span, columns=self.form.core(columns), create_topic=False, reset="earliest")
        self.still_there(client, [span])  # if the beginning is still there, nothing was deleted meanwhile: the oldest ledgers go first


class PulsarWire(LogSource):
    """Reads Pulsar topics as Arrow, one task per partition or part of one, and writes them."""

    log = PulsarLog

    def read_settings(self, options: Options) -> ReadSettings:
        """Return what reading needs; see `pulsar_options.read_options`."""
        return read_options(options)

    def sink(self, options: Options, schema: StructType) -> Sink:
        """Return the sink: `pulsar_exactly.ExactlyOnce` with exactlyOnce=true, else `PulsarSink`."""
        from .exactly import once_options
        from .pulsar_sink import PulsarSink, write_options

        options.accept(READERS)
        once = once_options(options)
        settings = write_options(options, once=once is not None)
        if once is None:
            return PulsarSink(settings, schema)
        from .pulsar_exactly import ExactlyOnce

        return ExactlyOnce(settings, once, schema)
