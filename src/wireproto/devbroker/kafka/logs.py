"""Records: Produce, Fetch, ListOffsets, InitProducerId."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._codec import decode_kafka
from ...kafka import messages as m
from ..log import PartitionLog, wait_for_append
from . import epochs
from .batches import append

if TYPE_CHECKING:
    from .context import Context

OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC, UNSUPPORTED_VERSION, TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 1, 3, 35, 53
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4


async def produce(context: Context) -> Any:
    """Append; answers nothing for acks=0."""
    topics = []
    for topic in context.request.topic_data:
        context.side.topics.find(topic.name, create=True)
        results = []
        for item in topic.partition_data:
            log = context.side.topics.log(topic.name, item.index)
            error, base = context.error or UNKNOWN_TOPIC, -1
            if log is not None and not context.error:
                error, base = append(log, memoryview(item.records if item.records is not None else b""))
            results.append(m.PartitionProduceResponse(index=item.index, error_code=error, base_offset=base, log_start_offset=0))
        topics.append(m.TopicProduceResponse(name=topic.name, partition_responses=tuple(results)))
    return m.ProduceResponse(responses=tuple(topics)) if context.request.acks else None


async def fetch(context: Context) -> Any:
    """Wait for min_bytes or max_wait, then answer what there is; an error answers at once."""
    request, topics = context.request, context.side.topics
    fetching = context.side.sessions.begin(request)
    if isinstance(fetching, int):
        return m.FetchResponse(error_code=fetching)
    logs = {key: topics.log(*key) for key in fetching.wanted}
    there = [log for log in logs.values() if log is not None]

    def enough() -> bool:
        waiting, least = 0, int(request.min_bytes)
        for key, part in fetching.wanted.items():
            log = logs[key]
            if log is not None and _is_slow(log, part.fetch_offset):
                continue
            if context.error or log is None or not log.start <= part.fetch_offset <= log.end or _epoch_problem(context, log, part):
                return True
            waiting += sum(len(entry.data) for entry in log.read(part.fetch_offset, least))
        return waiting >= least

    await wait_for_append(there, enough, request.max_wait_ms / 1000)
    budget = request.max_bytes
    found: dict[tuple[str, int], Any] = {}
    for key, part in fetching.wanted.items():
        found[key], size = _read(context, topics.log(*key), part, budget, first=budget == request.max_bytes)
        budget -= size
    return fetching.answer(found)


def _read(context: Context, log: PartitionLog | None, want: Any, budget: int, *, first: bool) -> tuple[Any, int]:
    """One partition's answer and how many bytes of records it holds. `first`: of those with records; a batch of it comes however large."""
    error, records, start, end = context.error, b"", -1, -1
    diverging = m.FetchEpochEndOffset()
    if log is None:
        error = error or UNKNOWN_TOPIC
    else:
        start, end = log.start, log.end
        problem = _epoch_problem(context, log, want)
        if problem is not None and not error:
            error, diverging = problem
        elif not start <= want.fetch_offset <= end:
            error = error or OFFSET_OUT_OF_RANGE
        elif _is_slow(log, want.fetch_offset):
            log.facts["slow"] -= 1
        elif budget > 0 and not error:
            room = min(want.partition_max_bytes, budget)
            entries = log.read(want.fetch_offset, room)
            if first or (entries and len(entries[0].data) <= room):
                records = b"".join(entry.data for entry in entries)
    if error:  # brokers tell nothing else then
        start = end = -1
    answer = m.FetchPartitionData(
        partition_index=want.partition,
        error_code=error,
        high_watermark=end,
        last_stable_offset=end,
        log_start_offset=start,
        diverging_epoch=diverging,
        aborted_transactions=None,
        records=records,
    )
    return answer, len(records)


def _epoch_problem(context: Context, log: PartitionLog, want: Any) -> tuple[int, Any] | None:
    """The error code of a Fetch under another epoch, or 0 and where the reader's log parts from ours; None when all is well."""
    code = epochs.refuse(log, want.current_leader_epoch) if context.version >= 9 else 0
    if code:
        return code, m.FetchEpochEndOffset()
    if context.version < 12 or want.last_fetched_epoch < 0:
        return None
    found = epochs.diverges(log, want.last_fetched_epoch, want.fetch_offset)
    return None if found is None else (0, m.FetchEpochEndOffset(epoch=found[0], end_offset=found[1]))


def _is_slow(log: PartitionLog, offset: int) -> bool:
    """Whether a read from there goes to the remote storage, and takes longer than this broker waits."""
    return bool(offset < log.facts.get("local", 0) and log.facts.get("slow", 0) > 0)


_SINCE = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8}
"""Versions of ListOffsets from which a negative time means something."""


async def list_offsets(context: Context) -> Any:
    """Earliest, latest, and the first record at or after a time."""
    topics = []
    for topic in context.request.topics:
        results = []
        for want in topic.partitions:
            log = context.side.topics.log(topic.name, want.partition_index)
            error, offset, timestamp = context.error or UNKNOWN_TOPIC, -1, -1
            if want.timestamp < 0 and context.version < _SINCE.get(want.timestamp, 1 << 15) and not context.error:
                error = UNSUPPORTED_VERSION
            elif log is not None and not context.error:
                error, (offset, timestamp) = 0, _search(log, want.timestamp)
            results.append(
                m.ListOffsetsPartitionResponse(
                    partition_index=want.partition_index,
                    error_code=error,
                    timestamp=timestamp,
                    offset=offset,
                    leader_epoch=-1 if log is None or context.version < 4 else epochs.current(log),
                )
            )
        topics.append(m.ListOffsetsTopicResponse(name=topic.name, partitions=tuple(results)))
    return m.ListOffsetsResponse(topics=tuple(topics))


def _search(log: PartitionLog, timestamp: int) -> tuple[int, int]:
    """(offset, timestamp) as ListOffsets answers it; -1, -1 when no record is that late."""
    if timestamp == LATEST:
        return log.end, -1
    if timestamp == EARLIEST:
        return log.start, -1
    if timestamp == EARLIEST_LOCAL:
        return max(log.start, log.facts.get("local", 0)), -1
    if timestamp == MAX_TIMESTAMP:
        timestamp = max((entry.timestamp for entry in log), default=0)
    entry = log.at_time(timestamp)
    if entry is None:
        return -1, -1
    columns, _ = decode_kafka(entry.data, topic="", partition=0, fetch_offset=entry.base)
    rows = zip(columns.positions(), columns.timestamps(), strict=True)
    return next(((offset, found) for offset, found in rows if found is not None and found >= timestamp), (-1, -1))


async def init_producer_id(context: Context) -> Any:
    """A new producer id; transactions are not offered, and who asks for one is told so for good."""
    if context.request.transactional_id is not None:
        return m.InitProducerIdResponse(
            error_code=context.error or TRANSACTIONAL_ID_AUTHORIZATION_FAILED, producer_id=-1, producer_epoch=-1
        )
    facts = context.side.store.facts
    facts["next producer"] = facts.get("next producer", 1000) + 1
    return m.InitProducerIdResponse(error_code=context.error, producer_id=facts["next producer"], producer_epoch=0)
