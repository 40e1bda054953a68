"""The other formats beside their usual readers: message sets, compression, checksums, Pulsar's batches, RocketMQ's replies, threads.

All on the same bytes, checksums checked by all. "To columns" ends where a contender holds every column whole: ours as `Columns`, a
peer's as lists of Python's, those of headers flat, with the rows' ends. "To pyarrow" goes on to a record batch, for all. What threads gain
is measured ahead of everything else that runs (see `cores`), and its bar holds where two cores are to be had.
"""

from __future__ import annotations

import os
import random
import struct
import warnings
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import crc32c as crc32c_package
import google_crc32c
import pyarrow as pa

from wireproto import _codec
from wireproto._codec import KafkaBatchBuilder, decode_kafka, decode_pulsar, decode_rocketmq
from wireproto.compression import ahead
from wireproto.pulsar import PulsarApi_pb2 as api

from ..cores import ahead_of_others, are_two, together
from ..harness import Bench, Stretch
from .records import COUNT, KEY, STAMP, AioBuilder, AioRecords, KafkaPythonRecords, kafka_python, ours, their_append, theirs, to_arrow

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from aiokafka.record._crecords.legacy_records import LegacyRecordBatchBuilder as AioLegacy

CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
PACKED = 10_000  # records of a packed batch
TOGETHER = 2000  # batches that all threads decode together


def tasks(bench: Bench) -> None:
    """All of them."""
    rounds = 9
    message_sets(bench, rounds)
    compression(bench, rounds)
    checksums(bench, rounds)
    pulsar(bench, rounds)
    rocketmq(bench, rounds)
    if not bench.counting:  # what threads gain has no instructions
        threads(bench, rounds)
        unpacking(bench, rounds)


def message_sets(bench: Bench, rounds: int) -> None:
    for magic in (0, 1):
        builder = AioLegacy(magic, 0, 1 << 24)
        for n in range(COUNT):
            builder.append(n, STAMP, KEY, bytes([n & 255]) * 100)
        section = bytes(builder.build())
        assert ours(section).values() == [r.value for r in theirs(section, AioRecords)]
        bench.compare(
            f"message set v{magic} to pyarrow, 100 B",
            COUNT,
            {"wireproto": lambda s=section: pa.record_batch(ours(s)), "aiokafka": lambda s=section: to_arrow(s, AioRecords)},
            rounds=rounds,
            passes=3,
        )


def text_values() -> list[bytes]:
    """Values that shrink about as JSON does."""
    rows = [f'{{"flight": "UA{n * 7919 % 10000}", "delay": {n * 31 % 600}, "from": "SFO", "at": {STAMP + n * 977}}}' for n in range(1000)]
    return [(row * 16).encode()[:1000] for row in rows]


def compression(bench: Bench, rounds: int) -> None:
    values = text_values()
    for name, codec in CODECS.items():
        packed = bytes(their_batch(values, AioBuilder, codec))
        assert decode_kafka(packed, topic="t", partition=0, fetch_offset=0)[0].values() == values
        assert [record.value for record in theirs(bytes(our_batch(values, name)), AioRecords)] == values  # type: ignore[call-overload]
        encoders: dict[str, Callable[[], object]] = {
            "wireproto": lambda n=name: our_batch(values, n),
            "aiokafka": lambda c=codec: their_batch(values, AioBuilder, c),
            "kafka-python": lambda c=codec: their_batch(values, kafka_python.DefaultRecordBatchBuilder, c),
        }
        decoders: dict[str, Callable[[], object]] = {
            "wireproto": lambda p=packed: ours(p).values(),
            "aiokafka": lambda p=packed: [r.value for r in theirs(p, AioRecords)],
            "kafka-python": lambda p=packed: [r.value for r in theirs(p, KafkaPythonRecords)],
        }
        other = ("aiokafka",) if name == "lz4" else ()  # searches far longer for matches (level 9), which ours has no setting for
        bench.compare(f"{name} batch, encode, 1000 B", len(values), encoders, rounds=rounds, shown=other)
        bench.compare(f"{name} batch, decode, 1000 B", len(values), decoders, rounds=rounds)


def our_batch(values: list[bytes], codec: str) -> object:
    """With gzip at level 9, as both peers have it; theirs of zstd is ours."""
    builder = KafkaBatchBuilder(limit=1 << 24, compression=codec, level=9 if codec == "gzip" else None)
    if builder.append_lists(values, None, now=STAMP) != len(values):
        raise AssertionError("no room")
    return builder.seal()


