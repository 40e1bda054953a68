"""Closes connections whose client has gone silent: PulsarHandler's timer, one for each connection.

    each interval   what was found                what is done
                    no CONNECT so far             closed
                    no frame since the last PING  closed, unless this side does not read
                    otherwise                     PING

Any frame counts as a sign of life. It runs in the event loop, and does nothing on a connection that a fault has stalled.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ...pulsar import PulsarApi_pb2 as api
from ...pulsar.frames import encode

if TYPE_CHECKING:
    from ..server import Connection


class Keepalive:
    """Watches one connection until `stop`.

    Args:
        interval: seconds; 0: it does nothing.

    Attributes:
        version: the protocol version of the client's CONNECT; None before it. Version 0 has no PING.
    """

    def __init__(self, connection: Connection, interval: float) -> None:
        self.version: int | None = None
        self._connection = connection
        self._interval = interval
        self._asked_at: int | None = None  # number of frames received when the last PING was sent
        self._timer: asyncio.TimerHandle | None = None
        self._again()

    def stop(self) -> None:
        """Stop the timer, at the end of the connection."""
        if self._timer is not None:
            self._timer.cancel()

    def _again(self) -> None:
        if self._interval > 0:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._look)

    def _look(self) -> None:
        connection = self._connection
        if connection.stalled:
            return
        if self.version is None or (self._asked_at == connection.heard and connection.reading):
            connection.close()
            return
        if self.version > 0:
            self._asked_at = connection.heard
            connection.send(encode(api.CommandPing()))
        self._again()
