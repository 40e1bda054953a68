"""What a RocketMQ producer writes: batches in columns, heads of send commands, unique ids, Java's hash."""

from __future__ import annotations

import json
import random

import pytest

from wireproto._codec import (
    Columns,
    RemotingCommand,
    RocketBatchBuilder,
    RocketSendHeader,
    check_rocket_columns,
    decode_rocketmq_batch,
    java_hash,
    java_hashes,
    rocket_plain_properties,
)
from wireproto.errors import ValueUnsupported
from wireproto.rocketmq import record

NOW = 1_700_000_000_000
ROWS = [
    (b"body", b"key", (("a", b"1"), ("b", "ö".encode())), None),
    (b"", None, (), None),
    (b"x" * 1000, "kü".encode(), (("TAGS", b"t"),), None),
    (b"y", b"z" * 300, (("ü", b"not ascii"),), None),
    (b"many", None, tuple((f"name-{n}", b"%d" % n) for n in range(40)), None),
]


def ids() -> record.RocketIds:
    return record.unique_ids(bytes([127, 0, 0, 1]), 1, 2, NOW - 5)


def columns_of(rows: list[tuple]) -> Columns:
    return Columns.from_rows(*[[row[at] for row in rows] for at in range(4)])


def by_hand(rows: list[tuple]) -> bytes:
    """The same through the adapter's own properties and the builder's way for one message."""
    builder, made = RocketBatchBuilder(4 << 20), ids()
    for value, key, headers, _ in rows:
        assert builder.add(value, record.properties(key, headers, made.next(NOW)).encode())
    return builder.finish()


def test_columns_encode_as_rows_do() -> None:
    builder = RocketBatchBuilder(4 << 20)
    columns = columns_of([ROWS[0], *ROWS])[1:]
    check_rocket_columns(columns, 1000)
    assert builder.append_columns(columns, 0, 5, ids(), NOW, 4 << 20) == 5
    body = builder.finish()
    assert body == by_hand(ROWS)
    read = decode_rocketmq_batch(body)
    assert (read.values(), read.keys(), read.headers()) == tuple([row[at] for row in ROWS] for at in range(3))
    first = RocketBatchBuilder(4 << 20)
    assert first.append_columns(columns, 2, 5, ids(), NOW, 100) == 1  # whatever its size
    assert first.append_columns(columns, 3, 5, ids(), NOW, 100) == 0
    with pytest.raises(ValueUnsupported):
        RocketBatchBuilder(500).append_columns(columns, 2, 5, ids(), NOW, 100)


def own_times(body: bytes) -> list[int | None]:
    """Read the property BORN_TIMESTAMP of each message of a batch by hand, in ms; None where it has none."""
    found: list[int | None] = []
    while body:
        size = int.from_bytes(body[:4])
        properties = body[22 + int.from_bytes(body[16:20]) : size]
        pairs = dict(part.split(b"\x01") for part in properties.split(b"\x02")[:-1])
        found.append(int(pairs[b"BORN_TIMESTAMP"]) if b"BORN_TIMESTAMP" in pairs else None)
        body = body[size:]
    return found


STAMPS = [7, None, 8, -1, (1 << 63) - 1, -(1 << 63), 0, NOW, 7]


@pytest.mark.parametrize("key", [b"k", "kü".encode()])  # one way or the other of writing a row
def test_rows_of_any_time_share_a_command_and_keep_a_time_that_is_not_its_own(key: bytes) -> None:
    columns = columns_of([(b"v", key, (("h", b"1"),), stamp) for stamp in STAMPS])
    builder = RocketBatchBuilder(4 << 20)
    assert builder.append_columns(columns, 0, len(STAMPS), ids(), NOW, 4 << 20, 7) == len(STAMPS)
    body = builder.finish()
    assert own_times(body) == [None, NOW, 8, -1, (1 << 63) - 1, -(1 << 63), 0, NOW, None]
    assert builder.append_columns(columns, 0, len(STAMPS), ids(), NOW, 4 << 20) == len(STAMPS)
    unstamped = builder.finish()
    assert own_times(unstamped) == STAMPS
    read = decode_rocketmq_batch(unstamped)
    assert (read.timestamps(), read.keys(), read.headers()) == (STAMPS, [key] * len(STAMPS), [(("h", b"1"),)] * len(STAMPS))


