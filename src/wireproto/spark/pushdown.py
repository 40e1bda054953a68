"""Applies filters that Spark pushes to a batch read: to the ranges that are planned, and claims those that hold exactly.

`Pushed` is filled on the driver before the ranges are planned. Spark does not apply a filter again that is claimed.

    on topic, partition     decides for each partition whether it is read at all; claimed
    on offset               =, <, <=, >, >= trim the ranges; claimed, as is IS NOT NULL, which Spark adds
    on timestamp            >, >=, = begin reading at the first record that late; not claimed, since later records may be older
    all else                left to Spark

Only where the option pushDownPredicate asks for it. PySpark 4.1 and 4.2 keep the tasks that a filter left with the loaded table, not with
the query: the next query of the same DataFrame, without that filter, gets those tasks again and misses the other rows without an error. So
a frame that filters prune must be used for one query alone, which only the program can know.

Filters come joined by AND; a comparison with null is left to Spark. Spark calls a method `pushFilters` only under
``spark.sql.python.filterPushdown.enabled``, and refuses a reader that has one while that is off: `Pushing` presents the base class's method
as its own, so that a reader works under both.

Filters need PySpark 4.1; on 4.0 nothing is ever pushed. This module must not know a protocol.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader

from ..position import TopicPartition
from .log import moved, number

if TYPE_CHECKING:
    from ..roles import Client
    from .log import Log, Positions

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": operator.eq,
    "EqualNullSafe": operator.eq,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "In": lambda found, values: found in values,
    "StringStartsWith": lambda found, text: found.startswith(text),
    "StringEndsWith": lambda found, text: found.endswith(text),
    "StringContains": lambda found, text: text in found,
}
Test = Callable[[Any], bool]


@dataclass
class Pushed:
    """The ranges that the filters leave to be read.

    Attributes:
        tests: pairs of "topic" or "partition" and a filter on that column.
        low, high: bounds of offsets, `high` not included. since: milliseconds since 1970 before which nothing is wanted.
    """

    tests: list[tuple[str, Any]] = field(default_factory=list)
    low: int = 0
    high: int | None = None
    since: int | None = None

    def __bool__(self) -> bool:
        """Return whether the filters leave anything out."""
        return bool(self.tests) or self.low > 0 or self.high is not None or self.since is not None

    def take(self, filters: Iterable[Any], *, offsets: bool, times: bool) -> list[Any]:
        """Store the filters that can be used; return those that Spark must still apply.

        Args:
            offsets: positions of the log are offsets. times: its brokers find the first record at or after a record time.
        """
        return [one for one in filters if not self._claimed(one, offsets=offsets, times=times)]

    def _claimed(self, one: Any, *, offsets: bool, times: bool) -> bool:
        child = getattr(one, "child", one)
        path = getattr(child, "attribute", ())
        if path in (("topic",), ("partition",)):
            if not decidable(child):
                return False
            self.tests.append((path[0], one))
            return True
        kind, value = type(one).__name__, getattr(one, "value", None)
        if kind == "IsNotNull" and ((path == ("offset",) and offsets) or (path == ("timestamp",) and times)):
            return True
        if path == ("offset",) and offsets and one is child and isinstance(value, int):
            return self._bounds(kind, value)
        if path == ("timestamp",) and times and one is child and isinstance(value, datetime) and value.tzinfo is not None:
            moment = int(value.timestamp() * 1000) - 1  # 1 ms less: the float may be a little above the time
            if kind in ("GreaterThan", "GreaterThanOrEqual", "EqualTo", "EqualNullSafe") and moment >= 0:
                self.since = max(moment, self.since or 0)
        return False

    def _bounds(self, kind: str, value: int) -> bool:
        low = {"EqualTo": value, "EqualNullSafe": value, "GreaterThan": value + 1, "GreaterThanOrEqual": value}.get(kind)
        high = {"EqualTo": value + 1, "EqualNullSafe": value + 1, "LessThan": value, "LessThanOrEqual": value + 1}.get(kind)
        if low is None and high is None:
            return False
        self.low = max(self.low, low or 0)
        if high is not None:
            self.high = high if self.high is None else min(self.high, high)
        return True

    def wanted(self, key: TopicPartition) -> bool:
        """Return whether a partition can have rows that the filters keep."""
        facts = {"topic": key[0], "partition": key[1]}
        return all(holds(one, facts[name]) for name, one in self.tests)

    def trim(self, log: Log, client: Client, start: Positions, stop: Positions) -> tuple[Positions, Positions]:
        """Return start and stop of what is to be read, without partitions that the filters exclude.

        Args:
            start, stop: planned positions by partition.
        """
        keys = [key for key in start.keys() & stop.keys() if self.wanted(key)]
        start, stop = {key: start[key] for key in keys}, {key: stop[key] for key in keys}
        if self.since is not None and keys:
            for key, place in log.at_times(client, dict.fromkeys(keys, self.since)).items():
                start[key] = max(start[key], place) if place is not None else max(start[key], stop[key])
        if self.low or self.high is not None:
            for key in keys:
                start[key] = moved(start[key], max(number(start[key]), self.low))
                if self.high is not None:
                    stop[key] = moved(stop[key], min(number(stop[key]), max(self.high, 0)))
        return start, stop


def decidable(one: Any) -> bool:
    """Return whether a filter on a column that is never null is simply true or false."""
    kind, value = type(one).__name__, getattr(one, "value", None)
    if kind in ("IsNull", "IsNotNull"):
        return True
    return kind in COMPARE and value is not None and not (kind == "In" and None in value)


def holds(one: Any, found: Any) -> bool:
    """Return what a decidable filter says of a value."""
    kind = type(one).__name__
    if kind == "Not":
        return not holds(one.child, found)
    if kind in ("IsNull", "IsNotNull"):
        return kind == "IsNotNull"
    return COMPARE[kind](found, one.value)


class Pushing:
    """A reader's `pushFilters`: Spark calls it where it pushes filters, and takes it for the base class's method where it does not."""

    def __init__(self, take: Callable[[Iterable[Any]], list[Any]]) -> None:
        self._take = take
        self.__func__ = getattr(DataSourceReader, "pushFilters", None)

    def __call__(self, filters: Iterable[Any]) -> list[Any]:
        """Store the filters that can be used; return those that Spark must still apply."""
        return self._take(filters)
