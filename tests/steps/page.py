"""docs/faults.md: written, and held to what happens.

Each cell is measured in a thread of its own; one that differs is measured again, alone, to see whether a busy machine made the difference.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .cells import Cell, cells, measured
from .vendors import VENDORS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "faults.md"
PROTOCOLS = ("kafka", "pulsar", "rocketmq", "zookeeper")
BESIDE = 16


def row(cell: Cell) -> str:
    """Its line of the table."""
    once, ever = measured(cell)
    return f"| {cell.step} | {cell.fault} | {once} | {ever} | {VENDORS[cell.protocol].marks((cell.step, cell.fault))} |"


def attempt(cell: Cell) -> str:
    """Its line, or what is wrong with it."""
    try:
        return row(cell)
    except AssertionError as why:
        return f"{cell.protocol}, {cell.step}, {cell.fault}: {why}"


def section(protocol: str, page: str) -> str:
    """A protocol's part of the page."""
    return page.partition(f"\n## {protocol}\n")[2].partition("\n## ")[0]


def disagreeing(protocol: str, page: str) -> list[str]:
    """Lines of the table that are not on the page."""
    known = section(protocol, page).splitlines()
    every = list(cells(protocol))
    with ThreadPoolExecutor(BESIDE) as pool:
        odd = [cell for cell, line in zip(every, pool.map(attempt, every), strict=True) if line not in known]
    left = [[line for line in (attempt(cell) for _ in range(3)) if line] for cell in odd]
    assert len(known) > len(every)
    return [lines[-1] for lines in left if not set(lines) & set(known)]


def page() -> str:
    parts = [INTRODUCTION]
    for protocol in PROTOCOLS:
        head = f"## {protocol}\n\n| step | fault | met once | met for ever | vendor |\n|---|---|---|---|---|\n"
        with ThreadPoolExecutor(BESIDE) as pool:
            parts.append(head + "\n".join(pool.map(attempt, cells(protocol))) + "\n\n" + VENDORS[protocol].beneath())
    return "\n".join(parts)


INTRODUCTION = """# What becomes of a fault, step by step

Made by `make faults`; a test holds it to what happens. A client connects and leads one of four lives (it opens a producer and sends a
record; it reads a topic up to its end; it is a member of a group that reads, commits, beats and leaves; it works through a queue), or, of
ZooKeeper, a fifth (it keeps a node: identity, watches, a lost connection, a write, a ping, the end), against a scripted peer or the
embedded broker, and one step meets a fault: once, or for ever. *goes on*: what was to be done is done, each record stored, read, committed
as it should be, the caller hears nothing. *tried again, in vain*: as long as there was time, then the last error is raised, or TimedOut
that tells it, or polls come back empty. *waited for, in vain*: the same, without another try. A class: that error is raised at once. Every
call ends within its timeout, which is 6 s here, with 2 s for a connection.

*silence*: the peer takes what is sent and never answers. *a byte changed*: the sixth of the answer. *unasked*: what the broker says by
itself. *half-open*: at a certain answer the broker loses the connection, and the client hears nothing of it. *slow bytes*: whatever the
broker says comes four bytes at a time.

*vendor*: the numbers of what the vendor's client does otherwise, beneath each table. That was read in its sources, with its defaults, and
names where it is decided; *run*: it was also run against the same peers or the embedded broker. Names of errors and lengths of timeouts are
each client's own and make no difference here, unless they hide the cause.
"""
