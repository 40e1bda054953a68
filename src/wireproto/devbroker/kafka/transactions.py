"""Serves the requests about transactions: of transactional producers at their coordinator, and of administrators.

The state of a transactional id is in `transaction.Transaction`, that of a partition in `markers`. A transaction that takes longer than its
timeout is rolled back at once, not by a periodic check as in Kafka.
"""

from __future__ import annotations

import asyncio
import re
import time
from typing import TYPE_CHECKING, Any

from ...kafka import messages as m
from . import groups, leading, markers
from .batches import OUT_OF_ORDER_SEQUENCE, producers_of
from .cluster import NOT_COORDINATOR, slot_of
from .markers import ABORT, COMMIT
from .transaction import CONCURRENT_TRANSACTIONS, INVALID_PRODUCER_ID_MAPPING, INVALID_TXN_STATE, PRODUCER_FENCED, Refused, Transaction

if TYPE_CHECKING:
    from .batches import Admit
    from .context import Context
    from .state import KafkaState

UNKNOWN_TOPIC, NOT_ATTEMPTED = 3, 55
INVALID_REQUEST, INVALID_PRODUCER_EPOCH, INVALID_TIMEOUT, ABORTABLE, NO_SUCH_TRANSACTION = 42, 47, 50, 120, 105
INVALID_REGULAR_EXPRESSION = 128
STATES = frozenset(("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"))
OFFSETS = "__consumer_offsets"
MOST = 900_000
"""``transaction.max.timeout.ms``."""
FENCES_SINCE = {"InitProducerId": 4, "AddPartitionsToTxn": 2, "AddOffsetsToTxn": 2, "EndTxn": 2}
"""First versions with PRODUCER_FENCED; older ones get INVALID_PRODUCER_EPOCH."""
JOINS_BY_PRODUCE, JOINS_BY_COMMIT, BUMPS_AT_END = 12, 5, 5
"""Versions of Produce, TxnOffsetCommit and EndTxn of level 2 (KIP-890)."""


def _now() -> int:
    return int(time.time() * 1000)


def _found(side: KafkaState, name: str) -> Transaction:
    found = side.transactions.get(name)
    if found is None:
        raise Refused(INVALID_PRODUCER_ID_MAPPING)
    return found


def _code_for_version(context: Context, name: str, code: int) -> int:
    """Return the error code as the request's version has it."""
    old = code == PRODUCER_FENCED and context.version < FENCES_SINCE[name]
    return INVALID_PRODUCER_EPOCH if old else code


# --- the producer of a name ---


async def init_producer_id(context: Context) -> Any:
    """Serve InitProducerId: a new producer id, or a transactional id's, under its next epoch.

    An open transaction of that id is rolled back first, and the caller gets CONCURRENT_TRANSACTIONS.
    """
    side, request = context.side, context.request
    if context.error:
        return _identity(context.error)
    if request.transactional_id is None:
        return _identity(0, side.next_producer(), 0)
    if not request.transactional_id:
        return _identity(INVALID_REQUEST)
    if not 0 < request.transaction_timeout_ms <= MOST:
        return _identity(INVALID_TIMEOUT)
    name = request.transactional_id
    known = side.transactions.get(name)
    if known is None:
        known = side.transactions[name] = Transaction(name, side.next_producer)
    expected = (request.producer_id, request.producer_epoch) if context.version >= 3 and request.producer_id >= 0 else None
    try:
        if known.ongoing:
            if expected is not None and expected[0] != known.producer:
                raise Refused(PRODUCER_FENCED)
            roll_back(side, known)
            raise Refused(CONCURRENT_TRANSACTIONS)
        known.taken(request.transaction_timeout_ms, expected)
    except Refused as why:
        return _identity(_code_for_version(context, "InitProducerId", why.code))
    return _identity(0, known.producer, known.epoch)


