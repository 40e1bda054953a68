"""Halves of a batch that a topic does not take as one: their records, numbers and places; and what is not split."""

from __future__ import annotations

from typing import Any

import pytest

from flow_parts import Outcome
from wireproto._codec import KafkaBatchBuilder, OutBatch, decode_kafka
from wireproto.errors import ValueUnsupported
from wireproto.flow.queue import PartitionQueue, UnnumberedSequencer
from wireproto.kafka import outgoing
from wireproto.kafka.identity import MAX_SEQUENCE, NO_IDENTITY, Identity

ROWS: list[tuple[Any, Any, Any, int]] = [
    (b"one", b"k", (("h", b"1"), ("h", None)), 1000),
    (None, None, (), 900),
    (b"", b"", (("n", b""),), 1 << 41),
    (b"four", b"key", (), 1000),
    (b"x" * 500, None, (), 0),
]


def batch(codec: str = "none", rows: list[tuple[Any, Any, Any, int]] = ROWS, who: Identity = NO_IDENTITY, sequence: int = -1) -> OutBatch:
    builder = KafkaBatchBuilder(compression=codec)
    for value, key, headers, time_ms in rows:
        assert builder.append(value, key, headers, time_ms)
    made = OutBatch(PartitionQueue(("t", 3), UnnumberedSequencer()), 7, 12.5, builder, Outcome(), None, who)
    made.grow(len(rows), builder.size)
    made.sequence = sequence
    made.seal()
    return made


def stored(part: OutBatch) -> list[tuple[Any, Any, Any, Any]]:
    columns, _ = decode_kafka(outgoing.sealed(part), topic="t", partition=3, fetch_offset=0)
    return [(record.value, record.key, record.headers, record.timestamp) for record in columns.records("t", 3)]


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_halves_hold_what_the_whole_held(codec: str) -> None:
    whole = batch(codec)
    parts = outgoing.halves(whole, lambda: KafkaBatchBuilder(compression=codec))
    assert parts is not None
    one, two = parts.batches
    assert (stored(one), stored(two)) == (ROWS[:2], ROWS[2:])
    for part in (one, two):
        assert (part.key, part.serial, part.created, part.sealed, part.owner, part.queue) == (("t", 3), 7, 12.5, True, parts, whole.queue)
        assert (part.identity, part.sequence) == (NO_IDENTITY, -1)


def test_halves_are_numbered_as_their_records_were() -> None:
    who = Identity(4, 1)
    for first, second in ((10, 12), (MAX_SEQUENCE - 1, 0), (MAX_SEQUENCE, 1)):
        parts = outgoing.halves(batch(who=who, sequence=first), KafkaBatchBuilder)
        assert parts is not None
        assert [(part.identity, part.sequence) for part in parts.batches] == [(who, first), (who, second)]


def test_what_may_be_stored_and_what_is_one_record_is_not_split() -> None:
    doubtful = batch()
    doubtful.doubtful = True
    assert outgoing.halves(doubtful, KafkaBatchBuilder) is None
    assert outgoing.halves(batch(rows=ROWS[:1]), KafkaBatchBuilder) is None


def test_halves_that_do_not_fit_are_none() -> None:
    """A builder that takes less than the whole's: nothing is lost by it, the batch is refused."""
    assert outgoing.halves(batch(rows=ROWS[:4] * 20), lambda: KafkaBatchBuilder(limit=100)) is None


@pytest.mark.parametrize("refused", [[0], [4], [1, 2], [0, 4], [0, 2, 4], [0, 1, 2, 3]])
def test_without_the_refused_records_the_others_are_one_batch(refused: list[int]) -> None:
    who = Identity(4, 1)
    whole = batch(who=who, sequence=10)
    parts = outgoing.others(whole, refused, KafkaBatchBuilder)
    assert parts is not None
    [rest] = parts.batches
    kept = [number for number in range(len(ROWS)) if number not in refused]
    assert stored(rest) == [ROWS[number] for number in kept]
    assert (rest.identity, rest.sequence, rest.serial, rest.owner) == (who, 10, 7, parts)
    for number in refused:
        parts.refuse(number, ValueUnsupported(f"{number}"))
    for number in refused:
        part, at = parts.find(number)
        assert (str(part.outcome.error), at) == (f"{number}", 0)
    assert [parts.find(number) for number in kept] == [(rest, at) for at in range(len(kept))]


def test_all_refused_and_what_may_be_stored_has_no_others() -> None:
    assert outgoing.others(batch(), [0, 1, 2, 3, 4], KafkaBatchBuilder) is None
    doubtful = batch()
    doubtful.doubtful = True
    assert outgoing.others(doubtful, [2], KafkaBatchBuilder) is None
