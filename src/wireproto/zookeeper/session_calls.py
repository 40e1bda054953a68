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


class SessionCalls:
    """The link as calls see it that belong to whichever session there is."""

    __slots__ = ("_link", "session_number")

    def __init__(self, link: Link, session_number: int = ANY) -> None:
        self._link = link
        self.session_number = session_number

    def call(self, request: Request[T], deadline: float, watching: Watching | None = None, session_number: int = NOW) -> T:
        return self._link.call(request, deadline, watching, self.session_number)

    def submit(self, request: Request[Any], deadline: float, watching: Watching | None = None, session_number: int = NOW) -> Call:
        return self._link.submit(request, deadline, watching, self.session_number)

    def calling(self, request: Request[T], deadline: float, watching: Watching | None = None, session_number: int = NOW) -> Steps[T]:
        return self._link.calling(request, deadline, watching, self.session_number)

    def submitting(
        self, request: Request[Any], deadline: float, watching: Watching | None = None, session_number: int = NOW, *, lasting: bool = False
    ) -> Steps[Call]:
        return self._link.submitting(request, deadline, watching, self.session_number, lasting=lasting)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)


class Scope(SessionCalls):
    """The link as one session's calls see it, whenever they are made: what it tells is that session's, also when it has ended.

    Args:
        era: the session's number.
    """

    __slots__ = ("session",)

    def __init__(self, link: Link, session_number: int, session: Session) -> None:
        super().__init__(link, session_number)
        self.session = session

    def own(self) -> tuple[int, Session]:
        return self.session_number, self.session

    def still(self) -> None:
        self._link.still(self.session_number)

    @property
    def state(self) -> State:
        self._link.look()
        return self.session.state

    def safe_for(self) -> float:
        safe = self._link.safe_for()
        return safe if self._link.session is self.session else 0.0  # looked at behind it: what was told may be the next one's

    def listen(self, listener: Callable[[SessionEvent], Any]) -> Listening:
        return self._link.listen(listener, self.session_number, self.session)

    def identifying(self, scheme: str, credential: bytes, deadline: float) -> Steps[None]:
        return self._link.identifying(scheme, credential, deadline, self.session_number)


class StepCalls:
    """The link as calls see it that somebody else drives: `call` gives their steps."""

    __slots__ = ("_link",)

    def __init__(self, link: Link | SessionCalls) -> None:
        self._link = link

    def call(self, request: Request[Any], deadline: float, watching: Watching | None = None, session_number: int = NOW) -> Any:
        return self._link.calling(request, deadline, watching, session_number)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)
