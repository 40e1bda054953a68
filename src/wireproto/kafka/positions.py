"""EARLIEST, LATEST, a time or positions, as offsets of partitions.

What it is: ListOffsets for many partitions at once, each sent to its leader, with retries. A pure front (`wanted`) tells what has to
be asked.

    where                    ListOffsets timestamp
    EARLIEST                 -2
    LATEST                   -1: high watermark, or last stable offset for readers of committed records
    (`earliest_local`)       -4: what the leader has on its own disk
    AtTime(ms)               ms; -1 comes back when nothing is that late: LATEST then
    Position, mapping        nothing is asked
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import OptionError, WireprotoError
from ..position import AtTime, Earliest, Latest, LogOffset, Position, TopicPartition, Where
from . import wire
from .codes import LeaderNotAvailable, UnknownTopicOrPartition, error
from .messages import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic

if TYPE_CHECKING:
    from .cluster import KafkaCluster

LATEST_TIME, EARLIEST_TIME, _LOCAL_TIME = -1, -2, -4
_LOCAL_SINCE = 8
_TIERED_TIMEOUT = 30_000


def named(where: Where | None) -> Mapping[TopicPartition, Position] | None:
    """The partitions that a Position or a mapping names; None for everything else."""
    if isinstance(where, Position):
        return {(where.topic, where.partition): where}
    if isinstance(where, Mapping):
        return where
    return None


def offset_of(position: Position, key: TopicPartition) -> int:
    """The offset in a Kafka position of this partition; raises OptionError for any other."""
    if not isinstance(position, LogOffset):
        raise OptionError(f"{position!r} is not a Kafka position")
    if (position.topic, position.partition) != key:
        raise OptionError(f"{position!r} is not a position in {key[0]}[{key[1]}]")
    if position.offset < 0:
        raise OptionError(f"{position!r} is before the beginning")
    return position.offset


def find(
    cluster: KafkaCluster, keys: Iterable[TopicPartition], where: Where, deadline: float, *, committed: bool
) -> dict[TopicPartition, int]:
    """Offsets that `where` means now in each of these partitions.

    Raises:
        OptionError: positions that do not fit. The broker's error, TimedOut.
    """
    wanted = list(keys)
    given = named(where)
    if given is not None:
        missing = [key for key in wanted if key not in given]
        if missing:
            raise OptionError(f"no position for {missing[0][0]}[{missing[0][1]}]")
        return {key: offset_of(given[key], key) for key in wanted}
    if isinstance(where, Earliest):
        return list_offsets(cluster, wanted, EARLIEST_TIME, deadline, committed=committed)
    if isinstance(where, Latest):
        return list_offsets(cluster, wanted, LATEST_TIME, deadline, committed=committed)
    if not isinstance(where, AtTime):
        raise OptionError(f"{where!r} is no place to start or stop: EARLIEST, LATEST, AtTime, a Position or a mapping of them")
    found = list_offsets(cluster, wanted, where.ms, deadline, committed=committed)
    later = [key for key, offset in found.items() if offset < 0]
    return {**found, **list_offsets(cluster, later, LATEST_TIME, deadline, committed=committed)} if later else found


def list_offsets(
    cluster: KafkaCluster, keys: Sequence[TopicPartition], timestamp: int, deadline: float, *, committed: bool
) -> dict[TopicPartition, int]:
    """Ask the leaders; partitions that are refused with a retriable code are asked for again."""
    found: dict[TopicPartition, int] = {}

    def attempt() -> None:
        problem: WireprotoError | None = None
        for node, part in by_leader(cluster, [key for key in keys if key not in found], deadline).items():
            try:
                conn = cluster.node_connection(node, "main", deadline)
                version = wire.version_for(conn, ListOffsetsRequest)
                reply: ListOffsetsResponse = wire.exchange(conn, _request(cluster, part, timestamp, committed), deadline, version=version)
            except WireprotoError as why:
                problem = problem or why
                continue
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

    cluster.retried(attempt, deadline, lambda why: cluster.refresh({topic for topic, _ in keys}, deadline))
    return found


def earliest_local(cluster: KafkaCluster, key: TopicPartition, deadline: float) -> int:
    """The first offset on the leader's own disk: what lies before is in remote storage. -1 where the leader knows of no such thing."""
    conn = cluster.to_leader(*key)(deadline)
    if wire.version_for(conn, ListOffsetsRequest) < _LOCAL_SINCE:
        return -1
    return list_offsets(cluster, [key], _LOCAL_TIME, deadline, committed=False)[key]


def by_leader(cluster: KafkaCluster, keys: Iterable[TopicPartition], deadline: float) -> dict[int, list[TopicPartition]]:
    """Partitions by the node that leads them; asks for metadata once where a leader is not known."""
    nodes: dict[int, list[TopicPartition]] = {}
    asked: set[str] = set()
    for topic, partition in keys:
        node = cluster.metadata.leader(topic, partition)
        if node is None and topic not in asked:
            asked.add(topic)
            cluster.topic_entry(topic, deadline)
            node = cluster.metadata.leader(topic, partition)
        if node is None:
            known = cluster.metadata.topics.get(topic)
            exists = known is not None and partition in known.partitions
            raise (LeaderNotAvailable if exists else UnknownTopicOrPartition)(topic=topic, partition=partition)
        nodes.setdefault(node.id, []).append((topic, partition))
    return nodes


def _request(cluster: KafkaCluster, keys: Iterable[TopicPartition], timestamp: int, committed: bool) -> ListOffsetsRequest:
    topics: dict[str, list[Any]] = {}
    for topic, partition in keys:
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
    return {key: LogOffset(*key, offset) for key, offset in offsets.items()}
