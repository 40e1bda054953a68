"""Writes rows to a log with topics: a table's columns as Kafka's JVM connector has them, sent by a producer of many topics.

    column      type                                     without it
    value       binary or string                         refused
    key         binary or string                         no key
    topic       string                                   the option topic, which precedes the column
    headers     array<struct<key: string, value: binary>>  no headers
    partition   int                                      as the producer chooses: by key, else the one whose batch is being filled
    timestamp   timestamp, with includeTimestamp=true    the time of sending; the column is ignored, as in the connector

Other columns are ignored. What is acknowledged is stored, but a task or micro-batch that Spark runs again writes again: at least once,
unless a protocol's own `begin` does better. This module must not make a record a Python object.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import OptionError, ValueUnsupported, WireprotoError
from ..url import parse
from .write import Session, Sink, Task, Written, wanted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

    from ..flow.topics import TopicsProducer
    from ..roles import Client

KINDS = {
    "value": ("string", "binary"),
    "key": ("string", "binary"),
    "topic": ("string",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
_PAIR = pa.struct([pa.field("name", pa.string()), pa.field("value", pa.binary())])


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """What writing needs; can be pickled.

    Attributes:
        url: of the cluster. client: options of the client and its producers.
        topic: for every row; None where the rows have a column topic. timestamps: whether the column timestamp is sent.
        timeout: seconds that a task waits at its end for acknowledgements.
    """

    url: str
    client: Mapping[str, Any]
    topic: str | None
    timestamps: bool
    timeout: float


class TopicSink(Sink):
    """Writes the rows of a table with these columns to topics.

    Raises (when it is made):
        OptionError: a column is missing or of another type, or the URL names a topic.
    """

    def __init__(self, settings: WriteSettings, schema: StructType) -> None:
        super().__init__(settings.url, settings.client, schema)
        self.settings = settings
        if parse(settings.url).path:
            raise OptionError(f"{settings.url} names a topic: name it by the option topic")
        self.columns = [name for name in KINDS if wanted(schema, name, KINDS) is not None]
        if "value" not in self.columns:
            raise OptionError("Required attribute 'value' not found: name the column with the records' bytes value")
        if settings.topic is not None:
            self.columns = [name for name in self.columns if name != "topic"]
        elif "topic" not in self.columns:
            raise OptionError("topic option required when no 'topic' attribute is present. Use the topic option for setting a topic.")
        if not settings.timestamps and "timestamp" in self.columns:
            self.columns.remove("timestamp")

    def begin(self, client: Client, task: Task) -> Session | None:
        """Begin a task with a producer of its own."""
        return TopicSession(self, client)


class TopicSession(Session):
    """One task that sends rows to topics."""

    def __init__(self, sink: TopicSink, client: Client) -> None:
        self.sink = sink
        self.client = client
        self.out = self.opened()

    def opened(self) -> TopicsProducer[Any]:
        """Return the producer that the rows go to."""
        return cast("TopicsProducer[Any]", self.client.producer())

    def send(self, batch: pa.RecordBatch) -> None:
        """Send the rows, those of each partition together."""
        settings = self.sink.settings
        for partition, rows in by_partition(self.columns(batch)):
            self.out.send_batch(rows, topic=settings.topic, partition=partition, timeout=settings.timeout)

    def columns(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns that a producer takes, under its names; raises ValueUnsupported for rows without a topic."""
        arrays = {name: batch.column(batch.schema.get_field_index(name)) for name in self.sink.columns}
        if "topic" in arrays and arrays["topic"].null_count:
            raise ValueUnsupported("null topic present in the data. Use the topic option for setting a default topic.")
        if "headers" in arrays:
            arrays["headers"] = pairs(arrays["headers"])
        return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))

    def finish(self) -> Written:
        """Close the producer, which waits until all rows are acknowledged."""
        self.out.close(self.sink.settings.timeout)
        return Written(self.rows)

    def abort(self) -> None:
        """Close the producer without waiting."""
        with suppress(WireprotoError):  # the task fails with its own error
            self.out.close(0.0)


def pairs(array: pa.Array) -> pa.Array:
    """Convert Spark's headers to the producer's, ``list<struct<name, value>>``.

    Raises:
        ValueUnsupported: a header is null, or its key is.
    """
    each = array.flatten()
    if each.null_count or each.field(0).null_count:
        raise ValueUnsupported("the column headers has a header that is null, or one whose key is: leave it out")
    return array.cast(pa.list_(_PAIR)) if array.type.value_type.field(0).name == "name" else renamed(array)


def renamed(array: pa.Array) -> pa.Array:
    """Rename the fields of the pairs in a list; null lists stay null."""
    inner = array.values
    name, value = (inner.field(number).cast(field.type) for number, field in enumerate(_PAIR))  # Spark may use the large types
    struct = pa.StructArray.from_arrays([name, value], fields=list(_PAIR), mask=inner.is_null() if inner.null_count else None)
    return pa.Array.from_buffers(pa.list_(_PAIR), len(array), array.buffers()[:2], offset=array.offset, children=[struct])


def by_partition(batch: pa.RecordBatch) -> list[tuple[int | None, pa.RecordBatch]]:
    """Split rows by their column partition, each part in the order of its rows; the number is None for rows without one."""
    index = batch.schema.get_field_index("partition")
    if index < 0:
        return [(None, batch)]
    column = batch.column(index)
    rest = batch.drop_columns(["partition"])
    if column.null_count == len(column):
        return [(None, rest)]
    numbers = pc.unique(column).to_pylist()
    if len(numbers) == 1:
        return [(numbers[0], rest)]
    return [(one, rest.filter(pc.is_null(column) if one is None else pc.equal(column, one))) for one in numbers]
