"""Calls that belong to one session, or to whichever there is.

What it is: the link with another answer to which session a call belongs to. Must not: keep state of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from .link import NOW

if TYPE_CHECKING:
    from .._net import Call
    from ..net.task import Steps
    from .link import Link, Watching
    from .operations import Request

T = TypeVar("T")


class Within:
    """The link as calls see it that belong to one session, whenever they are made, or to whichever there is.

    Args:
        era: the session's number, or `ANY`.
    """

    __slots__ = ("_link", "era")

    def __init__(self, link: Link, era: int) -> None:
        self._link = link
        self.era = era

    def call(self, request: Request[T], deadline: float, watching: Watching | None = None, within: int = NOW) -> T:
        return self._link.call(request, deadline, watching, self.era)

    def submit(self, request: Request[Any], deadline: float, watching: Watching | None = None, within: int = NOW) -> Call:
        return self._link.submit(request, deadline, watching, self.era)

    def calling(self, request: Request[T], deadline: float, watching: Watching | None = None, within: int = NOW) -> Steps[T]:
        return self._link.calling(request, deadline, watching, self.era)

    def submitting(self, request: Request[Any], deadline: float, watching: Watching | None = None, within: int = NOW) -> Steps[Call]:
        return self._link.submitting(request, deadline, watching, self.era)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)


class Stepwise:
    """The link as calls see it that somebody else drives: `call` gives their steps."""

    __slots__ = ("_link",)

    def __init__(self, link: Link | Within) -> None:
        self._link = link

    def call(self, request: Request[Any], deadline: float, watching: Watching | None = None, within: int = NOW) -> Any:
        return self._link.calling(request, deadline, watching, within)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)
