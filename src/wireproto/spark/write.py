"""Implements the writers that all formats share: Arrow batches from Spark to a broker, in batch and stream, and the driver's commit.

These are Spark's two writer classes over a `Sink`, which has one subclass for each protocol. Its steps allow for one transaction per task,
ended by the driver:

    driver    Sink.check(client, stream=…)        topic, columns and broker fit, before any task starts
    task      Sink.begin(client, task) → Session  opens producers or a transaction (None: this task's rows are committed already)
              Session.send(batch) …               takes Arrow, does not wait for the broker
              Session.finish() → Written          all is acknowledged; returns what the driver needs to end it (producer id, epoch …)
              Session.abort()                     the task failed: leaves nothing open
    driver    Sink.commit(messages, batch), Sink.abort(messages, batch)

`Task` names the query and micro-batch, which are the same when Spark replays a micro-batch, so that a sink may recognize it. PySpark 4.1
is needed for Arrow in streams; on 4.0 rows are converted to Arrow here. This module must not know a protocol.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from .. import connect
from ..errors import Disconnected, OptionError, TransportError, WireprotoError
from ..net import retry
from ..net.retry import Verdict, verdict
from . import worker
from .columns import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ..roles import Client

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter

    ARROW_STREAMS = True
except ImportError:  # PySpark 4.0
    DataSourceStreamArrowWriter = DataSourceStreamWriter  # type: ignore[misc,assignment]
    ARROW_STREAMS = False

ROWS = 10_000
AWAY_TIMEOUT = 30.0  # seconds that a stream's check waits for brokers that are away: a client's default timeout


@dataclass(frozen=True, slots=True)
class Task:
    """The running task: query and batch (None outside a stream) are the same when a micro-batch is replayed.

    Attributes:
        partition: number of Spark's partition. attempt: number of this attempt at it.
        query: Spark's id of the query. batch: number of the micro-batch.
        run: id of the query's run, new at each start; None outside a stream.
        serial: Spark's task attempt id, which counts the attempts of all tasks of an application.
    """

    partition: int
    attempt: int
    query: str | None = None
    batch: int | None = None
    run: str | None = None
    serial: int = 0


@dataclass
class Written(WriterCommitMessage):
    """The commit message that a task sends to the driver.

    Attributes:
        rows: number of rows that it wrote. facts: what the sink needs to end its part.
    """

    rows: int
    facts: Mapping[str, Any] = field(default_factory=dict)


class Session(ABC):
    """The writing of one task.

    Attributes:
        rows: number of rows sent so far; `Sink.write` counts.
    """

    rows = 0

    @abstractmethod
    def send(self, batch: pa.RecordBatch) -> None:
        """Pass rows to the producer; blocks only while the send budget is full.

        Rows that are refused raise before anything of the batch is sent, where that can be seen.
        """

    @abstractmethod
    def finish(self) -> Written:
        """Wait until the broker has acknowledged all rows; returns the commit message."""

    @abstractmethod
    def abort(self) -> None:
        """Close what is open, without waiting, since the task failed; must not raise."""


class Sink(ABC):
    """One protocol's way to write; holds options only, so it can be pickled."""

    def __init__(self, url: str, client: Mapping[str, Any], schema: StructType) -> None:
        self.url, self.options = url, dict(client)
        refuse_repeated(schema)
        self.arrow = arrow_schema(schema)

    def open(self) -> Client:
        """Open a client of the driver's own; the caller closes it."""
        return connect(self.url, **self.options)

    def check(self, client: Client, *, stream: bool) -> None:  # noqa: B027
        """Refuse what cannot work: called on the driver, before the tasks of a write or of a micro-batch start.

        Args:
            client: of the driver. stream: whether this is for a micro-batch.
        """

    @abstractmethod
    def begin(self, client: Client, task: Task) -> Session | None:
        """Begin a task in a worker; None means that the rows of this task of this micro-batch are committed already."""

    def commit(self, messages: list[Written | None], batch: int | None) -> None:  # noqa: B027
        """Commit, on the driver, when every task has finished.

        Args:
            messages: of the tasks. batch: number of the micro-batch; None for a batch write.
        """

    def abort(self, messages: list[Written | None], batch: int | None) -> None:  # noqa: B027
        """Undo what tasks wrote, on the driver, when a task failed for good.

        Args:
            messages: of the tasks, None for those that failed. batch: number of the micro-batch; None for a batch write.
        """

    def write(self, batches: Iterable[pa.RecordBatch]) -> Written:
        """Write one task's rows; returns the commit message.

        Raises:
            Disconnected: Spark closed its side of the connection, so that rows may be missing.
        """
        client = worker.client(self.url, self.options)
        try:
            session = self.begin(client, this_task())
            if session is None:
                for _ in batches:
                    pass  # Spark requires that a writer reads its rows
                return Written(0, {"already": True})
            try:
                for batch in batches:
                    if batch.num_rows:
                        session.send(batch)
                        session.rows += batch.num_rows
                if worker.input_was_cut():
                    raise Disconnected("Spark ended while it handed rows to this task: what is not sent yet stays unsent")
                return session.finish()
            except BaseException:
                session.abort()
                raise
        except Exception:
            worker.forget(self.url, self.options)
            raise


