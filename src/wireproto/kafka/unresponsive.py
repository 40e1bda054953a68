"""Which leaders keep a sender waiting: connections that owe an answer and are silent, and what they hold. Sans-IO.

What it is: `UnresponsiveLeaders`, one a sender. It is told what goes out by which connection, and looked at about once a second while an answer is owed.
A node that is stopped keeps its connections open: what is on its way there would wait for `request_timeout`, though another one leads by
then. Brokers answer the requests of a connection in order, so one that owed answers at two looks, and by which nothing came in between, has
owed the oldest of them all that time.
May assume: `look` has one caller at a time; `sent` may be called by any thread meanwhile. Must not: read a clock, close anything, or know
who leads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .outgoing import Key

if TYPE_CHECKING:
    from .._net import Connection

LOOK_EVERY = 1.0
"""Seconds between two looks, and between two questions who leads by now."""
SILENT = 2.0
"""Seconds without an answer after which a connection is silent."""


class _Unanswered:
    """One connection: the keys sent since the last look at which it had answered, and between that one and the one before."""

    __slots__ = ("before", "heard", "keys", "since")

    def __init__(self) -> None:
        self.keys: set[Key] = set()
        self.before: set[Key] = set()
        self.heard = -1
        self.since = 0.0

    def answered(self) -> None:
        """It came on since the last look: what was sent before that is answered, or will be."""
        self.before, self.keys = self.keys, set()


class UnresponsiveLeaders:
    """See the module.

    Attributes:
        owed: what each was sent. silent: the connections that were, at the last look, and what they were sent of late.
    """

    def __init__(self) -> None:
        self.unanswered: dict[Connection, _Unanswered] = {}
        self.silent: dict[Connection, set[Key]] = {}

    def sent(self, link: Connection, key: Key) -> None:
        """A request for this key goes out by this connection."""
        unanswered = self.unanswered.get(link)
        if unanswered is None:
            unanswered = self.unanswered[link] = _Unanswered()
        unanswered.keys.add(key)

    def look(self, now: float) -> bool:
        """Find out who is silent; whether to look again, since somebody owes an answer."""
        waiting = False
        silent: dict[Connection, set[Key]] = {}
        for link, unanswered in list(self.unanswered.items()):
            if link.closed:
                del self.unanswered[link]
            elif not link.pending:
                unanswered.heard = -1
                unanswered.answered()
            else:
                waiting = True
                if unanswered.heard != link.frames_read:
                    unanswered.heard, unanswered.since = link.frames_read, now
                    unanswered.answered()
                elif link.context.muted_until > now:
                    unanswered.since = link.context.muted_until  # it keeps us to a quota, and reads nothing meanwhile
                elif now - unanswered.since >= SILENT:
                    silent[link] = unanswered.before | unanswered.keys
        self.silent = silent
        return waiting
