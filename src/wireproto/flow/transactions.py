"""Runs transactions, one after the other under one name: all records and positions of a transaction take effect, or none.

`Transactions` is the role, and `Transaction` one transaction of it: the order of its steps, what each call may do in each state, and what
receipts learn. How records are sent and what a coordinator is asked is up to the protocol's own classes.

    begin ──▶ open ──commit──▶ flushing ──▶ ending ──▶ committed
               │  ╲               │ timeout: still to be committed, or aborted
               │   a record fails, positions are refused (`fails`): only abort is left
               └────abort───▶ dropping, landing ──▶ ending ──▶ aborted

    `ending` is a task of the client: once the coordinator may have got the request, no timeout and no exception takes that back. A caller
    that waits for it and gives up may wait again, by the same call; `begin` does so first. It also continues a commit that was given up
    while flushing.

    `hand_over` flushes, too, and leaves the end to another client: that of a program which ends many of them as one.

Shared by threads: any thread may send; those that send have returned before one commits.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from wireproto._net import Event, OneThread
from wireproto.deadlines import deadline_after
from wireproto.errors import Aborted, AsyncUnsupported, Closed, Fenced, TimedOut, TransactionError, UsageError, WireprotoError
from wireproto.flow.lost_answer import LostAnswer
from wireproto.net.closing import INTERRUPTED, Closing
from wireproto.net.task import NEVER, Steps, fresh, operation, steps

if TYPE_CHECKING:
    from wireproto._codec import BriefLock, Receipt
    from wireproto.flow.topics import TopicsProducer
    from wireproto.net.runtime import Runtime
    from wireproto.position import Position, TopicPartition
    from wireproto.records import Headers

P = TypeVar("P", bound=Any)


class State(Enum):
    """The state of a transaction."""

    OPEN = "open"
    COMMITTING = "being committed"
    ABORTING = "being rolled back"
    COMMITTED = "committed"
    ABORTED = "rolled back"
    UNKNOWN = "ended, with an unknown outcome"
    HANDED_OVER = "handed over to another client"


class Transaction(Generic[P]):
    """One transaction. Made by `Transactions.begin`; in a `with` block it commits at the end, and is rolled back by an exception.

    Attributes:
        state: see `State`. problem: the error that makes a commit impossible, or None.
        over: the event of its end; it fails with the error that its records' receipts raise.
        outcome: the event for callers that wait for the outcome of its records: its end, or before that an error that makes a commit
            impossible.
        lost_answer: the attempts to end it that were sent and failed.
    """

    def __init__(self, work: Transactions[P], lost_answer: LostAnswer) -> None:
        self._work = work
        self.lost_answer = lost_answer
        self._tasks = work.tasks
        self.state = State.OPEN
        self.problem: WireprotoError | None = None
        self.over = Event(work.loop)
        self.outcome = Event(work.loop)
        self._decided: bool | None = None  # True: its coordinator is to commit, or was asked to; False: to abort. Final. None: undecided
        self._failure: WireprotoError | None = None  # the error that it ended with
        self._only = OneThread("end of a transaction", work.loop)

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
        """Take one record; returns at once unless the send buffer is full. The receipt has the position when the transaction is committed.

        Args:
            value: bytes of the record, or None for null where the broker has it. topic: its name. key: bytes or None.
            headers: pairs of name and bytes. timestamp: milliseconds since 1970, None: now. partition: number, None: by the key.
            timeout: seconds to look the topic up, and to wait for room in the send buffer.

        Raises:
            Aborted: the transaction has to be rolled back; `__cause__` says why. UsageError: it is over.
            ValueUnsupported, BufferFull, Closed: see `wireproto.roles.Producer.send`.
        """
        self.check()
        return self._work.topics.send(
            value, topic=topic, key=key, headers=headers, timestamp=timestamp, partition=partition, timeout=timeout
        )

    def send_batch(
        self, columns: Any, *, topic: str | None = None, partition: int | None = None, timeout: float = 30.0
    ) -> Sequence[Receipt]:
        """Take many records, all for `topic`, or each for the topic that its column ``topic`` names.

        Args:
            columns: as for `wireproto.roles.Producer.send_batch`, with a column ``topic`` where `topic` is None.
            topic: its name, or None. partition: number, for all rows; None: by column or key.
            timeout: seconds to look the topics up, and to wait for room in the send buffer.

        Raises:
            Aborted: the transaction has to be rolled back; `__cause__` says why. UsageError: it is over.
            ValueUnsupported, BufferFull, Closed: see `wireproto.roles.Producer.send_batch`.
        """
        self.check()
        return self._work.topics.send_batch(columns, topic=topic, partition=partition, timeout=timeout)

    def producer(self, topic: str, timeout: float = 30.0) -> P:
        """Return the producer of one topic: it sends in whichever transaction is open, and is the same in each.

        Args:
            topic: its name. timeout: seconds to look the topic up.

        Raises:
            Aborted: the transaction has to be rolled back. UsageError: it is over.
            TimedOut, TransportError, BrokerError: the topic could not be looked up. Closed.
        """
        self.check()
        made: P = self._work.topics.to(topic, timeout)
        return made

    @operation
    def commit_positions(
        self, consumer: Any, positions: Mapping[TopicPartition, Position] | None = None, *, timeout: float = 30.0
    ) -> Steps[None]:
        """Have the consumer's group continue from these positions when the transaction commits.

        Args:
            consumer: a member of a group of the same cluster that does not commit by itself.
            positions: as for its own `commit`; None: behind all that its polls have returned.
            timeout: seconds to wait for the group's coordinator.

        Raises:
            Aborted: the group has moved on, or took too long: roll back, `rewind` the consumer, and begin again.
            UsageError: the transaction is over. TimedOut, Closed.
        """
        self.check()
        try:
            yield from self._work.storing_positions(self, consumer, positions, deadline_after(timeout))
        except WireprotoError:
            raise
        except BaseException:  # a signal handler's, a cancellation: it is unknown which positions the coordinator has
            self.fails(Aborted("commit_positions was interrupted by an exception: roll the transaction back"))
            raise

    def check(self) -> None:
        """Raise the error that keeps more work out: UsageError when it is over, Aborted when it has to be rolled back."""
        if self.state is not State.OPEN:
            raise UsageError(f"the transaction is {self.state.value}: begin another one")
        if self.problem is not None:
            raise self.lost("the transaction has to be rolled back")

    def fails(self, why: WireprotoError) -> None:
        """Note that it cannot be committed any more. Any thread; the first reason stays.

        Args:
            why: the reason.
        """
        if self.problem is None and self._decided is None and self.state in (State.OPEN, State.COMMITTING):
            self.problem = why
            self.outcome.set()

    def lost(self, text: str) -> Aborted:
        """Make the error that is raised because of `problem`, which is its `__cause__`.

        Args:
            text: what the error says, before the reason.
        """
        why = self.problem
        made = Aborted(f"{text}: {why}" if why is not None else text)
        made.__cause__ = why
        return made

    # --- the outcome of its records ---

    def await_record(self, stored: Event, deadline: float) -> None:
        """Wait until the outcome of a record is known.

        Args:
            stored: the event of the record's batch: stored, or the error that it failed with. deadline: `time.monotonic()` value.

        Raises:
            Aborted, or the error of the end in place of a commit, for a record that was stored. For one that failed nothing is raised here:
            its
                receipt raises its own error.
            TimedOut: the outcome is not known yet.
        """
        for event in (stored, self.outcome):
            try:
                event.wait(deadline)
            except WireprotoError as why:
                if event.done:
                    return
                if isinstance(why, TimedOut):
                    why.text = f"the transaction is {self.state.value}: its records have their positions when it is committed"
                raise
        self.check_outcome()

    def check_outcome(self) -> None:
        """Raise the error of its stored records, unless they are committed; called when `outcome` is known."""
        if isinstance(self.over.error, WireprotoError):
            raise fresh(self.over.error)
        if not self.over.done:
            raise self.lost("the transaction has to be rolled back")

    def check_stored(self) -> None:
        """Raise Aborted where something of it was refused and its end has not raised that yet; for a flush."""
        if self.problem is not None and self.state in (State.OPEN, State.COMMITTING):
            raise self.lost("the transaction has to be rolled back")

    # --- its end ---

    @property
    def ended(self) -> bool:
        """Return whether it is known how it ended."""
        return self.over.done

    @operation
    def commit(self, *, timeout: float = 30.0) -> Steps[None]:
        """Wait until all of it is stored, and commit it.

        Args:
            timeout: seconds to wait.

        Raises:
            Aborted: it was rolled back instead; `__cause__` says why. Fenced: another program uses this transactional name.
            OutcomeUnknown: see the class. UsageError: it was aborted, or handed over.
            TimedOut: it is not over; the next call of `commit` continues it. Where not all records were stored yet it may be aborted as
                well.
        """
        with self._only:
            deadline = deadline_after(timeout)
            if self._decided is None:
                yield from self._flush(deadline)
            elif self.state not in (State.COMMITTING, State.COMMITTED):
                raise UsageError(f"the transaction is {self.state.value}")
            yield from self._end(deadline, commit=self.state in (State.COMMITTING, State.COMMITTED))

    def _flush(self, deadline: float) -> Steps[None]:
        """Wait until all that was sent is stored; if that fails, roll back and raise Aborted."""
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
    def hand_over(self, *, timeout: float = 30.0) -> Steps[Any]:
        """Wait until all of it is stored, and leave its end to another client, whose admin's `end_transactions` takes the returned handle.

        Nothing more can be done in it here; on Kafka, nor in another one of this name. Its receipts do not learn their positions. Until it
        is ended, readers of committed records wait behind it, and when `transaction_timeout` is over it is rolled back.

        Args:
            timeout: seconds to wait.

        Returns:
            the handle, which can be pickled; None: nothing was put into it, so that it is over.

        Raises:
            Aborted: it was rolled back instead; `__cause__` says why. TimedOut: not all of it is stored yet: call again, or `abort`.
            UsageError: it is over, or has been handed over before, or this protocol's transactions cannot be handed over.
        """
        with self._only:
            if self._decided is not None:
                raise UsageError(f"the transaction is {self.state.value}")
            yield from self._flush(deadline_after(timeout))
            handle = self._work.handing_over()
            self._decided = True
            if handle is None:
                self._ended(State.COMMITTED, None)
            else:
                self._ended(State.HANDED_OVER, UsageError("the transaction was handed over: the client that ends it gets its outcome"))
            return handle

    @operation
    def abort(self, *, timeout: float = 30.0) -> Steps[None]:
        """Roll it back: what was not sent yet is not sent, and what was sent is never visible to readers of committed records.

        Args:
            timeout: seconds to wait.

        Raises:
            Fenced: it is rolled back, and another program uses this transactional name. TimedOut: it is not over; the next `abort`
                continues.
            UsageError: it was committed, or may have been.
        """
        with self._only:
            deadline = deadline_after(timeout)
            if self._decided is None:
                yield from self._drop(deadline)
            elif self.state not in (State.ABORTING, State.ABORTED):
                raise UsageError(f"the transaction is {self.state.value}")
            yield from self._end(deadline, commit=False)

    def _drop(self, deadline: float) -> Steps[None]:
        """Fail what was not sent, and wait until nothing of it is in flight."""
        self.refuse()
        yield from self._work.dropping(self, self.lost("the transaction was rolled back"), deadline)

    def refuse(self) -> None:
        """Mark the transaction for rollback and accept nothing more. Does nothing once its coordinator may have received an end."""
        with self._work.lock:
            if self._decided is None and self.state in (State.OPEN, State.COMMITTING):
                self.state = State.ABORTING

    def _end(self, deadline: float, *, commit: bool) -> Steps[None]:
        if self._decided is None:
            self._decided = commit
        if not self.ended:
            # under a key, so that after an interruption by a signal handler the task is found again, and not begun twice
            ender = self._tasks.shared(("ending", id(self)), self._ending, f"ending a transaction of {self._work.name!r}")
            if not (yield ender, deadline):
                failure = self.lost_answer.failure
                lost = "" if failure is None else f"; {self.lost_answer}"
                raise TimedOut(f"the transaction is {self.state.value}, but its coordinator has not answered in time{lost}") from failure
        if self._failure is not None:
            raise fresh(self._failure)

    def _ending(self) -> Steps[None]:
        """Run the task that ends it: ask the coordinator, and set the outcome."""
        if self.ended:
            return  # an earlier task has just ended it
        commit = bool(self._decided)
        try:
            yield from self._work.ending(self, commit)
        except TransactionError as why:
            self._ended(State.ABORTED if isinstance(why, Aborted) or not (commit or why.doubtful) else State.UNKNOWN, why)
        except BaseException as why:
            known = why if isinstance(why, WireprotoError) else Closed("the task that ends the transaction was interrupted")
            self._ended(State.UNKNOWN if commit else State.ABORTED, known)
            if not isinstance(why, WireprotoError):
                raise
        else:
            self._ended(State.COMMITTED if commit else State.ABORTED, None)

    def _ended(self, state: State, why: WireprotoError | None) -> None:
        self.state, self._failure = state, why
        if why is None and state is State.COMMITTED:
            self.over.set(True)
        else:
            self.over.fail(why or self.lost("the transaction was rolled back"))
        self.outcome.set()

    # --- as a block ---

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.leaving(error)
        except WireprotoError:
            raise
        except BaseException as broken:  # a signal handler's
            self._interrupted(broken)
            raise

    def _interrupted(self, why: BaseException) -> None:
        """Roll back what was to be committed, unless its coordinator may have been asked to commit it."""
        if self._decided is None:
            self._tasks.drive(self._rolling_back(why, INTERRUPTED), NEVER)  # the steps keep the deadline

    @operation
    def leaving(self, error: BaseException | None) -> Steps[None]:
        """End a `with` block: commit, or roll back because of `error`. Does nothing after a `commit` or `abort`.

        Args:
            error: the exception that ended the block, or None.
        """
        if self._decided is not None:
            return  # the block has called `commit` or `abort` itself
        if error is None:
            yield from self._leave()
            return
        yield from self._rolling_back(error, self._work.timeout if isinstance(error, Exception) else INTERRUPTED)

    def _rolling_back(self, error: BaseException, timeout: float) -> Steps[None]:
        """Roll back because of `error`, which gets a note if that fails as well."""
        try:
            yield from steps(self.abort)(timeout=timeout)
        except WireprotoError as why:
            error.add_note(f"rolling back failed, too: {type(why).__name__}: {why}")

    def _leave(self) -> Steps[None]:
        """Commit; what was not stored in time is rolled back."""
        try:
            yield from steps(self.commit)(timeout=self._work.timeout)
        except TimedOut as late:
            if self._decided is not None:
                raise
            self.fails(late)
            yield from steps(self.abort)(timeout=self._work.timeout)
            raise self.lost("the transaction was rolled back") from late


class Transactions(Closing, Generic[P]):
    """Transactions under one name; what a client's `transactions` returns.

    Args:
        runtime: the client's. name: the transactional name. timeout: seconds that the end of a `with` block waits.
        lock: held while records are put into open batches.

    Attributes:
        topics: the producers of the records. now: the transaction that is open, or was last. fence: the error of a fenced name, or None.
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
        """Begin the next transaction.

        It first continues the end of the one before, where its `commit` or `abort` was given up, and waits for that.

        Args:
            timeout: seconds to wait.

        Raises:
            the error that the commit of the one before ended with, Aborted for instance: then the next call of `begin` begins.
            UsageError: one is open. Fenced: another program uses this transactional name. Closed, TimedOut.
        """
        self._usable()
        deadline = deadline_after(timeout)
        yield from self._settle(deadline)
        self._usable()
        made = self._made((yield from self.beginning(deadline)))
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
        """Wait for the end of the transaction before. A commit that was given up is continued, unless a record failed."""
        before = self.now
        if before is None or before.ended:
            return
        if before.state is State.OPEN:
            raise UsageError("a transaction is open: commit or abort it first")
        with before._only:
            try:
                if before._decided is None:
                    yield from (before._flush if before.state is State.COMMITTING else before._drop)(deadline)
                yield from before._end(deadline, commit=before.state is State.COMMITTING)
            except TimedOut as late:
                if not before.ended:
                    late.text = f"the transaction before is {before.state.value}: {late.text}"
                raise

    def fenced(self, why: WireprotoError) -> Fenced:
        """Note that another program uses this transactional name; returns the error that is raised from now on.

        Args:
            why: the broker's error.
        """
        made = Fenced(f"another program uses the transactional name {self.name!r}: {why}")
        made.__cause__ = why
        self.fence = made
        return made

    def open_turn(self) -> Transaction[P]:
        """Return the open transaction, for a new batch; raises the error that keeps records out. Under the lock."""
        turn = self.now
        if turn is None or self._closed:
            raise UsageError("no transaction is open: begin one")
        turn.check()
        return turn

    def under_way(self) -> bool:
        """Return whether there is a transaction that may still be committed, as far as is known."""
        turn = self.now
        return turn is not None and turn.state in (State.OPEN, State.COMMITTING) and turn.problem is None

    def close(self, timeout: float = 30.0) -> None:
        """Roll back an open transaction, and begin no more.

        Args:
            timeout: seconds to wait.

        Raises:
            TimedOut: the transaction is not over. Fenced, UsageError: see `Transaction.abort`. Errors of closing the producers.
        """
        if self._closed:
            return
        deadline = deadline_after(timeout)
        try:
            self.tasks.drive(self.leaving(deadline), NEVER)  # the steps keep the deadline
        finally:
            self.part(deadline)

    def leaving(self, deadline: float) -> Steps[None]:
        """Begin no more transactions, and roll back an open one. Steps.

        Args:
            deadline: `time.monotonic()` value.
        """
        self._closed = True
        turn = self.now
        if turn is None or turn.ended:
            return
        under_way = turn._decided is True
        if turn.state is State.COMMITTING and not under_way:
            text = "the transaction of %r is rolled back: it is closed, and its commit, which was given up, is not over"
            self._runtime.log.warning(("given up", self.name), text, self.name)
        yield from steps(turn.commit if under_way else turn.abort)(timeout=max(0.0, deadline - time.monotonic()))

    def part(self, deadline: float) -> None:
        """Close the producers, and forget this role; called after `leaving`.

        Args:
            deadline: `time.monotonic()` value.
        """
        try:
            self.topics.close(max(0.0, deadline - time.monotonic()))
        finally:
            self._runtime.roles.forget(self)

    # --- the protocol's ---

    def producing(self, topic: str, timeout: float) -> Steps[P]:
        """Make the producer of a topic, which sends in whichever transaction is open. Steps, for asyncio.

        Args:
            topic: its name. timeout: seconds to look the topic up.

        Raises:
            AsyncUnsupported: this protocol's transactions cannot be awaited yet.
        """
        raise AsyncUnsupported("transactions of this protocol cannot be awaited yet; use the synchronous client for them")

    def beginning(self, deadline: float) -> Steps[Any]:
        """Ask the coordinator what has to be known before a transaction; the answer is given to `_made`. Steps.

        Args:
            deadline: `time.monotonic()` value.
        """
        yield from ()

    def _made(self, begun: Any) -> Transaction[P]:
        """Make the transaction that has been begun."""
        return Transaction(self, LostAnswer("the request to end it"))

    def flushing(self, turn: Transaction[P], deadline: float) -> Steps[None]:
        """Wait until each record has its outcome. Raises TimedOut. Steps.

        Args:
            turn: the transaction. deadline: `time.monotonic()` value.
        """
        raise NotImplementedError

    def dropping(self, turn: Transaction[P], why: WireprotoError, deadline: float) -> Steps[None]:
        """Fail what was not sent, and wait until nothing is in flight. Raises TimedOut; may be called again. Steps.

        Args:
            turn: the transaction. why: the error of what was not sent. deadline: `time.monotonic()` value.
        """
        raise NotImplementedError

    def ending(self, turn: Transaction[P], commit: bool) -> Steps[None]:
        """Have the coordinator end the transaction, however long that takes. Raises a TransactionError when it ended in another way. Steps.

        Args:
            turn: the transaction. commit: whether it is committed, not rolled back.
        """
        raise NotImplementedError

    def storing_positions(self, turn: Transaction[P], consumer: Any, positions: Any, deadline: float) -> Steps[None]:
        """Store a group's positions in the transaction; see `Transaction.commit_positions`. Steps.

        Args:
            turn: the transaction. consumer: the member of the group. positions: by partition, or None. deadline: `time.monotonic()` value.
        """
        raise NotImplementedError

    def handing_over(self) -> Any:
        """Return the handle by which another client ends the open transaction, None where nothing is in it.

        From now on the name is not used here. Raises UsageError where the protocol's transactions cannot be handed over.
        """
        raise UsageError("transactions of this protocol cannot be handed over")
