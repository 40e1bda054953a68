"""Finds the offset of a time in a partition, by the timestamps of the records.

Brokers find the first entry of a log that is as late as a time, and transaction markers are entries, with the time at which the
transaction ended: where records have older timestamps than that, as after a backfill, a marker is found in their place, and no response
says which of the two it is. So what a broker answers is where the search begins here: a time resolves to the first record behind it that
is as late, as a reader sees it. Timestamps need not be in order. Nothing is read for requests without a time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import DataLoss, TimedOut, WireprotoError
from ..flow.resolve import Request
from ..net.task import Steps
from ..position import AtTime, TopicPartition
from . import positions
from .codes import OffsetOutOfRange
from .fetcher import Fetcher

if TYPE_CHECKING:
    from .cluster import KafkaCluster
    from .options import KafkaOptions

_BYTES = 1 << 16
"""Bytes to fetch of a partition at a time: most often its first record is the one."""


def finding(
    cluster: KafkaCluster,
    requests: Mapping[TopicPartition, Request],
    until: float,
    options: KafkaOptions,
    *,
    later: dict[TopicPartition, WireprotoError] | None = None,
    patience: float | None = None,
) -> Steps[dict[TopicPartition, int]]:
    """Resolve requests to offsets now; times by the timestamps of records that these options let be read.

    Args:
        requests: by partition. until: the deadline, a time.monotonic() value. options: of the reader.
        later: takes the partitions that have no leader, or whose leader does not answer, and why; they are left out. None: they are waited
            for. patience: see `positions.listing`.
    Raises:
        the broker's error, TimedOut; `known` has the positions that were found.
    """
    if later is not None:
        return (yield from _finding(cluster, requests, until, options, later, patience))
    late: dict[TopicPartition, WireprotoError] = {}
    found = yield from _finding(cluster, requests, until, options, late)
    if late:
        try:
            found |= yield from _finding(cluster, {key: requests[key] for key in late}, until, options, None)
        except WireprotoError as why:
            why.known = {**positions.log_positions(found), **(why.known or {})}
            raise
    return found


def _finding(
    cluster: KafkaCluster,
    requests: Mapping[TopicPartition, Request],
    until: float,
    options: KafkaOptions,
    later: dict[TopicPartition, WireprotoError] | None,
    patience: float | None = None,
) -> Steps[dict[TopicPartition, int]]:
    """Resolve requests by ListOffsets, then times by reading."""
    committed = options.isolation == "committed"
    found, ends = yield from positions.finding(cluster, requests, until, committed=committed, later=later, patience=patience)
    times: dict[TopicPartition, int] = {}
    for key, request in requests.items():
        if isinstance(request, AtTime) and request.ms > 0 and key in found and found[key] < ends[key]:
            times[key] = request.ms
    if times:
        found |= yield from _records(cluster, times, {key: (found[key], ends[key]) for key in times}, until, options)
    return found


def _records(
    cluster: KafkaCluster,
    times: Mapping[TopicPartition, int],
    ranges: Mapping[TopicPartition, tuple[int, int]],
    until: float,
    options: KafkaOptions,
) -> Steps[dict[TopicPartition, int]]:
    """Return the offsets of the first records of these ranges that are as late as the times, or else the ranges' ends."""
    found: dict[TopicPartition, int] = {}
    purpose = cluster.bulk()
    looking = replace(options, columns=None, partition_bytes=_BYTES, on_corrupt="skip", reset="raise")
    fetcher = Fetcher(cluster, looking, purpose)
    try:
        for key, (start, end) in ranges.items():
            fetcher.asking.add(*key, start, end)
        while not fetcher.plan.done:
            try:
                batch = yield from fetcher.polling(until)
            except (OffsetOutOfRange, DataLoss):  # raised again to the role that begins to read there
                return {key: found.get(key, start) for key, (start, _) in ranges.items()}
            if batch is None:
                if time.monotonic() >= until:
                    raise TimedOut("the records at a timestamp were not read in time")
                continue
            ((key, _),) = batch.next_positions.items()
            for index, timestamp in enumerate(batch.columns.timestamps()):
                if timestamp is not None and timestamp >= times[key]:
                    found[key] = batch.columns.record(index, *key).position.offset  # type: ignore[attr-defined]
                    fetcher.plan.remove(key)
                    break
    finally:
        fetcher.close()
        cluster.give_back(purpose, keep=True)
    return {key: found.get(key, end) for key, (_, end) in ranges.items()}
