"""Calls that belong to one session, or to whichever there is.

What it is: the link with another answer to which session a call belongs to, and, in a scope, with what that session says of itself, also
when it has ended. Must not: keep state of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from .link import ANY, NOW

if TYPE_CHECKING:
    from .._net import Call
    from ..net.task import Steps
    from .events import Listening
    from .link import Link, Watching
    from .operations import Request
    from .session import Session, SessionEvent, State

T = TypeVar("T")


class Within:
    """The link as calls see it that belong to whichever session there is."""

    __slots__ = ("_link", "era")

    def __init__(self, link: Link, era: int = ANY) -> None:
        self._link = link
        self.era = era

    def call(self, request: Request[T], deadline: float, watching: Watching | None = None, within: int = NOW) -> T:
        return self._link.call(request, deadline, watching, self.era)

    def submit(self, request: Request[Any], deadline: float, watching: Watching | None = None, within: int = NOW) -> Call:
        return self._link.submit(request, deadline, watching, self.era)

    def calling(self, request: Request[T], deadline: float, watching: Watching | None = None, within: int = NOW) -> Steps[T]:
        return self._link.calling(request, deadline, watching, self.era)

    def submitting(
        self, request: Request[Any], deadline: float, watching: Watching | None = None, within: int = NOW, *, lasting: bool = False
    ) -> Steps[Call]:
        return self._link.submitting(request, deadline, watching, self.era, lasting=lasting)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)


class Scope(Within):
    """The link as one session's calls see it, whenever they are made: what it tells is that session's, also when it has ended.

    Args:
        era: the session's number.
    """

    __slots__ = ("session",)

    def __init__(self, link: Link, era: int, session: Session) -> None:
        super().__init__(link, era)
        self.session = session

    def own(self) -> tuple[int, Session]:
        return self.era, self.session

    def still(self) -> None:
        self._link.still(self.era)

    @property
    def state(self) -> State:
        self._link.look()
        return self.session.state

    def safe_for(self) -> float:
        safe = self._link.safe_for()
        return safe if self._link.session is self.session else 0.0  # looked at behind it: what was told may be the next one's

    def listen(self, listener: Callable[[SessionEvent], Any]) -> Listening:
        return self._link.listen(listener, self.era, self.session)

    def identifying(self, scheme: str, credential: bytes, deadline: float) -> Steps[None]:
        return self._link.identifying(scheme, credential, deadline, self.era)


class Stepwise:
    """The link as calls see it that somebody else drives: `call` gives their steps."""

    __slots__ = ("_link",)

    def __init__(self, link: Link | Within) -> None:
        self._link = link

    def call(self, request: Request[Any], deadline: float, watching: Watching | None = None, within: int = NOW) -> Any:
        return self._link.calling(request, deadline, watching, within)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)
