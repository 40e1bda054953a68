"""Turns records into Produce requests: checks before anything is taken, sizes, builders, messages.

The pure parts of sending; sends nothing.

    bytes of a record in a v2 batch, at most    5 length + 1 attributes + 10 timestamp + 5 offset + 5 + key + 5 + value + 5 + headers
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from .._codec import Columns, KafkaBatchBuilder, OutBatch, decode_kafka, kafka_earliest
from ..errors import ValueUnsupported
from ..flow.parts import Parts
from .identity import MAX_SEQUENCE
from .messages import PartitionProduceData, ProduceRequest, TopicProduceData
from .options import KafkaOptions

BATCH_OVERHEAD = 61
BY_ID = 13
"""From this version on Produce names topics by their ids."""

_NEAR = 1024
"""Bytes of overhead of a record without very many headers, at most: one that is less than this below the limit is measured."""

Key = tuple[str, int]
"""Topic and partition: the key of a queue."""


def check_record(options: KafkaOptions, size: int, headers: object, timestamp: int | None, topic: str) -> None:
    """Refuse a record that the broker could not take.

    Args:
        options: of the producer. size: bytes of the record. headers: true if it has any. timestamp: milliseconds since 1970, or None.
        topic: for the error.
    Raises:
        ValueUnsupported: the record cannot be sent.
    """
    if size + BATCH_OVERHEAD > options.max_request_size:
        raise ValueUnsupported(f"a record of about {size} bytes is larger than max_request_size ({options.max_request_size})", topic=topic)
    if timestamp is not None and timestamp < 0:
        raise ValueUnsupported(f"Kafka refuses the timestamp {timestamp}: it is before 1970", topic=topic)
    if options.message_format < 2 and headers:
        raise ValueUnsupported(f"message sets of format {options.message_format} have no headers", topic=topic)
    if options.message_format == 0 and timestamp is not None:
        raise ValueUnsupported("message sets of format 0 have no timestamps", topic=topic)


def check_columns(options: KafkaOptions, table: Columns, topic: str) -> None:
    """Refuse rows that are too large, and what message sets cannot carry; raises ValueUnsupported."""
    for row in _large(table, max(options.max_request_size - _NEAR, 0)):
        check_size(options, _size_alone(options, table, row), topic)
    if options.message_format == 2:
        earliest = kafka_earliest(table)
        if earliest is not None and earliest < 0:
            raise ValueUnsupported("Kafka refuses timestamps before 1970", topic=topic)
        return
    for pairs, stamp in zip(table.headers(), table.timestamps(), strict=True):
        check_record(options, 0, pairs, stamp, topic)


def check_size(options: KafkaOptions, size: int, topic: str) -> None:
    """Refuse a record whose batch is of this size in bytes; raises ValueUnsupported."""
    if size > options.max_request_size:
        text = f"a record of {size} bytes is larger than max_request_size ({options.max_request_size})"
        raise ValueUnsupported(text, topic=topic)


def _large(table: Columns, bound: int) -> Iterator[int]:
    """Yield the rows larger than `bound` bytes, by bisection. A part without one costs one look: most often the whole table."""
    parts = [(0, len(table))]
    while parts:
        start, stop = parts.pop()
        if table[start:stop].nbytes <= bound:
            continue
        if stop - start == 1:
            yield start
        else:
            middle = (start + stop) // 2
            parts += (middle, stop), (start, middle)


def _size_alone(options: KafkaOptions, table: Columns, row: int) -> int:
    """Return the bytes of a batch of this row."""
    builder = KafkaBatchBuilder(magic=options.message_format)
    builder.append_columns(table, row, row + 1, 0)
    return builder.size


def builder_factory(options: KafkaOptions) -> Callable[[], KafkaBatchBuilder]:
    """Return a factory of batch builders for these options.

    A record beyond the builder's `limit` gets a batch of its own, and is refused there.
    """
    limit = min(options.batch_size, options.max_request_size)

    return partial(KafkaBatchBuilder, magic=options.message_format, compression=options.compression, limit=limit)


def requests(batches: list[OutBatch], limit: int) -> Iterator[list[OutBatch]]:
    """Split the batches for one node into requests of about `limit` bytes, at least one batch each."""
    part: list[OutBatch] = []
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
    """Return the newest version of Produce that carries this format and names the topics; None: any.

    Args:
        nameless: whether a topic has no id.
    """
    if options.message_format < 2:
        return 1 if options.message_format == 0 else 2
    return BY_ID - 1 if nameless else None


def sealed(batch: OutBatch, transactional: bool = False) -> Any:
    """Return the bytes of a batch with its producer id, epoch and sequence."""
    identity = batch.identity
    return batch.builder.seal(identity.producer_id, identity.epoch, batch.sequence, transactional=transactional)


def halves(batch: OutBatch, make_builder: Callable[[], KafkaBatchBuilder]) -> Parts | None:
    """Return the two batches that replace one that was too large, numbered as its records were; None: it has to be refused.

    A batch whose earlier sending was not answered is not split: should that be stored, a broker that has lowered its limit since would not
    recognise the halves, and store the records again.
    """
    if batch.count < 2 or batch.doubtful:
        return None
    middle = batch.count // 2
    return _parts(batch, make_builder, [[(0, middle)], [(middle, batch.count)]])


def others(batch: OutBatch, refused: Sequence[int], make_builder: Callable[[], KafkaBatchBuilder]) -> Parts | None:
    """Return the batch that replaces one in which the broker refused these records (indexes, in order): all others.

    Its sequence is that of the whole, so that it follows what is stored; what was sent behind the whole does not follow it, and starts
    over.
    None: as of `halves`.
    """
    if batch.doubtful or len(refused) == batch.count:
        return None
    starts, stops = [0, *(index + 1 for index in refused)], [*refused, batch.count]
    return _parts(batch, make_builder, [[run for run in zip(starts, stops, strict=True) if run[0] < run[1]]])


def _parts(batch: OutBatch, make_builder: Callable[[], KafkaBatchBuilder], shares: list[list[tuple[int, int]]]) -> Parts | None:
    """Make a batch of each share, which lists runs of rows; None: a builder takes less than that of the whole did."""
    topic, partition = batch.key
    rows, _ = decode_kafka(sealed(batch), topic=topic, partition=partition, fetch_offset=0)
    parts = Parts(batch)
    for runs in shares:
        part = OutBatch(batch.queue, batch.serial, batch.created, make_builder(), parts.outcome(), parts, batch.identity)
        for start, stop in runs:
            if part.add_rows(rows, None, start, stop, 0)[0] < stop - start:
                return None
        part.seal()
        before = sum(other.count for other in parts.batches)
        part.sequence = (batch.sequence + before) & MAX_SEQUENCE if batch.sequence >= 0 else -1
        parts.batches.append(part)
    return parts


def request(
    batches: list[OutBatch], ids: Mapping[str, bytes], acks: int, timeout_ms: int, transaction: str | None = None
) -> ProduceRequest:
    """Make one request with at most one batch of each partition.

    Args:
        batches: the batches. ids: of all topics of them. acks: -1, 0 or 1. timeout_ms: milliseconds that the leader may take.
        transaction: the transactional id; None: no transaction.
    """
    parts: dict[str, list[PartitionProduceData]] = {}
    for batch in batches:
        topic, partition = batch.key
        records = sealed(batch, transaction is not None)
        parts.setdefault(topic, []).append(PartitionProduceData(index=partition, records=records))
    return ProduceRequest(
        transactional_id=transaction,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=tuple(TopicProduceData(name=topic, topic_id=ids[topic], partition_data=tuple(data)) for topic, data in parts.items()),
    )
