"""Resolves EARLIEST, LATEST, times and positions to offsets of partitions.

ListOffsets for many partitions at once, each sent to its leader, with retries; of UNKNOWN_SERVER_ERROR too, for asking twice does no harm.
`flow.resolve` says what is asked of which partition.

    request                  ListOffsets timestamp
    EARLIEST                 -2
    LATEST                   -1: high watermark, or last stable offset for readers of committed records
    (`earliest_local`)       -4: what the leader has on its own disk
    AtTime(ms)               ms, at least 0, for values below have meanings of their own; -1 is returned when nothing is that late: LATEST
                             then, as it was asked for before, so that what is appended meanwhile lies behind it
    Position                 nothing is asked
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import TimedOut, TransportError, WireprotoError
from ..flow.resolve import Request, Resolver, shown
from ..net.retry import Verdict, verdict
from ..net.task import NEVER
from ..position import AtTime, Earliest, LogOffset, Position, TopicPartition
from . import wire
from .codes import LeaderNotAvailable, UnknownServerError, UnknownTopicOrPartition, error
from .messages import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic

if TYPE_CHECKING:
    from ..net.task import Steps
    from .cluster import KafkaCluster

LATEST_TIME, EARLIEST_TIME, _LOCAL_TIME = -1, -2, -4
_LOCAL_SINCE = 8
_TIERED_TIMEOUT = 30_000
ENOUGH = 5.0
"""Seconds for which a leader's answer is waited for, where it must not delay others."""
_ELECTION = 1.0
"""Seconds for which a partition without a leader is waited for, where it must not delay others: an election takes no longer."""
PLACES = Resolver(LogOffset)


def offset_in(key: TopicPartition, place: object, what: str) -> int:
    """Return the offset of a position in this partition; raises OptionError for anything else."""
    position = PLACES.position(key, place, what)
    assert isinstance(position, LogOffset)
    return position.offset


def finding(
    cluster: KafkaCluster,
    requests: Mapping[TopicPartition, Request],
    until: float,
    *,
    committed: bool,
    later: dict[TopicPartition, WireprotoError] | None = None,
    patience: float | None = None,
) -> Steps[tuple[dict[TopicPartition, int], dict[TopicPartition, int]]]:
    """Resolve requests to offsets now.

    Args:
        requests: by partition. until: the deadline, a time.monotonic() value.
        committed: whether LATEST is the last stable offset instead of the high watermark.
        later: takes the partitions that have no leader, or whose leader does not answer, and why; they are left out. None: they are waited
            for. patience: see `listing`.
    Returns:
        the offsets; and the ends of the partitions that are asked for a time, as they were before that: no time resolves to an offset
        behind its partition's end.
    Raises:
        the broker's error, TimedOut; `known` has the positions that were found, without times.
    """
    found = {key: request.offset for key, request in requests.items() if isinstance(request, LogOffset)}
    times = {key: max(request.ms, 0) for key, request in requests.items() if isinstance(request, AtTime)}
    first = {key: _timestamp(request) for key, request in requests.items() if key not in found}
    ends: dict[TopicPartition, int] = {}
    answers: dict[TopicPartition, int] = {}
    try:
        if first:
            yield from listing(cluster, first, until, committed=committed, later=later, patience=patience, into=answers)
        ends = {key: answers.pop(key) for key in times if key in answers}
        found |= answers
        if ends:
            behind = {key: times[key] for key in ends}
            late = yield from listing(cluster, behind, until, committed=committed, later=later, patience=patience)
            for key, offset in late.items():
                found[key] = min(offset, ends[key]) if offset >= 0 else ends[key]
    except WireprotoError as why:
        why.known = log_positions({key: offset for key, offset in (found | answers).items() if key not in times})
        raise
    return found, ends


def _timestamp(request: Request) -> int:
    """Return the ListOffsets timestamp to ask for first: for a time, the end."""
    return EARLIEST_TIME if isinstance(request, Earliest) else LATEST_TIME


