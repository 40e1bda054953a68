"""The Admin role: topics, groups, positions.

What it is: a topic is made on every master of the cluster (code 17) and then waited for at the name servers and brokers; it is deleted on
the masters that hold it (215) and in every name server (216). Groups are what the brokers list.
Thread-safe: no state.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from wireproto.due import due
from wireproto.errors import BrokerError, OptionError, TimedOut, TransportError
from wireproto.net.closing import Closing
from wireproto.net.retry import Policy, Waits
from wireproto.position import LATEST, Position, TopicPartition, Where
from wireproto.records import GroupInfo, GroupMember, PartitionInfo, TopicInfo

from . import record
from .bodies import ConsumerConnection, TopicList, subscription_groups
from .codes import ConsumerNotOnline, SubscriptionGroupNotExist, TopicExistAlready, TopicNotExist
from .groups import GroupOffsets
from .homes import own
from .messages import (
    DeleteTopicInBrokerRequest,
    DeleteTopicInNamesrvRequest,
    GetAllSubscriptionGroupConfigRequest,
    GetAllTopicListFromNameserverRequest,
    GetConsumerConnectionListRequest,
    GetMaxOffsetRequest,
    GetTopicStatsInfoRequest,
    UpdateAndCreateSubscriptionGroupRequest,
    UpdateAndCreateTopicRequest,
)
from .reader import READERS_GROUP
from .times import Offsets

if TYPE_CHECKING:
    from .cluster import RocketCluster
    from .route import Route

SYSTEM_TOPICS = frozenset({
    "TBW102", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "TRANS_CHECK_MAX_TIME_TOPIC",
    "wheel_timer", "CHECKPOINT_TOPIC",
})  # fmt: skip
SYSTEM_GROUPS = re.compile(
    r"CID_RMQ_SYS_|CID_ONSAPI_|CID_ONS-HTTP-PROXY$|TOOLS_CONSUMER$|FILTERSRV_CONSUMER$|SELF_TEST_[CP]_GROUP$|__MONITOR_CONSUMER$"
    r"|CLIENT_INNER_PRODUCER$|SELF_TEST_CONSUMER_GROUP$"
)
CONFIG = frozenset({"perm", "order", "attributes"})


class RocketAdmin(Closing):
    """Made by `RocketClient.admin`."""

    def __init__(self, cluster: RocketCluster) -> None:
        self._cluster = cluster

    # topics ------------------------------------------------------------------------------------------------------------------------

    def list_topics(self, *, timeout: float = 30.0) -> list[str]:
        """Names of all topics but the brokers' own (system, retry and dead letter topics)."""
        deadline = due(timeout)
        found = TopicList.decode(self._cluster.ask_names(GetAllTopicListFromNameserverRequest(), deadline=deadline).body).topics
        info = self._cluster.info(deadline)
        own = SYSTEM_TOPICS | info.brokers.keys() | info.clusters.keys()
        own |= {f"{name}_REPLY_TOPIC" for name in info.clusters}
        return sorted(topic for topic in found if topic not in own and not topic.startswith(("%RETRY%", "%DLQ%", "rmq_sys_", "RMQ_SYS_")))

    def describe_topic(self, topic: str, *, timeout: float = 30.0) -> TopicInfo:
        """Its queues in order of partition; details name broker, queue id and whether it may be read and written."""
        route = self._cluster.route(topic, due(timeout), fresh=True)
        partitions = tuple(
            PartitionInfo(
                queue.partition,
                queue.address,
                {"broker": queue.broker, "queue": queue.queue_id, "readable": queue.readable, "writable": queue.writable},
            )
            for queue in route.queues
        )
        return TopicInfo(topic, partitions, {"brokers": route.brokers})

    def create_topic(self, topic: str, *, partitions: int = 1, config: Mapping[str, str] | None = None, timeout: float = 30.0) -> None:
        """Create it; returns when it can be used.

        Args:
            partitions: queues in all, shared out evenly over the masters, the first ones getting what is left over.
            config: ``perm`` (6 read and write, 4, 2), ``order`` (true, false), ``attributes`` (5.x, ``+message.type=FIFO``).
        Raises:
            TopicExistAlready: it is there (brokers themselves would change it).
        """
        record.check_topic(topic)
        config = config or {}
        if unknown := config.keys() - CONFIG:
            raise OptionError(f"a RocketMQ topic has no setting {min(unknown)!r}; there are {', '.join(sorted(CONFIG))}")
        if partitions < 1:
            raise OptionError("a topic has at least one partition")
        deadline = due(timeout)
        if self._exists(topic, deadline):
            raise TopicExistAlready("the topic exists", topic=topic)
        masters = self._cluster.masters(deadline)
        if not masters:
            raise TransportError("no broker with a master is registered")
        for place, address in enumerate(masters):
            queues = partitions // len(masters) + (place < partitions % len(masters))
            if queues:
                self._create(address, topic, queues, config, deadline)
        self._await(lambda: self._usable(topic, partitions, deadline), deadline, f"the topic {topic} did not become usable in time")

    def _create(self, address: str, topic: str, queues: int, config: Mapping[str, str], deadline: float) -> None:
        message = UpdateAndCreateTopicRequest(
            topic=topic,
            default_topic="TBW102",
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=int(config.get("perm", "6")),
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0,
            order=config.get("order", "false") == "true",
            attributes=config.get("attributes"),
        )
        self._cluster.retry(lambda: self._cluster.invoke(address, message, deadline=deadline), deadline)

    def _exists(self, topic: str, deadline: float) -> bool:
        try:
            self._cluster.route(topic, deadline, fresh=True)
        except TopicNotExist:
            return False
        return True

    def _usable(self, topic: str, partitions: int, deadline: float) -> bool:
        try:
            route = self._cluster.route(topic, deadline, fresh=True)
        except TopicNotExist:
            return False
        if len(route.queues) < partitions:
            return False
        for queue in route.queues:
            if queue.address is None:
                return False
            self._cluster.invoke(queue.address, GetMaxOffsetRequest(topic=topic, queue_id=queue.queue_id), deadline=deadline)
        return True

    def _await(self, ready: object, deadline: float, text: str) -> None:
        assert callable(ready)
        waits = Waits(Policy(first=0.02, factor=1.5, ceiling=0.5, jitter=0.2))
        while not ready():
            wait = waits.next()
            if time.monotonic() + wait >= deadline:
                raise TimedOut(text)
            self._cluster.pause(wait)

    def delete_topic(self, topic: str, *, timeout: float = 30.0) -> None:
        """Delete it with its records, on every master and in every name server. Raises TopicNotExist."""
        deadline = due(timeout)
        route = self._cluster.route(topic, deadline, fresh=True)
        for address in route.masters:
            message = DeleteTopicInBrokerRequest(topic=topic)
            self._cluster.retry(partial(self._cluster.invoke, address, message, deadline=deadline), deadline)
        self._unlist(topic, deadline)
        self._cluster.routes.forget(topic)
        self._await(lambda: self._gone(topic, route.masters, deadline), deadline, f"the topic {topic} is still there")
        self._cluster.routes.forget(topic)

    def _unlist(self, topic: str, deadline: float) -> None:
        for address in self._cluster.names.all():
            self._cluster.invoke(address, DeleteTopicInNamesrvRequest(topic=topic), deadline=deadline)

    def _gone(self, topic: str, masters: Sequence[str], deadline: float) -> bool:
        """Whether it is in no route any more; asks for that once more where no broker has it.

        Trap: a broker's list of its topics that was on its way over the deletion puts the topic back for good: name servers take nothing
        out of their tables because a later list has it not.
        """
        if not self._exists(topic, deadline):
            return True
        for address in masters:
            try:
                self._cluster.invoke(address, GetTopicStatsInfoRequest(topic=topic), deadline=deadline)
            except TopicNotExist:
                continue
            except BrokerError:
                pass  # it will not tell
            return False
        self._unlist(topic, deadline)
        return False

    def positions(self, topic: str, at: Where = LATEST, *, timeout: float = 30.0) -> dict[TopicPartition, Position]:
        """Where EARLIEST, LATEST or AtTime lie now in each partition. LATEST is the place after the last record."""
        deadline = due(timeout)
        found = Offsets(self._cluster, topic, READERS_GROUP).where(at, deadline, "at")
        route = self._cluster.route(topic, deadline)
        return {key: route.queues[key[1]].at(topic, offset) for key, offset in found.items()}

    # groups ------------------------------------------------------------------------------------------------------------------------

    def list_groups(self, *, timeout: float = 30.0) -> list[str]:
        """Names of the groups that any broker knows, without the brokers' own."""
        deadline = due(timeout)
        found: set[str] = set()
        for address in self._cluster.masters(deadline):
            reply = self._cluster.invoke(address, GetAllSubscriptionGroupConfigRequest(), deadline=deadline)
            found.update(subscription_groups(reply.body))
        return sorted(group for group in found if not SYSTEM_GROUPS.match(group))

    def describe_group(self, group: str, *, timeout: float = 30.0) -> GroupInfo:
        """Its live members. The state is ``ONLINE`` or ``OFFLINE``; brokers do not know who reads which queue."""
        deadline = due(timeout)
        members: dict[str, GroupMember] = {}
        details: dict[str, object] = {}
        for address in self._cluster.masters(deadline):
            try:
                body = self._cluster.invoke(address, GetConsumerConnectionListRequest(consumer_group=group), deadline=deadline).body
            except ConsumerNotOnline:
                continue
            found = ConsumerConnection.decode(body)
            details.update(found.details, topics=found.topics)
            for one in found.connections:
                members[one.client_id] = GroupMember(one.client_id, one.address)
        return GroupInfo(group, "ONLINE" if members else "OFFLINE", tuple(members.values()), details)

    def group_positions(self, group: str, topic: str, *, timeout: float = 30.0) -> dict[TopicPartition, Position]:
        """Where the group resumes in each partition; partitions without a committed position are left out."""
        deadline = due(timeout)
        offsets = GroupOffsets(self._cluster, group)
        found: dict[TopicPartition, Position] = {}
        route: Route = self._cluster.route(topic, deadline)
        for queue in route.readable():
            offset = offsets.committed(topic, queue, deadline)
            if offset is not None:
                found[topic, queue.partition] = queue.at(topic, offset)
        return found

    def commit(self, group: str, places: Mapping[TopicPartition, Position], *, timeout: float = 30.0) -> frozenset[TopicPartition]:
        """Say where a group resumes that has no members: for who reads by himself and tells others how far he is.

        A group that a broker of 5.x does not know is made there.

        Args:
            places: the first offsets not done, by partition.
        Returns:
            the partitions that cannot be read now, for which nothing was stored.
        """
        deadline = due(timeout)
        try:
            return self._commit(group, places, deadline)
        except SubscriptionGroupNotExist:
            body = json.dumps({"groupName": group}).encode()  # the brokers' defaults for the rest
            for address in self._cluster.masters(deadline):
                self._cluster.invoke(address, UpdateAndCreateSubscriptionGroupRequest(), body, deadline=deadline)
            return self._commit(group, places, deadline)

    def _commit(self, group: str, places: Mapping[TopicPartition, Position], deadline: float) -> frozenset[TopicPartition]:
        offsets, left = GroupOffsets(self._cluster, group), set(places)
        for topic in sorted({topic for topic, _ in places}):
            given = {key: place for key, place in places.items() if key[0] == topic}
            ours = own(self._cluster, topic, given, deadline)
            for queue in self._cluster.route(topic, deadline).readable():
                if (topic, queue.partition) in ours:
                    offsets.commit(topic, queue, ours[topic, queue.partition], deadline)
                    left.discard((topic, queue.partition))
        return frozenset(left)

    def close(self, timeout: float = 30.0) -> None:
        """Nothing to close: it uses its client's connections."""
