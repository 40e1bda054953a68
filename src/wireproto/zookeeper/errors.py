"""Defines the errors that only this client raises, and marks timeouts of calls that send several requests.

The errors that a server's code stands for are in `codes`.
"""

from __future__ import annotations

from ..errors import Disconnected, TimedOut


class ConnectionLoss(Disconnected):
    """The connection was lost with a write in flight: it may or may not have taken effect, so it was not repeated."""

    retriable = False
    doubtful = True


class NotYet(TimedOut):
    """A role's request is not answered within the call's time: it stays in flight, and the next call takes its reply. Internal to roles."""


class Doubt:
    """Marks timeouts as doubtful: ``with Doubt() as doubt`` around the requests of one call; once `there` is set, a TimedOut is doubtful.

    Attributes:
        there: whether one of the requests has done a part of the call, or may have, since its reply was lost.
    """

    __slots__ = ("there",)

    def __init__(self) -> None:
        self.there = False

    def __enter__(self) -> Doubt:
        return self

    def __exit__(self, kind: object, why: BaseException | None, trace: object) -> None:
        if self.there and isinstance(why, TimedOut):
            why.doubtful = True
