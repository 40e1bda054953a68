"""Detects leaders that have stopped answering, and the partitions that wait for them. Sans-IO.

`UnresponsiveLeaders`, one a sender, records what goes out by which connection, and is checked about once a second while a response is
outstanding. A node that is stopped keeps its connections open: what was sent there would wait for `request_timeout`, though another node
leads by then. Brokers answer the requests of a connection in order, so one that owed responses at two checks, and by which nothing came in
between, has owed the oldest of them all that time.
`look` has one caller at a time; `sent` may be called by any thread meanwhile. Reads no clock, closes nothing, and does not know who leads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .outgoing import Key

if TYPE_CHECKING:
    from .._net import Connection

LOOK_EVERY = 1.0
"""Seconds between two checks, and between two metadata refreshes for a silent leader."""
SILENT = 2.0
"""Seconds without a response after which a connection is silent."""


class _Unanswered:
    """The partitions sent by one connection.

    Attributes:
        keys: since the last check at which responses had come.
        before: between that check and the one before.
        frames: frames read by the connection at that check; -1: nothing was outstanding.
        since: when that was.
    """

    __slots__ = ("before", "frames", "keys", "since")

    def __init__(self) -> None:
        self.keys: set[Key] = set()
        self.before: set[Key] = set()
        self.frames = -1
        self.since = 0.0

    def answered(self) -> None:
        """Note that responses came since the last check: what was sent before that is answered, or will be."""
        self.before, self.keys = self.keys, set()


class UnresponsiveLeaders:
    """Keeps what is outstanding, by connection; see the module.

    Attributes:
        unanswered: what was sent by each.
        silent: the connections that were silent at the last check, and the partitions sent by them of late.
    """

    def __init__(self) -> None:
        self.unanswered: dict[Connection, _Unanswered] = {}
        self.silent: dict[Connection, set[Key]] = {}

    def sent(self, link: Connection, key: Key) -> None:
        """Note that a request for this partition goes out by this connection."""
        unanswered = self.unanswered.get(link)
        if unanswered is None:
            unanswered = self.unanswered[link] = _Unanswered()
        unanswered.keys.add(key)

    def look(self, now: float) -> bool:
        """Find out which connections are silent; return whether to check again, since responses are outstanding."""
        waiting = False
        silent: dict[Connection, set[Key]] = {}
        for link, unanswered in list(self.unanswered.items()):
            if link.closed:
                del self.unanswered[link]
            elif not link.pending:
                unanswered.frames = -1
                unanswered.answered()
            else:
                waiting = True
                if unanswered.frames != link.frames_read:
                    unanswered.frames, unanswered.since = link.frames_read, now
                    unanswered.answered()
                elif link.context.muted_until > now:
                    unanswered.since = link.context.muted_until  # throttled: it reads nothing meanwhile
                elif now - unanswered.since >= SILENT:
                    silent[link] = unanswered.before | unanswered.keys
        self.silent = silent
        return waiting
