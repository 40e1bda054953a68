"""What KafkaBatchBuilder writes, in every format and codec, is read by Kafka's own Java classes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from brokers import java
from wireproto._codec import Columns, KafkaBatchBuilder

pytestmark = pytest.mark.java

JARS = "kafka-3.9.2"  # later ones have these classes elsewhere
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]  # value, key, headers, timestamp


def blob(rng: random.Random, *, plain: bool) -> bytes | None:
    size = rng.choice((None, 0, 1, 15, 16, 63, 64, 65, 300, 7999, 8000, 9000, 70_000))
    if size is None:
        return None
    return rng.randbytes(size) if plain else (rng.randbytes(7) * (size // 7 + 1))[:size]


def rows_of(rng: random.Random, magic: int) -> list[Row]:
    rows: list[Row] = []
    plain = rng.random() < 0.3
    for _ in range(rng.choice((1, 3, 70, 150))):
        headers = [(f"h{n}", blob(rng, plain=plain)) for n in range(rng.choice((0, 0, 1, 3)))] if magic == 2 else []
        rows.append((blob(rng, plain=plain), blob(rng, plain=plain), headers, rng.choice((1_700_000_000_000, rng.randrange(2**41)))))
    return rows


def wanted(magic: int, rows: list[Row]) -> list[Any]:
    def text(data: bytes | None) -> str | None:
        return None if data is None else data.hex()

    return [
        [n, -1 if magic == 0 else time, text(key), text(value), [[name.encode().hex(), text(data)] for name, data in headers]]
        for n, (value, key, headers, time) in enumerate(rows)
    ]


def test_java_reads_what_we_wrote(oracle: Any) -> None:
    rng = random.Random(8)
    cases = []
    for magic in (0, 1, 2):
        for codec in CODECS:
            if magic == 2 or codec != "zstd":
                for by_columns in (False, True) * 2:
                    rows = rows_of(rng, magic)
                    cases.append((magic, codec, rows, encoded(magic, codec, rows, by_columns=by_columns)))
    said = java.run(JARS, "KafkaRecords", input=[batch.hex() for *_, batch in cases])
    assert len(said) == len(cases)
    for (magic, codec, rows, _), found in zip(cases, said, strict=True):
        assert found["records"] == wanted(magic, rows), (magic, codec)
    oracle(f"records {JARS}", batches=len(cases), records=sum(len(rows) for _, _, rows, _ in cases))


def encoded(magic: int, codec: str, rows: list[Row], *, by_columns: bool) -> bytes:
    builder = KafkaBatchBuilder(magic=magic, compression=codec, limit=1 << 28)
    if not by_columns:
        for value, key, headers, time in rows:
            assert builder.append(value, key, headers, time)
        return builder.finish()
    columns = Columns.from_rows(*([row[n] for row in rows] for n in (0, 1, 2, 3)))
    assert builder.append_columns(columns, 0, len(rows), -1) == len(rows)
    return builder.finish()
