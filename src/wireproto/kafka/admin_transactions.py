"""Lists and describes transactions, ends those that were handed over, and those that hang (KIP-664).

Each question goes to the nodes that know the answer, and the replies are merged; it is retried until all have answered.

    method                    is answered by
    list_transactions         every node: each knows those that it coordinates, which partitions of the topic `__transaction_state` it
                              leads, and whether it has loaded them
    describe_transactions     the coordinator of each name
    describe_producers        the leader of each partition
    end_transactions          the coordinator of each name
    fence_producers           the coordinator of each name
    abort_transaction         the leader of the one partition
    commit_transaction        the same

A transaction hangs when a partition has it open and its coordinator does not know of it, or has ended it: readers of committed records
wait there for ever. Nothing is kept between calls, and whether a transaction hangs is not judged here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from .. import arguments
from ..deadlines import deadline_after
from ..errors import BrokerError, OptionError, TimedOut, UnsupportedVersion, UsageError, ValueUnsupported, WireprotoError
from ..flow.lost_answer import LostAnswer
from ..net.task import Steps, operation
from ..position import TopicPartition
from . import positions, wire
from .codes import CoordinatorLoadInProgress, CoordinatorNotAvailable, LeaderNotAvailable, NotCoordinator, error
from .messages import (
    DescribeProducersRequest,
    DescribeProducersTopicRequest,
    DescribeTransactionsRequest,
    FindCoordinatorRequest,
    ListTransactionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from .routing import TRANSACTION
from .transaction_calls import OVER, OpenTransaction, ending, naming

if TYPE_CHECKING:
    from ..net.task import Tasks
    from .cluster import KafkaCluster

STATE = "__transaction_state"
"""The topic in which coordinators keep the states of transactions."""
_FENCED_FOR = 5.0
"""Transaction timeout in seconds for a fenced id, until a program uses the id again. A coordinator waits as long for the other replicas
of its own log, and answers COORDINATOR_NOT_AVAILABLE when they took longer (TransactionStateManager.appendTransactionToLog).
"""
_NAMED = 0x6000
"""Partitions of that topic, at most, for each of which there is a name of one character that is no surrogate; it has 50 by default."""
_YET_TO_LOAD = (NotCoordinator.code, CoordinatorLoadInProgress.code, CoordinatorNotAvailable.code)


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """A transactional id, as the node that coordinates it lists it.

    Attributes:
        name: the transactional id.
        producer_id: the id that the coordinator has given it.
        state: as the broker names it: ``Empty``, ``Ongoing``, ``PrepareCommit``, ``PrepareAbort``, ``CompleteCommit``, ``CompleteAbort`` …
        coordinator: the node's number.
    """

    name: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    """What the coordinator knows of a transactional id.

    Attributes:
        name: the transactional id.
        state: see `ListedTransaction`.
        producer_id: the id that the coordinator has given it.
        producer_epoch: the newest epoch.
        coordinator: the node's number.
        timeout: seconds after which the coordinator rolls an open transaction back.
        started: when the newest one began, in milliseconds since 1970 UTC; None: none has yet.
        partitions: (topic, number) of those that are part of it. Positions of a group are a record in ``__consumer_offsets``.
    """

    name: str
    state: str
    producer_id: int
    producer_epoch: int
    coordinator: int
    timeout: float
    started: int | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ProducerInfo:
    """What the leader of a partition keeps of a producer that writes there, with a transaction or without.

    Attributes:
        producer_id: the producer's id.
        producer_epoch: its newest epoch.
        last_sequence: number of its last record in this epoch; None: it has none.
        last_timestamp: of its last batch, in milliseconds since 1970 UTC.
        coordinator_epoch: of the coordinator that ended its last transaction here; None: none has.
        transaction_start: the offset at which its open transaction begins; None: it has none open here.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int | None
    last_timestamp: int | None
    coordinator_epoch: int | None
    transaction_start: int | None


_LONGEST = (1 << 63) // 1000
"""Seconds, the end of what the filter of durations can carry."""


