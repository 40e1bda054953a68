"""Keeps why an attempt that was sent brought no success, for the text of an error whose outcome depends on that attempt.

A request is sent again when its answer is lost, and the answer to the repetition may not say whether the first attempt was carried out. The
outcome is unknown then, and the error names what made it so: which answer was lost, when, by which failure, of which peer.
"""

from __future__ import annotations

import time
from typing import TypeVar

from wireproto.errors import TransportError, WireprotoError

E = TypeVar("E", bound=WireprotoError)


class LostAnswer:
    """The last attempt of one request that was sent and failed; a lost answer counts more than an answer that is an error.

    Attributes:
        failure: what it failed with; None: no attempt has failed after it was sent.
    """

    __slots__ = ("_request", "_sent", "failure")

    def __init__(self, request: str) -> None:
        self._request = request
        self._sent = 0.0
        self.failure: WireprotoError | None = None

    def failed(self, why: WireprotoError, sent: float) -> None:
        """Note the failure of an attempt that was sent.

        Args:
            why: what it failed with. sent: when it was sent, as `time.monotonic()`.
        """
        if self.failure is None or isinstance(why, TransportError) or not isinstance(self.failure, TransportError):
            self.failure, self._sent = why, sent

    def __str__(self) -> str:
        return self._text(str(self.failure))

    @property
    def text(self) -> str:
        """The same without the failure's context, such as the peer: for an error that has that context itself."""
        return self._text("" if self.failure is None else self.failure.text)

    def _text(self, failure: str) -> str:
        why = self.failure
        if why is None:
            return f"each {self._request} that was sent was answered"
        how = "the answer to {}, sent {:.1f} s ago, was lost" if isinstance(why, TransportError) else "{}, sent {:.1f} s ago, was refused"
        return f"{how.format(self._request, time.monotonic() - self._sent)}: {type(why).__name__}: {failure}"

    def explain(self, error: E, text: str) -> E:
        """Add `text` and the failure to an error, whose cause it becomes; returns the error. Does nothing where no attempt has failed.

        Args:
            error: has no other cause. text: what the failure means for it, before the failure itself.
        """
        if self.failure is not None:
            error.text += f"; {text}: {self}"
            error.__cause__ = self.failure
        return error