def their_batch(values: list[bytes], make: Any, codec: int) -> Any:
    builder = make(2, codec, False, -1, -1, -1, 1 << 24)
    for n, value in enumerate(values):
        builder.append(n, STAMP, None, value, [])
    return builder.build()


def checksums(bench: Bench, rounds: int) -> None:
    for size in (256, 4096, 65536):
        data, calls = os.urandom(size), 200_000 if size == 256 else 20_000
        if bench.quick:
            calls = min(calls, (128 << 20) // size)  # 128 MiB are enough to count
        jobs: Mapping[str, Callable[[], object]] = {
            "wireproto": lambda d=data, c=calls: repeated(_codec.crc32c, d, c),
            "google-crc32c": lambda d=data, c=calls: repeated(google_crc32c.value, d, c),
            "crc32c": lambda d=data, c=calls: repeated(crc32c_package.crc32c, d, c),
        }
        bench.compare(f"CRC32-C of {size} B", calls, jobs, unit="call", rounds=rounds)


def repeated(function: Callable[[bytes], int], data: bytes, calls: int) -> None:
    for _ in range(calls):
        function(data)


# --- Pulsar -------------------------------------------------------------------------------------------------------------------------


def pulsar_frame(count: int) -> bytes:
    payload = b""
    for n in range(count):
        single = api.SingleMessageMetadata(payload_size=100, sequence_id=n, partition_key=f"key-{n:012}", event_time=STAMP + n)
        for name in ("origin", "carrier"):
            single.properties.add(key=name, value=f"{name}-{n % 50}")
        head = single.SerializeToString()
        payload += len(head).to_bytes(4, "big") + head + bytes([n & 255]) * 100
    meta = api.MessageMetadata(producer_name="p", sequence_id=0, publish_time=STAMP, num_messages_in_batch=count).SerializeToString()
    message = api.CommandMessage(consumer_id=1, message_id=api.MessageIdData(ledgerId=5, entryId=6))
    command = api.BaseCommand(type=api.BaseCommand.MESSAGE, message=message).SerializeToString()
    body = len(meta).to_bytes(4, "big") + meta + payload
    return len(command).to_bytes(4, "big") + command + b"\x0e\x01" + crc32c_package.crc32c(body).to_bytes(4, "big") + body


def protobuf_head(frame: bytes) -> tuple[Any, int, int]:
    """Message id, number of messages and where the first begins; the CRC is checked."""
    at = 4 + int.from_bytes(frame[:4], "big")
    place = api.BaseCommand.FromString(frame[4:at]).message.message_id
    if crc32c_package.crc32c(memoryview(frame)[at + 6 :]) != int.from_bytes(frame[at + 2 : at + 6], "big"):
        raise ValueError("CRC")
    size = int.from_bytes(frame[at + 6 : at + 10], "big")
    count = api.MessageMetadata.FromString(frame[at + 10 : at + 10 + size]).num_messages_in_batch
    at += 10 + size
    return place, count, at


def protobuf_rows(frame: bytes) -> list[tuple[Any, ...]]:
    """Message ids, event time, key, payload and properties (built: a pair each) by the protobuf runtime (upb)."""
    place, count, at = protobuf_head(frame)
    rows, single = [], api.SingleMessageMetadata()
    for n in range(count):
        size = int.from_bytes(frame[at : at + 4], "big")
        single.ParseFromString(frame[at + 4 : at + 4 + size])
        at += 4 + size
        properties = tuple((p.key, p.value.encode()) for p in single.properties)
        body = frame[at : at + single.payload_size]
        rows.append(((place.ledgerId, place.entryId, n), single.event_time, single.partition_key.encode(), body, properties))
        at += single.payload_size
    return rows


def protobuf_columns(frame: bytes) -> tuple[list[Any], ...]:
    """The same by column: ledger, entry, index, event time, key, payload; ends, names and values of the properties."""
    place, count, at = protobuf_head(frame)
    times, keys, values, ends, names, texts = [], [], [], [0], [], []
    single = api.SingleMessageMetadata()
    for _ in range(count):
        size = int.from_bytes(frame[at : at + 4], "big")
        single.ParseFromString(frame[at + 4 : at + 4 + size])
        at += 4 + size
        for p in single.properties:
            names.append(p.key)
            texts.append(p.value.encode())
        ends.append(len(names))
        times.append(single.event_time)
        keys.append(single.partition_key.encode())
        values.append(frame[at : at + single.payload_size])
        at += single.payload_size
    return [place.ledgerId] * count, [place.entryId] * count, list(range(count)), times, keys, values, ends, names, texts


def protobuf_arrow(frame: bytes) -> pa.RecordBatch:
    ledgers, entries, indexes, *others = protobuf_columns(frame)
    return to_batch({"ledger": pa.array(ledgers), "entry": pa.array(entries), "index": pa.array(indexes, pa.int32())}, *others)


STAMPS = pa.timestamp("ms", "UTC")


def to_batch(places: dict[str, pa.Array], times: Any, keys: Any, values: Any, ends: Any, names: Any, texts: Any) -> pa.RecordBatch:
    """Lists to pyarrow; the headers' from flat ones, which is the quickest way there."""
    pairs = pa.StructArray.from_arrays([pa.array(names, pa.string()), pa.array(texts, pa.binary())], ["name", "value"])
    columns = [pa.array(times, STAMPS), pa.array(keys, pa.binary()), pa.array(values, pa.binary())]
    headers = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pairs)
    return pa.RecordBatch.from_arrays([*places.values(), *columns, headers], [*places, "timestamp", "key", "value", "headers"])


