"""Messages of a Pulsar batch in the layout that clients write, taken in one pass, beside the protobuf runtime and the pass for all else.

An entry with an ack set (here: nothing acked) goes the long way, message by message: both ways must say the same of any bytes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from wireproto._codec import Columns, decode_pulsar
from wireproto.pulsar import PulsarApi_pb2 as api

from .test_pulsar_batch import PUBLISHED, frame, metadata, rows_of

Message = tuple[bytes, bytes]  # metadata, payload
LENGTHS = (0, 1, 7, 8, 15, 16, 17, 31, 32, 33, 100, 127, 128, 300)
NUMBERS = (0, 1, 127, 128, 16383, 16384, 1_700_000_000_000, 2**35, 2**49 - 1, 2**56 - 1, 2**56, 2**63 - 1)


def entry_of(messages: list[Message], *, long_way: bool = False, **fields: Any) -> bytes:
    payload = b"".join(len(head).to_bytes(4, "big") + head + body for head, body in messages)
    meta = metadata(num_messages_in_batch=len(messages), **fields)
    return frame(payload, meta, ack_set=(-1,) * (len(messages) // 64 + 1) if long_way else ())


def by_protobuf(messages: list[Message]) -> list[tuple]:
    """The rows, by the protobuf runtime."""
    rows = []
    for n, (head, body) in enumerate(messages):
        single = api.SingleMessageMetadata.FromString(head)
        if single.compacted_out:
            continue
        key = single.partition_key.encode() if single.HasField("partition_key") and not single.null_partition_key else None
        properties = tuple((p.key, p.value.encode()) for p in single.properties)
        time = single.event_time - (1 << 64 if single.event_time >> 63 else 0)
        rows.append(((5, 6, n), time or PUBLISHED, key, None if single.null_value else body, properties))
    return rows


def outcome(data: bytes, **options: Any) -> tuple[Any, ...]:
    columns, (entry,) = decode_pulsar([data], topic="t", partition=0, check_crc=False, **options)
    pa.record_batch(columns).validate(full=True)
    return columns, str(type(entry.error))


def same_both_ways(messages: list[Message], **options: Any) -> Columns:
    found, error = outcome(entry_of(messages), **options)
    other, other_error = outcome(entry_of(messages, long_way=True), **options)
    assert (found, error) == (other, other_error)
    return found


def random_message(rng: random.Random) -> Message:
    """As clients write it, more or less."""
    single = api.SingleMessageMetadata(payload_size=rng.choice((0, 1, 31, 100, 127, 128, 5000, 16383, 16384)))
    for _ in range(rng.choice((0, 0, 1, 2, 9))):
        single.properties.add(key="n" * rng.choice(LENGTHS), value=rng.choice("vä") * rng.choice(LENGTHS))
    if rng.random() < 0.7:
        single.partition_key = "k" * rng.choice(LENGTHS)
    if rng.random() < 0.2:
        single.compacted_out = rng.random() < 0.5
    if rng.random() < 0.7:
        single.event_time = rng.choice(NUMBERS)
    if rng.random() < 0.2:
        single.partition_key_b64_encoded = False
    if rng.random() < 0.1:
        single.ordering_key = b"o"
    if rng.random() < 0.7:
        single.sequence_id = rng.choice(NUMBERS)
    if rng.random() < 0.05:
        single.null_value = True
    if rng.random() < 0.05:
        single.null_partition_key = True
    return single.SerializeToString(), bytes([rng.randrange(256)]) * single.payload_size


@pytest.mark.parametrize("seed", range(40))
def test_rows_are_those_of_the_protobuf_runtime(seed: int) -> None:
    rng = random.Random(seed)
    messages = [random_message(rng) for _ in range(rng.choice((1, 2, 50)))]
    assert rows_of(same_both_ways(messages)) == by_protobuf(messages)


def strange_layouts() -> Iterator[tuple[str, bytes]]:
    """Metadata of a payload of three bytes that protobuf allows and no client writes."""
    size = b"\x18\x03"
    yield "key behind the size", size + b"\x12\x01k"
    yield "two keys", b"\x12\x01a\x12\x01k" + size
    yield "two sizes", b"\x18\x05" + size
    yield "a size of three bytes", b"\x18\x83\x80\x00"
    yield "a key's length of two bytes", b"\x12\x81\x00k" + size
    yield "a property's length of two bytes", b"\x0a\x86\x00\x0a\x01n\x12\x01v" + size
    yield "value ahead of the name", b"\x0a\x06\x12\x01v\x0a\x01n" + size
    yield "a name's length of two bytes", b"\x0a\x07\x0a\x81\x00n\x12\x01v" + size
    yield "a field more in a property", b"\x0a\x08\x0a\x01n\x12\x01v\x18\x01" + size
    yield "unknown fields", size + b"\x40\x01\xc0\x3e\x01"
    yield "a sequence id of nine bytes", size + b"\x40\x81\x80\x80\x80\x80\x80\x80\x80\x00"
    yield "an event time of nine bytes", size + b"\x28\x81\x80\x80\x80\x80\x80\x80\x80\x00"
    yield "an event time of two bytes that is none", size + b"\x28\x80\x00"
    yield "properties last", size + b"\x0a\x06\x0a\x01n\x12\x01v"


@pytest.mark.parametrize(("what", "head"), list(strange_layouts()))
def test_other_layouts_are_read_as_protobuf_reads_them(what: str, head: bytes) -> None:
    usual = b"\x0a\x06\x0a\x01p\x12\x01q\x12\x01k\x18\x03\x28\x05\x40\x01"
    messages = [(usual, b"one"), (head, b"two"), (usual, b"thr")] * 20
    assert rows_of(same_both_ways(messages)) == by_protobuf(messages)


def test_names_that_are_no_ascii_or_no_utf8() -> None:
    for name in ("ü".encode(), b"\xff", b"a\xff", "日本".encode()):
        first = b"\x0a" + bytes([len(name) + 5, 0x0A, len(name)]) + name + b"\x12\x01v\x18\x00"
        usual = b"\x0a\x06\x0a\x01p\x12\x01q\x18\x00"
        found = same_both_ways([(usual, b"")] * 5 + [(first, b"")] + [(usual, b"")] * 5)
        assert found.headers() == [(("p", b"q"),)] * 5 + [((name.decode("utf-8", "replace"), b"v"),)] + [(("p", b"q"),)] * 5


def test_names_split_a_character_between_them() -> None:
    """Two names that only together are UTF-8: each is repaired by itself."""
    head = b"\x0a\x06\x0a\x01\xc3\x12\x01v\x0a\x06\x0a\x01\xbc\x12\x01w\x18\x00"
    found = same_both_ways([(head, b"")] * 3 + [(b"\x18\x00", b"x" * 0)] * 40)
    assert found.headers()[:3] == [(("\N{REPLACEMENT CHARACTER}", b"v"), ("\N{REPLACEMENT CHARACTER}", b"w"))] * 3


@pytest.mark.parametrize("columns", [["value"], ["key"], ["timestamp", "headers"], ["headers"], ["ledger", "value", "headers"], []])
def test_chosen_columns(columns: list[str]) -> None:
    rng = random.Random(1)
    messages = [random_message(rng) for _ in range(100)]
    found = same_both_ways(messages, columns=columns)
    whole = same_both_ways(messages)
    assert {name: found.column(name) for name in found.columns} == {name: whole.column(name) for name in found.columns}


def test_columns_grow_with_many_entries_of_several_shapes() -> None:
    rng = random.Random(2)
    parts = [[random_message(rng) for _ in range(300)] for _ in range(10)]
    parts[3] = [(b"\x18\x00", b"")] * 1000
    found, _ = decode_pulsar([entry_of(part) for part in parts], topic="t", partition=0)
    assert rows_of(found) == [row for part in parts for row in by_protobuf(part)]
    pa.record_batch(found).validate(full=True)


def test_bounds_inside_an_entry() -> None:
    messages = [(b"\x12\x01k\x18\x01\x40\x01", bytes([n])) for n in range(100)]
    whole = same_both_ways(messages).values()
    assert same_both_ways(messages, after=(5, 6, 41)).values() == whole[42:]
    assert same_both_ways(messages, before=(5, 6, 41)).values() == whole[:41]
    assert same_both_ways(messages, after=(5, 7, -1)).values() == []
    assert same_both_ways(messages, after=(5, 5, -1), before=(5, 7, 0)).values() == whole


@pytest.mark.parametrize("seed", range(4))
def test_both_ways_agree_on_changed_bytes(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(150):
        messages = [random_message(rng) for _ in range(6)]
        for _ in range(rng.choice((1, 1, 3))):
            place = rng.randrange(len(messages))
            head, body = messages[place]
            changed = bytearray(head[: rng.randrange(len(head)) + 1] if rng.random() < 0.2 else head)
            changed[rng.randrange(len(changed))] = rng.choice((0, 1, 0x0A, 0x12, 0x18, 0x28, 0x40, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            messages[place] = bytes(changed), body
        same_both_ways(messages)


def test_entries_cut_anywhere() -> None:
    messages = [(b"\x0a\x06\x0a\x01p\x12\x01q\x12\x01k\x18\x03\x28\x05\x40\x01", b"one")] * 8
    payload = b"".join(len(head).to_bytes(4, "big") + head + body for head, body in messages)
    for size in range(len(payload)):
        columns, error = outcome(frame(payload[:size], metadata(num_messages_in_batch=8)))
        assert len(columns) == 0
        assert "Malformed" in error


def test_more_survivors_than_the_batch_says_messages() -> None:
    """The number of rows is that of the list, so the room for them must be as well."""
    messages = [(b"\x12\x01k\x18\x01", bytes([n & 255])) for n in range(5000)]
    payload = b"".join(len(head).to_bytes(4, "big") + head + body for head, body in messages)
    meta = metadata(num_messages_in_batch=1, compacted_batch_indexes=range(5000))
    columns, (entry,) = decode_pulsar([frame(payload, meta)], topic="t", partition=0)
    assert entry.error is None
    assert columns.values() == [body for _, body in messages]
    assert columns.positions() == [(5, 6, n) for n in range(5000)]
