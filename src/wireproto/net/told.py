"""What a client tells the log: the one place that puts it into words' place and holds storms back.

What it is: `Told`, one a client, over the logger ``wireproto.<protocol>``. Who has something to tell names its *cause*: of one cause there
is at most one line in `QUIET` seconds, of those held back the last is told, with their number. A line is made and counted only where the
logger is enabled for it. The lines are listed in docs/logging.md.

    INFO       life: connected, lost, tried again and why, rebalanced, a leader moved, throttled
    WARNING    somebody should look: nobody there, records that were not stored, skipped or lost

May assume: nothing of who calls; any thread may, also under a lock of its own (the handlers of a logger are the user's, so better not).
Must not: be called for a record or a request that goes well, or know a protocol.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress

from wireproto.errors import Closed, WireprotoError

from .retry import Verdict

QUIET = 1.0
"""Seconds between two lines of one cause."""
_MOST = 256
"""Causes that are kept in mind; of more, those that are over are forgotten."""


class _Cause:
    """What was told of one cause: when last, and since then how many lines were held back, the last of them in full."""

    __slots__ = ("count", "line", "when")

    def __init__(self) -> None:
        self.when = float("-inf")
        self.count = 0
        self.line: tuple[int, str, tuple[object, ...]] | None = None


class Told:
    """One client's lines.

    Args:
        protocol: names the logger; empty: the package's.
        arm: (time, function): call it then, or a little later; for the last of the lines that are held back.
        clock: tells the time in seconds.
    """

    def __init__(
        self, protocol: str, arm: Callable[[float, Callable[[], None]], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = logging.getLogger(f"wireproto.{protocol}" if protocol else "wireproto")
        self._arm = arm
        self._clock = clock
        self._lock = threading.RLock()  # a signal handler that came into its few lines may have something to tell, too
        self._causes: dict[Hashable, _Cause] = {}

    def info(self, cause: Hashable, text: str, *args: object) -> None:
        """A line about the client's life; `text` and `args` as in `logging`."""
        if self._log.isEnabledFor(logging.INFO):
            self._say(logging.INFO, cause, text, args)

    def warning(self, cause: Hashable, text: str, *args: object) -> None:
        """A line about what somebody should look at."""
        if self._log.isEnabledFor(logging.WARNING):
            self._say(logging.WARNING, cause, text, args)

    def judging(self, judge: Callable[[WireprotoError], Verdict]) -> Callable[[WireprotoError], Verdict]:
        """`judge`, and what is tried again is told."""

        def judged(why: WireprotoError) -> Verdict:
            found = judge(why)
            if found is not Verdict.NEVER:
                self.info(("again", type(why), why.topic), "tried again, while there is time: %s", why)
            return found

        return judged

    def skipped(self, topic: str, partition: int, where: object, why: object) -> None:
        """What stands there cannot be read, and is passed over since the user has said so."""
        self.warning(("skipped", topic, partition), "%s[%d]: passed over at %s: %s", topic, partition, where, why)

    def rebalanced(self, group: str, taken: Iterable[object], given: Iterable[object]) -> None:
        """The share of a member of a group is another one."""
        if self._log.isEnabledFor(logging.INFO):
            took, gave = (", ".join(map(_place, sorted(places, key=str))) or "nothing" for places in (taken, given))
            self._say(logging.INFO, ("rebalanced", group), "group %s: took %s, gave up %s", (group, took, gave))

    def _say(self, level: int, key: Hashable, text: str, args: tuple[object, ...]) -> None:
        now = self._clock()
        with self._lock:
            cause = self._causes.get(key)
            if cause is None:
                if len(self._causes) >= _MOST:
                    self._causes = {each: known for each, known in self._causes.items() if known.count or now - known.when < QUIET}
                cause = self._causes[key] = _Cause()
            wait = cause.when + QUIET - now
            if wait > 0 or cause.count:  # its timer may be late
                cause.count += 1
                cause.line = level, text, args
                if cause.count > 1:
                    return
            else:
                cause.when = now
        if wait <= 0:
            self._log.log(level, text, *args)
            return
        with suppress(Closed):
            self._arm(now + wait, lambda: self._over(cause))

    def _over(self, cause: _Cause) -> None:
        """The quiet after a line is over: the last of what was held back is told, and how many there were."""
        with self._lock:
            line, count = cause.line, cause.count
            cause.line, cause.count, cause.when = None, 0, self._clock()
        if line is not None:
            level, text, args = line
            if count > 1:
                text, args = text + " (and %d more like it)", (*args, count - 1)
            self._log.log(level, text, *args)


def _place(key: object) -> str:
    """A topic and partition, or whatever else it is."""
    return f"{key[0]}[{key[1]}]" if isinstance(key, tuple) else str(key)
