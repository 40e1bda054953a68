"""Places: the addresses of one server's name, each tried once in a round, by the newest look-up.

What it is: a list that is looked up before each attempt, as the official client does (ZOOKEEPER-2184): while an address was silent, the
name may have got another one. May assume: an attempt takes what it has tried off the list that it is given. Must not: dial.
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
"""Seconds that a further look-up of a name may take: there are addresses from the last one."""


class Places:
    """The addresses of one server in one round.

    Args:
        resolve: steps to the addresses within a deadline, in the order to try.
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
        """What has not been tried yet, by a new look-up, or by the last one where that fails. Steps.

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
        """Keep what the last attempt has tried; the first place, where it came to none."""
        begun = [place for place in self._known if place not in self._tried]
        self._tried += [place for place in begun if place not in self._offered] or begun[:1]
