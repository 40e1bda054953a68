"""Lists, describes, creates and deletes topics, and lists groups and their offsets: the Admin role.

A topic is created on every master of the cluster (code 17), and `create_topic` returns when name servers and brokers show it. It is deleted
on the masters that hold it (215) and in every name server (216). Groups are those that the brokers list.
Thread-safe: it keeps no state. Its methods are operations (`net.task.operation`).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from wireproto import arguments
from wireproto.deadlines import deadline_after
from wireproto.errors import BrokerError, OptionError, TimedOut, TransportError, WireprotoError
from wireproto.flow.fan_out import answers
from wireproto.net.closing import Closing
from wireproto.net.retry import Policy, Waits
from wireproto.net.task import operation
from wireproto.position import LATEST, Position, QueueOffset, TopicPartition, Where, parse_queue
from wireproto.records import GroupInfo, GroupMember, PartitionInfo, TopicInfo

from . import record
from .bodies import ClusterInfo, ConsumerConnection, TopicList, subscription_groups
from .codes import ConsumerNotOnline, SubscriptionGroupNotExist, TopicExistAlready, TopicNotExist
from .groups import GroupOffsets
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
from .offset_lookup import OffsetLookup
from .queue_ids import check_bare, known, own
from .reader import READERS_GROUP

if TYPE_CHECKING:
    from wireproto._codec import ExtMessage
    from wireproto.net.task import Steps

    from .cluster import Reply, RocketCluster
    from .route import Queue

T = TypeVar("T")
SYSTEM_TOPICS = frozenset({
    "TBW102", "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "TRANS_CHECK_MAX_TIME_TOPIC",
    "wheel_timer", "CHECKPOINT_TOPIC",
})  # fmt: skip
SYSTEM_GROUPS = re.compile(
    r"CID_RMQ_SYS_|CID_ONSAPI_|CID_ONS-HTTP-PROXY$|TOOLS_CONSUMER$|FILTERSRV_CONSUMER$|SELF_TEST_[CP]_GROUP$|__MONITOR_CONSUMER$"
    r"|CLIENT_INNER_PRODUCER$|SELF_TEST_CONSUMER_GROUP$"
)
CONFIG = frozenset({"perm", "order", "attributes"})
VALUES = {"perm": ("6", "4", "2"), "order": ("true", "false")}
"""The settings whose values are known here."""
_TWICE = Policy(attempts=2)


class RocketAdmin(Closing):
    """Administers topics and groups. Made by `RocketClient.admin`."""

    def __init__(self, cluster: RocketCluster) -> None:
        self._cluster = cluster
        self._tasks = cluster.tasks

    # topics ------------------------------------------------------------------------------------------------------------------------

    @operation
    def list_topics(self, *, timeout: float = 30.0) -> Steps[list[str]]:
        """List all topics but the brokers' own (system and retry topics); dead-letter queues are named ``%DLQ%`` and the group's name.

        Args:
            timeout: seconds.
        Returns:
            names, sorted.
        Raises:
            TransportError, TimedOut: no name server answers in time. BrokerError: a name server refuses. Closed: the client was closed.
        """
        until = deadline_after(timeout)
        reply = yield from self._cluster.asking_names(GetAllTopicListFromNameserverRequest(), until=until)
        found = TopicList.decode(reply.body).topics
        info = yield from self._cluster.info(until)
        own = SYSTEM_TOPICS | info.brokers.keys() | info.clusters.keys()
        own |= {f"{name}_REPLY_TOPIC" for name in info.clusters}
        return sorted(topic for topic in found if topic not in own and not topic.startswith(("%RETRY%", "rmq_sys_", "RMQ_SYS_")))

    @operation
    def describe_topic(self, topic: str, *, timeout: float = 30.0) -> Steps[TopicInfo]:
        """Describe the topic's message queues, in order of partition.

        Args:
            topic: name of the topic. timeout: seconds.
        Returns:
            one `PartitionInfo` a queue, with the address of its master; its details name broker, queue id and whether the queue may be
            read and written.
        Raises:
            TopicNotExist: no name server knows the topic.
            TransportError, TimedOut: no name server answers in time. BrokerError: a name server refuses. Closed: the client was closed.
        """
        arguments.text("topic", topic)
        route = yield from self._cluster.routing(topic, deadline_after(timeout), fresh=True)
        partitions = tuple(
            PartitionInfo(
                queue.partition,
                queue.address,
                {"broker": queue.broker, "queue": queue.queue_id, "readable": queue.readable, "writable": queue.writable},
            )
            for queue in route.queues
        )
        return TopicInfo(topic, partitions, {"brokers": route.brokers})

    @operation
    def create_topic(
        self, topic: str, *, partitions: int = 1, config: Mapping[str, str] | None = None, timeout: float = 30.0
    ) -> Steps[None]:
        """Create a topic on all masters; returns when it can be used.

        Args:
            topic: name of the topic.
            partitions: number of queues in all, spread evenly over the masters; the first masters get one more where it does not divide.
            config: ``perm`` (6 read and write, 4 read, 2 write), ``order`` (true, false), ``attributes`` (5.x, ``+message.type=FIFO``).
            timeout: seconds.
        Raises:
            TopicExistAlready: there is such a topic (brokers themselves would change it).
            OptionError: an unknown setting or a wrong value of one, or no partition. ValueUnsupported: brokers do not take this name.
            TransportError, TimedOut: a broker does not answer, or the topic could not be used in time. It may have been created.
            BrokerError: a broker refuses. Closed: the client was closed.
        """
        arguments.text("topic", topic)
        if arguments.number("partitions", partitions, -arguments.MOST) < 1:
            raise OptionError(f"partitions is {partitions!r}: a topic has at least one partition")
        config = arguments.settings(config)
        record.check_topic(topic)
        if unknown := config.keys() - CONFIG:
            raise OptionError(f"a RocketMQ topic has no setting {min(unknown)!r}; there are {', '.join(sorted(CONFIG))}")
        for name, allowed in VALUES.items():
            if name in config and config[name] not in allowed:
                raise OptionError(f"the setting {name} is one of {', '.join(allowed)}, not {config[name]!r}")
        until = deadline_after(timeout)
        if (yield from self._exists(topic, until)):
            raise TopicExistAlready("the topic exists", topic=topic)
        info = yield from self._cluster.retrying(lambda: self._registered(until), until)
        masters = info.masters
        for place, address in enumerate(masters):
            queues = partitions // len(masters) + (place < partitions % len(masters))
            if queues:
                yield from self._creating(address, topic, queues, config, until)
        yield from ready(partial(self._usable, topic, partitions, until), until, f"the topic {topic} did not become usable in time")

    def _registered(self, until: float) -> Steps[ClusterInfo]:
        """Return all brokers. Raises TransportError while none has a master: a name server that just started knows no broker."""
        info = yield from self._cluster.info(until)
        if not info.masters:
            raise TransportError("no broker with a master is registered")
        return info

    def _creating(self, address: str, topic: str, queues: int, config: Mapping[str, str], until: float) -> Steps[Reply]:
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
        return self._cluster.retrying(partial(self._cluster.invoking, address, message, until=until), until)

    def _exists(self, topic: str, until: float) -> Steps[bool]:
        try:
            yield from self._cluster.routing(topic, until, fresh=True)
        except TopicNotExist:
            return False
        return True

    def _usable(self, topic: str, partitions: int, until: float) -> Steps[bool]:
        try:
            route = yield from self._cluster.routing(topic, until, fresh=True)
        except TopicNotExist:
            return False
        if len(route.queues) < partitions:
            return False
        for queue in route.queues:
            if queue.address is None:
                return False
            yield from self._cluster.invoking(queue.address, GetMaxOffsetRequest(topic=topic, queue_id=queue.queue_id), until=until)
        return True

    @operation
    def delete_topic(self, topic: str, *, timeout: float = 30.0) -> Steps[None]:
        """Delete a topic with its records, on every master and in every name server; returns when no route names it any more.

        Args:
            topic: name of the topic. timeout: seconds.
        Raises:
            TopicNotExist: no name server knows the topic.
            TransportError, TimedOut: a server does not answer, or the topic is still there at the end of the time.
            BrokerError: a server refuses. Closed: the client was closed.
        """
        arguments.text("topic", topic)
        until = deadline_after(timeout)
        route = yield from self._cluster.routing(topic, until, fresh=True)
        for address in route.masters:
            message = DeleteTopicInBrokerRequest(topic=topic)
            yield from self._cluster.retrying(partial(self._cluster.invoking, address, message, until=until), until)
        yield from self._unlisting(topic, until)
        self._cluster.routes.forget(topic)
        yield from ready(partial(self._gone, topic, route.masters, until), until, f"the topic {topic} is still there")
        self._cluster.routes.forget(topic)

    def _unlisting(self, topic: str, until: float) -> Steps[None]:
        for address in self._cluster.names.all():
            yield from self._cluster.invoking(address, DeleteTopicInNamesrvRequest(topic=topic), until=until)

    def _gone(self, topic: str, masters: Sequence[str], until: float) -> Steps[bool]:
        """Return whether name servers have no route of the topic; deletes it there once more where no broker has it.

        Trap: a broker's list of its topics that was in flight during the deletion puts the topic back for good: name servers remove nothing
        from their tables because a later list lacks it.
        """
        if not (yield from self._exists(topic, until)):
            return True
        for address in masters:
            try:
                yield from self._cluster.invoking(address, GetTopicStatsInfoRequest(topic=topic), until=until)
            except TopicNotExist:
                continue
            except BrokerError:
                pass  # this broker does not say whether it has the topic
            return False
        yield from self._unlisting(topic, until)
        return False

    @operation
    def positions(
        self, topic: str, at: Where = LATEST, *, partitions: Collection[int] | None = None, timeout: float = 30.0
    ) -> Steps[dict[TopicPartition, Position]]:
        """Find the offsets that EARLIEST, LATEST or AtTime mean now, in each partition.

        Args:
            topic: name of the topic.
            at: EARLIEST, LATEST (behind the last record), AtTime (milliseconds since 1970), or positions.
            partitions: numbers of the partitions to look at; None: all that may be read. timeout: seconds.
        Returns:
            a `QueueOffset` for each partition.
        Raises:
            TopicNotExist: no name server knows the topic. OptionError: `at` names a partition that there is not.
            TransportError, TimedOut: a broker does not answer; the error names the broker, and its `known` has the positions of the others.
            BrokerError: a broker refuses. Closed: the client was closed.
        """
        arguments.text("topic", topic)
        if isinstance(at, Mapping):
            arguments.by_partition("at", at)
        arguments.numbers("partitions", partitions)
        until = deadline_after(timeout)
        found = yield from OffsetLookup(self._cluster, topic, READERS_GROUP).where(at, until, "at", partitions)
        route = yield from self._cluster.routing(topic, until)
        return {key: route.queues[key[1]].at(topic, offset) for key, offset in found.items()}

    @operation
    def queues(
        self, topic: str, names: Iterable[int | str], *, what: str = "a number", timeout: float = 30.0
    ) -> Steps[dict[int | str, QueueOffset]]:
        """Find the queues of these names: offset 0 of each, under the partition number that this client has for it.

        Args:
            topic: name of the topic.
            names: as `position.queue_name` writes them (``broker-a/3``); a queue whose broker is away gets a number, too. A number means a
                partition of another client, and is accepted only where it can mean one queue alone.
            what: where the names are from, for the texts of errors. timeout: seconds.
        Raises:
            OptionError: a number that means no queue or may mean several; a text that names no queue.
            TopicNotExist: no name server knows the topic. TransportError, TimedOut: no name server answers in time.
        """
        arguments.text("topic", topic)
        if isinstance(names, str | bytes) or not isinstance(names, Iterable):
            raise OptionError(f"names is several names of queues, not {names!r}")
        until, wanted = deadline_after(timeout), list(names)
        for name in wanted:
            if not isinstance(name, str) and type(name) is not int:
                raise OptionError(f"names has a text or a number for each queue, not {name!r}")
        homes = {name: _home(name) for name in wanted if isinstance(name, str)}
        route = yield from known(self._cluster, topic, list(homes.values()), until)
        if numbers := [name for name in wanted if isinstance(name, int)]:
            check_bare(route, topic, numbers, what)
        places = {name: route.homes[homes[name]] if isinstance(name, str) else name for name in wanted}
        return {name: route.queues[number].at(topic, 0) for name, number in places.items()}

    @operation
    def brokers(self, *, timeout: float = 30.0) -> Steps[dict[str, str | None]]:
        """List the brokers that name servers know now, by name, with the address of each one's master; None where the master is away.

        Args:
            timeout: seconds.
        Raises:
            TransportError, TimedOut: no name server answers in time. BrokerError: a name server refuses. Closed: the client was closed.
        """
        info = yield from self._cluster.info(deadline_after(timeout))
        return {name: broker.master for name, broker in sorted(info.brokers.items())}

    # groups ------------------------------------------------------------------------------------------------------------------------

    @operation
    def list_groups(self, *, timeout: float = 30.0) -> Steps[list[str]]:
        """List the consumer groups that any broker knows, without the brokers' own.

        A broker that does not answer is named in the log, and the groups that it alone knows are left out; where none answers, all are
        asked again.

        Args:
            timeout: seconds.
        Returns:
            names, sorted.
        Raises:
            TransportError, TimedOut: no broker answers in time. BrokerError: a broker refuses. Closed: the client was closed.
        """
        found: set[str] = set()
        message = GetAllSubscriptionGroupConfigRequest()
        replies, _ = yield from self._of_masters(lambda address, late: self._hearing(address, message, late), deadline_after(timeout))
        for reply in replies.values():
            found.update(subscription_groups(reply.body))
        return sorted(group for group in found if not SYSTEM_GROUPS.match(group))

    def _of_masters(self, ask: Callable[[str, float], Steps[T]], until: float) -> Steps[tuple[dict[str, T], list[str]]]:
        """Ask all masters concurrently; where none answers, ask all again.

        Returns:
            the answers by address, and the addresses of masters that do not answer, which the log names (names of brokers without master).
        Raises:
            BrokerError: a broker refuses. TransportError: none answers.
        """
        cluster = self._cluster

        def asked(late: float) -> Steps[dict[str, Steps[T]]]:
            brokers = (yield from cluster.retrying(lambda: self._registered(until), until)).brokers.items()
            return {broker.master or name: ask(broker.master, late) if broker.master else _away(name) for name, broker in sorted(brokers)}

        return (yield from answers(cluster.tasks, cluster.log, asked, until, cluster.options.request_timeout))

    def _hearing(self, address: str, message: ExtMessage, late: float) -> Steps[Reply]:
        """Return a master's answer; the command is sent twice at most, where a connection was lost."""
        return self._cluster.retrying(partial(self._cluster.invoking, address, message, until=late), late, policy=_TWICE)

    @operation
    def describe_group(self, group: str, *, timeout: float = 30.0) -> Steps[GroupInfo]:
        """Describe a consumer group by its live members.

        The state is ``ONLINE`` or ``OFFLINE``; brokers do not know which member reads which queue. A broker that does not answer is
        named in the log and in the detail ``silent``, and the members that it alone knows are left out; where none answers, all are asked
        again.

        Args:
            group: name of the consumer group; one that no broker knows is ``OFFLINE``. timeout: seconds.
        Raises:
            TransportError, TimedOut: no broker answers in time. BrokerError: a broker refuses. Closed: the client was closed.
        """
        arguments.text("group", group)
        message = GetConsumerConnectionListRequest(consumer_group=group)
        members: dict[str, GroupMember] = {}
        details: dict[str, object] = {}

        def ask(address: str, late: float) -> Steps[ConsumerConnection | None]:
            try:
                return ConsumerConnection.decode((yield from self._hearing(address, message, late)).body)
            except ConsumerNotOnline:
                return None

        connections, silent = yield from self._of_masters(ask, deadline_after(timeout))
        for found in connections.values():
            if found is not None:
                details.update(found.details, topics=found.topics)
                members |= {one.client_id: GroupMember(one.client_id, one.address) for one in found.connections}
        if silent:
            details["silent"] = tuple(silent)
        return GroupInfo(group, "ONLINE" if members else "OFFLINE", tuple(members.values()), details)

    @operation
    def group_positions(self, group: str, topic: str, *, timeout: float = 30.0) -> Steps[dict[TopicPartition, Position]]:
        """Return the committed offset of the group in each partition; partitions without one are left out.

        Args:
            group: name of the consumer group. topic: name of the topic. timeout: seconds.
        Raises:
            TopicNotExist: no name server knows the topic.
            TransportError, TimedOut: a broker does not answer; the error's `known` has the positions that other brokers returned.
            BrokerError: a broker refuses; `known` as above. Closed: the client was closed.
        """
        arguments.text("group", group)
        arguments.text("topic", topic)
        until, offsets = deadline_after(timeout), GroupOffsets(self._cluster, group)
        found: dict[TopicPartition, Position] = {}
        problems: list[WireprotoError] = []

        def look(queue: Queue) -> Steps[None]:
            try:
                offset = yield from offsets.committed(topic, queue, until)
            except WireprotoError as why:
                problems.append(why)
                return
            if offset is not None:
                found[topic, queue.partition] = queue.at(topic, offset)

        route = yield from self._cluster.routing(topic, until)
        yield from self._cluster.gathering({queue.partition: look(queue) for queue in route.readable()}, "the offset")
        if problems:
            problems[0].known = dict(sorted(found.items()))
            raise problems[0]
        return dict(sorted(found.items()))

    @operation
    def commit(self, group: str, places: Mapping[TopicPartition, Position], *, timeout: float = 30.0) -> Steps[frozenset[TopicPartition]]:
        """Commit offsets of a group that has no members, for a program that reads without a group and records its progress there.

        A group that a broker of 5.x does not know is created there.

        Args:
            group: name of the consumer group.
            places: the first offset not done, by partition. timeout: seconds.
        Returns:
            the partitions that cannot be read now, for which nothing was stored.
        Raises:
            OptionError: a position of a partition that there is not, or that may mean several queues.
            TopicNotExist: no name server knows a topic. TransportError, TimedOut: a broker does not answer; others may have stored theirs.
            BrokerError: a broker refuses. Closed: the client was closed.
        """
        arguments.text("group", group)
        arguments.by_partition("places", places)
        until = deadline_after(timeout)
        try:
            return (yield from self._committing(group, places, until))
        except SubscriptionGroupNotExist:
            pass
        body = json.dumps({"groupName": group}).encode()  # the brokers' defaults for the rest
        for address in (yield from self._cluster.masters(until)):
            yield from self._cluster.invoking(address, UpdateAndCreateSubscriptionGroupRequest(), body, until=until)
        return (yield from self._committing(group, places, until))

    def _committing(self, group: str, places: Mapping[TopicPartition, Position], until: float) -> Steps[frozenset[TopicPartition]]:
        offsets, left = GroupOffsets(self._cluster, group), set(places)
        for topic in sorted({topic for topic, _ in places}):
            given = {key: place for key, place in places.items() if key[0] == topic}
            ours = yield from own(self._cluster, topic, given, until)
            for queue in (yield from self._cluster.routing(topic, until)).readable():
                if (topic, queue.partition) in ours:
                    yield from offsets.commit(topic, queue, ours[topic, queue.partition], until)
                    left.discard((topic, queue.partition))
        return frozenset(left)

    def close(self, timeout: float = 30.0) -> None:
        """Do nothing: the role uses its client's connections.

        Args:
            timeout: seconds; not used.
        Raises:
            nothing.
        """


def _away(name: str) -> Steps[T]:
    """Raise TransportError, as steps, in place of the answer of a broker that has no master now."""
    yield from ()
    raise TransportError("it has no master now", peer=name)


def _home(name: str) -> tuple[str, int]:
    try:
        return parse_queue(name)
    except ValueError as why:
        raise OptionError(str(why)) from why


def ready(look: Callable[[], Steps[bool]], until: float, text: str) -> Steps[None]:
    """Call `look` until it returns True, with pauses from 20 ms up to 0.5 s.

    Args:
        look: makes the steps of one look. until: deadline, a `time.monotonic()` value. text: the error's text.
    Raises:
        TimedOut: it was not True before the deadline.
    """
    waits = Waits(Policy(first=0.02, factor=1.5, ceiling=0.5, jitter=0.2))
    while not (yield from look()):
        again = time.monotonic() + waits.next()
        if again >= until:
            raise TimedOut(text)
        yield again
