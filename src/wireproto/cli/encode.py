"""Runs ``wireproto encode PROTOCOL MESSAGE [VERSION]``: turns JSON, as decode prints it, into the bytes of a message or frame."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from wireproto import wire
from wireproto.cli.decode import add_message
from wireproto.cli.jsonl import Request, answer_lines, member, version_of
from wireproto.errors import OptionError


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_message(parser)
    parser.add_argument("--input", "-i", type=Path, help="a file; standard input without it")
    parser.add_argument("--raw", action="store_true", help="write the bytes themselves instead of hex digits")


def run(options: argparse.Namespace) -> int:
    """Encode one message, or answer lines until the input ends; returns the exit code."""
    if options.jsonl:
        return answer_lines(answer)
    version = version_of(options)
    text = options.input.read_bytes() if options.input else sys.stdin.buffer.read()
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError) as why:
        raise OptionError(f"the input is not JSON: {why}") from None
    data = wire.encode(options.protocol, options.message, version, fields)
    if options.raw:
        sys.stdout.buffer.write(data)
    else:
        print(data.hex())
    return 0


def answer(request: Request) -> dict[str, Any]:
    """Return the answer to one line's request. Raises OptionError, and what `wire.encode` raises."""
    protocol, message = member(request, "protocol", str), member(request, "message", str)
    return {"hex": wire.encode(protocol, message, request.get("version", 0), member(request, "fields", dict)).hex()}
