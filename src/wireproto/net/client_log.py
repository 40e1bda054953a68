"""Writes a client's log lines: at most one line per cause and second.

`ClientLog` is one per client, over the logger ``wireproto.<protocol>``. Each line has a *cause*; of the lines with one cause at most one is
written in `QUIET` seconds. When the time is over the last one that was held back is written, with the number of those before it. A line is
formatted and counted only if the logger is enabled for its level. docs/logging.md lists all lines.

    INFO       what happens to connections and groups: connected, lost, retried and why, rebalanced, a leader moved, throttled
    WARNING    what needs attention: no broker can be reached, records were not stored, or skipped, or lost

Any thread may call it, also while it holds a lock of its own (the logger's handlers belong to the user, so rather not). It is not called
for records and requests that succeed, and knows no protocol.
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
"""Causes that are remembered; beyond that number those without a line in the last `QUIET` seconds are forgotten."""


class _Cause:
    """When a line of one cause was written last, how many were held back since, and the last of those."""

    __slots__ = ("count", "line", "when")

    def __init__(self) -> None:
        self.when = float("-inf")
        self.count = 0
        self.line: tuple[int, str, tuple[object, ...]] | None = None


class ClientLog:
    """Writes one client's log lines.

    Args:
        protocol: the logger is ``wireproto.<protocol>``; empty: ``wireproto``.
        arm: called with (time, function) to have the function called at that time or a little later.
        clock: returns the time in seconds, as `time.monotonic` does.
    """

    def __init__(
        self, protocol: str, arm: Callable[[float, Callable[[], None]], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._log = logging.getLogger(f"wireproto.{protocol}" if protocol else "wireproto")
        self._arm = arm
        self._clock = clock
        self._lock = threading.RLock()  # a signal handler may write a line while this thread holds the lock
        self._causes: dict[Hashable, _Cause] = {}

    def info(self, cause: Hashable, text: str, *args: object) -> None:
        """Write a line at level INFO; `text` and `args` as in `logging`."""
        if self._log.isEnabledFor(logging.INFO):
            self._say(logging.INFO, cause, text, args)

    def warning(self, cause: Hashable, text: str, *args: object) -> None:
        """Write a line at level WARNING; `text` and `args` as in `logging`."""
        if self._log.isEnabledFor(logging.WARNING):
            self._say(logging.WARNING, cause, text, args)

    def judging(self, judge: Callable[[WireprotoError], Verdict]) -> Callable[[WireprotoError], Verdict]:
        """Return `judge` with a line at level INFO for each error that it lets be retried."""

        def judged(why: WireprotoError) -> Verdict:
            found = judge(why)
            if found is not Verdict.NEVER:
                self.info(("again", type(why), why.topic), "tried again, while there is time: %s", why)
            return found

        return judged

    def skipped(self, topic: str, partition: int, where: object, why: object) -> None:
        """Warn of a record that cannot be decoded and is skipped, as the user's option demands."""
        self.warning(("skipped", topic, partition), "%s[%d]: skipped at %s: %s", topic, partition, where, why)

    def rebalanced(self, group: str, taken: Iterable[object], given: Iterable[object]) -> None:
        """Write which partitions a member of `group` was assigned and which were revoked."""
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
        """Write the last line that was held back in the last `QUIET` seconds, and how many there were."""
        with self._lock:
            line, count = cause.line, cause.count
            cause.line, cause.count, cause.when = None, 0, self._clock()
        if line is not None:
            level, text, args = line
            if count > 1:
                text, args = text + " (and %d more like it)", (*args, count - 1)
            self._log.log(level, text, *args)


def _place(key: object) -> str:
    """Return ``topic[partition]`` for a pair, else the text of `key`."""
    return f"{key[0]}[{key[1]}]" if isinstance(key, tuple) else str(key)
