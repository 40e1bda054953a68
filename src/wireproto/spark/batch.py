"""Reads logs in batch queries: plans ranges on the driver and reads them as Arrow in the workers.

`LogReader` is Spark's DataSourceReader over a `Log`, for all protocols. It is made on the driver and pickled to the workers, so it holds
options only. It must not know a protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from ..errors import WireprotoError
from ..position import EARLIEST, LATEST, AtTime, Position
from . import worker
from .bounds import bind, bound_now, located, wanted
from .columns import Maker
from .log import Log, Positions, Span, remade
from .options import check_batch
from .pushdown import Pushed, Pushing

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ..records import Batch
    from ..roles import Client


class Nothing(InputPartition):
    """The only partition of a read that has nothing to read: Spark wants at least one."""

    def __init__(self) -> None:
        super().__init__(None)


class LogReader(DataSourceReader):
    """Reads ranges of one or more topics.

    Raises (when it is made):
        OptionError: options that a batch query cannot have, or a schema with columns or types that the format does not have.
    """

    def __init__(self, log: Log, schema: StructType) -> None:
        check_batch(log.settings)
        log.form.check(schema)
        self.log = log
        self.maker = Maker(log.form, schema)
        self.pushed = Pushed()

    @property
    def pushFilters(self) -> Pushing:  # noqa: N802
        """Return the callable that takes Spark's filters; see `pushdown.py`.

        This is a property since Spark refuses a reader that defines the method while push-down is off.
        """
        log = self.log
        if not log.settings.push_down:
            return Pushing(list)
        return Pushing(lambda filters: self.pushed.take(filters, offsets="offset" in log.form.columns, times=log.record_times))

    def partitions(self) -> list[InputPartition]:
        """Plan the read: look up where each partition of the topics starts and ends now, and cut the ranges into tasks.

        Returns:
            the `Span`s to read, or one `Nothing` when there are none.
        Raises:
            OptionError: bounds that name other partitions than there are, or a starting time that no record reaches.
            DataLoss: a topic was deleted and made again during planning, or a bound lies outside of the log (unless failOnDataLoss is
                false).
        """
        log, settings = self.log, self.log.settings
        with log.open() as client:
            log.check(client)
            starts = wanted(log, client, EARLIEST if settings.start is None else settings.start, settings.option("starting"))
            before = dict(log.topic_ids())
            stops = wanted(log, client, LATEST if settings.stop is None else settings.stop, settings.option("ending"))
            for topic in remade(before, log.topic_ids()):
                log.lost(f"the topic {topic} was deleted and made again while its read was planned")
            start = located(log, client, starts, starting=True)
            stop = located(log, client, stops, starting=False)
            stop = self.reachable(client, start, stop)
            start, stop = self.pushed.trim(log, client, start, stop)
            keys = sorted(start.keys() & stop.keys())
            spans = log.cut(client, [Span(*key, start[key], stop[key]) for key in keys if start[key] < stop[key]])
            if not self.pushed:
                empty = [Span(*key, start[key], start[key]) for key in keys if not start[key] < stop[key]]
                spans += log.known(client, [span for span in empty if not isinstance(stops[span.key], Position)])
                bind(spans, starts, stops)
        return [*spans] or [Nothing()]

    def reachable(self, client: Client, start: Positions, stop: Positions) -> Positions:
        """Return the ends, moved back to where the log ends: a task would wait there for records that nobody has written.

        Where an end lies before its start, the topic was probably made again, so that the start is an offset of the old one: nothing is
        read there, and that is reported. Only where a transaction is open the log continues behind the end that is shown to readers.

        Args:
            client: of the driver. start, stop: planned positions by partition.
        Raises:
            DataLoss: an end that the user gave lies beyond the log's, or a start behind its end (unless failOnDataLoss is false).
        """
        given = isinstance(self.log.settings.stop, dict | AtTime)
        inverted = [key for key, end in stop.items() if key in start and end < start[key]]
        latest = self.log.written(client, stop if given else inverted) if given or inverted else {}
        option = self.log.settings.option("ending")
        for key, end in stop.items() if given else ():
            if latest[key] < end:
                self.log.lost(f"{option} asks for {key[0]}-{key[1]} up to {end}, and the log ends at {latest[key]}")
                stop = {**stop, key: latest[key]}
        for key, end in stop.items():
            if key in start and end < start[key] and (given or latest[key] < start[key]):
                self.log.lost(f"{key[0]}-{key[1]} starts at {start[key]}, behind its end {end}")
        return stop

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a partition's records as Arrow batches of the requested schema."""
        return read(self.log, self.maker, partition)


def read(log: Log, maker: Maker, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield one task's records as Arrow batches, for a batch query or a micro-batch.

    Args:
        log: the protocol's log. maker: makes the columns. partition: a `Span`; anything else has no records.
    Raises:
        DataLoss: records are gone (unless failOnDataLoss is false). TimedOut: no record came within `ReadSettings.poll_timeout`.
    """
    if not isinstance(partition, Span):
        return
    client = worker.client(log.settings.url, log.settings.client)
    try:
        try:
            span = bound_now(log, client, log.here(client, partition))
            if span is not None:
                yield from maker.stream(as_planned(log.read(client, span, maker.names), partition.partition))
        except log.gone:
            log.lost(f"{partition.topic}-{partition.partition} was to be read up to {partition.stop} and is not there any more")
    except WireprotoError:
        worker.forget(log.settings.url, log.settings.client)
        raise


def as_planned(batches: Iterable[Batch], partition: int) -> Iterator[Batch]:
    """Yield the batches with the number that the driver has for their partition."""
    for batch in batches:
        batch.partition = partition
        yield batch
