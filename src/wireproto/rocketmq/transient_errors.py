"""Decides which failures of one broker are tried again in silence, and for how long. Sans-IO.

A member of a group depends on several brokers, and a failure of one of them delays its own queues only. That holds for a broker that is
away, and for one that refuses for a while: it sheds load, it starts or ends, or it answers SYSTEM_ERROR for any other reason.

    away            never raised, since a broker may be away for long
    retriable       raised when it has lasted `recovery_timeout`, as with pulls
    SYSTEM_ERROR    a few tries, `BRIEFLY`: most of its causes do not pass
    all else        raised at once
"""

from __future__ import annotations

from collections.abc import Hashable

from wireproto.errors import TransportError, WireprotoError
from wireproto.net.retry import BRIEFLY, Verdict, verdict

from .codes import ServerError
from .errors import NoMaster


def away(why: WireprotoError) -> bool:
    """Return whether a broker was away, and may come back."""
    return isinstance(why, TransportError | NoMaster)


def passes(why: WireprotoError) -> bool:
    """Return whether to try again a little later at the same broker; `TransientErrors` says for how long."""
    return away(why) or verdict(why, transient=(ServerError,)) is not Verdict.NEVER


class TransientErrors:
    """Keeps the time of the first failure and the number of failures in a row, by operation.

    Args:
        recovery_timeout: seconds after which a refusal that lasts is raised.
    """

    def __init__(self, recovery_timeout: float) -> None:
        self._recovery_timeout = recovery_timeout
        self._since: dict[Hashable, tuple[float, int]] = {}

    def pass_over(self, what: Hashable, why: WireprotoError, now: float) -> bool:
        """Note a failure; returns whether to try again in silence. If not, its time and number begin again."""
        if away(why):
            return True
        since, failures = self._since.get(what, (now, 0))
        few = failures < BRIEFLY
        lasting = verdict(why, transient=(ServerError,) if few else ()) is Verdict.NEVER or now - since > self._recovery_timeout
        self._since[what] = since, failures + 1
        if lasting:
            self.over(what)
        return not lasting

    def over(self, what: Hashable) -> None:
        """Note that an operation has succeeded."""
        self._since.pop(what, None)