def our_pulsar(frame: bytes) -> Any:
    return decode_pulsar([frame], topic="t", partition=0)[0]


def pulsar_tuples(frame: bytes) -> list[tuple[Any, ...]]:
    c = our_pulsar(frame)
    return list(zip(c.positions(), c.timestamps(), c.keys(), c.values(), c.headers(), strict=True))


def pulsar(bench: Bench, rounds: int) -> None:
    frame = pulsar_frame(1000)
    assert pulsar_tuples(frame) == protobuf_rows(frame)
    assert pa.record_batch(our_pulsar(frame)).to_pylist() == protobuf_arrow(frame).to_pylist()
    rows: tuple[tuple[str, Callable[[bytes], object], Callable[[bytes], object]], ...] = (
        ("columns", our_pulsar, protobuf_columns),
        ("pyarrow", lambda frame: pa.record_batch(our_pulsar(frame)), protobuf_arrow),  # of ours, pyarrow's import is a third
        ("tuples", pulsar_tuples, protobuf_rows),
    )
    for task, mine, peers in rows:
        bench.compare(
            f"Pulsar batch of 1,000 to {task}, properties built",
            1000,
            {"wireproto": lambda f=mine: f(frame), "protobuf (upb)": lambda f=peers: f(frame)},
            unit="message",
            rounds=rounds,
            passes=10,
        )


# --- RocketMQ -----------------------------------------------------------------------------------------------------------------------


def stored(offset: int) -> bytes:
    body = bytes([offset & 255]) * 100
    properties = (
        f"KEYS\x01key-{offset:012}\x02UNIQ_KEY\x017F0000010000000000000000{offset:08}\x02WAIT\x01true\x02origin\x01SFO\x02".encode()
    )
    rest = (
        struct.pack(">IiiqqiQ", zlib.crc32(body) & 0x7FFFFFFF, 3, 0, offset, offset * 300, 0, STAMP + offset)
        + bytes((127, 0, 0, 1, 0, 0, 42, 159))
        + struct.pack(">q", STAMP + offset)
        + bytes((127, 0, 0, 1, 0, 0, 42, 159))
        + struct.pack(">iqi", 0, 0, len(body))
        + body
        + b"\x05bench"
        + struct.pack(">H", len(properties))
        + properties
    )
    return struct.pack(">iI", len(rest) + 8, 0xDAA320A7) + rest


HEAD = struct.Struct(">iIIiiqqiQ4siq4siiqi")
HIDDEN = {"UNIQ_KEY", "WAIT"}


def struct_columns(body: bytes) -> tuple[list[Any], ...]:
    """The columns by struct, as a Python client decodes the reply: offset, time, key, body; ends, names and values of the headers."""
    at, offsets, times, keys, values, ends, names, texts = 0, [], [], [], [], [0], [], []
    while at < len(body):
        size, _, crc, _, _, offset, _, _, born, _, _, _, _, _, _, _, length = HEAD.unpack_from(body, at)
        start = at + HEAD.size
        value = body[start : start + length]
        if zlib.crc32(value) & 0x7FFFFFFF != crc:
            raise ValueError("CRC")
        start += length
        start += 1 + body[start]
        end = start + 2 + (body[start] << 8 | body[start + 1])
        properties = dict(pair.split("\x01", 1) for pair in body[start + 2 : end].decode().split("\x02") if pair)
        offsets.append(offset)
        times.append(born)
        keys.append(properties.pop("KEYS").encode())
        values.append(value)
        for name, text in properties.items():
            if name not in HIDDEN:
                names.append(name)
                texts.append(text.encode())
        ends.append(len(names))
        at += size
    return offsets, times, keys, values, ends, names, texts


