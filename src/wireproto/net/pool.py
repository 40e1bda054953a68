"""Connections by address and purpose.

What it is: at most one open connection for each (address, purpose); threads that want the same one at the same time share one dialling.
A caller whose own time is shorter than a dialling takes (a poll of 50 ms, TLS and SASL over a slow way) has it go on in a thread of its
own: else none of its calls would ever find the connection open.
A connection that was lost is dialled again at its next use, not before a back-off that grows with each failure of that address.
May assume: `dialler` and `handshake` keep their deadline. Must not: know a protocol, or retry (that is `net.retry`'s part).
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

from wireproto._net import Connection, Event, Loop
from wireproto.errors import TimedOut, TransportError, WireprotoError
from wireproto.url import Address

from .retry import Policy

Key = tuple[Address, str]
Dialler = Callable[[Address, float], Connection]
Handshake = Callable[[Connection, float], object]

RECONNECT = Policy(first=0.05, factor=2.0, ceiling=2.0, jitter=0.2)


class Pool:
    """Connections of one client.

    Args:
        loop: the client's loop; waiting for another thread's dialling or for a back-off reads its sockets.
        dialler: dialler(address, deadline) -> Connection, opened on `loop`.
        handshake: handshake(conn, deadline), in the calling thread, before the connection is given out. When it raises, the connection is
            closed and the error goes to the caller.
    """

    def __init__(self, loop: Loop, dialler: Dialler, handshake: Handshake | None = None, *, policy: Policy = RECONNECT) -> None:
        self._loop = loop
        self._dialler = dialler
        self._handshake = handshake
        self._policy = policy
        self._open: dict[Key, Connection] = {}
        self._dialling: dict[Key, Event] = {}
        self._failures: dict[Address, tuple[int, float]] = {}

    def get(self, address: Address, purpose: str = "main", deadline: float = 0.0, *, patience: float = 0.0) -> Connection:
        """The open connection to `address` for `purpose`, dialled when there is none.

        Args:
            patience: seconds that a dialling begun here may take though `deadline` comes first: see `dialling`.

        Raises:
            ConnectError, TlsError, TimedOut, AuthError, whatever the handshake raises; Closed, Forked.
        """
        key = (address, purpose)
        while True:
            conn = self._open.get(key)
            if conn is not None and not conn.closed:
                return conn
            self._loop.check()
            mine = Event(self._loop)
            other = self._dialling.setdefault(key, mine)
            if other is mine:
                until = time.monotonic() + patience
                if until <= deadline or not patience:
                    return self._dial_here(key, mine, deadline)
                threading.Thread(target=self._dial_on, args=(key, mine, until), name="wireproto-dial", daemon=True).start()
            other.wait(deadline)  # then look again: it may have failed for its own, shorter deadline

    def dialling(self, address: Address, purpose: str = "main") -> bool:
        """Whether somebody is at it: after TimedOut, nothing has failed yet."""
        return (address, purpose) in self._dialling

    def peek(self, address: Address, purpose: str = "main") -> Connection | None:
        """The open connection, or None; never dials."""
        conn = self._open.get((address, purpose))
        return conn if conn is not None and not conn.closed else None

    def drop(self, conn: Connection, reason: str | None = None) -> None:
        """Close a connection that cannot be trusted any more."""
        for key in [key for key, known in list(self._open.items()) if known is conn]:
            self._open.pop(key, None)
        conn.close(reason)

    def close(self) -> None:
        """Close all of them."""
        for conn in list(self._open.values()):
            conn.close("the client was closed")
        self._open.clear()

    def _dial_here(self, key: Key, mine: Event, deadline: float) -> Connection:
        try:
            return self._dial(key, deadline)
        finally:
            self._dialling.pop(key, None)
            mine.set()

    def _dial_on(self, key: Key, mine: Event, deadline: float) -> None:
        """In a thread of its own: who waits is told of a failure."""
        try:
            self._dial(key, deadline)
        except BaseException as error:
            self._dialling.pop(key, None)
            mine.fail(error)
        else:
            self._dialling.pop(key, None)
            mine.set()

    def _dial(self, key: Key, deadline: float) -> Connection:
        address = key[0]
        conn: Connection | None = None
        try:
            self._await_back_off(address, deadline)
            conn = self._dialler(address, deadline)
            if self._handshake is not None:
                self._handshake(conn, deadline)
        except BaseException as error:
            if isinstance(error, TransportError):
                failures = self._failures.get(address, (0, 0.0))[0] + 1
                self._failures[address] = failures, time.monotonic() + self._policy.delay(failures, random.random)
            if conn is not None:
                conn.close("the handshake failed")
            if isinstance(error, WireprotoError):
                error.with_context(peer=f"{address[0]}:{address[1]}")
            raise
        else:
            self._failures.pop(address, None)
            self._open[key] = conn
            return conn

    def _await_back_off(self, address: Address, deadline: float) -> None:
        """Sit the back-off out, but leave half of the caller's time for the attempt itself."""
        now = time.monotonic()
        until = min(self._failures.get(address, (0, 0.0))[1], now + (deadline - now) / 2)
        if until > now:
            pause(self._loop, until)


def pause(loop: Loop, until: float) -> None:
    """Sleep until `until` (time.monotonic()), reading the loop's sockets meanwhile."""
    try:
        Event(loop).wait(until)
    except TimedOut:
        return
