"""Where a queue begins, ends, and stands at a time.

What it is: EARLIEST (31), LATEST (30) and AtTime of one queue, each a few commands to its broker.

AtTime means the first message whose store time is at or after it. Code 29 answers that on 5.x; on 4.9 it answers the *nearest* message,
which may be an earlier one, any of several with an equal time, and the last one for a time after it. So its answer is only the place from
where to look: store times never fall along a queue, and a few pulls of one message each find the first that is late enough.
Must not: read more than the fixed head of a stored message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from wireproto.errors import Truncated, WireprotoError
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
    """Store time of the first message of a pull's body, in ms.

    Raises:
        Truncated: the body is too short for one.
    """
    if len(stored) < HEAD + 20 + 8:
        raise Truncated("a stored message has at least 91 bytes", message="PullMessageResponse", offset=len(stored))
    (sys_flag,) = struct.unpack_from(">i", stored, 36)
    return int(struct.unpack_from(">q", stored, HEAD + (20 if sys_flag & 0x10 else 8))[0])


def offset_of(place: Position) -> int:
    assert isinstance(place, LogOffset)
    return place.offset


class OffsetLookup:
    """Offsets of a topic's queues, asked of their brokers. What asks is steps.

    Trap: a broker acknowledges a record before its queue shows it, so the end of a queue is asked for only when the broker has caught up
    with what its log held at that time (see `dispatch`).
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

        return self._cluster.retrying(attempt, until)

    def first(self, queue: Queue, until: float) -> Steps[int]:
        """The first message that the queue still has."""
        message = GetMinOffsetRequest(topic=self._topic, queue_id=queue.queue_id)
        return max(0, int((yield from self._ask(queue, message, until)).message.offset))

    def end(self, queue: Queue, until: float) -> Steps[int]:
        """The place after the last message."""
        message = GetMaxOffsetRequest(topic=self._topic, queue_id=queue.queue_id)
        return max(0, int((yield from self._ask(queue, message, until)).message.offset))

    def all_shown(self, queues: Iterable[Queue], until: float) -> Steps[None]:
        """Wait until these queues hold everything that is acknowledged now."""
        asked: dict[str, list[Queue]] = {}
        for queue in queues:
            if queue.address:
                asked.setdefault(queue.address, []).append(queue)
        look = self._cluster.dispatch.catching_up
        waits = {at: self._cluster.retrying(partial(look, at, until, self._topic, some), until) for at, some in asked.items()}
        yield from self._cluster.gathering(waits, "the queues")

    def at_time(self, queue: Queue, ms: int, until: float) -> Steps[int]:
        """The first message stored at or after a time; the end when there is none yet."""
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
        """The offset of each readable queue that `at` means; of a position or mapping, of the queues that it names (see `queue_ids.ours`).

        Args:
            what: told in errors.
            partitions: those that are asked for; None: all.
        Raises:
            OptionError: no place, a position of another topic, of a queue that is not there, or that does not say which it is of.
        """
        yield from self._look_again(until)
        given, keys = yield from self._ours(at, until, Route.readable)
        wanted = keys if partitions is None else [key for key in keys if key[1] in partitions]
        return (yield from self.find(PLACES.requests(given, wanted, what), until))

    def seeking(self, at: Where, held: Iterable[TopicPartition], until: float) -> Steps[dict[TopicPartition, int]]:
        """`where` for who reads these queues: in all of them, also where one may not be read now, or its broker is away. Left out is what a
        broker has no more: the topic was taken from it."""
        yield from self._look_again(until)
        given, keys = yield from self._ours(at, until, lambda route: ())
        if named(given) is None:
            away = yield from self._away(until)
            absent = {(self._topic, queue.partition) for queue in (yield from self._absent(until))}
            keys = [key for key in held if key in away or key not in absent]
        return (yield from self.find(PLACES.requests(given, keys, "seek"), until))

    def ranges(self, start: Where, stop: Where | None, until: float) -> Steps[tuple[dict[TopicPartition, int], dict[TopicPartition, int]]]:
        """Where a reader of these begins and ends (`flow.resolve`): also in queues that are not to be read now, where their brokers tell.

        They do not for a time; who follows the log finds that out later.
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
        """What is asked for, by our own partitions, and the partitions that may be meant: those of the route, and those named."""
        ours = yield from queue_ids.ours(self._cluster, self._topic, at, until)
        route = yield from self._cluster.routing(self._topic, until)
        there = [(self._topic, queue.partition) for queue in which(route)]
        return ours, list(dict.fromkeys((*there, *(named(ours) or ()))))

    def _away(self, until: float) -> Steps[list[TopicPartition]]:
        """Queues that this client knows and no route names, since no broker of that name is registered: without them a read that is to
        be whole would lack theirs in silence. Those of a broker that is there, and has the topic no more, are gone.

        A route that lacks any may be from before their broker came back, so it is learnt anew, after the brokers that are there.
        """
        if not (yield from self._absent(until)):
            return []
        there = (yield from self._cluster.info(until)).brokers
        try:
            yield from self._cluster.routing(self._topic, until, fresh=True)
        except TopicNotExist:  # a name server that was started a moment ago: nobody who has the topic is there for it
            there = {}
        return [(self._topic, queue.partition) for queue in (yield from self._absent(until)) if queue.broker not in there]

    def _look_again(self, until: float) -> Steps[None]:
        """The same for what need not be whole: learn the route anew where it lacks queues, if a name server answers."""
        if (yield from self._absent(until)):
            self._cluster.routes.stale(self._topic)
            yield from self._cluster.routing(self._topic, until)

    def _absent(self, until: float) -> Steps[list[Queue]]:
        queues = (yield from self._cluster.routing(self._topic, until)).queues
        return [queue for queue in queues if queue.address is None and not queue.readable]

    def find(self, requests: Requests, until: float) -> Steps[dict[TopicPartition, int]]:
        """The offsets that requests mean, by our own partitions. A broker that is away is waited for where it alone can tell. Of an error
        `known` is what the other brokers told."""
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
        """The queue when its broker is there; raises NoMaster, or what was met last, at the deadline."""

        def look() -> Steps[Queue]:
            current = (yield from self._cluster.routing(self._topic, until)).find(*queue.home)
            if current is None or current.address is None:
                self._cluster.routes.stale(self._topic)
                raise NoMaster(f"broker {queue.broker} has no master now", topic=self._topic)
            return current

        return queue if queue.address is not None else (yield from self._cluster.retrying(look, until))

    def of(self, queue: Queue, at: Position | Earliest | Latest | AtTime, until: float) -> Steps[int]:
        """The offset that one of EARLIEST, LATEST and AtTime means."""
        assert not isinstance(at, Position)
        if isinstance(at, Earliest):
            return self.first(queue, until)
        if isinstance(at, Latest):
            return self.end(queue, until)
        return self.at_time(queue, at.ms, until)
