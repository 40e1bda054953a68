"""Transactions of Pulsar: records to any topics and acknowledgements, all of them or none.

What it is: the hooks of `flow.transactions`, and what one transaction knows of itself.

    begin      NEW_TXN, at the coordinators in turn; from then on it has `transaction_timeout`, by the coordinator's clock and by ours
    records    see `transactional`
    acks       ADD_SUBSCRIPTION_TO_TXN once for a subscription, then ACK with the transaction's number, once: one that is not answered has
               it rolled back, as one that is refused. Queues and consumers know what to do with them when it has ended (`holds`)
    the end    END_TXN when no SEND, no ACK and no registration is under way any more; none leaves behind it

    END_TXN is answered with               meaning
    success                                so it is
    TransactionNotFound, InvalidTxnStatus  the coordinator has rolled it back, since it took too long or an operator said so; but where an
                                           earlier try of ours to commit got no answer, it may have been committed by that: OutcomeUnknown

A name is for people here: coordinators know transactions by numbers that they give themselves, so that nobody is fenced, and what a program
left open when it was killed is rolled back when its time is over.
May assume: a cluster. Must not: put a record or an ACK anywhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping
from inspect import GEN_CLOSED, GEN_RUNNING, GEN_SUSPENDED, getgeneratorstate
from typing import TYPE_CHECKING, Any, Self

from wireproto.deadlines import deadline_after
from wireproto.errors import Aborted, Closed, OptionError, OutcomeUnknown, TimedOut, UsageError, WireprotoError
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
_LANDING = Policy(first=0.001, factor=2.0, ceiling=0.02, jitter=0.0)
"""Between two looks whether what is on its way has landed."""


class PulsarTransaction(Transaction[PulsarProducer]):
    """One transaction. See `wireproto.flow.transactions.Transaction`.

    Attributes:
        id: its number at its coordinator. expires: when its time is over, as `time.monotonic()`.
        joined: the partitions that are part of it. shut: whether its coordinator is told of its end, or was.
        asked: ACKs that have left and are not answered; a consumer's last commit of each partition is in `committed`.
    """

    _work: PulsarTransactions

    def __init__(self, work: PulsarTransactions, number: TransactionId, expires: float) -> None:
        super().__init__(work)
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
            delivery: of a queue of the same client. It has come to its end by this, as by its own `ack`.
        Raises:
            Aborted: it has to be rolled back: another transaction has acknowledged the message, or it cannot be known what became of this.
            Revoked: the message was no longer ours; the transaction goes on.
        """
        self.check()
        yield from self._work.acking(self, delivery, deadline_after(timeout))

    # -- for queues and consumers -------------------------------------------------------------------------------

    def waits_for(self, asking: Generator[Any, Any, None]) -> None:
        """Its end waits for these steps, which `check` it when they have begun, for as long as they go on: told by the steps themselves,
        so that a signal handler's exception, wherever it is raised, leaves nothing that is waited for in vain."""
        with self._work.lock:
            self._inside = {one for one in self._inside if getgeneratorstate(one) != GEN_CLOSED} | {asking}

    def registering(self, topic: str, subscription: str, until: float) -> Steps[None]:
        """Make a subscription part of it, once."""
        if (topic, subscription) in self.subscribed:
            return
        command = api.CommandAddSubscriptionToTxn(txnid_most_bits=self.id.most, txnid_least_bits=self.id.least)
        command.subscription.add(topic=topic, subscription=subscription)
        yield from self._work.coordinators.asking(command, until)
        self.subscribed.add((topic, subscription))

    def holds(self, over: Callable[[bool], object]) -> None:
        """Called when it has ended, in the I/O thread: whether it was committed."""
        self._held.append(over)

    # -- its end ------------------------------------------------------------------------------------------------

    @property
    def landed(self) -> bool:
        """Whether nothing that was asked for within it is under way; what its coordinator has forgotten by now is not waited for."""
        inside = any(getgeneratorstate(one) in (GEN_RUNNING, GEN_SUSPENDED) for one in self._inside)
        return not inside and (all(call.done for call in self.asked.values()) or time.monotonic() >= self.expires)

    def settle(self, committed: bool) -> None:
        """It has ended."""
        self._timer.cancel()
        for call in self.asked.values():
            call.cancel()
        held, self._held = self._held, []
        for over in held:
            over(committed)


