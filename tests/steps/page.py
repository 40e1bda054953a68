"""docs/faults.md: written, and held to what happens.

Each cell is measured in a thread of its own; one that differs is measured again, alone, to see whether a busy machine made the difference.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

from .cells import Cell, cells, measured
from .lives import TIMEOUT
from .vendors import VENDORS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "faults.md"
PROTOCOLS = ("kafka", "pulsar", "rocketmq", "zookeeper")
BESIDE = 32  # nearly all of them wait; more of them get in each other's way
BOUNDS = (2, 5, 10, 20, 60)
"""Seconds that a life, all of its calls together, may take; coarse, so that the page says what is kept on a busy machine, too."""


@dataclass(frozen=True)
class Row:
    """A line of the table but for its bounds, and the seconds that it took: with the fault once, and for ever."""

    before: str
    after: str
    seconds: tuple[float, float]

    def within(self, bounds: tuple[int, int]) -> str:
        return f"{self.before} {bounds[0]} s, {bounds[1]} s {self.after}"

    def on(self, known: Collection[str]) -> str | None:
        """The line that it is there: one whose bounds it kept."""
        for bounds in product(BOUNDS, BOUNDS):
            if self.within(bounds) in known and all(took <= bound for took, bound in zip(self.seconds, bounds, strict=True)):
                return self.within(bounds)
        return None

    def new(self) -> str:
        """Its line with bounds that leave room for a busy machine."""
        first, second = (next(bound for bound in BOUNDS if roomy(took) <= bound) for took in self.seconds)
        return self.within((first, second))


def roomy(took: float) -> float:
    """Seconds to allow what took so many: pauses between tries are drawn, so that what filled much of the timeout may fill all of it."""
    room = took * 1.3 + 0.5
    return room if took < TIMEOUT / 3 else max(room, TIMEOUT + 1)


def attempt(cell: Cell) -> Row | str:
    """Its row, or what is wrong with it."""
    try:
        once, ever, seconds = measured(cell)
    except AssertionError as why:
        return f"{cell.protocol}, {cell.step}, {cell.fault}: {why}"
    marks = VENDORS[cell.protocol].marks((cell.step, cell.fault))
    return Row(f"| {cell.step} | {cell.fault} | {once} | {ever} |", f"| {marks} |", seconds)


def line(cell: Cell, known: Collection[str]) -> tuple[str, bool]:
    """What stands on the page, or should, and whether it does."""
    found = attempt(cell)
    if isinstance(found, str):
        return found, False
    there = found.on(known)
    return (found.new(), False) if there is None else (there, True)


def section(protocol: str, page: str) -> str:
    """A protocol's part of the page."""
    return page.partition(f"\n## {protocol}\n")[2].partition("\n## ")[0]


def disagreeing(protocol: str, page: str) -> list[str]:
    """Lines of the table that are not on the page."""
    known = section(protocol, page).splitlines()
    every = longest_first(cells(protocol), known)
    with ThreadPoolExecutor(BESIDE) as pool:
        odd = [cell for cell, (_, there) in zip(every, pool.map(lambda cell: line(cell, known), every), strict=True) if not there]
    assert len(known) > len(every)
    return [told[-1] for told in (again(cell, known) for cell in odd) if told]


def longest_first(every: Iterable[Cell], known: Collection[str]) -> list[Cell]:
    """Sort by the seconds that the page allows, so that none of those that take long is left to begin last."""
    allowed = {}
    for row in known:
        columns = row.split(" | ")
        if len(columns) > 4:
            allowed[columns[0].removeprefix("| "), columns[1]] = sum(map(int, re.findall(r"(\d+) s", columns[4])))
    return sorted(every, key=lambda cell: -allowed.get((cell.step, cell.fault), 0))


def again(cell: Cell, known: Collection[str]) -> list[str]:
    """What it is thrice, alone, or nothing as soon as it is as the page says."""
    lines: list[str] = []
    for _ in range(3):
        text, there = line(cell, known)
        if there:
            return []
        lines.append(text)
    return lines


def page() -> str:
    """All of it; bounds that are kept stay."""
    before = PAGE.read_text()
    parts = [INTRODUCTION]
    for protocol in PROTOCOLS:
        known = section(protocol, before).splitlines()
        head = f"## {protocol}\n\n| step | fault | met once | met for ever | within | vendor |\n|---|---|---|---|---|---|\n"
        with ThreadPoolExecutor(BESIDE) as pool:
            lines = [text for text, _ in pool.map(partial(line, known=known), cells(protocol))]
            parts.append(head + "\n".join(lines) + "\n\n" + VENDORS[protocol].beneath())
    return "\n".join(parts)


INTRODUCTION = """# What becomes of a fault, step by step

Made by `make faults`; a test holds it to what happens. A client connects and leads one of four lives (it opens a producer and sends a
record; it reads a topic up to its end; it is a member of a group that reads, commits, beats and leaves; it works through a queue), or, of
ZooKeeper, a fifth (it keeps a node: identity, watches, a lost connection, a write, a ping, the end), of Kafka, that of an administrator of
topics and a group, and of Pulsar, that of a producer and a consumer whose topic is unloaded, and of who reads a terminated topic, against a
scripted peer or the embedded broker, and one step meets a fault: once, or for ever. *goes on*: what was to be done is done, each record
stored, read, committed as it should be, the caller hears nothing. *tried again, in vain*: as long as there was time, then the last error is
raised, or TimedOut that tells it, or polls come back empty. *waited for, in vain*: the same, without another try. A class: that error is
raised at once. Every call ends within its timeout, which is 6 s here, with 2 s for a connection.

*within*: seconds that the whole life, all its calls together, took at most: with the fault once, and for ever. The test holds each cell to
its bound, one of 2, 5, 10, 20 and 60 s; requests, look-ups and Pulsar's operations have 0.5 s for one try here.

*silence*: the peer takes what is sent and never answers. *a byte changed*: the sixth of the answer. *unasked*: what the broker says by
itself. *half-open*: at a certain answer the broker loses the connection, and the client hears nothing of it. *slow bytes*: whatever the
broker says comes four bytes at a time.

*vendor*: the numbers of what the vendor's client does otherwise, beneath each table. That was read in its sources, with its defaults, and
names where it is decided; *run*: it was also run against the same peers or the embedded broker. Names of errors and lengths of timeouts are
each client's own and make no difference here, unless they hide the cause.
"""
