"""Transactions: work that all happens or none of it does, one after the other under one name.

What it is: `Transactions`, the role, and `Transaction`, one of its turns: which steps follow which, what each call may do in each state,
and what receipts learn. How records leave and what a coordinator is told, the protocol's own classes say.

    begin ──▶ open ──commit──▶ flushing ──▶ ending ──▶ committed
               │  ╲               │ time-out: still to be committed, or aborted
               │   a record fails, positions are refused (`fails`): only abort is left
               └────abort───▶ dropping, landing ──▶ ending ──▶ aborted

    `ending` is a task of the client: once the coordinator may have been told, nobody's time-out and no exception takes that back. Who waits
    for it and gives up may wait again, by the same call; `begin` does so first. It goes on with a
    commit that was given up while flushing, too.

    `hand_over` flushes, too, and leaves the end to another client: that of a program which ends many of them as one.

May be shared by threads: any may send; those that send are done before one commits. May assume: the hooks. Must not: know a protocol.
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
    """How far a transaction is."""

    OPEN = "open"
    COMMITTING = "being committed"
    ABORTING = "being rolled back"
    COMMITTED = "committed"
    ABORTED = "rolled back"
    UNKNOWN = "over, and nobody knows how"
    HANDED_OVER = "another client's to end"


class Transaction(Generic[P]):
    """One transaction. Made by `Transactions.begin`; in a `with` block it commits at the end, and is rolled back by an exception.

    Attributes:
        state: how far it is. problem: what has to roll it back, or None.
        over: the event of its end; it fails with what its records come to.
        outcome: the event of those who wait for what its records come to: its end, or before that what makes a commit impossible.
    """

    def __init__(self, work: Transactions[P]) -> None:
        self._work = work
        self._tasks = work.tasks
        self.state = State.OPEN
        self.problem: WireprotoError | None = None
        self.over = Event(work.loop)
        self.outcome = Event(work.loop)
        self._decided: bool | None = None  # whether its coordinator is to be told, or was, of a commit or an abort: there is no way back
        self._failure: WireprotoError | None = None  # what its end came to instead
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
        try:
            yield from self._work.storing_positions(self, consumer, positions, deadline_after(timeout))
        except WireprotoError:
            raise
        except BaseException:  # a signal handler's, a cancellation: nobody knows which of them the coordinator has
            self.fails(Aborted("commit_positions was broken off"))
            raise

    def check(self) -> None:
        """Raises what stands in the way of doing anything more in it."""
        if self.state is not State.OPEN:
            raise UsageError(f"the transaction is {self.state.value}: begin another one")
        if self.problem is not None:
            raise self.lost("the transaction has to be rolled back")

    def fails(self, why: WireprotoError) -> None:
        """It cannot be committed any more. Any thread; the first reason stays."""
        if self.problem is None and self._decided is None and self.state in (State.OPEN, State.COMMITTING):
            self.problem = why
            self.outcome.set()

    def lost(self, text: str) -> Aborted:
        """What is raised because of `problem`."""
        why = self.problem
        made = Aborted(f"{text}: {why}" if why is not None else text)
        made.__cause__ = why
        return made

    # --- what its records come to ---

    def await_record(self, stored: Event, deadline: float) -> None:
        """Wait until it is known what a record comes to; `stored` is the event of its being stored, or of what it failed with.

        Raises:
            Aborted, or what the end came to instead of a commit, for a record that was stored. Of one that was not its place tells why.
            TimedOut: that is not known yet.
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
        """Behind `outcome`: raises what stored records come to, unless they are committed."""
        if isinstance(self.over.error, WireprotoError):
            raise fresh(self.over.error)
        if not self.over.done:
            raise self.lost("the transaction has to be rolled back")

    def check_stored(self) -> None:
        """Raises Aborted where something of it was refused and its end has not told of that: for who flushes."""
        if self.problem is not None and self.state in (State.OPEN, State.COMMITTING):
            raise self.lost("the transaction has to be rolled back")

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
        with self._only:
            deadline = deadline_after(timeout)
            if self._decided is None:
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
    def hand_over(self, *, timeout: float = 30.0) -> Steps[Any]:
        """Wait until all of it is stored, and leave its end to another client, whose admin's `end_transactions` takes what is returned.

        Nothing more can be done in it here; on Kafka, nor in another one of this name. Its receipts do not learn their positions. Until it
        is ended readers of committed records wait behind it, and when `transaction_timeout` is over it is rolled back.

        Returns:
            what its end takes, which can be pickled; None: nothing was put into it, so that it is over.
        Raises:
            Aborted: it was rolled back instead; `__cause__` tells why. TimedOut: not all of it is stored yet: again, or `abort`.
            UsageError: it is over, or has been handed over before.
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
                self._ended(State.HANDED_OVER, UsageError("the transaction was handed over: who ends it knows what becomes of its records"))
            return handle

    @operation
    def abort(self, *, timeout: float = 30.0) -> Steps[None]:
        """Roll it back: what was not sent yet is not sent, and what was is never seen.

        Raises:
            Fenced: it is rolled back, and somebody else goes on under this name. TimedOut: it is not over; abort again.
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
        """Nothing of it is on its way any more."""
        self.refuse()
        yield from self._work.dropping(self, self.lost("the transaction was rolled back"), deadline)

    def refuse(self) -> None:
        """It is to be rolled back: nothing more goes in. Nothing happens once its coordinator may have been told of an end."""
        with self._work.lock:
            if self._decided is None and self.state in (State.OPEN, State.COMMITTING):
                self.state = State.ABORTING

    def _end(self, deadline: float, *, commit: bool) -> Steps[None]:
        if self._decided is None:
            self._decided = commit
        if not self.ended:
            # of a key, so that a signal handler which breaks in here leaves one that is found, and none that is begun twice
            ender = self._tasks.shared(("ending", id(self)), self._ending, f"ending a transaction of {self._work.name!r}")
            if not (yield ender, deadline):
                raise TimedOut(f"the transaction is {self.state.value}, but its coordinator has not answered in time")
        if self._failure is not None:
            raise fresh(self._failure)

    def _ending(self) -> Steps[None]:
        """The task: the coordinator's word, and what everybody learns of it."""
        if self.ended:
            return  # by the task before, just now
        commit = bool(self._decided)
        try:
            yield from self._work.ending(self, commit)
        except TransactionError as why:
            self._ended(State.ABORTED if isinstance(why, Aborted) or not (commit or why.doubtful) else State.UNKNOWN, why)
        except BaseException as why:
            known = why if isinstance(why, WireprotoError) else Closed("the transaction's end broke off")
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
            self._broken_off(broken)
            raise

    def _broken_off(self, why: BaseException) -> None:
        """Roll back what was to be committed, unless its coordinator may have been asked for that."""
        if self._decided is None:
            self._tasks.drive(self._rolling_back(why, INTERRUPTED), NEVER)  # it keeps the time

    @operation
    def leaving(self, error: BaseException | None) -> Steps[None]:
        """The end of a block: a commit, or a rollback because of `error`."""
        if self._decided is not None:
            return  # it was committed or aborted by hand
        if error is None:
            yield from self._leave()
            return
        yield from self._rolling_back(error, self._work.timeout if isinstance(error, Exception) else INTERRUPTED)

    def _rolling_back(self, error: BaseException, timeout: float) -> Steps[None]:
        """Because of `error`, which tells where that fails as well."""
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
        """The next transaction. Goes on with the end of the one before, where its `commit` or `abort` was given up, and waits for it.

        Raises:
            what the commit of the one before came to instead, Aborted say: then the next `begin` begins.
            UsageError: one is open. Fenced: somebody else goes on under this name. Closed, TimedOut.
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
        """The end of the one before, if it has been left to end: a commit that was given up is one still, unless a record failed."""
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
        deadline = deadline_after(timeout)
        try:
            self.tasks.drive(self.leaving(deadline), NEVER)  # it keeps the time
        finally:
            self.part(deadline)

    def leaving(self, deadline: float) -> Steps[None]:
        """Take no more, and roll back what is open."""
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
        """Behind `leaving`: let go of the producers, and be forgotten."""
        try:
            self.topics.close(max(0.0, deadline - time.monotonic()))
        finally:
            self._runtime.roles.forget(self)

    # --- the protocol's ---

    def producing(self, topic: str, timeout: float) -> Steps[P]:
        """A topic's producer, made in so many seconds, which sends in whichever transaction is open: for who awaits it."""
        raise AsyncUnsupported("transactions of this protocol cannot be awaited yet; use the synchronous client for them")

    def beginning(self, deadline: float) -> Steps[Any]:
        """Before a transaction: whatever its coordinator has to be asked; `_made` is given what it answers."""
        yield from ()

    def _made(self, begun: Any) -> Transaction[P]:
        """The transaction that has been begun."""
        return Transaction(self)

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

    def handing_over(self) -> Any:
        """What ends the open transaction from elsewhere, None where nothing is in it; from now on the name is not used here."""
        raise UsageError("transactions of this protocol cannot be handed over")
