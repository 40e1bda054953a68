"""Transactions: work that all happens or none of it does, one after the other under one name.

What it is: `Transactions`, the role, and `Transaction`, one of its turns: which steps follow which, what each call may do in each state,
and what receipts learn. How records leave and what a coordinator is told, the protocol's own classes say.

    begin ──▶ open ──commit──▶ flushing ──▶ ending ──▶ committed
               │  ╲               │ time-out: still to be committed, or aborted
               │   a record fails, positions are refused (`fails`): only abort is left
               └────abort───▶ dropping, landing ──▶ ending ──▶ aborted

    `ending` is a task of the client: once the coordinator may have been told, nobody's time-out and no exception takes that back. Who waits
    for it and gives up may wait again, by the same call; `begin` does so first.

May be shared by threads: any may send; those that send are done before one commits. May assume: the hooks. Must not: know a protocol.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from wireproto._net import Event
from wireproto.due import due
from wireproto.errors import Aborted, Closed, Fenced, TimedOut, TransactionError, UsageError, WireprotoError
from wireproto.net.closing import INTERRUPTED, Closing
from wireproto.net.task import Steps, Task, fresh, operation

if TYPE_CHECKING:
    from wireproto._codec import BriefLock, Receipt
    from wireproto.flow.topics import TopicsProducer
    from wireproto.net.runtime import Runtime
    from wireproto.position import Position, TopicPartition
    from wireproto.records import Headers

P = TypeVar("P", bound=Any)


class State(Enum):
    """How far a transaction is."""

    OPEN = "open"
    COMMITTING = "being committed"
    ABORTING = "being rolled back"
    COMMITTED = "committed"
    ABORTED = "rolled back"
    UNKNOWN = "over, and nobody knows how"


class Transaction(Generic[P]):
    """One transaction. Made by `Transactions.begin`; in a `with` block it commits at the end, and is rolled back by an exception.

    Attributes:
        state: how far it is. problem: what has to roll it back, or None.
        over: the event of those who wait for its end; it fails with what their records come to.
    """

    def __init__(self, work: Transactions[P]) -> None:
        self._work = work
        self._tasks = work.tasks
        self.state = State.OPEN
        self.problem: WireprotoError | None = None
        self.over = Event(work.loop)
        self._ender: Task[None] | None = None
        self._entered = False  # a thread commits, or aborts

    def __repr__(self) -> str:
        return f"<Transaction of {self._work.name!r}: {self.state.value}>"

    # --- what is done in it ---

    def send(
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
        """As `wireproto.roles.Producer.send`. The receipt knows the record's position when the transaction is committed.

        Raises:
            Aborted: it has to be rolled back, for the reason that is told. UsageError: it is over.
        """
        self.check()
        return self._work.topics.send(
            value, topic=topic, key=key, headers=headers, timestamp=timestamp, partition=partition, timeout=timeout
        )

    def send_batch(
        self, columns: Any, *, topic: str | None = None, partition: int | None = None, timeout: float = 30.0
    ) -> Sequence[Receipt]:
        """As `wireproto.roles.Producer.send_batch`, to a topic, or each row to the one that its column ``topic`` names."""
        self.check()
        return self._work.topics.send_batch(columns, topic=topic, partition=partition, timeout=timeout)

    def producer(self, topic: str, timeout: float = 30.0) -> P:
        """The producer of one topic: it sends in whichever transaction is open, and is the same in each."""
        self.check()
        made: P = self._work.topics.to(topic, timeout)
        return made

    @operation
    def commit_positions(
        self, consumer: Any, positions: Mapping[TopicPartition, Position] | None = None, *, timeout: float = 30.0
    ) -> Steps[None]:
        """Have the consumer's group go on from there when the transaction commits.

        Args:
            consumer: a member of a group of the same cluster that does not commit by itself.
            positions: as for its own `commit`; None: all that its polls have handed out.
        Raises:
            Aborted: the group has moved on, or took too long: roll back, `rewind` the consumer, and begin again.
        """
        self.check()
        yield from self._work.storing_positions(self, consumer, positions, due(timeout))

    def check(self) -> None:
        """Raises what stands in the way of doing anything more in it."""
        if self.state is not State.OPEN:
            raise UsageError(f"the transaction is {self.state.value}: begin another one")
        if self.problem is not None:
            raise self.lost("the transaction has to be rolled back")

    def fails(self, why: WireprotoError) -> None:
        """It cannot be committed any more. Any thread; the first reason stays."""
        if self.problem is None and self.state in (State.OPEN, State.COMMITTING):
            self.problem = why

    def lost(self, text: str) -> Aborted:
        """What is raised because of `problem`."""
        why = self.problem
        made = Aborted(f"{text}: {why}" if why is not None else text)
        made.__cause__ = why
        return made

    # --- its end ---

    @property
    def ended(self) -> bool:
        """Whether it is known how it ended."""
        return self.over.done

    @operation
    def commit(self, *, timeout: float = 30.0) -> Steps[None]:
        """Wait until all of it is stored, and have it seen.

        Raises:
            Aborted: it was rolled back instead; `__cause__` tells why. Fenced: somebody else goes on under this name.
            OutcomeUnknown: see the class. TimedOut: it is not over; commit again, which goes on with it. Where not all records were stored
            yet it may be aborted as well.
        """
        with self._alone("commit"):
            deadline = due(timeout)
            if self._ender is None:
                yield from self._flush(deadline)
            elif self.state not in (State.COMMITTING, State.COMMITTED):
                raise UsageError(f"the transaction is {self.state.value}")
            yield from self._end(deadline, commit=self.state in (State.COMMITTING, State.COMMITTED))

    def _flush(self, deadline: float) -> Steps[None]:
        """All that was sent is stored; or it is rolled back, and Aborted raised."""
        if self.state is State.ABORTING:
            raise UsageError("the transaction is being rolled back")
        with self._work.lock:
            self.state = State.COMMITTING
        yield from self._work.flushing(self, deadline)
        if self.problem is None:
            return
        made = self.lost("the transaction was rolled back")
        yield from self._drop(deadline)
        yield from self._end(deadline, commit=False)
        raise made

    @operation
    def abort(self, *, timeout: float = 30.0) -> Steps[None]:
        """Roll it back: what was not sent yet is not sent, and what was is never seen.

        Raises:
            Fenced: it is rolled back, and somebody else goes on under this name. TimedOut: it is not over; abort again.
            UsageError: it was committed, or may have been.
        """
        with self._alone("abort"):
            deadline = due(timeout)
            if self._ender is None:
                yield from self._drop(deadline)
            elif self.state not in (State.ABORTING, State.ABORTED):
                raise UsageError(f"the transaction is {self.state.value}")
            yield from self._end(deadline, commit=False)

    def _drop(self, deadline: float) -> Steps[None]:
        """Nothing of it is on its way any more."""
        with self._work.lock:
            self.state = State.ABORTING
        yield from self._work.dropping(self, self.lost("the transaction was rolled back"), deadline)

    def _end(self, deadline: float, *, commit: bool) -> Steps[None]:
        if self._ender is None:
            self._ender = self._tasks.spawn(self._ending(commit), f"ending a transaction of {self._work.name!r}")
        if not (yield self._ender, deadline):
            raise TimedOut(f"the transaction is {self.state.value}, but its coordinator has not answered in time")
        self._ender.result()

    def _ending(self, commit: bool) -> Steps[None]:
        """The task: the coordinator's word, and what everybody learns of it."""
        try:
            yield from self._work.ending(self, commit)
        except TransactionError as why:
            self.state = State.ABORTED if isinstance(why, Aborted) or not (commit or why.doubtful) else State.UNKNOWN
            self.over.fail(why)
            raise
        except BaseException as why:
            self.state = State.UNKNOWN if commit else State.ABORTED
            self.over.fail(why if isinstance(why, WireprotoError) else Closed("the transaction's end broke off"))
            raise
        if commit:
            self.state = State.COMMITTED
            self.over.set(True)
        else:
            self.state = State.ABORTED
            self.over.fail(self.lost("the transaction was rolled back"))

    def _alone(self, what: str) -> _Alone:
        return _Alone(self, what)

    # --- as a block ---

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._ender is not None:
            return  # it was committed or aborted by hand
        if error is None:
            self._leave()
            return
        try:
            self.abort(timeout=self._work.timeout if isinstance(error, Exception) else INTERRUPTED)
        except WireprotoError as why:
            error.add_note(f"rolling back failed, too: {type(why).__name__}: {why}")

    def _leave(self) -> None:
        """Commit; what was not stored in time is rolled back."""
        try:
            self.commit(timeout=self._work.timeout)
        except TimedOut as late:
            if self._ender is not None:
                raise
            self.fails(late)
            self.abort(timeout=self._work.timeout)
            raise self.lost("the transaction was rolled back") from late