def _identity(error: int, producer: int = -1, epoch: int = -1) -> Any:
    return m.InitProducerIdResponse(error_code=error, producer_id=producer, producer_epoch=epoch)


# --- what is in a transaction ---


async def add_partitions(context: Context) -> Any:
    """Serve AddPartitionsToTxn (level 1). If one of the partitions does not exist, all are refused."""
    side, request = context.side, context.request
    wanted = [(topic.name, number) for topic in request.v3_and_below_topics for number in topic.partitions]
    missing = {key for key in wanted if side.topics.log(*key) is None}
    error = context.error
    if not error and not missing:
        producer, epoch = request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        try:
            join(side, request.v3_and_below_transactional_id, producer, epoch, set(wanted))
        except Refused as why:
            error = _code_for_version(context, "AddPartitionsToTxn", why.code)
    topics = []
    for topic in request.v3_and_below_topics:
        results = []
        for number in topic.partitions:
            code = error or (0 if not missing else UNKNOWN_TOPIC if (topic.name, number) in missing else NOT_ATTEMPTED)
            results.append(m.AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code))
        topics.append(m.AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=tuple(results)))
    return m.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=tuple(topics))


async def add_offsets(context: Context) -> Any:
    """Serve AddOffsetsToTxn (level 1): a group whose offsets are to be committed."""
    request, error = context.request, context.error
    if not error:
        try:
            join(context.side, request.transactional_id, request.producer_id, request.producer_epoch, set(), request.group_id)
        except Refused as why:
            error = _code_for_version(context, "AddOffsetsToTxn", why.code)
    return m.AddOffsetsToTxnResponse(error_code=error)


def join(
    side: KafkaState,
    name: str,
    producer: int,
    epoch: int,
    partitions: set[tuple[str, int]],
    group: str | None = None,
) -> None:
    """Add partitions and a group's offsets to a transaction, which begins by that; its timeout runs from there.

    Raises:
        Refused: the producer does not have the name.
    """
    transaction = _found(side, name)
    began = not transaction.ongoing
    if group is not None:
        partitions = partitions | {(OFFSETS, slot_of(group))}
    transaction.joins(producer, epoch, _now(), partitions, group)
    if began:
        watch(side, transaction)


def watch(side: KafkaState, transaction: Transaction) -> None:
    """Roll the transaction back when its timeout is over."""
    started = transaction.started

    def over() -> None:
        if transaction.ongoing and transaction.started == started and side.transactions.get(transaction.name) is transaction:
            roll_back(side, transaction)

    left = (started + transaction.timeout - _now()) / 1000
    asyncio.get_running_loop().call_later(max(0.0, left), over)


def admitted(context: Context, topic: str, partition: int) -> Admit:
    """Return the function that says whether the transaction of a Produce request takes batches of a partition."""
    side, name = context.side, context.request.transactional_id

    def admit(producer: int, epoch: int, unknown: int | None) -> int:
        try:
            if context.version >= JOINS_BY_PRODUCE:
                join(side, name or "", producer, epoch, {(topic, partition)})
                return OUT_OF_ORDER_SEQUENCE if unknown else 0
            known = _found(side, name or "")
            if (producer, epoch) != (known.producer, known.epoch):
                return INVALID_PRODUCER_EPOCH if producer == known.producer else INVALID_PRODUCER_ID_MAPPING
        except Refused as why:
            return INVALID_PRODUCER_EPOCH if why.code == PRODUCER_FENCED else why.code
        if known.has(producer, epoch, (topic, partition)):
            return 0
        return ABORTABLE if context.version >= JOINS_BY_PRODUCE - 1 else INVALID_TXN_STATE

    return admit