def listing(
    cluster: KafkaCluster,
    times: Mapping[TopicPartition, int],
    until: float,
    *,
    committed: bool,
    made: bool = False,
    later: dict[TopicPartition, WireprotoError] | None = None,
    patience: float | None = None,
    into: dict[TopicPartition, int] | None = None,
) -> Steps[dict[TopicPartition, int]]:
    """Ask the leaders for offsets, all at once; partitions that are refused with a retriable code are asked for again.

    Args:
        times: ListOffsets timestamps by partition. until: the deadline, a time.monotonic() value.
        committed: whether LATEST is the last stable offset instead of the high watermark.
        made: the topics were made just now: they are waited for as long as there is time, others for `unknown_topic_timeout`.
        later: see `finding`; an election is waited for.
        patience: seconds for which a leader is waited for before that, but half of the time at most; NEVER: all of the time.
        into: takes the answers, also those that came before an error.
    Raises:
        the broker's error, TimedOut.
    """
    found: dict[TopicPartition, int] = {} if into is None else into

    begin, enough = time.monotonic(), until

    def ask(node: int, part: list[TopicPartition]) -> Steps[None]:
        try:
            yield from hear(node, part)
        except TransportError as why:
            if isinstance(why, TimedOut):
                why.with_context(message=ListOffsetsRequest.NAME, topic=part[0][0], partition=part[0][1])
            if later is None or time.monotonic() < enough:
                raise
            later.update(dict.fromkeys(part, why))

    def hear(node: int, part: list[TopicPartition]) -> Steps[None]:
        conn = yield from cluster.connecting(node, "main", enough)
        version = wire.version_for(conn, ListOffsetsRequest)
        request = _request(cluster, {key: times[key] for key in part}, committed)
        reply: ListOffsetsResponse = yield from cluster.answered(conn, request, enough, version=version)
        problem: WireprotoError | None = None
        for topic in reply.topics:
            for entry in topic.partitions:
                key = topic.name, entry.partition_index
                if entry.error_code:
                    problem = error(entry.error_code, message=reply.NAME, version=version, topic=key[0], partition=key[1])
                elif version == 0:
                    found[key] = entry.old_style_offsets[0] if entry.old_style_offsets else -1
                else:
                    found[key] = entry.offset
        if problem is not None:
            raise problem

    missing: UnknownTopicOrPartition | LeaderNotAvailable | None = None
    elected = begin + min(_ELECTION, (until - begin) / 2)

    def attempt() -> Steps[None]:
        nonlocal missing, enough
        try:
            without: set[TopicPartition] | None = set() if later is not None and time.monotonic() >= elected else None
            left = [key for key in times if key not in found and (later is None or key not in later)]
            nodes = yield from by_leader(cluster, left, until, without)
            if enough == until and later is not None and patience != NEVER:
                now = time.monotonic()
                enough = now + min(ENOUGH if patience is None else patience, (until - now) / 2)
            asked = [(f"asking node {node} for offsets", ask(node, part)) for node, part in nodes.items()]
            yield from cluster.tasks.every(asked, NEVER)  # each keeps the deadline itself, and names what is not answered
            if later is not None and without:
                later.update({key: no_leader([key]) for key in without})
        except (UnknownTopicOrPartition, LeaderNotAvailable) as why:
            missing = why
            raise

    def refresh(why: WireprotoError) -> Steps[None]:
        return cluster.refreshing({topic for topic, _ in times}, until)

    unknown = until if made else time.monotonic() + cluster.options.unknown_topic_timeout

    def judge(why: WireprotoError) -> Verdict:
        # a leader may learn late of a topic that other nodes know; one that they do not know either is gone
        problem = cluster.metadata.problem(why.topic) if why.topic is not None else None
        gone = time.monotonic() >= unknown and isinstance(problem, UnknownTopicOrPartition)
        return verdict(why, transient=(UnknownServerError,), final=(UnknownTopicOrPartition,) if gone else ())

    try:
        yield from cluster.retrying(attempt, until, refresh=refresh, judge=judge)
    except TimedOut:
        if missing is None:
            raise
        raise missing from None  # the time ran out while it was asked for once more: the last response counts
    return found


def earliest_local(cluster: KafkaCluster, key: TopicPartition, until: float) -> Steps[int]:
    """Return the first offset on the leader's own disk; earlier records are in remote storage. -1: there is no remote storage."""
    conn = yield from cluster.to_leader(*key)(until)
    if wire.version_for(conn, ListOffsetsRequest) < _LOCAL_SINCE:
        return -1
    found = yield from listing(cluster, {key: _LOCAL_TIME}, until, committed=False)
    return found[key]


def by_leader(
    cluster: KafkaCluster, keys: Iterable[TopicPartition], until: float, leaderless: set[TopicPartition] | None = None
) -> Steps[dict[int, list[TopicPartition]]]:
    """Group partitions by the node that leads them; asks for metadata once where a leader is not known.

    Args:
        keys: the partitions. until: the deadline, a time.monotonic() value.
        leaderless: takes the partitions that have no leader; None: that raises LeaderNotAvailable.
    Raises:
        UnknownTopicOrPartition: there is no such partition. LeaderNotAvailable. TimedOut.
    """
    nodes: dict[int, list[TopicPartition]] = {}
    asked: set[str] = set()
    for topic, partition in keys:
        node = cluster.metadata.leader(topic, partition)
        if node is None and topic not in asked:
            asked.add(topic)
            yield from cluster.looking_up(topic, until)
            node = cluster.metadata.leader(topic, partition)
        if node is None:
            known = cluster.metadata.topics.get(topic)
            exists = known is not None and partition in known.partitions
            if exists and leaderless is not None:
                leaderless.add((topic, partition))
                continue
            raise (LeaderNotAvailable if exists else UnknownTopicOrPartition)(topic=topic, partition=partition)
        nodes.setdefault(node.id, []).append((topic, partition))
    return nodes


def no_leader(partitions: Collection[TopicPartition]) -> LeaderNotAvailable:
    """Make the error that names these partitions; its topic and partition are those of the first."""
    topic, partition = min(partitions)
    return LeaderNotAvailable(f"there is no leader of {shown(partitions)}", topic=topic, partition=partition)


def _request(cluster: KafkaCluster, times: Mapping[TopicPartition, int], committed: bool) -> ListOffsetsRequest:
    """Make the request for one leader."""
    topics: dict[str, list[Any]] = {}
    for (topic, partition), timestamp in times.items():
        entry = ListOffsetsPartition(
            partition_index=partition, current_leader_epoch=cluster.metadata.epoch(topic, partition), timestamp=timestamp, max_num_offsets=1
        )
        topics.setdefault(topic, []).append(entry)
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(committed),
        topics=tuple(ListOffsetsTopic(name=name, partitions=tuple(parts)) for name, parts in topics.items()),
        timeout_ms=_TIERED_TIMEOUT,
    )


def log_positions(offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, Position]:
    """Convert offsets by partition to positions."""
    return {key: LogOffset(*key, offset) for key, offset in offsets.items()}
