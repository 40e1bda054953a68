"""Speaks the line protocol of ``decode --jsonl`` and ``encode --jsonl``: one request a line, one answer a line, in order.

    {"protocol": "kafka", "message": "FetchResponse", "version": 4, "hex": "…"}         {"message": {…}}
    {"protocol": "kafka", "message": "FetchResponse", "version": 4, "fields": {…}}      {"hex": "…"}
                                                                          or, either     {"error": "…", "kind": "Truncated"}

``kind`` is the name of an error class of `wireproto.errors`. Answers are ASCII, so that any text survives, and are written at once.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from wireproto import wire
from wireproto.errors import OptionError, WireprotoError

Request = dict[str, Any]
T = TypeVar("T")


def answer_lines(answer: Callable[[Request], dict[str, Any]]) -> int:
    """Answer standard input line by line until it ends, also blank lines: the n-th answer belongs to the n-th line."""
    out = sys.stdout
    for number, line in enumerate(sys.stdin.buffer, 1):
        out.write(reply(answer, line, number) + "\n")
        out.flush()
    return 0


def reply(answer: Callable[[Request], dict[str, Any]], line: bytes, number: int) -> str:
    """Return the answer to one line as JSON, an error included."""
    try:
        if not line.strip():
            raise OptionError(f"line {number} is blank")
        try:
            request = json.loads(line)
        except (ValueError, RecursionError) as why:
            raise OptionError(f"line {number} is not JSON: {why}") from None
        if not isinstance(request, dict):
            raise OptionError(f"line {number} is not a JSON object")
        return json.dumps(answer(request), allow_nan=False)
    except WireprotoError as error:
        return json.dumps({"error": str(error), "kind": type(error).__name__})
    except Exception as error:  # a fault of this package must not leave later lines unanswered
        return json.dumps({"error": f"{type(error).__name__}: {error}", "kind": WireprotoError.__name__})


def member(request: Request, name: str, kind: type[T]) -> T:
    """Return a required member of a request. Raises OptionError when it is missing or not a `kind`."""
    value = request.get(name)
    if not isinstance(value, kind):
        wanted = "a text" if kind is str else "an object"
        raise OptionError(f"{name} must be {wanted}" if name in request else f"{name} is missing")
    return value


def version_of(options: argparse.Namespace) -> int:
    """Return the version that was asked for, or the message's only one. Raises OptionError, UnknownMessage."""
    if not options.protocol or not options.message:
        raise OptionError("which message? PROTOCOL MESSAGE [VERSION], or --jsonl; wireproto messages lists all")
    first, last = wire.versions(options.protocol, options.message)
    if options.version is None:
        if first != last:
            raise OptionError(f"which version of {options.message}? {first} to {last}")
        return first
    return int(options.version)
