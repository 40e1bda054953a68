"""Gives a new connection the client's identities and its watches, before any other request.

The requests are the client's own, with xids below zero. The transactions that their replies report do not count as seen by this client: a
connection may be lost between two of the events that setting watches again brings, and the next one must bring the others. Which connection
is the current one is the link's.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .._codec import reply_error
from ..errors import TimedOut
from ..net.task import Steps, reply
from .codes import error
from .messages import AuthPacket, RequestHeader, SetWatches, SetWatches2

if TYPE_CHECKING:
    from .._net import Call, Connection

_AUTH, _SET_WATCHES, _OTHERS = -4, -8, -16
WINDOW = 16
"""Packets of watches that may be unanswered at a time."""


class SessionSetup:
    """Sends identities and watches."""

    def __init__(self) -> None:
        self._numbers = itertools.count(_OTHERS, -1)

    def authenticate(self, conn: Connection, scheme: str, credential: bytes, until: float) -> Steps[None]:
        """Give an identity. Raises AuthFailed when it is refused. Steps."""
        packet = AuthPacket(type=0, scheme=scheme, auth=credential).encode()
        answer = yield from reply(self._submit(conn, _AUTH, 100, packet, secret=True), until)
        _check(answer, f"the {scheme} identity was refused")

    def arm(self, conn: Connection, packets: Iterable[SetWatches | SetWatches2], until: float, silence: float) -> Steps[None]:
        """Set watches again. Steps.

        Args:
            silence: seconds without a byte after which it ends, once `until` has passed. As long as the server answers, it has time for the
                next packet, however many there are.
        """
        unanswered: deque[Call] = deque()
        for packet in packets:
            if len(unanswered) == WINDOW:
                yield from _armed(unanswered.popleft(), until, silence)
            code = 101 if isinstance(packet, SetWatches) else 105
            unanswered.append(self._submit(conn, _SET_WATCHES, code, packet.encode()))
        for call in unanswered:
            yield from _armed(call, until, silence)

    def _submit(self, conn: Connection, xid: int, code: int, body: bytes, *, secret: bool = False) -> Call:
        """Send a request under its usual xid, or a further one below zero while that is in use."""
        while True:
            try:
                return conn.submit(xid, (RequestHeader(xid=xid, type=code).encode(), body), secret=secret)
            except ValueError:
                xid = next(self._numbers)


def _armed(call: Call, until: float, silence: float) -> Steps[None]:
    while not (yield call, max(until, call.conn.last_read + silence)):
        if time.monotonic() >= max(until, call.conn.last_read + silence):
            raise TimedOut("the server has not answered the request to set the watches again", peer=call.conn.peer)
    _check(call.result(0.0), "the watches could not be set again")


def _check(answer: bytes, text: str) -> None:
    if err := reply_error(answer):
        raise error(err, text)
