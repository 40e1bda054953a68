"""What the fuzzer feeds: for each format a corpus of good inputs, and a check that any input must pass.

A check decodes, and may raise an error of `wireproto.errors`; whatever else is raised is a finding. What decodes must hold together: it
encodes again and comes back the same, its columns export and are valid Arrow.
"""

from __future__ import annotations

import contextlib
import json
import random
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import cramjam
import pyarrow as pa

from wireproto import wire
from wireproto._codec import (
    Columns,
    Framer,
    KafkaBatchBuilder,
    PulsarBatchBuilder,
    RemotingCommand,
    RocketBatchBuilder,
    decode_kafka,
    decode_pulsar,
    decode_rocketmq,
    decode_rocketmq_batch,
    kafka_batches,
    kafka_section_end,
    lz4_block,
    lz4_frame,
    rocket_pull_reply,
)
from wireproto._net import _match
from wireproto.errors import WireprotoError
from wireproto.explain import explain
from wireproto.message import to_json
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.rocketmq.messages import PullMessageResponse

from .samples import proto_messages, schema_messages

Label = Any
LIMIT = 1 << 20  # bytes that a packed batch may have here
SOMETIMES = random.Random(11)


class Target(NamedTuple):
    """A format: its corpus of (label, input), and what is done with each input."""

    corpus: Callable[[], Iterator[tuple[Label, bytes]]]
    check: Callable[[Label, bytes], None]


# ---- messages ---------------------------------------------------------------------------------------------------------------------


def schema_corpus(protocol: str) -> Callable[[], Iterator[tuple[Label, bytes]]]:
    def corpus() -> Iterator[tuple[Label, bytes]]:
        for name, version, cls, data in schema_messages(protocol):
            yield (protocol, name, cls, version), data

    return corpus


def check_message(label: Label, data: bytes) -> None:
    """What decodes encodes; those bytes are the fixed point; now and then the slow decoder has to agree."""
    _, _, cls, version = label
    second = SOMETIMES.random() < 0.02
    try:
        message = cls.decode(data, version)
    except WireprotoError:
        if second:
            try:
                explain(cls, version, data)
            except WireprotoError:
                pass
            else:
                raise AssertionError("the slow decoder reads what the core refuses") from None
        raise
    again = message.encode(version)
    if again != data:
        assert cls.decode(again, version).encode(version) == again
    if second:
        check_form((label[0], label[1], version), data)
        shown = to_json(message, version)
        walked = explain(cls, version, data)[0]
        same = again != data or json.dumps({name: shown.get(name) for name in walked}, sort_keys=True) == json.dumps(walked, sort_keys=True)
        assert same, "the slow decoder reads otherwise"
        repr(message)


def multi_corpus() -> Iterator[tuple[Label, bytes]]:
    request = {
        "operations": [
            {
                "header": {"type": 1},
                "record": {"path": "/a", "data": "AA==", "acl": [{"perms": 31, "id": {"scheme": "world", "id": "anyone"}}]},
            },
            {"header": {"type": 2}, "record": {"path": "/b", "version": -1}},
            {"header": {"type": 4}, "record": {"path": "/b", "watch": True}},
        ]
    }
    yield ("zookeeper", "MultiRequest", 0), wire.encode("zookeeper", "MultiRequest", 0, request)
    yield ("zookeeper", "MultiResponse", 0), bytes.fromhex("ffffffff00ffffff9bffffff9b000000020000000000ffffffff01ffffffff")


def pulsar_corpus() -> Iterator[tuple[Label, bytes]]:
    for name, data in proto_messages():
        yield ("pulsar", name, 0), data
    for frame in pulsar_frames():
        yield ("pulsar", "Frame", 0), len(frame).to_bytes(4, "big") + frame


def rocketmq_corpus() -> Iterator[tuple[Label, bytes]]:
    for name in wire.names("rocketmq"):
        if name == "StoredMessage":
            fields: dict[str, Any] = {"topic": "t", "bodyText": "x", "properties": {"KEYS": "k", "a": "b"}}
            yield ("rocketmq", name, 0), wire.encode("rocketmq", name, 0, fields)
            continue
        for kind in ("JSON", "ROCKETMQ"):
            fields = {
                "code": 310,
                "remark": 'a "b" \\ ü\n',
                "extFields": {"b": "topic", "e": "3", "i": "a\x01b\x02"},
                "serializeTypeCurrentRPC": kind,
            }
            try:
                yield ("rocketmq", name, 0), wire.encode("rocketmq", name, 0, fields)
            except WireprotoError:
                continue


