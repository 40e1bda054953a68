"""Errors of ZooKeeper that are no code of their own (those stand in `codes`), and what is doubtful of a call of several requests."""

from __future__ import annotations

from ..errors import Disconnected, TimedOut


class ConnectionLoss(Disconnected):
    """The connection was lost with a write in flight: it may or may not have taken effect, so it was not repeated."""

    retriable = False
    doubtful = True


class NotYet(TimedOut):
    """A role's call had no time for it: it goes on, and the next call takes what it has come to. No caller of a role sees it."""


class Doubt:
    """``with Doubt() as doubt``: round the requests of one call; once `there` is set, what times out in it is doubtful.

    Attributes:
        there: whether one of them has done a part of what was asked, or may have, since its answer was lost.
    """

    __slots__ = ("there",)

    def __init__(self) -> None:
        self.there = False

    def __enter__(self) -> Doubt:
        return self

    def __exit__(self, kind: object, why: BaseException | None, trace: object) -> None:
        if self.there and isinstance(why, TimedOut):
            why.doubtful = True
