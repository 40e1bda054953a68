"""Finds which of our queues a position means: by broker and queue id, never by the number that another client had for it.

Partitions are numbered by each client for itself (`route.py`), so positions that were kept, or came from another client, name their queue.
`own` turns them into offsets by our own partitions. A queue that no route names, since its broker is away, gets a number, and is read when
the broker is back. A number without a queue (as in older texts, or as a person writes it) is accepted where it can mean one queue only:
where the topic lies on one broker, and has every partition that is named. Functions that look routes up are steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from wireproto.errors import OptionError
from wireproto.flow.resolve import named
from wireproto.position import AtTime, Earliest, Latest, LogOffset, QueueOffset, TopicPartition, Where, queue_name

if TYPE_CHECKING:
    from wireproto.net.task import Steps

    from .cluster import RocketCluster
    from .route import Route

Home = tuple[str, int]
"""Name of a broker and id of a queue there."""


def own(cluster: RocketCluster, topic: str, given: Mapping[TopicPartition, object], until: float) -> Steps[dict[TopicPartition, int]]:
    """Return offsets of a topic's queues, by our partitions.

    Raises:
        OptionError: a position of another topic or protocol, of a partition that there is not, one that may mean any of several queues,
            or two positions of one queue.
    """
    for key, position in given.items():
        if not isinstance(position, LogOffset) or (position.topic, position.partition) != key:
            raise OptionError(f"{position!r} is no position of {key[0]}[{key[1]}]: RocketMQ's are numbers, each of a queue")
    homes = [(place.broker, place.queue) for place in given.values() if isinstance(place, QueueOffset)]
    route = yield from known(cluster, topic, homes, until)
    found: dict[TopicPartition, int] = {}
    for key, position in given.items():
        assert isinstance(position, LogOffset)
        number = route.homes[position.broker, position.queue] if isinstance(position, QueueOffset) else _bare(route, key, position, given)
        if (topic, number) in found or key[0] != topic:
            raise OptionError(f"two positions of one queue, or of another topic than {topic}: {position!r}", topic=topic)
        found[topic, number] = position.offset
    return found


def ours(cluster: RocketCluster, topic: str, where: Where, until: float) -> Steps[Where]:
    """Translate a position, or a mapping of positions, EARLIEST, LATEST and AtTime, to our own partitions; all else is returned as it is.

    Raises:
        OptionError: as `own`; or EARLIEST, LATEST or AtTime for a partition that there is not, or that may mean any of several.
    """
    given = named(where)
    if given is None:
        return where
    places: dict[TopicPartition, Any] = {key: at for key, at in given.items() if isinstance(at, Earliest | Latest | AtTime)}
    found = yield from own(cluster, topic, {key: at for key, at in given.items() if key not in places}, until)
    route = yield from cluster.routing(topic, until)
    for key, at in places.items():
        check_bare(route, key[0], [number for _, number in places], f"{at} of {key[0]}[{key[1]}]")
    return {**places, **{key: LogOffset(*key, offset) for key, offset in found.items()}}


def known(cluster: RocketCluster, topic: str, homes: list[Home], until: float) -> Steps[Route]:
    """Return the topic's route, in which each of these queues has a number."""
    route = yield from cluster.routing(topic, until)
    if not route.homes.keys() >= set(homes):
        route = yield from cluster.routing(topic, until, fresh=True)
    if not route.homes.keys() >= set(homes):
        route = cluster.number(topic, homes)
    return route


def _bare(route: Route, key: TopicPartition, position: LogOffset, given: Mapping[TopicPartition, object]) -> int:
    check_bare(route, key[0], [partition for _, partition in given], f"the position {position.offset} of {key[0]}[{key[1]}]")
    return key[1]


def check_bare(route: Route, topic: str, partitions: list[int], what: str) -> None:
    """Raise OptionError where partition numbers without a queue name mean no queue, or may mean several."""
    strange = [number for number in partitions if not 0 <= number < len(route.queues)]
    if strange or topic != route.topic:
        there = f"{topic}[{strange[0]}]" if strange else topic
        raise OptionError(f"{route.topic} has {len(route.queues)} partitions; there is no {there}", topic=route.topic)
    if len(route.brokers) > 1:
        brokers = ", ".join(sorted(route.brokers))
        raise OptionError(
            f"{what} does not say of which queue: {topic} lies on the brokers {brokers}, whose queues each client numbers for itself; "
            f"name the queue, as in {queue_name(min(route.brokers), 0)}:123",
            topic=topic,
        )
