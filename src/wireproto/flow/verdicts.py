"""Defines what a protocol returns to the sender: the verdict on each batch of a request, and its way of sending (`Wire`).

It has types alone; `flow.sender` says what each verdict does to a batch and its queue.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from wireproto.errors import WireprotoError

from .parts import Parts

Elsewhere = Callable[[Any], Hashable | None]


@dataclass(frozen=True, slots=True)
class Stored:
    """The batch is acknowledged.

    Attributes:
        base: what the first record's position is counted from.
    """

    base: Any


@dataclass(frozen=True, slots=True)
class Again:
    """Send the batch again: it is not stored, or the outcome is unknown.

    Attributes:
        why: the error, or None. now: send again without a pause. doubtful: the batch may be stored.
        to: returns the new key of this batch, and of each that waits behind it; None: its own. Called with the lock held.
    """

    why: WireprotoError | None
    now: bool = False
    doubtful: bool = False
    to: Elsewhere | None = None


@dataclass(frozen=True, slots=True)
class StartOver:
    """Send the batch again: the broker says that it does not follow what it has.

    Attributes:
        why: the error.
    """

    why: WireprotoError


@dataclass(frozen=True, slots=True)
class Refused:
    """Fail the batch: it is not stored, and never will be.

    Attributes:
        why: the error.
    """

    why: WireprotoError


@dataclass(frozen=True, slots=True)
class Split:
    """Replace the batch by parts: it is not stored, being too large as one.

    Attributes:
        why: the error. parts: each has its numbers, where batches have any.
    """

    why: WireprotoError
    parts: Parts


Verdict = Stored | Again | StartOver | Refused | Split


class Wire(Protocol):
    """A protocol's way of sending; its class is a WireCore. Only `transmit` may raise."""

    def target(self, key: Any) -> Any:
        """Return the connection that a key's batches go to now; None: not known, or not there. Called under the sender's lock."""
        ...

    def congested(self, link: Any) -> bool:
        """Return whether too many bytes are unsent on this connection to send more now."""
        ...

    def requests(self, link: Any, batches: list[Any]) -> Iterable[list[Any]]:
        """Group the batches, at most one a key, into requests."""
        ...

    def transmit(self, link: Any, batches: list[Any]) -> None:
        """Send one request.

        Its reply comes by `Sender.answered`; so do batches that need no reply, before this returns.
        """
        ...

    def drop(self, link: Any) -> None:
        """Close the connection: it is unknown whether the last request was sent."""
        ...

    def want(self, keys: set[Any]) -> None:
        """Begin to look for the links or numbers that these keys lack, without waiting, and call `Sender.ready`. Called once each time."""
        ...

    def settled(self, batches: list[Any]) -> None:
        """Note that the outcomes of these batches are known, and set next: what they hold is free. May be called twice for a batch."""
        ...

    def failed(self, batch: Any, why: WireprotoError) -> None:
        """Note that a batch failed with this error. Called once; `settled` follows."""
        ...

    def overdue(self, batch: Any) -> WireprotoError:
        """Return the error for a batch whose delivery timeout is over; `PartitionQueue.explain` adds the last error to it."""
        ...
