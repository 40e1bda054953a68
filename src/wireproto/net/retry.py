"""The one retry policy.

What it is: `verdict` judges an error by its facts, and nobody else does; `Policy` says how long to wait, `Waits` counts the failures;
`Trial` says what becomes of each failed attempt until one succeeds, fails for good, or the deadline comes, and `run` calls one by it (as
steps: `net.task.retrying`). Clock, pause and randomness are passed in.

    fact                                verdict
    fenced                              NEVER
    retriable, moved                    NOW
    retriable, refresh                  REFRESH
    retriable                           LATER
    refresh alone                       NEVER; REFRESH where a few tries are worth it (`brief`): a look-up may mend it
    none                                NEVER
    lasting                             NEVER for who was never connected (`at_first`), else as the others say

Must not: know a protocol, or sleep in any way of its own.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from wireproto.errors import TimedOut, WireprotoError

T = TypeVar("T")
Kinds = tuple[type[BaseException], ...]


class Verdict(Enum):
    """When a request that failed may be sent again."""

    NOW = "now"
    LATER = "after a pause"
    REFRESH = "after a pause, and a look-up"
    NEVER = "never"


def verdict(error: BaseException, *, brief: bool = False, passing: Kinds = (), final: Kinds = ()) -> Verdict:
    """What becomes of a request that failed so.

    Args:
        brief: a few tries more are worth it where a look-up alone may help; the caller counts them.
        passing: kinds that pass here, whatever they are elsewhere; TimedOut where the attempt had a time of its own.
        final: kinds that do not pass here.
    """
    if not isinstance(error, WireprotoError) or error.fenced or isinstance(error, final):
        return Verdict.NEVER
    if error.retriable and error.moved:
        return Verdict.NOW
    if error.retriable or isinstance(error, passing) or (brief and error.refresh):
        return Verdict.REFRESH if error.refresh else Verdict.LATER
    return Verdict.NEVER


BRIEFLY = 4
"""Times that a request is sent again on an error that a look-up alone may mend: some two seconds."""


def briefly(**known: Kinds) -> Callable[[WireprotoError], Verdict]:
    """A judge for one call, which counts: where a look-up alone may help, `BRIEFLY` tries more are worth it. `known`: as for `verdict`."""
    failures = itertools.count(1)
    return lambda error: verdict(error, brief=next(failures) <= BRIEFLY, **known)


def at_first(judge: Callable[[WireprotoError], Verdict]) -> Callable[[WireprotoError], Verdict]:
    """The verdict for who was never connected: what waiting is unlikely to mend is told at once."""
    return lambda error: Verdict.NEVER if error.lasting else judge(error)


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


class Waits:
    """A policy's waits, one after the other, for code that comes back to its attempts from elsewhere.

    Attributes:
        failures: in a row; since the last `over`.
    """

    __slots__ = ("failures", "policy")

    def __init__(self, policy: Policy = DEFAULT) -> None:
        self.policy = policy
        self.failures = 0

    def next(self) -> float:
        """Something failed: the seconds to wait."""
        self.failures += 1
        return self.policy.delay(self.failures)

    def over(self) -> None:
        """It went well: the next wait is the first again."""
        self.failures = 0


class Trial:
    """One attempt after the other, until one succeeds: what becomes of each failure.

    Args:
        deadline: value of `clock` after which no retry begins.
        judge: the verdict on an error; one that knows more than its facts calls `verdict` with what it knows.
    """

    __slots__ = ("_before", "_clock", "_deadline", "_failures", "_judge", "_policy", "_randomness")

    def __init__(
        self,
        deadline: float,
        policy: Policy = DEFAULT,
        *,
        judge: Callable[[WireprotoError], Verdict] = verdict,
        clock: Callable[[], float] = time.monotonic,
        randomness: Callable[[], float] = random.random,
    ) -> None:
        self._deadline, self._policy, self._judge, self._clock, self._randomness = deadline, policy, judge, clock, randomness
        self._failures = 0
        self._before: WireprotoError | None = None

    def failed(self, error: WireprotoError) -> tuple[float, bool]:
        """An attempt failed: the seconds to wait before the next one, and whether something is to be looked up then.

        Raises:
            the error itself when there is no next one; a TimedOut with what failed before it, since time alone explains nothing.
        """
        self._failures += 1
        found = self._judge(error)
        wait = 0.0 if found is Verdict.NOW and self._failures == 1 else self._policy.delay(self._failures, self._randomness)
        attempts = self._policy.attempts
        over = attempts is not None and self._failures >= attempts
        if found is Verdict.NEVER or over or self._clock() + wait >= self._deadline:
            tell_before(error, self._before)
            raise error
        if not isinstance(error, TimedOut):
            self._before = error
        return wait, found is Verdict.REFRESH


def tell_before(late: WireprotoError, before: WireprotoError | None) -> None:
    """Have a TimedOut say what failed last: time alone explains nothing."""
    if isinstance(late, TimedOut) and before is not None and "last trouble" not in late.text:
        late.text += f"; last trouble: {type(before).__name__}: {before}"


def run(
    attempt: Callable[[], T],
    deadline: float,
    policy: Policy = DEFAULT,
    *,
    refresh: Callable[[WireprotoError], object] | None = None,
    judge: Callable[[WireprotoError], Verdict] = verdict,
    pause: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    randomness: Callable[[], float] = random.random,
) -> T:
    """Call `attempt` until it returns.

    Args:
        attempt: does the work once; keeps the same deadline itself.
        deadline: value of `clock` after which no retry begins.
        refresh: called with an error whose verdict is REFRESH, before the next attempt.
        judge: as for `Trial`.
        pause: sleeps that many seconds (a client passes one that reads its sockets meanwhile).
    Returns:
        what `attempt` returned.
    Raises:
        the last error of `attempt` itself, so that the caller learns the cause and not only that time ran out.
    """
    trial = Trial(deadline, policy, judge=judge, clock=clock, randomness=randomness)
    while True:
        try:
            return attempt()
        except WireprotoError as error:
            wait, look = trial.failed(error)
            problem = error
        if wait:
            pause(wait)
        if look and refresh is not None:
            refresh(problem)
