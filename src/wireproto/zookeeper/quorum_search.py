"""Search: from a server without a quorum to one that has it.

What it is: while the connection of now is to a server without a quorum, the other servers are asked in turn, by a handshake that only one
with a quorum takes; at first soon, then ever more rarely. The connection of now serves until there is a better one. Threads: `begin` in any
thread, the search itself in a task. Must not: know how a server is met.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import AuthError, Closed, WireprotoError
from ..net.retry import Policy, Waits
from ..net.task import Steps

if TYPE_CHECKING:
    from .._net import Connection, Loop
    from .serial_executor import SerialExecutor

log = logging.getLogger("wireproto.zookeeper")
LOOKS = Policy(first=0.1, factor=2.0, ceiling=60.0, jitter=0.2)
"""Waits between looks."""


class QuorumSearch:
    """Looks for a server with a quorum.

    Args:
        current: the connection of now, or None.
        turns: of all that makes connections.
        establish: makes a connection to one of the servers the current one, or raises; it asks `active` which servers will do. Steps.
        reconnect: goes on when the connection of now was left for one that then failed. Steps.
        found: called when there is one.
    """

    def __init__(
        self,
        loop: Loop,
        current: Callable[[], Connection | None],
        executor: SerialExecutor,
        establish: Callable[[], Steps[None]],
        reconnect: Callable[[], Steps[None]],
        found: Callable[[], object],
    ) -> None:
        self.active = False
        self._loop = loop
        self._current = current
        self._executor = executor
        self._establish = establish
        self._reconnect = reconnect
        self._found = found

    def begin(self, conn: Connection) -> None:
        """This connection, the current one, is to a server without a quorum."""
        self._wait(conn, Waits(LOOKS))

    def _wait(self, conn: Connection, waits: Waits) -> None:
        self._loop.call_at(time.monotonic() + waits.next(), self._soon, conn, waits)

    def _soon(self, conn: Connection, waits: Waits) -> None:
        self._executor.add(self._looking(conn, waits))

    def _looking(self, conn: Connection, waits: Waits) -> Steps[None]:
        if self._current() is not conn:
            return
        self.active = True
        try:
            yield from self._establish()
        except (AuthError, Closed):
            return
        except WireprotoError as why:
            log.debug("no server with a quorum: %s", why)
        finally:
            self.active = False
        now = self._current()
        if now is conn and not conn.closed:
            self._wait(conn, waits)
        elif now is None:
            yield from self._reconnect()
        else:
            self._found()
