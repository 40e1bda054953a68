"""From a record to a Produce request: checks before anything is taken, sizes, builders, batches, messages.

What it is: the pure parts of sending. Must not: send.

    bytes of a record in a v2 batch, at most    5 length + 1 attributes + 10 timestamp + 5 offset + 5 + key + 5 + value + 5 + headers
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .._codec import Columns, KafkaBatchBuilder, KafkaOpenBatch, kafka_earliest
from ..errors import ValueUnsupported
from ..flow.queue import PartitionQueue
from .identity import NOBODY
from .messages import PartitionProduceData, ProduceRequest, TopicProduceData
from .options import KafkaOptions

BATCH_OVERHEAD = 61
BY_ID = 13
"""From this version on Produce names topics by their ids."""

Key = tuple[str, int]
"""Topic and partition: the key of a queue."""


class Outgoing(KafkaOpenBatch):
    """One batch. The core puts records into it until it is sealed. See `flow.queue.Batch`.

    Attributes:
        builder: the core's batch builder. size: bytes of the send buffer that it holds.
        outcome: the event of those who wait. owner: the producer, which its receipts ask.
        identity, sequence: given at the first sending; sequence is that of the first record, -1 while it has none.
    """

    __slots__ = (
        "attempts",
        "created",
        "doubtful",
        "identity",
        "number",
        "outcome",
        "over",
        "owner",
        "partition",
        "queue",
        "sequence",
        "serial",
        "topic",
    )

    def __init__(self, queue: PartitionQueue, serial: int, created: float, builder: Any, outcome: Any) -> None:
        self.queue = queue
        self.topic: str
        self.partition: int
        self.topic, self.partition = queue.key  # type: ignore[misc]
        self.serial = serial
        self.created = created
        self.builder = builder
        self.outcome = outcome
        self.owner: Any = None
        self.identity = NOBODY
        self.sequence = -1
        self.number = 0
        self.attempts = 0
        self.doubtful = False
        self.over = False

    def position(self, index: int, timeout: float | None) -> Any:
        """A record's place, as its receipt asks for it."""
        return self.owner.position_in(self, index, timeout)

    def finish(self) -> Any:
        """The record batch as bytes, under its identity."""
        return self.builder.seal(self.identity.producer_id, self.identity.epoch, self.sequence)


def check_record(options: KafkaOptions, size: int, headers: object, timestamp: int | None, topic: str) -> None:
    """Refuse what the broker could not take; raises ValueUnsupported."""
    if size + BATCH_OVERHEAD > options.max_request_size:
        raise ValueUnsupported(f"a record of about {size} bytes is larger than max_request_size ({options.max_request_size})", topic=topic)
    if timestamp is not None and timestamp < 0:
        raise ValueUnsupported(f"Kafka refuses the timestamp {timestamp}: it is before 1970", topic=topic)
    if options.message_format < 2 and headers:
        raise ValueUnsupported(f"message sets of format {options.message_format} have no headers", topic=topic)
    if options.message_format == 0 and timestamp is not None:
        raise ValueUnsupported("message sets of format 0 have no timestamps", topic=topic)


def check_columns(options: KafkaOptions, table: Columns, topic: str) -> None:
    """Refuse what message sets cannot carry; raises ValueUnsupported."""
    if options.message_format == 2:
        earliest = kafka_earliest(table)
        if earliest is not None and earliest < 0:
            raise ValueUnsupported("Kafka refuses timestamps before 1970", topic=topic)
        return
    for pairs, stamp in zip(table.headers(), table.timestamps(), strict=True):
        check_record(options, 0, pairs, stamp, topic)


def builder_factory(options: KafkaOptions) -> Callable[[], KafkaBatchBuilder]:
    """Makes the batch builders that these options ask for; a record beyond `limit` has a batch of its own, where it is met and refused."""
    limit = min(options.batch_size, options.max_request_size)

    def make() -> KafkaBatchBuilder:
        return KafkaBatchBuilder(magic=options.message_format, compression=options.compression, limit=limit)

    return make


def requests(batches: list[Outgoing], limit: int) -> Iterator[list[Outgoing]]:
    """Split the batches for one node into requests of about `limit` bytes, at least one batch each."""
    part: list[Outgoing] = []
    size = 0
    for batch in batches:
        if part and size + batch.size > limit:
            yield part
            part, size = [], 0
        part.append(batch)
        size += batch.size
    if part:
        yield part


def version_cap(options: KafkaOptions, nameless: bool) -> int | None:
    """The newest version of Produce that carries this format, and that names the topics as we can (`nameless`: one without an id)."""
    if options.message_format < 2:
        return 1 if options.message_format == 0 else 2
    return BY_ID - 1 if nameless else None


def request(batches: list[Outgoing], ids: Mapping[str, bytes], acks: int, timeout_ms: int) -> ProduceRequest:
    """One request with at most one batch of each partition; `ids` has those of all topics."""
    parts: dict[str, list[PartitionProduceData]] = {}
    for batch in batches:
        parts.setdefault(batch.topic, []).append(PartitionProduceData(index=batch.partition, records=batch.finish()))
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=tuple(TopicProduceData(name=topic, topic_id=ids[topic], partition_data=tuple(data)) for topic, data in parts.items()),
    )
