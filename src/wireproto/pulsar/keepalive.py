"""Checks that the peer of a connection is alive: PING, PONG, idle timeout.

Each connection has a timer. A peer that has sent nothing for `interval` seconds gets a PING, whose PONG the engine takes in by itself, and
the connection is closed when nothing has come for as long again. Brokers do the same with their clients. So while we do not read from a
broker, since our user is busy and the mailbox full, it gets a PING all the same: any command shows it that we are alive.

Timers run in the I/O thread. A connection is never judged by what it could not have read.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Final

from wireproto._net import Connection
from wireproto.errors import WireprotoError

from . import PulsarApi_pb2 as api
from .frames import encode

LOOKS: Final = 3
"""How often a connection is checked in an interval."""


class Keepalive:
    """Checks one connection until it is closed.

    Args:
        conn: the connection.
        interval: seconds of silence after which a PING is sent, and after as many again the connection closed.
    """

    def __init__(self, conn: Connection, interval: float) -> None:
        self._conn = conn
        self._interval = interval
        self._readable_since = time.monotonic()
        self._ping = encode(api.CommandPing())
        self._again()

    def _again(self) -> None:
        self._conn.loop.call_at(time.monotonic() + self._interval / LOOKS, self._look)

    def _look(self) -> None:
        conn, now = self._conn, time.monotonic()
        if conn.closed:
            return
        if conn.held_back:
            self._readable_since = now
            self._ask()
        else:
            silence = now - max(conn.last_read, self._readable_since)
            if silence >= 2 * self._interval:
                conn.close(f"the broker has said nothing for {silence:.0f} s")
                return
            if silence >= self._interval:
                self._ask()
        self._again()

    def _ask(self) -> None:
        with suppress(WireprotoError):  # its buffer is full of unsent bytes: the idle timeout decides
            self._conn.send(self._ping)
