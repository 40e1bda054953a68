"""Defines the errors that only this client raises, and explains those that leave open whether a write was done.

The errors that a server's code stands for are in `codes`.
"""

from __future__ import annotations

from typing import TypeVar

from ..errors import Disconnected, TimedOut, WireprotoError
from ..flow.lost_answer import LostAnswer
from .codes import SessionExpired

E = TypeVar("E", bound=WireprotoError)
UNKNOWN = "whether it was done is not known"


class ConnectionLoss(Disconnected):
    """The connection was lost with a write in flight: it may or may not have taken effect, so it was not repeated.

    `__cause__` is why the connection was lost.

    Attributes:
        answer: the answer that was lost; None where the request was not sent in whole.
    """

    retriable = False
    doubtful = True
    answer: LostAnswer | None = None


def lost_answer(request: str, sent: float, why: Exception) -> LostAnswer:
    """Return the note of one answer that was lost.

    Args:
        request: what was sent. sent: when, as `time.monotonic()`. why: what its connection was lost by.
    """
    made = LostAnswer(request)
    made.failed(why if isinstance(why, WireprotoError) else Disconnected(str(why)), sent)
    return made


def connection_loss(answer: LostAnswer, *, read: bool = False) -> ConnectionLoss:
    """Return the error of a request whose answer was lost; its cause is why.

    Args:
        answer: what was lost. read: whether the request was a read, which a write behind it keeps from being repeated.
    """
    why = answer.failure
    text = f"{answer.text}, and a write behind it may have taken effect" if read else f"{UNKNOWN}: {answer.text}"
    made = ConnectionLoss(text, peer=None if why is None else why.peer, answer=answer)
    made.__cause__ = why
    return made


class NotYet(TimedOut):
    """A role's request is not answered within the call's time: it stays in flight, and the next call takes its reply. Internal to roles."""


class Doubt:
    """Explains errors of a call that sends several requests, and may have done a part of its work: ``with Doubt() as doubt`` around them.

    Once `there` is set, a TimedOut or SessionExpired that ends the call is doubtful. It names the answer that was lost last, if any, and
    why that was lost is its cause.

    Attributes:
        there: whether one of the requests has done a part of the call, or may have, since its reply was lost.
    """

    __slots__ = ("_answer", "there")

    def __init__(self) -> None:
        self.there = False
        self._answer: LostAnswer | None = None

    def lost(self, why: ConnectionLoss) -> None:
        """Note that the answer to one of the requests was lost."""
        self.there = True
        self._answer = why.answer

    def explain(self, error: E) -> E:
        """Add to an error that ends the call what is not known; returns the error."""
        if self._answer is not None:
            self._answer.explain(error, UNKNOWN)
        elif self.there and not error.doubtful:
            error.text += "; a part of it may be done"
        error.doubtful = error.doubtful or self.there
        return error

    def __enter__(self) -> Doubt:
        return self

    def __exit__(self, kind: object, why: BaseException | None, trace: object) -> None:
        if isinstance(why, (TimedOut, SessionExpired)):
            self.explain(why)
