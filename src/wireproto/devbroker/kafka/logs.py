"""Serves the requests about records: Produce, Fetch, ListOffsets, OffsetForLeaderEpoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..._codec import decode_kafka
from ...kafka import messages as m
from ..log import PartitionLog, wait_for_append
from ..server import Hangup
from . import compacted, epochs, leading, markers, transactions
from .batches import append

if TYPE_CHECKING:
    from .context import Context

OFFSET_OUT_OF_RANGE, UNSUPPORTED_VERSION = 1, 35
COMMITTED = 1
"""The isolation level read_committed: records up to the first open transaction, and a list of aborted ones."""
DEBUGGING = -2
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4


async def produce(context: Context) -> Any:
    """Serve Produce: append the batches.

    With acks=0 nothing is answered, and an error closes the connection, which is all that a client can notice.
    """
    topics = []
    elsewhere: set[int] = set()
    for topic in context.request.topic_data:
        context.side.topics.find(topic.name, create=True)
        results = []
        for item in topic.partition_data:
            log = context.side.topics.log(topic.name, item.index)
            error, base = context.error or leading.refuse(context, topic.name, item.index), -1
            refused = None if log is None or error else compacted.refusal(context.side.topics, topic.name, item.index, item.records)
            if refused is not None:
                results.append(refused)
                continue
            if log is not None and not error:
                records = memoryview(item.records if item.records is not None else b"")
                error, base = append(log, records, transactions.admitted(context, topic.name, item.index))
            answer = m.PartitionProduceResponse(
                index=item.index, error_code=error, base_offset=base, log_start_offset=-1 if error or log is None else log.start
            )
            if error == leading.NOT_LEADER and context.version >= 10:
                leader, epoch = leading.leader_of(context, topic.name, item.index)
                elsewhere.add(leader)
                answer = answer.replace(current_leader=m.ProduceLeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch))
            results.append(answer)
        topics.append(m.TopicProduceResponse(name=topic.name, partition_responses=tuple(results)))
    if context.request.acks:
        return m.ProduceResponse(responses=tuple(topics), node_endpoints=_endpoints(context, elsewhere))
    if any(part.error_code for topic in topics for part in topic.partition_responses):
        raise Hangup
    return None


def _endpoints(context: Context, numbers: set[int]) -> tuple[Any, ...]:
    """Return the addresses of those of these nodes that are up."""
    there = [node for node in context.side.cluster.nodes.values() if node.up and node.number in numbers]
    places = ((node.number, *context.side.place_of(node)) for node in there)
    return tuple(m.ProduceNodeEndpoint(node_id=number, host=host, port=port, rack=None) for number, host, port in places)


async def fetch(context: Context) -> Any:
    """Serve Fetch: wait for min_bytes or max_wait, then answer with what there is; an error is answered at once."""
    request, topics = context.request, context.side.topics
    fetching = context.node.sessions.begin(request)
    if isinstance(fetching, int):
        return m.FetchResponse(error_code=fetching)
    logs = {key: topics.log(*key) for key in fetching.wanted}
    there = [log for log in logs.values() if log is not None]
    committed = request.isolation_level == COMMITTED

    def enough() -> bool:
        waiting, least = 0, int(request.min_bytes)
        for key, part in fetching.wanted.items():
            log = logs[key]
            if log is not None and _is_slow(log, part.fetch_offset):
                continue
            if context.error or log is None or _problem(context, key, log, part) or not log.start <= part.fetch_offset <= log.end:
                return True
            stop = markers.last_stable(log) if committed else None
            waiting += sum(len(entry.data) for entry in log.read(part.fetch_offset, least, stop=stop))
        return waiting >= least

    await wait_for_append(there, enough, request.max_wait_ms / 1000)
    budget = request.max_bytes
    found: dict[tuple[str, int], Any] = {}
    for key, part in fetching.wanted.items():
        found[key], size = _read(context, key, part, budget, first=budget == request.max_bytes)
        budget -= size
    return fetching.answer(found)


def _read(context: Context, key: tuple[str, int], want: Any, budget: int, *, first: bool) -> tuple[Any, int]:
    """Return one partition's answer and its number of bytes of records.

    Args:
        want: the partition in the request. budget: bytes that the response may still take.
        first: no partition before had records: then a batch is returned however large it is.
    """
    log = context.side.topics.log(*key)
    error, records, start, end, stable = context.error, b"", -1, -1, -1
    aborted: tuple[Any, ...] | None = None
    diverging = m.FetchEpochEndOffset()
    if log is None:
        error = error or leading.UNKNOWN_TOPIC
    else:
        start, end, stable = log.start, log.end, markers.last_stable(log)
        committed = context.request.isolation_level == COMMITTED
        problem = _problem(context, key, log, want)
        if problem is not None and not error:
            error, diverging = problem
        elif not start <= want.fetch_offset <= end:
            error = error or OFFSET_OUT_OF_RANGE
        elif _is_slow(log, want.fetch_offset):
            log.facts["slow"] -= 1
        elif budget > 0 and not error:
            room = min(want.partition_max_bytes, budget)
            entries = log.read(want.fetch_offset, room, stop=stable if committed else None)
            if first or (entries and len(entries[0].data) <= room):
                records = b"".join(entry.data for entry in entries)
            if committed:
                upto = entries[-1].end if records else want.fetch_offset
                some = markers.aborted_within(log, want.fetch_offset, upto)
                aborted = tuple(m.AbortedTransaction(producer_id=producer, first_offset=first) for producer, first in some)
    if error:  # brokers then leave out everything else
        start = end = stable = -1
    answer = m.FetchPartitionData(
        partition_index=want.partition,
        error_code=error,
        high_watermark=end,
        last_stable_offset=stable,
        log_start_offset=start,
        diverging_epoch=diverging,
        aborted_transactions=aborted,
        records=records,
    )
    return answer, len(records)


def _problem(context: Context, key: tuple[str, int], log: PartitionLog, want: Any) -> tuple[int, Any] | None:
    """Return a Fetch's error code, or 0 and where the reader's log diverges; None when there is no problem."""
    code = leading.refuse(context, *key, want.current_leader_epoch if context.version >= 9 else -1, any_copy=context.version >= 11)
    if code:
        return code, m.FetchEpochEndOffset()
    if context.version < 12 or want.last_fetched_epoch < 0:
        return None
    found = epochs.diverges(log, want.last_fetched_epoch, want.fetch_offset)
    return None if found is None else (0, m.FetchEpochEndOffset(epoch=found[0], end_offset=found[1]))


def _is_slow(log: PartitionLog, offset: int) -> bool:
    """Return whether a read from this offset goes to the remote storage, and takes longer than this broker waits."""
    return bool(offset < log.facts.get("local", 0) and log.facts.get("slow", 0) > 0)


_SINCE = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8}
"""First versions of ListOffsets in which each negative time has a meaning."""


async def list_offsets(context: Context) -> Any:
    """Serve ListOffsets: earliest, latest, and the first record at or after a time."""
    topics = []
    for topic in context.request.topics:
        results = []
        for want in topic.partitions:
            log = context.side.topics.log(topic.name, want.partition_index)
            believed = want.current_leader_epoch if context.version >= 4 else -1
            debugging = context.request.replica_id == DEBUGGING
            error = context.error or leading.refuse(context, topic.name, want.partition_index, believed, any_copy=debugging)
            offset = timestamp = -1
            if want.timestamp < 0 and context.version < _SINCE.get(want.timestamp, 1 << 15) and not context.error:
                error = UNSUPPORTED_VERSION
            elif log is not None and not error:
                offset, timestamp = _search(log, want.timestamp)
                stable = markers.last_stable(log)
                if context.version >= 2 and context.request.isolation_level == COMMITTED and (offset > stable or want.timestamp == LATEST):
                    offset, timestamp = (stable, -1) if want.timestamp == LATEST else (-1, -1)
            results.append(
                m.ListOffsetsPartitionResponse(
                    partition_index=want.partition_index,
                    error_code=error,
                    timestamp=timestamp,
                    offset=offset,
                    leader_epoch=-1 if log is None or error or context.version < 4 else epochs.current(log),
                )
            )
        topics.append(m.ListOffsetsTopicResponse(name=topic.name, partitions=tuple(results)))
    return m.ListOffsetsResponse(topics=tuple(topics))


def _search(log: PartitionLog, timestamp: int) -> tuple[int, int]:
    """Return (offset, timestamp) as ListOffsets answers it; -1, -1 when no record is that late."""
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
    none = entry.base, entry.timestamp  # a transaction's marker, which real brokers return as well
    return next(((offset, found) for offset, found in rows if found is not None and found >= timestamp), none)


async def offset_for_leader_epoch(context: Context) -> Any:
    """Serve OffsetForLeaderEpoch: where an epoch's records end."""
    topics = []
    for topic in context.request.topics:
        results = []
        for want in topic.partitions:
            log = context.side.topics.log(topic.topic, want.partition)
            error = context.error or leading.refuse(context, topic.topic, want.partition, want.current_leader_epoch)
            epoch, end = (-1, -1) if error or log is None else epochs.end_of(log, want.leader_epoch)
            results.append(m.EpochEndOffset(error_code=error, partition=want.partition, leader_epoch=epoch, end_offset=end))
        topics.append(m.OffsetForLeaderTopicResult(topic=topic.topic, partitions=tuple(results)))
    return m.OffsetForLeaderEpochResponse(topics=tuple(topics))
