"""A role that the program lets go of without closing it: what it holds is given back all the same.

What it is: the base of the roles with connections of their own. The garbage collector may come in any thread, at any place, under any lock:
all that happens there is that the I/O thread is told, which does the rest.
Must not: let what is to be done know the role, or wait for anything.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from wireproto._net import Loop
from wireproto.errors import WireprotoError

from .role import Role


class AbandonedRole(Role):
    """See the module."""

    _left: tuple[Loop, Callable[[], object]] | None = None

    def _when_abandoned(self, loop: Loop, give_back: Callable[[], object]) -> None:
        """Call this in the I/O thread if the role is collected unclosed."""
        self._left = loop, give_back

    def __del__(self) -> None:
        if self._left is not None and not self._ended:
            loop, give_back = self._left
            with suppress(WireprotoError, RuntimeError):  # the client is closed, or the program ends
                loop.call_soon(give_back)
