"""Releases a role's resources when it is garbage-collected without having been closed.

`AbandonedRole` is the base of the roles with connections of their own. The garbage collector may run in any thread, at any place, under any
lock: all that happens there is that the I/O thread gets a call, which does the rest. That call must not refer to the role, or wait.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from wireproto._net import Loop
from wireproto.errors import WireprotoError

from .role import Role


class AbandonedRole(Role):
    """A role that releases its resources when it is collected unclosed."""

    _left: tuple[Loop, Callable[[], object]] | None = None

    def _when_abandoned(self, loop: Loop, give_back: Callable[[], object]) -> None:
        """Call `give_back` in the I/O thread if the role is collected unclosed."""
        self._left = loop, give_back

    def __del__(self) -> None:
        if self._left is not None and not self._ended:
            loop, give_back = self._left
            with suppress(WireprotoError, RuntimeError):  # the client is closed, or the program ends
                loop.call_soon(give_back)
