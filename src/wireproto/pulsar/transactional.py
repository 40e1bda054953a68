"""Sending in transactions: the sender of one `PulsarTransactions`, and the producers that send by it.

What it is: a `PulsarSender` with what differs there:

    a new batch       belongs to the transaction that is open; without one there is none
    before its SEND   its partition is made part of the transaction (ADD_PARTITION_TO_TXN), once in each
    SEND              carries the transaction's number, in the command and in the entry's metadata
    no receipt        the transaction is rolled back: what may be stored is never sent again, so that it is not there twice, and no SEND
                      is under way when the transaction is committed. A late one would reopen it, and keep readers where they are for ever
    a refusal         has the whole transaction rolled back as well

May assume: transactions say when one is open (`open_turn`). Must not: begin or end one.
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
    """What a batch's transaction has to say: `transactions.PulsarTransaction`.

    Attributes:
        joined: the partitions that are part of it. shut: whether its coordinator is told of its end, or was. over: the event of that end.
        outcome: see `wireproto.flow.transactions.Transaction`.
    """

    id: TransactionId
    joined: set[PartitionProducer]
    shut: bool
    over: Event
    outcome: Event
    state: Any

    def await_record(self, stored: Event, deadline: float) -> None: ...
    def check_stored(self) -> None: ...
    def fails(self, why: WireprotoError) -> None: ...
    def lost(self, text: str) -> WireprotoError: ...


class Work(Protocol):
    """What the sender asks of the transactions that it serves."""

    @property
    def turn(self) -> Turn | None:
        """The transaction that is open, or was last."""
        ...

    def open_turn(self) -> Any:
        """The one that is open, for a new batch; raises what keeps records out. Under the sender's lock."""
        ...

    def under_way(self) -> bool:
        """Whether there is one that may still be committed."""
        ...

    def adding(self, partitions: Iterable[PartitionProducer], until: float) -> Steps[None]:
        """Make partitions part of it."""
        ...


class TransactionBatch(OutBatch):
    """A batch of a transaction: its records are there when that is committed."""

    __slots__ = ("turn",)

    turn: Turn

    @property
    def done(self) -> bool:
        return bool(self.turn.outcome.done or (self.outcome.done and self.outcome.error is not None))


class TransactionSender(PulsarSender):
    """See the module."""

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
        batch: Any = batches[0]
        if batch.turn.shut:
            raise UsageError("the transaction is over: nothing of it is sent any more", topic=batch.key.topic)
        super().transmit(link, batches)

    # -- what it comes to ---------------------------------------------------------------------------------------

    def check_stored(self) -> None:
        """Raises Aborted where the transaction cannot be committed any more: for who flushes."""
        turn = self._work.turn
        if turn is not None:
            turn.check_stored()

    def failed(self, batch: Any, why: WireprotoError) -> None:
        batch.turn.fails(why)
        super().failed(batch, why)

    def lost(self, trouble: WireprotoError | None) -> Verdict:
        why = Disconnected("no receipt came, and in a transaction nothing is sent twice; it may be stored")
        why.__cause__ = trouble
        return Refused(why)

    # -- partitions that are made part of it first --------------------------------------------------------------

    def target(self, key: PartitionProducer) -> Connection | None:
        turn = self._work.turn
        return super().target(key) if turn is not None and key in turn.joined else None

    def want(self, keys: set[PartitionProducer]) -> None:
        """Those that are part of the transaction come back by themselves."""
        turn = self._work.turn
        if turn is None or keys <= turn.joined:
            return
        if not self._work.under_way():
            why = turn.lost("the transaction has to be rolled back")
            self.core.abandon(partial(_of, frozenset(keys)), why)
            self.core.ready(keys)  # nothing wants them now; what comes later asks again
            return
        with self.core.lock:
            self._joining |= keys - turn.joined
        self.joining()

    def joining(self) -> Task[None] | None:
        """The task that makes partitions part of the transaction, which is over before the coordinator is told of the end; None: all are.

        Of a key, so that who comes behind a signal handler's exception finds it, or begins it.
        """
        with self.core.lock:
            turn = self._work.turn
            if turn is None or not (self._joining or self._asked):
                return None
            return self._cluster.tasks.shared(
                ("joining", id(self), self._round), partial(self._joins, turn), "adding partitions to a transaction"
            )

    def _more(self, turn: Turn) -> frozenset[PartitionProducer]:
        """What is to be asked for next; behind the last of it another task begins anew."""
        with self.core.lock:
            self._asked, self._joining = frozenset(self._joining - turn.joined), set()
            if not self._asked:
                self._round += 1
            return self._asked

    def _joins(self, turn: Turn) -> Steps[None]:
        """I/O thread."""
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
    """The producer of one topic in transactions.

    Receipts settle with the transaction, or when it cannot be committed any more; `flush` waits until all is stored in it, or raises
    Aborted.
    """

    def __init__(
        self, cluster: PulsarCluster, sending: TransactionSender, topic: str, options: PulsarOptions, names: list[tuple[int, str]]
    ) -> None:
        super().__init__(cluster, sending, topic, options, names)
        self._sending = sending

    def failed(self, batch: Any, why: WireprotoError) -> None:
        """The transaction tells of it."""

    def position_in(self, batch: Any, index: int, timeout: float | None) -> Any:
        """The place of a record of a committed transaction."""
        turn: Turn = batch.turn
        if not batch.done:
            self._sender.hurry(batch)
        turn.await_record(batch.outcome, time.monotonic() + self._delivery_timeout + 1.0 if timeout is None else deadline_after(timeout))
        return self._known_place(batch, index)

    def _flushing(self, timeout: float) -> Steps[None]:
        yield from super()._flushing(timeout)
        self._sending.check_stored()


def in_transaction(frame: list[Any], number: TransactionId) -> list[Any]:
    """A SEND as the builder makes it, with a transaction's number where the broker and readers look for it.

    Order of the head: u32 size, BaseCommand, 0x0e01, u32 CRC-32C of what follows, u32 size, MessageMetadata.
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
