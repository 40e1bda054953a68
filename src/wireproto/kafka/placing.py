"""Finds where partitions begin that had no leader, or a silent one, when a role began to read, or sought: asks until a leader answers.

One task of the client while any are left; what it finds is taken in by the role's own thread, which then reads these partitions beside the
others, which are not delayed. One thread at a time, apart from the task.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from ..errors import BrokerError, Closed, TransportError, WireprotoError
from ..flow.resolve import Request
from ..net.retry import Policy, Verdict, Waits, verdict
from ..net.task import Steps, Task, fresh
from ..position import TopicPartition
from .codes import LeaderNotAvailable

if TYPE_CHECKING:
    from .cluster import KafkaCluster
    from .options import KafkaOptions


class Finding(Protocol):
    """How offsets are found: `timing.finding`, which reads by a fetcher of its own, so that this module cannot import it."""

    def __call__(
        self,
        cluster: KafkaCluster,
        requests: Mapping[TopicPartition, Request],
        until: float,
        options: KafkaOptions,
        *,
        later: dict[TopicPartition, WireprotoError] | None = None,
        patience: float | None = None,
    ) -> Steps[dict[TopicPartition, int]]:
        """See `timing.finding`."""


_AGAIN = Policy(first=0.1, factor=2.0, ceiling=1.0, jitter=0.2)
_PATIENCE = 1.0
"""Seconds for which the first answer of a leader is waited for; then twice as long each time, up to `request_timeout`."""


class Placing:
    """Keeps the partitions whose leader has not answered; see the module.

    Holds no role, so that its task does not keep a role from being garbage-collected.

    Args:
        news: called when there is something to `collect`, from any thread.

    Attributes:
        waiting: where they are to begin, by partition.
        reasons: why that is not known yet, by partition.
        paused: those of them that are paused.
    """

    def __init__(self, cluster: KafkaCluster, options: KafkaOptions, news: Callable[[], object]) -> None:
        self._cluster = cluster
        self._options = options
        self._news = news
        self.waiting: dict[TopicPartition, Request] = {}
        self.reasons: dict[TopicPartition, WireprotoError] = {}
        self.paused: set[TopicPartition] = set()
        self._found: dict[TopicPartition, tuple[Request, int]] = {}
        self._problem: WireprotoError | None = None
        self._task: Task[None] | None = None
        self._finding: Finding | None = None

    def add(self, requests: Mapping[TopicPartition, Request], reasons: Mapping[TopicPartition, WireprotoError], finding: Finding) -> None:
        """Ask for these until they are found, and `collect` yields them.

        Args:
            requests: where to begin. reasons: why that is not known now. finding: how to ask.
        """
        self._finding = finding
        self.waiting |= requests
        warning = self._cluster.log.warning
        for key in requests:
            why = self.reasons[key] = reasons[key]
            if isinstance(why, LeaderNotAvailable):
                warning(("leaderless", key), "%s[%d]: it has no leader now, and is read as soon as it has one", *key)
            else:
                warning(
                    ("silent", key), "%s[%d]: its leader does not tell where it begins, and it is read as soon as it does: %s", *key, why
                )
        self._ask()

    def _ask(self) -> None:
        """Begin the task, if partitions are waiting and it is not running."""
        if self.waiting and (self._task is None or self._task.done):
            self._found = {}
            assert self._finding is not None
            self._task = self._cluster.tasks.spawn(self._asking(self._found, self._finding), "looking for leaders")

    def _asking(self, found: dict[TopicPartition, tuple[Request, int]], finding: Finding) -> Steps[None]:
        """Look for the offsets of the waiting partitions, until all are found. `found` belongs to this task alone; the next has another."""
        waits, patience = Waits(_AGAIN), _PATIENCE
        while left := {key: request for key, request in [*self.waiting.items()] if key not in found or found[key][0] is not request}:
            later: dict[TopicPartition, WireprotoError] = {}
            try:
                yield from self._cluster.refreshing({topic for topic, _ in left}, time.monotonic() + self._options.request_timeout)
                led = {key: request for key, request in left.items() if self._cluster.metadata.leader(*key) is not None}
                until = time.monotonic() + self._options.request_timeout + patience
                places = yield from finding(self._cluster, led, until, self._options, later=later, patience=patience)
                found |= {key: (led[key], offset) for key, offset in places.items()}
            except Closed:
                raise
            except (TransportError, BrokerError) as why:
                if isinstance(why, BrokerError) and verdict(why) is Verdict.NEVER:
                    self._problem = why
                    self._news()
                    return
            if later:
                patience = min(2 * patience, self._options.request_timeout)
            self.reasons |= {key: why for key, why in later.items() if key in self.reasons}
            if not found.keys().isdisjoint(left):
                self._news()
            yield time.monotonic() + waits.next()

    def collect(self) -> Iterator[tuple[TopicPartition, int]]:
        """Yield (partition, offset) of what is found, until `forget`. Raises an error that does not pass; the next call asks again."""
        if not self.waiting:
            return
        yield from [(key, offset) for key, (request, offset) in [*self._found.items()] if self.waiting.get(key) is request]
        problem, self._problem = self._problem, None
        self._ask()
        if problem is not None:
            raise fresh(problem)

    def forget(self, key: TopicPartition) -> None:
        """Drop a partition from the waiting ones: it is read now."""
        self.waiting.pop(key, None)
        self.reasons.pop(key, None)
        self.paused.discard(key)

    def drop(self) -> None:
        """Drop all waiting partitions: they are not read any more."""
        self.waiting.clear()
        self.reasons.clear()
        self.paused.clear()
        self._found = {}
        if self._task is not None:
            self._task.cancel(Closed("these partitions are not read any more"))
            self._task = None
