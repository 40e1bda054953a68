"""Callbacks: those that wait for one kind of event of one node.

What it is: an ordered set. A callback whose class has `WAITED_FOR` (a `Watch`) is of use only to those who hold it and can wait for it, so
it is held weakly: one that is made anew in each round of a loop goes with its round. Not thread-safe.
"""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import UsageError

Callback = Callable[[Any], Any]
FEW = 16
"""So many may be held, some of them dead, before it is looked for dead ones; then each time that the number has doubled."""


class _Weak(weakref.ref[Any]):
    """Unlike every callback that a caller may pass."""

    __slots__ = ()


class Callbacks:
    """Callbacks, each once, in the order in which they came."""

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
        """How many are held, those among them that nobody else holds any more."""
        return len(self._held)

    def __contains__(self, callback: Callback) -> bool:
        return _key(callback) in self._held

    def add(self, callback: Callback) -> int:
        """Take it in; how many there are, or may be."""
        self._held[_key(callback)] = None
        many = len(self._held)
        if many >= FEW and doubled(many):
            self._held = {held: None for held in self._held if type(held) is not _Weak or held() is not None}
        return len(self._held)

    def discard(self, callback: Callback) -> None:
        """Forget it, if it is there."""
        self._held.pop(_key(callback), None)


def doubled(many: int) -> bool:
    """Whether a number that grows by one has doubled since it last was so: it is a power of two."""
    return not many & (many - 1)


def _key(callback: Callback) -> Any:
    return _Weak(callback) if getattr(type(callback), "WAITED_FOR", False) else callback


def check(callback: Callback) -> None:
    """Before anything is sent: the book of watches could not keep it."""
    if not callable(callback):
        raise UsageError(f"a watch is something to call, not {type(callback).__name__}")
    if inspect.iscoroutinefunction(callback):
        raise UsageError("a watch's callback is a plain function: nobody awaits what an async one returns")
    try:
        hash(callback)
    except TypeError:
        raise UsageError(f"a watch's callback needs a hash, to be found again by: {type(callback).__name__} has none") from None
