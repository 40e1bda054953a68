"""Counts what Pulsar's message ids do not tell: how many records lie between two of them, and where to split them.

    limits   maxOffsetsPerTrigger, maxBytesPerTrigger, minOffsetsPerTrigger   the driver reads ahead, decoding ids only, and counts
    splits   minPartitions         ledgers and their numbers of entries from the admin interface; without it, publish times

These are driver-side helpers of Pulsar's `Log`. Limits cut between entries, so that a stored batch is never split; the first entry of a
micro-batch is always taken. Ends are stored in the checkpoint, so a micro-batch that is run again is the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import pyarrow as pa

from ..errors import TimedOut
from ..position import MessageId, TopicPartition
from .log import Positions, Span

if TYPE_CHECKING:
    from ..pulsar.client import PulsarClient
    from ..records import Batch
    from ..roles import Client
    from .log import Log

AHEAD = 4 << 20  # bytes that the reader that counts may read ahead
FIRST_STEP = 250  # milliseconds back from now; doubled until the span's start is reached
Entry = tuple[TopicPartition, MessageId, int, int]  # partition, position after the entry, rows, bytes
Ledger = tuple[int, int]  # id, entries


def limited(
    client: PulsarClient, start: Positions, latest: Positions, rows: int | None, size: int | None, poll_timeout: float
) -> Positions:
    """Return ends with at most `rows` and `size` before them, but one entry at least.

    Args:
        start, latest: where the micro-batch begins, and where the topics end. rows: number of records; None: any.
        size: bytes of keys, values and headers; None: any. poll_timeout: seconds to wait for a record.
    Raises:
        TimedOut: no record came within `poll_timeout`.
    """
    ends = {key: start.get(key, place) for key, place in latest.items()}
    taken = weight = 0
    full: set[TopicPartition] = set()
    for key, behind, count, heavy in entries(client, start, latest, poll_timeout, sizes=size is not None):
        if key in full:
            continue
        over = (rows is not None and taken + count > rows) or (size is not None and weight + heavy > size)
        if over and taken:
            full.add(key)
            if (rows is None or taken < rows) and full != ends.keys():
                continue  # smaller entries of other partitions may still fit
            return ends
        ends[key] = behind
        taken += count
        weight += heavy
        if (rows is not None and taken >= rows) or (size is not None and weight >= size):
            return ends
    return {key: place if key not in full else ends[key] for key, place in latest.items()}


def entries(client: PulsarClient, start: Positions, latest: Positions, poll_timeout: float, *, sizes: bool = False) -> Iterator[Entry]:
    """Yield the entries between two sets of positions; the partitions of a topic take turns.

    Args:
        sizes: decode keys, values and headers, so that the entries' bytes are counted.
    Raises:
        TimedOut: no record came within `poll_timeout` seconds.
    """
    columns = ("ledger", "entry", "key", "value", "headers") if sizes else ("ledger", "entry")
    for topic in sorted({topic for topic, _ in latest}):
        starts = {key: start[key] for key, place in latest.items() if key[0] == topic and key in start and start[key] < place}
        if not starts:
            continue
        stops = {key: latest[key] for key in starts}
        deadline = time.monotonic() + poll_timeout
        with client.reader(
            topic, start=starts, stop=stops, columns=columns, receive_memory=AHEAD, create_topic=False, reset="earliest"
        ) as reader:
            while not reader.done:
                batch = reader.poll(1.0)
                if batch is not None:
                    deadline = time.monotonic() + poll_timeout
                    yield from of_batch(batch)
                elif not reader.done and time.monotonic() >= deadline:
                    raise TimedOut(f"no record came within {poll_timeout:g} s while records were counted", topic=topic)


def of_batch(batch: Batch) -> Iterator[Entry]:
    """Yield the entries of one batch."""
    table = pa.record_batch(batch)
    ledgers, numbers = table.column("ledger"), table.column("entry")
    rows = table.num_rows
    cuts = [0]
    if rows > 1:
        import pyarrow.compute as pc  # see `columns.py`

        changed = pc.or_(pc.not_equal(numbers[1:], numbers[:-1]), pc.not_equal(ledgers[1:], ledgers[:-1]))
        cuts += [place + 1 for place in pc.indices_nonzero(changed).to_pylist()]
    for begin, end in zip(cuts, [*cuts[1:], rows], strict=True):
        place = MessageId(batch.topic, batch.partition, ledgers[begin].as_py(), numbers[begin].as_py() + 1)
        yield (batch.topic, batch.partition), place, end - begin, table.slice(begin, end - begin).nbytes - 16 * (end - begin)


class Counter:
    """Counts the rows that wait, up to a number that is enough; continues where it stopped as long as the start is the same."""

    def __init__(self) -> None:
        self._start: Positions = {}
        self._upto: Positions = {}
        self._rows = 0

    def count(self, client: PulsarClient, start: Positions, latest: Positions, enough: int, poll_timeout: float) -> int:
        """Return the rows between two sets of positions, counted up to `enough`; raises TimedOut as `entries` does."""
        if start != self._start:
            self._start, self._upto, self._rows = dict(start), dict(start), 0
        if self._rows < enough:
            for key, behind, rows, _ in entries(client, self._upto, latest, poll_timeout):
                self._upto[key] = behind
                self._rows += rows
                if self._rows >= enough:
                    break
        return self._rows


# --- splits ---


def split(log: Log, client: PulsarClient, spans: list[Span], least: int) -> list[Span]:
    """Cut the spans into about `least` pieces."""
    if client.admin().url is not None:
        return by_ledgers(client, spans, least)
    return [piece for span in spans for piece in by_time(log, client, span, -(-least // len(spans)))]


def by_ledgers(client: PulsarClient, spans: list[Span], least: int) -> list[Span]:
    """Cut the spans into pieces with about the same number of entries."""
    inside = [within(ledgers(client, span), span) for span in spans]
    total = sum(count for found in inside for _, _, count in found) or 1
    pieces: list[Span] = []
    for span, found in zip(spans, inside, strict=True):
        entries = sum(count for _, _, count in found)
        parts = max(1, min(entries, round(least * entries / total)))
        pieces += pieces_of(span, [place_at(span, found, entries * part // parts) for part in range(1, parts)])
    return pieces


def ledgers(client: PulsarClient, span: Span) -> list[Ledger]:
    """Return (id, entries) of a partition's ledgers, in order."""
    return client.admin().ledgers(span.topic, span.partition)


