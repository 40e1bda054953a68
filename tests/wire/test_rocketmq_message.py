"""RocketMQ's stored messages: vectors of its Java classes, messages written here by struct, and broken bytes."""

from __future__ import annotations

import random
import struct
import zlib

import lz4.frame
import pyarrow as pa
import pytest
import zstandard

from wireproto._codec import ROCKETMQ_RESERVED, RocketBatchBuilder, decode_rocketmq, decode_rocketmq_batch
from wireproto.errors import ChecksumMismatch, DecompressionError, Malformed, ProtocolError, Truncated, ValueUnsupported
from wireproto.rocketmq.record import RESERVED, properties

# made with the Java 4.9.8 classes: id 1, TAGS TagA, body hello, queue offset 11
STORED_V4 = bytes.fromhex(
    "00000076daa320a73610a6860000000300000009000000000000000b0000011f71fb04cb000000000000018bcfe568000a000001000004000000018bcfe56801"
    "7f00000100002a9f0000000200000000000000050000000568656c6c6f09546f70696354657374000d61013102544147530154616741"
)
STORED_V6 = bytes.fromhex(
    "0000008edaa320a73610a6860000000300000009000000000000000b0000011f71fb04cb000000300000018bcfe5680020010db8000000000000000000000001"
    "000004000000018bcfe568010000000000000000000000000000000100002a9f0000000200000000000000050000000568656c6c6f09546f70696354657374"
    "000d61013102544147530154616741"
)
BATCH = bytes.fromhex(
    "0000002f00000000000000000000000100000002623100174b455953016b0257414954017472756502544147530141000000310000000000000000000000000000"
    "000362323200184b455953016b320257414954017472756502544147530142"
)
PACKERS = {0: zlib.compress, 1: lz4.frame.compress, 2: zstandard.compress, 3: zlib.compress}
BORN = 1_700_000_000_000


def stored(
    offset: int,
    body: bytes,
    props: str | bytes = "",
    *,
    flags: int = 0,
    topic: str = "T",
    version: int = 1,
    packed: int | None = None,
) -> bytes:
    """A stored message as the broker's format table has it."""
    if packed is not None:
        body, flags = PACKERS[packed](body), flags | 1 | packed << 8
    if isinstance(props, str):
        props = props.encode()
    hosts = [bytes(16 if flags & bit else 4) + struct.pack(">i", 10911) for bit in (0x10, 0x20)]
    text = topic.encode()
    rest = (
        struct.pack(">IiiqqiQ", zlib.crc32(body) & 0x7FFFFFFF, 3, 0, offset, offset * 100, flags, BORN + offset)
        + hosts[0]
        + struct.pack(">q", BORN + 7)
        + hosts[1]
        + struct.pack(">iqi", 2, 0, len(body))
        + body
        + struct.pack(">B" if version == 1 else ">H", len(text))
        + text
        + struct.pack(">H", len(props))
        + props
    )
    return struct.pack(">iI", len(rest) + 8, 0xDAA320A7 if version == 1 else 0xDAA320AB) + rest


def decode(bodies: object, **options: object) -> tuple:
    return decode_rocketmq(bodies, topic="T", partition=2, **options)


@pytest.mark.parametrize("message", [STORED_V4, STORED_V6])
def test_vectors_of_the_java_classes(message: bytes) -> None:
    columns, following = decode(message)
    assert (columns.positions(), columns.timestamps(), columns.keys(), columns.values()) == ([11], [BORN], [None], [b"hello"])
    assert columns.headers() == [(("a", b"1"), ("TAGS", b"TagA"))]
    assert following == 12
    assert columns.facts["commit_log_offset"] == [0x11F71FB04CB]
    assert (columns.facts["reconsume_times"], columns.facts["store_timestamp"], columns.facts["queue_id"]) == ([2], [BORN + 1], [3])
    pa.record_batch(columns).validate(full=True)


