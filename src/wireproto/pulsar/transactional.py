"""Sends records in transactions: the sender of one `PulsarTransactions`, and the producers that use it.

A `PulsarSender` with what differs in a transaction:

    a new batch       belongs to the transaction that is open; without one there is none
    before its SEND   its partition is made part of the transaction (ADD_PARTITION_TO_TXN), once in each
    SEND              carries the transaction's number, in the command and in the entry's metadata
    no receipt        the transaction is rolled back: what may be stored is never sent again, so that it is not stored twice, and no SEND
                      is in flight when the transaction is committed. A late one would reopen it, and block its readers for ever
    a refusal         rolls the whole transaction back as well

Transactions say when one is open (`open_turn`); this module neither begins nor ends one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from wireproto._codec import OutBatch, crc32c
from wireproto._net import Event
from wireproto.deadlines import deadline_after
from wireproto.errors import Disconnected, UsageError, WireprotoError
from wireproto.flow.sender import Refused, Verdict
from wireproto.net.task import Steps, Task

from . import PulsarApi_pb2 as api
from .producer import PulsarProducer
from .sending import PulsarSender

if TYPE_CHECKING:
    from wireproto._net import Connection
    from wireproto.flow.queue import PartitionQueue

    from .cluster import PulsarCluster
    from .coordinators import TransactionId
    from .options import PulsarOptions
    from .partition_producer import PartitionProducer


class Turn(Protocol):
    """The transaction of a batch, as the sender uses it: `transactions.PulsarTransaction`.

    Attributes:
        joined: the partitions that are part of it.
        shut: whether its coordinator is being asked to end it, or was.
        over: the event of that end.
        outcome: see `wireproto.flow.transactions.Transaction`.
    """

    id: TransactionId
    joined: set[PartitionProducer]
    shut: bool
    over: Event
    outcome: Event
    state: Any

    def await_record(self, stored: Event, deadline: float) -> None:
        """Wait until the outcome of a record is known.

        Args:
            stored: event of its batch being stored, or refused. deadline: as `time.monotonic()`.

        Raises:
            Aborted: the transaction was rolled back, or has to be. TimedOut: the outcome is not known yet.
        """
        ...

    def check_stored(self) -> None:
        """Raise Aborted where something of the transaction was refused."""
        ...

    def fails(self, why: WireprotoError) -> None:
        """Have the transaction rolled back; the first reason is kept.

        Args:
            why: the reason.
        """
        ...

    def lost(self, text: str) -> WireprotoError:
        """Return the error to raise because the transaction has to be rolled back.

        Args:
            text: what the error says, before the reason.
        """
        ...


class Work(Protocol):
    """The transactions that a sender serves, as it uses them."""

    @property
    def turn(self) -> Turn | None:
        """The transaction that is open, or was last."""
        ...

    def open_turn(self) -> Any:
        """Return the open transaction, for a new batch; raise what keeps records out. Under the sender's lock."""
        ...

    def under_way(self) -> bool:
        """Return whether there is a transaction that may still be committed."""
        ...

    def adding(self, partitions: Iterable[PartitionProducer], until: float) -> Steps[None]:
        """Make partitions part of the open transaction. Steps.

        Args:
            partitions: which to add. until: deadline, as `time.monotonic()`.
        """
        ...


class TransactionBatch(OutBatch):
    """A batch of a transaction: its records count when that is committed."""

    __slots__ = ("turn",)

    turn: Turn

    @property
    def done(self) -> bool:
        """Whether the outcome is known: the transaction has ended or has to be rolled back, or the batch was refused."""
        return bool(self.turn.outcome.done or (self.outcome.done and self.outcome.error is not None))


