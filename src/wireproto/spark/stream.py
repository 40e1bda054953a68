"""Reads logs as streams: what a micro-batch takes, its tasks, and what to do about records that are gone.

`LogStream` is Spark's DataSourceStreamReader over a `Log`, in all three forms of the API:

    PySpark 4.2 on   latestOffset(start, limit), limits of a trigger, AvailableNow: its end is fixed when the query starts
    4.0, 4.1         latestOffset(): the reader remembers where the last batch ended, and applies the limits itself

A reader lives in one process of the driver for as long as its query; offsets in the checkpoint are the JVM connector's JSON.

The first micro-batch. Spark stores the ends of micro-batches, not the start of the first one: a query that dies within its first batch asks
for the initial offset again. In partitions where that may be a later position by then (latest, or a time without a record) the first batch
has no rows; its end stores the start of the query there, and is marked (`Log.pin`). A first batch whose end is not marked was planned by
another connector, which keeps its start where this API cannot see it: when it is run again, its rows are lost, and that is reported.

A topic made again. The checkpoint has ids of topics beside the positions, where the protocol has ids. A topic whose id has changed counts
as lost, and reading continues at the beginning of all its partitions, as in those of any new topic.

Commits to a group. Spark calls `commit` for a micro-batch when it plans the next one that has rows, on a quiet topic never. But whenever it
asks for the latest offset, also at the end of an AvailableNow query, everything before the start that it gives is processed; so the reader
commits that start. This module must not know a protocol.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from ..errors import WireprotoError
from ..position import EARLIEST, LATEST, AtTime, Latest, TopicPartition
from . import batch
from .bounds import resolve
from .columns import Maker
from .log import Log, Positions, Span, logger, named, remade, retried
from .options import check_stream

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ..roles import Client
    from .options import Place

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows, SupportsTriggerAvailableNow
except ImportError:  # PySpark 4.0 and 4.1, which ask for none of them

    class ReadAllAvailable:  # type: ignore[no-redef]
        """Stands in for PySpark 4.2's class: everything that is available."""

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stands in for PySpark 4.2's class: a source that can fix its end."""


COMMIT_PAUSE = 10.0
"""Seconds from a failed commit to the next try with the same ends."""


class LogStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows one or more topics.

    Raises (when it is made):
        OptionError: options that a stream cannot have, or a schema with columns or types that the format does not have.
    """

    def __init__(self, log: Log, schema: StructType) -> None:
        check_stream(log.settings)
        log.form.check(schema)
        self.log = log
        self.maker = Maker(log.form, schema)
        self._client: Client | None = None
        self._initial: Positions | None = None
        self._pin = False
        self._drifting: set[TopicPartition] = set()
        self._last: Positions | None = None
        self._ids: dict[str, str] = {}
        self._target_ids: dict[str, str] = {}
        self._remade: set[tuple[str, str]] = set()
        self._committed: Positions | None = None
        self._commit_again = math.inf
        self._away: frozenset[TopicPartition] = frozenset()
        self._reported: dict[str, Any] = {}
        self._latest: Positions | None = None
        self._target: Positions | None = None
        self._now = False
        self._triggered = 0.0

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for workers, without the client."""
        return {**self.__dict__, "_client": None}

    # --- on the driver ---

    def client(self) -> Client:
        """Return the query's client, opened at first use."""
        if self._client is None:
            self._client = self.log.open()
            self.log.check(self._client)
            if self.log.settings.group is not None:
                self.log.check_group(self._client)
        return self._client

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the offset at which a new query begins, as JSON's values.

        Raises:
            OptionError: a start that names other partitions than there are, or a time that no record reaches.
        """
        start = LATEST if self.log.settings.start is None else self.log.settings.start
        client = self.client()
        found: Positions = retried(self.log, lambda: resolve(self.log, client, start, starting=True))
        option = self.log.settings.option("starting")
        each = self.log.numbered(client, start, option) if isinstance(start, dict) else dict.fromkeys(found, start)
        self._drifting = {key for key, place in each.items() if self.drifts(place)}
        self._pin = True
        self._initial = self._last = found
        self._ids = self.log.topic_ids()
        self.log.hold(client, found)
        return self.log.with_ids(self.log.to_json(found), self._ids)

    def drifts(self, place: Place) -> bool:
        """Return whether this start may be a later position when it is resolved again."""
        return isinstance(place, Latest) or (isinstance(place, AtTime) and self.log.settings.late == "latest")

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """Return a read limit that only says whether there is one; `latestOffset` applies the options themselves."""
        settings = self.log.settings
        if settings.max_rows is not None:
            return ReadMaxRows(settings.max_rows)
        if settings.max_bytes is not None:
            return ReadMaxBytes(settings.max_bytes)
        if settings.min_rows is not None:
            return ReadMinRows(settings.min_rows)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the query at the current ends of the log."""
        self._now = True
        client = self.client()
        self._target = retried(self.log, lambda: self.log.ends(client, self.log.partitions(client), LATEST))
        self._target_ids = self.log.topic_ids()

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next micro-batch; `start` itself when there is nothing to read.

        Args:
            start: where it begins; PySpark 4.0 and 4.1 do not give it.
            limit: Spark's limit: everything (Trigger.Once), or as the options say.
        Raises:
            DataLoss: a topic was deleted and made again (unless failOnDataLoss is false).
        """
        reported = start if start is not None else self._reported
        begin = self.log.from_json(self.client(), start) if start is not None else self._last
        if begin is not None and begin != self._initial and self.log.lag_only:
            self.committed(begin)
        known = self._ids if start is None else self.log.ids_in(start)
        at, latest, ids = self.newest(begin, known)
        self._latest = latest
        pins = self._drifting if self._pin and begin is not None and begin == self._initial else set()
        if at is not None and pins:
            latest = {key: at[key] if key in pins and key in at else place for key, place in latest.items()}
        self._pin = False
        if at is not None and (limit is None or not isinstance(limit, ReadAllAvailable)):
            admitted = self.admitted(at, latest)
            at, latest, ids = (begin, begin or {}, known) if admitted is None else (at, admitted, ids)
        self._last, self._ids = latest, ids
        if pins or not at == begin == latest or not reported:
            reported = self.log.pin(self.log.with_ids(self.log.to_json(latest), ids), pins)
        self._reported = reported  # the same text for the same positions: Spark compares texts
        return reported

    def newest(self, begin: Positions | None, known: Mapping[str, str]) -> tuple[Positions | None, Positions, dict[str, str]]:
        """Look up where the logs end, or take the fixed end of the query.

        A broker that has just become leader may report an earlier end than was reported before: it is asked again.

        Args:
            begin: where the micro-batch begins. known: ids of its topics.
        Returns:
            where it begins in topics that were not made again; the ends; the ids of their topics.
        """
        client, settings = self.client(), self.log.settings
        if self._target is not None:
            begin = self.in_same_topics(begin, known, self._target_ids)
            return begin, self.held(begin, self._target), self._target_ids
        for left in range(settings.tries - 1, -1, -1):
            found = retried(self.log, lambda: self.log.ends(client, self.log.partitions(client), LATEST))
            ids = self.log.topic_ids()
            at = self.in_same_topics(begin, known, ids)
            found = self.held(at, found)
            if not behind(at, found) or not left:
                break
            time.sleep(settings.pause)
        return at, found, ids

    def in_same_topics(self, begin: Positions | None, known: Mapping[str, str], ids: Mapping[str, str]) -> Positions | None:
        """Return the start without topics that were deleted and made again, which are reported as lost.

        The partitions of the new topic count as added ones.

        Args:
            begin: the start. known: ids of its topics. ids: ids of the topics now.
        """
        again = set(remade(known, ids))
        for topic in sorted(again):
            if (topic, ids[topic]) not in self._remade:
                self.log.lost(f"the topic {topic} was deleted and made again")
                self._remade.add((topic, ids[topic]))
        return begin and {key: place for key, place in begin.items() if key[0] not in again}

    def held(self, begin: Positions | None, found: Positions) -> Positions:
        """Return the ends, none before `begin` where the log itself continues there: a transaction is open, which the query ignored before.

        Partitions that are missing since their broker is away keep their position.
        """
        missing = {} if begin is None else {key: place for key, place in begin.items() if key not in found}
        if missing:
            away = self.log.away(self.client(), missing)
            if away.keys() - self._away:
                logger.warning("%s-wire: nothing is read from %s while their brokers are away", self.log.protocol, named(away))
            self._away = frozenset(away)
            found = {**found, **away}
        back = behind(begin, found)
        if begin is None or not back:
            return found
        true = self.log.written(self.client(), back)
        return {**found, **{key: begin[key] for key in back if key in true and true[key] >= begin[key]}}

    def admitted(self, begin: Positions, latest: Positions) -> Positions | None:
        """Return the ends of a micro-batch under the options' limits; None where there is to be no micro-batch yet."""
        settings, client = self.log.settings, self.client()
        fresh = latest.keys() - begin.keys()
        start = {**begin, **(self.log.ends(client, fresh, EARLIEST) if fresh else {})}
        now = time.monotonic()
        delayed = settings.min_rows is not None and not self._now and self._triggered and now - self._triggered < settings.max_delay
        if delayed and self.log.waiting(client, start, latest) < (settings.min_rows or 0):
            return None
        self._triggered = now
        if settings.max_rows is None and settings.max_bytes is None:
            return latest
        return self.log.limit(client, {key: start[key] for key in latest if key in start}, latest)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the ends as last looked up: beside the query's own offsets they show its lag."""
        return None if self._latest is None else self.log.to_json(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch, after a check that everything in it still exists.

        Raises:
            OptionError: the offsets are another source's.
            DataLoss: partitions or records of it are gone (unless failOnDataLoss is false).
        """
        if start == end:
            self._last, self._reported = (
                self.log.from_json(self.client(), start),
                start,
            )  # this call is how PySpark 4.0 and 4.1 say where a query continues
            self._ids = self.log.ids_in(start)
            return []
        log, client = self.log, self.client()
        begin, stop = log.from_json(client, start), log.from_json(client, end)
        first = self._drifting & stop.keys() if begin == self._initial else set()
        replayed = {key for key in first if log.pinned(end, key)}
        # its end is not marked, and it did not begin where this query would begin: another connector planned it
        foreign = {key: stop[key] for key in first - replayed if not log.pinned(start, key)}
        if self._pin and begin == self._initial and begin.keys() & stop.keys():
            # a micro-batch that is run again, since `latestOffset` was not called: partitions that its end lacks were added later, and the
            # next micro-batch reads them from their beginning
            begin = {key: place for key, place in begin.items() if key in stop}
        before, ids = log.ids_in(start), log.ids_in(end)
        begin = self.in_same_topics(begin, before, ids) or {}
        gone = begin.keys() - stop.keys()
        if gone:
            other = "; or the checkpoint is another query's: give this one a checkpointLocation of its own" if gone == begin.keys() else ""
            log.lost(f"partitions {named(gone)} have been deleted{other}")
        if foreign:
            log.lost(
                f"the first micro-batch of this checkpoint was planned by another connector and not finished, and where it began in "
                f"{named(foreign)} is not known here: run it with that connector once, or give the query a checkpointLocation of its own"
            )
            begin = {**begin, **foreign}
        begin = self.with_new(begin, stop)
        self._last, self._reported, self._ids = stop, end, ids
        spans: list[Span] = []
        for key in sorted(stop.keys() & begin.keys()):
            if begin[key] < stop[key]:
                spans.append(Span(*key, begin[key], stop[key]))
            elif stop[key] < begin[key] and key not in replayed:
                log.lost(f"{key[0]}-{key[1]} went back from {begin[key]} to {stop[key]}: its topic was deleted and made again, or cut off")
        spans = log.cut(client, spans) if spans else []
        for span in spans:
            span.identity = ids.get(span.topic, span.identity)
        return spans

    def with_new(self, begin: Positions, stop: Positions) -> Positions:
        """Return the start with the partitions added since, which begin at their beginning.

        Raises:
            DataLoss: an added partition does not exist any more, or has lost its beginning (unless failOnDataLoss is false).
        """
        fresh = stop.keys() - begin.keys()
        if not fresh:
            return begin
        log, client = self.log, self.client()
        present = set(log.partitions(client))
        if not fresh <= present:
            log.lost(f"partitions {named(fresh - present)} are not found; they may have been deleted")
        first = log.ends(client, fresh & present, EARLIEST)
        for key, place in first.items():
            if not log.began(place):
                log.lost(f"the added partition {key[0]}-{key[1]} starts at {place} instead of its beginning")
        return {**begin, **first}

    def commit(self, end: dict[str, Any]) -> None:
        """Commit to the group: Spark has processed everything before `end`."""
        self.committed(self.log.from_json(self.client(), end))

    def committed(self, ends: Positions) -> None:
        """Commit these ends to the group, once.

        A failure is logged, and the commit tried again after `COMMIT_PAUSE`; the query continues, since commits only serve lag tools.
        """
        if self.log.settings.group is None or (ends == self._committed and time.monotonic() < self._commit_again):
            return
        self._committed, self._commit_again = ends, math.inf
        try:
            absent = self.log.commit(self.client(), ends)
        except WireprotoError as why:
            self._commit_again = time.monotonic() + COMMIT_PAUSE
            logger.warning("%s-wire: the ends of a micro-batch were not committed: %s", self.log.protocol, why)
        else:
            if absent:
                logger.warning(
                    "%s-wire: the ends of %s were not committed: these partitions do not exist", self.log.protocol, named(absent)
                )

    def stop(self) -> None:
        """Close the client at the end of the query."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(WireprotoError):  # the query is over; the connection's end tells the broker what `close` could not
                client.close(timeout=5.0)

    # --- in workers ---

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a partition's records as Arrow batches of the requested schema."""
        return batch.read(self.log, self.maker, partition)


def behind(begin: Positions | None, found: Positions) -> list[TopicPartition]:
    """Return the partitions that would go back from `begin`."""
    return [key for key, place in found.items() if begin is not None and key in begin and place < begin[key]]


class Refused(DataSourceStreamReader):
    """Stands in for a reader that cannot be made: PySpark shows the errors of its methods, but hides those of its constructor."""

    def __init__(self, why: WireprotoError) -> None:
        self.why = why

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Raise the error."""
        raise self.why

    def latestOffset(self, start: dict[str, Any] | None = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        """Raise the error."""
        raise self.why

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Raise the error."""
        raise self.why

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raise the error."""
        raise self.why

    def stop(self) -> None:
        """Do nothing: no client was opened."""