def test_the_batch_vector_of_the_java_classes() -> None:
    columns = decode_rocketmq_batch(BATCH)
    assert (columns.values(), columns.keys(), columns.headers()) == ([b"b1", b"b22"], [b"k", b"k2"], [(("TAGS", b"A"),), (("TAGS", b"B"),)])


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("hosts", [0, 0x10, 0x20, 0x30])
@pytest.mark.parametrize("packed", [None, 0, 1, 2, 3])
def test_versions_hosts_and_codecs(version: int, hosts: int, packed: int | None) -> None:
    topic = "T" if version == 1 else "%RETRY%" + "g" * 200
    props = "KEYS\x01k1\x02UNIQ_KEY\x01U\x02a\x011\x02RETRY_TOPIC\x01T\x02ORIGIN_MESSAGE_ID\x01O\x02empty\x01\x02none\x02ü\x01ö"
    messages = [
        stored(n, b"body %d " % n * 50, props + tail, flags=hosts, topic=topic, version=version, packed=packed)
        for n, tail in ((4, ""), (9, "\x02"))
    ]
    columns, following = decode(b"".join(messages))
    assert columns.positions() == [4, 9]
    assert columns.values() == [b"body 4 " * 50, b"body 9 " * 50]
    assert columns.timestamps() == [BORN + 4, BORN + 9]
    assert columns.keys() == [b"k1", b"k1"]
    assert columns.headers() == [(("a", b"1"), ("ü", "ö".encode()))] * 2
    assert following == 10
    facts = columns.facts
    assert (facts["unique_id"], facts["real_topic"], facts["origin_id"], facts["topic"]) == (["U"] * 2, ["T"] * 2, ["O"] * 2, [topic] * 2)
    assert decode(messages) == (columns, 10)
    assert decode(messages, start=5, facts=False)[0].positions() == [9]
    assert decode(messages, start=5, facts=False)[0].facts == ()


def test_empty_bodies_and_blanks() -> None:
    blank = struct.pack(">iI", 20, 0xCBD43194) + bytes(12)
    columns, following = decode(stored(1, b"") + blank + stored(2, b"x"))
    assert (columns.values(), following) == ([b"", b"x"], 3)
    assert decode(b"", start=7)[1] == decode([], start=7)[1] == 7


def test_inner_batches() -> None:
    columns, following = decode(stored(30, BATCH, "INNER_BASE\x0130\x02INNER_NUM\x012", flags=0xC0))
    assert (columns.positions(), columns.values(), columns.keys(), following) == ([30, 31], [b"b1", b"b22"], [b"k", b"k2"], 32)
    assert decode(stored(30, BATCH, "INNER_BASE\x0130", flags=0xC0), start=31)[0].positions() == [31]
    far = ("x", str(1 << 63), str((1 << 63) - 2), "-1")
    for bad, props in ((BATCH[:-1], ""), *((BATCH, f"INNER_BASE\x01{base}") for base in far)):
        with pytest.raises(Malformed):
            decode(stored(30, bad, props, flags=0xC0))


@pytest.mark.parametrize("columns", [None, ("timestamp",), ("timestamp", "key"), ("offset", "timestamp", "value")])
@pytest.mark.parametrize("packed", [None, 0])
def test_a_time_of_its_own_is_a_rows_timestamp(packed: int | None, columns: tuple[str, ...] | None) -> None:
    """As Java's Long.parseLong reads it; of what that refuses, the born time remains, and nothing else is in the row than without."""
    good = {
        "0": 0, "7": 7, "+7": 7, "007": 7, "-1": -1, "1700000000001": 1_700_000_000_001, "9223372036854775807": (1 << 63) - 1,
        "-9223372036854775808": -(1 << 63),
    }  # fmt: skip
    bad = ["-", "+", "", " 7", "7 ", "7.0", "0x7", "1_000", "--7", "٧", "x", "9223372036854775808", "-9223372036854775809"]
    bad += ["9" * 20, "9" * 400, "7\x01"]
    around = "KEYS\x01k\x02BORN_TIMESTAMP\x01{}\x02a\x011\x02"
    messages = [stored(n, b"v", around.format(text), packed=packed) for n, text in enumerate((*good, *bad))]
    messages.append(stored(90, b"v", "BORN_TIMESTAMP\x015\x02BORN_TIMESTAMP\x016", packed=packed))  # Java's map has the last one
    messages.append(stored(91, b"v", "BORN_TIMESTAM\x015\x02BORN_TIMESTAMPS\x015\x02born_timestamp\x015\x02", packed=packed))
    wanted = [*good.values(), *(BORN + n for n in range(len(good), len(good) + len(bad))), 6, BORN + 91]
    for facts in (False, True):
        read = decode(b"".join(messages), columns=columns, facts=facts)[0]
        assert read.timestamps() == wanted
        if columns is None:
            assert read.headers()[:-2] == [(("a", b"1"),)] * (len(good) + len(bad))
            assert [name for name, _ in read.headers()[-1]] == ["BORN_TIMESTAM", "BORN_TIMESTAMPS", "born_timestamp"]
            assert pa.record_batch(read).column("timestamp").cast(pa.int64()).to_pylist() == wanted


def test_rows_of_an_inner_batch_have_their_own_times() -> None:
    builder = RocketBatchBuilder()
    for pairs in (b"WAIT\x01true\x02", b"BORN_TIMESTAMP\x015\x02", b"BORN_TIMESTAMP\x01x\x02"):
        builder.add(b"v", pairs)
    columns, _ = decode(stored(30, builder.finish(), "INNER_BASE\x0130", flags=0xC0))
    assert columns.timestamps() == [BORN + 30, 5, BORN + 30]


