"""Decides where reading continues when the log does not hold what comes next: the option `reset`.

`going_on` asks the leader for what there is and returns where to continue; `Resets`, one a reader, has that done for each partition that
meets such an error while the others are read.

    what the leader says                    raise    earliest        latest     nearest
    the log begins behind the position      error    its beginning   its end    its beginning
    it ends before it                       error    its beginning   its end    the first record as late as the last one read, or its end;
                                                                                its beginning where no time is known
    it was cut, or its topic made again     error    where it diverges from what was read (KIP-320; 0 for another topic)
    the position is in it after all         error    the position

A stop that the log does not reach any more is always an error. One thread at a time. Every move is logged.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import BrokerError, DataLoss, TransportError, WireprotoError
from ..flow.ahead import NEVER
from ..net.retry import Verdict, verdict
from ..net.task import Task, after
from . import positions
from .codes import OffsetOutOfRange

if TYPE_CHECKING:
    from .._codec import KafkaChunk
    from ..flow.ahead import ReadAhead
    from ..net.task import Steps
    from .cluster import KafkaCluster
    from .fetch import Cursor
    from .options import KafkaOptions

_PAUSE = 0.5
"""Seconds before a partition is asked for again whose reset failed for a passing reason."""


def going_on(cluster: KafkaCluster, cursor: Cursor, policy: str, until: float, *, committed: bool) -> Steps[int | None]:
    """Return the offset at which to continue with a partition whose position is out of range; None: its stop is beyond the log.

    Args:
        cursor: the partition. policy: the option `reset`. until: the deadline, a time.monotonic() value.
        committed: whether LATEST is the last stable offset instead of the high watermark.
    Raises:
        the broker's error, TimedOut.
    """
    key, position = cursor.key, cursor.position
    begin = (yield from positions.listing(cluster, {key: positions.EARLIEST_TIME}, until, committed=False))[key]
    end = (yield from positions.listing(cluster, {key: positions.LATEST_TIME}, until, committed=False))[key]
    if cursor.stop is not None and cursor.stop > end:
        return None
    if begin <= position <= end:
        return position
    if policy == "latest":
        return (yield from positions.listing(cluster, {key: positions.LATEST_TIME}, until, committed=committed))[key]
    if policy == "nearest" and position > end and cursor.last_time >= 0:
        found = (yield from positions.listing(cluster, {key: cursor.last_time}, until, committed=False))[key]
        return found if found >= 0 else end
    return begin


class Resets:
    """Keeps the partitions of one reader that are being moved.

    Args:
        news: called when there is something to `collect`, from any thread.
    """

    def __init__(
        self, cluster: KafkaCluster, options: KafkaOptions, plan: ReadAhead[Cursor, KafkaChunk], news: Callable[[], object]
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._plan = plan
        self._news = news
        self._under_way: dict[Cursor, tuple[int, WireprotoError, Task[int | None]]] = {}

    def take(self, cursor: Cursor, why: WireprotoError) -> bool:
        """Take on an error that would be raised now.

        Returns:
            whether the option has reading continue after it; the partition waits then.
        """
        if self._options.reset == "raise" or not isinstance(why, OffsetOutOfRange | DataLoss):
            return False
        if isinstance(why, DataLoss):
            if why.diverges_at is None or cursor.stop is not None:
                return False
            self._go_on(cursor, why, why.diverges_at)
            return True
        until = time.monotonic() + self._options.request_timeout
        steps = going_on(self._cluster, cursor, self._options.reset, until, committed=self._options.isolation == "committed")
        task = self._cluster.tasks.spawn(steps, f"resetting {cursor.topic}[{cursor.partition}]")
        after(task, self._news)
        self._under_way[cursor] = cursor.generation, why, task
        cursor.retry_at = NEVER
        return True

    def collect(self) -> None:
        """Move the partitions for which the leaders have answered. Raises an error that does not pass.

        The next poll asks for such a partition again.
        """
        for cursor, (generation, why, task) in [*self._under_way.items()]:
            if task.done:
                cursor.retry_at = time.monotonic() + _PAUSE
                del self._under_way[cursor]
                if self._plan.cursors.get(cursor.key) is cursor and cursor.generation == generation:
                    self._collect(cursor, why, task)

    def _collect(self, cursor: Cursor, why: WireprotoError, task: Task[int | None]) -> None:
        """Move one partition, or raise the error of its reset."""
        try:
            offset = task.result()
        except TransportError as trouble:
            self._cluster.log.info(("reset", cursor.key), "tried again, while there is time: %s", trouble)
        except BrokerError as trouble:
            if verdict(trouble) is Verdict.NEVER:
                raise
        else:
            if offset is None:
                raise why.with_context(position=cursor.position)
            self._go_on(cursor, why, offset)

    def _go_on(self, cursor: Cursor, why: WireprotoError, offset: int) -> None:
        """Continue with a partition at `offset`, and log that."""
        before = cursor.position
        passed = f": {before} to {offset - 1} are passed over, unread" if offset > before else ""
        text = "%s[%d]: offset %d does not exist, reading continues at %d%s (%s)"
        self._cluster.log.warning(("gone", cursor.key), text, *cursor.key, before, offset, passed, why)
        self._plan.seek(cursor.key, offset)
