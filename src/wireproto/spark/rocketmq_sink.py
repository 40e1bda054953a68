"""Writes rows to RocketMQ: rows of a queue share a command (batch messages); what is acknowledged is stored, perhaps more than once.

RocketMQ has no sequence numbers by which a broker would recognize a record: a task or micro-batch that Spark runs again writes again. So
each record has a user property that is the same whenever the same rows come again, by which its readers can recognize it:

    wireproto_id    ``<query>-<micro-batch>-<task>-<row>``; of a batch write ``<job>-<task>-<row>``     (dedupKeys=false leaves it out)

This sink must not promise more than at least once.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import OptionError
from ..rocketmq.codes import TopicNotExist
from .options import Options, address
from .sink import TopicSession, TopicSink, WriteSettings
from .source import client_options
from .write import Session, Task

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ..roles import Client

ID = "wireproto_id"
LINGER = 0.01
_PAIR = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])


@dataclass(frozen=True, slots=True)
class RocketMQWriteSettings(WriteSettings):
    """What writing to RocketMQ needs.

    Attributes:
        ids: whether each record gets the property `ID`.
    """

    ids: bool = True


def write_options(options: Options) -> RocketMQWriteSettings:
    """Take the writer's options; raises OptionError."""
    url = address(options, "nameServer", "rocketmq", between=";")
    client = {"linger": LINGER, **client_options(options, "rocketmq.")}
    write_timeout = options.seconds("writeTimeout", float(client.get("delivery_timeout", 60.0)) + 30.0)
    return RocketMQWriteSettings(
        url, client, options.text("topic"), options.flag("includeTimestamp"), write_timeout, options.flag("dedupKeys", True)
    )


class RocketMQSink(TopicSink):
    """Writes rows to RocketMQ.

    Attributes:
        job: id of a batch write, for the property `ID`.
    """

    settings: RocketMQWriteSettings

    def __init__(self, settings: RocketMQWriteSettings, schema: StructType) -> None:
        super().__init__(settings, schema)
        self.job = uuid.uuid4().hex
        if settings.ids and "headers" not in self.columns:
            self.columns.append("headers")

    def check(self, client: Client, *, stream: bool) -> None:
        """Refuse a topic that does not exist; topics named by rows are checked in the tasks.

        Raises:
            TopicNotExist: with its remedy.
        """
        if self.settings.topic is not None:
            try:
                client.admin().describe_topic(self.settings.topic)
            except TopicNotExist as why:
                why.text = f"there is no topic {self.settings.topic!r}: create it, or correct the option topic"
                raise

    def begin(self, client: Client, task: Task) -> Session | None:
        """Begin a task with a producer of its own."""
        return RocketMQSession(self, client, task)


class RocketMQSession(TopicSession):
    """One task, which numbers its rows."""

    sink: RocketMQSink

    def __init__(self, sink: RocketMQSink, client: Client, task: Task) -> None:
        super().__init__(sink, client)
        self.stem = f"{sink.job}-{task.partition}-" if task.query is None else f"{task.query}-{task.batch}-{task.partition}-"

    def send(self, batch: pa.RecordBatch) -> None:
        """Send the rows, with the property `ID` where the options ask for it."""
        if self.sink.settings.ids:
            batch = with_ids(batch, self.stem, self.rows)
        super().send(batch)


def with_ids(batch: pa.RecordBatch, stem: str, first: int) -> pa.RecordBatch:
    """Return the batch with one more header on each row: the stem, then the row's number, which counts from `first`.

    Raises:
        OptionError: the column headers has another type.
    """
    count = batch.num_rows
    numbers = pc.cast(pa.array(range(first, first + count), pa.int64()), pa.string())
    texts = pc.binary_join_element_wise(pa.scalar(stem), numbers, "").cast(pa.binary())
    own = pa.StructArray.from_arrays([pa.repeat(pa.scalar(ID), count), texts], fields=list(_PAIR))
    at = batch.schema.get_field_index("headers")
    if at < 0:
        return batch.append_column("headers", pa.ListArray.from_arrays(pa.array(range(count + 1), pa.int32()), own))
    held = batch.column(at)
    if held.type.value_type.num_fields != len(_PAIR):
        raise OptionError(f"the column headers is {held.type}; it must be array<struct<key: string, value: binary>>")
    lengths = pc.fill_null(pc.list_value_length(held), 0)
    inner = held.flatten()
    pairs = pa.StructArray.from_arrays([inner.field(0), inner.field(1)], fields=list(_PAIR))
    parents = pc.list_parent_indices(held).cast(pa.int64())
    order = pc.sort_indices(
        pa.table(
            {
                "row": pa.concat_arrays([parents, pa.array(range(count), pa.int64())]),
                "last": pa.concat_arrays([pa.array(range(len(pairs)), pa.int64()), pa.repeat(pa.scalar(1 << 62, pa.int64()), count)]),
            }
        ),
        sort_keys=[("row", "ascending"), ("last", "ascending")],
    )
    every = pa.concat_arrays([pairs, own]).take(order)
    sums = pc.cumulative_sum(pc.add(lengths.cast(pa.int32()), pa.scalar(1, pa.int32()))).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), sums])
    return batch.set_column(at, "headers", pa.ListArray.from_arrays(offsets, every))