class TransactionAdmin:
    """What `KafkaAdmin` offers for transactions. Needs Kafka 3.0 or later; older brokers: UnsupportedVersion.

    Errors that every method here may raise besides its own: those of `kafka.admin`, and UnsupportedVersion.
    """

    _cluster: KafkaCluster
    _tasks: Tasks

    @operation
    def list_transactions(
        self,
        *,
        states: str | Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than: float | None = None,
        pattern: str | None = None,
        timeout: float = 30.0,
    ) -> Steps[list[ListedTransaction]]:
        """List the transactional ids that the cluster knows and that we may describe, by name; every node is asked.

        Args:
            states: only those in one of these.
            producer_ids: only those with one of these.
            longer_than: seconds: only those whose newest transaction began longer ago than this, even if it is over (Kafka 3.8).
            pattern: only names that match this whole expression, in the broker's notation, RE2 (Kafka 4.1).
            timeout: seconds for the whole call.
        Raises:
            OptionError: no broker knows such a state. UnsupportedVersion: a broker is too old for what is asked.
            CoordinatorNotAvailable: for all of `timeout` no node considered itself the coordinator of some ids; only noticed where we may
                describe the topic of the states. TimedOut, Unreachable, AuthError, Closed.
        """
        states = arguments.texts("states", states, one=True)
        if isinstance(producer_ids, str | bytes) or not isinstance(producer_ids, Iterable):
            raise OptionError(f"producer_ids is several numbers, not {producer_ids!r}")
        producer_ids = [arguments.number("each of producer_ids", one, -(1 << 63), (1 << 63) - 1) for one in producer_ids]
        if longer_than is not None and (type(longer_than) not in (int, float) or not 0 <= longer_than < _LONGEST):
            raise OptionError(f"longer_than is None, or seconds from 0, not {longer_than!r}")
        if pattern is not None:
            arguments.text("pattern", pattern)
        cluster, deadline = self._cluster, deadline_after(timeout)
        request = ListTransactionsRequest(
            state_filters=tuple(states),
            producer_id_filters=tuple(producer_ids),
            duration_filter=-1 if longer_than is None else int(longer_than * 1000),
            transactional_id_pattern=pattern,
        )
        asked: set[int] = set()
        replies: dict[int, Any] = {}
        led: dict[int, dict[int, int]] = {}

        def ask(node: int) -> Steps[None]:
            led[node] = yield from self._coordinators_at(node, deadline)
            yield from self._must_know(node, led[node], deadline)
            reply = yield from self._answer_of(node, request, deadline)
            if reply.error_code:
                raise error(reply.error_code, "listing transactions", message=reply.NAME)
            replies[node] = reply

        def attempt() -> Steps[None]:
            nonlocal asked
            yield from cluster.refreshing((), deadline)
            nodes = set(cluster.metadata.nodes)
            if nodes != asked:
                replies.clear()  # a node that answered before may coordinate by now what a node that left did
            asked = nodes
            left = [(f"listing the transactions of node {node}", ask(node)) for node in sorted(nodes - replies.keys())]
            yield from cluster.tasks.every(left, deadline)
            uncoordinated = {number for node in nodes for number in led[node]} - {
                number for node in nodes for number, leader in led[node].items() if leader == node
            }
            if uncoordinated:
                replies.clear()
                raise CoordinatorNotAvailable(f"no node is the coordinator of {len(uncoordinated)} partitions of {STATE} yet")

        yield from cluster.retrying(attempt, deadline)
        unknown = [set(reply.unknown_state_filters) for reply in replies.values()]
        nowhere = set.intersection(*unknown) if unknown else set()
        if nowhere:
            raise OptionError(f"states: no broker has a transaction state named {', '.join(sorted(nowhere))}")
        found = {
            one.transactional_id: ListedTransaction(one.transactional_id, one.producer_id, one.transaction_state, node)
            for node, reply in replies.items()
            for one in reply.transaction_states
        }
        return [found[name] for name in sorted(found)]

    def _coordinators_at(self, node: int, deadline: float) -> Steps[dict[int, int]]:
        """Return which node coordinates each partition of the topic of states, as this node's metadata has it; empty where it does not say.

        A node that does not know yet that it is the coordinator of a partition lists nothing of it, without saying so.
        """
        topics = (MetadataRequestTopic(name=STATE),)
        reply = yield from self._answer_of(node, MetadataRequest(topics=topics, allow_auto_topic_creation=False), deadline)
        return {part.partition_index: part.leader_id for topic in reply.topics if not topic.error_code for part in topic.partitions}

    def _must_know(self, node: int, leaders: Mapping[int, int], deadline: float) -> Steps[None]:
        """Raise while the node has not loaded all that it coordinates: its list leaves that out without saying so.

        A node learns that it leads before it begins to load (BrokerMetadataPublisher); when described a name, it does answer that it is
        loading.
        """
        count = len(leaders)
        names = [_name_in(number, count) for number, leader in leaders.items() if leader == node and 0 <= number < count <= _NAMED]
        if not names:
            return
        reply = yield from self._answer_of(node, DescribeTransactionsRequest(transactional_ids=tuple(names)), deadline)
        for state in reply.transaction_states:
            if state.error_code in _YET_TO_LOAD:
                raise error(state.error_code, f"what node {node} coordinates of transactions", message=reply.NAME)

    @operation
    def describe_transactions(self, names: str | Iterable[str], *, timeout: float = 30.0) -> Steps[dict[str, TransactionInfo]]:
        """Describe transactional ids, as their coordinators know them.

        Args:
            names: a transactional id, or several.
            timeout: seconds for the whole call.
        Returns:
            descriptions by transactional id.
        Raises:
            TransactionalIdNotFound: an id is not known, or not any more (`transactional.id.expiration.ms`). AuthError.
            CoordinatorNotAvailable: an id has no coordinator. TransportError: a coordinator does not answer in time. `known` has by id what
                the others answered. UnsupportedVersion, Closed.
        """
        wanted = sorted(set(arguments.texts("names", names, one=True)))
        cluster, deadline = self._cluster, deadline_after(timeout)
        found: dict[str, TransactionInfo] = {}

        def ask(node: int, some: list[str]) -> Steps[None]:
            reply = yield from self._answer_of(node, DescribeTransactionsRequest(transactional_ids=tuple(some)), deadline)
            problem: BrokerError | None = None
            for state in reply.transaction_states:
                if state.error_code:
                    problem = error(state.error_code, f"transactional id {state.transactional_id!r}", message=reply.NAME)
                else:
                    found[state.transactional_id] = _transaction(state, node)
            if problem is not None:
                raise problem

        def attempt() -> Steps[None]:
            nodes, problem = yield from self._coordinators([name for name in wanted if name not in found], deadline)
            asked = [(f"asking node {node} for transactions", ask(node, some)) for node, some in nodes.items()]
            yield from cluster.tasks.every(asked, deadline)
            if problem is not None:
                raise problem

        if wanted:
            try:
                yield from cluster.retrying(attempt, deadline)
            except WireprotoError as why:
                why.known = found
                raise
        return {name: found[name] for name in wanted}

    @operation
    def end_transactions(
        self, transactions: Iterable[OpenTransaction], *, commit: bool, timeout: float = 30.0
    ) -> Steps[dict[OpenTransaction, BrokerError]]:
        """End transactions that were handed over (`Transaction.hand_over`), in parallel. Repeating the call does no harm.

        Args:
            transactions: what `hand_over` returned.
            commit: True: make their records visible; False: roll them back.
            timeout: seconds for the whole call.
        Returns:
            those that had ended otherwise, or took too long, with their coordinator's error; empty when all ended as asked.
        Raises:
            TimedOut: not all have ended; call again. AuthError, Unreachable, Closed. OptionError: something else is given; none is ended.
        """
        given = arguments.each("transactions", transactions, OpenTransaction, "what hand_over returned (OpenTransaction)")
        arguments.boolean("commit", commit)
        deadline = deadline_after(timeout)
        otherwise: dict[OpenTransaction, BrokerError] = {}

        def end(one: OpenTransaction) -> Steps[None]:
            lost = LostAnswer("EndTxn")
            try:
                yield from ending(self._cluster, one, commit, deadline, lost)
            except OVER as why:
                otherwise[one] = lost.explain(why, "it may have ended as was asked")

        yield from self._cluster.tasks.every([(f"ending the transaction of {one.name!r}", end(one)) for one in given], deadline)
        return otherwise

    @operation
    def fence_producers(self, names: str | Iterable[str], *, timeout: float = 30.0) -> Steps[None]:
        """Fence the producers of these transactional ids, and roll back what they have open (KIP-588); new producers may use the ids.

        Args:
            names: a transactional id, or several.
            timeout: seconds for the whole call.
        Raises:
            TimedOut: not all are fenced; call again. AuthError, Unreachable, Closed.
        """
        entries = sorted(set(arguments.texts("names", names, one=True)))
        deadline = deadline_after(timeout)

        # CONCURRENT_TRANSACTIONS says that it is fenced and being rolled back: asked again, it is rolled back when this returns
        fencing = [(f"fencing {name!r}", naming(self._cluster, name, _FENCED_FOR, None, deadline)) for name in entries]
        yield from self._cluster.tasks.every(fencing, deadline)

    def _coordinators(self, names: list[str], deadline: float) -> Steps[tuple[dict[int, list[str]], BrokerError | None]]:
        """Return the names by the node that coordinates them, and an error if a name has no coordinator."""
        request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=tuple(names))
        ask = partial(self._cluster.hearing, message=request, until=deadline)
        reply: Any = yield from self._cluster.anywhere("looking for coordinators of transactions", ask, deadline)
        nodes: dict[int, list[str]] = {}
        problem: BrokerError | None = None
        for one in reply.coordinators:
            if one.error_code:
                text = f"transactional id {one.key!r}" + (f": {one.error_message}" if one.error_message else "")
                problem = error(one.error_code, text, message=reply.NAME)
            else:
                nodes.setdefault(self._cluster.locate(one), []).append(one.key)
        return nodes, problem

    @operation
    def describe_producers(
        self, topic: str | Iterable[str], *, partitions: Collection[int] | None = None, timeout: float = 30.0
    ) -> Steps[dict[TopicPartition, tuple[ProducerInfo, ...]]]:
        """Describe the producers that each partition's leader knows.

        Those that wrote within `producer.id.expiration.ms`, or have a transaction open.

        Args:
            topic: a name, or several, which are asked for together.
            partitions: numbers of those that are asked for; None: all.
            timeout: seconds for the whole call.
        Returns:
            for each (topic, partition) its producers, sorted by id.
        Raises:
            UnknownTopicOrPartition, AuthError, UnsupportedVersion, Closed.
            LeaderNotAvailable: a partition has no leader, which the error names. TransportError: a leader does not answer in time. `known`
                has what the others answered.
        """
        names = sorted(set(arguments.texts("topic", topic, one=True)))
        arguments.numbers("partitions", partitions)
        cluster, deadline = self._cluster, deadline_after(timeout)
        keys: list[TopicPartition] = []
        for name in names:
            entry = yield from cluster.looking_up(name, deadline)
            keys += [(name, number) for number in entry.partitions if partitions is None or number in partitions]
        found: dict[TopicPartition, tuple[ProducerInfo, ...]] = {}

        def ask(node: int, led: list[TopicPartition]) -> Steps[None]:
            reply = yield from self._answer_of(node, _producers_of(led), deadline)
            problem: WireprotoError | None = None
            for topic in reply.topics:
                for part in topic.partitions:
                    if part.error_code:
                        problem = error(part.error_code, part.error_message or "", message=reply.NAME, topic=topic.name)
                        problem.with_context(partition=part.partition_index)
                    else:
                        every = sorted(part.active_producers, key=lambda one: one.producer_id)
                        found[topic.name, part.partition_index] = tuple(_producer(one) for one in every)
            if problem is not None:
                raise problem

        missing: LeaderNotAvailable | None = None

        def attempt() -> Steps[None]:
            nonlocal missing
            without = set[TopicPartition]()
            nodes = yield from positions.by_leader(cluster, [key for key in keys if key not in found], deadline, without)
            missing = positions.no_leader(without) if without else None
            asked = [(f"asking node {node} for producers", ask(node, led)) for node, led in nodes.items()]
            yield from cluster.tasks.every(asked, deadline)
            if missing is not None:
                raise missing

        try:
            yield from self._of_topics(names, attempt, deadline)
        except WireprotoError as why:
            error = why if missing is None or not isinstance(why, TimedOut) else missing  # which says more than that time ran out
            error.known = found
            raise error from None
        return {key: found[key] for key in keys}

    @operation
    def abort_transaction(self, key: TopicPartition, producer: ProducerInfo, *, timeout: float = 30.0) -> Steps[None]:
        """Roll back a transaction that hangs in a partition: its leader writes the marker, and readers get past it.

        The call does not check whether the transaction hangs. Do not use it for one that its coordinator knows (`describe_transactions`):
        its records in other partitions may still be committed.

        Args:
            key: topic and partition.
            producer: as `describe_producers` described it there just now.
            timeout: seconds for the whole call.
        Raises:
            UsageError: the producer has no transaction open there.
            InvalidProducerEpoch, TransactionCoordinatorFenced: the partition has seen a newer epoch of the producer, or of its coordinator.
            UnknownTopicOrPartition: there is no such partition. AuthError: it takes the right to alter the cluster. TimedOut, Closed.
        """
        return self._marking(key, producer, False, timeout)

    @operation
    def commit_transaction(self, key: TopicPartition, producer: ProducerInfo, *, timeout: float = 30.0) -> Steps[None]:
        """Commit a transaction that hangs in a partition; all else as `abort_transaction` does.

        For one that its coordinator has committed, but left open in a partition that had no leader just then, as brokers of Kafka 4.3 do
        (KAFKA-20734). Aborting it would lose its records there.

        Args:
            key: topic and partition.
            producer: as `describe_producers` described it there just now.
            timeout: seconds for the whole call.
        Raises:
            UsageError, InvalidProducerEpoch, TransactionCoordinatorFenced, UnknownTopicOrPartition, AuthError, TimedOut, Closed: as
                `abort_transaction`.
        """
        return self._marking(key, producer, True, timeout)

    def _marking(self, key: TopicPartition, producer: ProducerInfo, commit: bool, timeout: float) -> Steps[None]:
        """Have the partition's leader write the marker that ends the transaction (WriteTxnMarkers)."""
        arguments.one_partition("key", key)
        if not isinstance(producer, ProducerInfo):
            raise OptionError(f"producer is a ProducerInfo, as describe_producers returns it, not {producer!r}")
        if producer.transaction_start is None:
            raise UsageError(f"producer {producer.producer_id} has no transaction open there", topic=key[0], partition=key[1])
        topic, number = key
        deadline = deadline_after(timeout)
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=commit,
            topics=(WritableTxnMarkerTopic(name=topic, partition_indexes=(number,)),),
            coordinator_epoch=producer.coordinator_epoch or 0,  # a later epoch would fence the real coordinator
        )
        cluster = self._cluster

        def attempt() -> Steps[None]:
            ((node, _),) = (yield from positions.by_leader(cluster, [key], deadline)).items()
            reply = yield from self._answer_of(node, WriteTxnMarkersRequest(markers=(marker,)), deadline)
            for part in (part for one in reply.markers for topic in one.topics for part in topic.partitions):
                if part.error_code:
                    what = f"{'committing' if commit else 'aborting'} a transaction of producer {producer.producer_id}"
                    raise error(part.error_code, what, message=reply.NAME, topic=topic).with_context(partition=number)

        yield from self._of_topics([topic], attempt, deadline)

    def _answer_of(self, node: int, request: Any, deadline: float) -> Steps[Any]:
        """Return one node's answer, without retries."""
        cluster = self._cluster
        conn = yield from cluster.connecting(node, "main", deadline)
        version = wire.version_for(conn, type(request))
        try:
            reply = yield from cluster.answered(conn, request, deadline, version=version)
        except ValueUnsupported as why:  # the version lacks a filter
            raise UnsupportedVersion(
                f"node {node} does not support this request, its release is too old: {why}", version=version, peer=conn.peer
            ) from why
        if hasattr(reply, "throttle_time_ms"):
            cluster.throttled(reply, conn)
        return reply

    def _of_topics(self, topics: Collection[str], attempt: Any, deadline: float) -> Steps[None]:
        """Run `attempt` again where leaders have moved; that a topic is unknown is raised after `unknown_topic_timeout` (it may be new)."""
        cluster = self._cluster
        again = cluster.while_new()
        yield from cluster.retrying(attempt, deadline, refresh=lambda why: cluster.refreshing(topics, deadline), judge=again)


