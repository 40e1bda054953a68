"""Administers topics, groups and offsets.

Sends requests to the right nodes and returns their answers as the types common to all protocols. Each call asks the brokers; nothing is
kept between calls. The methods about transactions are in `admin_transactions`.

Errors that every method here may raise: TimedOut (or the last error of the brokers when time ran out before a retry), Unreachable (no
node can be reached, and none ever was), AuthError (credentials or a permission are missing), Closed (the client was closed).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .. import arguments
from ..deadlines import deadline_after
from ..errors import BrokerError, UnsupportedVersion, WireprotoError
from ..flow.fan_out import answers
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
    """Implements `wireproto.roles.Admin` for Kafka. May be shared by threads."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._tasks = cluster.tasks

    @operation
    def list_topics(self, *, timeout: float = 30.0) -> Steps[list[str]]:
        """List the names of all topics, without the brokers' internal ones, sorted.

        Args:
            timeout: seconds for the whole call.
        Raises:
            TimedOut, Unreachable, AuthError, Closed: see the module.
        """
        yield from self._asking_for(None, deadline_after(timeout))
        return self._shown()

    def _asking_for(self, topics: Collection[str] | None, deadline: float) -> Steps[None]:
        """Refresh the client's metadata of these topics (None: of all), with retries."""
        cluster = self._cluster
        yield from cluster.retrying(lambda: cluster.refreshing(topics, deadline), deadline)

    def _shown(self) -> list[str]:
        """List the topics of the metadata that are not internal and have no error, sorted."""
        return sorted(name for name, topic in self._cluster.metadata.topics.items() if not topic.internal and not topic.error)

    @operation
    def describe_topic(self, topic: str, *, timeout: float = 30.0) -> Steps[TopicInfo]:
        """Describe a topic: its partitions with leader, replicas, in-sync and offline ones; details: topic id as hex, whether internal.

        Args:
            topic: its name.
            timeout: seconds for the whole call.
        Raises:
            UnknownTopicOrPartition: there is no such topic, after `unknown_topic_timeout` seconds.
            TimedOut, Unreachable, AuthError, Closed: see the module.
        """
        arguments.text("topic", topic)
        return self._info((yield from self._cluster.looking_up(topic, deadline_after(timeout))))

    @operation
    def describe_topics(self, topics: Iterable[str] | None = None, *, timeout: float = 30.0) -> Steps[dict[str, TopicInfo]]:
        """Describe many topics by one request, each as `describe_topic` does.

        Args:
            topics: their names; None: all that `list_topics` lists.
            timeout: seconds for the whole call.
        Returns:
            descriptions by topic name.
        Raises:
            UnknownTopicOrPartition: there is no topic of a name, which is the error's `topic`.
            TimedOut, Unreachable, AuthError, Closed: see the module.
        """
        if topics is not None:
            topics = arguments.texts("topics", topics)
        deadline = deadline_after(timeout)
        names = None if topics is None else sorted(set(topics))
        if names != []:
            yield from self._asking_for(names, deadline)
        found: dict[str, TopicInfo] = {}
        for name in self._shown() if names is None else names:
            entry = yield from self._cluster.knowing(name, deadline)  # a new topic is looked up again: other nodes may know more
            found[name] = self._info(entry)
        return found

    def _info(self, entry: Topic) -> TopicInfo:
        """Convert a topic of the metadata to the common type."""
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
        """Return the bytes that each partition of these topics has on its leader's disk. Brokers know it since Kafka 1.0.

        Args:
            topics: their names.
            timeout: seconds for the whole call.
        Returns:
            bytes by (topic, partition).
        Raises:
            UnknownTopicOrPartition: there is no topic of a name. LeaderNotAvailable: a partition has no leader. TransportError: a leader
                does not answer in time. UnsupportedVersion: a broker is older than 1.0. `known` has what the other leaders answered.
            AuthError, Closed: see the module.
        """
        topics = arguments.texts("topics", topics)
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
            for topic, part in stored:  # a partition that moves between two folders is in both
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
        """Create a topic and wait until every partition has a leader that answers for it.

        Args:
            topic: its name. partitions: how many it has.
            config: settings by their names (``cleanup.policy`` …).
            replication: copies of each partition; None: as the cluster is set (1 on brokers before 2.4).
            timeout: seconds for the whole call.
        Raises:
            TopicAlreadyExists, InvalidTopic, PolicyViolation … as the broker answers.
            TimedOut, LeaderNotAvailable: not usable in time; it may have been created. Unreachable, AuthError, Closed: see the module.
        """
        arguments.text("topic", topic)
        arguments.number("partitions", partitions, -(1 << 31))
        config = arguments.settings(config)
        if replication is not None:
            arguments.number("replication", replication, -1, 0x7FFF)
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
        # A broker says that it leads a little before it does: it publishes the metadata first, then opens the logs.
        made = {(topic, number): positions.LATEST_TIME for number in range(partitions)}
        yield from positions.listing(cluster, made, deadline, committed=False, made=True)

    def _usable(self, topic: str, partitions: int, deadline: float) -> Steps[None]:
        """Check that the refreshed metadata has the new topic with all its leaders; raises a retriable error until then."""
        cluster = self._cluster
        yield from cluster.refreshing((topic,), deadline)
        entry = cluster.metadata.topics.get(topic)
        if entry is None or entry.error or len(entry.available) < partitions:
            code = entry.error if entry is not None and entry.error else LeaderNotAvailable.code
            raise error(code, "the new topic is not ready yet", topic=topic)

    @operation
    def delete_topic(self, topic: str, *, timeout: float = 30.0) -> Steps[None]:
        """Delete a topic and wait until the brokers do not list it any more.

        Args:
            topic: its name.
            timeout: seconds for the whole call.
        Raises:
            UnknownTopicOrPartition: there is no such topic.
            TimedOut, LeaderNotAvailable: it is still listed when time is over. Unreachable, AuthError, Closed: see the module.
        """
        arguments.text("topic", topic)
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
        """Find where EARLIEST, LATEST or AtTime lie now in each partition; LATEST where no record is as late as a time.

        Args:
            topic: a name, or several, which are asked for together.
            at: a mapping asks only for the partitions that it names, and where the client knows them, only their leaders are asked.
            partitions: numbers of those that are asked for; None: all.
            committed: as a reader of committed records sees it: LATEST is the last stable offset, not the high watermark.
            timeout: seconds for the whole call.
        Returns:
            positions by (topic, partition).
        Raises:
            UnknownTopicOrPartition: there is no such topic. OptionError: `at` is no place, or names other partitions.
            LeaderNotAvailable: a partition has no leader, which the error names; `known` has the positions of the others.
            TransportError: a leader does not answer; `known` has those that the others answered, without times.
            AuthError, Closed: see the module.
        """
        names = sorted(set(arguments.texts("topic", topic, one=True)))
        if isinstance(at, Mapping):
            arguments.by_partition("at", at)
        arguments.numbers("partitions", partitions)
        arguments.boolean("committed", committed)
        deadline = deadline_after(timeout)
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
        """List the names of all groups, of every kind, sorted; every node is asked for those that it coordinates.

        A node that does not answer is named in the log, and the groups that it coordinates are left out; where none answers, all are asked
        again.

        Args:
            timeout: seconds for the whole call.
        Raises:
            TransportError: no node answers in time. BrokerError: one refuses. Closed.
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
        """Describe a group: its state, and its members with what each has assigned; of the classic protocol or of KIP-848's.

        Args:
            group: its name.
            timeout: seconds for the whole call.
        Raises:
            GroupIdNotFound: there is no such group, also where the broker (before DescribeGroups v6) calls it ``Dead``.
            TimedOut, Unreachable, AuthError, Closed: see the module.
        """
        arguments.text("group", group)
        deadline = deadline_after(timeout)
        try:
            return (yield from self._classic_group(group, deadline))
        except GroupIdNotFound as unknown:
            newer = yield from self._newer_group(group, deadline)
            if newer is None:
                raise unknown
            return newer

    def _newer_group(self, group: str, deadline: float) -> Steps[GroupInfo | None]:
        """Describe a group of KIP-848's protocol; None: there is none, or brokers know no such groups (before 3.7, or where turned off)."""
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
        """Describe a group of the classic protocol. Raises GroupIdNotFound where there is none."""
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
                held = ()  # another kind of group has another format there
            members.append(GroupMember(member.member_id, member.client_id, held))
        details = {"protocol_type": found.protocol_type, "protocol": found.protocol_data}
        return GroupInfo(group, found.group_state, tuple(members), details)

    @operation
    def group_positions(self, group: str, topic: str, *, timeout: float = 30.0) -> Steps[dict[TopicPartition, Position]]:
        """Return where a group resumes in a topic's partitions; partitions without a commit are left out.

        Those whose position an open transaction is about to move are left out as well, with a warning in the log.

        Args:
            group: its name. topic: its name.
            timeout: seconds for the whole call.
        Returns:
            positions by (topic, partition).
        Raises:
            UnknownTopicOrPartition: there is no such topic. BrokerError: the coordinator refuses.
            TimedOut, Unreachable, AuthError, Closed: see the module.
        """
        arguments.text("group", group)
        arguments.text("topic", topic)
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
        """Set where a group without members resumes: for programs that read without a group and publish their progress.

        Args:
            group: its name.
            places: the first offset not processed, by (topic, partition).
            timeout: seconds for the whole call.
        Returns:
            the partitions that do not exist any more, for which nothing was stored.
        Raises:
            UnknownMemberId: the group has members, and only they may commit. OptionError: a place is no position in its partition.
            TimedOut, Unreachable, AuthError, Closed: see the module.
        """
        arguments.text("group", group)
        arguments.by_partition("places", places)
        cluster, deadline = self._cluster, deadline_after(timeout)
        wanted = {key: positions.offset_in(key, place, "commit") for key, place in places.items()}
        codes = yield from offsets.committing(cluster, group, wanted, deadline, to=cluster.to_coordinator(group), ours=_GONE)
        return frozenset(key for key, code in codes.items() if code)

    def close(self, timeout: float = 30.0) -> None:
        """Do nothing: an admin holds nothing open.

        Args:
            timeout: seconds, not used.
        Raises:
            nothing; it does not wait.
        """


def _milliseconds(deadline: float) -> int:
    """Return the milliseconds until a deadline, for the timeout field of a request: 1 at least."""
    return int(min(max(deadline - time.monotonic(), 0.001) * 1000, 0x7FFFFFFF))


def _first_error(results: Any, topic: str) -> BrokerError | None:
    """Return the first error among results, about this topic; None when all are well."""
    for result in results:
        if result.error_code:
            return error(result.error_code, getattr(result, "error_message", None) or "", topic=topic)
    return None


def _code(reply: Any) -> BrokerError | None:
    """Return the error of a reply's error code; None when it is 0."""
    return error(reply.error_code) if reply.error_code else None
