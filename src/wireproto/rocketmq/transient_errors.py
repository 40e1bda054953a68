"""Which failures of one broker pass by themselves, and for how long that is hoped. Sans-IO.

What it is: a member of a group hangs on several brokers, and what one of them does not do now holds up its own queues alone. That is so of
a broker that is not there, and of one that is there and refuses for a while: it sheds load, it starts or ends, it calls anything else
SYSTEM_ERROR.

    away            not there: no word to anybody, for a broker may be away for long
    retriable       told when it has lasted `recovery_timeout`, as of pulls
    SYSTEM_ERROR    a few tries, `BRIEFLY`: most of what it stands for does not pass
    all else        told at once
"""

from __future__ import annotations

from collections.abc import Hashable

from wireproto.errors import TransportError, WireprotoError
from wireproto.net.retry import BRIEFLY, Verdict, verdict

from .codes import ServerError
from .errors import NoMaster


def away(why: WireprotoError) -> bool:
    """Whether a broker was not there, and may be again."""
    return isinstance(why, TransportError | NoMaster)


def passes(why: WireprotoError) -> bool:
    """Whether it is worth a try a little later, at the same broker; for how long, whoever tries says (`TransientErrors`)."""
    return away(why) or verdict(why, passing=(ServerError,)) is not Verdict.NEVER


class TransientErrors:
    """Since when what is tried again has failed without a success, by what it is.

    Args:
        recovery_timeout: seconds after which a refusal that lasts is told.
    """

    def __init__(self, recovery_timeout: float) -> None:
        self._recovery_timeout = recovery_timeout
        self._since: dict[Hashable, tuple[float, int]] = {}

    def pass_over(self, what: Hashable, why: WireprotoError, now: float) -> bool:
        """Take in a failure: whether to try on in silence. If not, its time begins anew."""
        if away(why):
            return True
        since, failures = self._since.get(what, (now, 0))
        few = failures < BRIEFLY
        lasting = verdict(why, passing=(ServerError,) if few else ()) is Verdict.NEVER or now - since > self._recovery_timeout
        self._since[what] = since, failures + 1
        if lasting:
            self.over(what)
        return not lasting

    def over(self, what: Hashable) -> None:
        """It went well."""
        self._since.pop(what, None)
