"""Connections by address and purpose.

What it is: at most one open connection for each (address, purpose). Dialling is a task of the client's: those who want the same connection
at the same time share it, and it goes on when they give up, so that a poll of 50 ms finds the connection open by and by, over a slow way
with TLS and SASL, too.
A connection that was lost is dialled again at its next use, not before a back-off that grows with each failure of that address.
May assume: the steps that open one keep a time of their own. Must not: know a protocol, or retry (that is `net.retry`'s part).
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
"""Seconds of a back-off that are always sat out."""
RECONNECT = Policy(first=0.05, factor=2.0, ceiling=2.0, jitter=0.2)


_NONE: tuple[int, float, TransportError | None] = (0, 0.0, None)

Opening = Callable[[Address, Progress], Steps[Connection]]


class Pool:
    """Connections of one client.

    Args:
        tasks: the client's.
        opening: steps that make a connection, ready for requests, or close what they made of it; they keep a time of their own.
        worn: whether an open connection is to be given to nobody any more; when another one has taken its place, it is closed as soon as
            nothing is under way on it.
    """

    def __init__(
        self, tasks: Tasks, opening: Opening, *, policy: Policy = RECONNECT, worn: Callable[[Connection], bool] | None = None
    ) -> None:
        self._tasks = tasks
        self._opening = opening
        self._worn = worn
        self._policy = policy
        self._open: dict[Key, Connection] = {}
        self._progress: dict[Key, Progress] = {}
        self._failures: dict[Address, tuple[int, float, TransportError | None]] = {}

    def get(self, address: Address, purpose: str = "main", deadline: float = 0.0) -> Connection:
        """The open connection to `address` for `purpose`, dialled when there is none.

        Args:
            deadline: `time.monotonic()` value. A dialling that is not over by then goes on.

        Raises:
            ConnectError, TlsError, Unanswered, AuthError, whatever the opening raises, or raised last if the time is over in a back-off;
            Closed, Forked.
        """
        conn = self.peek(address, purpose)
        return conn if conn is not None else self._tasks.drive(self.getting(address, purpose, deadline), deadline)

    def getting(self, address: Address, purpose: str = "main", deadline: float = 0.0) -> Steps[Connection]:
        """`get`, as steps."""
        conn = self.peek(address, purpose)
        if conn is not None:
            return conn
        task = self.dial(address, purpose, deadline)
        if not (yield task, deadline):
            raise self.late(address, purpose)
        return task.result()

    def late(self, address: Address, purpose: str = "main") -> WireprotoError:
        """What is told of a dialling for which there is no time left: why it is in a back-off, or else how far it is."""
        how_far = self._progress.get((address, purpose))
        if how_far is not None and how_far.failed is not None:
            return fresh(how_far.failed)
        return Unanswered(how_far.late if how_far is not None else "no connection yet", peer=peer_name(address))

    def dial(self, address: Address, purpose: str = "main", until: float | None = None) -> Task[Connection]:
        """The task that dials it, for those who have no time to wait; begun when there is none.

        Args:
            until: a back-off takes no more than half of the time that is left, or `BRIEF`, if it is this one that begins the task.
        """
        time_out = float("inf") if until is None else until
        key = (address, purpose)
        return self._tasks.shared(("dial", id(self), *key), lambda: self._dialling(key, time_out), f"dialling {peer_name(address)}")

    def dialling(self, address: Address, purpose: str = "main") -> bool:
        """Whether it is under way: after Unanswered, nothing has failed yet."""
        return self._tasks.running(("dial", id(self), address, purpose))

    def peek(self, address: Address, purpose: str = "main") -> Connection | None:
        """The open connection, or None; never dials."""
        conn = self._open.get((address, purpose))
        if conn is None or conn.closed or (self._worn is not None and self._worn(conn)):
            return None
        return conn

    def drop(self, conn: Connection, reason: str | None = None) -> None:
        """Close a connection that cannot be trusted any more."""
        self.release(conn)
        conn.close(reason)

    def release(self, conn: Connection) -> bool:
        """Have the next one who asks dial another one. Whoever has this one closes it. Returns whether it was ours."""
        keys = [key for key, known in list(self._open.items()) if known is conn]
        for key in keys:
            self._open.pop(key, None)
        return bool(keys)

    def forget(self, purpose: str, reason: str) -> None:
        """Close every connection for a purpose that nobody has any more, those that are being dialled, too."""
        mine = lambda key: isinstance(key, tuple) and key[:2] == ("dial", id(self)) and key[-1] == purpose  # noqa: E731
        for dialling in self._tasks.cancel(mine, Closed(reason)):
            after(dialling, self._close, purpose, reason)  # one that waits for nothing any more makes its connection all the same
        self._close(purpose, reason)

    def _close(self, purpose: str, reason: str) -> None:
        for key in [key for key in list(self._open) if key[1] == purpose]:
            conn = self._open.pop(key, None)
            if conn is not None:
                conn.close(reason)

    def drop_all(self, reason: str) -> None:
        """Close all of them; they are dialled anew as they are asked for."""
        for conn in list(self._open.values()):
            conn.close(reason)
        self._open.clear()

    def close(self) -> None:
        """Close all of them, for good."""
        self.drop_all("the client was closed")

    # ---- in the I/O thread ------------------------------------------------------------------------------------------------------

    def _dialling(self, key: Key, until: float) -> Steps[Connection]:
        address = key[0]
        there = self.peek(*key)
        if there is not None:
            return there  # a dialling has ended since somebody looked
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

    def _let_end(self, worn: Connection) -> None:
        """Close it in a while, or later if something is under way there by then: who was given it a moment ago is about to use it."""
        with suppress(Closed):
            worn.loop.call_at(time.monotonic() + BRIEF, self._end, worn)

    def _end(self, worn: Connection) -> None:
        if worn.pending or worn.unsent:
            self._let_end(worn)
        else:
            worn.close("another one has taken its place")

    def _back_off(self, address: Address, until: float) -> tuple[float, TransportError | None]:
        """When to begin, and what failed last. Not before the back-off is over, but half of the caller's time is left for the attempt
        itself. Callers in a hurry have no say: theirs goes on behind them, and they come again and again."""
        now = time.monotonic()
        _, earliest, failed = self._failures.get(address, _NONE)
        return min(earliest, now + max((until - now) / 2, BRIEF)), failed


def pause(loop: Loop, until: float) -> None:
    """Sleep until `until` (time.monotonic()), reading the loop's sockets meanwhile."""
    Event(loop).ready_by(until)
