"""Authenticates clients: one mechanism a file, sans-IO, and the sources of secrets."""

from __future__ import annotations

from typing import Protocol


class Mechanism(Protocol):
    """The client's side of one authentication exchange. A new one is made for each connection."""

    @property
    def name(self) -> str:
        """The mechanism's name on the wire."""
        ...

    @property
    def done(self) -> bool:
        """Whether the client has sent its last message, and the server has proved itself where the mechanism has that."""
        ...

    def start(self) -> bytes:
        """Return the first message. Raises OptionError when the credentials cannot be sent."""
        ...

    def step(self, challenge: bytes) -> bytes:
        """Return the answer to a message of the server. Raises AuthError when the server refuses, or does not prove itself."""
        ...
