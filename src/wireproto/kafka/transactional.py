"""Sends records in transactions: the sender of one transactional id, and the producers that use it.

A `KafkaSender` that serves one `Transactions`. What differs from other senders:

    a new batch       belongs to the open transaction; without one no batch is made
    sequences         begin at 0 with each epoch that the coordinator gives
    Produce           carries the transactional id; v12 and later make a partition part of the transaction by themselves (KIP-890), for
                      v11 and earlier AddPartitionsToTxn does so before
    a refusal         has the whole transaction rolled back; sequences are never reset here

`KafkaTransactions` says whether a transaction is open (`open_turn`), and begins and ends it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from .._codec import OutBatch
from .._net import Event
from ..deadlines import deadline_after
from ..errors import WireprotoError
from ..flow.sender import Again, Refused, Verdict
from ..net.task import Steps, Task, after
from .codes import InvalidProducerEpoch, OutOfOrderSequenceNumber, error
from .identity import NO_IDENTITY, ProducerState
from .produce_template import ProduceTemplate
from .producer import KafkaProducer
from .sending import KafkaSender

if TYPE_CHECKING:
    from .._codec import QueueCore
    from .._net import Connection
    from ..flow.transactions import Transaction
    from .cluster import KafkaCluster
    from .options import KafkaOptions
    from .outgoing import Key

JOINS_FROM = 12
"""From this version on Produce makes its partitions part of the transaction."""


class Work(Protocol):
    """What the sender needs of the transactions that it serves.

    Attributes:
        name: the transactional id.
        now: the transaction that is open, or was last.
    """

    name: str
    now: Transaction[Any] | None

    def open_turn(self) -> Transaction[Any]:
        """Return the open transaction, for a new batch; raises what keeps records out of it. Called under the sender's lock."""
        ...

    def under_way(self) -> bool:
        """Return whether there is a transaction that may still be committed."""
        ...

    def adding(self, keys: Iterable[Key], until: float) -> Steps[None]:
        """Make partitions part of the transaction.

        Args:
            keys: (topic, number) of each. until: the deadline, a time.monotonic() value.
        Raises:
            Aborted: the transaction has to be rolled back by now.
        """
        ...


class TransactionBatch(OutBatch):
    """A batch of a transaction: its records become visible when that is committed."""

    __slots__ = ("turn",)

    turn: Transaction[Any]

    @property
    def done(self) -> bool:
        """Return whether the batch's outcome is known: its transaction's, or before that an error of its own."""
        return bool(self.turn.outcome.done or (self.outcome.done and self.outcome.error is not None))


