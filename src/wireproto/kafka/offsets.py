"""Commits and fetches offsets: where a group resumes.

OffsetCommit and OffsetFetch in every version from 1 on, to the group's coordinator, with retries. Since v10 they name topics by id; where
an id is not known the newest version that takes names is spoken. Keeps nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import BrokerError, WireprotoError
from ..flow.resolve import shown
from ..position import TopicPartition
from .codes import UnknownTopicOrPartition, UnstableOffsetCommit, error
from .messages import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from .metadata import NO_ID

if TYPE_CHECKING:
    from ..net.task import Steps
    from .cluster import KafkaCluster, Route
    from .identity import Identity

_COMMIT_BY_ID = 10
_WITHIN_BY_ID, _WITH_MEMBER = 6, 3
_FETCH_BY_ID = 10
_FETCH_GROUPS = 8
_PENDING = 1.0
"""Seconds for which an offset that an open transaction may change is waited for, where the others are wanted without it."""
Codes = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class GroupCommit:
    """A group's member, and the offsets to commit: for a commit by a transaction, which is refused as the member's own would be (KIP-447).

    Attributes:
        group: the group's name.
        member: the member id.
        generation: the member's generation.
        static_name: the group.instance.id; None: a dynamic member.
        offsets: where the group is to resume.
        epochs: leader epochs of the last batches before these, where they are known.
    """

    group: str
    member: str
    generation: int
    static_name: str | None
    offsets: Mapping[TopicPartition, int]
    epochs: Mapping[TopicPartition, int]


def _grouped(keys: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return partition numbers by topic, in order."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(keys):
        topics.setdefault(topic, []).append(partition)
    return topics


def _ids(cluster: KafkaCluster, topics: Iterable[str]) -> dict[str, bytes]:
    """Return the ids of topics; zeros: not known."""
    known = cluster.metadata.topics
    return {name: known[name].id if name in known else NO_ID for name in topics}


def committing(
    cluster: KafkaCluster,
    group: str,
    offsets: Mapping[TopicPartition, int],
    until: float,
    *,
    to: Route,
    member: str = "",
    generation: int = -1,
    static_name: str | None = None,
    ours: Iterable[int] = (),
    epochs: Mapping[TopicPartition, int] | None = None,
) -> Steps[Codes]:
    """Commit offsets.

    Args:
        group: its name. offsets: by partition. until: the deadline, a time.monotonic() value. to: the route to the coordinator.
        member, generation, static_name: of the member that commits; none: for a group without members.
        ours: error codes that are returned instead of raised.
        epochs: leader epochs of the last batches before these offsets, where they are known; stored beside them.
    Returns:
        the code of each partition: 0 or one of `ours`.
    Raises:
        the broker's error for any other code, after retries where it is retriable. TimedOut.
    """
    known = frozenset(ours)
    ids: dict[str, bytes] = {}  # of each attempt: a topic may have been made again
    codes: Codes = {}

    def cap() -> int | None:
        ids.update(_ids(cluster, {topic for topic, _ in offsets}))
        return None if all(found != NO_ID for found in ids.values()) else _COMMIT_BY_ID - 1

    def topics() -> tuple[OffsetCommitRequestTopic, ...]:
        return tuple(
            OffsetCommitRequestTopic(
                name=topic,
                topic_id=ids[topic],
                partitions=tuple(
                    OffsetCommitRequestPartition(
                        partition_index=number,
                        committed_offset=offsets[topic, number],
                        committed_leader_epoch=(epochs or {}).get((topic, number), -1),
                        committed_metadata="",
                        commit_timestamp=-1,
                    )
                    for number in numbers
                ),
            )
            for topic, numbers in _grouped(offsets).items()
        )

    def make(version: int) -> OffsetCommitRequest:
        return OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            group_instance_id=static_name if version >= 7 else None,
            topics=topics(),
        )

    def check(reply: OffsetCommitResponse) -> BrokerError | None:
        names = {found: name for name, found in ids.items()}
        problem: BrokerError | None = None
        for topic in reply.topics:
            name = topic.name or names.get(topic.topic_id, "")
            for part in topic.partitions:
                codes[name, part.partition_index] = part.error_code
                if part.error_code and part.error_code not in known:
                    problem = error(part.error_code, f"committing for group {group!r}", topic=name, partition=part.partition_index)
        return problem

    def again(why: WireprotoError) -> None:
        cluster.lost_coordinator(group)

    watch = cluster.watching(group)
    yield from cluster.asking(make, until, to, kind=OffsetCommitRequest, check=check, refresh=again, cap=cap, meanwhile=watch)
    return codes


def committing_within(
    cluster: KafkaCluster, transaction: str, identity: Identity, group_commit: GroupCommit, until: float, *, cap: int | None
) -> Steps[None]:
    """Commit offsets as part of a transaction (TxnOffsetCommit, at the group's coordinator).

    Args:
        transaction: the transactional id. identity: its producer id and epoch. group_commit: member and offsets.
        until: the deadline, a time.monotonic() value. cap: the newest version to use.
    Raises:
        the broker's error that a partition is refused with. TimedOut.
    """
    group, offsets = group_commit.group, group_commit.offsets
    ids: dict[str, bytes] = {}  # of each attempt, as in `committing`

    def most() -> int | None:
        ids.update(_ids(cluster, {topic for topic, _ in offsets}))
        named = None if all(found != NO_ID for found in ids.values()) else _WITHIN_BY_ID - 1
        return cap if named is None or (cap is not None and cap < named) else named

    def part(key: TopicPartition) -> TxnOffsetCommitRequestPartition:
        return TxnOffsetCommitRequestPartition(
            partition_index=key[1],
            committed_offset=offsets[key],
            committed_leader_epoch=group_commit.epochs.get(key, -1),
            committed_metadata="",
        )

    def make(version: int) -> TxnOffsetCommitRequest:
        topics = tuple(
            TxnOffsetCommitRequestTopic(name=topic, topic_id=ids[topic], partitions=tuple(part((topic, number)) for number in numbers))
            for topic, numbers in _grouped(offsets).items()
        )
        member = version >= _WITH_MEMBER
        return TxnOffsetCommitRequest(
            transactional_id=transaction,
            group_id=group,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            generation_id_or_member_epoch=group_commit.generation if member else -1,
            member_id=group_commit.member if member else "",
            group_instance_id=group_commit.static_name if member else None,
            topics=topics,
        )

    def check(reply: TxnOffsetCommitResponse) -> BrokerError | None:
        names = {found: name for name, found in ids.items()}
        for topic in reply.topics:
            name = topic.name or names.get(topic.topic_id, "")
            for answer in topic.partitions:
                if answer.error_code:
                    text = f"committing for group {group!r} in a transaction"
                    return error(answer.error_code, text, topic=name, partition=answer.partition_index)
        return None

    yield from cluster.asking(
        make,
        until,
        cluster.to_coordinator(group),
        kind=TxnOffsetCommitRequest,
        check=check,
        refresh=lambda why: cluster.lost_coordinator(group),
        cap=most,
        meanwhile=cluster.watching(group),
    )


def commit(cluster: KafkaCluster, group: str, offsets: Mapping[TopicPartition, int], deadline: float, **how: Any) -> Codes:
    """Run `committing`, and wait for it."""
    return cluster.drive(committing(cluster, group, offsets, deadline, **how), deadline)


def fetch_request(group: str, keys: Iterable[TopicPartition], ids: Mapping[str, bytes], version: int) -> OffsetFetchRequest:
    """Make the request for one group; from v7 on it has the broker wait for offsets that a transaction may still take back."""
    topics, stable = _grouped(keys), version >= 7
    if version < _FETCH_GROUPS:
        named = tuple(OffsetFetchRequestTopic(name=name, partition_indexes=tuple(numbers)) for name, numbers in topics.items())
        return OffsetFetchRequest(group_id=group, topics=named, require_stable=stable)
    several = tuple(
        OffsetFetchRequestTopics(name=name, topic_id=ids[name], partition_indexes=tuple(numbers)) for name, numbers in topics.items()
    )
    return OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=group, topics=several),), require_stable=stable)


def read_offsets(
    group: str,
    reply: OffsetFetchResponse,
    keys: Iterable[TopicPartition],
    ids: Mapping[str, bytes],
    epochs: dict[TopicPartition, int] | None = None,
    pending: set[TopicPartition] | None = None,
) -> tuple[dict[TopicPartition, int], BrokerError | None]:
    """Read the offsets in a response, and its first error; partitions without an offset are left out.

    Args:
        group: its name, for errors.
        reply: the response.
        keys: what was asked for: a partition that the response leaves out is not one without a commit, or it would begin elsewhere.
        ids: of the topics as they were asked for: metadata may know others by now.
        epochs: takes the leader epochs committed with the offsets.
        pending: takes the partitions whose offset an open transaction may change; None: that is an error.
    """
    found: dict[TopicPartition, int] = {}
    entry: Any = reply.groups[0] if reply.groups else reply
    problem = error(entry.error_code, f"offsets of group {group!r}") if entry.error_code else None
    names, unanswered = {known: name for name, known in ids.items()}, set(keys)
    for topic in entry.topics:
        name = getattr(topic, "name", "") or names.get(getattr(topic, "topic_id", NO_ID), "")
        for part in topic.partitions:
            unanswered.discard((name, part.partition_index))
            if part.error_code == UnstableOffsetCommit.code and pending is not None:
                pending.add((name, part.partition_index))
            elif part.error_code:
                problem = problem or error(part.error_code, f"offsets of group {group!r}", topic=name, partition=part.partition_index)
            elif part.committed_offset >= 0:
                found[name, part.partition_index] = part.committed_offset
                if epochs is not None and part.committed_leader_epoch >= 0:
                    epochs[name, part.partition_index] = part.committed_leader_epoch
    if unanswered and problem is None:
        name, number = min(unanswered)
        problem = UnknownTopicOrPartition(f"offsets of group {group!r}: the response has no entry for it", topic=name, partition=number)
    return found, problem


def fetching(
    cluster: KafkaCluster,
    group: str,
    keys: Iterable[TopicPartition],
    until: float,
    *,
    to: Route,
    epochs: dict[TopicPartition, int] | None = None,
    pending: set[TopicPartition] | None = None,
) -> Steps[dict[TopicPartition, int]]:
    """Fetch the committed offsets of a group; partitions without one are left out.

    Args:
        group: its name. keys: the partitions. until: the deadline, a time.monotonic() value. to: the route to the coordinator.
        epochs: takes the leader epochs committed with the offsets.
        pending: takes those whose offset an open transaction may change, once they have been waited for a moment; they are left out. None:
            they are waited for.
    Raises:
        UnstableOffsetCommit: of these partitions, which it names. Any other error of the broker, after retries. TimedOut.
    """
    wanted = tuple(keys)
    enough = time.monotonic() + _PENDING
    ids: dict[str, bytes] = {}  # of each attempt, as in `committing`

    def cap() -> int | None:
        ids.update(_ids(cluster, {topic for topic, _ in wanted}))
        return None if all(found != NO_ID for found in ids.values()) else _FETCH_BY_ID - 1

    def check(answer: OffsetFetchResponse) -> BrokerError | None:
        held: set[TopicPartition] = set()
        problem = read_offsets(group, answer, wanted, ids, pending=held)[1]
        if problem is None and held and (pending is None or time.monotonic() < enough):
            topic, number = min(held)
            text = f"offsets of group {group!r}: an open transaction may change those of {shown(held)}"
            return UnstableOffsetCommit(text, topic=topic, partition=number)
        return problem

    reply = yield from cluster.asking(
        lambda version: fetch_request(group, wanted, ids, version),
        until,
        to,
        kind=OffsetFetchRequest,
        check=check,
        refresh=lambda why: cluster.lost_coordinator(group),
        cap=cap,
        meanwhile=cluster.watching(group),
    )
    return read_offsets(group, reply, wanted, ids, epochs, pending)[0]
