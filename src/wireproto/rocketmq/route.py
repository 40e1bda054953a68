"""Routes: which broker holds which queue, which of them a record goes to, and which name server to ask.

What it is: three state objects without sockets.

    Route          one topic's queues, numbered 0, 1, 2 … = our partitions
    RouteCache     routes by topic, with their age
    NameServers    the list of name servers: ask the one that worked last, go on to the next when it fails

Numbering: brokers in order of their names (Java's order), in each the queue ids 0, 1, 2 … up to max(read, write) queues. Queues that
appear later, of a new broker or of one that got more, are numbered after those already known, and a broker that vanishes (down for long)
keeps its numbers: within one client a partition never changes its queue. Two clients agree only while the topic's brokers stay what they
are; so whatever leaves a client names a queue by broker and queue id (`homes.py`). Where a key goes they agree on always, since that counts
the queues in Java's order.

Only masters are written to and read from. Must not: look at a clock; `now` is an argument.
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
    """One queue of a topic: our partition number, the broker's name and its own queue id, and where that broker's master is.

    `address` is None while the broker has no master or is gone from the route.
    """

    partition: int
    broker: str
    queue_id: int
    address: str | None
    readable: bool
    writable: bool

    @property
    def home(self) -> tuple[str, int]:
        """What it is called by every client."""
        return self.broker, self.queue_id

    def at(self, topic: str, offset: int) -> QueueOffset:
        """A position in it."""
        return QueueOffset(topic, self.partition, offset, self.broker, self.queue_id)


def taking(queues: Sequence[Queue]) -> list[Queue]:
    """Those that records go to: that may be written. Where none may, those that may be read: a broker takes records into a topic that is
    read-only all the same (4.9.7, 5.5.0). Where none may be read either, all that are known."""
    return [queue for queue in queues if queue.writable] or [queue for queue in queues if queue.readable] or list(queues)


@dataclass(frozen=True, slots=True)
class Route:
    """The queues of one topic, in order of partition.

    Attributes:
        queues: index = partition.
        runs: runs of queues in order of numbering: broker's name, first queue id, number (kept for later merges).
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
        """A route from a name server's answer, numbered as `before` where that knows the queue.

        Raises:
            UsageError: a static topic; its offsets would be others than those of its brokers' queues.
        """
        if data.static:
            raise UsageError(f"{topic} is a static topic (queues mapped over brokers, 5.x), which is not spoken here", topic=topic)
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
        """Keys spread over the queues of this list, as Java's producers do with an order topic: also where a broker is away."""
        homes = [(broker, queue_id) for broker, count in order for queue_id in range(count)]
        route = self.numbering(homes)
        return replace(route, keyed=tuple(route.homes[home] for home in homes) or self.keyed)

    def numbering(self, homes: Iterable[tuple[str, int]]) -> Route:
        """The same with numbers for queues that it does not name: their broker is away."""
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
        """A queue by what every client calls it."""
        number = self.homes.get((broker, queue_id))
        return None if number is None else self.queues[number]

    @property
    def brokers(self) -> dict[str, int]:
        """Known number of queues by broker."""
        return {name: first + count for name, first, count in self.runs}

    def readable(self) -> tuple[Queue, ...]:
        """The queues that may be read."""
        return tuple(queue for queue in self.queues if queue.readable)

    def there(self) -> tuple[Queue, ...]:
        """The queues that may be read, and those whose broker is there and has the topic, though they may not be read for a while."""
        return tuple(queue for queue in self.queues if queue.readable or queue.address is not None)

    def writable(self) -> tuple[Queue, ...]:
        """The queues that may be written and have a master now."""
        return tuple(queue for queue in self.queues if queue.writable and queue.address)

    def by_key(self, key: bytes) -> int:
        """The partition of a key: Java's ``Math.abs(key.hashCode()) % queues`` over every queue of the route.

        Over all of them, also those without a master now: a key must not move to another queue because a broker is down for a while.
        """
        return java_place(key, self.keyed)

    def by_hash(self, hashed: int) -> int:
        """The same from the key's hash."""
        magnitude = 0 if hashed == -(1 << 31) else abs(hashed)
        return self.keyed[magnitude % len(self.keyed)]

    def shares(self, table: Columns, partition: int | None, count: int) -> list[tuple[int | None, Columns]]:
        """Rows to be sent by partition, in their order within each; None: to whichever has its turn.

        Args:
            partition: of all rows; None: as the table's partition column says, else by key.
            count: of partitions that there are.
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
    """Routes by topic; old ones are kept for numbering even when they must be looked up again."""

    def __init__(self, max_age: float = 30.0) -> None:
        self.max_age = max_age
        self._routes: dict[str, tuple[Route, float]] = {}
        self._stale: set[str] = set()
        self._put_off: dict[str, float] = {}
        self._missing: dict[str, float] = {}

    def fresh(self, topic: str, now: float) -> Route | None:
        """The cached route, unless it is too old or was marked stale, and may be asked for again."""
        found = self._routes.get(topic)
        if found is None:
            return None
        if (topic in self._stale or now - found[1] > self.max_age) and now >= self._put_off.get(topic, 0.0):
            return None
        return found[0]

    def put_off(self, topic: str, until: float) -> None:
        """Nobody could be asked: what is known holds until then."""
        self._put_off[topic] = until

    def missed(self, topic: str, now: float, until: float) -> None:
        """No name server knows the topic: what is known holds until then."""
        self._put_off[topic] = until
        self._missing.setdefault(topic, now)

    def missing(self, topic: str) -> float | None:
        """Since when no name server knows it."""
        return self._missing.get(topic)

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
        self._settle(topic)
        return route

    def _settle(self, topic: str) -> None:
        self._stale.discard(topic)
        self._put_off.pop(topic, None)
        self._missing.pop(topic, None)

    def number(self, topic: str, homes: Iterable[tuple[str, int]]) -> Route:
        """The last route, with numbers for these queues, too."""
        route, learnt = self._routes[topic]
        route = route.numbering(homes)
        self._routes[topic] = (route, learnt)
        return route

    def forget(self, topic: str) -> None:
        """Drop it altogether: the topic was deleted."""
        self._routes.pop(topic, None)
        self._settle(topic)

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