class TransactionSender(KafkaSender):
    """Sends the batches of one transactional id.

    Attributes:
        joins: whether Produce makes partitions part of the transaction; if not, `joined` has those that are.
        joining: the task that adds partitions; it is over before the coordinator is asked to end the transaction.
        started: whether the coordinator may know of anything in the transaction; the core sets it when it sends.
    """

    def __init__(self, cluster: KafkaCluster, options: KafkaOptions, work: Work, state: ProducerState) -> None:
        super().__init__(cluster, options, state)
        self._work = work
        self._numbers = state
        self.transaction = work.name
        self._transactional = True
        self.joins = False
        self.joined: set[Key] = set()
        self._joining: set[Key] = set()
        self.joining: Task[None] | None = None

    # --- a transaction's batches ---

    def _make_batch(self, queue: QueueCore, serial: int, now: float) -> TransactionBatch:
        """Make a batch of the open transaction."""
        turn = self._work.open_turn()
        key: Any = queue.key
        owner = self.owner(key[0])
        batch = TransactionBatch(queue, serial, now, self._make_builder(), Event(self._loop), owner, NO_IDENTITY)
        batch.turn = turn
        return batch

    def check_stored(self) -> None:
        """Raise Aborted where the transaction cannot be committed any more; for `flush`."""
        turn = self._work.now
        if turn is not None:
            turn.check_stored()

    def speak(self, joins: bool) -> None:
        """Set which protocol the next transaction uses.

        Args:
            joins: whether Produce makes partitions part of it (transaction.version 2).
        """
        if joins != self.joins:
            self._template.clear()
        self.joins = self._numbers.strict = joins
        self.joined.clear()
        self.started = False

    def _version_cap(self, nameless: bool) -> int | None:
        """Return the newest version of Produce to speak: one that makes partitions part of the transaction, or not, as it began."""
        return super()._version_cap(nameless) if self.joins else JOINS_FROM - 1

    def _prepare(self, link: Connection, key: Key) -> ProduceTemplate | None:
        """Prepare requests with one batch of this partition, unless partitions have to be added before (None)."""
        return super()._prepare(link, key) if self.joins else None

    # --- outcomes ---

    def failed(self, batch: OutBatch, why: WireprotoError) -> None:
        """Note that a batch failed: the transaction cannot be committed any more.

        Args:
            batch: the one that failed. why: its error.
        """
        turn = self._work.now
        if turn is not None:
            turn.fails(why)
        super().failed(batch, why)

    def _verdict(self, batch: OutBatch, answer: Any, nodes: list[Any], version: int) -> Verdict:
        """Return the verdict on a batch; sequences are not reset, so what would start over is refused."""
        if answer is not None and answer.error_code:
            problem = error(answer.error_code, answer.error_message or "", message="ProduceResponse", version=version, topic=batch.key[0])
            if isinstance(problem, OutOfOrderSequenceNumber) and batch.queue.oldest() is not batch:
                return Again(problem)  # the batch before it is still in flight
            if problem.starts_over:
                if isinstance(problem, InvalidProducerEpoch):
                    problem.text += "; the transaction took longer than transaction_timeout, or another program uses its transactional name"
                return Refused(problem.with_context(partition=batch.key[1]))
        return super()._verdict(batch, answer, nodes, version)

    # --- partitions that have to be made part of it first ---

    def _target(self, key: Key) -> Connection | None:
        """Return the connection to a partition's leader; None also while the partition is not part of the transaction."""
        return super()._target(key) if self.joins or key in self.joined else None

    def _found(self, keys: set[Key]) -> None:
        """Make partitions part of the transaction first, where Produce does not do so; then have them sent."""
        if self.joins or keys <= self.joined:
            super()._found(keys)
        elif not self._work.under_way():
            turn = self._work.now
            if turn is not None:
                why = turn.lost("the transaction has to be rolled back")
                self.core.abandon(lambda batch: batch.key in keys, why)
            self.core.ready(keys)  # no batch needs them now; a later one asks again
        else:
            self._joining |= keys
            if self.joining is None:
                self._join()

    def _join(self) -> None:
        """Begin the task that makes the waiting partitions part of the transaction."""
        asked = frozenset(self._joining - self.joined)
        self.started = True
        self.joining = self._cluster.tasks.spawn(
            self._work.adding(asked, time.monotonic() + self._options.delivery_timeout), "adding partitions to a transaction"
        )
        after(self.joining, self._have_joined, self.joining, asked)

    def _have_joined(self, task: Task[None], asked: frozenset[Key]) -> None:
        """Take in how that task ended: send the batches of its partitions, or fail them and the transaction."""
        self.joining = None
        self._joining -= asked
        try:
            task.result()
        except WireprotoError as why:
            turn = self._work.now
            if turn is not None:
                turn.fails(why)
            self.core.abandon(lambda batch: batch.key in asked, why)
            self.core.ready(set(asked))  # so that a later batch asks again
        else:
            self.joined |= asked
            super()._found(set(asked))
        left, self._joining = self._joining, set()
        if left:
            self._found(left)


class TransactionProducer(KafkaProducer):
    """The producer of one topic in transactions.

    Receipts settle with the transaction, or when it cannot be committed any more; `flush` waits until all is stored in it, or raises
    Aborted.
    """

    _sending: TransactionSender

    @classmethod
    def opening_at(
        cls, sending: TransactionSender, cluster: KafkaCluster, topic: str, options: KafkaOptions, timeout: float
    ) -> Steps[KafkaProducer]:
        """Return the topic's producer at this sender: one that another thread has just made, or a new one."""
        yield from cluster.looking_up(topic, cluster.deadline(timeout), create=options.auto_create)
        made = cls(cluster, topic, options, sending)
        while not sending.join(made):
            other = sending.owner(topic)
            if isinstance(other, cls):
                return other
        made._look_at_topics()
        return made

    def failed(self, batch: Any, why: WireprotoError) -> None:
        """Do nothing: the transaction's end raises the error of a batch.

        Args:
            batch: the one that failed. why: its error.
        """

    def position_in(self, batch: Any, index: int, timeout: float | None) -> Any:
        """Return the position of a record of a committed transaction.

        Args:
            batch: the record's batch. index: the record's place in it, from 0.
            timeout: seconds to wait for the transaction's end; None: the delivery timeout and a second.
        Raises:
            Aborted, Fenced, OutcomeUnknown: the transaction was not committed, or may not have been. TimedOut: that is not known yet.
            The error with which the record's batch failed.
        """
        turn: Transaction[Any] | None = getattr(batch, "turn", None)
        if turn is None:  # a part of a batch that was split
            return super().position_in(batch, index, timeout)
        if not batch.done:
            self._sender.hurry(batch)
        turn.await_record(batch.outcome, time.monotonic() + self._delivery_timeout + 1.0 if timeout is None else deadline_after(timeout))
        return self._known_place(batch, index)

    def _flushing(self, timeout: float) -> Steps[None]:
        """Wait until all is stored; raises Aborted where the transaction cannot be committed any more."""
        yield from super()._flushing(timeout)
        self._sending.check_stored()
