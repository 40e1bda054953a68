"""Binds calls to one session, or to whichever there is.

Each class is the link with another answer to which session a call belongs to; a scope also has the facts of its session, also after that
has ended. None keeps state of its own.
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
    """The link for calls that belong to whichever session there is, or to the one of a given number."""

    __slots__ = ("_link", "session_number")

    def __init__(self, link: Link, session_number: int = ANY) -> None:
        self._link = link
        self.session_number = session_number

    def call(self, request: Request[T], deadline: float, watching: Watching | None = None, session_number: int = NOW) -> T:
        """Call the link's `call` for this session."""
        return self._link.call(request, deadline, watching, self.session_number)

    def submit(self, request: Request[Any], deadline: float, watching: Watching | None = None, session_number: int = NOW) -> Call:
        """Call the link's `submit` for this session."""
        return self._link.submit(request, deadline, watching, self.session_number)

    def calling(self, request: Request[T], deadline: float, watching: Watching | None = None, session_number: int = NOW) -> Steps[T]:
        """Run `call` as steps."""
        return self._link.calling(request, deadline, watching, self.session_number)

    def submitting(
        self, request: Request[Any], deadline: float, watching: Watching | None = None, session_number: int = NOW, *, lasting: bool = False
    ) -> Steps[Call]:
        """Run `submit` as steps."""
        return self._link.submitting(request, deadline, watching, self.session_number, lasting=lasting)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)


class Scope(SessionCalls):
    """The link for one session's calls, whenever they are made: its state and times are that session's, also after that has ended.

    Args:
        session_number, session: the session's number, and the session.
    """

    __slots__ = ("session",)

    def __init__(self, link: Link, session_number: int, session: Session) -> None:
        super().__init__(link, session_number)
        self.session = session

    def own(self) -> tuple[int, Session]:
        """Return the session's number, and the session."""
        return self.session_number, self.session

    def still(self) -> None:
        """Raise SessionExpired when the session has ended."""
        self._link.still(self.session_number)

    @property
    def state(self) -> State:
        """Return the session's state, checked against the clock."""
        self._link.look()
        return self.session.state

    def safe_for(self) -> float:
        """Return for how many seconds no leader can have ended this session."""
        safe = self._link.safe_for()
        return safe if self._link.session is self.session else 0.0  # checked last: the value may be the next session's

    def listen(self, listener: Callable[[SessionEvent], Any]) -> Listening:
        """Call a listener with the state of this session, until it has ended."""
        return self._link.listen(listener, self.session_number, self.session)

    def identifying(self, scheme: str, credential: bytes, deadline: float) -> Steps[None]:
        """Give an identity as long as this session lasts. Steps."""
        return self._link.identifying(scheme, credential, deadline, self.session_number)


class StepCalls:
    """The link in the form whose `call` returns the steps, for the caller to run."""

    __slots__ = ("_link",)

    def __init__(self, link: Link | SessionCalls) -> None:
        self._link = link

    def call(self, request: Request[Any], deadline: float, watching: Watching | None = None, session_number: int = NOW) -> Any:
        """Return the steps of the link's `call`."""
        return self._link.calling(request, deadline, watching, session_number)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)
