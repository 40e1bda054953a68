"""Writes rows to Kafka: the columns of `sink.py`, an idempotent producer with acks=all unless kafka.* says otherwise.

A worker keeps its producer for the tasks that follow, as the JVM connector does: metadata and producer id are requested once, and the
first batch of a task need not wait alone for an answer. A task ends when everything is acknowledged, so nothing of it is left in the
producer; the producer of a failed task is closed and not kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..kafka.codes import UnknownTopicOrPartition
from ..kafka.messages import InitProducerIdRequest, ProduceRequest
from . import worker
from .exactly import LONGEST, once_options
from .kafka_options import DECISIONS, OWN, bootstrap, client_config
from .kafka_versions import need
from .sink import TopicSession, TopicSink, WriteSettings
from .write import Written

if TYPE_CHECKING:
    from ..flow.topics import TopicsProducer
    from ..roles import Client
    from .options import Options
    from .write import Session, Task

_KEPT = 16  # number of topics whose producers a worker keeps open


@dataclass(frozen=True, slots=True)
class KafkaWriteSettings(WriteSettings):
    """What writing to Kafka needs.

    Attributes:
        once: whether each record is written exactly once; see `kafka_exactly`.
        prefix: of its transactional names; None for a batch write, which makes one.
        decisions: topic of the driver's decisions.
        again: whether tasks are written again whose decided transactions took too long.
    """

    once: bool = False
    prefix: str | None = None
    decisions: str = DECISIONS
    again: bool = False


def write_options(options: Options) -> KafkaWriteSettings:
    """Take the writer's options; raises OptionError."""
    url = bootstrap(options)
    client = client_config(options.prefixed(OWN))
    client.pop("isolation", None)
    topic = options.text("topic")
    write_timeout = options.seconds("writeTimeout", float(client.get("delivery_timeout", 120.0)) + 30.0)
    timestamps = options.flag("includeTimestamp")
    once = once_options(options)
    if once is None:
        return KafkaWriteSettings(url, client, topic, timestamps, write_timeout)
    client.setdefault("transaction_timeout", LONGEST)
    return KafkaWriteSettings(url, client, topic, timestamps, write_timeout, True, once.prefix, once.decisions or DECISIONS, once.again)


class KafkaSink(TopicSink):
    """Writes rows to Kafka, at least once."""

    def check(self, client: Client, *, stream: bool) -> None:
        """Refuse brokers that are too old, or a topic that does not exist; topics named by rows are checked in the tasks.

        Raises:
            OptionError: brokers are too old for a column or option. UnknownTopicOrPartition: the topic does not exist.
        """
        if "headers" in self.columns:
            need(client, "the column headers", "0.11", "drop it", ProduceRequest, 3)
        if self.options.get("idempotence", True) not in (False, "false") and self.options.get("acks", "all") == "all":
            need(client, "an idempotent producer", "0.11", "set kafka.enable.idempotence=false", InitProducerIdRequest)
        if self.options.get("compression") == "zstd":
            need(client, "kafka.compression.type zstd", "2.1", "use lz4, snappy or gzip", ProduceRequest, 7)
        if self.settings.topic is not None and self.options.get("auto_create") not in (True, "true"):
            try:
                client.admin().describe_topic(self.settings.topic)
            except UnknownTopicOrPartition as why:
                remedy = "create it, correct the option topic, or set kafka.auto.create=true"
                why.text = f"there is no topic {self.settings.topic!r}: {remedy}"
                raise

    def begin(self, client: Client, task: Task) -> Session | None:
        """Begin a task with the producer that the worker keeps."""
        return KafkaSession(self, client)


class KafkaSession(TopicSession):
    """One task, with the producer of the tasks before it."""

    def opened(self) -> TopicsProducer[Any]:
        """Return the producer that the worker keeps, or a new one."""
        kept: TopicsProducer[Any] | None = worker.beside(self.client).pop("producer", None)
        return kept or super().opened()

    def finish(self) -> Written:
        """Wait until everything is acknowledged, and keep the producer for the next task."""
        timeout = self.sink.settings.timeout
        self.out.flush(timeout)
        self.out.keep(_KEPT, timeout)
        worker.beside(self.client)["producer"] = self.out
        return Written(self.rows)
