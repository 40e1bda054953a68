"""Keeps routes: which broker holds which queue, which of them a record goes to, and which name server to ask.

Three state objects without sockets:

    Route          one topic's queues, numbered 0, 1, 2 … = our partitions
    RouteCache     routes by topic, with their age
    NameServers    the list of name servers: ask the one that worked last, then the next when it fails

Numbering: brokers in order of their names (Java's order), in each the queue ids 0, 1, 2 … up to max(read, write) queues. Queues that
appear later, of a new broker or of one that got more, are numbered after those already known, and a broker that vanishes (down for long)
keeps its numbers: within one client a partition never changes its queue. Two clients agree only while the topic's brokers stay what they
are; so positions that leave a client name a queue by broker and queue id (`queue_ids`). They always agree on where a key goes, since that
counts the queues in Java's order.

Only masters are written to and read from. No method looks at a clock; `now` is an argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from wireproto._codec import java_hashes, java_place, split_columns
from wireproto.errors import OptionError, UsageError
from wireproto.position import QueueOffset

from .allocate import java_order
from .bodies import PERM_READ, PERM_WRITE, TopicRouteData

if TYPE_CHECKING:
    from wireproto._codec import Columns


@dataclass(frozen=True, slots=True)
class Queue:
    """Describes one queue of a topic.

    Attributes:
        partition: our number of it. broker: name of the broker. queue_id: the broker's number of it.
        address: of the broker's master; None while there is none, or the broker is gone from the route.
        readable, writable: whether the route says so.
    """

    partition: int
    broker: str
    queue_id: int
    address: str | None
    readable: bool
    writable: bool

    @property
    def home(self) -> tuple[str, int]:
        """Return broker and queue id, which are the same for every client."""
        return self.broker, self.queue_id

    def at(self, topic: str, offset: int) -> QueueOffset:
        """Return a position in this queue."""
        return QueueOffset(topic, self.partition, offset, self.broker, self.queue_id)


def taking(queues: Sequence[Queue]) -> list[Queue]:
    """Return the queues that records are sent to: those that may be written.

    Where none may, those that may be read: a broker accepts records for a read-only topic all the same (4.9.7, 5.5.0). Where none may be
    read either, all that are known.
    """
    return [queue for queue in queues if queue.writable] or [queue for queue in queues if queue.readable] or list(queues)


@dataclass(frozen=True, slots=True)
class Route:
    """Holds the queues of one topic, in order of partition.

    Attributes:
        topic: its name. queues: index = partition.
        runs: runs of queues in order of numbering: broker's name, first queue id, number of queues (kept for later merges).
        masters: addresses of all masters of the topic.
        keyed: partitions that keys are spread over, in Java's order of their queues, or that of an order topic's list.
        homes: partition by broker and queue id.
    """

    topic: str
    queues: tuple[Queue, ...]
    runs: tuple[tuple[str, int, int], ...]
    masters: tuple[str, ...]
    keyed: tuple[int, ...]
    homes: Mapping[tuple[str, int], int]

    @classmethod
    def build(cls, topic: str, data: TopicRouteData, before: Route | None = None) -> Route:
        """Make a route from a name server's answer, numbered as `before` where that knows the queue.

        Raises:
            UsageError: a static topic; its offsets are not those of its brokers' queues.
        """
        if data.static:
            raise UsageError(
                f"{topic} is a static topic (queues mapped over brokers, 5.x), which this client does not support", topic=topic
            )
        masters = {broker.broker_name: broker.master for broker in data.broker_datas}
        held = {queue.broker_name: queue for queue in data.queue_datas}
        runs = list(before.runs) if before else []
        known = {name: first + count for name, first, count in runs}
        for name in sorted(held, key=java_order):
            had, count = known.get(name, 0), max(held[name].read_queue_nums, held[name].write_queue_nums)
            if count > had:
                runs.append((name, had, count - had))
        queues: list[Queue] = []
        for name, first, count in runs:
            found = held.get(name)
            read, write, perm = (found.read_queue_nums, found.write_queue_nums, found.perm) if found else (0, 0, 0)
            shift = len(queues) - first
            queues.extend(
                Queue(
                    partition=shift + queue_id,
                    broker=name,
                    queue_id=queue_id,
                    address=masters.get(name),
                    readable=bool(perm & PERM_READ) and queue_id < read,
                    writable=bool(perm & PERM_WRITE) and queue_id < write,
                )
                for queue_id in range(first, first + count)
            )
        names = dict.fromkeys([*(run[0] for run in runs), *sorted(held, key=java_order)])
        addresses = tuple(dict.fromkeys(address for name in names if (address := masters.get(name))))
        in_order = sorted(queues, key=lambda queue: (java_order(queue.broker), queue.queue_id))
        keyed = tuple(queue.partition for queue in taking(in_order))
        made = cls(topic, tuple(queues), tuple(runs), addresses, keyed, {queue.home: queue.partition for queue in queues})
        return made._ordered(data.order) if data.order else made

    def _ordered(self, order: Sequence[tuple[str, int]]) -> Route:
        """Spread keys over the queues of this list, as Java's producers do with an order topic: also where a broker is away."""
        homes = [(broker, queue_id) for broker, count in order for queue_id in range(count)]
        route = self.numbering(homes)
        return replace(route, keyed=tuple(route.homes[home] for home in homes) or self.keyed)

    def numbering(self, homes: Iterable[tuple[str, int]]) -> Route:
        """Return this route with partition numbers also for these queues (broker, queue id), whose broker is away."""
        runs, queues, had = list(self.runs), list(self.queues), self.brokers
        wanted: dict[str, int] = {}
        for broker, queue_id in homes:
            wanted[broker] = max(wanted.get(broker, 0), queue_id + 1)
        for broker in sorted(wanted, key=java_order):
            first = had.get(broker, 0)
            if wanted[broker] > first:
                runs.append((broker, first, wanted[broker] - first))
                queues += [Queue(len(queues) + at, broker, first + at, None, False, False) for at in range(wanted[broker] - first)]
        numbers = {queue.home: queue.partition for queue in queues}
        return replace(self, queues=tuple(queues), runs=tuple(runs), homes=numbers)

    def find(self, broker: str, queue_id: int) -> Queue | None:
        """Return a queue by broker and queue id, or None."""
        number = self.homes.get((broker, queue_id))
        return None if number is None else self.queues[number]

    @property
    def brokers(self) -> dict[str, int]:
        """Return the known number of queues by broker."""
        return {name: first + count for name, first, count in self.runs}

    def readable(self) -> tuple[Queue, ...]:
        """Return the queues that may be read."""
        return tuple(queue for queue in self.queues if queue.readable)

    def there(self) -> tuple[Queue, ...]:
        """Return the queues that may be read, and those whose broker has a master here, though they may not be read for a while."""
        return tuple(queue for queue in self.queues if queue.readable or queue.address is not None)

    def writable(self) -> tuple[Queue, ...]:
        """Return the queues that may be written and have a master now."""
        return tuple(queue for queue in self.queues if queue.writable and queue.address)

    def by_key(self, key: bytes) -> int:
        """Return the partition of a key: Java's ``Math.abs(key.hashCode()) % queues`` over every queue of the route.

        Over all of them, also those without a master now: a key must not move to another queue because a broker is down for a while.
        """
        return java_place(key, self.keyed)

    def by_hash(self, hashed: int) -> int:
        """Return the partition of a key from its hash, as `by_key`."""
        magnitude = 0 if hashed == -(1 << 31) else abs(hashed)
        return self.keyed[magnitude % len(self.keyed)]

    def shares(self, table: Columns, partition: int | None, count: int) -> list[tuple[int | None, Columns]]:
        """Split rows by partition, in their order within each; partition None: to any queue.

        Args:
            table: the rows. partition: of all rows; None: as the table's partition column says, else by key.
            count: number of partitions.
        Raises:
            OptionError: a row names a partition that there is not.
        """
        if partition is not None:
            return [(partition, table)]
        places: Sequence[int | None] | None = table.partitions()
        if places is None:
            hashes = java_hashes(table)
            if all(code is None for code in hashes):
                return [(None, table)]
            places = [None if code is None else self.by_hash(code) for code in hashes]
        for place in places:
            if place is not None and not 0 <= place < count:
                raise OptionError(f"{self.topic} has no partition {place}: it has {count}", topic=self.topic)
        split = split_columns(table, [count if place is None else place for place in places], count + 1)
        return [(number if number < count else None, rows) for number, rows in split]


