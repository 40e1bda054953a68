"""From a record to a Produce request: checks before anything is taken, sizes, builders, messages.

What it is: the pure parts of sending. Must not: keep state or send.

    bytes of a record in a v2 batch, at most    5 length + 1 attributes + 10 timestamp + 5 offset + 5 + key + 5 + value + 5 + headers
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .._codec import Columns, KafkaBatchBuilder
from ..errors import ValueUnsupported
from ..records import Headers
from .accumulator import Outgoing
from .cluster import NO_ID
from .messages import PartitionProduceData, ProduceRequest, TopicProduceData
from .options import KafkaOptions

Pairs = tuple[tuple[str, Any], ...]

_RECORD_OVERHEAD = 36
_HEADER_OVERHEAD = 10
_BATCH_OVERHEAD = 61
_BY_ID = 13


def header_pairs(headers: Headers) -> Pairs:
    """Headers as ordered pairs."""
    if not headers:
        return ()
    return tuple(headers.items()) if isinstance(headers, Mapping) else tuple((name, value) for name, value in headers)


def record_size(value: Any, key: Any, pairs: Pairs) -> int:
    """Bytes that the record takes at most, uncompressed."""
    size = _RECORD_OVERHEAD + (len(value) if value is not None else 0) + (len(key) if key is not None else 0)
    for name, content in pairs:
        size += _HEADER_OVERHEAD + len(name.encode("utf-8", "surrogatepass")) + (len(content) if content is not None else 0)
    return size


def check_record(options: KafkaOptions, size: int, pairs: Pairs, timestamp: int | None, topic: str) -> None:
    """Refuse what the broker could not take; raises ValueUnsupported."""
    if size + _BATCH_OVERHEAD > options.max_request_size:
        raise ValueUnsupported(f"a record of about {size} bytes is larger than max_request_size ({options.max_request_size})", topic=topic)
    if timestamp is not None and timestamp < 0:
        raise ValueUnsupported(f"Kafka refuses the timestamp {timestamp}: it is before 1970", topic=topic)
    if options.message_format < 2 and pairs:
        raise ValueUnsupported(f"message sets of format {options.message_format} have no headers", topic=topic)
    if options.message_format == 0 and timestamp is not None:
        raise ValueUnsupported("message sets of format 0 have no timestamps", topic=topic)


def shares(columns: Any, partition: int | None, choose: Callable[[Any], int], *, every: bool) -> Iterator[tuple[int | None, Columns]]:
    """The rows of anything with an Arrow interface, or of Columns, by partition; in their order within each.

    Args:
        partition: where all go. choose: partition of a key, or None where records without a key may go anywhere.
    Returns:
        pairs of partition and rows; partition None: rows without a key and without a partition of their own.
    """
    table = columns if isinstance(columns, Columns) else Columns.from_arrow(columns)
    if partition is not None:
        yield partition, table
        return
    numbers: Sequence[int | None] | None = table.partitions()
    keys = table.keys()
    if numbers is None:
        if not every and all(key is None for key in keys):
            yield None, table
            return
        numbers = [choose(key) if every or key is not None else None for key in keys]
    places: dict[int | None, list[int]] = {}
    for index, number in enumerate(numbers):
        places.setdefault(number, []).append(index)
    if len(places) == 1:
        yield numbers[0], table
        return
    values, headers, stamps = table.values(), table.headers(), table.timestamps()
    for number, indexes in places.items():
        rows = Columns.from_rows(
            [values[index] for index in indexes],
            [keys[index] for index in indexes],
            [headers[index] for index in indexes],
            [stamps[index] for index in indexes],
        )
        yield number, rows


def check_columns(options: KafkaOptions, table: Columns, topic: str) -> None:
    """Refuse what message sets cannot carry; raises ValueUnsupported."""
    if options.message_format == 2:
        if any(stamp is not None and stamp < 0 for stamp in table.timestamps()):
            raise ValueUnsupported("Kafka refuses timestamps before 1970", topic=topic)
        return
    for pairs, stamp in zip(table.headers(), table.timestamps(), strict=True):
        check_record(options, 0, pairs, stamp, topic)


def builder_factory(options: KafkaOptions) -> Callable[[], KafkaBatchBuilder]:
    """Makes the batch builders that these options ask for."""

    def make() -> KafkaBatchBuilder:
        return KafkaBatchBuilder(magic=options.message_format, compression=options.compression, limit=options.batch_size)

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


def version_cap(options: KafkaOptions, topic_id: bytes) -> int | None:
    """The newest version of Produce that carries this format, and that names the topic as we can."""
    if options.message_format < 2:
        return 1 if options.message_format == 0 else 2
    return _BY_ID - 1 if topic_id == NO_ID else None


def request(topic: str, topic_id: bytes, batches: list[Outgoing], acks: int, timeout_ms: int) -> ProduceRequest:
    """One request with at most one batch of each partition."""
    parts = tuple(PartitionProduceData(index=batch.partition, records=batch.finish()) for batch in batches)
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=(TopicProduceData(name=topic, topic_id=topic_id, partition_data=parts),),
    )
