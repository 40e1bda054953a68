"""What a protocol tells the sender: the verdict on each batch of a request, and its way of sending (`Wire`).

What it is: types, and nothing that happens; `flow.sender` says what each verdict means for a batch and its queue.
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
    """Acknowledged; `base` is what the first record's position is counted from."""

    base: Any


@dataclass(frozen=True, slots=True)
class Again:
    """Not stored, or nobody knows. doubtful: it may be stored. now: no pause before the next sending. to: of this batch and those that wait
    behind it the key that each goes by from now on; None: its own. Called with the lock held."""

    why: WireprotoError | None
    now: bool = False
    doubtful: bool = False
    to: Elsewhere | None = None


@dataclass(frozen=True, slots=True)
class StartOver:
    """The broker says that the batch does not follow what it has."""

    why: WireprotoError


@dataclass(frozen=True, slots=True)
class Refused:
    """Not stored, and never will be."""

    why: WireprotoError


@dataclass(frozen=True, slots=True)
class Split:
    """Not stored, being too large as one: it goes on in these parts, in its place. Each has its numbers, where batches have any."""

    why: WireprotoError
    parts: Parts


Verdict = Stored | Again | StartOver | Refused | Split


class Wire(Protocol):
    """A protocol's way of sending; its class is a WireCore. Only `transmit` may raise."""

    def target(self, key: Any) -> Any:
        """The connection that a key's batches go to now; None: not known, or not there. Called under the sender's lock."""
        ...

    def crowded(self, link: Any) -> bool:
        """Whether so much is unsent there that more should wait."""
        ...

    def requests(self, link: Any, batches: list[Any]) -> Iterable[list[Any]]:
        """The batches, at most one a key, as they go together into requests."""
        ...

    def transmit(self, link: Any, batches: list[Any]) -> None:
        """Send one request. Its answer comes by `Sender.answered`; so do batches that need none, before this returns."""
        ...

    def drop(self, link: Any) -> None:
        """Close it: nobody knows whether the last request was sent."""
        ...

    def want(self, keys: set[Any]) -> None:
        """These have no link, or cannot be numbered: see to it, without waiting, and call `Sender.ready`. Said once each time."""
        ...

    def settled(self, batches: list[Any]) -> None:
        """Their outcomes are known, and told next: what they hold is free. May be told twice of a batch."""
        ...

    def failed(self, batch: Any, why: WireprotoError) -> None:
        """It failed with this. Told once; `settled` follows."""
        ...

    def overdue(self, batch: Any, trouble: str) -> WireprotoError:
        """What a batch fails with whose delivery timeout is over; `trouble` is text about what went wrong last, or empty."""
        ...
