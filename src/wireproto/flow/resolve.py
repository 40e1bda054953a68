"""Resolves where to start and stop, partition by partition.

Sans-IO. EARLIEST, LATEST, AtTime, a position or a mapping, as a user gives it, becomes one request a partition; which offset that is, the
adapter asks its brokers, for all partitions at once.

    given                               partitions                  request of each
    EARLIEST, LATEST, AtTime            all                         the same
    a Position                          its own                     that position
    a mapping                           those that it names         a Position, EARLIEST, LATEST or AtTime

A reader reads the partitions that its start or its stop names; where both do, they must name the same: one without a stop would be read
for ever, one without a start not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass

from wireproto.errors import OptionError, Revoked
from wireproto.position import AtTime, Earliest, Latest, LogOffset, MessageId, Position, TopicPartition, Where

Request = Earliest | Latest | AtTime | Position
Requests = dict[TopicPartition, Request]
_FORMS = {LogOffset: "a number", MessageId: "ledger:entry:index"}
_PLACES = "EARLIEST, LATEST, AtTime, a position or a mapping of positions"


def _same(key: TopicPartition) -> TopicPartition:
    return key


@dataclass(frozen=True)
class Resolver:
    """Reads the positions that users give one adapter.

    Args:
        kind: class of its positions.
        normal: returns a partition as the adapter knows it, where users may name it in several ways.
    """

    kind: type[LogOffset] | type[MessageId]
    normal: Callable[[TopicPartition], TopicPartition] = _same

    def requests(self, where: Where, partitions: Iterable[TopicPartition], what: str = "start") -> Requests:
        """Return what is requested of each partition; only of those that `where` names, when it names some.

        Args:
            where: as a user gave it. partitions: all that there are. what: named in errors: start, stop, seek.

        Raises:
            OptionError: `where` is no position, or one of another partition, topic or kind of broker.
        """
        every = tuple(partitions)
        given = named(where)
        if given is None:
            if not isinstance(where, Earliest | Latest | AtTime):
                raise OptionError(f"{what} is {_PLACES}, not {where!r}")
            return dict.fromkeys(every, where)
        found: Requests = {}
        for key, place in given.items():
            own = self.normal(key)
            if own not in every:
                raise OptionError(f"{what} names {key[0]}[{key[1]}], which is not among the partitions here, {_abridged(every)}")
            found[own] = self._checked(own, place, what)
        return found

    def _checked(self, key: TopicPartition, place: object, what: str) -> Request:
        if isinstance(place, Earliest | Latest | AtTime):
            return place
        return self.position(key, place, what, " or EARLIEST, LATEST, AtTime")

    def position(self, key: TopicPartition, place: object, what: str, else_: str = "") -> Position:
        """Return `place` as a position in the partition `key`, where nothing else will do (a commit). Raises OptionError."""
        if not isinstance(place, self.kind):
            raise OptionError(f"{what} of {key[0]}[{key[1]}] is {_FORMS[self.kind]}{else_}, not {place!r}", topic=key[0])
        if self.normal((place.topic, place.partition)) != key:
            raise OptionError(f"{place!r} is no position in {key[0]}[{key[1]}]", topic=key[0])
        if isinstance(place, LogOffset) and place.offset < 0:
            raise OptionError(f"{place!r} is before the beginning", topic=key[0])
        return place

    def ranges(self, start: Where, stop: Where | None, partitions: Iterable[TopicPartition]) -> tuple[Requests, Requests]:
        """Return the starts and the stops of the partitions that are read; no stops: the log is followed. Raises as `requests` does."""
        every = tuple(partitions)
        starts = self.requests(start, every, "start")
        if stop is None:
            return starts, {}
        stops = self.requests(stop, every, "stop")
        if named(start) is not None and named(stop) is not None and (odd := sorted(starts.keys() ^ stops.keys())):
            lacks = "stop" if odd[0] in starts else "start"
            raise OptionError(f"{odd[0][0]}[{odd[0][1]}] has no {lacks}: start and stop name the same partitions", topic=odd[0][0])
        keys = [key for key in every if key in starts and key in stops]
        return {key: starts[key] for key in keys}, {key: stops[key] for key in keys}


def named(where: Where | None) -> Mapping[TopicPartition, object] | None:
    """Return the partitions that a position or a mapping names, with their values; None for everything else."""
    if isinstance(where, Position):
        return {(where.topic, where.partition): where}
    return where if isinstance(where, Mapping) else None


def all_assigned(partitions: Iterable[TopicPartition], assigned: Container[TopicPartition]) -> tuple[TopicPartition, ...]:
    """Return the partitions that a call names, where a consumer has all of them.

    Args:
        partitions: as a user gave them. assigned: those that the consumer reads.

    Raises:
        Revoked: names those that it does not read.
    """
    keys = tuple(partitions)
    foreign = tuple(sorted({key for key in keys if key not in assigned}))
    if foreign:
        raise Revoked(f"{shown(foreign)} {'is' if len(foreign) == 1 else 'are'} not assigned to this consumer", partitions=foreign)
    return keys


def shown(partitions: Iterable[TopicPartition]) -> str:
    """Write partitions as text, in order."""
    return ", ".join(f"{topic}[{number}]" for topic, number in sorted(partitions))


def _abridged(partitions: tuple[TopicPartition, ...]) -> str:
    if len(partitions) <= 4:
        return shown(partitions) or "of which there are none"
    return f"{shown(partitions[:1])} … {shown(partitions[-1:])}"
