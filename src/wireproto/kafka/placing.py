"""Partitions of one role that had no leader when it began to read, or sought: where they begin is asked for until a leader can answer.

What it is: one task of the client while any are left; what it finds is taken in by the role's own thread, which then reads them beside the
others. May assume: one thread at a time, the task aside. Must not: hold up the partitions that have leaders.
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
        leaderless: set[TopicPartition] | None = None,
    ) -> Steps[dict[TopicPartition, int]]: ...


_AGAIN = Policy(first=0.1, factor=2.0, ceiling=1.0, jitter=0.2)


class Placing:
    """See the module. It knows no role, so that its task keeps none that the program lets go of.

    Args:
        news: called when there is something to `collect`, from any thread.

    Attributes:
        waiting: where they are to begin. paused: those of them that are paused.
    """

    def __init__(self, cluster: KafkaCluster, options: KafkaOptions, news: Callable[[], object]) -> None:
        self._cluster = cluster
        self._options = options
        self._news = news
        self.waiting: dict[TopicPartition, Request] = {}
        self.paused: set[TopicPartition] = set()
        self._found: dict[TopicPartition, tuple[Request, int]] = {}
        self._problem: WireprotoError | None = None
        self._task: Task[None] | None = None
        self._finding: Finding | None = None

    def add(self, requests: Mapping[TopicPartition, Request], finding: Finding) -> None:
        """Ask for these until they are found, and `collect` gives them."""
        self._finding = finding
        self.waiting |= requests
        for key in requests:
            self._cluster.log.warning(("leaderless", key), "%s[%d]: it has no leader now, and is read as soon as it has one", *key)
        self._ask()

    def _ask(self) -> None:
        if self.waiting and (self._task is None or self._task.done):
            self._found = {}
            assert self._finding is not None
            self._task = self._cluster.tasks.spawn(self._asking(self._found, self._finding), "looking for leaders")

    def _asking(self, found: dict[TopicPartition, tuple[Request, int]], finding: Finding) -> Steps[None]:
        """The task. `found` is its own: what another one is asked for is another matter."""
        waits = Waits(_AGAIN)
        while left := {key: request for key, request in [*self.waiting.items()] if key not in found or found[key][0] is not request}:
            until = time.monotonic() + self._options.request_timeout
            try:
                yield from self._cluster.refreshing({topic for topic, _ in left}, until)
                led = {key: request for key, request in left.items() if self._cluster.metadata.leader(*key) is not None}
                places = yield from finding(self._cluster, led, until, self._options, leaderless=set())
                found |= {key: (led[key], offset) for key, offset in places.items()}
            except Closed:
                raise
            except (TransportError, BrokerError) as why:
                if isinstance(why, BrokerError) and verdict(why) is Verdict.NEVER:
                    self._problem = why
                    self._news()
                    return
            if not found.keys().isdisjoint(left):
                self._news()
            yield time.monotonic() + waits.next()

    def collect(self) -> Iterator[tuple[TopicPartition, int]]:
        """What is found, until `forget`. Raises what does not pass: the next call asks again."""
        if not self.waiting:
            return
        yield from [(key, offset) for key, (request, offset) in [*self._found.items()] if self.waiting.get(key) is request]
        problem, self._problem = self._problem, None
        self._ask()
        if problem is not None:
            raise fresh(problem)

    def forget(self, key: TopicPartition) -> None:
        """It is read."""
        self.waiting.pop(key, None)
        self.paused.discard(key)

    def drop(self) -> None:
        """They are not read any more."""
        self.waiting.clear()
        self.paused.clear()
        self._found = {}
        if self._task is not None:
            self._task.cancel(Closed("these partitions are not read any more"))
            self._task = None
