"""Transactions under asyncio: the synchronous ones' own turns, awaited.

What it is: no transaction of its own. `Transaction` runs the steps of `flow.transactions.Transaction`; what is sent goes by this package's
`Producer`, one a topic, so records may wait in its queue: those are let in before a commit, and dropped before the rest is rolled back.

    async with work.begin() as tx:                       begin ── leaving commits, an exception or a cancellation rolls back
        receipt = await tx.send(b"…", topic="clean")     taken; waits for room and the topic's look-up, not for the record's place
    place = await receipt                                of a committed transaction

May assume: the event loop's thread. Must not: know a protocol, or how a transaction goes on.
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
    """Of a record in a transaction: ``await receipt`` waits for the transaction's end, and gives the place of a committed one; where it
    cannot be committed any more it does not wait for that.

    Raises:
        what the record, or the transaction, failed with. Who ceases to wait takes nothing back.
    """

    __slots__ = ("_future", "_turn", "_work")

    def __init__(self, work: Transactions, turn: transactions.Transaction[Any], future: SendFuture) -> None:
        self._work, self._turn, self._future = work, turn, future

    @property
    def done(self) -> bool:
        """Whether it is known what came of it."""
        return self._turn.outcome.done or (self._future.done() and self._future.exception() is not None)

    def __await__(self) -> Generator[Any, None, Any]:
        return self._known().__await__()

    async def _known(self) -> Any:
        place = await asyncio.shield(self._future)
        await self._work.run(_outcome(self._turn))
        return place


class Sends:
    """The producer of one topic: it sends in whichever transaction is open, and is the same in each."""

    def __init__(self, work: Transactions, topic: str) -> None:
        self._work = work
        self.topic = topic

    async def send(self, value: bytes | None, **more: Any) -> Receipt:
        """As `Transaction.send`."""
        return await self._work.open().send(value, topic=self.topic, **more)

    async def send_batch(self, columns: Any, **more: Any) -> Sequence[Receipt]:
        """As `Transaction.send_batch`."""
        return await self._work.open().send_batch(columns, topic=self.topic, **more)

    async def flush(self, timeout: float = 30.0) -> None:
        """Wait until all that was sent is stored in the transaction."""
        deadline = deadline_after(timeout)
        out = await self._work.out(self.topic, deadline)
        await out.flush(max(0.0, deadline - time.monotonic()))


class Transaction:
    """One transaction; see `wireproto.flow.transactions.Transaction`. Made by `Transactions.begin`.

    A cancelled call leaves it where it was: a commit may be awaited again, and so may an abort, or else the next `begin` sees to it.
    A cancelled `commit_positions` leaves it to be rolled back.
    """

    def __init__(self, work: Transactions, turn: transactions.Transaction[Any]) -> None:
        self._work, self._turn = work, turn

    def __repr__(self) -> str:
        return repr(self._turn)

    @property
    def state(self) -> State:
        """How far it is."""
        return self._turn.state

    @property
    def ended(self) -> bool:
        """Whether it is known how it ended."""
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
        """Take a record: waits for the topic to be looked up, and for room; the receipt, awaited behind the commit, has its place.

        Raises:
            Aborted, UsageError: see the synchronous one. BufferFull: no room within `timeout`; the record was not taken.
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
        """As the synchronous one: rows to a topic, or each to the one that its column ``topic`` names."""
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
        """The producer of one topic, in this transaction and those behind it."""
        return Sends(self._work, topic)

    async def commit_positions(
        self, consumer: Consumer, positions: Mapping[TopicPartition, Position] | None = None, *, timeout: float = 30.0
    ) -> None:
        """Have the consumer's group go on from there when the transaction commits."""
        deadline = deadline_after(timeout)
        await self._work.call(self._turn.commit_positions, consumer.made(), positions, timeout=max(0.0, deadline - time.monotonic()))

    async def ack(self, delivery: Delivery, *, timeout: float = 30.0) -> None:
        """Have a queue's message acknowledged when the transaction commits. Raises AsyncUnsupported where the protocol has none."""
        ack = getattr(self._turn, "ack", None)
        if ack is None:
            raise AsyncUnsupported("this protocol's transactions acknowledge no messages")
        deadline = deadline_after(timeout)
        await self._work.call(ack, delivery.made, timeout=max(0.0, deadline - time.monotonic()))

    async def commit(self, *, timeout: float = 30.0) -> None:
        """Wait until all of it is stored, and have it seen. Raises: see the synchronous one."""
        deadline = deadline_after(timeout)
        await self._work.let_in(self._turn, deadline)
        await self._work.call(self._turn.commit, timeout=max(0.0, deadline - time.monotonic()))

    async def hand_over(self, *, timeout: float = 30.0) -> Any:
        """Wait until all of it is stored, and leave its end to another client. Returns, raises: see the synchronous one."""
        deadline = deadline_after(timeout)
        await self._work.let_in(self._turn, deadline)
        return await self._work.call(self._turn.hand_over, timeout=max(0.0, deadline - time.monotonic()))

    async def abort(self, *, timeout: float = 30.0) -> None:
        """Roll it back. Raises: see the synchronous one."""
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
    """What `Transactions.begin` gives: ``async with`` it, or await it for a transaction that is ended by hand."""

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
    """See `wireproto.flow.transactions.Transactions`. Made by `Client.transactions`."""

    def __init__(self, host: Host, what: str, make: Callable[[], Steps[Any]], forget: Callable[[Any], object], limit: int) -> None:
        super().__init__(host, what, make, forget)
        self._limit = limit
        self._outs: dict[str, Producer] = {}
        self._now: Transaction | None = None

    def begin(self, *, timeout: float = 30.0) -> Beginning:
        """The next transaction, to be awaited or entered. It goes on with a `commit` or `abort` of the one before that was given up."""
        return Beginning(self, timeout)

    async def begun(self, timeout: float) -> Transaction:
        """What awaiting `begin` does."""
        made = self._now = Transaction(self, await self._do("begin", timeout=timeout))
        return made

    @property
    def timeout(self) -> float:
        """Seconds for what the end of a block waits for."""
        return float(self._role.timeout) if self._role is not None else 0.0

    # --- what a transaction asks ---

    def open(self) -> Transaction:
        """The one that is open. Raises UsageError."""
        if self._now is None:
            raise UsageError("no transaction is open: begin one")
        return self._now

    async def run(self, steps: Steps[Any]) -> Any:
        """Run steps; Closed is raised in them when this role is closed."""
        return await self._run(steps)

    async def call(self, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Run an operation of the role, or of a transaction of it."""
        self._host.check()
        return await self._run(self._made_of(method)(*args, **options))

    async def out(self, topic: str, deadline: float) -> Producer:
        """The producer of a topic, made. Raises TimedOut, what the look-up raises."""
        role = await self._opened(deadline)
        made = self._outs.get(topic)
        if made is None:
            make = partial(role.producing, topic, max(0.0, deadline - time.monotonic()))
            made = self._outs[topic] = Producer(self._host, "producer", make, self._gone, topic, self._limit)
        try:
            await made._opened(deadline)
        except WireprotoError:
            if made._opening is None:  # it failed: who comes next tries it anew, in his own time
                self._gone(made)
            raise
        return made

    def _gone(self, out: Any) -> None:
        """It was closed, or could not be made."""
        self._outs = {topic: kept for topic, kept in self._outs.items() if kept is not out}

    async def let_in(self, turn: transactions.Transaction[Any], deadline: float) -> None:
        """Until what was sent in an open transaction has left the queues. Raises TimedOut."""
        if turn.state is State.OPEN:
            for out in list(self._outs.values()):
                await out.left(deadline)

    async def drop(self, turn: transactions.Transaction[Any]) -> None:
        """It is to be rolled back: what waits in the queues is not sent."""
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
    """Wait for what a transaction's stored records come to. Raises that, unless they are committed."""
    if not turn.outcome.done:
        yield turn.outcome
    turn.check_outcome()