class RouteCache:
    """Keeps routes by topic; old ones are kept for numbering even when they must be looked up again.

    max_age: seconds. Times are `time.monotonic()` values.
    """

    def __init__(self, max_age: float = 30.0) -> None:
        self.max_age = max_age
        self._routes: dict[str, tuple[Route, float]] = {}
        self._stale: set[str] = set()
        self._put_off: dict[str, float] = {}
        self._missing: dict[str, float] = {}

    def fresh(self, topic: str, now: float) -> Route | None:
        """Return the cached route; None where it is too old or was marked stale, and may be asked for again."""
        found = self._routes.get(topic)
        if found is None:
            return None
        if (topic in self._stale or now - found[1] > self.max_age) and now >= self._put_off.get(topic, 0.0):
            return None
        return found[0]

    def put_off(self, topic: str, until: float) -> None:
        """Use what is known until then, since no name server could be asked."""
        self._put_off[topic] = until

    def missed(self, topic: str, now: float, until: float) -> None:
        """Use what is known until then, since no name server knows the topic."""
        self._put_off[topic] = until
        self._missing.setdefault(topic, now)

    def missing(self, topic: str) -> float | None:
        """Return since when no name server knows the topic; None: one does."""
        return self._missing.get(topic)

    def known(self, topic: str) -> Route | None:
        """Return the last route, however old, or None."""
        found = self._routes.get(topic)
        return found[0] if found else None

    def stale(self, topic: str) -> None:
        """Have the topic looked up again before the next use: a broker refused, moved or is gone."""
        self._stale.add(topic)

    def learn(self, topic: str, data: TopicRouteData, now: float) -> Route:
        """Take a name server's answer."""
        route = Route.build(topic, data, self.known(topic))
        self._routes[topic] = (route, now)
        self._settle(topic)
        return route

    def _settle(self, topic: str) -> None:
        self._stale.discard(topic)
        self._put_off.pop(topic, None)
        self._missing.pop(topic, None)

    def number(self, topic: str, homes: Iterable[tuple[str, int]]) -> Route:
        """Return the last route, with partition numbers for these queues, too."""
        route, learnt = self._routes[topic]
        route = route.numbering(homes)
        self._routes[topic] = (route, learnt)
        return route

    def forget(self, topic: str) -> None:
        """Forget a topic that was deleted."""
        self._routes.pop(topic, None)
        self._settle(topic)

    def addresses(self) -> tuple[str, ...]:
        """Return the masters of every known topic."""
        found: dict[str, None] = {}
        for route, _ in self._routes.values():
            found.update(dict.fromkeys(route.masters))
        return tuple(found)


class NameServers:
    """Keeps the list of name servers; they know the same, so one answer is enough."""

    def __init__(self, addresses: Iterable[str]) -> None:
        self._addresses = list(dict.fromkeys(addresses))
        if not self._addresses:
            raise OptionError("no name server address")
        self._at = 0

    def __len__(self) -> int:
        return len(self._addresses)

    def order(self) -> Sequence[str]:
        """Return the addresses in the order in which to ask them."""
        return self._addresses[self._at :] + self._addresses[: self._at]

    def worked(self, address: str) -> None:
        """Ask this one first from now on."""
        if address in self._addresses:
            self._at = self._addresses.index(address)

    def all(self) -> tuple[str, ...]:
        """Return all addresses."""
        return tuple(self._addresses)
