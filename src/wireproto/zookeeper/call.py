"""Holds the reply to a request that was sent without waiting for it. A `Tree` makes calls."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from .._codec import reply_error
from ..deadlines import deadline_after
from ..errors import BrokerError, Disconnected, ProtocolError, TimedOut, WireprotoError
from ..net import retry
from ..net.task import Steps
from .codes import error
from .errors import NotYet, connection_loss, lost_answer
from .request_path import SETTLE, is_transient, unanswered

if TYPE_CHECKING:
    from .._net import Call as Sent
    from .events import Watching
    from .link import Link
    from .operations import Request
    from .session_calls import SessionCalls

T = TypeVar("T")


class Call(Generic[T]):
    """A request whose reply is awaited later.

    A read whose connection was lost, or that is answered with "not now" (throttled, session moved), is sent again by `wait` and `result`,
    within its session, unless a write of this client was sent after it: the read might see that write, so it raises ConnectionLoss, or the
    server's error. A write is never sent again: requests sent after it may be done. An outcome does not change; a call that timed out
    continues.
    """

    __slots__ = ("_at", "_error", "_finish", "_link", "_request", "_sent", "_session_number", "_settled", "_value", "_watching", "_writes")

    def __init__(
        self, link: Link | SessionCalls, request: Request[Any], sent: Sent, finish: Callable[[Any], T] | None, watching: Watching | None
    ) -> None:
        self._link = link
        self._request = request
        self._finish = finish
        self._watching = watching
        self._session_number = link.session_number
        self._writes: int | None = link.writes
        self._settled = False
        self._value: Any = None
        self._error: Exception | None = None
        self._sent = sent
        self._at = time.monotonic()  # when it was sent

    def unordered(self) -> Self:
        """Allow the read to be repeated after a lost connection whatever was written meanwhile; returns the call."""
        self._writes = None
        return self

    @property
    def done(self) -> bool:
        """Return whether `result` will return or raise without waiting."""
        return self._settled or (self._sent.done and not (self._repeats() and _repeatable(self._sent.frame)))

    def wait(self, timeout: float = 30.0) -> bool:
        """Wait without taking the reply; returns whether it is there, so that `result` will not wait.

        Args:
            timeout: seconds.

        Raises:
            OptionError: a wrong timeout.
        """
        deadline = deadline_after(timeout)
        if not self._settled and not self._sent.wait(deadline):
            return False
        return self.done or self._link.tasks.drive(self.waiting(deadline), deadline + SETTLE)

    def waiting(self, until: float) -> Steps[bool]:
        """Run `wait` as steps.

        Args:
            until: `time.monotonic()` value.
        """
        if not (self._settled or self._sent.done or (yield self._sent, until)):
            return False
        if not self.done:
            try:
                yield from self.getting(until)
            except TimedOut:
                return False
            except WireprotoError:
                pass  # the error is the outcome
        return True

    def result(self, timeout: float = 30.0) -> T:
        """Wait for the reply, and return what the waiting form of the call does, or raise what that raises.

        Args:
            timeout: seconds.

        Raises:
            TimedOut: no reply in time; this is no outcome: `result` may be called again. Else what the waiting form of the call raises.
        """
        deadline = deadline_after(timeout)
        if not self._settled:
            if not self._sent.wait(deadline) or self._sent.frame is None or not self._link.events.mailbox.idle:
                return self._link.tasks.drive(self.getting(deadline), deadline + SETTLE)
            try:
                self._value = self._answer()
            except WireprotoError as why:
                if is_transient(why) and self._repeats():
                    return self._link.tasks.drive(self.getting(deadline), deadline + SETTLE)
                self._error = why
            self._settled = True
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self._value  # type: ignore[no-any-return]

    def getting(self, deadline: float) -> Steps[T]:
        """Run `result` as steps.

        Args:
            deadline: `time.monotonic()` value.
        """
        if not self._settled:
            try:
                self._value = yield from self._outcome(deadline)
            except TimedOut:
                raise
            except WireprotoError as why:
                self._error = why
            self._settled = True
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self._value  # type: ignore[no-any-return]

    def _repeats(self) -> bool:
        return self._request.repeats and self._writes in (None, self._link.writes)

    def _outcome(self, deadline: float) -> Steps[Any]:
        failures = 0
        while True:
            sent, events = self._sent, self._link.events
            if not sent.done and not (yield sent, deadline):
                raise unanswered(TimedOut("no reply in time", peer=sent.conn.peer), self._request, sent.conn, self._at)
            if not events.mailbox.idle:
                yield from events.seen(deadline)
            try:
                return self._answer()
            except TimedOut as why:
                raise unanswered(why, self._request, sent.conn, self._at) from why.__cause__
            except (Disconnected, BrokerError) as why:
                self._judge(why, deadline, failures)
            failures += 1
            if failures > 1:
                yield min(time.monotonic() + retry.DEFAULT.delay(failures), deadline)
            self._sent = yield from self._link.submitting(self._request, deadline, self._watching, self._session_number, lasting=True)
            self._at = time.monotonic()

    def _judge(self, why: WireprotoError, deadline: float, failures: int) -> None:
        """Decide about a call that was answered with an error, or not at all: raise the error, or send the request again."""
        if isinstance(why, Disconnected):
            if not self._repeats():
                raise connection_loss(lost_answer(self._request.what, self._at, why), read=self._request.repeats)
            self._link.lost(self._sent.conn, why)
            self._link.again(why)
        elif not self._repeats() or not self._link.passes(why, deadline, failures):
            raise why

    def _answer(self) -> Any:
        value = self._link.read(self._request, self._sent.result(0.0), self._sent.conn)
        return value if self._finish is None else self._finish(value)


def going_on(call: Call[Any], since: float, timeout: float, until: float, what: str) -> Steps[None]:
    """Wait until `until` for what a role has requested. Steps.

    Raises:
        NotYet: the request stays in flight, and the role's next call takes its reply. TimedOut: it had `timeout` seconds, from `since` on.
    """
    if not (yield from call.waiting(until)):
        raise (NotYet if time.monotonic() - since < timeout else TimedOut)(f"{what} in time")


def _repeatable(frame: bytes | None) -> bool:
    """Return whether a call ended without a reply, or with one that says "not now"."""
    with suppress(ProtocolError):  # bytes that are no reply: `result` raises that
        return frame is None or ((code := reply_error(frame)) != 0 and is_transient(error(code)))
    return False
