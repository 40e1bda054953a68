"""Keeps a client's connections, by address and purpose.

There is at most one open connection for each (address, purpose). Dialling is a task of the client: callers that want the same connection at
the same time share the task, and it continues after they time out, so that a poll of 50 ms finds the connection open at a later call, even
when TLS and SASL take long. A connection that was lost is dialled again at its next use, not before a back-off that grows with each
failure of that address. The steps that open a connection keep a deadline of their own. The module knows no protocol and does not retry
(that is the part of `net.retry`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress

from wireproto._net import Connection, Event, Loop
from wireproto.errors import Closed, TransportError, Unanswered, WireprotoError
from wireproto.url import Address

from .dial import Progress, peer_name
from .retry import Policy
from .task import Steps, Task, Tasks, after, fresh

Key = tuple[Address, str]

BRIEF = 0.5
"""Seconds of a back-off that are always waited, however little time the caller has."""
RECONNECT = Policy(first=0.05, factor=2.0, ceiling=2.0, jitter=0.2)


_NONE: tuple[int, float, TransportError | None] = (0, 0.0, None)

Opening = Callable[[Address, Progress], Steps[Connection]]


class Pool:
    """Connections of one client.

    Args:
        tasks: the client's.
        opening: steps that make a connection which is ready for requests, and close it if they fail; they keep a deadline of their own.
        policy: the back-off between attempts to dial an address.
        expiring: whether an open connection is not to be used for new requests any more. Once another one has replaced it, it is closed as
            soon as it has no request under way.
    """

    def __init__(
        self, tasks: Tasks, opening: Opening, *, policy: Policy = RECONNECT, expiring: Callable[[Connection], bool] | None = None
    ) -> None:
        self._tasks = tasks
        self._opening = opening
        self._expiring = expiring
        self._policy = policy
        self._open: dict[Key, Connection] = {}
        self._progress: dict[Key, Progress] = {}
        self._failures: dict[Address, tuple[int, float, TransportError | None]] = {}

    def get(self, address: Address, purpose: str = "main", deadline: float = 0.0) -> Connection:
        """Return the open connection to `address` for `purpose`, dialling it when there is none.

        Args:
            address: host and port. purpose: the kind of use, such as "main".
            deadline: `time.monotonic()` value. A dialling that is not done by then continues.

        Raises:
            ConnectError, TlsError, Unanswered, AuthError: what the opening raises, or raised last if the deadline comes in a back-off.
            Closed, Forked.
        """
        conn = self.peek(address, purpose)
        return conn if conn is not None else self._tasks.drive(self.getting(address, purpose, deadline), deadline)

    def getting(self, address: Address, purpose: str = "main", deadline: float = 0.0) -> Steps[Connection]:
        """Run `get` as steps."""
        conn = self.peek(address, purpose)
        if conn is not None:
            return conn
        task = self.dial(address, purpose, deadline)
        if not (yield task, deadline):
            raise self.late(address, purpose)
        return task.result()

    def late(self, address: Address, purpose: str = "main") -> WireprotoError:
        """Return the error of a caller whose deadline came during a dialling: the failure that it backs off from, or how far it is."""
        how_far = self._progress.get((address, purpose))
        if how_far is not None and how_far.failed is not None:
            return fresh(how_far.failed)
        return Unanswered(how_far.late if how_far is not None else "no connection yet", peer=peer_name(address))

    def dial(self, address: Address, purpose: str = "main", until: float | None = None) -> Task[Connection]:
        """Return the task that dials a connection, beginning it when there is none, without waiting for it.

        Args:
            address, purpose: see `get`.
            until: `time.monotonic()` value. If this call begins the task, a back-off takes at most half of the time until then, or `BRIEF`.
        """
        time_out = float("inf") if until is None else until
        key = (address, purpose)
        return self._tasks.shared(("dial", id(self), *key), lambda: self._dialling(key, time_out), f"dialling {peer_name(address)}")

    def dialling(self, address: Address, purpose: str = "main") -> bool:
        """Whether a dialling is under way, so that an Unanswered does not mean that it has failed."""
        return self._tasks.running(("dial", id(self), address, purpose))

    def peek(self, address: Address, purpose: str = "main") -> Connection | None:
        """Return the open connection, or None; never dials."""
        conn = self._open.get((address, purpose))
        if conn is None or conn.closed or (self._expiring is not None and self._expiring(conn)):
            return None
        return conn

    def drop(self, conn: Connection, reason: str | None = None) -> None:
        """Close a connection that cannot be trusted any more, for `reason`."""
        self.release(conn)
        conn.close(reason)

    def release(self, conn: Connection) -> bool:
        """Remove a connection, which the caller will close: the next `get` dials another one. Returns whether it was in the pool."""
        keys = [key for key, known in list(self._open.items()) if known is conn]
        for key in keys:
            self._open.pop(key, None)
        return bool(keys)

    def forget(self, purpose: str, reason: str) -> None:
        """Close every connection of a purpose that is not used any more, also those that are being dialled."""
        mine = lambda key: isinstance(key, tuple) and key[:2] == ("dial", id(self)) and key[-1] == purpose  # noqa: E731
        for dialling in self._tasks.cancel(mine, Closed(reason)):
            after(dialling, self._close, purpose, reason)  # a dialling past its last wait opens its connection all the same
        self._close(purpose, reason)

    def _close(self, purpose: str, reason: str) -> None:
        for key in [key for key in list(self._open) if key[1] == purpose]:
            conn = self._open.pop(key, None)
            if conn is not None:
                conn.close(reason)

    def drop_all(self, reason: str) -> None:
        """Close all connections; they are dialled again at their next use."""
        for conn in list(self._open.values()):
            conn.close(reason)
        self._open.clear()

    def close(self) -> None:
        """Close all connections, since the client is closed."""
        self.drop_all("the client was closed")

    # ---- in the I/O thread ------------------------------------------------------------------------------------------------------

    def _dialling(self, key: Key, until: float) -> Steps[Connection]:
        address = key[0]
        there = self.peek(*key)
        if there is not None:
            return there  # another dialling has ended since the caller looked
        progress = self._progress[key] = Progress()
        try:
            pause, progress.failed = self._back_off(address, until)
            if pause > time.monotonic():
                yield pause
            progress.failed = None
            conn = yield from self._opening(address, progress)
        except BaseException as error:
            if isinstance(error, TransportError):
                failures = self._failures.get(address, _NONE)[0] + 1
                self._failures[address] = failures, time.monotonic() + self._policy.delay(failures, random.random), error
            if isinstance(error, WireprotoError):
                error.with_context(peer=peer_name(address))
            raise
        finally:
            self._progress.pop(key, None)
        self._failures.pop(address, None)
        before, self._open[key] = self._open.get(key), conn
        if before is not None and not before.closed:
            self._let_end(before)
        return conn

    def _let_end(self, expiring: Connection) -> None:
        """Close a replaced connection after `BRIEF` seconds, or once it is idle: a caller that has just got it may be about to use it."""
        with suppress(Closed):
            expiring.loop.call_at(time.monotonic() + BRIEF, self._end, expiring)

    def _end(self, expiring: Connection) -> None:
        if expiring.pending or expiring.unsent:
            self._let_end(expiring)
        else:
            expiring.close("another one has taken its place")

    def _back_off(self, address: Address, until: float) -> tuple[float, TransportError | None]:
        """Return when to begin dialling, as a `time.monotonic()` value, and the last failure.

        The back-off is kept, but half of the caller's time is left for the attempt. For short timeouts at least `BRIEF` is waited: the task
        continues after such callers, which call again.
        """
        now = time.monotonic()
        _, earliest, failed = self._failures.get(address, _NONE)
        return min(earliest, now + max((until - now) / 2, BRIEF)), failed


def pause(loop: Loop, until: float) -> None:
    """Sleep until `until` (`time.monotonic()`), reading the loop's sockets meanwhile. Raises Closed, Forked."""
    Event(loop).ready_by(until)