class TransactionSender(PulsarSender):
    """Sends the records of one `PulsarTransactions`; see the module."""

    transactional = True

    def __init__(self, cluster: PulsarCluster, options: PulsarOptions, work: Work) -> None:
        super().__init__(cluster, options)
        self._cluster = cluster
        self._work = work
        self._joining: set[PartitionProducer] = set()
        self._asked: frozenset[PartitionProducer] = frozenset()
        self._round = 0

    # -- a transaction's batches --------------------------------------------------------------------------------

    def _make_batch(self, queue: PartitionQueue, serial: int, now: float) -> TransactionBatch:
        turn: Turn = self._work.open_turn()
        partition: PartitionProducer = queue.key  # type: ignore[assignment]
        batch = TransactionBatch(queue, serial, now, partition.next_builder(), Event(self._loop), partition.owner, None)
        batch.turn = turn
        return batch

    def _frame(self, batch: Any) -> list[Any]:
        return in_transaction(super()._frame(batch), batch.turn.id)

    def transmit(self, link: Connection, batches: list[OutBatch]) -> None:
        """Send one batch, unless its transaction has ended.

        Args:
            link: connection to the partition's broker. batches: one.

        Raises:
            UsageError: the transaction is over. ValueUnsupported: the packed batch is larger than the broker takes.
        """
        batch: Any = batches[0]
        if batch.turn.shut:
            raise UsageError("the transaction is over: nothing of it is sent any more", topic=batch.key.topic)
        super().transmit(link, batches)

    # -- outcomes -----------------------------------------------------------------------------------------------

    def check_stored(self) -> None:
        """Raise Aborted where the transaction cannot be committed any more; for a flush."""
        turn = self._work.turn
        if turn is not None:
            turn.check_stored()

    def failed(self, batch: Any, why: WireprotoError) -> None:
        """Have the transaction rolled back because a batch failed.

        Args:
            batch: that failed. why: its error.
        """
        batch.turn.fails(why)
        super().failed(batch, why)

    def lost(self, trouble: WireprotoError | None) -> Verdict:
        """Return the verdict on a batch whose receipt was lost: refused, since in a transaction nothing is sent twice.

        Args:
            trouble: how the connection was lost, or None.
        """
        why = Disconnected("no receipt came, and in a transaction nothing is sent twice; it may be stored")
        why.__cause__ = trouble
        return Refused(why)

    # -- partitions that join the transaction first -------------------------------------------------------------

    def target(self, key: PartitionProducer) -> Connection | None:
        """Return the connection of a partition that is part of the open transaction; None while it is not.

        Args:
            key: the partition.
        """
        turn = self._work.turn
        return super().target(key) if turn is not None and key in turn.joined else None

    def want(self, keys: set[PartitionProducer]) -> None:
        """Make these partitions part of the open transaction; those that are get their connection back by themselves.

        Args:
            keys: partitions with batches that could not be sent. Where the transaction cannot be committed any more, those batches fail.
        """
        turn = self._work.turn
        if turn is None or keys <= turn.joined:
            return
        if not self._work.under_way():
            why = turn.lost("the transaction has to be rolled back")
            self.core.abandon(partial(_of, frozenset(keys)), why)
            self.core.ready(keys)  # nothing wants them now; a later batch wants them again
            return
        with self.core.lock:
            self._joining |= keys - turn.joined
        self.joining()

    def joining(self) -> Task[None] | None:
        """Return the task that makes partitions part of the transaction; None when all are. It is over before the end is requested.

        The task has a key, so that a caller after a signal handler's exception finds it, or begins it.
        """
        with self.core.lock:
            turn = self._work.turn
            if turn is None or not (self._joining or self._asked):
                return None
            return self._cluster.tasks.shared(
                ("joining", id(self), self._round), partial(self._joins, turn), "adding partitions to a transaction"
            )

    def _more(self, turn: Turn) -> frozenset[PartitionProducer]:
        """Return the partitions to add next. After the last of them a new task has a new key."""
        with self.core.lock:
            self._asked, self._joining = frozenset(self._joining - turn.joined), set()
            if not self._asked:
                self._round += 1
            return self._asked

    def _joins(self, turn: Turn) -> Steps[None]:
        """Add partitions until none is left. Runs in the I/O thread."""
        while asked := self._more(turn):
            try:
                yield from self._work.adding(asked, time.monotonic() + self._options.delivery_timeout)
            except WireprotoError as why:
                turn.fails(why)
                self.core.abandon(partial(_of, asked), why)
            else:
                turn.joined |= asked
            self.core.ready(set(asked))


def _of(keys: frozenset[PartitionProducer], batch: Any) -> bool:
    return batch.key in keys


class TransactionProducer(PulsarProducer):
    """Producer of one topic in transactions.

    Receipts complete with the transaction, or when it cannot be committed any more; `flush` waits until all is stored in it, or raises
    Aborted.
    """

    def __init__(
        self, cluster: PulsarCluster, sending: TransactionSender, topic: str, options: PulsarOptions, names: list[tuple[int, str]]
    ) -> None:
        super().__init__(cluster, sending, topic, options, names)
        self._sending = sending

    def failed(self, batch: Any, why: WireprotoError) -> None:
        """Do nothing: the transaction reports the failure.

        Args:
            batch: that failed. why: its error.
        """

    def position_in(self, batch: Any, index: int, timeout: float | None) -> Any:
        """Return the position of a record, once its transaction is committed.

        Args:
            batch: of the record. index: of the record in it.
            timeout: seconds to wait; None: the delivery timeout and a second.

        Raises:
            Aborted: the transaction was rolled back, or has to be. OutcomeUnknown: see the class.
            TimedOut: the transaction has not ended in time. Any error with which the record itself was refused.
        """
        turn: Turn = batch.turn
        if not batch.done:
            self._sender.hurry(batch)
        turn.await_record(batch.outcome, time.monotonic() + self._delivery_timeout + 1.0 if timeout is None else deadline_after(timeout))
        return self._known_place(batch, index)

    def _flushing(self, timeout: float) -> Steps[None]:
        yield from super()._flushing(timeout)
        self._sending.check_stored()


def in_transaction(frame: list[Any], number: TransactionId) -> list[Any]:
    """Put a transaction's number into a SEND as the builder makes it, where the broker and readers look for it.

    Order of the head: u32 size, BaseCommand, 0x0e01, u32 CRC-32C of what follows, u32 size, MessageMetadata.

    Args:
        frame: head and payload. number: of the transaction.
    """
    head, payload = frame
    at = 4 + int.from_bytes(head[:4], "big")
    base = api.BaseCommand.FromString(head[4:at])
    base.send.txnid_most_bits, base.send.txnid_least_bits = number
    command = base.SerializeToString()
    marks = api.MessageMetadata(txnid_most_bits=number.most, txnid_least_bits=number.least).SerializePartialToString()
    metadata = head[at + 10 :] + marks
    checked = len(metadata).to_bytes(4, "big") + metadata
    crc = crc32c(payload, crc32c(checked))
    return [len(command).to_bytes(4, "big") + command + head[at : at + 2] + crc.to_bytes(4, "big") + checked, payload]
