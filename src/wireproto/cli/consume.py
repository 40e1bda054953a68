"""Runs ``wireproto consume URL``: writes a topic's records as text, Parquet or Arrow."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import wireproto
from wireproto.cli.lines import Template, to_json
from wireproto.cli.where import parse_place, server_of, topic_of
from wireproto.errors import OptionError
from wireproto.protocols import find
from wireproto.url import parse

if TYPE_CHECKING:
    from wireproto.records import Batch
    from wireproto.roles import Reader


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("url", help="kafka://host:port/topic, pulsar://…, rocketmq://…, zookeeper://host/queue/path")
    parser.add_argument("--from", dest="start", default="earliest", help="earliest, latest, a time, or positions: 0=123,1=456")
    parser.add_argument("--to", dest="stop", help="latest (fixed when it starts), a time or positions; without it: follow for ever")
    parser.add_argument("--format", choices=("jsonl", "template", "parquet", "arrow"), default="jsonl")
    parser.add_argument("--template", default="{key}\\t{value}\\n", help="for --format template (default: %(default)s)")
    parser.add_argument("--partition", type=int, action="append", help="read only this partition (may be repeated)")
    parser.add_argument("--output", "-o", default="-", help="a file; standard output without it")
    parser.add_argument("--limit", type=int, help="end after this many records")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds to wait for the broker (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    """Open a reader, and write its records; returns the exit code. Raises OptionError."""
    topic = topic_of(options.url)
    start = parse_place(options.start, topic)
    stop = parse_place(options.stop, topic) if options.stop else None
    if options.format in ("parquet", "arrow") and stop is None and options.limit is None:
        raise OptionError(f"--format {options.format} needs an end: --to latest or --limit")
    with wireproto.connect(server_of(options.url), timeout=options.timeout) as client:
        if options.partition:
            ends = client.admin().positions(topic, start)
            wanted = {(topic, number) for number in options.partition}
            if wanted - set(ends):
                raise OptionError(f"{topic} has no partition {min(wanted - set(ends))[1]}")
            start = {key: ends[key] for key in wanted}
        with client.reader(topic, start=start, stop=stop) as reader:
            batches = limited(reader, options.limit)
            if options.format in ("parquet", "arrow"):
                return columns(batches, options)
            return text(batches, options)


def limited(reader: Reader, limit: int | None) -> Iterator[Batch]:
    """Yield batches until they have `limit` records together; the last one may have more, and the caller cuts it."""
    left = limit
    for batch in reader:
        yield batch
        if left is not None:
            left -= len(batch)
            if left <= 0:
                return


def text(batches: Iterator[Batch], options: argparse.Namespace) -> int:
    """Write one line, or one filled template, for each record."""
    template = Template(options.template) if options.format == "template" else None

    def line(record: Any) -> bytes:
        return template.write(record) if template is not None else to_json(record).encode() + b"\n"

    stream = sys.stdout.buffer if options.output == "-" else Path(options.output).open("wb")  # noqa: SIM115  (standard output stays open)
    left = options.limit if options.limit is not None else sys.maxsize
    try:
        for batch in batches:
            for record in batch:
                if left == 0:
                    return 0
                stream.write(line(record))
                left -= 1
            stream.flush()
    finally:
        if options.output != "-":
            stream.close()
    return 0


def columns(batches: Iterator[Batch], options: argparse.Namespace) -> int:
    """Write all batches into one Parquet file or Arrow stream, with the partition as a column. Raises OptionError without pyarrow."""
    try:
        import pyarrow as pa
    except ImportError as why:
        raise OptionError("--format parquet and arrow need pyarrow: pip install wireproto[arrow]") from why
    from wireproto._codec import ColumnsBuilder

    sink = sys.stdout.buffer if options.output == "-" else options.output
    left = options.limit if options.limit is not None else sys.maxsize
    opener: Callable[..., Any]
    if options.format == "parquet":
        import pyarrow.parquet

        opener = pyarrow.parquet.ParquetWriter
    else:
        opener = pa.ipc.new_stream
    nothing = pa.record_batch(ColumnsBuilder(find(parse(options.url).protocol).position).finish())
    with opener(sink, with_partition(nothing, 0).schema) as writer:  # without rows, a file is written all the same
        for batch in batches:
            plain = with_partition(pa.record_batch(batch), batch.partition).slice(0, left)
            left -= plain.num_rows
            if plain.num_rows:
                writer.write_batch(plain)
    return 0


def with_partition(batch: Any, partition: int) -> Any:
    """Add the column ``partition`` to a record batch."""
    import pyarrow as pa

    return batch.append_column("partition", pa.repeat(pa.scalar(partition, pa.int32()), batch.num_rows))
