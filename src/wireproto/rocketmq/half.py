"""A half message: stored, seen by nobody, and to be ended by one word: commit or abort.

What it is: `HalfMessage`, what `RocketTransactional.send` returns; `CheckedMessage`, what its `check` is asked about; and their words.

    open ──commit──▶ being committed ──▶ committed       the broker has said so
      │  ╲──abort──▶ being rolled back ─▶ rolled back    likewise
      │                    ╲──▶ left to the check: the answer was lost, or no success
      └── an exception ends the `with` block ──▶ left to the check; what breaks into its commit, too, where the end has not left

An end that has left goes on though its caller is broken off (Ctrl-C, a cancellation): the same call waits on for it.

Brokers do not look whether a half was ended before: the same commit twice is two messages, and one behind a roll back is a message, too
(4.9.7 and 5.5.0). So an end leaves once, if it leaves at all; what became of one that was not answered is decided by the check.
May assume: the role that made it. Must not: know commands.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Protocol, Self

from wireproto.deadlines import deadline_after
from wireproto.errors import UsageError, WireprotoError
from wireproto.net.task import Steps, Tasks, operation

if TYPE_CHECKING:
    from collections.abc import Callable

Verdict = Literal["commit", "abort"]
VERDICTS: tuple[Verdict, ...] = ("commit", "abort")


class State(Enum):
    """How far a half message is."""

    OPEN = "open"
    COMMITTING = "being committed"
    ABORTING = "being rolled back"
    COMMITTED = "committed"
    ABORTED = "rolled back"
    UNKNOWN = "left to the check"


DURING = {"commit": State.COMMITTING, "abort": State.ABORTING}
AFTER = {"commit": State.COMMITTED, "abort": State.ABORTED}


@dataclass(frozen=True, slots=True)
class CheckedMessage:
    """A half message whose end has not come to its broker.

    Attributes:
        topic, value, key, headers, timestamp: the message.
        transaction_id: its id (UNIQ_KEY), that of `HalfMessage`.
    """

    topic: str
    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int | None
    transaction_id: str


if TYPE_CHECKING:
    Check = Callable[[CheckedMessage], Verdict | None]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a half lies, which its end has to name.

    Attributes:
        table: its offset in the broker's queue of halves. log: in the commit log.
    """

    table: int
    log: int


class Ending(Protocol):
    """The role, as its halves know it."""

    _tasks: Tasks
    timeout: float

    def deciding(self, half: HalfMessage, verdict: Verdict, until: float) -> Steps[None]:
        """Send the end, once, and set the half's state; or wait on for that, where it is under way. Raises what kept it from leaving: then
        the half is as it was."""
        ...

    def left(self, half: HalfMessage, why: BaseException) -> None:
        """It is left to the check."""
        ...


class HalfMessage:
    """One half message. In a `with` block it is committed at the end; an exception leaves it to the check, for nobody can know here how far
    the work of the block came.

    Attributes:
        topic, partition: where it will be seen. transaction_id: its id (UNIQ_KEY), by which `check` is asked about it.
        broker, queue_id: the name of the broker that holds it, and its queue there.
        place: where it lies; each time that the broker asks it is stored anew, and lies elsewhere.
        state: how far it is.
    """

    def __init__(self, work: Ending, topic: str, home: tuple[int, str, int], transaction_id: str, place: Place) -> None:
        self._work = work
        self._tasks = work._tasks
        self.topic = topic
        self.partition, self.broker, self.queue_id = home
        self.transaction_id = transaction_id
        self.place = place
        self.state = State.OPEN
        self._lock = threading.Lock()
        self._entered = False  # somebody commits, or aborts

    def __repr__(self) -> str:
        return f"<HalfMessage {self.transaction_id} of {self.topic}[{self.partition}]: {self.state.value}>"

    @operation
    def commit(self, *, timeout: float = 30.0) -> Steps[None]:
        """Have it seen.

        Raises:
            OutcomeUnknown: the end has left, and no success was heard of it: it is not sent again, the check decides. Where it is under way
                still (`state`), who calls again waits on.
            TransportError, NoMaster: the end has not left, the half is still open: commit again, or leave it to the check.
            UsageError: it was ended, or left to the check, or somebody else ends it. Closed: the role was closed.
        """
        return self._end("commit", deadline_after(timeout))

    @operation
    def abort(self, *, timeout: float = 30.0) -> Steps[None]:
        """Roll it back: it is never seen. Raises as `commit`."""
        return self._end("abort", deadline_after(timeout))

    def _end(self, verdict: Verdict, until: float) -> Steps[None]:
        mine = False
        try:
            with self._lock:
                if self._entered:
                    raise UsageError(f"{verdict}: another thread or coroutine ends this half message")
                if self.state is not DURING[verdict]:
                    self._check_open(verdict)
                self._entered = mine = True
            yield from self._work.deciding(self, verdict, until)
        finally:
            if mine:
                self._entered = False

    def _check_open(self, verdict: Verdict) -> None:
        if self.state is not State.OPEN:
            raise UsageError(f"{verdict}: the half message is {self.state.value}; an end is sent once")

    def begin(self, verdict: Verdict) -> None:
        """Its end is about to leave. Raises UsageError where one has left, or it is left to the check."""
        with self._lock:
            self._check_open(verdict)
            self.state = DURING[verdict]

    def not_begun(self) -> None:
        """It has not left: the connection was closed just before."""
        with self._lock:
            self.state = State.OPEN

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.leaving(error)

    @operation
    def leaving(self, error: BaseException | None) -> Steps[None]:
        """The end of a `with` block."""
        if self.state is not State.OPEN:
            return  # it was ended by hand
        if error is None:
            try:
                yield from self._end("commit", deadline_after(self._work.timeout))
            except WireprotoError:
                raise  # it may be committed again, if it is open
            except BaseException as why:  # Ctrl-C, a cancellation: who had it in hand is gone
                self._leave(why)
                raise
        else:
            self._leave(error)

    def _leave(self, why: BaseException) -> None:
        with self._lock:
            if self.state is not State.OPEN:
                return
            self.state = State.UNKNOWN
        self._work.left(self, why)