async def offset_commit(context: Context) -> Any:
    """Serve TxnOffsetCommit: offsets that a group has once the transaction is committed."""
    side, request, version = context.side, context.request, context.version
    error = context.error or _refuse_commit(context)
    group = groups.group_of(side, request.group_id)
    topics = []
    for topic in request.topics:
        results = []
        for part in topic.partitions:
            code = error or (0 if side.topics.log(topic.name, part.partition_index) is not None else UNKNOWN_TOPIC)
            if not code:
                epoch = part.committed_leader_epoch if version >= 2 else -1
                value = (part.committed_offset, epoch, part.committed_metadata or "")
                group.keep(topic.name, part.partition_index, value, request.producer_id)
            results.append(m.TxnOffsetCommitResponsePartition(partition_index=part.partition_index, error_code=code))
        topics.append(m.TxnOffsetCommitResponseTopic(name=topic.name, partitions=tuple(results)))
    return m.TxnOffsetCommitResponse(topics=tuple(topics))


def _refuse_commit(context: Context) -> int:
    """Return the error of a sender that is not a member of the group any more, or does not have the transaction; or 0."""
    side, request = context.side, context.request
    name, producer, epoch, group = request.transactional_id, request.producer_id, request.producer_epoch, request.group_id
    if context.version >= 3 and (request.member_id or request.generation_id_or_member_epoch >= 0):
        error = groups.check(side, group, request.member_id, request.group_instance_id, request.generation_id_or_member_epoch)
        if error:
            return error
    try:
        if context.version >= JOINS_BY_COMMIT:
            join(side, name, producer, epoch, set(), group)
            return 0
        known = _found(side, name)
    except Refused as why:
        return INVALID_PRODUCER_EPOCH if why.code == PRODUCER_FENCED else why.code
    if producer == known.producer and epoch != known.epoch:
        return INVALID_PRODUCER_EPOCH
    if known.has(producer, epoch, (OFFSETS, slot_of(group))):
        return 0
    return ABORTABLE if context.version == JOINS_BY_COMMIT - 1 else INVALID_TXN_STATE


# --- its end ---


async def end(context: Context) -> Any:
    """Serve EndTxn: commit or roll back."""
    side, request = context.side, context.request
    bumps = context.version >= BUMPS_AT_END
    if context.error:
        return m.EndTxnResponse(error_code=context.error)
    kind = COMMIT if request.committed else ABORT
    try:
        known = _found(side, request.transactional_id)
        if known.ends(request.producer_id, request.producer_epoch, kind, bumps=bumps):
            _finish(side, known, kind)
    except Refused as why:
        return m.EndTxnResponse(error_code=_code_for_version(context, "EndTxn", why.code))
    if not bumps:
        return m.EndTxnResponse(error_code=0)
    return m.EndTxnResponse(error_code=0, producer_id=known.producer, producer_epoch=known.epoch)


def roll_back(side: KafkaState, transaction: Transaction) -> None:
    """Roll back a transaction without its producer, which is fenced."""
    transaction.fence(bumps=side.level >= 2)
    _finish(side, transaction, ABORT)


def _finish(side: KafkaState, transaction: Transaction, kind: int) -> None:
    for key in sorted(transaction.partitions):
        log = side.topics.log(*key)
        if log is not None:
            markers.write(log, transaction.producer, transaction.epoch, kind)
    for name in transaction.groups:
        groups.group_of(side, name).settle(transaction.producer, committed=kind == COMMIT)
    transaction.ended(kind)


async def write_markers(context: Context) -> Any:
    """Serve WriteTxnMarkers, an administrator's: end a transaction in single partitions, whatever its coordinator knows."""
    results = []
    for marker in context.request.markers:
        topics = []
        for topic in marker.topics:
            parts = []
            for number in topic.partition_indexes:
                log = context.side.topics.log(topic.name, number)
                code = context.error or leading.refuse(context, topic.name, number)
                if log is not None and not code:
                    known = producers_of(log).get(marker.producer_id)
                    if known is not None and marker.producer_epoch < known.epoch:
                        code = INVALID_PRODUCER_EPOCH
                    else:
                        kind = COMMIT if marker.transaction_result else ABORT
                        markers.write(log, marker.producer_id, marker.producer_epoch, kind)
                parts.append(m.WritableTxnMarkerPartitionResult(partition_index=number, error_code=code))
            topics.append(m.WritableTxnMarkerTopicResult(name=topic.name, partitions=tuple(parts)))
        results.append(m.WritableTxnMarkerResult(producer_id=marker.producer_id, topics=tuple(topics)))
    return m.WriteTxnMarkersResponse(markers=tuple(results))