class PulsarTransactions(Transactions[PulsarProducer]):
    """What `PulsarClient.transactions` returns.

    Attributes:
        sending: the sender of all that is sent here.
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
        """Find the coordinators."""
        if not name or not isinstance(name, str):
            raise OptionError("transactions need a name: a text by which people tell them from others")
        yield from coordinators.finding(cluster.deadline(options.timeout))
        return cls(cluster, coordinators, name, options)

    def producing(self, topic: str, timeout: float) -> Steps[PulsarProducer]:
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
        """The next transaction; waits for the end of the one before, where that is under way.

        Raises:
            UsageError: one is open. Closed, TimedOut; a coordinator that has `maxActiveTransactionsPerCoordinator` of them gives no answer.
        """
        made: Any = yield from steps(super().begin)(timeout=timeout)
        begun: PulsarTransaction = made
        return begun

    def beginning(self, deadline: float) -> Steps[tuple[TransactionId, float]]:
        expires = time.monotonic() + self.transaction_timeout
        number = yield from self.coordinators.beginning(int(self.transaction_timeout * 1000), deadline)
        return number, expires

    def _made(self, begun: tuple[TransactionId, float]) -> PulsarTransaction:
        return PulsarTransaction(self, *begun)

    # -- within -------------------------------------------------------------------------------------------------

    def adding(self, partitions: Iterable[PartitionProducer], until: float) -> Steps[None]:
        """ADD_PARTITION_TO_TXN."""
        turn = self.turn
        assert turn is not None
        command = api.CommandAddPartitionToTxn(txnid_most_bits=turn.id.most, txnid_least_bits=turn.id.least)
        command.partitions.extend(sorted(partition.name for partition in partitions))
        yield from self.coordinators.asking(command, min(until, turn.expires))

    def acking(self, turn: PulsarTransaction, delivery: Delivery, deadline: float) -> Steps[None]:
        """See `PulsarTransaction.ack`."""
        from .queue import PulsarQueue

        queue = getattr(delivery._end_later, "__self__", None)
        if not isinstance(queue, PulsarQueue) or not queue.of(self.cluster):
            raise UsageError(f"a transaction acknowledges what came from a queue of its own client, not {delivery!r}")
        yield from self._within(turn, queue.acking_within(turn, delivery, deadline))

    def storing_positions(
        self, turn: Transaction[PulsarProducer], consumer: Any, positions: Mapping[TopicPartition, Position] | None, deadline: float
    ) -> Steps[None]:
        from .consumer import PulsarConsumer

        if not isinstance(consumer, PulsarConsumer) or not consumer.of(self.cluster):
            raise UsageError(f"a transaction commits for a consumer of its own client, not for {consumer!r}")
        mine: Any = turn
        yield from self._within(mine, consumer.committing_within(mine, positions, deadline))

    def _within(self, turn: PulsarTransaction, asking: Steps[None]) -> Steps[None]:
        """What is refused, or not answered, has the transaction rolled back; what could not even be asked for does not."""
        guarded = self._guarded(turn, asking)
        turn.waits_for(guarded)
        yield from guarded

    def _guarded(self, turn: PulsarTransaction, asking: Steps[None]) -> Steps[None]:
        with self.lock:
            turn.check()  # behind this its end waits for these steps, and before it they ask for nothing
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
        except BaseException:  # a signal handler's: it may have been asked for
            turn.fails(Closed("what was to be acknowledged was broken off"))
            raise

    # -- the end ------------------------------------------------------------------------------------------------

    def handing_over(self) -> TransactionId:
        """Nothing of it leaves any more: its receipts are here, and what comes behind its end would block its topics for ever."""
        turn = self.turn
        assert turn is not None
        if turn.subscribed:
            raise UsageError("a transaction that acknowledges messages cannot be handed over: its queues must hear of its end")
        with self.lock:
            turn.shut = True
        turn.settle(False)
        return turn.id

    def flushing(self, turn: Transaction[PulsarProducer], deadline: float) -> Steps[None]:
        yield from self.sending.core.flushing(deadline, _any)
        mine: Any = turn
        yield from self._landing(lambda: bool(mine.landed), deadline)

    def dropping(self, turn: Transaction[PulsarProducer], why: WireprotoError, deadline: float) -> Steps[None]:
        core = self.sending.core
        core.abandon(_any, why)
        joining = self.sending.joining()
        if joining is not None and not (yield joining, deadline):
            raise TimedOut("the coordinator has not answered in time which partitions are in the transaction")
        mine: Any = turn
        yield from self._landing(lambda: bool(mine.landed) and not core.flying(mine.joined), deadline)

    def _landing(self, landed: Callable[[], bool], deadline: float) -> Steps[None]:
        waits = Waits(_LANDING)
        while not landed():
            if time.monotonic() >= deadline:
                raise TimedOut("brokers have not answered in time what was on its way to them")
            yield min(time.monotonic() + waits.next(), deadline)

    def ending(self, turn: Transaction[PulsarProducer], commit: bool) -> Steps[None]:
        mine: Any = turn
        with self.lock:
            mine.shut = True
        committed = False
        try:
            yield from self._telling(mine, commit)
            committed = commit
        finally:
            mine.settle(committed)

    def _telling(self, turn: PulsarTransaction, commit: bool) -> Steps[None]:
        """END_TXN. Raises what else became of the transaction."""
        tries = 0

        def sent() -> None:
            nonlocal tries
            tries += 1

        try:
            yield from self.coordinators.ending(turn.id, commit, _FOREVER, sent)
        except OVER as why:
            if not commit:
                return
            if tries > 1:
                text = f"the coordinator has forgotten transaction {turn.id}, and its answer to the first try of committing it was lost"
                raise OutcomeUnknown(f"{text}: what was stored in the transaction itself tells") from why
            text = "the coordinator had rolled the transaction back: it took longer than transaction_timeout"
            raise Aborted(f"{text} ({self.transaction_timeout:g} s), or an operator aborted it") from why


def _any(batch: object) -> bool:
    return True
