"""Records: Produce, Fetch, ListOffsets, InitProducerId."""

from __future__ import annotations

import asyncio
from typing import Any

from wireproto._codec import decode_kafka
from wireproto.devbroker.kafka.state import Broker, Partition
from wireproto.kafka import messages as m

OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC = 1, 3
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


async def produce(broker: Broker, request: Any, version: int, who: str) -> Any:
    """Append; answers nothing for acks=0."""
    topics = []
    for topic in request.topic_data:
        made = broker.topic(topic.name, create=True)
        results = []
        for item in topic.partition_data:
            partition = broker.partition(topic.name, item.index) if made else None
            if partition is None:
                error, base = UNKNOWN_TOPIC, -1
            else:
                error, base = partition.append(memoryview(item.records or b""))
            results.append(m.PartitionProduceResponse(index=item.index, error_code=error, base_offset=base, log_start_offset=0))
        topics.append(m.TopicProduceResponse(name=topic.name, partition_responses=tuple(results)))
    broker.wake()
    return m.ProduceResponse(responses=tuple(topics)) if request.acks else None


async def fetch(broker: Broker, request: Any, version: int, who: str) -> Any:
    """Wait for min_bytes or max_wait, then answer what there is; an error answers at once. No fetch sessions: the id is always 0."""
    loop = asyncio.get_running_loop()
    end = loop.time() + request.max_wait_ms / 1000
    while True:
        found, size, failed = _collect(broker, request)
        left = end - loop.time()
        if failed or size >= request.min_bytes or left <= 0:
            return m.FetchResponse(responses=found)
        await broker.wait_append(left)


def _collect(broker: Broker, request: Any) -> tuple[tuple[Any, ...], int, bool]:
    budget = request.max_bytes
    size, failed = 0, False
    topics = []
    for topic in request.topics:
        results = []
        for want in topic.partitions:
            partition = broker.partition(topic.topic, want.partition)
            error, records, end = 0, b"", -1
            if partition is None:
                error = UNKNOWN_TOPIC
            else:
                end = partition.end
                if not 0 <= want.fetch_offset <= end:
                    error = OFFSET_OUT_OF_RANGE
                elif budget > 0:
                    records = b"".join(partition.read(want.fetch_offset, min(want.partition_max_bytes, budget)))
            budget -= len(records)
            size += len(records)
            failed = failed or bool(error)
            results.append(
                m.PartitionData(
                    partition_index=want.partition,
                    error_code=error,
                    high_watermark=end,
                    last_stable_offset=end,
                    log_start_offset=0,
                    aborted_transactions=None,
                    records=records,
                )
            )
        topics.append(m.FetchableTopicResponse(topic=topic.topic, partitions=tuple(results)))
    return tuple(topics), size, failed


async def list_offsets(broker: Broker, request: Any, version: int, who: str) -> Any:
    """Earliest, latest, and the first record at or after a time."""
    topics = []
    for topic in request.topics:
        results = []
        for want in topic.partitions:
            partition = broker.partition(topic.name, want.partition_index)
            error, offset, timestamp = (UNKNOWN_TOPIC, -1, -1) if partition is None else (0, *_search(partition, want.timestamp))
            results.append(
                m.ListOffsetsPartitionResponse(
                    partition_index=want.partition_index, error_code=error, timestamp=timestamp, offset=offset, leader_epoch=0
                )
            )
        topics.append(m.ListOffsetsTopicResponse(name=topic.name, partitions=tuple(results)))
    return m.ListOffsetsResponse(topics=tuple(topics))


def _search(partition: Partition, timestamp: int) -> tuple[int, int]:
    """(offset, timestamp) as ListOffsets answers it; -1, -1 when no record is that late."""
    if timestamp == LATEST:
        return partition.end, -1
    if timestamp == EARLIEST:
        return 0, -1
    if timestamp == MAX_TIMESTAMP:
        timestamp = max((entry.max_timestamp for entry in partition.entries), default=0)
    for entry in partition.entries:
        if entry.max_timestamp >= timestamp:
            columns, _ = decode_kafka(entry.data, topic="", partition=0, fetch_offset=entry.base)
            for record in columns.records("", 0):
                if record.timestamp >= timestamp:
                    return record.position.offset, record.timestamp
    return -1, -1


async def init_producer_id(broker: Broker, request: Any, version: int, who: str) -> Any:
    """A new producer id; transactions are not offered."""
    broker.next_producer += 1
    return m.InitProducerIdResponse(producer_id=broker.next_producer, producer_epoch=0)
