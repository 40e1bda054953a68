"""Administers topics, subscriptions and positions: the Admin role.

Uses the binary protocol wherever that has a command, and the admin HTTP interface (option ``admin``) for the rest:

    binary    list_topics, describe_topic, positions, commit
    HTTP      create_topic, delete_topic, list_groups, describe_group, group_positions, create_group, ledgers, deduplication …

May be shared by threads.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from wireproto import arguments
from wireproto.errors import OptionError, WireprotoError
from wireproto.flow.fan_out import each, whole
from wireproto.flow.lost_answer import LostAnswer
from wireproto.net.closing import Closing
from wireproto.net.task import Steps, operation, steps
from wireproto.position import LATEST, MessageId, Position, TopicPartition, Where
from wireproto.records import GroupInfo, GroupMember, PartitionInfo, TopicInfo

from ..deadlines import deadline_after
from . import PulsarApi_pb2 as api
from .admin_http import AdminHttp
from .codes import SubscriptionNotFound, TopicNotFound
from .frames import signed
from .pinned_subscription import PinnedSubscription
from .places import resolver
from .positions import finding
from .request import request
from .topics import parse_topic, short

if TYPE_CHECKING:
    from wireproto.errors import BrokerError

    from .cluster import PulsarCluster
    from .coordinators import TransactionId

T = TypeVar("T")
DEFAULT_NAMESPACE = "public/default"
BESIDE = 16
"""Topics or partitions that are asked for at the same time."""


class PulsarAdmin(Closing):
    """Administration of one cluster; made by `client.admin`.

    Besides the errors that a method names, each raises OptionError where it needs the admin HTTP interface and the client has no `admin`
    URL, AuthError where a broker refuses the credentials or the operation, TransportError where one does not answer, and Closed when the
    client was closed.
    """

    def __init__(self, cluster: PulsarCluster) -> None:
        self._cluster = cluster
        self._tasks = cluster.tasks
        self._http = AdminHttp(cluster.options, cluster.credentials, cluster.loop)

    @property
    def url(self) -> str | None:
        """URL of the admin interface, as the option `admin` gives it; None: methods that need it raise OptionError."""
        return self._cluster.options.admin

    # -- topics -------------------------------------------------------------------------------------------------

    @operation
    def list_topics(self, *, namespace: str = DEFAULT_NAMESPACE, timeout: float = 30.0) -> Steps[list[str]]:
        """List the topics of a namespace, in the shortest form of their names; a partitioned topic is listed once.

        Over the admin interface, where there is one, partitioned topics are listed although none of their partitions was used yet.

        Args:
            namespace: ``tenant/namespace``. timeout: seconds for the call.

        Raises:
            TimedOut: no answer in time. PulsarError: the broker refuses.
        """
        _check_namespace(namespace)
        deadline = deadline_after(timeout)
        found = set((yield from self._cluster.retrying(lambda: self._cluster.lookup.listing(namespace, deadline), deadline)))
        if self._http.available:
            found.update((yield from self._http.get(f"persistent/{namespace}/partitioned", deadline)))
        return sorted(short(name) for name in found if not parse_topic(name).local.startswith("__"))

    @operation
    def describe_topic(self, topic: str, *, timeout: float = 30.0) -> Steps[TopicInfo]:
        """Return the partitions of a topic, with their full names, and the brokers that serve them.

        Args:
            topic: any form of its name. timeout: seconds for the call.

        Raises:
            TopicNotFound: there is no such topic.
            TransportError, PulsarError: the broker of a partition cannot be found; the error names that partition, and `known` has the
                others.
        """
        arguments.text("topic", topic)
        deadline = deadline_after(timeout)
        cluster = self._cluster
        names = yield from cluster.naming(topic, deadline, create=False)
        if names[0][0] < 0:
            yield from self._must_exist(topic, deadline)

        def look(name: str, number: int) -> Steps[PartitionInfo]:
            broker = yield from cluster.finding(name, deadline)
            host, port = broker.address
            return PartitionInfo(number, broker.proxied or f"{host}:{port}", {"name": name})

        asked = {(topic, number): look(name, number) for number, name in names}
        partitions = whole(*(yield from self._each(asked, deadline, "looking up the broker of a partition")))
        return TopicInfo(topic, tuple(partitions.values()), {"name": str(parse_topic(topic)), "partitioned": names[0][0] >= 0})

    def _must_exist(self, topic: str, deadline: float) -> Steps[None]:
        name = parse_topic(topic)
        command = api.CommandGetTopicsOfNamespace(namespace=name.namespace_name, mode=api.CommandGetTopicsOfNamespace.ALL)
        reply = yield from request(self._cluster, command, None, None, deadline)
        if str(name) not in reply.topics:
            raise TopicNotFound("no such topic", topic=topic)

    @operation
    def create_topic(
        self, topic: str, *, partitions: int = 1, config: Mapping[str, str] | None = None, timeout: float = 30.0
    ) -> Steps[None]:
        """Create a topic over the admin interface; return when it can be used.

        Args:
            topic: any form of its name.
            partitions: number of partitions; 1 and more make a partitioned topic, 0 one without partitions.
            config: properties of the topic. timeout: seconds for the call.

        Raises:
            TopicExists: it is there already.
            OptionError: the client has no admin URL, or `partitions` is negative.
            TimedOut: not done in time, or a new partition has no broker yet.
        """
        arguments.text("topic", topic)
        if arguments.number("partitions", partitions, -arguments.MOST) < 0:
            raise OptionError(f"partitions must not be negative, as {partitions} is")
        config = arguments.settings(config)
        deadline = deadline_after(timeout)
        name = parse_topic(topic)
        path = f"{name.rest}/partitions" if partitions else name.rest
        body: Any = partitions or None
        if config:
            body = {"partitions": partitions, "properties": dict(config)} if partitions else dict(config)
        kind = "application/vnd.partitioned-topic-metadata+json" if config and partitions else "application/json"
        yield from self._http.call("PUT", path, deadline, body, topic=topic, kind=kind)
        names = yield from self._cluster.naming(topic, deadline, create=False)
        asked = {(topic, number): self._cluster.finding(partition, deadline) for number, partition in names}
        whole(*(yield from self._each(asked, deadline, "looking up the broker of a new partition")))

    @operation
    def delete_topic(self, topic: str, *, timeout: float = 30.0) -> Steps[None]:
        """Delete a topic with its subscriptions and records, over the admin interface.

        Args:
            topic: any form of its name. timeout: seconds for the call.

        Raises:
            TopicNotFound: there is no such topic. OptionError: the client has no admin URL. TimedOut: not done in time.
        """
        arguments.text("topic", topic)
        deadline = deadline_after(timeout)
        name = parse_topic(topic)
        names = yield from self._cluster.naming(topic, deadline, create=False)
        path = f"{name.rest}/partitions" if names[0][0] >= 0 else name.rest
        yield from self._http.call("DELETE", f"{path}?force=true", deadline, topic=topic)

    # -- positions ----------------------------------------------------------------------------------------------

    @operation
    def positions(
        self, topic: str, at: Where = LATEST, *, partitions: Collection[int] | None = None, timeout: float = 30.0
    ) -> Steps[dict[TopicPartition, Position]]:
        """Return where EARLIEST, LATEST or AtTime lie now in each partition. LATEST is the place after the last record.

        Args:
            topic: any form of its name. at: EARLIEST, LATEST, AtTime, or a mapping by (topic, partition).
            partitions: the numbers of those to ask for (-1: of a topic without partitions); None: all.
            timeout: seconds for the call.

        Raises:
            TopicNotFound: there is no such topic.
            TransportError: a broker does not answer; `known` has the positions that the others answered.
        """
        arguments.text("topic", topic)
        if isinstance(at, Mapping):
            arguments.by_partition("at", at)
        arguments.numbers("partitions", partitions)
        deadline = deadline_after(timeout)
        names = dict((yield from self._cluster.naming(topic, deadline, create=False)))
        keys = [(topic, number) for number in names if partitions is None or number in partitions]
        return dict((yield from finding(self._cluster, topic, names, resolver(keys).requests(at, keys, "at"), deadline)))

    # -- subscriptions ------------------------------------------------------------------------------------------

    @operation
    def list_groups(self, *, namespace: str = DEFAULT_NAMESPACE, timeout: float = 30.0) -> Steps[list[str]]:
        """Return the names of the durable subscriptions on any topic of a namespace, over the admin interface.

        Args:
            namespace: ``tenant/namespace``. timeout: seconds for the call.

        Raises:
            OptionError: the client has no admin URL.
            TransportError, PulsarError: a topic gives no answer; the error names it, and `known` has the subscriptions of the others by
                topic.
        """
        _check_namespace(namespace)
        deadline = deadline_after(timeout)
        topics = yield from steps(self.list_topics)(namespace=namespace, timeout=timeout)
        asked = {(topic, -1): self._http.get(f"{parse_topic(topic).rest}/subscriptions", deadline, topic=topic) for topic in topics}
        found, failed = yield from self._each(asked, deadline, "asking for the subscriptions of a topic")
        by_topic = {topic: names for (topic, _), names in found.items()}
        return sorted(set().union(*whole(by_topic, {topic: why for (topic, _), why in _left(failed).items()}).values()))

    def _each(
        self, asked: Mapping[TopicPartition, Steps[T]], deadline: float, what: str
    ) -> Steps[tuple[dict[TopicPartition, T], dict[TopicPartition, WireprotoError]]]:
        """Run these steps, `BESIDE` of them at a time.

        Returns:
            what they return, and the errors of the others, both by topic and partition, which the errors name as well.
        """
        found, failed = yield from each(self._cluster.tasks, asked, deadline, BESIDE, what)
        for (topic, number), why in failed.items():
            why.topic, why.partition = topic, number if number >= 0 else None
        return found, failed

    @operation
    def describe_group(
        self, group: str, *, topic: str | None = None, namespace: str = DEFAULT_NAMESPACE, timeout: float = 30.0
    ) -> Steps[GroupInfo]:
        """Return the type, backlog (entries) and members of a subscription on one topic or all of a namespace, over the admin interface.

        Args:
            group: name of the subscription.
            topic: any form of its name; None: all topics of `namespace`, which is ``tenant/namespace``. namespace: not used with a topic.
            timeout: seconds for the call.

        Raises:
            SubscriptionNotFound: no partition asked has it. OptionError: the client has no admin URL.
            TransportError, PulsarError: a partition gives no answer; the error names it, and `known` has what the others say of the
                subscription.
        """
        arguments.text("group", group)
        _check_namespace(namespace)
        deadline = deadline_after(timeout)
        every = topic is None
        topics = [topic] if topic is not None else (yield from steps(self.list_topics)(namespace=namespace, timeout=timeout))
        asked = {(name, -1): self._cluster.naming(name, deadline, create=False) for name in topics}
        names, unnamed = yield from self._each(asked, deadline, "asking for the partitions of a topic")
        parts = {(name, number): full for (name, _), some in names.items() for number, full in some}
        asking = {key: self._http.get(f"{parse_topic(full).rest}/stats", deadline, topic=key[0]) for key, full in parts.items()}
        stats, failed = yield from self._each(asking, deadline, "asking for the statistics of a partition")
        failed = unnamed | failed
        subscriptions = {key: found for key, one in stats.items() if (found := one.get("subscriptions", {}).get(group)) is not None}
        known = {key: _described(group, {key: found}) for key, found in subscriptions.items()}
        whole(known, _left(failed) if every else failed)
        if not subscriptions:
            raise SubscriptionNotFound(f"no subscription {group!r}", topic=topic)
        return _described(group, subscriptions)

    @operation
    def group_positions(self, group: str, topic: str, *, timeout: float = 30.0) -> Steps[dict[TopicPartition, MessageId]]:
        """Return where a subscription would resume in each partition: after its mark-delete position. Asks the admin interface.

        Args:
            group: name of the subscription. topic: any form of its name. timeout: seconds for the call.

        Raises:
            SubscriptionNotFound: a partition has none of that name. OptionError: the client has no admin URL.
            TransportError, PulsarError: a partition gives no answer. Any error names the partition, and `known` has the positions of the
                others.
        """
        arguments.text("group", group)
        arguments.text("topic", topic)
        deadline = deadline_after(timeout)

        def ask(number: int, name: str) -> Steps[MessageId]:
            stats = yield from self._http.get(f"{parse_topic(name).rest}/internalStats", deadline, topic=topic)
            cursor = stats.get("cursors", {}).get(group)
            if cursor is None:
                raise SubscriptionNotFound(f"no subscription {group!r}", topic=topic, partition=number)
            ledger, _, entry = str(cursor["markDeletePosition"]).partition(":")
            return MessageId(topic, number, signed(int(ledger)), signed(int(entry)), after=True)

        names = yield from self._cluster.naming(topic, deadline, create=False)
        asked = {(topic, number): ask(number, name) for number, name in names}
        return whole(*(yield from self._each(asked, deadline, "asking where a subscription resumes")))

    @operation
    def commit(self, group: str, places: Mapping[TopicPartition, Position], *, timeout: float = 30.0) -> Steps[frozenset[TopicPartition]]:
        """Set where a subscription without members resumes, for programs that read by Readers and publish their progress.

        The mark-delete position only moves forward. The subscription is created where it does not exist; see `PulsarClient.hold`.

        Args:
            group: name of the subscription.
            places: the first positions not done, by (topic, partition).
            timeout: seconds for the call.

        Returns:
            an empty set: what cannot be committed is raised.

        Raises:
            ConsumerBusy: it has members, which alone may acknowledge. TopicNotFound: there is no such topic.
            OptionError: a position is not Pulsar's, or there is no such partition. TimedOut: not all was acknowledged in time.
        """
        arguments.text("group", group)
        arguments.by_partition("places", places)
        pinned = PinnedSubscription(self._cluster, group)
        deadline = deadline_after(timeout)
        try:
            yield from steps(pinned.move)(places, timeout=timeout)
        except BaseException:
            pinned.end()
            raise
        yield from pinned.ending(max(1.0, deadline - time.monotonic()))
        return frozenset()

    @operation
    def create_group(self, group: str, name: str, position: MessageId, *, timeout: float = 30.0) -> Steps[bool]:
        """Create a durable subscription that begins at a position of one topic or partition, over the admin interface.

        Args:
            group: name of the subscription. name: of the topic or partition. position: where the subscription begins.
            timeout: seconds for the call.

        Returns:
            False when it exists already; it is left as it is.

        Raises:
            TopicNotFound: there is no such topic. OptionError: the client has no admin URL. TimedOut: no answer in time.
        """
        arguments.text("group", group)
        if not isinstance(position, MessageId):
            raise OptionError(f"position is a MessageId, not {position!r}")
        return (yield from self._http.create_subscription(group, parse_topic(name), position, deadline_after(timeout)))

    @operation
    def deduplication(self, name: str, *, timeout: float = 30.0) -> Steps[str]:
        """Return whether the broker drops repeated records of one topic or partition.

        Args:
            name: of the topic or partition. timeout: seconds for the call.

        Returns:
            the broker's word: ``Enabled``, ``Disabled``, ``Recovering`` …

        Raises:
            TopicNotFound: there is no such topic. OptionError: the client has no admin URL. TimedOut: no answer in time.
        """
        stats = yield from self._http.get(f"{parse_topic(name).rest}/stats", deadline_after(timeout), topic=name)
        return str(stats.get("deduplicationStatus", "unknown"))

    @operation
    def set_deduplication(self, namespace: str, enabled: bool, *, timeout: float = 30.0) -> Steps[None]:
        """Have brokers drop repeated records, or not, in the topics of a namespace that have no setting of their own.

        Topics that are in use follow within moments; `deduplication` returns their state.

        Args:
            namespace: ``tenant/namespace``. enabled: whether repeated records are dropped. timeout: seconds for the call.

        Raises:
            OptionError: the client has no admin URL. TopicNotFound: there is no such namespace. TimedOut: no answer in time.
        """
        _check_namespace(namespace)
        arguments.boolean("enabled", enabled)
        tenant, _, name = namespace.partition("/")
        path = f"namespaces/{quote(tenant, safe='')}/{quote(name, safe='')}/deduplication"
        yield from self._http.call("POST", path, deadline_after(timeout), enabled)

    @operation
    def ledgers(self, topic: str, partition: int = -1, *, timeout: float = 30.0) -> Steps[list[tuple[int, int]]]:
        """Return (id, number of entries) of each ledger that a partition consists of now, in order.

        Args:
            topic: any form of its name. partition: its number; -1: the topic has no partitions, or `topic` names one.
            timeout: seconds for the call.

        Raises:
            TopicNotFound: there is no such topic. OptionError: the client has no admin URL. TimedOut: no answer in time.
        """
        arguments.text("topic", topic)
        arguments.number("partition", partition, -1)
        name = parse_topic(parse_topic(topic).of_partition(partition))
        stats = yield from self._http.get(f"{name.rest}/internalStats", deadline_after(timeout), topic=topic)
        found = {int(one["ledgerId"]): int(one["entries"]) for one in stats.get("ledgers", [])}
        if found:
            newest = max(found)
            found[newest] = max(found[newest], int(stats.get("currentLedgerEntries", 0)))
        return sorted(found.items())

    # -- transactions, the end ----------------------------------------------------------------------------------

    @operation
    def end_transactions(
        self, transactions: Iterable[TransactionId], *, commit: bool, timeout: float = 30.0
    ) -> Steps[dict[TransactionId, BrokerError]]:
        """End transactions that were handed over (`Transaction.hand_over`), all at a time.

        A coordinator forgets a transaction when it ends. So a second call, made because the first one was interrupted, returns the
        transactions that the first one ended as unknown, just like those that took too long. Only a record that the transaction itself
        contains shows which.

        Args:
            transactions: what `hand_over` returned.
            commit: make their records visible; else roll them back.
            timeout: seconds for the call.

        Returns:
            those that their coordinators do not know any more, or have ended otherwise; empty when all have ended as was asked.

        Raises:
            TimedOut: not all have ended. NotAllowedError: the cluster has no transactions. AuthError: a coordinator refuses the
                credentials.
        """
        from .coordinators import OVER, Coordinators, TransactionId

        given = arguments.each("transactions", transactions, TransactionId, "what hand_over returned (TransactionId)")
        arguments.boolean("commit", commit)
        deadline, coordinators = deadline_after(timeout), Coordinators(self._cluster)
        gone: dict[TransactionId, BrokerError] = {}

        def end(one: TransactionId) -> Steps[None]:
            lost = LostAnswer("END_TXN")
            try:
                yield from coordinators.ending(one, commit, deadline, lost)
            except OVER as why:
                gone[one] = lost.explain(why, "it may have ended as was asked")

        yield from self._cluster.tasks.every([(f"ending transaction {one}", end(one)) for one in given], deadline)
        return gone

    @operation
    def open_transactions(self, transactions: Iterable[TransactionId], *, timeout: float = 30.0) -> Steps[frozenset[TransactionId]]:
        """Return those of these transactions that could be committed now: neither ended nor timed out. Changes nothing of them.

        Args:
            transactions: what `hand_over` returned. timeout: seconds for the call.

        Raises:
            TimedOut: not all coordinators have answered. NotAllowedError: the cluster has no transactions. AuthError: one refuses the
                credentials.
        """
        from .coordinators import OVER, Coordinators, TransactionId

        given = arguments.each("transactions", transactions, TransactionId, "what hand_over returned (TransactionId)")
        deadline, coordinators = deadline_after(timeout), Coordinators(self._cluster)
        found: set[TransactionId] = set()

        def look(one: TransactionId) -> Steps[None]:
            command = api.CommandAddPartitionToTxn(txnid_most_bits=one.most, txnid_least_bits=one.least)  # no partition: asks for its state
            try:
                yield from coordinators.asking(command, deadline)
            except OVER:
                return
            found.add(one)

        yield from self._cluster.tasks.every([(f"looking for transaction {one}", look(one)) for one in given], deadline)
        return frozenset(found)

    def close(self, timeout: float = 30.0) -> None:
        """Do nothing: requests use the client's connections, and the admin interface gets one connection a request.

        Args:
            timeout: seconds, not used.

        Raises:
            Nothing.
        """
        self._http.close()


def _check_namespace(namespace: str) -> None:
    """Raise OptionError for what is not ``tenant/namespace``."""
    parts = arguments.text("namespace", namespace).split("/")
    if len(parts) != 2 or not all(parts):
        raise OptionError(f"namespace is tenant/namespace, not {namespace!r}")


def _described(group: str, subscriptions: Mapping[TopicPartition, Any]) -> GroupInfo:
    """Describe a subscription by its partitions' statistics."""
    members: list[GroupMember] = []
    for key, found in subscriptions.items():
        active = found.get("activeConsumerName")
        for member in found.get("consumers", []):
            fed = found.get("type") != "Failover" or member.get("consumerName") == active
            members.append(GroupMember(member.get("consumerName", ""), member.get("address", ""), (key,) if fed else ()))
    kinds = {str(found.get("type") or "none") for found in subscriptions.values()}
    backlog = sum(int(found.get("msgBacklog", 0)) for found in subscriptions.values())
    return GroupInfo(group, "Stable" if members else "Empty", tuple(members), {"type": ", ".join(sorted(kinds)), "backlog": backlog})


def _left(failed: Mapping[TopicPartition, WireprotoError]) -> dict[TopicPartition, WireprotoError]:
    """Leave out topics that were deleted after they were listed: they have no subscriptions."""
    return {key: why for key, why in failed.items() if not isinstance(why, TopicNotFound)}
