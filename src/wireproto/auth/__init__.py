"""Authentication: one mechanism a file, sans-IO, and where secrets come from."""

from __future__ import annotations

from typing import Protocol


class Mechanism(Protocol):
    """One exchange, from our side. Made anew for each connection.

    Attributes:
        name: as the wire spells it.
        done: whether our side has nothing more to say, and (where it can be checked) the server has proved itself.
    """

    @property
    def name(self) -> str: ...
    @property
    def done(self) -> bool: ...
    def start(self) -> bytes:
        """The first message."""
        ...

    def step(self, challenge: bytes) -> bytes:
        """The answer to what the server sent; raises AuthError when it refused or cheats."""
        ...
