"""Keeps the state of a half message: stored at its broker, delivered to no consumer, and to be ended once, by a commit or an abort.

`HalfMessage` is what `RocketTransactional.send` returns; `CheckedMessage` is what its `check` is called with.

    open ──commit──▶ being committed ──▶ committed       the broker has acknowledged it
      │  ╲──abort──▶ being rolled back ─▶ rolled back    likewise
      │                    ╲──▶ left to the check: the answer was lost, or it was no success
      └── an exception ends the `with` block ──▶ left to the check; so does one raised during its commit, where the end was not sent yet

An end (EndTransaction, 37) that was sent is completed though its caller is interrupted (Ctrl-C, a cancellation): the same call made again
waits for it.

Brokers do not look whether a half was ended before: the same commit twice is two messages, and a commit after a roll back is a message, too
(4.9.7 and 5.5.0). So an end is sent at most once; the outcome of one that was not answered is decided by the check-back.
The half message uses the role that made it and knows no commands.
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
    """Names the states of a half message."""

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
    """Describes a half message that a broker asks about, since no commit or abort of it has come.

    Attributes:
        topic, value, key, headers: of the message. timestamp: milliseconds since 1970.
        transaction_id: its id (UNIQ_KEY), the same as that of `HalfMessage`.
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
    """Says where a half message is stored, which its end has to name.

    Attributes:
        table: its offset in the broker's queue of half messages. log: its offset in the commit log.
    """

    table: int
    log: int


class Ending(Protocol):
    """Is the part of the role that its half messages call."""

    _tasks: Tasks
    timeout: float

    def deciding(self, half: HalfMessage, verdict: Verdict, until: float) -> Steps[None]:
        """Send the end, once, and set the half's state; or wait for the end that is under way.

        Args:
            half: the message. verdict: "commit" or "abort". until: deadline, a `time.monotonic()` value.
        Raises:
            OutcomeUnknown: it was sent, and no success was received. After any other error it was not sent, and the state is unchanged.
        """
        ...

    def left(self, half: HalfMessage, why: BaseException) -> None:
        """Note that a half message is left to the check-back.

        Args:
            half: the message. why: the exception because of which it was not ended.
        """
        ...


class HalfMessage:
    """Commits or aborts one half message.

    A `with` block commits it at its end; an exception leaves it to the check-back, for it is not known here how far the work of the block
    came.

    Attributes:
        topic, partition: where it will be delivered. transaction_id: its id (UNIQ_KEY), by which `check` is asked about it.
        broker, queue_id: the name of the broker that holds it, and its queue there.
        place: where it is stored. Each time before the broker asks, it stores the message again at another place.
        state: a `State`.
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
        self._entered = False  # a call of commit or abort is under way

    def __repr__(self) -> str:
        return f"<HalfMessage {self.transaction_id} of {self.topic}[{self.partition}]: {self.state.value}>"

    @operation
    def commit(self, *, timeout: float = 30.0) -> Steps[None]:
        """Commit the message: consumers get it.

        Args:
            timeout: seconds.
        Raises:
            OutcomeUnknown: the commit was sent, and no success was received: it is not sent again, the check-back decides. Where it is
                still under way (`state`), another call waits for it.
            TransportError, NoMaster: the commit was not sent, the half is still open: commit again, or leave it to the check-back.
            UsageError: it was ended, or left to the check-back, or another call ends it. Closed: the role was closed.
        """
        return self._end("commit", deadline_after(timeout))

    @operation
    def abort(self, *, timeout: float = 30.0) -> Steps[None]:
        """Roll the message back: consumers never get it.

        Args:
            timeout: seconds.
        Raises:
            OutcomeUnknown, TransportError, NoMaster, UsageError, Closed: as of `commit`.
        """
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
            raise UsageError(f"{verdict}: the half message is {self.state.value}; its end is sent only once")

    def begin(self, verdict: Verdict) -> None:
        """Note that the end is about to be sent.

        Args:
            verdict: "commit" or "abort".
        Raises:
            UsageError: an end was sent, or the message is left to the check-back.
        """
        with self._lock:
            self._check_open(verdict)
            self.state = DURING[verdict]

    def not_begun(self) -> None:
        """Note that the end was not sent, since the connection was closed just before: the message is open again."""
        with self._lock:
            self.state = State.OPEN

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.leaving(error)

    @operation
    def leaving(self, error: BaseException | None) -> Steps[None]:
        """End a `with` block: commit where it ended well, leave the message to the check-back otherwise.

        Args:
            error: the exception that ended the block, or None.
        Raises:
            OutcomeUnknown, TransportError, NoMaster, UsageError, Closed: as of `commit`.
        """
        if self.state is not State.OPEN:
            return  # the block has ended it
        if error is None:
            try:
                yield from self._end("commit", deadline_after(self._work.timeout))
            except WireprotoError:
                raise  # a message that is still open may be committed again
            except BaseException as why:  # Ctrl-C, a cancellation: its caller will not end it
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
