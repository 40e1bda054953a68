"""Questions that outlast the call that asks them: a poll of 50 ms, and answers that take 100.

What it is: a question is put in the caller's own time first. When that was too short, the next call has a worker thread ask,
with the errand's patience; that call and those after it wait for the answer in their own time, and the one in whose time it comes gets it.
Without this a caller in a hurry would begin anew each time and never have an answer.

May assume: one caller at a time. Must not: ask two things at once; the answer to an earlier matter is dropped.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from wireproto._net import Event, Loop
from wireproto.errors import TimedOut

from .offload import offload

T = TypeVar("T")


class Errand:
    """One question at a time.

    Args:
        patience: seconds that a question may take in the worker thread.
    """

    def __init__(self, loop: Loop, patience: float) -> None:
        self._loop = loop
        self._patience = patience
        self._matter: Any = None
        self._under_way: Event | None = None

    def ask(self, matter: object, question: Callable[[float], T], deadline: float) -> T:
        """The answer, or TimedOut when it has not come yet; what the question raises.

        Args:
            matter: what it is about; the same one goes on waiting, another one begins anew.
            question: called with a deadline, in the worker thread if need be.
        """
        if self._matter != matter:
            self._matter, self._under_way = matter, None
            try:
                answer = question(deadline)
            except TimedOut:
                raise  # the next call sends somebody
            except BaseException:
                self._matter = None
                raise
            self._matter = None
            return answer
        if self._under_way is None:
            self._under_way = offload(self._loop, self._go, question)
        event = self._under_way
        try:
            found: T = event.wait(deadline)
        finally:
            if event.done:
                self._matter = self._under_way = None
        return found

    def _go(self, question: Callable[[float], T]) -> T:
        return question(time.monotonic() + self._patience)
