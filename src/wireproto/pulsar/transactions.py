"""Puts records of any topics and acknowledgements into transactions: all of them happen, or none.

Implements the hooks of `flow.transactions`, and keeps what one transaction knows of itself.

    begin      NEW_TXN, at the coordinators in turn; from then on it has `transaction_timeout`, by the coordinator's clock and by ours
    records    see `transactional`
    acks       ADD_SUBSCRIPTION_TO_TXN once for a subscription, then ACK with the transaction's number, once: an ACK that is refused or not
               answered rolls the transaction back. Queues and consumers are called back when it has ended (`holds`)
    the end    END_TXN when no SEND, no ACK and no registration is in flight any more; none is sent after it

    END_TXN is answered with               meaning
    success                                ended as was asked
    TransactionNotFound, InvalidTxnStatus  the coordinator has rolled it back, since it took too long or an operator aborted it; but where
                                           an earlier attempt of ours to commit got no answer, that may have committed it: OutcomeUnknown

A name is for people only: coordinators know transactions by numbers that they assign, so no other program is fenced, and what a program
left open when it was killed is rolled back when its timeout is over. The module sends no record and no ACK itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping
from inspect import GEN_CLOSED, GEN_RUNNING, GEN_SUSPENDED, getgeneratorstate
from typing import TYPE_CHECKING, Any, Self

from wireproto.deadlines import deadline_after
from wireproto.errors import Aborted, Closed, OptionError, OutcomeUnknown, TimedOut, UsageError, WireprotoError
from wireproto.flow.lost_answer import LostAnswer
from wireproto.flow.topics import TopicsProducer
from wireproto.flow.transactions import Transaction, Transactions
from wireproto.net.retry import Policy, Waits
from wireproto.net.task import Steps, operation, steps

from . import PulsarApi_pb2 as api
from .coordinators import OVER, Coordinators, TransactionId
from .producer import PulsarProducer
from .transactional import TransactionProducer, TransactionSender

if TYPE_CHECKING:
    from wireproto._net import Call
    from wireproto.position import Position, TopicPartition
    from wireproto.records import Delivery

    from .cluster import PulsarCluster
    from .options import PulsarOptions
    from .partition_producer import PartitionProducer

__all__ = ["PulsarTransaction", "PulsarTransactions", "TransactionId"]

_FOREVER = float("inf")
_DRAIN_POLL = Policy(first=0.001, factor=2.0, ceiling=0.02, jitter=0.0)
"""Pauses between two checks whether what is in flight has its answer."""


class PulsarTransaction(Transaction[PulsarProducer]):
    """One transaction. See `wireproto.flow.transactions.Transaction`.

    Attributes:
        id: its number at its coordinator.
        expires: when `transaction_timeout` is over, as `time.monotonic()`.
        joined: the partitions that are part of it.
        subscribed: the (topic, subscription) pairs that are part of it.
        committed: the last commit of each consumer in each of its partitions.
        asked: ACKs that were sent and are not answered.
        shut: whether its coordinator is being asked to end it, or was.
    """

    _work: PulsarTransactions

    def __init__(self, work: PulsarTransactions, number: TransactionId, expires: float) -> None:
        super().__init__(work, LostAnswer("END_TXN"))
        self.id = number
        self.expires = expires
        self.joined: set[PartitionProducer] = set()
        self.subscribed: set[tuple[str, str]] = set()
        self.committed: dict[tuple[int, TopicPartition], Position] = {}
        self.asked: dict[object, Call] = {}
        self.shut = False
        self._inside: set[Generator[Any, Any, None]] = set()
        self._held: list[Callable[[bool], object]] = []
        self._timer = work.loop.call_at(expires, self._expired)

    def _expired(self) -> None:
        self.fails(TimedOut(f"it took longer than transaction_timeout ({self._work.transaction_timeout:g} s)"))

    @operation
    def ack(self, delivery: Delivery, *, timeout: float = 30.0) -> Steps[None]:
        """Have a queue's message acknowledged when the transaction commits; when it is rolled back, the message is given back.

        Args:
            delivery: of a queue of the same client. This ends it, as its own `ack` would.
            timeout: seconds for the call.

        Raises:
            Aborted: the transaction has to be rolled back: another one has acknowledged the message, or the outcome of the ACK is unknown.
            Revoked: the message was passed to a transaction before; this one goes on.
            TimedOut: no answer in time; the transaction has to be rolled back.
            UsageError: the transaction is over, the delivery was acknowledged or released before, or it is not of a queue of this client.
        """
        self.check()
        yield from self._work.acking(self, delivery, deadline_after(timeout))

    # -- for queues and consumers -------------------------------------------------------------------------------

    def waits_for(self, asking: Generator[Any, Any, None]) -> None:
        """Have the transaction's end wait for these steps while they run.

        The steps `check` the transaction as they begin. The end looks at the generator's own state, so that an exception of a signal
        handler, wherever it is raised, leaves nothing behind that the end would wait for in vain.

        Args:
            asking: the steps, not begun yet.
        """
        with self._work.lock:
            self._inside = {one for one in self._inside if getgeneratorstate(one) != GEN_CLOSED} | {asking}

    def registering(self, topic: str, subscription: str, until: float) -> Steps[None]:
        """Make a subscription part of the transaction, once (ADD_SUBSCRIPTION_TO_TXN). Steps.

        Args:
            topic: full name of the partition. subscription: its name. until: deadline, as `time.monotonic()`.

        Raises:
            PulsarError: the coordinator refuses. TimedOut: it does not answer.
        """
        if (topic, subscription) in self.subscribed:
            return
        command = api.CommandAddSubscriptionToTxn(txnid_most_bits=self.id.most, txnid_least_bits=self.id.least)
        command.subscription.add(topic=topic, subscription=subscription)
        yield from self._work.coordinators.asking(command, until)
        self.subscribed.add((topic, subscription))

    def holds(self, over: Callable[[bool], object]) -> None:
        """Call `over` when the transaction has ended, in the I/O thread.

        Args:
            over: gets whether the transaction was committed.
        """
        self._held.append(over)

    # -- its end ------------------------------------------------------------------------------------------------

    @property
    def all_answered(self) -> bool:
        """Whether nothing that was requested within it is in flight. What its coordinator has forgotten by now is not waited for."""
        inside = any(getgeneratorstate(one) in (GEN_RUNNING, GEN_SUSPENDED) for one in self._inside)
        return not inside and (all(call.done for call in self.asked.values()) or time.monotonic() >= self.expires)

    def settle(self, committed: bool) -> None:
        """Note the end: stop the timer, give up unanswered ACKs, and call what `holds` was given.

        Args:
            committed: whether it was committed.
        """
        self._timer.cancel()
        for call in self.asked.values():
            call.cancel()
        held, self._held = self._held, []
        for over in held:
            over(committed)


class PulsarTransactions(Transactions[PulsarProducer]):
    """Transactions of one client, one after the other; made by `PulsarClient.transactions`.

    Attributes:
        cluster: of the client.
        coordinators: the cluster's transaction coordinators.
        transaction_timeout: seconds after which a coordinator rolls a transaction back.
        sending: the sender of all records that are sent here.
    """

    def __init__(self, cluster: PulsarCluster, coordinators: Coordinators, name: str, options: PulsarOptions) -> None:
        self.cluster = cluster
        self.coordinators = coordinators
        self.transaction_timeout = options.transaction_timeout
        self.sending = TransactionSender(cluster, options, self)
        super().__init__(cluster, name, options.timeout, self.sending.core.lock)
        self._options = options
        self.topics = TopicsProducer(lambda topic, timeout: cluster.drive(self.producing(topic, timeout), _FOREVER))

    @classmethod
    def opening(cls, cluster: PulsarCluster, coordinators: Coordinators, name: str, options: PulsarOptions) -> Steps[Self]:
        """Find the coordinators, and return the role. Steps.

        Args:
            cluster: of the client. coordinators: of the cluster. name: of the transactions. options: of the role.

        Raises:
            OptionError: `name` is empty or not text. NotAllowedError: the cluster has no transactions. TimedOut: no coordinator answered.
        """
        if not name or not isinstance(name, str):
            raise OptionError("transactions need a name: a text that identifies them in error texts and logs")
        yield from coordinators.finding(cluster.deadline(options.timeout))
        return cls(cluster, coordinators, name, options)

    def producing(self, topic: str, timeout: float) -> Steps[PulsarProducer]:
        """Make the producer of a topic, which sends in the transaction that is open. Steps.

        Args:
            topic: any form of its name. timeout: seconds to open it.

        Raises:
            PulsarError: a broker refuses. TransportError: not open in time.
        """
        deadline = self.cluster.deadline(timeout)
        return TransactionProducer.opening(self.cluster, self.sending, topic, self._options, deadline)

    @property
    def turn(self) -> PulsarTransaction | None:
        """The transaction that is open, or was last."""
        turn: Any = self.now
        found: PulsarTransaction | None = turn
        return found

    # -- before -------------------------------------------------------------------------------------------------

    @operation
    def begin(self, *, timeout: float = 30.0) -> Steps[PulsarTransaction]:
        """Begin the next transaction; wait for the end of the one before, where that is under way.

        A coordinator that has `maxActiveTransactionsPerCoordinator` open transactions gives no answer, so that the call times out.

        Args:
            timeout: seconds for the call.

        Raises:
            UsageError: one is open. Closed: the role or its client was closed. TimedOut: no coordinator answered.
            TransactionError: what the end of the one before came to instead of what was asked, Aborted for example.
        """
        made: Any = yield from steps(super().begin)(timeout=timeout)
        begun: PulsarTransaction = made
        return begun

    def beginning(self, deadline: float) -> Steps[tuple[TransactionId, float]]:
        """Ask a coordinator for a new transaction (NEW_TXN). Steps.

        Args:
            deadline: as `time.monotonic()`.

        Returns:
            the transaction's number, and when its timeout is over, as `time.monotonic()`.

        Raises:
            PulsarError: the coordinator refuses. TransportError: none answered.
        """
        expires = time.monotonic() + self.transaction_timeout
        number = yield from self.coordinators.beginning(int(self.transaction_timeout * 1000), deadline)
        return number, expires

    def _made(self, begun: tuple[TransactionId, float]) -> PulsarTransaction:
        return PulsarTransaction(self, *begun)

    # -- within -------------------------------------------------------------------------------------------------

    def adding(self, partitions: Iterable[PartitionProducer], until: float) -> Steps[None]:
        """Make partitions part of the open transaction (ADD_PARTITION_TO_TXN). Steps.

        Args:
            partitions: which to add. until: deadline, as `time.monotonic()`; the transaction's own timeout may come first.

        Raises:
            PulsarError: the coordinator refuses. TimedOut: it does not answer.
        """
        turn = self.turn
        assert turn is not None
        command = api.CommandAddPartitionToTxn(txnid_most_bits=turn.id.most, txnid_least_bits=turn.id.least)
        command.partitions.extend(sorted(partition.name for partition in partitions))
        yield from self.coordinators.asking(command, min(until, turn.expires))

    def acking(self, turn: PulsarTransaction, delivery: Delivery, deadline: float) -> Steps[None]:
        """Acknowledge a delivery within a transaction; see `PulsarTransaction.ack`. Steps.

        Args:
            turn: the transaction. delivery: of a queue of this client. deadline: as `time.monotonic()`.

        Raises:
            UsageError: the delivery is not of a queue of this client. Else as `PulsarTransaction.ack`.
        """
        from .queue import PulsarQueue

        queue = getattr(delivery._end_later, "__self__", None)
        if not isinstance(queue, PulsarQueue) or not queue.of(self.cluster):
            raise UsageError(f"a transaction acknowledges only deliveries of its own client's queues, not {delivery!r}")
        yield from self._within(turn, queue.acking_within(turn, delivery, deadline))

    def storing_positions(
        self, turn: Transaction[PulsarProducer], consumer: Any, positions: Mapping[TopicPartition, Position] | None, deadline: float
    ) -> Steps[None]:
        """Commit a consumer's positions within a transaction; see `wireproto.flow.transactions.Transaction.commit_positions`. Steps.

        Args:
            turn: the transaction. consumer: of this client.
            positions: where to resume, by (topic, partition); None: after what its polls returned. deadline: as `time.monotonic()`.

        Raises:
            UsageError: the consumer is not of this client, or commits automatically.
            Aborted: the transaction has to be rolled back, for example because another member reads a partition now.
            TimedOut: no answer in time; the transaction has to be rolled back.
        """
        from .consumer import PulsarConsumer

        if not isinstance(consumer, PulsarConsumer) or not consumer.of(self.cluster):
            raise UsageError(f"a transaction commits positions only for consumers of its own client, not for {consumer!r}")
        mine: Any = turn
        yield from self._within(mine, consumer.committing_within(mine, positions, deadline))

    def _within(self, turn: PulsarTransaction, asking: Steps[None]) -> Steps[None]:
        """Run the steps; a request that is refused or not answered has the transaction rolled back, a UsageError does not."""
        guarded = self._guarded(turn, asking)
        turn.waits_for(guarded)
        yield from guarded

    def _guarded(self, turn: PulsarTransaction, asking: Steps[None]) -> Steps[None]:
        with self.lock:
            turn.check()  # from here on its end waits for these steps, which have requested nothing before
        try:
            yield from asking
        except (UsageError, Aborted):
            raise
        except TimedOut as late:
            turn.fails(late)
            raise
        except WireprotoError as why:
            turn.fails(why)
            raise turn.lost("the transaction has to be rolled back") from why
        except BaseException:  # a signal handler's: the request may have been sent
            turn.fails(Closed("an acknowledgement in the transaction was interrupted by an exception: roll the transaction back"))
            raise

    # -- the end ------------------------------------------------------------------------------------------------

    def handing_over(self) -> TransactionId:
        """Return the open transaction's number, by which another client ends it; nothing more is sent in it here.

        Its receipts are all there, and a SEND after its end would block its topics for ever.

        Raises:
            UsageError: the transaction acknowledges messages, whose queues have to be called back at its end.
        """
        turn = self.turn
        assert turn is not None
        if turn.subscribed:
            raise UsageError("a transaction that acknowledges messages cannot be handed over: its queues have to be notified of its end")
        with self.lock:
            turn.shut = True
        turn.settle(False)
        return turn.id

    def flushing(self, turn: Transaction[PulsarProducer], deadline: float) -> Steps[None]:
        """Wait until each record has its outcome, and each ACK its answer. Steps.

        Args:
            turn: the transaction. deadline: as `time.monotonic()`.

        Raises:
            TimedOut: not all have.
        """
        yield from self.sending.core.flushing(deadline, _any)
        mine: Any = turn
        yield from self._until_answered(lambda: bool(mine.all_answered), deadline)

    def dropping(self, turn: Transaction[PulsarProducer], why: WireprotoError, deadline: float) -> Steps[None]:
        """Fail the records that were not sent, and wait until nothing of the transaction is in flight. Steps; may be repeated.

        Args:
            turn: the transaction. why: the error of those records. deadline: as `time.monotonic()`.

        Raises:
            TimedOut: something is in flight still.
        """
        core = self.sending.core
        core.abandon(_any, why)
        joining = self.sending.joining()
        if joining is not None and not (yield joining, deadline):
            raise TimedOut("the coordinator has not confirmed in time which partitions are in the transaction")
        mine: Any = turn
        yield from self._until_answered(lambda: bool(mine.all_answered) and not core.keys_in_flight(mine.joined), deadline)

    def _until_answered(self, all_answered: Callable[[], bool], deadline: float) -> Steps[None]:
        waits = Waits(_DRAIN_POLL)
        while not all_answered():
            if time.monotonic() >= deadline:
                raise TimedOut("brokers have not answered the requests in flight in time")
            yield min(time.monotonic() + waits.next(), deadline)

    def ending(self, turn: Transaction[PulsarProducer], commit: bool) -> Steps[None]:
        """Have the coordinator end the transaction (END_TXN), for as long as it takes. Steps.

        Args:
            turn: the transaction. commit: whether to commit it; else it is rolled back.

        Raises:
            Aborted: it was to be committed, and the coordinator had rolled it back.
            OutcomeUnknown: the answer to an attempt to commit was lost, and the coordinator has forgotten the transaction.
        """
        mine: Any = turn
        with self.lock:
            mine.shut = True
        committed = False
        try:
            yield from self._send_end(mine, commit)
            committed = commit
        finally:
            mine.settle(committed)

    def _send_end(self, turn: PulsarTransaction, commit: bool) -> Steps[None]:
        """Send END_TXN until it is answered. Raises what the transaction came to instead."""
        try:
            yield from self.coordinators.ending(turn.id, commit, _FOREVER, turn.lost_answer)
        except OVER as why:
            if not commit:
                return
            if (failure := turn.lost_answer.failure) is not None:
                text = f"{turn.lost_answer}; asked again, the coordinator has forgotten transaction {turn.id}: {type(why).__name__}: {why}"
                raise OutcomeUnknown(f"{text}. What was stored in the transaction itself shows whether it was committed") from failure
            text = "the coordinator had rolled the transaction back: it took longer than transaction_timeout"
            raise Aborted(f"{text} ({self.transaction_timeout:g} s), or an operator aborted it") from why


def _any(batch: object) -> bool:
    return True