def within(found: list[Ledger], span: Span) -> list[tuple[int, int, int]]:
    """Return (ledger, first entry, entries) of the part of each ledger that lies in the span."""
    start, stop = span.start, span.stop
    assert isinstance(start, MessageId)
    assert isinstance(stop, MessageId)
    parts = []
    for ledger, count in found:
        if start.ledger <= ledger <= stop.ledger:
            first = max(0, start.entry) if ledger == start.ledger else 0
            last = min(count, stop.entry + (stop.index > 0)) if ledger == stop.ledger else count
            if first < last:
                parts.append((ledger, first, last - first))
    return parts


def place_at(span: Span, found: list[tuple[int, int, int]], number: int) -> MessageId:
    """Return the position of the entry with this number within the span."""
    for ledger, first, count in found:
        if number < count:
            return MessageId(*span.key, ledger, first + number)
        number -= count
    ledger, first, count = found[-1]
    return MessageId(*span.key, ledger, first + count)


def by_time(log: Log, client: PulsarClient, span: Span, parts: int) -> list[Span]:
    """Cut the span into pieces of about the same publish time.

    The broker's SEEK by time finds the positions, for times from now back to the span's start.
    """
    stop = span.stop
    assert isinstance(stop, MessageId)

    def at(moment: int) -> MessageId:
        found = log.at_times(cast("Client", client), {span.key: moment})[span.key]
        return found if isinstance(found, MessageId) else stop

    high = int(time.time() * 1000)
    back = FIRST_STEP
    while high - back > 0 and at(high - back) > span.start:
        back *= 2
    low = max(0, high - back)
    return pieces_of(span, [at(low + (high - low) * part // parts) for part in range(1, parts)])


def pieces_of(span: Span, places: list[MessageId]) -> list[Span]:
    """Cut the span at those of the positions that lie in it."""
    bounds = [span.start, *sorted({place for place in places if span.start < place < span.stop}), span.stop]
    return [Span(*span.key, start, stop) for start, stop in pairwise(bounds)]
