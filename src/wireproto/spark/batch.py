"""The batch reader that all logs share: plan ranges on the driver, read them as Arrow in the workers.

What it is: a DataSourceReader over a `Log`. Made on the driver and pickled to the workers; it holds options alone.
Must not: know a protocol.
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
    """The one task of a read that has nothing to read: Spark wants at least one."""

    def __init__(self) -> None:
        super().__init__(None)


class LogReader(DataSourceReader):
    """Reads ranges of one or more topics."""

    def __init__(self, log: Log, schema: StructType) -> None:
        check_batch(log.settings)
        log.form.check(schema)
        self.log = log
        self.maker = Maker(log.form, schema)
        self.pushed = Pushed()

    @property
    def pushFilters(self) -> Pushing:  # noqa: N802
        """See `pushdown.py`: a method of its own would be refused while push-down is off."""
        log = self.log
        if not log.settings.push_down:
            return Pushing(list)
        return Pushing(lambda filters: self.pushed.take(filters, offsets="offset" in log.form.columns, times=log.record_times))

    def partitions(self) -> list[InputPartition]:
        """Ask the cluster where the ranges begin and end now."""
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
        """The ends, none beyond what the log holds: a task would wait there for records that nobody has written.

        A start behind its end was a place once, if the topic was made again: that nothing is read there is told. Only where a transaction
        is open the log goes on behind its end.
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
        """Yield the range as Arrow batches of the requested schema."""
        return read(self.log, self.maker, partition)


def read(log: Log, maker: Maker, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """One task, of a batch or a stream."""
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
    """Batches under the number that the driver has for their partition."""
    for batch in batches:
        batch.partition = partition
        yield batch