def check_form(label: Label, data: bytes) -> None:
    """By name, through JSON and back to the same bytes."""
    protocol, name, version = label
    fields = wire.decode(protocol, name, version, data)
    assert wire.encode(protocol, name, version, json.loads(json.dumps(fields, allow_nan=False))) == data
    if SOMETIMES.random() < 0.02:
        wire.explain(protocol, name, version, data)


# ---- RocketMQ's frames ------------------------------------------------------------------------------------------------------------


def header_corpus() -> Iterator[tuple[Label, bytes]]:
    ext = {"a": "producers", "b": "TopicTest", "i": "UNIQ_KEY\x01AC11\x02WAIT\x01true\x02", "z": "ü🛫", "e": "", "q": 'say "no"\\'}
    for serializer in (0, 1):
        for body in (b"", b"body"):
            command = RemotingCommand(310, 77, flag=1, remark="no route\n", ext=ext, body=body, serializer=serializer)
            yield None, b"".join(bytes(part) for part in command.encode())
    spaced = json.dumps(
        {"code": 1, "x": [1, {"y": None}], "extFields": {"n": 5, "t": True, "u": "\ud83d\ude00\ud800"}, "opaque": -3}, indent=1
    ).encode()
    yield None, struct.pack(">I", len(spaced)) + spaced
    ext = {"nextBeginOffset": "64", "minOffset": "7", "maxOffset": "100000", "suggestWhichBrokerId": "0", "offsetDelta": "0", "x": "y"}
    for serializer in (0, 1):
        command = RemotingCommand(0, 12, flag=1, remark="FOUND", ext=ext, body=b"stored", language=0, serializer=serializer)
        yield None, b"".join(bytes(part) for part in command.encode())


def check_header(label: Label, data: bytes) -> None:
    short = rocket_pull_reply(data)
    command = RemotingCommand.decode(data)
    if short is not None:  # the short way says what the general one does
        fields = PullMessageResponse.from_ext(command.ext)
        offsets = fields.next_begin_offset, fields.min_offset, fields.max_offset
        assert (*short[:4], bytes(short[4])) == (command.code, *offsets, bytes(command.body))
    again = b"".join(bytes(part) for part in command.encode())
    found = RemotingCommand.decode(again)
    assert found.ext == {name: text for name, text in command.ext.items() if text or not command.serializer}
    assert (found.code, found.opaque, found.flag, found.remark) == (
        command.code,
        command.opaque,
        command.flag,
        command.remark or found.remark,
    )


# ---- records ----------------------------------------------------------------------------------------------------------------------

HEADERS = (("h", b"1"), ("h", None), ("ü", b"\xff"))


def kafka_sections() -> Iterator[tuple[Label, bytes]]:
    for magic in (0, 1, 2):
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            if magic < 2 and codec == "zstd":
                continue
            made = []
            for count in (1, 5):
                builder = KafkaBatchBuilder(magic=magic, compression=codec, limit=1 << 14)
                for n in range(count):
                    builder.append(
                        b"v" * n * 7,
                        b"k" if n else None,
                        HEADERS if magic == 2 and n else None,
                        None if magic == 0 else 1_700_000_000_000 + n,
                    )
                made.append(builder.finish())
            yield None, made[0] + made[1]
            yield None, made[1]


def check_section(label: Label, data: bytes) -> None:
    kafka_section_end(data)
    columns, following = decode_kafka(
        data, topic="t", partition=0, fetch_offset=0, check_crc=False, limit=LIMIT, on_corrupt="skip", facts=True
    )
    assert following >= 0
    hold(columns)
    kafka_batches(data)
    columns, following = decode_kafka(
        data, topic="t", partition=0, fetch_offset=2, check_crc=False, limit=LIMIT, aborted=((5, 0),), isolation_committed=True
    )
    hold(columns)
    assert following >= 2