@pytest.mark.parametrize("facts", [False, True])
def test_an_offset_that_nothing_can_follow_is_refused(facts: bool) -> None:
    """There is no next offset; what was told for one was negative, or forgot the message."""
    last = struct.pack(">q", (1 << 63) - 1)
    whole = stored(30, b"x")
    assert decode(whole, facts=facts)[1] == 31
    with pytest.raises(Malformed, match="nothing can follow"):
        decode(whole[:20] + last + whole[28:], facts=facts)


def test_reserved_names_are_the_adapters() -> None:
    assert ROCKETMQ_RESERVED == RESERVED
    props = "\x02".join(f"{name}\x01v" for name in sorted(RESERVED))
    assert decode(stored(1, b"v", props))[0].headers() == [()]


def plain_properties(props: bytes) -> tuple[bytes | None, list[tuple[str, bytes]]]:
    """Key and headers, taken apart by bytes.split."""
    pairs = [(name, value) for name, _, value in (part.partition(b"\x01") for part in props.split(b"\x02")) if name and value]
    key = next((value for name, value in pairs if name == b"KEYS"), None)
    return key, [(name.decode(), value) for name, value in pairs if name.decode() not in RESERVED]


@pytest.mark.parametrize("seed", range(8))
def test_properties_of_any_shape(seed: int) -> None:
    rng = random.Random(seed)
    words = [b"\x01", b"\x02"] * 2 + [b"KEYS", b"UNIQ_KEY", b"WAIT", b"TAGS", b"a", b"origin", "ü".encode(), b"KEY", b"x" * 63, b"_"]
    for count in range(60):
        texts = [b"".join(rng.choices(words, k=rng.randrange(1, 2 + count))) for _ in range(5)]
        messages = [stored(n, b"v" * rng.randrange(70), text) for n, text in enumerate(texts)]
        wanted = [plain_properties(text) for text in texts]
        for bodies in (b"".join(messages), messages):
            columns, following = decode(bodies, facts=False)
            assert columns.keys() == [k for k, _ in wanted]
            assert ([list(row) for row in columns.headers()], following) == ([h for _, h in wanted], 5)
            assert decode(bodies)[0] == columns, "with facts each message is read by itself"
            pa.record_batch(columns).validate(full=True)
        assert decode(messages, columns=["key"])[0].keys() == [k for k, _ in wanted]
        assert [list(row) for row in decode(messages, columns=["headers"])[0].headers()] == [h for _, h in wanted]
        assert decode(messages, columns=["value", "offset"], start=3)[0].positions() == [3, 4]


def test_a_reply_of_usual_and_other_messages() -> None:
    """What is plain is read in one go up to what is not: packed, in a batch, blank, wrong."""
    broken = bytearray(stored(7, b"hello"))
    broken[broken.index(b"hello")] ^= 1
    blank = struct.pack(">iI", 20, 0xCBD43194) + bytes(12)
    inner = stored(4, BATCH, "INNER_BASE\x014", flags=0xC0)
    plain, packed, last = stored(1, b"a"), stored(2, b"b" * 99, packed=0), stored(8, b"e", flags=0x30)
    parts = [plain, packed, stored(3, b"c"), inner, blank, stored(6, b"d"), broken, last]
    for facts in (False, True):
        columns, following = decode(b"".join([*parts, *parts[:1]]), on_corrupt="skip", facts=facts)
        assert columns.positions() == [1, 2, 3, 4, 5, 6, 8, 1]
        assert columns.values() == [b"a", b"b" * 99, b"c", b"b1", b"b22", b"d", b"e", b"a"]
        assert (following, [error.position for error in columns.skipped]) == (9, [7])
        assert decode(b"".join(parts), on_corrupt="skip", facts=facts, start=5)[0].positions() == [5, 6, 8]


def test_a_long_reply_is_read_without_the_interpreter() -> None:
    body = b"".join(stored(n, bytes([n & 255]) * (n % 300), f"KEYS\x01k{n}\x02n\x01{n}") for n in range(3000))
    columns, following = decode(body, facts=False)
    assert columns.values() == [bytes([n & 255]) * (n % 300) for n in range(3000)]
    assert columns.keys() == [b"k%d" % n for n in range(3000)]
    assert columns.headers() == [(("n", b"%d" % n),) for n in range(3000)]
    assert following == 3000


