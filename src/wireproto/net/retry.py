"""The one retry policy.

What it is: `run` calls an attempt until it succeeds, fails for good, or the deadline comes. It reads only the error's flags:
`retriable` decides, `refresh` asks for new metadata first, `fenced` ends it. Exponential back-off with jitter; clock, pause and
randomness are passed in.
Must not: know a protocol, or sleep in any way of its own.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from wireproto.errors import WireprotoError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Policy:
    """How long to wait before the n-th retry.

    Attributes:
        first: seconds before the first retry.
        factor: growth from one to the next.
        ceiling: longest wait in seconds.
        jitter: share of a wait that is random, either way; clients that failed together do not come back together.
        attempts: most calls of the attempt, or None for as many as fit before the deadline.
    """

    first: float = 0.05
    factor: float = 2.0
    ceiling: float = 1.0
    jitter: float = 0.2
    attempts: int | None = None

    def delay(self, failures: int, randomness: Callable[[], float] = random.random) -> float:
        """Seconds to wait after the n-th failure in a row (1, 2, …); `randomness` returns [0, 1)."""
        base = min(self.ceiling, self.first * self.factor ** min(failures - 1, 64))
        return base * (1.0 + self.jitter * (2.0 * randomness() - 1.0))


DEFAULT = Policy()


def run(
    attempt: Callable[[], T],
    deadline: float,
    policy: Policy = DEFAULT,
    *,
    refresh: Callable[[WireprotoError], object] | None = None,
    pause: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    randomness: Callable[[], float] = random.random,
) -> T:
    """Call `attempt` until it returns.

    Args:
        attempt: does the work once; keeps the same deadline itself.
        deadline: value of `clock` after which no retry begins.
        refresh: called with an error whose `refresh` flag is set, before the next attempt.
        pause: sleeps that many seconds (a client passes one that reads its sockets meanwhile).
    Returns:
        what `attempt` returned.
    Raises:
        the last error of `attempt` itself, so that the caller learns the cause and not only that time ran out.
    """
    failures = 0
    while True:
        try:
            return attempt()
        except WireprotoError as error:
            failures += 1
            if not error.retriable or error.fenced or (policy.attempts is not None and failures >= policy.attempts):
                raise
            wait = policy.delay(failures, randomness)
            if clock() + wait >= deadline:
                raise
            problem = error
        pause(wait)
        if problem.refresh and refresh is not None:
            refresh(problem)