def this_task() -> Task:
    """Return the running task from Spark's TaskContext."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return Task(0, 0)
    batch = context.getLocalProperty("streaming.sql.batchId")
    return Task(
        context.partitionId(),
        context.attemptNumber(),
        context.getLocalProperty("sql.streaming.queryId"),
        int(batch) if batch is not None else None,
        context.getLocalProperty("spark.jobGroup.id") if batch is not None else None,
        context.taskAttemptId(),
    )


def checked(sink: Sink, *, stream: bool) -> Sink:
    """Return the sink, after its check on the cluster.

    A stream's sink is made for each micro-batch in a process of its own, whose client was never connected: without the retry, brokers that
    are away for that moment would end a query whose tasks would have waited for them.
    """

    def check() -> None:
        with sink.open() as client:
            sink.check(client, stream=stream)

    retry.run(check, time.monotonic() + (AWAY_TIMEOUT if stream else 0.0), judge=away)
    return sink


def away(error: WireprotoError) -> Verdict:
    """Judge whether to try a check again: only after an error of the connection, not after an answer of the cluster."""
    return verdict(error) if isinstance(error, TransportError) else Verdict.NEVER


class LogWriter(DataSourceArrowWriter):
    """The writer of `df.write`. It is made on the driver and pickled to the workers."""

    def __init__(self, sink: Sink) -> None:
        self.sink = checked(sink, stream=False)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write one partition's rows in a worker; returns its commit message."""
        return self.sink.write(iterator)

    def commit(self, messages: list[Any]) -> None:
        """Commit on the driver, with the commit messages of all partitions."""
        self.sink.commit(messages, None)

    def abort(self, messages: list[Any]) -> None:
        """Abort on the driver; the messages of failed partitions are None."""
        self.sink.abort(messages, None)


class LogStreamWriter(DataSourceStreamArrowWriter):
    """The writer of `df.writeStream`.

    Spark makes one to plan each micro-batch and another one to end it; the source checks the first one only.
    """

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def write(self, iterator: Iterator[Any]) -> Written:
        """Write one partition's rows of a micro-batch in a worker; returns its commit message."""
        return self.sink.write(iterator if ARROW_STREAMS else rows_to_arrow(iterator, self.sink.arrow))

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """Commit micro-batch `batchId` on the driver, with the commit messages of all partitions."""
        self.sink.commit(messages, batchId)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """Abort micro-batch `batchId` on the driver; the messages of failed partitions are None."""
        self.sink.abort(messages, batchId)


def rows_to_arrow(rows: Iterable[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Convert Spark rows to Arrow batches, for PySpark 4.0, whose timestamps are local times without a zone."""
    held: list[dict[str, Any]] = []
    moments = [field.name for field in schema if pa.types.is_timestamp(field.type) and field.type.tz]
    for row in rows:
        values = row.asDict(recursive=True)
        values.update((name, values[name].astimezone()) for name in moments if values[name] is not None)
        held.append(values)
        if len(held) == ROWS:
            yield pa.RecordBatch.from_pylist(held, schema=schema)
            held = []
    if held:
        yield pa.RecordBatch.from_pylist(held, schema=schema)


def refuse_repeated(schema: StructType) -> None:
    """Raise OptionError for columns of the same name, or fields of the same name in one struct.

    It also refuses those that would not be written: Spark passes no such rows to Python, and its own error, in the tasks, names no remedy.
    """
    found = sorted(set(repeated(schema)))
    if found:
        raise OptionError(
            f"the table has {', '.join(found)} more than once, which Spark cannot hand to a Python sink: "
            "select the columns to write, or rename them, before writing"
        )


def repeated(kind: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of names that occur more than once in one struct of a type."""
    columns = getattr(kind, "fields", ())
    names = [column.name for column in columns]
    for column in columns:
        if names.count(column.name) > 1:
            yield path + column.name
        yield from repeated(column.dataType, f"{path}{column.name}.")
    for part in ("elementType", "keyType", "valueType"):
        if hasattr(kind, part):
            yield from repeated(getattr(kind, part), path)


def wanted(schema: StructType, name: str, kinds: Mapping[str, tuple[str, ...]]) -> str | None:
    """Return the type of a column that the sink knows, None where the schema lacks it.

    Args:
        kinds: by column, the types that it may have, as Spark writes them.
    Raises:
        OptionError: it has another type.
    """
    for column in schema.fields:
        if column.name == name:
            kind = str(column.dataType.simpleString())
            if kind not in kinds[name]:
                raise OptionError(f"the column {name} is {kind}; it must be {' or '.join(kinds[name])}: cast it before writing")
            return kind
    return None
