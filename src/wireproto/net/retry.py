"""Decides what is retried, and when.

`verdict` is the only place that judges an error, by the facts of its class (`errors.WireprotoError`). `Policy` says how long to wait,
`Waits` counts the failures. `Trial` judges each failed attempt until one succeeds, fails for good, or the deadline comes; `run` calls an
attempt by it (as steps: `net.task.retrying`). Clock, pause and randomness are passed in. The module knows no protocol, and sleeps only by
`pause`.

    fact                                verdict
    fenced                              NEVER
    retriable, moved                    NOW
    retriable, refresh                  REFRESH
    retriable                           LATER
    refresh alone                       NEVER; REFRESH where a few retries are worth it (`brief`), since a look-up may help
    none                                NEVER
    lasting                             NEVER for a client that was never connected (`at_first`), else as the other facts say
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


def verdict(error: BaseException, *, brief: bool = False, transient: Kinds = (), final: Kinds = ()) -> Verdict:
    """Judge when a request that failed with `error` may be sent again.

    Args:
        error: what it failed with.
        brief: retry where only a look-up may help; the caller counts these retries.
        transient: error classes that are retried here, whatever their facts; TimedOut where an attempt had a shorter deadline of its own.
        final: error classes that are never retried here.
    """
    if not isinstance(error, WireprotoError) or error.fenced or isinstance(error, final):
        return Verdict.NEVER
    if error.retriable and error.moved:
        return Verdict.NOW
    if error.retriable or isinstance(error, transient) or (brief and error.refresh):
        return Verdict.REFRESH if error.refresh else Verdict.LATER
    return Verdict.NEVER


BRIEFLY = 4
"""Number of retries after errors that only a look-up may help against; they take some two seconds."""


def briefly(**known: Kinds) -> Callable[[WireprotoError], Verdict]:
    """Make a judge for one call, which retries `BRIEFLY` times where only a look-up may help. `known`: as for `verdict`."""
    failures = itertools.count(1)
    return lambda error: verdict(error, brief=next(failures) <= BRIEFLY, **known)


def at_first(judge: Callable[[WireprotoError], Verdict]) -> Callable[[WireprotoError], Verdict]:
    """Make a judge for a client that was never connected: errors that waiting is unlikely to end (`lasting`) are not retried."""
    return lambda error: Verdict.NEVER if error.lasting else judge(error)


@dataclass(frozen=True, slots=True)
class Policy:
    """How long to wait before the n-th retry.

    Attributes:
        first: seconds before the first retry.
        factor: growth from one wait to the next.
        ceiling: longest wait, in seconds.
        jitter: share of a wait that is random, in both directions, so that clients that failed together do not retry together.
        attempts: most calls of the attempt; None: as many as fit before the deadline.
    """

    first: float = 0.05
    factor: float = 2.0
    ceiling: float = 1.0
    jitter: float = 0.2
    attempts: int | None = None

    def delay(self, failures: int, randomness: Callable[[], float] = random.random) -> float:
        """Return the seconds to wait after the n-th failure in a row (1, 2, …); `randomness` returns a number in [0, 1)."""
        base = min(self.ceiling, self.first * self.factor ** min(failures - 1, 64))
        return base * (1.0 + self.jitter * (2.0 * randomness() - 1.0))


DEFAULT = Policy()


class Waits:
    """Counts failures and gives a policy's waits, for code whose attempts are not in one loop.

    Attributes:
        policy: how long to wait. failures: number of failures in a row, since the last `over`.
    """

    __slots__ = ("failures", "policy")

    def __init__(self, policy: Policy = DEFAULT) -> None:
        self.policy = policy
        self.failures = 0

    def next(self) -> float:
        """Count a failure, and return the seconds to wait."""
        self.failures += 1
        return self.policy.delay(self.failures)

    def over(self) -> None:
        """Note a success: the next wait is the first one again."""
        self.failures = 0


class Trial:
    """Judges the failures of one call's attempts, until one succeeds.

    Args:
        deadline: value of `clock` after which no retry begins.
        policy: how long to wait.
        judge: returns the verdict on an error; one that knows more of the request calls `verdict` with that.
        clock: returns the time in seconds. randomness: returns a number in [0, 1).
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
        """Judge a failed attempt: returns the seconds to wait before the next one, and whether a look-up is due then.

        Raises:
            `error` itself when there is no next attempt; the text of a TimedOut then names the failure before it.
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
    """Add the failure before it to the text of a TimedOut, whose cause it is where that has none."""
    if isinstance(late, TimedOut) and before is not None and "last trouble" not in late.text:
        late.text += f"; last trouble: {type(before).__name__}: {before}"
        late.__cause__ = late.__cause__ or before


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
    """Call `attempt` until it returns, and return its result.

    Args:
        attempt: does the work once; keeps the same deadline itself.
        deadline: value of `clock` after which no retry begins.
        policy, judge, clock, randomness: as for `Trial`.
        refresh: called with an error whose verdict is REFRESH, before the next attempt.
        pause: sleeps for a number of seconds (a client passes one that reads its sockets meanwhile).

    Raises:
        WireprotoError: the last error of `attempt` itself, so that the caller learns the cause and not only that time ran out.
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
