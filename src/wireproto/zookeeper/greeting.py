"""Greeting: what a new connection is given before anything else: the client's identities, and its watches.

What it is: requests of the client's own, which have numbers below zero. What their replies tell of does not count as seen by this client:
a connection may be lost between two of the events that setting watches again brings, and the next one must bring the others. Must not:
know which connection is the current one.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .._codec import reply_error
from ..errors import TimedOut
from .codes import error
from .messages import AuthPacket, RequestHeader, SetWatches, SetWatches2

if TYPE_CHECKING:
    from .._net import Call, Connection

_AUTH, _SET_WATCHES, _OTHERS = -4, -8, -16
WINDOW = 16
"""Packets of watches that may be unanswered at a time."""


class Greeting:
    """Sends identities and watches."""

    def __init__(self) -> None:
        self._numbers = itertools.count(_OTHERS, -1)

    def authenticate(self, conn: Connection, scheme: str, credential: bytes, deadline: float) -> None:
        """Give an identity. Raises AuthFailed when it is refused."""
        packet = AuthPacket(type=0, scheme=scheme, auth=credential).encode()
        reply = self._submit(conn, _AUTH, 100, packet, secret=True).result(deadline)
        _check(reply, f"the {scheme} identity was refused")

    def arm(self, conn: Connection, packets: Iterable[SetWatches | SetWatches2], deadline: float, patience: float) -> None:
        """Set watches again.

        Args:
            patience: seconds of silence that end it behind `deadline`. As long as the server answers, it has time for the next packet,
                however many there are.
        """
        unanswered: deque[Call] = deque()
        for packet in packets:
            if len(unanswered) == WINDOW:
                _armed(unanswered.popleft(), deadline, patience)
            code = 101 if isinstance(packet, SetWatches) else 105
            unanswered.append(self._submit(conn, _SET_WATCHES, code, packet.encode()))
        for call in unanswered:
            _armed(call, deadline, patience)

    def _submit(self, conn: Connection, xid: int, code: int, body: bytes, *, secret: bool = False) -> Call:
        """Send a request under the number that is usual for it, or a further one below zero while that is in use."""
        while True:
            try:
                return conn.submit(xid, (RequestHeader(xid=xid, type=code).encode(), body), secret=secret)
            except ValueError:
                xid = next(self._numbers)


def _armed(call: Call, deadline: float, patience: float) -> None:
    while not call.wait(max(deadline, call.conn.last_read + patience)):
        if time.monotonic() >= max(deadline, call.conn.last_read + patience):
            raise TimedOut("the server does not set the watches again", peer=call.conn.peer)
    _check(call.result(time.monotonic()), "the watches could not be set again")


def _check(reply: bytes, text: str) -> None:
    if err := reply_error(reply):
        raise error(err, text)
