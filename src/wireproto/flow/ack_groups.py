"""Times the groups in which a worker's acknowledgements are sent, and keeps why some were refused until a call raises it.

One rule for all protocols whose acknowledgements are sent in groups; which messages a group has is the protocol's.

    ack ── `more`: the group is sent `interval` after its first acknowledgement, by a timer of the I/O thread
        ── refused for a passing reason ── `again`: sent after a pause that grows with the failures in a row
        ── refused, or lost ── `refused`: the next `receive`, `flush` or `close` raises it, once

Any thread may call it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

from wireproto.net.retry import Policy

from .alarm import Alarm

if TYPE_CHECKING:
    from wireproto._net import Loop
    from wireproto.errors import WireprotoError

PAUSE = Policy(first=0.1, factor=2.0, ceiling=5.0, jitter=0.2)
"""How long until a group that was refused, or found no room, is sent again."""


class AckGroups:
    """The timer of one worker's groups, and the errors of earlier ones.

    Args:
        loop: of the client. interval: seconds until an acknowledgement is sent. send: sends what waits; called in the I/O thread.
    """

    def __init__(self, loop: Loop, interval: float, send: Callable[[], object]) -> None:
        self._interval = interval
        self._alarm = Alarm(loop, send)
        self._failures: dict[Hashable, WireprotoError] = {}

    def more(self) -> None:
        """Note that there is an acknowledgement to send. What belongs to the group is noted before this is called."""
        if not self._alarm.is_set:
            self._alarm.set(time.monotonic() + self._interval)

    def again(self, failures: int) -> None:
        """Send what waits after a pause, or sooner where a group is sent before.

        Args:
            failures: in a row, this one included.
        """
        self._alarm.set(time.monotonic() + PAUSE.delay(failures))

    def stop(self) -> None:
        """Send nothing any more."""
        self._alarm.stop()

    @property
    def failed(self) -> bool:
        """Whether there is an error that no call has raised yet."""
        return bool(self._failures)

    def refused(self, which: Hashable, why: WireprotoError) -> None:
        """Keep an error until it is raised; of several for the same messages, the first.

        Args:
            which: partition or queue. why: the error.
        """
        self._failures.setdefault(which, why)

    def settled(self, which: Hashable) -> None:
        """Forget an error that was not raised: the acknowledgements are confirmed now, or a call raises the error by itself.

        Args:
            which: as in `refused`.
        """
        self._failures.pop(which, None)

    def raise_failure(self) -> None:
        """Raise, once, why acknowledgements were refused; of several partitions one at a time."""
        for which in list(self._failures):
            failure = self._failures.pop(which, None)
            if failure is not None:
                raise failure