@pytest.mark.parametrize("key", [b"k", "kü".encode()])
def test_a_row_whose_properties_have_no_room_for_a_time_is_left_to_the_next_command(key: bytes) -> None:
    room = 32767 - len(key) - 6 - 52 - 2 - 2
    for left, taken in ((36, 2), (35, 1)):
        rows = [(b"v", b"k", (), 7), (b"v", key, (("hh", b"x" * (room - left)),), -(1 << 63))]
        builder = RocketBatchBuilder(4 << 20)
        assert builder.append_columns(columns_of(rows), 0, 2, ids(), NOW, 4 << 20, 7) == taken
    alone = RocketBatchBuilder(4 << 20)
    assert alone.append_columns(columns_of(rows), 1, 2, ids(), NOW, 4 << 20, -(1 << 63)) == 1
    assert own_times(alone.finish()) == [None]


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ((None, None, (), None), "null value"),
        ((b"v" * 101, None, (), None), "101 bytes"),
        ((b"v", b"two words", (), None), "white space"),
        ((b"v", "no\u2003em space".encode(), (), None), "white space"),
        ((b"v", b"", (), None), "empty"),
        ((b"v", b"\xff", (), None), "UTF-8"),
        ((b"v", b"a\x01", (), None), "cannot carry"),
        ((b"v", None, (("KEYS", b"1"),), None), "belongs"),
        ((b"v", None, (("a", b"1"), ("a", b"1")), None), "twice"),
        ((b"v", None, tuple((f"n{n % 30}", b"1") for n in range(40)), None), "twice"),
        ((b"v", None, (("a", None),), None), "null"),
        ((b"v", None, (("a", b""),), None), "empty"),
        ((b"v", None, (("a", b"\x02"),), None), "cannot carry"),
        ((b"v", None, (("a\x02", b"1"),), None), "cannot carry"),
        ((b"v", None, (("a", b"x" * 32767),), None), "32767"),
    ],
)
def test_a_row_that_cannot_be_sent_is_named(bad: tuple, text: str) -> None:
    columns = columns_of([(b"ok", b"k", (), None), bad])
    with pytest.raises(ValueUnsupported, match=f"row 1: .*{text}"):
        check_rocket_columns(columns, 100)
    check_rocket_columns(columns[:1], 100)


def test_properties_of_plain_keys() -> None:
    for key in (None, b"k", b"!~" * 4000):
        assert rocket_plain_properties(key, ids(), NOW) == record.properties(key, None, ids().next(NOW)).encode()
    for key in (b"", b"two words", "ü".encode(), b"\x7f", b"\x01", bytearray(b"k"), "text", b"k" * 9000):
        assert rocket_plain_properties(key, ids(), NOW) is None


@pytest.mark.parametrize("properties", ["", 'KEYS\x01a"b\\\x02', "ü\x1f\t\n\x7f\u2028😀", "\x00" * 3000])
def test_heads_of_send_commands_read_as_the_general_codec_writes_them(properties: str) -> None:
    header = RocketSendHeader('group "g"', "topic-ü")
    for code in (310, 320):
        ext = dict(zip("abcdefghi", ('group "g"', "topic-ü", "TBW102", "4", "11", "257", str(NOW), "0", properties), strict=True))
        ext |= {"j": "0", "k": "false", "m": "false" if code == 310 else "true"}
        head = header.encode(code, 0x7FFFFFFF, 11, 257, NOW, properties.encode())
        wanted = RemotingCommand(code, 0x7FFFFFFF, ext=ext)
        assert RemotingCommand.decode(head) == wanted
        theirs = b"".join(map(bytes, wanted.encode()))
        assert json.loads(head[4:]) == json.loads(theirs[4:])
    with pytest.raises(ValueUnsupported):
        header.encode(310, 1, 0, 0, 0, b"x" * (1 << 24))


def test_unique_ids_count_on() -> None:
    made = ids()
    assert made.next(NOW) == "7F000001000100000002000000050001"
    assert made.next(NOW + 1) == "7F000001000100000002000000060002"
    assert len({made.next(NOW) for _ in range(65536)}) == 65536


def test_java_hash_over_any_text() -> None:
    rng = random.Random(3)
    texts = ["", "a", "hello", "ü€", "😀x", "\ud800", "\udfff\ud800"]
    texts += [
        "".join(chr(rng.choice((rng.randrange(128), rng.randrange(0x800), rng.randrange(0x110000)))) for _ in range(9)) for _ in range(300)
    ]
    for text in texts:
        wanted = 0
        units = text.encode("utf-16-be", "surrogatepass")
        for at in range(0, len(units), 2):
            wanted = (wanted * 31 + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
        assert java_hash(text.encode("utf-8", "surrogatepass")) & 0xFFFFFFFF == wanted
    keys = [text.encode("utf-8", "surrogatepass") for text in texts]
    assert java_hashes(Columns.from_rows(keys, [None, *keys[1:]])) == [None, *map(java_hash, keys[1:])]
    for broken in (b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"a\xff"):
        java_hash(broken)
