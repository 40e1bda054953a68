"""Runs transactions under asyncio: the steps of the synchronous ones, awaited.

`Transaction` has no state of its own: it runs the steps of `flow.transactions.Transaction`. Records are sent by this package's `Producer`,
one for each topic, so some may wait in its queue: a commit waits until they are sent, and an abort drops them.

    async with work.begin() as tx:                       begins; leaving commits, an exception or a cancellation rolls back
        receipt = await tx.send(b"…", topic="clean")     taken; waits for room and the topic's look-up, not for the record's position
    position = await receipt                             once the transaction is committed

Everything runs in the event loop's thread. The module knows no protocol.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from wireproto._codec import SendFuture, topic_shares
from wireproto.deadlines import deadline_after
from wireproto.errors import AsyncUnsupported, BufferFull, TimedOut, UsageError, WireprotoError
from wireproto.flow.transactions import State
from wireproto.net.task import Steps

from .host import Host
from .producer import Producer
from .queue import Delivery
from .roles import AsyncRole, Consumer

if TYPE_CHECKING:
    from wireproto.flow import transactions
    from wireproto.position import Position, TopicPartition
    from wireproto.records import Headers


class Receipt:
    """A record's receipt in a transaction: ``await receipt`` returns the record's position once the transaction is committed.

    Awaiting raises what the record or the transaction failed with, as soon as the transaction cannot be committed any more. A cancelled
    wait changes nothing of the record.
    """

    __slots__ = ("_future", "_turn", "_work")

    def __init__(self, work: Transactions, turn: transactions.Transaction[Any], future: SendFuture) -> None:
        self._work, self._turn, self._future = work, turn, future

    @property
    def done(self) -> bool:
        """Whether the outcome is known: the transaction has ended or cannot be committed, or the record failed."""
        return self._turn.outcome.done or (self._future.done() and self._future.exception() is not None)

    def __await__(self) -> Generator[Any, None, Any]:
        return self._known().__await__()

    async def _known(self) -> Any:
        place = await asyncio.shield(self._future)
        await self._work.run(_outcome(self._turn))
        return place


class Sends:
    """The producer of one topic, which sends in the transaction that is open at the time of the call.

    Attributes:
        topic: the topic's name.
    """

    def __init__(self, work: Transactions, topic: str) -> None:
        self._work = work
        self.topic = topic

    async def send(self, value: bytes | None, **more: Any) -> Receipt:
        """Take one record of the open transaction; see `Transaction.send`.

        Args:
            value: bytes, or None for null where the broker has it. more: the other arguments of `Transaction.send`.

        Raises:
            UsageError: no transaction is open. Aborted, ValueUnsupported, BufferFull, Closed: see `Transaction.send`.
        """
        return await self._work.open().send(value, topic=self.topic, **more)

    async def send_batch(self, columns: Any, **more: Any) -> Sequence[Receipt]:
        """Take many records of the open transaction; see `Transaction.send_batch`.

        Args:
            columns: rows as of `Transaction.send_batch`. more: its other arguments.

        Raises:
            UsageError: no transaction is open. Aborted, ValueUnsupported, BufferFull, Closed: see `Transaction.send_batch`.
        """
        return await self._work.open().send_batch(columns, topic=self.topic, **more)

    async def flush(self, timeout: float = 30.0) -> None:
        """Wait until every record sent so far is stored in the transaction.

        Args:
            timeout: seconds to wait.

        Raises:
            BrokerError, TransportError: the first failure of a record. Aborted: the transaction has to be rolled back.
            TimedOut: not every record is stored in time.
        """
        deadline = deadline_after(timeout)
        out = await self._work.out(self.topic, deadline)
        await out.flush(max(0.0, deadline - time.monotonic()))


class Transaction:
    """One transaction; see `wireproto.flow.transactions.Transaction`. Made by `Transactions.begin`.

    After a cancelled `commit` or `abort`, the same call continues; otherwise the next `begin` finishes it. After a cancelled
    `commit_positions` the transaction can only be rolled back.
    """

    def __init__(self, work: Transactions, turn: transactions.Transaction[Any]) -> None:
        self._work, self._turn = work, turn

    def __repr__(self) -> str:
        return repr(self._turn)

    @property
    def state(self) -> State:
        """The state of the transaction."""
        return self._turn.state

    @property
    def ended(self) -> bool:
        """Whether the transaction has ended, committed or not."""
        return self._turn.ended

    async def send(
        self,
        value: bytes | None,
        *,
        topic: str,
        key: bytes | None = None,
        headers: Headers = None,
        timestamp: int | None = None,
        partition: int | None = None,
        timeout: float = 30.0,
    ) -> Receipt:
        """Take one record of this transaction; waits for the topic's look-up and for room in the send buffer.

        Args:
            value, key: bytes, or None for null where the broker has it. topic: where the record goes.
            headers: a mapping or ordered pairs of name and bytes (or None).
            timestamp: milliseconds since 1970 UTC; None: the client's time of this call.
            partition: the partition's number; None picks it by the key, and without a key keeps to one partition for a batch.
            timeout: seconds to wait.

        Returns:
            the record's receipt, to be awaited after the commit.

        Raises:
            Aborted: the transaction has to be rolled back. UsageError: it has ended, or is ending.
            BufferFull: no room within `timeout`; the record was not taken. TimedOut, BrokerError: the topic could not be looked up.
            ValueUnsupported: the broker cannot carry this record.
        """
        deadline = deadline_after(timeout)
        self._turn.check()
        out = await self._work.out(topic, deadline)
        try:
            while out.waiting:
                await out.left(deadline)
        except TimedOut as why:
            raise BufferFull("no room within the timeout; the record was not taken", topic=topic) from why
        self._turn.check()
        future = out.send(value, key=key, headers=headers, timestamp=timestamp, partition=partition)
        return Receipt(self._work, self._turn, future)

    async def send_batch(
        self, columns: Any, *, topic: str | None = None, partition: int | None = None, timeout: float = 30.0
    ) -> Sequence[Receipt]:
        """Take many records of this transaction; see `Producer.send_batch`.

        Args:
            columns: rows as Arrow data or Columns. topic: where all of them go; None: where each row's column ``topic`` says.
            partition: the partition of all rows; None: each row's own.
            timeout: seconds to look the topics up and to wait for room.

        Returns:
            one receipt per batch.

        Raises:
            Aborted: the transaction has to be rolled back. UsageError: it has ended, or is ending.
            ValueUnsupported: a row cannot be sent. BufferFull, TimedOut: no room in time, or a topic could not be looked up.
        """
        deadline = deadline_after(timeout)
        self._turn.check()
        shares = [(topic, columns)] if topic is not None else topic_shares(columns)
        found: list[Receipt] = []
        for out, rows in [(await self._work.out(name, deadline), rows) for name, rows in shares]:
            self._turn.check()
            futures = await out.send_batch(rows, partition=partition, timeout=max(0.0, deadline - time.monotonic()))
            found += [Receipt(self._work, self._turn, future) for future in futures]
        return found

    def producer(self, topic: str) -> Sends:
        """Return the producer of one topic, which sends in this transaction and in later ones of the same `Transactions`.

        Args:
            topic: its name; it is looked up at the first record.
        """
        return Sends(self._work, topic)

    async def commit_positions(
        self, consumer: Consumer, positions: Mapping[TopicPartition, Position] | None = None, *, timeout: float = 30.0
    ) -> None:
        """Commit a consumer's positions with this transaction.

        Args:
            consumer: a member of the group, of the same client, made with automatic commit off.
            positions: the first position not processed, by partition; None: behind all records that its polls have returned.
            timeout: seconds to wait for the brokers.

        Raises:
            Aborted: the transaction has to be rolled back, because a partition belongs to another member now, say.
            UsageError: the transaction has ended, or the consumer commits by itself. Closed: the consumer is not made yet.
            TimedOut, Unreachable: no answer.
        """
        deadline = deadline_after(timeout)
        await self._work.call(self._turn.commit_positions, consumer.made(), positions, timeout=max(0.0, deadline - time.monotonic()))

    async def ack(self, delivery: Delivery, *, timeout: float = 30.0) -> None:
        """Acknowledge a queue's message when the transaction commits. Pulsar only.

        Args:
            delivery: of a queue of the same client; it cannot be acknowledged or released otherwise after this.
            timeout: seconds to wait for the brokers.

        Raises:
            AsyncUnsupported: the protocol's transactions acknowledge no messages.
            Aborted: the transaction has to be rolled back. Revoked: the message was passed to a transaction before; this one continues.
            UsageError: the transaction has ended, the message was acknowledged or released before, or it is of another client's queue.
            TimedOut, Unreachable: no answer.
        """
        ack = getattr(self._turn, "ack", None)
        if ack is None:
            raise AsyncUnsupported("this protocol's transactions acknowledge no messages")
        deadline = deadline_after(timeout)
        await self._work.call(ack, delivery.made, timeout=max(0.0, deadline - time.monotonic()))

    async def commit(self, *, timeout: float = 30.0) -> None:
        """Wait until every record is stored, and make all of the transaction visible.

        Args:
            timeout: seconds to wait for the brokers.

        Raises:
            Aborted: it was rolled back instead; `__cause__` says why. Fenced: another program uses this transactional name now.
            OutcomeUnknown: it was committed or rolled back, and no broker can say which.
            TimedOut: it has not ended yet; calling commit again continues. UsageError: it was aborted.
        """
        deadline = deadline_after(timeout)
        await self._work.let_in(self._turn, deadline)
        await self._work.call(self._turn.commit, timeout=max(0.0, deadline - time.monotonic()))

    async def hand_over(self, *, timeout: float = 30.0) -> Any:
        """Wait until every record is stored, and leave the commit or rollback to another client (`Admin.end_transactions`).

        Args:
            timeout: seconds to wait for the brokers.

        Returns:
            what `Admin.end_transactions` takes, which can be pickled; None: the transaction was empty, so it is over.

        Raises:
            Aborted: it was rolled back instead. UsageError: it has ended, or the protocol cannot hand transactions over.
            TimedOut: not every record is stored yet; calling it again continues.
        """
        deadline = deadline_after(timeout)
        await self._work.let_in(self._turn, deadline)
        return await self._work.call(self._turn.hand_over, timeout=max(0.0, deadline - time.monotonic()))

    async def abort(self, *, timeout: float = 30.0) -> None:
        """Roll the transaction back: queued records are not sent, and those that were sent are never visible.

        Args:
            timeout: seconds to wait for the brokers.

        Raises:
            Fenced: it is rolled back, and another program uses this transactional name now.
            TimedOut: it has not ended yet; calling abort again continues. UsageError: it was committed, or may have been.
        """
        deadline = deadline_after(timeout)
        await self._work.drop(self._turn)
        await self._work.call(self._turn.abort, timeout=max(0.0, deadline - time.monotonic()))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        work, turn = self._work, self._turn
        late: BaseException | None = None
        if error is None:
            try:
                await work.let_in(turn, deadline_after(work.timeout))
            except BaseException as why:
                error = late = why
        if isinstance(late, TimedOut):
            turn.fails(late)
        if error is not None:
            await work.drop(turn)
        await work.call(turn.leaving, error)
        if isinstance(late, TimedOut):
            raise turn.lost("the transaction was rolled back") from late
        if late is not None:
            raise late


class Beginning:
    """The result of `Transactions.begin`: use it in ``async with``, or await it for a transaction that you end yourself."""

    def __init__(self, work: Transactions, timeout: float) -> None:
        self._work, self._timeout = work, timeout
        self._made: Transaction | None = None

    def __await__(self) -> Generator[Any, None, Transaction]:
        return self._work.begun(self._timeout).__await__()

    async def __aenter__(self) -> Transaction:
        self._made = await self
        return self._made

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        assert self._made is not None
        await self._made.__aexit__(kind, error, trace)


class Transactions(AsyncRole[Any]):
    """Transactions of one name; see `wireproto.flow.transactions.Transactions`. Made by `Client.transactions`."""

    def __init__(self, host: Host, what: str, make: Callable[[], Steps[Any]], forget: Callable[[Any], object], limit: int) -> None:
        super().__init__(host, what, make, forget)
        self._limit = limit
        self._outs: dict[str, Producer] = {}
        self._now: Transaction | None = None

    def begin(self, *, timeout: float = 30.0) -> Beginning:
        """Begin the next transaction, when the result is awaited or entered. A commit or abort that timed out before is finished first.

        Args:
            timeout: seconds to wait for the brokers.

        Raises:
            All of these when the result is awaited or entered.
            Aborted, OutcomeUnknown: how the commit of the transaction before ended; the next `begin` begins.
            Fenced: another program uses this transactional name now. UsageError: a transaction is open. TimedOut, Closed.
        """
        return Beginning(self, timeout)

    async def begun(self, timeout: float) -> Transaction:
        """Begin the next transaction; see `begin`.

        Args:
            timeout: seconds to wait for the brokers.

        Raises:
            Aborted, OutcomeUnknown: how the commit of the transaction before ended; the next `begin` begins.
            Fenced: another program uses this transactional name now. UsageError: a transaction is open. TimedOut, Closed.
        """
        made = self._now = Transaction(self, await self._do("begin", timeout=timeout))
        return made

    @property
    def timeout(self) -> float:
        """Seconds that the end of an ``async with`` block waits; 0.0 before the role is made."""
        return float(self._role.timeout) if self._role is not None else 0.0

    # --- called by Transaction, Sends and Receipt ---

    def open(self) -> Transaction:
        """Return the transaction that was begun last.

        Raises:
            UsageError: none was begun.
        """
        if self._now is None:
            raise UsageError("no transaction is open: begin one")
        return self._now

    async def run(self, steps: Steps[Any]) -> Any:
        """Run steps, and return what they return; they get Closed when this role is closed.

        Args:
            steps: an operation, as made.
        """
        return await self._run(steps)

    async def call(self, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Run an operation of the role or of one of its transactions, and return its result.

        Args:
            method: the bound operation. args, options: its arguments.

        Raises:
            AsyncUnsupported: it is no operation. Closed, and what the operation raises.
        """
        self._host.check()
        return await self._run(self._made_of(method)(*args, **options))

    async def out(self, topic: str, deadline: float) -> Producer:
        """Return a topic's producer, making it first.

        Args:
            topic: its name. deadline: `time.monotonic()` value.

        Raises:
            TimedOut: it is not made by then. BrokerError, TransportError: the topic could not be looked up.
        """
        role = await self._opened(deadline)
        made = self._outs.get(topic)
        if made is None:
            make = partial(role.producing, topic, max(0.0, deadline - time.monotonic()))
            made = self._outs[topic] = Producer(self._host, "producer", make, self._gone, topic, self._limit)
        try:
            await made._opened(deadline)
        except WireprotoError:
            if made._opening is None:  # making it failed: the next call tries again, with its own deadline
                self._gone(made)
            raise
        return made

    def _gone(self, out: Any) -> None:
        """Forget a producer that was closed or could not be made."""
        self._outs = {topic: kept for topic, kept in self._outs.items() if kept is not out}

    async def let_in(self, turn: transactions.Transaction[Any], deadline: float) -> None:
        """Wait until the records sent in an open transaction have left the producers' queues.

        Args:
            turn: the transaction. deadline: `time.monotonic()` value.

        Raises:
            TimedOut: some are still queued.
        """
        if turn.state is State.OPEN:
            for out in list(self._outs.values()):
                await out.left(deadline)

    async def drop(self, turn: transactions.Transaction[Any]) -> None:
        """Take no more records of a transaction that is to be rolled back, and drop those in the producers' queues.

        Args:
            turn: the transaction.
        """
        turn.refuse()
        if turn.state is State.ABORTING:
            for out in list(self._outs.values()):
                await out.drop(turn.lost("the transaction was rolled back"))

    async def _end(self, role: Any, timeout: float) -> None:
        deadline = deadline_after(timeout)
        try:
            if role.now is not None:
                await self.drop(role.now)
            await self._host.drive(role.leaving(deadline))
        finally:
            first: Exception | None = None
            for out in list(self._outs.values()):
                try:
                    await out.close(max(0.0, deadline - time.monotonic()))
                except WireprotoError as why:
                    first = first or why
            role.part(deadline)
        if first is not None:
            raise first


def _outcome(turn: transactions.Transaction[Any]) -> Steps[None]:
    """Wait until a transaction has ended or cannot be committed; raise why, where its records are not committed."""
    if not turn.outcome.done:
        yield turn.outcome
    turn.check_outcome()
