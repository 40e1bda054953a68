"""Keeps the addresses of one server's name for one round over the servers: each is tried once, by the newest look-up.

The name is looked up before each attempt, as the official client does (ZOOKEEPER-2184): while an address did not answer, the name may have
got another one. An attempt takes what it has tried off the list that it is given. Connecting is done elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from ..errors import TransportError
from ..net.task import Steps

if TYPE_CHECKING:
    from ..net.address import SocketAddress
    from ..url import Address


AGAIN = 1.0
"""Seconds that a further look-up of a name may take: the last one has given addresses."""


class Places:
    """The addresses of one server in one round.

    Args:
        resolve: steps to the addresses within a deadline, in the order to try. address: the server's name.

    Attributes:
        over: whether there is none left to try.
    """

    def __init__(self, resolve: Callable[[Address, float], Steps[list[SocketAddress]]], address: Address) -> None:
        self.over = False
        self._resolve = resolve
        self._address = address
        self._known: list[SocketAddress] = []
        self._tried: list[SocketAddress] = []
        self._offered: list[SocketAddress] = []

    def looking(self, until: float) -> Steps[list[SocketAddress]]:
        """Return the addresses that were not tried yet, by a new look-up, or by the last one if that fails. Steps.

        Raises:
            Unreachable, ConnectError, Unanswered: the first look-up failed.
        """
        if self._known:
            self._note()
            with suppress(TransportError):
                self._known = yield from self._resolve(self._address, min(until, time.monotonic() + AGAIN))
        else:
            self.over = True  # where it fails
            self._known = yield from self._resolve(self._address, until)
        self._offered = [place for place in self._known if place not in self._tried]
        self.over = not self._offered
        return self._offered

    def _note(self) -> None:
        """Note what the last attempt has tried; the first address, if it tried none."""
        begun = [place for place in self._known if place not in self._tried]
        self._tried += [place for place in begun if place not in self._offered] or begun[:1]
