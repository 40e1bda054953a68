"""Implements Kafka's transactions: one transactional id, its producer id and epoch, and the requests to its coordinator.

The hooks of `flow.transactions`. Which protocol is spoken depends on the cluster's finalized feature `transaction.version`, which is read
before each transaction, so that a transaction ends in the protocol in which it began (KIP-890):

    purpose                         level 2 (4.0 and later)           level 1 and 0
    partitions join                 with Produce                      AddPartitionsToTxn v0-3, before the first Produce
    a group's positions             TxnOffsetCommit v5+               AddOffsetsToTxn, then TxnOffsetCommit v0-4
    the end                         EndTxn v5+, which answers with    EndTxn v0-4; behind an abort InitProducerId raises the epoch, so that
                                    the next epoch                    late batches of the aborted transaction are refused

    EndTxn is answered with         meaning
    0                               ended as asked, perhaps by an earlier try of ours
    CONCURRENT_TRANSACTIONS         its markers are being written: try again
    INVALID_TXN_STATE, at a commit  it took longer than `transaction_timeout`, and was rolled back
    INVALID_PRODUCER_EPOCH,         another program has the name; at level 1 the former also means that it took too long:
    PRODUCER_FENCED                 DescribeTransactions tells which

Records are sent by `transactional`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

from ..errors import (
    Aborted,
    BrokerError,
    Fenced,
    OptionError,
    OutcomeUnknown,
    Revoked,
    TimedOut,
    UnsupportedVersion,
    UsageError,
    WireprotoError,
)
from ..flow.lost_answer import LostAnswer
from ..flow.topics import TopicsProducer
from ..flow.transactions import Transaction, Transactions
from ..net.retry import Policy, Verdict, Waits, verdict
from ..net.task import Steps, fresh
from . import wire
from .codes import ConcurrentTransactions, InvalidProducerIdMapping, error
from .identity import NO_IDENTITY, Identity, ProducerState
from .messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    DescribeTransactionsRequest,
    ProduceRequest,
)
from .offsets import GroupCommit, committing_within
from .outgoing import Key
from .producer import KafkaProducer
from .routing import TRANSACTION
from .transaction_calls import FENCING, OVER, OpenTransaction, asking, ending, naming
from .transactional import JOINS_FROM, TransactionProducer, TransactionSender

if TYPE_CHECKING:
    from .cluster import KafkaCluster
    from .consumer import KafkaConsumer
    from .options import KafkaOptions

__all__ = ["Identity", "KafkaTransactions", "OpenTransaction"]

_FOREVER = float("inf")
_DRAIN_POLL = Policy(first=0.001, factor=2.0, ceiling=0.02, jitter=0.0)
"""Poll interval while batches that were sent drain."""
_ADD_CAP = 3
"""The newest version of AddPartitionsToTxn for clients; later ones are for brokers."""
_OFFSETS_CAP = 4
"""The newest version of TxnOffsetCommit for a transaction of level 1."""
_OF_ITS_TIME = 0.9
"""Part of its timeout before which no coordinator rolls a transaction back for its age, however far its clock is from ours."""
_SWEPT, _ENDING = "CompleteAbort", "Prepare"


class KafkaTransactions(Transactions[KafkaProducer]):
    """The role that `KafkaClient.transactions` returns.

    Attributes:
        sending: the sender of all records of these transactions.
    """

    def __init__(self, cluster: KafkaCluster, name: str, options: KafkaOptions, identity: Identity) -> None:
        self.cluster = cluster
        self._options = options
        self._numbers = ProducerState.of_transactions(identity, options.max_in_flight)
        self.name = name
        self.sending = TransactionSender(cluster, options, self, self._numbers)
        self._positions: list[tuple[KafkaConsumer, GroupCommit]] = []
        self._began = 0.0
        super().__init__(cluster, name, options.timeout, self.sending.core.lock)
        self.topics = TopicsProducer(lambda topic, timeout: cluster.drive(self.producing(topic, timeout), _FOREVER))

    @classmethod
    def opening(cls, cluster: KafkaCluster, name: str, options: KafkaOptions, after: Identity | None = None) -> Steps[Self]:
        """Take the transactional id: its former user is fenced, and what that left open is rolled back.

        Raises:
            Fenced: `after` is given, and another program has taken the name since. OptionError: no name, or options without idempotence.
        """
        if not name or not isinstance(name, str):
            raise OptionError("transactions need a name: a text that stays the same over restarts of this program")
        if options.acks != "all" or options.idempotence is False or options.message_format != 2:
            raise OptionError("transactions need acks=all, idempotence and message_format=2")
        try:
            identity = yield from naming(cluster, name, options.transaction_timeout, after, cluster.deadline(options.timeout))
        except (*FENCING, InvalidProducerIdMapping) as why:
            raise Fenced(f"another program has the transactional name {name!r} since: {why}") from why
        return cls(cluster, name, options, identity)

    @property
    def identity(self) -> Identity:
        """Return the producer id and epoch that the name has now; pass it to another client's `transactions` as `after`."""
        found: Identity = self._numbers.identity
        return found

    def handing_over(self) -> OpenTransaction | None:
        """Return what another client needs to end the open transaction, and use the name no more here; None: nothing is in it."""
        if not self.sending.started:
            return None
        self.fence = UsageError(f"the transaction of {self.name!r} was handed over: use another name for the next transaction")
        identity = self._numbers.identity
        return OpenTransaction(self.name, identity.producer_id, identity.epoch, self.sending.joins)

    def producing(self, topic: str, timeout: float) -> Steps[KafkaProducer]:
        """Make the producer of one topic.

        Args:
            topic: its name. timeout: seconds to look the topic up.
        Raises:
            UnknownTopicOrPartition: there is no such topic. TimedOut, AuthError, Closed.
        """
        return TransactionProducer.opening_at(self.sending, self.cluster, topic, self._options, timeout)

    # --- before ---

    def beginning(self, deadline: float) -> Steps[None]:
        """Find out which protocol the next transaction uses; where that changed since the last one, it begins under a new epoch.

        Args:
            deadline: a time.monotonic() value.
        Raises:
            Fenced: another program has the name. TimedOut, Unreachable, AuthError, Closed: the coordinator cannot be reached.
        """
        conn = yield from self.cluster.retrying(lambda: self._route(deadline), deadline)
        agreed: wire.Agreed = conn.context
        newest = agreed.versions.newest(ProduceRequest)
        joins = agreed.versions.features.get("transaction.version", 0) >= 2 and newest is not None and newest >= JOINS_FROM
        if self.now is not None and joins != self.sending.joins:
            yield from self._renewing(deadline)
        self.sending.speak(joins)
        self._began = time.monotonic()
        self._positions.clear()

    def _made(self, begun: None) -> Transaction[KafkaProducer]:
        return Transaction(self, LostAnswer("EndTxn"))

    def _route(self, until: float) -> Steps[Any]:
        """Connect to the transaction's coordinator."""
        return self.cluster.to_coordinator(self.name, TRANSACTION)(until)

    def _renewing(self, until: float) -> Steps[None]:
        """Get the next epoch. Raises Fenced when another program has the name."""
        try:
            found = yield from naming(self.cluster, self.name, self._options.transaction_timeout, self._numbers.identity, until)
        except (*FENCING, InvalidProducerIdMapping) as why:
            raise self.fenced(why) from why
        self._numbers.identity = found

    # --- within ---

    def adding(self, keys: Iterable[Key], until: float) -> Steps[None]:
        """Make partitions part of the transaction (AddPartitionsToTxn).

        Args:
            keys: (topic, number) of each. until: the deadline, a time.monotonic() value.
        Raises:
            Aborted: the transaction has to be rolled back by now. BrokerError: a partition is refused. TimedOut.
        """
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(keys):
            topics.setdefault(topic, []).append(partition)
        identity = self._numbers.identity
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=tuple(AddPartitionsToTxnTopic(name=topic, partitions=tuple(some)) for topic, some in topics.items()),
        )

        def check(reply: Any) -> BrokerError | None:
            if self.now is not None and not self.under_way():
                raise self.now.lost("the transaction is rolled back")
            worst: BrokerError | None = None
            for topic in reply.results_by_topic_v3_and_below:
                for part in topic.results_by_partition:
                    if part.partition_error_code:
                        found = error(part.partition_error_code, "adding it to the transaction", topic=topic.name)
                        found.with_context(partition=part.partition_index)
                        if worst is None or verdict(found) is Verdict.NEVER:
                            worst = found
            return worst

        yield from self._asking(request, until, check=check, cap=lambda: _ADD_CAP)

    def storing_positions(self, turn: Transaction[KafkaProducer], consumer: KafkaConsumer, positions: Any, deadline: float) -> Steps[None]:
        """Commit a consumer's positions within the transaction.

        Args:
            turn: the transaction. consumer: a member of a group that does not commit automatically.
            positions: by (topic, partition); None: behind all that its polls have returned.
            deadline: a time.monotonic() value.
        Raises:
            Aborted: partitions were revoked, or the positions refused: the transaction has to be rolled back.
            TimedOut: whether they are stored is not known; the transaction has to be rolled back. UsageError: the consumer commits
                automatically.
        """
        try:
            group_commit = consumer.group_commit(positions)
        except Revoked as why:
            turn.fails(why)  # its records will be made again from what another member, or a later poll of this one, reads
            raise turn.lost("the transaction has to be rolled back") from why
        if not group_commit.offsets:
            return
        sending = self.sending
        sending.started = True
        try:
            if not sending.joins:
                identity = self._numbers.identity
                adding = AddOffsetsToTxnRequest(
                    transactional_id=self.name, producer_id=identity.producer_id, producer_epoch=identity.epoch, group_id=group_commit.group
                )
                yield from self._asking(adding, deadline)
            cap = None if sending.joins else _OFFSETS_CAP
            yield from committing_within(self.cluster, self.name, self._numbers.identity, group_commit, deadline, cap=cap)
        except UsageError:
            raise
        except WireprotoError as why:
            turn.fails(why)
            if isinstance(why, TimedOut):
                raise
            raise turn.lost("the positions were refused, and the transaction has to be rolled back") from why
        self._positions.append((consumer, group_commit))

    # --- the end ---

    def flushing(self, turn: Transaction[KafkaProducer], deadline: float) -> Steps[None]:
        """Wait until each record has its outcome.

        Args:
            turn: the transaction. deadline: a time.monotonic() value.
        Raises:
            TimedOut: not all have one.
        """
        yield from self.sending.core.flushing(deadline, _any)

    def dropping(self, turn: Transaction[KafkaProducer], why: WireprotoError, deadline: float) -> Steps[None]:
        """Fail the records that were not sent, and wait until no request of the transaction is in flight. May be called again.

        Args:
            turn: the transaction. why: the error of those records. deadline: a time.monotonic() value.
        Raises:
            TimedOut: the coordinator or a leader has not answered in time.
        """
        core = self.sending.core
        left = core.unsettled(_any)
        keys = {batch.key for batch in left}
        if any(batch.identity is not NO_IDENTITY for batch in left):
            self.sending.started = True  # it has its sequence, and a signal handler kept it here: only a new epoch restarts sequences
        core.abandon(_any, why)
        joining = self.sending.joining
        if joining is not None and not (yield joining, deadline):
            raise TimedOut("the coordinator has not confirmed in time which partitions are in the transaction")
        waits = Waits(_DRAIN_POLL)
        while core.keys_in_flight(keys):
            if time.monotonic() >= deadline:
                raise TimedOut("partition leaders have not answered the requests in flight in time")
            yield min(time.monotonic() + waits.next(), deadline)

    def ending(self, turn: Transaction[KafkaProducer], commit: bool) -> Steps[None]:
        """End the transaction at its coordinator, however long that takes.

        Args:
            turn: the transaction. commit: True: commit it; False: roll it back.
        Raises:
            Aborted: it was rolled back for its age instead of committed. Fenced: another program has the name.
            OutcomeUnknown: the answer to an attempt to commit was lost, and the coordinator has forgotten the name.
        """
        sending = self.sending
        if not sending.started:
            return
        identity = self._numbers.identity
        open_one = OpenTransaction(self.name, identity.producer_id, identity.epoch, sending.joins)
        try:
            reply = yield from ending(self.cluster, open_one, commit, _FOREVER, turn.lost_answer)
        except OVER as why:
            yield from self._ended_otherwise(turn, why, commit)
            return
        if sending.joins and reply.producer_id >= 0:
            self._numbers.identity = Identity(reply.producer_id, reply.producer_epoch)
        elif not commit:
            yield from self._renewing(_FOREVER)
        if commit:
            for consumer, group_commit in self._positions:
                consumer.stored(group_commit)

    def _ended_otherwise(self, turn: Transaction[KafkaProducer], why: BrokerError, commit: bool) -> Steps[None]:
        """Find out what it means that the coordinator had ended the transaction, or does not know it.

        Raises what that means, unless the transaction ended as was asked.
        """
        try:
            if not isinstance(why, FENCING):
                yield from self._renewing(_FOREVER)
            elif self.sending.joins or not (yield from self._swept()):
                raise self.fenced(why)
        except WireprotoError as fence:
            made = fresh(fence)  # the one that later calls raise says nothing of this transaction
            made.doubtful = commit
            if commit and turn.lost_answer.failure is not None:
                made.text += f"; whether it was committed before is not known: {turn.lost_answer}"
            raise made from fence.__cause__
        if commit and isinstance(why, InvalidProducerIdMapping) and (failure := turn.lost_answer.failure) is not None:
            text = f"{turn.lost_answer}; asked again, the coordinator has forgotten the transactional name: {why}"
            raise OutcomeUnknown(f"{text}. What was stored in the transaction itself shows whether it was committed") from failure
        if commit:
            text = "the coordinator had rolled the transaction back: it took longer than transaction_timeout"
            raise Aborted(f"{text} ({self._options.transaction_timeout:g} s)") from why

    def _swept(self) -> Steps[bool]:
        """Return whether our transaction was rolled back for its age, and get the next epoch if so.

        At level 1 the coordinator refuses requests with the former epoch as if the producer was fenced.

        It raises the epoch by one then. So does the first step of another program that takes the name from an open transaction, whose
        second step raises it again; in between, and to a coordinator that takes the epoch before the newest for a repeated request
        (KIP-360), the two look alike. So the coordinator is asked only where the transaction's time was over. Without an open transaction
        there is no telling: Fenced.

        InitProducerId must not be used to find out, unless nothing else can: a coordinator rolls back what is open under the name for any
        producer that asks, before it checks whether its epoch is the newest, and so fences the one that has the newest.
        """
        before = self._numbers.identity
        over = time.monotonic() - self._began >= _OF_ITS_TIME * self._options.transaction_timeout
        if not over or (not self.sending.joined and not self._positions):
            return False
        try:
            reply = yield from self._asking(DescribeTransactionsRequest(transactional_ids=(self.name,)), _FOREVER, check=_described)
        except (BrokerError, UnsupportedVersion):  # before Kafka 3.0, or not allowed
            yield from self._renewing(_FOREVER)
            return True
        state = reply.transaction_states[0]
        if (state.transaction_state, state.producer_id, state.producer_epoch) != (_SWEPT, before.producer_id, before.epoch + 1):
            return False
        self._numbers.identity = Identity(before.producer_id, before.epoch + 1)
        yield from self._renewing(_FOREVER)
        return True

    def _asking(self, request: Any, until: float, **how: Any) -> Steps[Any]:
        """Ask the transaction's coordinator; see `asking`."""
        return asking(self.cluster, self.name, request, until, **how)


def _described(reply: Any) -> BrokerError | None:
    """Return the error of a description; one whose markers are being written is asked for again."""
    state = reply.transaction_states[0]
    if state.error_code:
        return error(state.error_code, "describing a transaction")
    return ConcurrentTransactions("its markers are being written") if state.transaction_state.startswith(_ENDING) else None


def _any(batch: object) -> bool:
    """Match any batch."""
    return True
