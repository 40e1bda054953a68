"""Whether the other side of a connection is still there.

What it is: a timer a connection. A peer that has said nothing for `interval` seconds is asked by a PING, which the engine answers and
passes over by itself, and the connection is given up when nothing has come for as long again. Brokers do the same with their clients, so
one that we do not read, since our user is busy and the mailbox full, hears from us all the same: any command tells it that we live.

May assume: a timer runs in the I/O thread. Must not: judge a connection by what it could not have read.
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
"""How often a connection is looked at in an interval."""


class Keepalive:
    """Looks after one connection until it is closed.

    Args:
        interval: seconds of silence after which the peer is asked, and after as many again given up.
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
        with suppress(WireprotoError):  # full of what is not taken: the silence tells
            self._conn.send(self._ping)
