"""What a Python source cannot put into Spark's progress reports, facts beside them: lag, and commits on time.

What it is: a StreamingQueryListener, added by `watch(spark)`. After each micro-batch it logs one line of JSON a source, with how far the
query's end lies behind the log's, as the JVM's connector shows it in `metrics`; given a client and a group of Kafka's, it commits the ends
there at once. The option `commitOffsetsToGroup` commits them when Spark next asks for news: after the trigger's interval.

    wireproto.spark INFO {"query": "orders", "batch": 7, "rows": 120, "behind": {"min": 0, "avg": 3.5, "max": 14}}

May assume: offsets that are numbers (Kafka's, RocketMQ's); sources with others have no "behind". Must not: fail a query.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from ..errors import OptionError, WireprotoError
from ..position import LogOffset
from .log import logger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..kafka.client import KafkaClient


class Lag(StreamingQueryListener):
    """Logs the lag of each source, and commits where it was given a group.

    Args:
        client: of the cluster whose topics the queries read; stays the caller's, who closes it.
        group: commit the ends of micro-batches to it. Nobody may be a member of it.
        name: of the query whose ends are committed; None: of every query, so that there should be one.
    """

    def __init__(self, client: KafkaClient | None = None, group: str | None = None, name: str | None = None) -> None:
        if (client is None) != (group is None):
            raise OptionError("a client and a group go together: whose ends would be committed where?")
        self._client, self._group, self._name = client, group, name
        self._lock = threading.Lock()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Nothing is known yet."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing has changed."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """The last micro-batch was facts before."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        report = event.progress
        for source in report.sources:
            ends, newest = offsets(source.endOffset), offsets(source.latestOffset)
            facts: dict[str, Any] = {"query": report.name or str(report.id), "batch": report.batchId, "rows": source.numInputRows}
            if ends is not None and newest is not None:
                facts["behind"] = behind(ends, newest)
            logger.info("%s", json.dumps(facts))
            if ends is not None and self._group is not None and self._name in (None, report.name):
                self._commit(ends)

    def _commit(self, ends: dict[tuple[str, int], int]) -> None:
        assert self._client is not None
        assert self._group is not None
        places = {key: LogOffset(*key, offset) for key, offset in ends.items()}
        try:
            with self._lock:
                gone = self._client.admin().commit(self._group, places)
            if gone:
                shown = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(gone))
                logger.warning("not committed to %s, since they are not there: %s", self._group, shown)
        except WireprotoError as why:
            logger.warning("the ends of a micro-batch were not committed to %s: %s", self._group, why)


def offsets(text: str | None) -> dict[tuple[str, int], int] | None:
    """Offsets of a progress report by partition; None where they are no numbers, or none are facts."""
    try:
        tree = json.loads(text or "null")
        return {(topic, int(partition)): int(offset) for topic, inner in tree.items() for partition, offset in inner.items()}
    except (AttributeError, TypeError, ValueError):
        return None


def behind(ends: dict[tuple[str, int], int], newest: dict[tuple[str, int], int]) -> dict[str, float]:
    """How many offsets the partitions still have before them: the least, the mean, the most."""
    gaps = [max(0, end - ends.get(key, 0)) for key, end in newest.items()]
    return {"min": min(gaps), "avg": sum(gaps) / len(gaps), "max": max(gaps)} if gaps else {"min": 0, "avg": 0, "max": 0}


def watch(spark: SparkSession, client: KafkaClient | None = None, group: str | None = None, *, name: str | None = None) -> Lag:
    """Log the lag of this session's queries at INFO of the logger ``wireproto.spark``, and commit their ends to a group where one is given.

    Args:
        client, group, name: see `Lag`.
    Returns:
        the listener; ``spark.streams.removeListener`` takes it away.
    """
    found = Lag(client, group, name)
    spark.streams.addListener(found)
    return found