class _Alone:
    """One thread at a time ends a transaction."""

    def __init__(self, turn: Transaction[Any], what: str) -> None:
        self._turn, self._what = turn, what

    def __enter__(self) -> None:
        with self._turn._work.lock:
            taken, self._turn._entered = self._turn._entered, True
        if taken:
            raise UsageError(f"{self._what}: another thread ends this transaction")

    def __exit__(self, *_: object) -> None:
        self._turn._entered = False


class Transactions(Closing, Generic[P]):
    """What a client's `transactions` returns.

    Args:
        runtime: the client's. name: the transactional name. timeout: seconds for what the end of a `with` block waits for.
        lock: held while records are put into open batches.

    Attributes:
        topics: the producers of what is sent. now: the transaction that is open, or was last.
    """

    topics: TopicsProducer[P]

    def __init__(self, runtime: Runtime[Any], name: str, timeout: float, lock: BriefLock) -> None:
        self.loop = runtime.loop
        self.tasks = self._tasks = runtime.tasks
        self._runtime = runtime
        self.name = name
        self.timeout = timeout
        self.lock = lock
        self.now: Transaction[P] | None = None
        self.fence: WireprotoError | None = None
        self._closed = False

    @operation
    def begin(self, *, timeout: float = 30.0) -> Steps[Transaction[P]]:
        """The next transaction; waits for the end of the one before, where that is under way.

        Raises:
            UsageError: one is open. Fenced: somebody else goes on under this name. Closed, TimedOut.
        """
        self._usable()
        deadline = due(timeout)
        yield from self._settle(deadline)
        self._usable()
        yield from self.beginning(deadline)
        made: Transaction[P] = Transaction(self)
        with self.lock:
            if self.now is not None and not self.now.ended:
                raise UsageError("another thread has begun a transaction")
            self.now = made
        return made

    def _usable(self) -> None:
        if self._closed:
            raise Closed("the transactions were closed")
        if self.fence is not None:
            raise fresh(self.fence)

    def _settle(self, deadline: float) -> Steps[None]:
        """The end of the one before, if it has been left to end."""
        before = self.now
        if before is None or before.ended:
            return
        if before.state is State.OPEN:
            raise UsageError("a transaction is open: commit or abort it first")
        with before._alone("begin"):
            if before._ender is None:
                yield from before._drop(deadline)
            yield from before._end(deadline, commit=before.state is State.COMMITTING)

    def fenced(self, why: WireprotoError) -> Fenced:
        """What is raised from now on: somebody else goes on under this name."""
        made = Fenced(f"another program goes on under the transactional name {self.name!r}: {why}")
        made.__cause__ = why
        self.fence = made
        return made

    def open_turn(self) -> Transaction[P]:
        """The open transaction, for a new batch; raises what keeps records out. Under the lock."""
        turn = self.now
        if turn is None or self._closed:
            raise UsageError("no transaction is open: begin one")
        turn.check()
        return turn

    def under_way(self) -> bool:
        """Whether there is a transaction that may still be committed, as far as is known."""
        turn = self.now
        return turn is not None and turn.state in (State.OPEN, State.COMMITTING) and turn.problem is None

    def close(self, timeout: float = 30.0) -> None:
        """Roll back what is open, and take no more."""
        if self._closed:
            return
        deadline = due(timeout)
        self._closed = True
        try:
            turn = self.now
            if turn is not None and not turn.ended:
                self._close_turn(turn, deadline)
        finally:
            self.topics.close(max(0.0, deadline - time.monotonic()))
            self._runtime.roles.forget(self)

    def _close_turn(self, turn: Transaction[P], deadline: float) -> None:
        left = max(0.0, deadline - time.monotonic())
        if turn._ender is not None and turn.state is State.COMMITTING:
            turn.commit(timeout=left)
        else:
            turn.abort(timeout=left)

    # --- the protocol's ---

    def beginning(self, deadline: float) -> Steps[None]:
        """Before a transaction: whatever its coordinator has to be asked."""
        yield from ()

    def flushing(self, turn: Transaction[P], deadline: float) -> Steps[None]:
        """Wait until each record has its outcome. Raises TimedOut."""
        raise NotImplementedError

    def dropping(self, turn: Transaction[P], why: WireprotoError, deadline: float) -> Steps[None]:
        """Have what was not sent fail with this, and wait until nothing is on its way. Raises TimedOut; may be called again."""
        raise NotImplementedError

    def ending(self, turn: Transaction[P], commit: bool) -> Steps[None]:
        """Tell the coordinator, for as long as it takes. Raises a TransactionError when it came to something else."""
        raise NotImplementedError

    def storing_positions(self, turn: Transaction[P], consumer: Any, positions: Any, deadline: float) -> Steps[None]:
        """See `Transaction.commit_positions`."""
        raise NotImplementedError
