"""Brokers of a run: in a full run each suite's own, as fresh as those that its figures are of; in a quick run, where no time is looked at,
one of a kind for all suites, since booting it costs more than what a suite does there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, Self, TypeVar

Server = TypeVar("Server")


class Servers:
    """Args:
    shared: whether suites share them; those end when this is closed.
    """

    def __init__(self, *, shared: bool = False) -> None:
        self._shared = shared
        self._running: dict[str, Any] = {}
        self._ends = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()
        self._running.clear()

    def of(self, kind: str, boots: Callable[[], AbstractContextManager[Server]]) -> AbstractContextManager[Server]:
        """A context with a server that runs: one of its own, which ends with it, or the one of this kind that all share."""
        if not self._shared:
            return boots()
        if kind not in self._running:
            self._running[kind] = self._ends.enter_context(boots())
        return nullcontext(self._running[kind])