# --- what is known of them ---


async def list_of_node(context: Context) -> Any:
    """Serve ListTransactions: the names that this node coordinates and that pass the filters."""
    side, request = context.side, context.request
    try:
        pattern = re.compile(request.transactional_id_pattern) if context.version >= 2 and request.transactional_id_pattern else None
    except re.error:
        return m.ListTransactionsResponse(error_code=INVALID_REGULAR_EXPRESSION, unknown_state_filters=(), transaction_states=())
    longer, now = request.duration_filter if context.version >= 1 else -1, _now()
    unknown = tuple(state for state in request.state_filters if state not in STATES)
    found = [
        m.ListTransactionsTransactionState(transactional_id=name, producer_id=known.producer, transaction_state=known.state)
        for name, known in side.transactions.items()
        if side.cluster.coordinator(name) is context.node
        and (not request.state_filters or known.state in request.state_filters)
        and (not request.producer_id_filters or known.producer in request.producer_id_filters)
        and (longer < 0 or now - known.started > longer)
        and (pattern is None or pattern.fullmatch(name))
    ]
    return m.ListTransactionsResponse(error_code=context.error, unknown_state_filters=unknown, transaction_states=tuple(found))


async def describe(context: Context) -> Any:
    """Serve DescribeTransactions: each name's state; a name of another node is refused."""
    side, found = context.side, []
    for name in context.request.transactional_ids:
        known = side.transactions.get(name)
        error = context.error
        if not error and side.cluster.coordinator(name) is not context.node:
            error = NOT_COORDINATOR
        if error or known is None:
            error = error or NO_SUCH_TRANSACTION
            found.append(m.DescribeTransactionsTransactionState(error_code=error, transactional_id=name, transaction_state=""))
            continue
        topics: dict[str, list[int]] = {}
        for topic, number in sorted(known.partitions):
            topics.setdefault(topic, []).append(number)
        found.append(
            m.DescribeTransactionsTransactionState(
                transactional_id=name,
                transaction_state=known.state,
                transaction_timeout_ms=known.timeout,
                transaction_start_time_ms=known.started,
                producer_id=known.producer,
                producer_epoch=known.epoch,
                topics=tuple(m.DescribeTransactionsTopicData(topic=topic, partitions=tuple(some)) for topic, some in topics.items()),
            )
        )
    return m.DescribeTransactionsResponse(transaction_states=tuple(found))


async def describe_producers(context: Context) -> Any:
    """Serve DescribeProducers: a partition's producers, and where their open transactions began."""
    topics = []
    for topic in context.request.topics:
        parts = []
        for number in topic.partition_indexes:
            log = context.side.topics.log(topic.name, number)
            error = context.error or leading.refuse(context, topic.name, number)
            active = []
            if log is not None and not error:
                begun = markers.ends_of(log).open
                for producer, written in producers_of(log).items():
                    state = m.ProducerState(
                        producer_id=producer,
                        producer_epoch=written.epoch,
                        last_sequence=written.last,
                        last_timestamp=written.at,
                        coordinator_epoch=written.coordinator,
                        current_txn_start_offset=begun.get(producer, -1),
                    )
                    active.append(state)
            parts.append(m.PartitionResponse(partition_index=number, error_code=error, error_message=None, active_producers=tuple(active)))
        topics.append(m.TopicResponse(name=topic.name, partitions=tuple(parts)))
    return m.DescribeProducersResponse(topics=tuple(topics))