def test_a_wrong_crc_or_packing_is_refused_or_skipped() -> None:
    good, bad = stored(1, b"hello"), bytearray(stored(2, b"hello"))
    bad[bad.index(b"hello")] ^= 1
    with pytest.raises(ChecksumMismatch) as caught:
        decode(good + bad)
    assert (caught.value.topic, caught.value.partition, caught.value.position, caught.value.offset) == ("T", 2, 2, len(good))
    columns, following = decode(good + bad + stored(3, b"x"), on_corrupt="skip")
    assert (columns.positions(), following, [e.position for e in columns.skipped]) == ([1, 3], 4, [2])
    assert len(columns.facts["topic"]) == 2
    assert decode(bad, check_crc=False)[0].values() == [b"iello"]
    for packed in range(3):
        broken = stored(2, PACKERS[packed](b"hello" * 30)[:-9], flags=1 | packed << 8)
        with pytest.raises(DecompressionError):
            decode(broken)
    with pytest.raises(DecompressionError, match="unknown"):
        decode(stored(2, b"x", flags=0x701))


def test_bombs_stop_at_the_limit_of_the_call() -> None:
    for packed in range(3):
        message = stored(2, bytes(2 << 20), packed=packed)
        with pytest.raises(DecompressionError):
            decode(message, limit=1 << 20)
        with pytest.raises(DecompressionError):
            decode([message, message, message], limit=5 << 20)
        assert len(decode([message, message, message], limit=6 << 20)[0]) == 3


def test_every_cut_is_refused() -> None:
    message = stored(1, b"hello", "a\x011\x02")
    for cut in range(1, len(message)):
        with pytest.raises((Truncated, Malformed)):
            decode(message[:cut])
        shorter = struct.pack(">i", cut) + message[4:cut] if cut >= 4 else b"\0"
        with pytest.raises((Truncated, Malformed)):
            decode(shorter, check_crc=False)


def test_changed_bytes_never_get_past_the_types() -> None:
    rng = random.Random(6)
    whole = b"".join(
        stored(n, b"hello" * n, "KEYS\x01k\x02a\x01\xfc\x02", packed=None if n < 3 else n - 3, flags=0x10 * (n & 3)) for n in range(6)
    )
    whole += stored(30, BATCH, "INNER_BASE\x0130", flags=0xC0)
    for _ in range(4000):
        bad = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            bad[rng.randrange(len(bad))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        for mode in ("raise", "skip"):
            try:
                columns, _ = decode(bad, check_crc=False, limit=1 << 20, on_corrupt=mode)
            except ProtocolError:
                continue
            pa.record_batch(columns).validate(full=True)
            assert all(len(column) == len(columns) for column in columns.facts.values())


ROWS = [
    (b"body", b"key", (("a", b"1"), ("ü", "ö".encode())), "ID1"),
    (b"", None, (), "ID2"),
    (b"x" * 1000, "kü".encode(), {"TAGS": b"t"}, "ID3"),
]


def test_batch_bodies() -> None:
    builder = RocketBatchBuilder(4 << 20)
    for row in ROWS:
        assert builder.append(*row)
    assert len(builder) == 3
    body = builder.finish()
    assert (len(builder), builder.size) == (0, 0)
    columns = decode_rocketmq_batch(body)
    assert columns.values() == [row[0] for row in ROWS]
    assert columns.keys() == [row[1] for row in ROWS]
    assert columns.headers() == [tuple(row[2].items() if isinstance(row[2], dict) else row[2]) for row in ROWS]
    wanted = b""
    for value, key, headers, unique in ROWS:  # by the adapter's own properties and the format table
        text = properties(key, headers, unique).encode()
        wanted += struct.pack(">5i", 22 + len(value) + len(text), 0, 0, 0, len(value)) + value + struct.pack(">H", len(text)) + text
    assert body == wanted
    for cut in range(1, len(body)):
        try:
            assert len(decode_rocketmq_batch(body[:cut])) < 3
        except Malformed:
            continue


def test_what_rocketmq_cannot_carry_is_refused() -> None:
    builder = RocketBatchBuilder(1000)
    for bad in (
        (None,),
        (b"v", b"two words"),
        (b"v", b""),
        (b"v", b"\xff"),
        (b"v", b"a\x01b"),
        (b"v", None, [("KEYS", b"1")]),
        (b"v", None, [("a", b"1"), ("a", b"2")]),
        (b"v", None, [("a", None)]),
        (b"v", None, [("a", b"")]),
        (b"v", None, [("a\x02", b"x")]),
        (b"v", None, [("a", b"x" * 40000)]),
        (b"v" * 1000,),
    ):
        with pytest.raises(ValueUnsupported):
            builder.append(*bad)
    assert len(builder) == 0
    taken = 0
    while builder.append(b"v" * 90):
        taken += 1
    assert 1000 - 120 < builder.size <= 1000
    assert len(builder) == taken
