"""Runs ``wireproto produce URL [FILE…]``: sends records that it reads as text to a topic."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO

import wireproto
from wireproto.cli.lines import Row, Template, from_json
from wireproto.cli.where import server_of, topic_of


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("url", help="kafka://host:port/topic?compression=zstd, pulsar://…, rocketmq://…, zookeeper://host/queue/path")
    parser.add_argument("files", nargs="*", help="files to read; standard input without any")
    parser.add_argument("--format", choices=("jsonl", "lines", "template"), default="jsonl", help="lines: each line is a value")
    parser.add_argument("--template", default="{key}\\t{value}", help="for --format template (default: %(default)s)")
    parser.add_argument("--partition", type=int, help="send everything to this partition")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds to wait for the broker (default: %(default)s)")


def run(options: argparse.Namespace) -> int:
    """Send every line, wait for the acknowledgements, and print their number; returns the exit code."""
    template = Template(options.template) if options.format == "template" else None
    count = 0
    with wireproto.connect(server_of(options.url), timeout=options.timeout) as client, client.producer(topic_of(options.url)) as out:
        for row in rows(options, template):
            partition = options.partition if options.partition is not None else row.partition
            out.send(row.value, key=row.key, headers=row.headers, timestamp=row.timestamp, partition=partition, timeout=options.timeout)
            count += 1
        out.flush(timeout=options.timeout)
    print(f"{count} records acknowledged", file=sys.stderr)
    return 0


def rows(options: argparse.Namespace, template: Template | None) -> Iterator[Row]:
    """Yield the rows of all input files, line by line."""
    for name in options.files or ["-"]:
        opened = nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb")  # noqa: SIM115  (closed by the with below)
        with opened as stream:
            yield from read(stream, options.format, template)


def read(stream: BinaryIO, form: str, template: Template | None) -> Iterator[Row]:
    """Yield the rows of one input. Raises OptionError for a line that cannot be read."""
    for number, line in enumerate(stream, 1):
        line = line.removesuffix(b"\n")
        if form == "lines":
            yield Row(line)
        elif template is not None:
            yield template.read(line, number)
        elif line.strip():
            yield from_json(line.decode(errors="surrogateescape"), number)