def struct_arrow(body: bytes) -> pa.RecordBatch:
    offsets, *others = struct_columns(body)
    return to_batch({"offset": pa.array(offsets)}, *others)


def our_rocketmq(body: bytes) -> Any:
    return decode_rocketmq(body, topic="bench", partition=0, facts=False)[0]


IMPORT = "pyarrow's import alone"


def rocketmq(bench: Bench, rounds: int) -> None:
    for count in (32, 1000):
        body = b"".join(stored(n) for n in range(count))
        made = our_rocketmq(body)
        assert pa.record_batch(made).to_pylist() == struct_arrow(body).to_pylist()
        bench.compare(
            f"RocketMQ reply of {count:,} to columns",
            count,
            {"wireproto": lambda b=body: our_rocketmq(b), "struct": lambda b=body: struct_columns(b)},
            unit="message",
            rounds=rounds,
            passes=6000 // count,
        )
        bench.compare(
            f"RocketMQ reply of {count:,} to pyarrow",
            count,
            {
                "wireproto": lambda b=body: pa.record_batch(our_rocketmq(b)),
                "struct": lambda b=body: struct_arrow(b),
                IMPORT: lambda c=made: pa.record_batch(c),
            },
            unit="message",
            rounds=rounds,
            passes=6000 // count,
            shown=(IMPORT,),
        )


# --- threads ------------------------------------------------------------------------------------------------------------------------


def threads(bench: Bench, rounds: int) -> None:
    two, batches = are_two(), 20 if bench.quick else TOGETHER
    for count in (1100, 8000):
        section = bytes(their_append([bytes([n & 255]) * 100 for n in range(count)], AioBuilder))
        jobs = {
            "wireproto, two threads": lambda s=section: in_threads(s, batches, 2),
            "one thread": lambda s=section: in_threads(s, batches, 1),
        }
        bench.compare(
            f"decode batches of {len(section) // 1000:,} kB, {count:,} records",
            batches * count,
            jobs,
            rounds=rounds,
            ours="wireproto, two threads",
            ahead=("one thread",),
            by="wall",
            measures=("cpu",),
            judged=two,
        )


def in_threads(section: bytes, batches: int, count: int) -> Stretch:
    """So many batches in all."""

    def work() -> None:
        for _ in range(batches // count):
            ours(section)

    with ahead_of_others(), Stretch() as stretch:
        together(work, count)
    return stretch


def unpacking(bench: Bench, rounds: int) -> None:
    """A Fetch answer of eight packed batches, with and without other threads that unpack. There is no bar, but it must win."""
    two, usual = are_two(), ahead.threads()
    texts = [packed_texts(number) for number in range(8)]
    for name in ("gzip", "zstd", "snappy"):
        section = b"".join(packed_batch(name, number, values) for number, values in enumerate(texts))
        count = 8 * PACKED
        bench.compare(
            f"{name} batches of {len(section) // 8000:,} kB, 8 in an answer, to columns",
            count,
            {"wireproto, two threads": lambda s=section: unpacked(s, 1), "one thread": lambda s=section: unpacked(s, 0)},
            rounds=rounds,
            ours="wireproto, two threads",
            ahead=("one thread",),
            by="wall",
            measures=("cpu",),
            judged=two,
        )
    ahead.threads(usual)


def packed_texts(number: int) -> list[bytes]:
    """Values of 100 B that shrink to a third or so."""
    chance = random.Random(number)
    places = ("SFO", "JFK", "LHR", "ZRH")
    values = [
        f'{{"flight": "UA{chance.randrange(10000)}", "from": "{chance.choice(places)}", "at": {STAMP + n * 977}, "x": {chance.random()}}}'
        for n in range(PACKED)
    ]
    return [value.encode() for value in values]


def packed_batch(name: str, number: int, values: list[bytes]) -> bytes:
    """The batch of that number."""
    batch = bytearray(our_batch(values, name))  # type: ignore[call-overload]
    batch[:8] = (number * PACKED).to_bytes(8, "big")
    return bytes(batch)


def unpacked(section: bytes, others: int) -> Stretch:
    ahead.threads(others)
    with ahead_of_others():
        ours(section)  # threads start with the first
        with Stretch() as stretch:
            ours(section)
    return stretch
