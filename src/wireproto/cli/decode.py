"""Runs ``wireproto decode PROTOCOL MESSAGE [VERSION]``: prints the bytes of a message or frame as JSON.

``--explain`` prints it byte by byte, ``--jsonl`` answers scripts line by line.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from wireproto import wire
from wireproto.cli.jsonl import Request, answer_lines, member, version_of
from wireproto.errors import Malformed, OptionError, WireprotoError

_HEX = re.compile(rb"[0-9A-Fa-f\s]+")


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_message(parser)
    parser.add_argument("--input", "-i", type=Path, help="a file; standard input without it")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--raw", action="store_true", help="the input is bytes even if it looks like hex digits")
    form.add_argument("--hex", help="the bytes as hex digits, here instead of an input")
    parser.add_argument("--explain", action="store_true", help="offset, bytes, field and value, line by line")


def add_message(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that decode and encode share."""
    parser.add_argument("protocol", nargs="?", help=", ".join(wire.protocols()))
    parser.add_argument("message", nargs="?", help="its vendor's name; wireproto messages lists all")
    parser.add_argument("version", nargs="?", type=int, help="needed where there is more than one")
    parser.add_argument("--jsonl", action="store_true", help="one request a line from standard input, one answer a line, in order")


def run(options: argparse.Namespace) -> int:
    """Decode one message, or answer lines until the input ends; returns the exit code."""
    if options.jsonl:
        return answer_lines(answer)
    version = version_of(options)
    if options.hex is not None:
        data = from_hex(options.hex.encode(errors="replace"))
    else:
        data = options.input.read_bytes() if options.input else sys.stdin.buffer.read()
        if not options.raw and _HEX.fullmatch(data):
            data = from_hex(data)
    if options.explain:
        return explain(options.protocol, options.message, version, data)
    fields = wire.decode(options.protocol, options.message, version, data)
    text = json.dumps(fields, indent=2, ensure_ascii=False, allow_nan=False)
    if re.search(r"[\ud800-\udfff]", text):  # a lone surrogate has no UTF-8
        text = json.dumps(fields, indent=2, allow_nan=False)
    print(text)
    return 0


def answer(request: Request) -> dict[str, Any]:
    """Return the answer to one line's request. Raises OptionError, and what `wire.decode` raises."""
    text = member(request, "hex", str)
    try:
        data = bytes.fromhex(text)
    except ValueError:
        raise Malformed("hex is no even number of hex digits", path="hex") from None
    message = wire.decode(member(request, "protocol", str), member(request, "message", str), request.get("version", 0), data)
    return {"message": message}


def explain(protocol: str, message: str, version: int, data: bytes) -> int:
    """Print every value beside its bytes. If the bytes cannot be decoded, print the values before that, and raise the error."""
    failed: WireprotoError | None = None
    try:
        lines = wire.explain(protocol, message, version, data)
    except WireprotoError as error:
        lines, failed = getattr(error, "lines", []), error
    width = max(min(max((len(line.path) for line in lines), default=0), 60), 5)
    for line in lines:
        raw = data[line.offset : line.stop]
        shown = raw[:12].hex(" ") + (" …" if len(raw) > 12 else "")
        value = json.dumps(line.value)
        print(f"{line.offset:>8}  {shown:<37}  {line.path:<{width}}  {value if len(value) <= 100 else value[:99] + '…'}")
    if failed is not None:
        raise failed
    return 0


def from_hex(text: bytes) -> bytes:
    """Return the bytes of hex digits with any white space. Raises OptionError."""
    try:
        return bytes.fromhex(b"".join(text.split()).decode("ascii", "replace"))
    except ValueError:
        raise OptionError("not an even number of hex digits") from None