def _transaction(state: Any, node: int) -> TransactionInfo:
    """Convert a state of DescribeTransactions."""
    parts = sorted((topic.topic, number) for topic in state.topics for number in topic.partitions)
    return TransactionInfo(
        name=state.transactional_id,
        state=state.transaction_state,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        coordinator=node,
        timeout=state.transaction_timeout_ms / 1000,
        started=_number_or_none(state.transaction_start_time_ms),
        partitions=tuple(parts),
    )


def _producer(one: Any) -> ProducerInfo:
    """Convert a producer of DescribeProducers."""
    return ProducerInfo(
        producer_id=one.producer_id,
        producer_epoch=one.producer_epoch,
        last_sequence=_number_or_none(one.last_sequence),
        last_timestamp=_number_or_none(one.last_timestamp),
        coordinator_epoch=_number_or_none(one.coordinator_epoch),
        transaction_start=_number_or_none(one.current_txn_start_offset),
    )


def _number_or_none(number: int) -> int | None:
    """Return a number of the wire, or None where it is negative: the broker has none."""
    return None if number < 0 else number


def _producers_of(keys: Iterable[TopicPartition]) -> DescribeProducersRequest:
    """Make the request that describes the producers of these partitions."""
    topics: dict[str, list[int]] = {}
    for topic, number in keys:
        topics.setdefault(topic, []).append(number)
    listed: Mapping[str, list[int]] = topics
    return DescribeProducersRequest(
        topics=tuple(DescribeProducersTopicRequest(name=name, partition_indexes=tuple(some)) for name, some in listed.items())
    )


def _name_in(partition: int, partitions: int) -> str:
    """Return a transactional id that belongs to this partition of `partitions`: the hash of a Java string of one character is its code."""
    return chr(-(-0x100 // partitions) * partitions + partition)
