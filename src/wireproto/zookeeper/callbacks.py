"""Keeps the callbacks that wait for one kind of event of one node.

It is an ordered set. A callback whose class has `WAITED_FOR` (a `Watch`) is useful only to the code that holds it and can wait for it, so
it is held weakly: one that is made in each round of a loop goes with its round. Not thread-safe.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import UsageError

Callback = Callable[[Any], Any]
FEW = 16
"""Number of callbacks from which on dead ones are removed, each time that the number has doubled."""


class _Weak(weakref.ref[Any]):
    """A weak reference that equals no callback that a caller may pass."""

    __slots__ = ()


class Callbacks:
    """A set of callbacks, in the order in which they were added."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[Any, None] = {}

    def __iter__(self) -> Iterator[Callback]:
        for held in list(self._held):
            callback = held() if type(held) is _Weak else held
            if callback is not None:
                yield callback

    def __bool__(self) -> bool:
        return next(iter(self), None) is not None

    def __len__(self) -> int:
        """Return how many are held, including those that are not referenced elsewhere any more."""
        return len(self._held)

    def __contains__(self, callback: Callback) -> bool:
        return _key(callback) in self._held

    def add(self, callback: Callback) -> int:
        """Add a callback; returns how many are held, including dead ones."""
        self._held[_key(callback)] = None
        many = len(self._held)
        if many >= FEW and doubled(many):
            self._held = {held: None for held in self._held if type(held) is not _Weak or held() is not None}
        return len(self._held)

    def discard(self, callback: Callback) -> None:
        """Remove a callback, if it is held."""
        self._held.pop(_key(callback), None)


def doubled(many: int) -> bool:
    """Return whether a number that grows by one has doubled since the last time this was true: it is a power of two."""
    return not many & (many - 1)


def _key(callback: Callback) -> Any:
    return _Weak(callback) if getattr(type(callback), "WAITED_FOR", False) else callback


def check(callback: Callback) -> None:
    """Raise UsageError for a callback that the table of watches could not keep; called before anything is sent."""
    if not callable(callback):
        raise UsageError(f"a watch's callback has to be callable, not {type(callback).__name__}")
    if inspect.iscoroutinefunction(callback):
        raise UsageError("a watch's callback is a plain function: the coroutine that an async one returns would never be awaited")
    try:
        hash(callback)
    except TypeError:
        raise UsageError(f"a watch's callback has to be hashable: {type(callback).__name__} has none") from None
