"""The batch source that the three logs share: plan ranges on the driver, read them as Arrow in the workers.

What it is: a DataSourceReader over the Admin and Reader roles. One partition of a topic is one Spark task; a range is fixed on the
driver, so a task that is run again reads the same records. Only the columns of the requested schema are handed over.
May assume: batches export Arrow columns named as the core names them. Must not: know a protocol; what differs is in `LogFormat`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from .. import connect
from ..errors import WireprotoError
from ..position import EARLIEST, LATEST, Position, TopicPartition, parse_position
from . import worker
from .options import SourceOptions, read_options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ..records import Batch
    from ..roles import Admin
    from .options import Bound

ROWS, BYTES = 20_000, 2 << 20  # a batch of about 2 MB crosses to the JVM fastest

Column = Callable[["Batch", pa.RecordBatch], pa.Array]


class Range(InputPartition):
    """One task: a partition of a topic from `start` up to, not including, `stop`, both as text."""

    def __init__(self, topic: str, partition: int, start: str, stop: str) -> None:
        super().__init__((topic, partition, start, stop))
        self.topic, self.partition, self.start, self.stop = topic, partition, start, stop


@dataclass(frozen=True)
class LogFormat:
    """What differs between the logs: Spark type text and a maker for each column, and options that the Reader needs for a column."""

    columns: Mapping[str, tuple[str, Column]]
    default: tuple[str, ...]
    needs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def ddl(self, extra: tuple[str, ...] = ()) -> str:
        """The schema as DDL, default columns first."""
        return ", ".join(f"`{name}` {self.columns[name][0]}" for name in (*self.default, *extra))


class LogReader(DataSourceReader):
    """Reads ranges of one or more topics; made on the driver, pickled to the workers."""

    def __init__(self, options: SourceOptions, schema: StructType, form: LogFormat) -> None:
        self.options = options
        self.names = tuple(schema.fieldNames())
        self.form = form
        self.arrow = arrow_schema(schema)

    def partitions(self) -> list[InputPartition]:
        """Ask the cluster where the ranges begin and end now; one range per partition that holds anything."""
        with connect(self.options.url, **self.options.client) as client:
            admin = client.admin()
            ranges: list[InputPartition] = []
            for topic in self.options.topics:
                start, stop = (resolve(admin, topic, bound) for bound in (self.options.start, self.options.stop))
                ranges += [
                    Range(topic, key[1], start[key].text(), stop[key].text())
                    for key in sorted(start.keys() & stop.keys())
                    if start[key] < stop[key]
                ]
            return ranges or [Range("", -1, "", "")]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the range as Arrow batches of the requested schema."""
        assert isinstance(partition, Range)
        if not partition.topic:
            return
        topic, key = partition.topic, (partition.topic, partition.partition)
        start, stop = (parse_position(text, *key) for text in (partition.start, partition.stop))
        client = worker.client(self.options.url, self.options.client)
        try:
            extra = {name: value for column in self.names for name, value in self.form.needs.get(column, {}).items()}
            with client.reader(topic, start={key: start}, stop={key: stop}, **extra) as reader:
                yield from gather(self.convert(batch) for batch in reader)
        except WireprotoError:
            worker.forget(self.options.url, self.options.client)
            raise

    def convert(self, batch: Batch) -> pa.RecordBatch:
        """The requested columns of one batch, in Spark's types."""
        plain = pa.record_batch(batch)
        arrays = [self.form.columns[name][1](batch, plain) for name in self.names]
        return pa.RecordBatch.from_arrays(
            [array.cast(field.type) for array, field in zip(arrays, self.arrow, strict=True)], schema=self.arrow
        )


class LogSource(DataSource):
    """A format over one log; a subclass says its protocol, the names of its options and its columns.

    Attributes:
        protocol: scheme of the client's URL; also what options of the client begin with.
        servers, topic: names of the options that hold addresses and topics.
        form: its columns.
    """

    protocol: ClassVar[str]
    servers: ClassVar[str]
    topic: ClassVar[str] = "topic"
    form: ClassVar[LogFormat]

    @classmethod
    def name(cls) -> str:
        return f"{cls.protocol}-wire"

    def settings(self) -> SourceOptions:
        """The options, checked."""
        return read_options(
            self.options,
            scheme=self.protocol,
            servers=self.servers,
            topic=self.topic,
            known=("includeHeaders",),
            prefix=f"{self.protocol}.",
        )

    def schema(self) -> str:
        return self.form.ddl(("headers",) if self.settings().flag("includeHeaders") else ())

    def reader(self, schema: StructType) -> LogReader:
        return LogReader(self.settings(), schema, self.form)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Spark's schema as the Arrow schema that its workers must yield; timestamps are UTC, whatever the session shows."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC") if "timezone" in signature(to_arrow_schema).parameters else to_arrow_schema(schema)


def resolve(admin: Admin, topic: str, bound: Bound) -> dict[TopicPartition, Position]:
    """Turn a bound into a position for each partition it concerns."""
    if not isinstance(bound, dict):
        return admin.positions(topic, bound)
    wanted = {key: where for key, where in bound.items() if key[0] == topic}
    found: dict[TopicPartition, Position] = {}
    for word in (EARLIEST, LATEST):
        if word in wanted.values():
            ends = admin.positions(topic, word)
            found.update({key: ends[key] for key, where in wanted.items() if where == word})
    found.update({key: where for key, where in wanted.items() if isinstance(where, Position)})
    return found


def gather(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches until about 2 MB or 20,000 rows, the size at which the hand-over to the JVM is cheapest."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= ROWS or size >= BYTES:
            yield held[0] if len(held) == 1 else pa.concat_batches(held)
            held, rows, size = [], 0, 0
    if held:
        yield held[0] if len(held) == 1 else pa.concat_batches(held)


def plain(name: str) -> Column:
    """The core's column of that name as it is."""

    def take(batch: Batch, columns: pa.RecordBatch) -> pa.Array:
        return columns.column(name)

    return take


def constant(value: Callable[[Batch], Any], kind: pa.DataType) -> Column:
    """One value for the whole batch."""

    def fill(batch: Batch, columns: pa.RecordBatch) -> pa.Array:
        return pa.repeat(pa.scalar(value(batch), kind), columns.num_rows)

    return fill


def headers(batch: Batch, columns: pa.RecordBatch) -> pa.Array:
    """Headers under the JVM connector's field names; null where a record has none."""
    lists = columns.column("headers")
    pairs = lists.flatten()
    renamed = pa.StructArray.from_arrays(pairs.flatten(), names=["key", "value"])
    lengths = lists.value_lengths()
    whole = pa.ListArray.from_arrays(offsets_of(lengths), renamed)
    return pc.if_else(pc.greater(lengths, 0), whole, pa.scalar(None, whole.type))


def offsets_of(lengths: pa.Array) -> pa.Array:
    """List offsets from list lengths."""
    sums = pc.cumulative_sum(pc.fill_null(lengths, 0)).cast(pa.int32())
    return pa.concat_arrays([pa.array([0], pa.int32()), sums])


COMMON: dict[str, tuple[str, Column]] = {
    "key": ("binary", plain("key")),
    "value": ("binary", plain("value")),
    "topic": ("string", constant(lambda batch: batch.topic, pa.string())),
    "partition": ("int", constant(lambda batch: batch.partition, pa.int32())),
    "timestamp": ("timestamp", plain("timestamp")),
    "timestampType": ("int", constant(lambda batch: 0, pa.int32())),
    "headers": ("array<struct<key: string, value: binary>>", headers),
}
