"""Searches for a server with a quorum while the client is connected to one without.

The other servers are tried in turn, by a handshake that only a server with a quorum accepts; soon at first, then at growing intervals. The
current connection is used until there is a better one. Threads: `begin` in any thread, the search itself in a task. How a server is
connected to is the link's.
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
"""Pauses between searches."""


class QuorumSearch:
    """Looks for a server with a quorum.

    Args:
        current: returns the current connection, or None.
        executor: runs everything that opens connections, one after the other.
        establish: makes a connection to one of the servers the current one, or raises; it reads `active` to know which servers will do.
            Steps.
        reconnect: reconnects when the current connection was left for one that then failed. Steps.
        found: called when there is one.

    Attributes:
        active: whether only a server with a quorum will do now.
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
        """Begin the search: this connection, the current one, is to a server without a quorum."""
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
