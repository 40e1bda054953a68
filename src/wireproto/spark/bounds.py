"""Resolves the bounds of a read to positions: on the driver when the read is planned, and again in a worker when it runs.

Spark plans a loaded batch frame once, at its first action, and keeps the tasks for every later action. A bound that is a word (earliest,
latest) or a time would keep the position of the first action: the frame would never show a record that was written later, and would fail
once retention has removed the beginning. So a task keeps such a bound beside its range (`bind`) and resolves it when it runs (`bound_now`),
as the JVM's connector does. A bound that is a position stays as it is.

    planned at the first action     [e, 100) cut into [e, 50) [50, 100)       e: the earliest position at that time
    run later, log is [20, 130)     [20, 50) [50, 130)                        run when the log is [60, 130): nothing, [60, 130)

It works on any `Log` and must not know a protocol, or Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import TYPE_CHECKING

from ..errors import OptionError
from ..position import EARLIEST, LATEST, AtTime, Position, TopicPartition
from .log import Log, Positions, Span, named

if TYPE_CHECKING:
    from ..roles import Client
    from .options import Bound, Place

Places = Mapping[TopicPartition, "Place"]


def resolve(log: Log, client: Client, bound: Bound, *, starting: bool) -> Positions:
    """Resolve a bound to a position of each partition there is now; errors name the option that the bound is from.

    Raises:
        OptionError: the bound names other partitions than there are, or a time that no record reaches (for a start).
    """
    option = log.settings.option("starting" if starting else "ending")
    return located(log, client, wanted(log, client, bound, option), starting=starting)


def wanted(log: Log, client: Client, bound: Bound, option: str) -> dict[TopicPartition, Place]:
    """Return what a bound says for each partition there is now.

    Args:
        bound: one word or time for all partitions, or a mapping by partition. option: the option that it is from, for errors.
    Raises:
        OptionError: the bound names other partitions than there are.
    """
    given = log.numbered(client, bound, option) if isinstance(bound, dict) else None
    keys = log.partitions(client)
    found: dict[TopicPartition, Place] = dict.fromkeys(keys, bound) if given is None else given  # type: ignore[arg-type]
    if found.keys() != set(keys):
        words = "" if option.endswith("ByTimestamp") else " (-1 is latest, -2 earliest)"
        raise OptionError(
            f"{option} must name every partition that is read, and no other{words}: it names {named(found)}; there are {named(keys)}"
        )
    return found


def located(log: Log, client: Client, places: Places, *, starting: bool) -> Positions:
    """Resolve words and times to positions; partitions that are gone are left out.

    Args:
        places: by partition, a word, a time or a position. starting: whether this is a start; an end behind all records is the log's end.
    Raises:
        OptionError: no record is at or after a starting time (unless startingOffsetsByTimestampStrategy is latest).
    """
    found: Positions = {key: place for key, place in places.items() if isinstance(place, Position)}
    times = {key: place.ms for key, place in places.items() if isinstance(place, AtTime)}
    for key, place in log.at_times(client, times).items() if times else ():
        if place is not None:
            found[key] = place
        elif starting and log.settings.late == "error":
            raise OptionError(
                f"{log.settings.option('starting')}: No offset matched: no record of {key[0]}-{key[1]} is at or after {times[key]}; with "
                "startingOffsetsByTimestampStrategy=latest reading starts at the end there"
            )
        else:
            places = {**places, key: LATEST}
    for word in (EARLIEST, LATEST):
        asked = [key for key, place in places.items() if place == word]
        if asked:
            found.update(log.ends(client, asked, word))
    return found


def bind(spans: Iterable[Span], starts: Places, stops: Places) -> None:
    """Store bounds that are no positions in the tasks of a batch: the start in each task of its partition, the end in the last one.

    Args:
        spans: tasks, those of a partition next to each other and in order. starts, stops: bounds by partition.
    """
    for key, group in groupby(spans, lambda span: span.key):
        pieces = list(group)
        for span in pieces:
            if not isinstance(starts[key], Position):
                span.late_start = starts[key]
        if not isinstance(stops[key], Position):
            pieces[-1].late_stop = stops[key]
        pieces[0].first = True


def bound_now(log: Log, client: Client, span: Span) -> Span | None:
    """Return the span with its bounds resolved now, or None when it holds nothing (any more).

    Raises:
        DataLoss: the partition is gone, or ends before the span begins (unless failOnDataLoss is false).
    """
    start, stop = span.start, span.stop
    if span.late_start is not None:
        first = located(log, client, {span.key: span.late_start}, starting=True).get(span.key)
        if first is None:
            _gone(log, span)
            return None
        start = first if span.first or start < first else start
    if span.late_stop is not None:
        last = located(log, client, {span.key: span.late_stop}, starting=False).get(span.key)
        if last is None:
            _gone(log, span)
            return None
        if last < start and span.start < span.stop and not (span.first and span.late_start is not None):
            log.lost(f"{span.topic}-{span.partition} was to be read from {start} and now ends at {last}")
        stop = last
    if not start < stop:
        return None
    found = Span(*span.key, start, stop)
    found.identity = span.identity
    return found


def _gone(log: Log, span: Span) -> None:
    """Report that the span's partition does not exist any more."""
    log.lost(f"{span.topic}-{span.partition} was to be read up to {span.stop} and is not there any more")