def hold(columns: Columns) -> None:
    """Columns hold together: lists, rows and Arrow say the same."""
    rows = len(columns)
    assert rows == len(columns.values()) == len(columns.keys()) == len(columns.positions()) == len(columns.headers())
    if rows and SOMETIMES.random() < 0.2:
        batch = pa.record_batch(columns)
        batch.validate(full=True)
        assert batch.column("value").to_pylist() == columns.values()
        records = list(columns.records("t", 0))
        assert [record.value for record in records] == columns.values()
        columns[rows // 2 :].values()


def pulsar_frames() -> Iterator[bytes]:
    for codec in ("none", "lz4", "zlib", "zstd", "snappy"):
        for batched in (True, False):
            builder = PulsarBatchBuilder("producer", compression=codec, batched=batched)
            builder.append(b"one", key=b"k", properties=(("a", b"b"), ("ü", b"x" * 20)), event_time=7)
            if batched:
                builder.append(None, key=b"\xff\x00")
                builder.append(b"", properties=(("a", b""),))
            parts = b"".join(bytes(part) for part in builder.finish(1, 2, 3))
            yield parts
            entry = parts[4 + int.from_bytes(parts[:4], "big") :]
            for acks in ((), (5,)):
                message = api.CommandMessage(
                    consumer_id=1, message_id=api.MessageIdData(ledgerId=3, entryId=4), redelivery_count=1, ack_set=acks
                )
                command = api.BaseCommand(type=api.BaseCommand.MESSAGE, message=message).SerializeToString()
                yield len(command).to_bytes(4, "big") + command + entry
            raw = api.BrokerEntryMetadata(broker_timestamp=5, index=6).SerializeToString()
            yield len(command).to_bytes(4, "big") + command + b"\x0e\x02" + len(raw).to_bytes(4, "big") + raw + entry


def pulsar_entries() -> Iterator[tuple[Label, bytes]]:
    for frame in pulsar_frames():
        yield None, frame
    builder = PulsarBatchBuilder("producer")
    for n in range(6):  # laid out as clients write it throughout, and long enough to be taken in one pass
        builder.append(b"v" * 20 * n, key=b"key", properties=(("name", b"t" * n), ("b", b"")) if n != 3 else (), event_time=10**12)
    sent = b"".join(bytes(part) for part in builder.finish(1, 2, 3))
    message = api.CommandMessage(consumer_id=1, message_id=api.MessageIdData(ledgerId=3, entryId=4))
    command = api.BaseCommand(type=api.BaseCommand.MESSAGE, message=message).SerializeToString()
    yield None, len(command).to_bytes(4, "big") + command + sent[4 + int.from_bytes(sent[:4], "big") :]


def check_entry(label: Label, data: bytes) -> None:
    columns, entries = decode_pulsar([data, data], topic="t", partition=0, check_crc=False, limit=LIMIT)
    hold(columns)
    assert sum(entry.stop - entry.start for entry in entries) == len(columns)
    assert all(entry.error is None or isinstance(entry.error, WireprotoError) for entry in entries)
    _match("pulsar", data)


def rocketmq_stored() -> Iterator[tuple[Label, bytes]]:
    def stored(offset: int, body: bytes, props: bytes, flags: int, version: int = 1) -> bytes:
        hosts = [bytes(16 if flags & bit else 4) + struct.pack(">i", 10911) for bit in (0x10, 0x20)]
        head = struct.pack(">IiiqqiQ", zlib.crc32(body) & 0x7FFFFFFF, 3, 0, offset, offset * 100, flags, 1_700_000_000_000)
        rest = head + hosts[0] + struct.pack(">q", 7) + hosts[1] + struct.pack(">iqi", 2, 0, len(body)) + body
        rest += struct.pack(">B" if version == 1 else ">H", 1) + b"T" + struct.pack(">H", len(props)) + props
        return struct.pack(">iI", len(rest) + 8, 0xDAA320A7 if version == 1 else 0xDAA320AB) + rest

    props = b"KEYS\x01k\x02UNIQ_KEY\x01AC\x02a\x01b\x02\xc3\xbc\x01x\x02"
    yield "stored", stored(5, b"hello", props, 0) + stored(6, b"", b"", 0x30, 2)
    yield "stored", stored(7, zlib.compress(b"hello" * 20), props, 1) + stored(8, b"x" * 50, b"a\x01b", 0x10)
    yield "stored", b"".join(stored(n, bytes([48 + n]), props, 0) for n in range(5))
    builder = RocketBatchBuilder(1 << 14)
    for n in range(4):
        builder.append(b"v" + bytes([48 + n]), b"k", (("a", b"b"),) if n else (), unique_id=f"AC11{n}")
    yield "batch", builder.finish()
    yield "stored", stored(9, builder.finish(), props, 0x4 << 8)


def check_stored(label: Label, data: bytes) -> None:
    if label == "batch":
        hold(decode_rocketmq_batch(data))
        return
    columns, _ = decode_rocketmq(data, topic="T", partition=0, check_crc=False, limit=LIMIT, on_corrupt="skip")
    hold(columns)
    with contextlib.suppress(WireprotoError):  # cut in the middle, so that it is refused even when whole
        decode_rocketmq([data[: len(data) // 2], data[len(data) // 2 :]], topic="T", partition=0, limit=LIMIT, on_corrupt="skip")
    for start in (0, 6):  # what is plain is read in one go; with facts, each message by itself: it must come to the same
        outcomes: list[object] = []
        for facts in (False, True):
            try:
                decoded = decode_rocketmq(data, topic="T", partition=0, check_crc=start == 0, limit=LIMIT, start=start, facts=facts)
                hold(decoded[0])
                outcomes.append(decoded)
            except WireprotoError as error:
                outcomes.append((type(error), str(error)))
        assert outcomes[0] == outcomes[1], outcomes
    columns, _ = decode_rocketmq(data, topic="T", partition=0, check_crc=False, limit=LIMIT, start=6, facts=False)
    hold(columns)


# ---- Arrow, the framer, the engine's matchers -------------------------------------------------------------------------------------


def arrow_corpus() -> Iterator[tuple[Label, bytes]]:
    starts = struct.pack("<5i", 0, 3, 3, 9, 20)
    yield "binary", starts
    yield "large_binary", struct.pack("<5q", 0, 3, 3, 9, 20)
    yield "binary_view", struct.pack("<iiii", 5, 1, 2, 3) + struct.pack("<iiii", 20, 0, 0, 0) + bytes(16) * 2
    yield "headers", struct.pack("<5i", 0, 1, 1, 2, 4) + starts


def check_arrow(label: Label, data: bytes) -> None:
    """Arrays whose starts or views are anything at all; the buffers they point into are as large as they claim."""
    values = pa.py_buffer(b"some bytes that stay where they are, all sixty-four of them, yes")
    size = {"binary": 20, "large_binary": 40, "binary_view": 64, "headers": 40}[label]
    memory = bytearray(size)
    if label == "headers":
        memory[20:] = struct.pack("<5i", 0, 3, 3, 9, 20)
    pointers = pa.py_buffer(memory)
    if label == "headers":
        names = pa.Array.from_buffers(pa.string(), 4, [None, pointers.slice(20), values])
        pairs = pa.StructArray.from_arrays([names, names.cast(pa.binary())], ["name", "value"])
        lists = pa.Array.from_buffers(pa.list_(pairs.type), 4, [None, pointers.slice(0, 20)], children=[pairs])
        source: Any = pa.RecordBatch.from_arrays([names.cast(pa.binary()), lists], ["value", "headers"])
    else:
        buffers = [None, pointers, values]
        source = pa.Array.from_buffers(getattr(pa, label)(), 4, buffers)
    change = bounded(label, (data + bytes(size))[:size])
    memory[:] = change
    columns = Columns.from_arrow(source)
    assert len(columns.values()) == 4
    columns.headers()
    pa.record_batch(columns).validate(full=True)


def bounded(label: str, data: bytes) -> bytes:
    """Starts beyond the buffer's end cannot be known from the C interface, which has no sizes: the last one is held within it."""
    form = {"large_binary": "<5q", "binary_view": "<16i"}.get(label, "<5i")
    step = struct.calcsize(form)
    out = b""
    for at in range(0, len(data), step):
        numbers = list(struct.unpack(form, data[at : at + step]))
        if label != "binary_view":
            top = 4 if label == "headers" and at == 0 else 60
            numbers = [n if n < 0 else n % (top + 1) for n in numbers]
        out += struct.pack(form, *numbers)
    return out


def stream_corpus() -> Iterator[tuple[Label, bytes]]:
    yield None, b"".join(struct.pack(">i", n) + b"x" * n for n in (0, 1, 5, 300, 40_000))
    yield None, struct.pack(">i", 3) + b"abc"


def check_stream(label: Label, data: bytes) -> None:
    """Whatever the pieces, the same frames come out, and they are what stood there."""
    whole = Framer(1 << 15)
    whole.feed(data)
    pieces = Framer(1 << 15)
    outcome: list[Any] = []
    for framer, parts in ((whole, [b""]), (pieces, [data[:3], data[3 : len(data) // 2], data[max(3, len(data) // 2) :]])):
        frames = []
        try:
            for part in parts:
                framer.feed(part)
                while (frame := framer.next()) is not None:
                    frames.append(frame)
        except WireprotoError as error:
            frames.append(type(error))
        outcome.append(frames)
    assert outcome[0] == outcome[1]
    at = 0
    for frame in outcome[0]:
        if isinstance(frame, bytes):
            assert data[at : at + 4 + len(frame)] == len(frame).to_bytes(4, "big") + frame
            at += 4 + len(frame)


def plain_corpus() -> Iterator[tuple[Label, bytes]]:
    yield None, b"".join(b'{"id":%d,"name":"flight %d"}' % (n, n * 7) for n in range(60))
    yield None, bytes(300) + random.Random(5).randbytes(300)


def check_packing(label: Label, data: bytes) -> None:
    """LZ4's own package reads what we compress."""
    for plain in (data, data * 20):
        assert bytes(cramjam.lz4.decompress_block(lz4_block(plain), output_len=len(plain))) == plain
        assert bytes(cramjam.lz4.decompress(lz4_frame(plain))) == plain


def encoding_corpus() -> Iterator[tuple[Label, bytes]]:
    yield None, struct.pack("<12H", 16, 100, 0, 16, 63, 0, 64, 64, 1, 0, 7999, 0xFFFF)
    yield None, struct.pack("<9H", 0xFFFF, 0xFFFF, 8191, 8000, 3, 64, 12, 300, 5)


def check_encoding(label: Label, data: bytes) -> None:
    """Columns and lists become the batch that records become one by one, and come back; key, value, time by three numbers each."""
    numbers = [n for (n,) in struct.iter_unpack("<H", data[: len(data) // 6 * 6])]
    keys, values = ([None if n % 5 == 4 else b"x" * (n % 9000) for n in numbers[at::3]] for at in (0, 1))
    times = [n * n for n in numbers[2::3]]
    one, lists, columns = (KafkaBatchBuilder(limit=max(numbers, default=0) * 3) for _ in range(3))
    taken = 0
    while taken < len(keys) and one.append(values[taken], keys[taken], None, times[taken]):
        taken += 1
    assert taken == lists.append_lists(values, keys, timestamps=times)
    assert taken == columns.append_columns(Columns.from_rows(values, keys, None, times), 0, len(keys), 0)
    if taken:
        batch = one.finish()
        assert batch == lists.finish() == columns.finish()
        found = decode_kafka(batch, topic="t", partition=0, fetch_offset=0)[0]
        assert (found.keys(), found.values(), found.timestamps()) == (keys[:taken], values[:taken], times[:taken])


def match_corpus() -> Iterator[tuple[Label, bytes]]:
    yield "kafka", struct.pack(">iI", 7, 0)
    yield "zookeeper", struct.pack(">iqi", 9, 1, 0)
    for _, data in header_corpus():
        yield "rocketmq", data
    for frame in pulsar_frames():
        yield "pulsar", frame
    for kind, name, fields in (
        (api.BaseCommand.SUCCESS, "success", {"request_id": 7}),
        (api.BaseCommand.SEND_RECEIPT, "send_receipt", {"producer_id": 1, "sequence_id": 2}),
        (api.BaseCommand.ERROR, "error", {"request_id": 7, "error": 1, "message": "m"}),
        (api.BaseCommand.PING, "ping", {}),
        (api.BaseCommand.CLOSE_CONSUMER, "close_consumer", {"consumer_id": 3, "request_id": 4}),
        (api.BaseCommand.PARTITIONED_METADATA_RESPONSE, "partitionMetadataResponse", {"request_id": 9, "partitions": 3}),
    ):
        command = api.BaseCommand(type=kind, **{name: fields}).SerializeToString()
        yield "pulsar", len(command).to_bytes(4, "big") + command


def check_match(label: Label, data: bytes) -> None:
    assert _match(label, data)[0] in ("reply", "push", "drop", "unreadable", "ping", "pong", "close"), _match(label, data)


TARGETS: dict[str, Target] = {
    "kafka-messages": Target(schema_corpus("kafka"), check_message),
    "zookeeper-messages": Target(schema_corpus("zookeeper"), check_message),
    "zookeeper-multi": Target(multi_corpus, check_form),
    "pulsar-messages": Target(pulsar_corpus, check_form),
    "rocketmq-messages": Target(rocketmq_corpus, check_form),
    "rocketmq-headers": Target(header_corpus, check_header),
    "kafka-records": Target(kafka_sections, check_section),
    "pulsar-entries": Target(pulsar_entries, check_entry),
    "rocketmq-stored": Target(rocketmq_stored, check_stored),
    "arrow-import": Target(arrow_corpus, check_arrow),
    "lz4": Target(plain_corpus, check_packing),
    "kafka-encoding": Target(encoding_corpus, check_encoding),
    "framer": Target(stream_corpus, check_stream),
    "matchers": Target(match_corpus, check_match),
}
