"""Logs the lag of queries and commits their ends on time, which a Python source cannot do by Spark's progress reports.

`Lag` is a StreamingQueryListener, added by `watch(spark)`. After each micro-batch it logs one line of JSON for each source, with the
distance between the query's end and the log's, which the JVM's connector shows in `metrics`. Given a client and a group of Kafka's, it
commits the ends there at once. (The option `commitOffsetsToGroup` commits them when Spark next asks for the latest offset: after the
trigger's interval.)

    wireproto.spark INFO {"query": "orders", "batch": 7, "rows": 120, "behind": {"min": 0, "avg": 3.5, "max": 14}}

Offsets must be numbers (Kafka's, RocketMQ's); sources with others have no "behind". A listener must not fail a query.
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
        client: of the cluster whose topics the queries read; the caller closes it.
        group: the ends of micro-batches are committed to it. It must have no members.
        name: of the query whose ends are committed; None: of every query, so that there should be only one.
    Raises:
        OptionError: only one of client and group is given.
    """

    def __init__(self, client: KafkaClient | None = None, group: str | None = None, name: str | None = None) -> None:
        if (client is None) != (group is None):
            raise OptionError("client and group go together: pass both, or neither")
        self._client, self._group, self._name = client, group, name
        self._lock = threading.Lock()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Do nothing: there is no lag yet."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Do nothing: the lag has not changed."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Do nothing: the last micro-batch was reported before."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Log the lag of each source of the query, and commit its ends."""
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
                logger.warning("not committed to group %s, since these partitions do not exist: %s", self._group, shown)
        except WireprotoError as why:
            logger.warning("the ends of a micro-batch were not committed to group %s: %s", self._group, why)


def offsets(text: str | None) -> dict[tuple[str, int], int] | None:
    """Parse the offsets of a progress report, by partition; None where they are missing or no numbers."""
    try:
        tree = json.loads(text or "null")
        return {(topic, int(partition)): int(offset) for topic, inner in tree.items() for partition, offset in inner.items()}
    except (AttributeError, TypeError, ValueError):
        return None


def behind(ends: dict[tuple[str, int], int], newest: dict[tuple[str, int], int]) -> dict[str, float]:
    """Return how many offsets the partitions are behind the log's end: the minimum, mean and maximum."""
    gaps = [max(0, end - ends.get(key, 0)) for key, end in newest.items()]
    return {"min": min(gaps), "avg": sum(gaps) / len(gaps), "max": max(gaps)} if gaps else {"min": 0, "avg": 0, "max": 0}


def watch(spark: SparkSession, client: KafkaClient | None = None, group: str | None = None, *, name: str | None = None) -> Lag:
    """Log the lag of this session's queries at INFO of the logger ``wireproto.spark``, and commit their ends to a group where one is given.

    Args:
        client, group, name: as in `Lag`.
    Returns:
        the listener; ``spark.streams.removeListener`` removes it.
    Raises:
        OptionError: only one of client and group is given.
    """
    found = Lag(client, group, name)
    spark.streams.addListener(found)
    return found
