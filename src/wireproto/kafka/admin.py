"""The Admin: topics, groups, positions.

What it is: requests to the right nodes and their answers as the common types. Each call asks anew; nothing is kept. Of transactions:
`admin_transactions`.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..deadlines import deadline_after
from ..errors import BrokerError, UnsupportedVersion, WireprotoError
from ..flow.beside import answers
from ..flow.resolve import named, shown
from ..net.closing import Closing
from ..net.dial import peer_name
from ..net.task import Steps, operation
from ..position import LATEST, Position, TopicPartition, Where
from ..records import GroupInfo, GroupMember, PartitionInfo, TopicInfo
from . import assignor, offsets, positions, timing
from .admin_transactions import STATE as STATE
from .admin_transactions import ListedTransaction as ListedTransaction
from .admin_transactions import ProducerInfo as ProducerInfo
from .admin_transactions import TransactionAdmin
from .admin_transactions import TransactionInfo as TransactionInfo
from .codes import GroupIdNotFound, LeaderNotAvailable, UnknownTopicId, UnknownTopicOrPartition, VersionUnsupported, error
from .messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
    DescribableLogDirTopic,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    DescribeLogDirsRequest,
    ListGroupsRequest,
)

if TYPE_CHECKING:
    from .cluster import KafkaCluster
    from .metadata import Topic

_DEFAULT_FACTOR = 4
_TOPIC_STATES = 6
_GONE = (UnknownTopicOrPartition.code, UnknownTopicId.code)


class KafkaAdmin(TransactionAdmin, Closing):
    """See `wireproto.roles.Admin`. May be shared by threads."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._tasks = cluster.tasks

    @operation
    def list_topics(self, *, timeout: float = 30.0) -> Steps[list[str]]:
        """Names of all topics, without the brokers' own ones, sorted."""
        yield from self._asking_for(None, deadline_after(timeout))
        return self._shown()

    def _asking_for(self, topics: Collection[str] | None, deadline: float) -> Steps[None]:
        cluster = self._cluster
        yield from cluster.retrying(lambda: cluster.refreshing(topics, deadline), deadline)

    def _shown(self) -> list[str]:
        return sorted(name for name, topic in self._cluster.metadata.topics.items() if not topic.internal and not topic.error)

    @operation
    def describe_topic(self, topic: str, *, timeout: float = 30.0) -> Steps[TopicInfo]:
        """Partitions with leader, replicas, in-sync and offline ones; details: topic id as hex, whether internal."""
        return self._info((yield from self._cluster.looking_up(topic, deadline_after(timeout))))

    @operation
    def describe_topics(self, topics: Iterable[str] | None = None, *, timeout: float = 30.0) -> Steps[dict[str, TopicInfo]]:
        """As `describe_topic`, of many by one request.

        Args:
            topics: their names; None: all that `list_topics` tells.
        Raises:
            UnknownTopicOrPartition: there is none of a name, with that as its `topic`.
        """
        deadline = deadline_after(timeout)
        names = None if topics is None else sorted(set(topics))
        if names != []:
            yield from self._asking_for(names, deadline)
        found: dict[str, TopicInfo] = {}
        for name in self._shown() if names is None else names:
            entry = yield from self._cluster.knowing(name, deadline)  # one just made is asked for again: other nodes may know more
            found[name] = self._info(entry)
        return found

    def _info(self, entry: Topic) -> TopicInfo:
        partitions = []
        for number, leader in entry.partitions.items():
            node = self._cluster.metadata.nodes.get(leader.node)
            details = {
                "leader": leader.node,
                "leader_epoch": leader.epoch,
                "replicas": leader.replicas,
                "in_sync": leader.in_sync,
                "offline": leader.offline,
            }
            partitions.append(PartitionInfo(number, f"{node.host}:{node.port}" if node is not None else None, details))
        return TopicInfo(entry.name, tuple(partitions), {"internal": entry.internal, "topic_id": entry.shown_id})

    @operation
    def sizes(self, topics: Iterable[str], *, timeout: float = 30.0) -> Steps[dict[TopicPartition, int]]:
        """Bytes that each partition of these topics has on its leader's disk. Brokers tell it since Kafka 1.0.

        Raises:
            LeaderNotAvailable: a partition has no leader. TransportError: a leader does not answer. `known` has what the others answered.
        """
        cluster, deadline = self._cluster, deadline_after(timeout)
        keys: list[TopicPartition] = []
        for topic in sorted(set(topics)):
            entry = yield from cluster.knowing(topic, deadline)
            keys += [(topic, number) for number in entry.partitions]
        found: dict[TopicPartition, int] = {}

        def ask(node: int, led: list[TopicPartition]) -> Steps[None]:
            wanted: dict[str, list[int]] = {}
            for topic, number in led:
                wanted.setdefault(topic, []).append(number)
            asked = tuple(DescribableLogDirTopic(topic=name, partitions=numbers) for name, numbers in wanted.items())
            reply = yield from cluster.asking(DescribeLogDirsRequest(topics=asked), deadline, cluster.to_node(node))
            found.update(dict.fromkeys(led, 0))
            stored = [(topic.name, part) for folder in reply.results for topic in folder.topics for part in topic.partitions]
            for topic, part in stored:  # one that moves between two folders is in both
                found[topic, part.partition_index] = max(found[topic, part.partition_index], part.partition_size)

        without = set[TopicPartition]()
        nodes = yield from positions.by_leader(cluster, keys, deadline, without)
        try:
            yield from cluster.tasks.every([(f"asking node {node} for sizes", ask(node, led)) for node, led in nodes.items()], deadline)
            if without:
                raise positions.no_leader(without)
        except WireprotoError as why:
            why.known = found
            raise
        return {key: found[key] for key in keys}

    @operation
    def create_topic(
        self,
        topic: str,
        *,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        replication: int | None = None,
        timeout: float = 30.0,
    ) -> Steps[None]:
        """Create it and wait until every partition has a leader that answers for it.

        Args:
            config: settings by their names (``cleanup.policy`` …).
            replication: copies of each partition; None: as the cluster is set (1 on brokers before 2.4).
        Raises:
            TopicAlreadyExists, InvalidTopic, PolicyViolation … as the broker answers.
        """
        deadline = deadline_after(timeout)

        def make(version: int) -> CreateTopicsRequest:
            factor = replication if replication is not None else (-1 if version >= _DEFAULT_FACTOR else 1)
            settings = tuple(CreatableTopicConfig(name=name, value=value) for name, value in (config or {}).items())
            wanted = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=factor, configs=settings)
            return CreateTopicsRequest(topics=(wanted,), timeout_ms=_milliseconds(deadline))

        def check(reply: CreateTopicsResponse) -> BrokerError | None:
            return _first_error(reply.topics, topic)

        cluster = self._cluster
        yield from cluster.asking(make, deadline, cluster.to_controller, kind=CreateTopicsRequest, check=check, slow=True)
        yield from cluster.retrying(lambda: self._usable(topic, partitions, deadline), deadline)
        # A broker tells that it leads a little before it does: it publishes the metadata first, then opens the logs.
        made = {(topic, number): positions.LATEST_TIME for number in range(partitions)}
        yield from positions.listing(cluster, made, deadline, committed=False, made=True)

    def _usable(self, topic: str, partitions: int, deadline: float) -> Steps[None]:
        """Whether every node that we know tells the new topic with all its leaders; raises a retriable error until then."""
        cluster = self._cluster
        yield from cluster.refreshing((topic,), deadline)
        entry = cluster.metadata.topics.get(topic)
        if entry is None or entry.error or len(entry.available) < partitions:
            code = entry.error if entry is not None and entry.error else LeaderNotAvailable.code
            raise error(code, "the new topic is not ready yet", topic=topic)

    @operation
    def delete_topic(self, topic: str, *, timeout: float = 30.0) -> Steps[None]:
        """Delete it and wait until the brokers do not list it any more. Raises UnknownTopicOrPartition when there is none."""
        deadline = deadline_after(timeout)
        cluster = self._cluster

        def make(version: int) -> DeleteTopicsRequest:
            timeout_ms = _milliseconds(deadline)
            if version >= _TOPIC_STATES:
                return DeleteTopicsRequest(topics=(DeleteTopicState(name=topic),), timeout_ms=timeout_ms)
            return DeleteTopicsRequest(topic_names=(topic,), timeout_ms=timeout_ms)

        def check(reply: DeleteTopicsResponse) -> BrokerError | None:
            return _first_error(reply.responses, topic)

        unknown = (UnknownTopicOrPartition,)
        yield from cluster.asking(make, deadline, cluster.to_controller, kind=DeleteTopicsRequest, check=check, final=unknown, slow=True)

        def gone() -> Steps[None]:
            yield from cluster.refreshing((topic,), deadline)
            entry = cluster.metadata.topics.get(topic)
            if entry is not None and not entry.error:
                raise LeaderNotAvailable("the topic is still being deleted", topic=topic)
            cluster.metadata.forget(topic)

        yield from cluster.retrying(gone, deadline)

    @operation
    def positions(
        self,
        topic: str | Iterable[str],
        at: Where = LATEST,
        *,
        partitions: Collection[int] | None = None,
        committed: bool = False,
        timeout: float = 30.0,
    ) -> Steps[dict[TopicPartition, Position]]:
        """Where EARLIEST, LATEST or AtTime lie now in each partition; LATEST where nothing is as late as a time.

        Args:
            topic: or several, which are asked for together.
            at: a mapping asks for the partitions that it names alone, and where the client knows them, their leaders alone are asked.
            partitions: those that are asked for; None: all.
            committed: as a reader of committed records sees it: LATEST is the last stable offset, not the high watermark.
        Raises:
            LeaderNotAvailable: a partition has no leader; it names that one, and `known` has the positions of the others.
            TransportError: a leader does not answer; `known` has those that the others answered, without times.
        """
        deadline = deadline_after(timeout)
        names = [topic] if isinstance(topic, str) else sorted(set(topic))
        asked = named(at)
        if asked is None and names:
            yield from self._asking_for(names, deadline)
        keys: list[TopicPartition] = []
        for name in names:
            entry = yield from self._cluster.knowing(name, deadline, [number for of, number in asked or () if of == name])
            keys += [(name, number) for number in entry.partitions if partitions is None or number in partitions]
        requests = positions.PLACES.requests(at, keys, "at")
        options = replace(self._cluster.options, isolation="committed" if committed else "uncommitted")
        return positions.log_positions((yield from timing.finding(self._cluster, requests, deadline, options)))

    @operation
    def list_groups(self, *, timeout: float = 30.0) -> Steps[list[str]]:
        """Names of all groups, of every kind, sorted: every node is asked for those it coordinates.

        A node that does not answer is named in the log, and what it alone knows is left out; where none answers, all are asked again.
        """
        cluster, deadline = self._cluster, deadline_after(timeout)

        def ask(late: float) -> Steps[dict[str, Steps[Any]]]:
            yield from cluster.retrying(lambda: cluster.refreshing((), deadline), deadline)
            return {
                peer_name(node.address): cluster.asking(ListGroupsRequest(), late, cluster.to_node(number), check=_code)
                for number, node in cluster.metadata.nodes.items()
            }

        replies, _ = yield from answers(cluster.tasks, cluster.log, ask, deadline, cluster.options.request_timeout)
        return sorted({group.group_id for reply in replies.values() for group in reply.groups})

    @operation
    def describe_group(self, group: str, *, timeout: float = 30.0) -> Steps[GroupInfo]:
        """State and members of a group with what each holds, of the classic protocol or of KIP-848's. Raises GroupIdNotFound for a group
        that nobody knows, also where the broker (before DescribeGroups v6) calls it ``Dead``."""
        deadline = deadline_after(timeout)
        try:
            return (yield from self._classic_group(group, deadline))
        except GroupIdNotFound as unknown:
            newer = yield from self._newer_group(group, deadline)
            if newer is None:
                raise unknown
            return newer

    def _newer_group(self, group: str, deadline: float) -> Steps[GroupInfo | None]:
        """A group of KIP-848's protocol; None: there is none, or brokers know no such groups (before 3.7, or where they are turned off)."""
        cluster = self._cluster

        def check(reply: ConsumerGroupDescribeResponse) -> BrokerError | None:
            found = reply.groups[0]
            return error(found.error_code, found.error_message or f"group {group!r}") if found.error_code else None

        request = ConsumerGroupDescribeRequest(group_ids=(group,))
        to = cluster.to_coordinator(group)
        try:
            reply = yield from cluster.asking(request, deadline, to, check=check, refresh=lambda why: cluster.lost_coordinator(group))
        except (GroupIdNotFound, UnsupportedVersion, VersionUnsupported):
            return None
        found = reply.groups[0]
        members = []
        for member in found.members:
            held = ((one.topic_name, number) for one in member.assignment.topic_partitions for number in one.partitions)
            members.append(GroupMember(member.member_id, member.client_id, tuple(sorted(held))))
        details = {"protocol_type": "consumer", "protocol": found.assignor_name, "epoch": found.group_epoch}
        return GroupInfo(group, found.group_state, tuple(members), details)

    def _classic_group(self, group: str, deadline: float) -> Steps[GroupInfo]:
        cluster = self._cluster

        def check(reply: DescribeGroupsResponse) -> BrokerError | None:
            found = reply.groups[0]
            code = found.error_code or (GroupIdNotFound.code if found.group_state == "Dead" else 0)
            return error(code, found.error_message or f"group {group!r}") if code else None

        request = DescribeGroupsRequest(groups=(group,))
        to = cluster.to_coordinator(group)
        reply = yield from cluster.asking(request, deadline, to, check=check, refresh=lambda why: cluster.lost_coordinator(group))
        found = reply.groups[0]
        members = []
        for member in found.members:
            try:
                held = tuple(sorted(assignor.decode_assignment(bytes(member.member_assignment))))
            except WireprotoError:
                held = ()  # another kind of group has its own format there
            members.append(GroupMember(member.member_id, member.client_id, held))
        details = {"protocol_type": found.protocol_type, "protocol": found.protocol_data}
        return GroupInfo(group, found.group_state, tuple(members), details)

    @operation
    def group_positions(self, group: str, topic: str, *, timeout: float = 30.0) -> Steps[dict[TopicPartition, Position]]:
        """Where the group resumes in the topic's partitions; partitions without a commit are left out, and so are, with a warning in the
        log, those whose position an open transaction is about to move."""
        cluster, deadline = self._cluster, deadline_after(timeout)
        entry = yield from cluster.looking_up(topic, deadline)
        keys = [(topic, number) for number in entry.partitions]
        to, pending = cluster.to_coordinator(group), set[TopicPartition]()
        found = yield from offsets.fetching(cluster, group, keys, deadline, to=to, pending=pending)
        if pending:
            text = "group %s: left out is what an open transaction is about to move: %s"
            cluster.log.warning(("pending", group), text, group, shown(pending))
        return positions.log_positions(found)

    @operation
    def commit(self, group: str, places: Mapping[TopicPartition, Position], *, timeout: float = 30.0) -> Steps[frozenset[TopicPartition]]:
        """Say where a group resumes that has no members: for who reads by himself and tells others how far he is.

        Args:
            places: the first offsets not done, by partition.
        Returns:
            the partitions that are not there any more.
        Raises:
            UnknownMemberId: the group has members, which alone may commit.
        """
        cluster, deadline = self._cluster, deadline_after(timeout)
        wanted = {key: positions.offset_in(key, place, "commit") for key, place in places.items()}
        codes = yield from offsets.committing(cluster, group, wanted, deadline, to=cluster.to_coordinator(group), ours=_GONE)
        return frozenset(key for key, code in codes.items() if code)

    def close(self, timeout: float = 30.0) -> None:
        """Nothing is held open."""


def _milliseconds(deadline: float) -> int:
    """What a broker may take, as its requests say it."""
    return int(min(max(deadline - time.monotonic(), 0.001) * 1000, 0x7FFFFFFF))


def _first_error(results: Any, topic: str) -> BrokerError | None:
    for result in results:
        if result.error_code:
            return error(result.error_code, getattr(result, "error_message", None) or "", topic=topic)
    return None


def _code(reply: Any) -> BrokerError | None:
    return error(reply.error_code) if reply.error_code else None
