"""A journal: one JSON line an event, written at once, so that a killed process has told what it did; and its reading while it grows.

The clock is CLOCK_MONOTONIC, which all processes of a machine share. May assume: one process writes a file, from many threads.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from wireproto.errors import WireprotoError
from wireproto.position import LogOffset, MessageId, Position, QueueOffset, UnknownPosition

Answer = TypeVar("Answer")
SLOW = 1.0  # seconds from which on a call is worth a line of its own


class Journal:
    """See the module."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, kind: str, role: str, *facts: Any, at: float | None = None) -> None:
        line = json.dumps([round(time.monotonic() if at is None else at, 4), kind, role, *facts], separators=(",", ":"))
        os.write(self._file, line.encode() + b"\n")  # one write: lines of several threads never mix

    def timed(self, role: str, name: str, timeout: float, call: Callable[[], Answer]) -> Answer:
        """Run a call that was given `timeout`; tell when it was slow or failed."""
        began = time.monotonic()
        outcome = "ok"
        try:
            return call()
        except BaseException as why:
            outcome = said(why)
            raise
        finally:
            seconds = time.monotonic() - began
            if outcome != "ok" or seconds > SLOW:
                self.note("call", role, name, timeout, round(seconds, 3), outcome)


class Follower:
    """Reads journals as they grow; a line that is not whole yet waits for the next look."""

    def __init__(self) -> None:
        self._places: dict[Path, int] = {}

    def events(self, folder: Path) -> Iterator[list[Any]]:
        """What was written since the last look, in order of time."""
        found = []
        for path in sorted(folder.glob("*.journal")):
            with path.open("rb") as file:
                file.seek(self._places.get(path, 0))
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._places[path] = self._places.get(path, 0) + len(whole)
            found += [json.loads(line) for line in whole.splitlines()]
        yield from sorted(found, key=lambda event: event[0])


def said(why: BaseException) -> str:
    text = str(why) if isinstance(why, WireprotoError) else repr(why)
    return f"{type(why).__name__}: {text}"[:300]


def log_of(position: Position) -> str:
    """The name of a partition that is the same for all clients."""
    topic = position.topic.strip("/")
    if isinstance(position, QueueOffset):
        return f"{topic}/{position.broker}-{position.queue}"
    return f"{topic}/{max(position.partition, 0)}"


def place_of(position: Position) -> list[int]:
    """Numbers that have the log's order."""
    if isinstance(position, UnknownPosition):  # a record that a broker knows already has no place in its answer
        return []
    if isinstance(position, MessageId):
        return [position.ledger, position.entry, max(position.index, 0)]
    assert isinstance(position, LogOffset)
    return [position.offset]
