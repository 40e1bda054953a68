"""The Admin role: topics, subscriptions and positions.

What it is: what the binary protocol can tell, through it; what it cannot do, over the admin HTTP interface (option ``admin``).

    binary    list_topics, describe_topic, positions, commit
    HTTP      create_topic, delete_topic, list_groups, describe_group, group_positions, create_group, ledgers, deduplication …

Thread-safe. Must not: use HTTP where the binary protocol serves.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from wireproto.errors import OptionError, WireprotoError
from wireproto.flow.beside import each, whole
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
"""Topics or partitions that are asked for at a time."""


class PulsarAdmin(Closing):
    """Administration of one cluster; made by `client.admin`."""

    def __init__(self, cluster: PulsarCluster) -> None:
        self._cluster = cluster
        self._tasks = cluster.tasks
        self._http = AdminHttp(cluster.options, cluster.credentials, cluster.loop)

    @property
    def url(self) -> str | None:
        """Of the admin interface, as the option `admin` says; None: what needs it raises OptionError."""
        return self._cluster.options.admin

    # -- topics -------------------------------------------------------------------------------------------------

    @operation
    def list_topics(self, *, namespace: str = DEFAULT_NAMESPACE, timeout: float = 30.0) -> Steps[list[str]]:
        """Topics of a namespace, in the shortest form of their names; a partitioned topic is listed once.

        Over the admin interface, where there is one, partitioned topics are listed although none of their partitions was used yet.
        """
        deadline = deadline_after(timeout)
        found = set((yield from self._cluster.retrying(lambda: self._cluster.lookup.listing(namespace, deadline), deadline)))
        if self._http.available:
            found.update((yield from self._http.get(f"persistent/{namespace}/partitioned", deadline)))
        return sorted(short(name) for name in found if not parse_topic(name).local.startswith("__"))

    @operation
    def describe_topic(self, topic: str, *, timeout: float = 30.0) -> Steps[TopicInfo]:
        """Partitions, with their full names, and the brokers that serve them.

        Raises:
            TopicNotFound. Where the broker of one cannot be found the error names that one, and has the others in `known`.
        """
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
        """Create a topic; returns when it can be used.

        Args:
            partitions: 1 and more make a partitioned topic, 0 one without partitions.
            config: properties of the topic.
        Raises:
            TopicExists: it is there already.
            OptionError: the client has no admin URL.
        """
        deadline = deadline_after(timeout)
        name = parse_topic(topic)
        if partitions < 0:
            raise OptionError("partitions must not be negative")
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
        """Delete a topic with its subscriptions and records; raises TopicNotFound."""
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
        """Where EARLIEST, LATEST or AtTime lie now in each partition, or in these. LATEST is the place after the last record.

        Raises:
            TransportError: a broker does not answer; `known` has the positions that the others answered.
        """
        deadline = deadline_after(timeout)
        names = dict((yield from self._cluster.naming(topic, deadline, create=False)))
        keys = [(topic, number) for number in names if partitions is None or number in partitions]
        return dict((yield from finding(self._cluster, topic, names, resolver(keys).requests(at, keys, "at"), deadline)))

    # -- subscriptions ------------------------------------------------------------------------------------------

    @operation
    def list_groups(self, *, namespace: str = DEFAULT_NAMESPACE, timeout: float = 30.0) -> Steps[list[str]]:
        """Names of the durable subscriptions on any topic of a namespace.

        Raises:
            why a topic gives no answer; it names that one, and `known` has the subscriptions of the others by their names.
        """
        deadline = deadline_after(timeout)
        topics = yield from steps(self.list_topics)(namespace=namespace, timeout=timeout)
        asked = {(topic, -1): self._http.get(f"{parse_topic(topic).rest}/subscriptions", deadline, topic=topic) for topic in topics}
        found, failed = yield from self._each(asked, deadline, "asking for the subscriptions of a topic")
        by_topic = {topic: names for (topic, _), names in found.items()}
        return sorted(set().union(*whole(by_topic, {topic: why for (topic, _), why in _left(failed).items()}).values()))

    def _each(
        self, asked: Mapping[TopicPartition, Steps[T]], deadline: float, what: str
    ) -> Steps[tuple[dict[TopicPartition, T], dict[TopicPartition, WireprotoError]]]:
        """What these steps give, `BESIDE` of them at a time, and why others give nothing, by topic and partition, which errors name."""
        found, failed = yield from each(self._cluster.tasks, asked, deadline, BESIDE, what)
        for (topic, number), why in failed.items():
            why.topic, why.partition = topic, number if number >= 0 else None
        return found, failed

    @operation
    def describe_group(
        self, group: str, *, topic: str | None = None, namespace: str = DEFAULT_NAMESPACE, timeout: float = 30.0
    ) -> Steps[GroupInfo]:
        """A subscription on one topic, or on all of a namespace: its type, backlog and members.

        Raises:
            SubscriptionNotFound. Where a partition gives no answer the error names it, and `known` has what the subscription is in each of
            the others.
        """
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
        """Where a subscription would resume in each partition.

        Raises:
            SubscriptionNotFound: a partition has none of that name. Any error names the partition, and `known` has the positions of the
                others.
        """
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
        """Say where a subscription resumes that has no members: for who reads by himself and tells others how far he is. It only goes
        forward, and is made where it is not there; see `PulsarClient.hold`.

        Args:
            places: the first places not done, by partition.
        Returns:
            an empty set: what cannot be committed is raised.
        Raises:
            ConsumerBusy: it has members, which alone may acknowledge.
        """
        hold = PinnedSubscription(self._cluster, group)
        deadline = deadline_after(timeout)
        try:
            yield from steps(hold.move)(places, timeout=timeout)
        except BaseException:
            hold.end()
            raise
        yield from hold.ending(max(1.0, deadline - time.monotonic()))
        return frozenset()

    @operation
    def create_group(self, group: str, name: str, position: MessageId, *, timeout: float = 30.0) -> Steps[bool]:
        """Create a durable subscription that begins at a position of one topic or partition; False when it exists already."""
        return (yield from self._http.create_subscription(group, parse_topic(name), position, deadline_after(timeout)))

    @operation
    def deduplication(self, name: str, *, timeout: float = 30.0) -> Steps[str]:
        """Whether the broker drops repeated records of one topic or partition: ``Enabled``, ``Disabled``, ``Recovering`` …"""
        stats = yield from self._http.get(f"{parse_topic(name).rest}/stats", deadline_after(timeout), topic=name)
        return str(stats.get("deduplicationStatus", "unknown"))

    @operation
    def set_deduplication(self, namespace: str, enabled: bool, *, timeout: float = 30.0) -> Steps[None]:
        """Have brokers drop repeated records, or not, in the topics of a namespace (``public/default``) that do not say otherwise.

        Topics that are in use follow within moments; `deduplication` tells.
        """
        tenant, _, name = namespace.partition("/")
        path = f"namespaces/{quote(tenant, safe='')}/{quote(name, safe='')}/deduplication"
        yield from self._http.call("POST", path, deadline_after(timeout), enabled)

    @operation
    def ledgers(self, topic: str, partition: int = -1, *, timeout: float = 30.0) -> Steps[list[tuple[int, int]]]:
        """(id, entries) of the ledgers that a partition consists of now, in order; -1: a topic without partitions, or one by its name."""
        name = parse_topic(parse_topic(topic).of_partition(partition))
        stats = yield from self._http.get(f"{name.rest}/internalStats", deadline_after(timeout), topic=topic)
        found = {int(one["ledgerId"]): int(one["entries"]) for one in stats.get("ledgers", [])}
        if found:
            newest = max(found)
            found[newest] = max(found[newest], int(stats.get("currentLedgerEntries", 0)))
        return sorted(found.items())

    # -- ends ---------------------------------------------------------------------------------------------------

    @operation
    def end_transactions(
        self, transactions: Iterable[TransactionId], *, commit: bool, timeout: float = 30.0
    ) -> Steps[dict[TransactionId, BrokerError]]:
        """End transactions that were handed over (`Transaction.hand_over`), beside each other.

        A coordinator forgets a transaction as it ends. So who asks for the same a second time, because the first time was cut short, is
        told of those that it ended then, as of those that took too long: a record that the transaction itself holds tells which.

        Args:
            commit: have their records seen; else roll them back.
        Returns:
            those that their coordinators do not know any more, or have ended otherwise; empty when all is as was asked.
        Raises:
            TimedOut: not all have ended. NotAllowedError, AuthError.
        """
        from .coordinators import OVER, Coordinators

        deadline, coordinators = deadline_after(timeout), Coordinators(self._cluster)
        gone: dict[TransactionId, BrokerError] = {}

        def end(one: TransactionId) -> Steps[None]:
            try:
                yield from coordinators.ending(one, commit, deadline)
            except OVER as why:
                gone[one] = why

        yield from self._cluster.tasks.every([(f"ending transaction {one}", end(one)) for one in transactions], deadline)
        return gone

    @operation
    def open_transactions(self, transactions: Iterable[TransactionId], *, timeout: float = 30.0) -> Steps[frozenset[TransactionId]]:
        """Those of these that could be committed now: neither ended, nor rolled back for their time. Changes nothing of them.

        Raises:
            TimedOut: not all coordinators have answered. NotAllowedError, AuthError.
        """
        from .coordinators import OVER, Coordinators

        deadline, coordinators = deadline_after(timeout), Coordinators(self._cluster)
        found: set[TransactionId] = set()

        def look(one: TransactionId) -> Steps[None]:
            command = api.CommandAddPartitionToTxn(txnid_most_bits=one.most, txnid_least_bits=one.least)  # none, which asks for its state
            try:
                yield from coordinators.asking(command, deadline)
            except OVER:
                return
            found.add(one)

        yield from self._cluster.tasks.every([(f"looking for transaction {one}", look(one)) for one in transactions], deadline)
        return frozenset(found)

    def close(self, timeout: float = 30.0) -> None:
        """Nothing is held open: requests use the client's connections."""
        self._http.close()


def _described(group: str, subscriptions: Mapping[TopicPartition, Any]) -> GroupInfo:
    """What statistics of partitions tell of a subscription."""
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
    """Without topics that are gone since they were listed: they have no subscriptions."""
    return {key: why for key, why in failed.items() if not isinstance(why, TopicNotFound)}
