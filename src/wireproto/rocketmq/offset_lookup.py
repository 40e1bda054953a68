"""Looks up the offsets that EARLIEST (31), LATEST (30) and AtTime mean in queues, each by a few commands to the queue's broker.

AtTime means the first message whose store time is at or after it. Code 29 answers that on 5.x; on 4.9 it answers the *nearest* message,
which may be an earlier one, any of several with an equal time, and the last one for a time after it. So its answer is only where the search
begins: store times never decrease along a queue, and a few pulls of one message each find the first that is late enough.
Of a stored message only the fixed head is read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from wireproto.errors import TimedOut, Truncated, WireprotoError
from wireproto.flow.resolve import Requests, Resolver, named
from wireproto.position import AtTime, Earliest, Latest, LogOffset, Position, TopicPartition, Where

from . import queue_ids
from .codes import TopicNotExist
from .errors import NoMaster, NoQueue, NotReadable
from .messages import (
    GetMaxOffsetRequest,
    GetMinOffsetRequest,
    PullMessageRequest,
    SearchOffsetByTimestampRequest,
)
from .remoting import PULL_ANSWERS
from .route import Route

if TYPE_CHECKING:
    from wireproto.net.task import Steps

    from .cluster import Reply, RocketCluster
    from .route import Queue

PLACES = Resolver(LogOffset)
HEAD = 48
"""Bytes of a stored message before its born host: size, magic, CRC, queue, flag, two offsets, sysFlag at 36, born time."""


def store_time(stored: bytes) -> int:
    """Return the store time of the first message of a pull's body, in milliseconds since 1970.

    Raises:
        Truncated: the body is too short for one.
    """
    if len(stored) < HEAD + 20 + 8:
        raise Truncated("a stored message has at least 91 bytes", message="PullMessageResponse", offset=len(stored))
    (sys_flag,) = struct.unpack_from(">i", stored, 36)
    return int(struct.unpack_from(">q", stored, HEAD + (20 if sys_flag & 0x10 else 8))[0])


def offset_of(place: Position) -> int:
    """Return the offset of a position of RocketMQ."""
    assert isinstance(place, LogOffset)
    return place.offset


class OffsetLookup:
    """Looks up offsets of a topic's queues at their brokers. Methods that ask are steps; `until` is a `time.monotonic()` value.

    Trap: a broker acknowledges a record before its queue shows it, so the end of a queue is asked for only when the queue has caught up
    with what the broker's log held at that time (see `dispatch`).
    """

    def __init__(self, cluster: RocketCluster, topic: str, group: str) -> None:
        self._cluster, self._topic, self._group = cluster, topic, group

    def _ask(self, queue: Queue, message: Any, until: float) -> Steps[Reply]:
        def attempt() -> Steps[Reply]:
            address = queue.address
            if address is None:
                current = (yield from self._cluster.routing(self._topic, until)).find(*queue.home)
                address = current.address if current is not None else None
            if address is None:
                self._cluster.routes.stale(self._topic)
                raise NoMaster(f"broker {queue.broker} has no master now", topic=self._topic)
            return (yield from self._cluster.invoking(address, message, until=until, accept=PULL_ANSWERS, again=True))

        try:
            return (yield from self._cluster.retrying(attempt, until))
        except TimedOut as why:
            raise why.with_context(topic=self._topic, partition=queue.partition) from None

    def first(self, queue: Queue, until: float) -> Steps[int]:
        """Return the offset of the first message that the queue still has."""
        message = GetMinOffsetRequest(topic=self._topic, queue_id=queue.queue_id)
        return max(0, int((yield from self._ask(queue, message, until)).message.offset))

    def end(self, queue: Queue, until: float) -> Steps[int]:
        """Return the offset after the last message."""
        message = GetMaxOffsetRequest(topic=self._topic, queue_id=queue.queue_id)
        return max(0, int((yield from self._ask(queue, message, until)).message.offset))

    def all_shown(self, queues: Iterable[Queue], until: float) -> Steps[None]:
        """Wait until these queues hold everything that is acknowledged now."""
        asked: dict[str, list[Queue]] = {}
        for queue in queues:
            if queue.address:
                asked.setdefault(queue.address, []).append(queue)
        catching_up = self._cluster.dispatch.catching_up

        def wait(at: str, some: list[Queue]) -> Steps[None]:
            try:
                yield from self._cluster.retrying(partial(catching_up, at, until, self._topic, some), until)
            except TimedOut as why:
                raise why.with_context(topic=self._topic, partition=some[0].partition) from None

        yield from self._cluster.gathering({at: wait(at, some) for at, some in asked.items()}, "the queues")

    def at_time(self, queue: Queue, ms: int, until: float) -> Steps[int]:
        """Return the offset of the first message stored at or after a time (milliseconds since 1970); the end when there is none yet."""
        low, high = (yield from self.first(queue, until)), (yield from self.end(queue, until))
        message = SearchOffsetByTimestampRequest(topic=self._topic, queue_id=queue.queue_id, timestamp=max(0, ms), boundary_type="LOWER")
        guess = min(max(int((yield from self._ask(queue, message, until)).message.offset), low), high)
        step = 1
        while low < high:  # everything before low is too early, everything from high on late enough
            at = min(max(guess, low), high - 1)
            if (yield from self._stored(queue, at, until)) >= ms:
                high, guess = at, at - step
            else:
                low, guess = at + 1, at + step
            step *= 2
            if not low <= guess < high:
                guess = (low + high) // 2
        return low

    def _stored(self, queue: Queue, offset: int, until: float) -> Steps[int]:
        message = PullMessageRequest(
            consumer_group=self._group,
            topic=self._topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=1,
            sys_flag=4,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
            sub_version=0,
            expression_type="TAG",
        )
        try:
            reply = yield from self._ask(queue, message, until)
        except NotReadable as why:
            raise NoQueue(f"queue {queue.queue_id} at {queue.broker} may not be read now: no time can be found in it") from why
        return store_time(reply.body) if reply.code == 0 else -1

    def where(
        self, at: Where, until: float, what: str = "start", partitions: Collection[int] | None = None
    ) -> Steps[dict[TopicPartition, int]]:
        """Find the offset of each readable queue that `at` means; of a position or mapping, of the queues that it names (`queue_ids.ours`).

        Args:
            what: name of the argument, for the texts of errors.
            partitions: numbers of those that are asked for; None: all.
        Raises:
            OptionError: no position; one of another topic, of a queue that does not exist, or that may mean several queues.
        """
        yield from self._look_again(until)
        given, keys = yield from self._ours(at, until, Route.readable)
        wanted = keys if partitions is None else [key for key in keys if key[1] in partitions]
        return (yield from self.find(PLACES.requests(given, wanted, what), until))

    def seeking(self, at: Where, held: Iterable[TopicPartition], until: float) -> Steps[dict[TopicPartition, int]]:
        """Find offsets as `where` for a role that reads the queues `held`: in all of them, also where one may not be read now.

        Queues whose broker is away are waited for; left out are those that a broker has no more, since the topic was removed from it.
        """
        yield from self._look_again(until)
        given, keys = yield from self._ours(at, until, lambda route: ())
        if named(given) is None:
            away = yield from self._away(until)
            absent = {(self._topic, queue.partition) for queue in (yield from self._absent(until))}
            keys = [key for key in held if key in away or key not in absent]
        return (yield from self.find(PLACES.requests(given, keys, "seek"), until))

    def ranges(self, start: Where, stop: Where | None, until: float) -> Steps[tuple[dict[TopicPartition, int], dict[TopicPartition, int]]]:
        """Find where a reader begins and ends (`flow.resolve`), by queue: also in queues that may not be read now, where possible.

        For AtTime it is not possible; a reader that follows the log looks those queues up later.
        """
        away: list[TopicPartition] = []
        if stop is not None and named(start) is None and named(stop) is None:
            away = yield from self._away(until)
        else:
            yield from self._look_again(until)
        follows = stop is None and isinstance(start, AtTime)
        first, keys = yield from self._ours(start, until, Route.readable if follows else Route.there)
        if stop is None:
            return (yield from self.find(PLACES.requests(first, keys), until)), {}
        last, more = yield from self._ours(stop, until, Route.there)
        more += away
        starts, stops = PLACES.ranges(first, last, dict.fromkeys((*keys, *more)))
        return (yield from self.find(starts, until)), (yield from self.find(stops, until))

    def _ours(self, at: Where, until: float, which: Callable[[Route], Iterable[Queue]]) -> Steps[tuple[Where, list[TopicPartition]]]:
        """Translate what is asked for to our own partitions; returns also the partitions that may be meant: the route's and those named."""
        ours = yield from queue_ids.ours(self._cluster, self._topic, at, until)
        route = yield from self._cluster.routing(self._topic, until)
        there = [(self._topic, queue.partition) for queue in which(route)]
        return ours, list(dict.fromkeys((*there, *(named(ours) or ()))))

    def _away(self, until: float) -> Steps[list[TopicPartition]]:
        """Return queues that this client knows and no route names, since no broker of that name is registered.

        A read up to a stop would lack their records in silence without them. Queues of a broker that is registered, and has the topic no
        more, are gone. A route that lacks queues may be from before their broker came back, so it is looked up again, after the brokers.
        """
        if not (yield from self._absent(until)):
            return []
        there = (yield from self._cluster.info(until)).brokers
        try:
            yield from self._cluster.routing(self._topic, until, fresh=True)
        except TopicNotExist:  # a name server that just started: no broker that has the topic has registered there yet
            there = {}
        return [(self._topic, queue.partition) for queue in (yield from self._absent(until)) if queue.broker not in there]

    def _look_again(self, until: float) -> Steps[None]:
        """Look the route up again where it lacks queues, if a name server answers; for reads that may lack queues of absent brokers."""
        if (yield from self._absent(until)):
            self._cluster.routes.stale(self._topic)
            yield from self._cluster.routing(self._topic, until)

    def _absent(self, until: float) -> Steps[list[Queue]]:
        queues = (yield from self._cluster.routing(self._topic, until)).queues
        return [queue for queue in queues if queue.address is None and not queue.readable]

    def find(self, requests: Requests, until: float) -> Steps[dict[TopicPartition, int]]:
        """Find the offsets that requests mean, by our own partitions; waits for a broker that is away where only it can answer.

        Raises:
            TransportError, BrokerError: a broker does not answer, or refuses; `known` has the positions that other brokers returned.
        """
        queues = (yield from self._cluster.routing(self._topic, until)).queues
        found = {key: offset_of(at) for key, at in requests.items() if isinstance(at, Position)}
        asked: dict[TopicPartition, Queue] = {}
        for key in requests.keys() - found.keys():
            asked[key] = yield from self._back(queues[key[1]], until)
        problems: list[WireprotoError] = []

        def look(some: list[TopicPartition]) -> Steps[None]:
            try:
                yield from self.all_shown([asked[key] for key in some if not isinstance(requests[key], Earliest)], until)
                looks = {key: self.of(asked[key], requests[key], until) for key in some}
                found.update((yield from self._cluster.gathering(looks, "the place")))
            except WireprotoError as why:
                problems.append(why)

        brokers: dict[str, list[TopicPartition]] = {}
        for key, queue in asked.items():
            brokers.setdefault(queue.broker, []).append(key)
        yield from self._cluster.gathering({broker: look(some) for broker, some in brokers.items()}, "the places")
        if problems:
            problems[0].known = {key: queues[key[1]].at(self._topic, offset) for key, offset in found.items()}
            raise problems[0]
        return {key: found[key] for key in requests}

    def _back(self, queue: Queue, until: float) -> Steps[Queue]:
        """Wait until the queue's broker has a master, and return the queue; raises NoMaster, or the last error, at the deadline."""

        def look() -> Steps[Queue]:
            current = (yield from self._cluster.routing(self._topic, until)).find(*queue.home)
            if current is None or current.address is None:
                self._cluster.routes.stale(self._topic)
                raise NoMaster(f"broker {queue.broker} has no master now", topic=self._topic)
            return current

        return queue if queue.address is not None else (yield from self._cluster.retrying(look, until))

    def of(self, queue: Queue, at: Position | Earliest | Latest | AtTime, until: float) -> Steps[int]:
        """Find the offset that EARLIEST, LATEST or AtTime means in one queue."""
        assert not isinstance(at, Position)
        if isinstance(at, Earliest):
            return self.first(queue, until)
        if isinstance(at, Latest):
            return self.end(queue, until)
        return self.at_time(queue, at.ms, until)
