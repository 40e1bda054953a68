"""Writes rows to Pulsar such that a micro-batch that Spark runs again is stored once.

How. Each task writes each partition of a topic as the producer ``<query>-<task>``; row i of a micro-batch has the sequence id
``batch << 40 | i`` there. A broker's ids have 63 bits: from micro-batch 2^23 on the producer's name counts how often that number was passed
(``<query>-<task>-g1`` …), and the ids begin at 0 again. Before that, names and ids are those of all versions, so that the last micro-batch
of an old checkpoint is recognized. A broker with de-duplication drops what it has under that name already. It looks at a stored batch's
first id only, so batches must be cut at the same rows whenever the same rows come again: by row number, every `batchRows` rows of a
partition, never by time, by free memory or by how Spark cut its Arrow batches; a batch that is too large for the broker is cut at rows that
depend on the rows alone.

What must stay the same until a micro-batch is committed: its rows, their order, the number of tasks (a source's minPartitions, the plan),
the target's partitions and batchRows. The broker forgets a producer some hours after its last connection
(brokerDeduplicationProducerInactivityTimeoutMinutes).

A batch write takes a new name each time, so its tasks may be run again, and running the whole write again writes again. This module must
not make a record a Python object.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from .._codec import Columns
from ..errors import OptionError, ValueUnsupported, WireprotoError
from ..flow.topics import TopicsProducer
from ..net import retry
from ..net.retry import Policy, Verdict
from ..pulsar.client import PulsarClient
from ..pulsar.codes import ProducerBusy, TopicNotFound
from . import worker
from .log import logger
from .options import Options
from .pulsar_options import service
from .sink import TopicSession, TopicSink, WriteSettings, by_partition
from .write import Session, Task, Written

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ..pulsar.producer import PulsarProducer
    from ..roles import Client

ROWS = 1000
LARGEST = 4 << 20  # bytes of a stored batch; brokers take 5 MB by default
SHIFT = 40  # bits of a row's number within a task's part of a micro-batch
GENERATION = 1 << 63 - SHIFT  # micro-batches whose ids go into the 63 bits that brokers compare
BUSY = Policy(first=0.2, ceiling=5.0)  # seconds between attempts to open a producer whose name is in use
ENABLED = "Enabled"
REMEDY = (
    "have the broker do it (pulsar-admin namespaces set-deduplication --enable, or brokerDeduplicationEnabled=true), "
    "or accept repeated records with atLeastOnce=true"
)


@dataclass(frozen=True, slots=True)
class PulsarWriteSettings(WriteSettings):
    """What writing to Pulsar needs.

    Attributes:
        at_least_once: whether a micro-batch that is run again may be stored again. rows: number of rows of a stored batch.
        prefix: of the producers' names.
    """

    at_least_once: bool = False
    rows: int = ROWS
    prefix: str = "spark"


ALONE = ("producer_name", "first_sequence", "access_mode", "topic_epoch")
"""Options of producers that every sink sets itself."""
NUMBERED = ("batch_records", "batch_size", "linger", "batching")
"""Options of producers that the sink with sequence ids also sets itself, since the ids depend on them."""
HELPS = ("atLeastOnce", "batchRows", "producerPrefix")
"""Options of the sink with sequence ids."""


def write_options(options: Options, *, once: bool = False) -> PulsarWriteSettings:
    """Take the writer's options.

    Args:
        once: whether they are for the sink with transactions.
    Raises:
        OptionError: an option has a value that it cannot have, or the sink sets it itself.
    """
    url, client = service(options)
    for name in ALONE if once else (*ALONE, *NUMBERED):
        if name in client:
            why = (
                "" if once or name in ("access_mode", "topic_epoch") else ": repeated records are known by names and batches; see batchRows"
            )
            raise OptionError(f"option pulsar.{name} is the sink's own{why}")
    given = [name for name in HELPS if once and options.text(name) is not None]
    if given:
        raise OptionError(f"option {given[0]} goes without exactlyOnce=true")
    return PulsarWriteSettings(
        url,
        client,
        options.text("topic"),
        options.flag("includeTimestamp"),
        options.seconds("writeTimeout", float(client.get("delivery_timeout", 120.0)) + 30.0),
        options.flag("atLeastOnce"),
        options.whole("batchRows", ROWS) or ROWS,
        options.text("producerPrefix", "spark") or "spark",
    )


class PulsarSink(TopicSink):
    """Writes rows to Pulsar, with sequence ids.

    Attributes:
        job: id of a batch write, or of one run of a micro-batch, since Spark makes a writer for each.
    """

    settings: PulsarWriteSettings

    def __init__(self, settings: PulsarWriteSettings, schema: StructType) -> None:
        super().__init__(settings, schema)
        self.job = uuid.uuid4().hex

    def check(self, client: Client, *, stream: bool) -> None:
        """Refuse a topic that does not exist, or, in a stream, that is not de-duplicated; topics named by rows are checked in the tasks.

        This is checked again for each micro-batch.

        Raises:
            TopicNotFound: the topic does not exist. OptionError: it is not de-duplicated, or the admin interface, which shows that, is not
                known.
        """
        if self.settings.topic is not None:
            must_exist(client, self.settings.topic)
            if stream and not self.settings.at_least_once:
                must_deduplicate(cast(PulsarClient, client), self.settings.topic)

    def begin(self, client: Client, task: Task) -> Session | None:
        """Begin a task."""
        return PulsarSession(self, client, task)


class PulsarSession(TopicSession):
    """One task: collects rows by partition until there are as many as a stored batch has.

    Attributes:
        name: of its producers. first: the sequence id of its first row. exact: whether rows must not be stored twice.
        held: rows that wait for more, by topic and partition.
    """

    sink: PulsarSink
    out: TopicsProducer[PulsarProducer]

    def __init__(self, sink: PulsarSink, client: Client, task: Task) -> None:
        super().__init__(sink, client)
        generation, number = divmod(task.batch or 0, GENERATION)
        self.name = f"{sink.settings.prefix}-{task.query or sink.job}-{task.partition}" + (f"-g{generation}" if generation else "")
        self.first = number << SHIFT
        self.exact = task.query is not None and not sink.settings.at_least_once
        self.held: dict[tuple[str, int], list[Columns]] = {}

    def opened(self) -> TopicsProducer[PulsarProducer]:
        """Return a producer that makes one for each topic."""
        return TopicsProducer(self._made)

    def _made(self, topic: str, timeout: float) -> PulsarProducer:
        """Make the producer of a topic; raises TopicNotFound, OptionError."""
        must_exist(self.client, topic)
        if self.exact and self.sink.settings.topic is None:
            self._checked(topic)
        rows = self.sink.settings.rows
        options: dict[str, Any] = {"batch_records": rows, "batch_size": LARGEST, "linger": 3600.0}
        if not self.sink.settings.at_least_once:
            options |= {"producer_name": self.name, "first_sequence": self.first}
        return self._alone(topic, options)

    def _checked(self, topic: str) -> None:
        """Check that a topic named by rows is de-duplicated, once for each worker and micro-batch.

        The result is not kept for longer: de-duplication may be switched off, or the topic made again or given more partitions between two
        micro-batches, or two runs of one.
        """
        kept = worker.beside(self.client)
        if kept.get("job") != self.sink.job:
            kept |= {"job": self.sink.job, "deduplicated": set()}
        if topic not in kept["deduplicated"]:
            must_deduplicate(cast(PulsarClient, self.client), topic)
            kept["deduplicated"].add(topic)

    def _alone(self, topic: str, options: dict[str, Any]) -> PulsarProducer:
        """Make the producer of this task, once an earlier one of that name is gone.

        A broker notices only after a minute of silence that a worker is lost or frozen, while Spark runs its task again at once.
        """

        def judge(why: WireprotoError) -> Verdict:
            if not isinstance(why, ProducerBusy):
                return Verdict.NEVER  # the client itself has retried transient errors
            logger.warning("pulsar-wire: the producer %s of an earlier attempt is still connected", self.name)
            return Verdict.LATER

        deadline = time.monotonic() + self.sink.settings.timeout
        return cast("PulsarProducer", retry.run(lambda: self.client.producer(topic, **options), deadline, BUSY, judge=judge))

    def send(self, batch: pa.RecordBatch) -> None:
        """Send the rows, those of each topic and partition together.

        Raises:
            ValueUnsupported: the column partition is null in some rows only, and rows must not be stored twice.
        """
        for topic, rows in by_topic(self.columns(batch), self.sink.settings.topic):
            producer = self.out.to(topic)
            parts = by_partition(rows)
            if self.exact and len(parts) > 1 and any(partition is None for partition, _ in parts):
                raise ValueUnsupported("the column partition is null in some rows: give it to all or to none, or set atLeastOnce=true")
            for partition, part in parts:
                for number, share in producer.shares(part, partition):
                    self.take(producer, number, share)

    def take(self, producer: PulsarProducer, number: int, share: Columns) -> None:
        """Keep rows of a partition, and send those that make whole batches."""
        held = self.held.setdefault((producer.topic, number), [])
        held.append(share)
        count, rows = sum(map(len, held)), self.sink.settings.rows
        if count < rows:
            return
        table = held[0] if len(held) == 1 else Columns.concat(held)
        whole = count // rows * rows
        for start in range(0, whole, rows):
            producer.send_batch(table[start : start + rows], partition=number, timeout=self.sink.settings.timeout)
            producer.seal()  # so that rows left by a cut for size are not joined with later ones
        held[:] = [table[whole:]] if whole < count else []

    def finish(self) -> Written:
        """Send the rows that are left, and wait until everything is acknowledged."""
        for (topic, number), held in self.held.items():
            if held:
                table = held[0] if len(held) == 1 else Columns.concat(held)
                self.out.to(topic).send_batch(table, partition=number, timeout=self.sink.settings.timeout)
        return super().finish()


def by_topic(batch: pa.RecordBatch, topic: str | None) -> list[tuple[str, pa.RecordBatch]]:
    """Split rows by topic, each part in the order of its rows.

    Args:
        topic: of all rows; None: their column topic names it.
    """
    if topic is not None:
        return [(topic, batch)]
    column, rest = batch.column("topic"), batch.drop_columns(["topic"])
    names = pc.unique(column).to_pylist()
    return [(name, rest if len(names) == 1 else rest.filter(pc.equal(column, name))) for name in names]


def must_exist(client: Client, topic: str) -> None:
    """Raise TopicNotFound, with its remedy, for a topic that does not exist."""
    try:
        client.admin().describe_topic(topic)
    except TopicNotFound as why:
        why.text = f"there is no topic {topic!r}: create it, or correct the option topic"
        raise


def must_deduplicate(client: PulsarClient, topic: str) -> None:
    """Raise OptionError where a partition's broker would store a repeated micro-batch again, or where that cannot be seen."""
    admin = client.admin()
    if admin.url is None:
        raise OptionError(
            f"only the admin interface reports whether {topic!r} is de-duplicated: give its URL as option admin.url "
            "(http://host:8080), or accept repeated records with atLeastOnce=true"
        )
    for part in admin.describe_topic(topic, timeout=client.timeout).partitions:  # this call makes brokers load the topic
        name, status = part.details["name"], admin.deduplication(part.details["name"])
        if status != ENABLED:
            raise OptionError(
                f"{name} is not de-duplicated (its status is {status}), so a micro-batch that Spark runs again would be "
                f"stored twice: {REMEDY}"
            )
