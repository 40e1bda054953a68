"""The writers that all formats share: Arrow batches from Spark to a broker, in batch and stream, and what the driver does at the end.

What it is: Spark's two writer classes over a `Sink`, one subclass a protocol. A sink's work is laid out so that a transaction per task,
ended by the driver, fits:

    driver    Sink.check(client, stream=…)        topic, columns and broker fit, before any task starts
    task      Sink.begin(client, task) → Session  producers are opened here; later a transaction (None: this task's part is in already)
              Session.send(batch) …               Arrow in, nothing waits for the broker
              Session.finish() → Written          all acknowledged; what the driver must know to end it (producer id, epoch …)
              Session.abort()                     the task failed: leave nothing open
    driver    Sink.commit(client, messages, batch), Sink.abort(client, messages, batch)

`Task` tells the query and micro-batch, which are the same when Spark replays a micro-batch, so that a sink may know it again.
May assume: PySpark 4.1 for Arrow in streams; on 4.0 rows are made Arrow here. Must not: know a protocol.
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
PATIENCE = 30.0  # seconds that a stream's check waits for brokers which are away, as long as a client's calls do


@dataclass(frozen=True, slots=True)
class Task:
    """Which task of which micro-batch writes: query and batch (None outside a stream) are the same when a micro-batch is replayed.

    Attributes:
        run: of the query, since it was started last; None outside a stream. serial: counts the attempts of all tasks of a Spark.
    """

    partition: int
    attempt: int
    query: str | None = None
    batch: int | None = None
    run: str | None = None
    serial: int = 0


@dataclass
class Written(WriterCommitMessage):
    """What a task tells the driver.

    Attributes:
        rows: how many it wrote. facts: what the sink needs to end its part.
    """

    rows: int
    facts: Mapping[str, Any] = field(default_factory=dict)


class Session(ABC):
    """One task's writing."""

    rows = 0

    @abstractmethod
    def send(self, batch: pa.RecordBatch) -> None:
        """Hand records to the producer; blocks only for room. Refused rows raise before anything of the batch is sent, where that shows."""

    @abstractmethod
    def finish(self) -> Written:
        """Wait until the broker has all of them."""

    @abstractmethod
    def abort(self) -> None:
        """The task failed: close what is open, without waiting; must not raise."""


class Sink(ABC):
    """One protocol's way to write; holds options alone, so it pickles."""

    def __init__(self, url: str, client: Mapping[str, Any], schema: StructType) -> None:
        self.url, self.options = url, dict(client)
        refuse_repeated(schema)
        self.arrow = arrow_schema(schema)

    def open(self) -> Client:
        """A client of the driver's own."""
        return connect(self.url, **self.options)

    def check(self, client: Client, *, stream: bool) -> None:  # noqa: B027
        """On the driver, before a task of a write or of a stream's micro-batch starts: refuse what cannot work."""

    @abstractmethod
    def begin(self, client: Client, task: Task) -> Session | None:
        """In a worker. None: this task of this micro-batch was committed already."""

    def commit(self, messages: list[Written | None], batch: int | None) -> None:  # noqa: B027
        """On the driver, when every task has finished."""

    def abort(self, messages: list[Written | None], batch: int | None) -> None:  # noqa: B027
        """On the driver, when a task failed for good; the messages of those that failed are None."""

    def write(self, batches: Iterable[pa.RecordBatch]) -> Written:
        """One task."""
        client = worker.client(self.url, self.options)
        try:
            session = self.begin(client, this_task())
            if session is None:
                for _ in batches:
                    pass  # Spark wants its rows taken
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
    """What Spark tells of the running task."""
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
    """The sink, after its check on the cluster.

    A stream's is made for each micro-batch in a process of its own, whose client was never connected: brokers that are away for that moment
    would end a query whose tasks had waited for them.
    """

    def check() -> None:
        with sink.open() as client:
            sink.check(client, stream=stream)

    retry.run(check, time.monotonic() + (PATIENCE if stream else 0.0), judge=away)
    return sink


def away(error: WireprotoError) -> Verdict:
    """Whether a check is worth another try: nothing that the cluster answered is."""
    return verdict(error) if isinstance(error, TransportError) else Verdict.NEVER


class LogWriter(DataSourceArrowWriter):
    """`df.write`. Made on the driver and pickled to the workers."""

    def __init__(self, sink: Sink) -> None:
        self.sink = checked(sink, stream=False)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self.sink.write(iterator)

    def commit(self, messages: list[Any]) -> None:
        self.sink.commit(messages, None)

    def abort(self, messages: list[Any]) -> None:
        self.sink.abort(messages, None)


class LogStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`. Spark makes one for each micro-batch and another one for its end; the source checks the first of them alone."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def write(self, iterator: Iterator[Any]) -> Written:
        return self.sink.write(iterator if ARROW_STREAMS else rows_to_arrow(iterator, self.sink.arrow))

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        self.sink.commit(messages, batchId)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        self.sink.abort(messages, batchId)


def rows_to_arrow(rows: Iterable[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Spark rows as Arrow batches, for PySpark 4.0. Its timestamps are local times without a zone."""
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
    """Raise OptionError for columns of one name, or fields of one struct, also where they are not written: Spark hands no such rows to
    Python, and says so in the tasks, in words that name no remedy."""
    found = sorted(set(repeated(schema)))
    if found:
        raise OptionError(
            f"the table has {', '.join(found)} more than once, which Spark cannot hand to a Python sink: "
            "select the columns to write, or rename them, before writing"
        )


def repeated(kind: Any, path: str = "") -> Iterator[str]:
    """Names that a type has more than once in one struct, with what they lie in."""
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
    """The type of a column that the sink knows, None where there is none.

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
