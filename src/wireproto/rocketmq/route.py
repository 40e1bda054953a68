"""Routes: which broker holds which queue, which of them a record goes to, and which name server to ask.

What it is: three state objects without sockets.

    Route          one topic's queues, numbered 0, 1, 2 … = our partitions
    RouteCache     routes by topic, with their age
    NameServers    the list of name servers: ask the one that worked last, go on to the next when it fails

Numbering: brokers in order of their names (Java's order), in each the queue ids 0, 1, 2 … up to max(read, write) queues. A broker that
appears later is numbered after those already known, and one that vanishes (down for long) keeps its numbers: within one client a
partition never changes its queue. Two clients agree as long as the set of brokers of the topic stays what it is.

Only masters are written to and read from. Must not: look at a clock; `now` is an argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wireproto._codec import java_hash
from wireproto.errors import OptionError

from .allocate import java_order
from .bodies import PERM_READ, PERM_WRITE, TopicRouteData


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue of a topic: our partition number, the broker's name and its own queue id, and where that broker's master is.

    `address` is None while the broker has no master or is gone from the route.
    """

    partition: int
    broker: str
    queue_id: int
    address: str | None
    readable: bool
    writable: bool


@dataclass(frozen=True, slots=True)
class Route:
    """The queues of one topic, in order of partition.

    Attributes:
        queues: index = partition.
        brokers: name and known number of queues, in order of numbering (kept for later merges).
        masters: addresses of all masters of the topic.
        keyed: partitions that keys are spread over.
    """

    topic: str
    queues: tuple[Queue, ...]
    brokers: tuple[tuple[str, int], ...]
    masters: tuple[str, ...]
    keyed: tuple[int, ...]

    @classmethod
    def build(cls, topic: str, data: TopicRouteData, before: Route | None = None) -> Route:
        """A route from a name server's answer, numbered as `before` where that knows the broker."""
        masters = {broker.broker_name: broker.master for broker in data.broker_datas}
        held = {queue.broker_name: queue for queue in data.queue_datas}
        known = dict(before.brokers) if before else {}
        names = [*known, *sorted(held.keys() - known.keys(), key=java_order)]
        queues: list[Queue] = []
        brokers: list[tuple[str, int]] = []
        for place, name in enumerate(names):
            found = held.get(name)
            read, write = (found.read_queue_nums, found.write_queue_nums) if found else (0, 0)
            perm = found.perm if found else 0
            count = max(read, write)
            # queues added to a broker that others follow would shift their numbers: they wait for a new client
            if name in known:
                count = known[name] if count < known[name] or place + 1 < len(names) else count
            brokers.append((name, count))
            first = len(queues)
            queues.extend(
                Queue(
                    partition=first + queue_id,
                    broker=name,
                    queue_id=queue_id,
                    address=masters.get(name),
                    readable=bool(perm & PERM_READ) and queue_id < read,
                    writable=bool(perm & PERM_WRITE) and queue_id < write,
                )
                for queue_id in range(count)
            )
        addresses = tuple(dict.fromkeys(address for name in names if (address := masters.get(name))))
        keyed = tuple(queue.partition for queue in queues if queue.writable) or tuple(range(len(queues)))
        return cls(topic, tuple(queues), tuple(brokers), addresses, keyed)

    def readable(self) -> tuple[Queue, ...]:
        """The queues that may be read."""
        return tuple(queue for queue in self.queues if queue.readable)

    def writable(self) -> tuple[Queue, ...]:
        """The queues that may be written and have a master now."""
        return tuple(queue for queue in self.queues if queue.writable and queue.address)

    def partition_of(self, broker: str, queue_id: int) -> int:
        """Our number for a broker's queue, or -1."""
        for queue in self.queues:
            if queue.broker == broker and queue.queue_id == queue_id:
                return queue.partition
        return -1

    def by_key(self, key: bytes) -> int:
        """The partition of a key: Java's ``Math.abs(key.hashCode()) % queues`` over every queue of the route.

        Over all of them, also those without a master now: a key must not move to another queue because a broker is down for a while.
        """
        return self.by_hash(java_hash(key))

    def by_hash(self, code: int) -> int:
        """The same from the key's hash."""
        magnitude = 0 if code == -(1 << 31) else abs(code)
        return self.keyed[magnitude % len(self.keyed)]


class RouteCache:
    """Routes by topic; old ones are kept for numbering even when they must be looked up again."""

    def __init__(self, max_age: float = 30.0) -> None:
        self.max_age = max_age
        self._routes: dict[str, tuple[Route, float]] = {}
        self._stale: set[str] = set()

    def fresh(self, topic: str, now: float) -> Route | None:
        """The cached route, unless it is too old or was marked stale."""
        found = self._routes.get(topic)
        if found is None or topic in self._stale or now - found[1] > self.max_age:
            return None
        return found[0]

    def known(self, topic: str) -> Route | None:
        """The last route, however old."""
        found = self._routes.get(topic)
        return found[0] if found else None

    def stale(self, topic: str) -> None:
        """Look it up again before the next use: a broker refused, moved or is gone."""
        self._stale.add(topic)

    def learn(self, topic: str, data: TopicRouteData, now: float) -> Route:
        """Take a name server's answer."""
        route = Route.build(topic, data, self.known(topic))
        self._routes[topic] = (route, now)
        self._stale.discard(topic)
        return route

    def forget(self, topic: str) -> None:
        """Drop it altogether: the topic was deleted."""
        self._routes.pop(topic, None)
        self._stale.discard(topic)

    def addresses(self) -> tuple[str, ...]:
        """Masters of every known topic."""
        found: dict[str, None] = {}
        for route, _ in self._routes.values():
            found.update(dict.fromkeys(route.masters))
        return tuple(found)


class NameServers:
    """Name servers know the same and do not talk to each other; one answer is enough."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self._addresses = list(dict.fromkeys(addresses))
        if not self._addresses:
            raise OptionError("no name server address")
        self._at = 0

    def __len__(self) -> int:
        return len(self._addresses)

    def order(self) -> Sequence[str]:
        """Whom to ask, best first."""
        return self._addresses[self._at :] + self._addresses[: self._at]

    def worked(self, address: str) -> None:
        """Ask this one first from now on."""
        if address in self._addresses:
            self._at = self._addresses.index(address)

    def all(self) -> tuple[str, ...]:
        return tuple(self._addresses)
