"""Whether each life of a reader saw its stretch of the log: every record, once, in order, from its start to its stop.

Sans-IO. A life's facts: ``start`` is "earliest", or ``{log: place}`` of the last record *before* it (none: the log's beginning); ``stop``
tells that it was to end at what was there when it opened, of which the least is what had been acknowledged by then. Where a reader says
what its stop is, it has to reach that; that a stop lies before what was acknowledged is counted near a fault: a broker that does not know
yet that another one leads tells the end that it knows.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence

from .ledger import Finding, Ledger, Life, Place, Truth, topic_of


def judge(ledger: Ledger, truth: Truth) -> Iterator[Finding]:
    for (name, _), life in ledger.lives.items():
        role = ledger.roles[name]
        if role.kind == "reader" and role.fleeting:
            yield from _forward(ledger, life, truth)
        if role.kind != "reader" or role.fleeting:
            continue
        logs = [log for log in truth if topic_of(log) == role.topic]
        for log in sorted({*logs, *life.got}):
            yield from _one(ledger, life, log, truth.get(log, ()), _there(ledger, life, log))
        yield from _last(ledger, life, truth, logs)


def after(rows: Sequence[tuple[Place, str]], place: Place | None) -> int:
    """Number of the first row behind a place."""
    return 0 if place is None else bisect.bisect_right(rows, place, key=lambda row: row[0])


def _one(ledger: Ledger, life: Life, log: str, rows: Sequence[tuple[Place, str]], upto: Place | None) -> Iterator[Finding]:
    got = life.got.get(log, [])
    who = f"{life.role} (life {life.number}) in {log}"
    start = life.facts.get("start")
    expected = 0
    if isinstance(start, dict):
        expected = after(rows, tuple(start[log]) if start.get(log) is not None else None)
    for at, place, name in got:
        if expected < len(rows) and rows[expected] == (place, name):
            expected += 1
            continue
        found = bisect.bisect_left(rows, place, key=lambda row: row[0])
        if found >= len(rows) or rows[found][0] != place:
            yield Finding("reads what is there", f"{who}: {name} at {place}, which the log does not hold", at)
        elif rows[found][1] != name:
            yield Finding("reads what is there", f"{who}: {name} at {place}, where {rows[found][1]} is", at)
        elif found > expected:
            yield Finding("no gap", f"{who}: {found - expected} records passed over from {rows[expected][0]} to {place}", at)
        else:
            yield Finding("no repeat on reading", f"{who}: {place} again, {expected - found} back", at)
        expected = found + 1
    if life.facts.get("stop") and life.ended is not None and not life.why:
        stop = life.stops.get(log)
        short = after(rows, stop) - expected if stop is not None else 0
        if short > 0:
            yield Finding("reads to its stop", f"{who}: ended {short} records before its own stop", life.ended)
        early = after(rows, upto) - expected if upto is not None else 0
        if early > max(0, short):
            told = stop is not None and ledger.troubled(life.began - 10.0, life.began)
            yield Finding("reads to its stop", f"{who}: ended {early} records before what was there when it opened", life.ended, not told)


def _forward(ledger: Ledger, life: Life, truth: Truth) -> Iterator[Finding]:
    """A life goes forward. One that is to be told of a log that is cut or made again ends by an error that tells so, or is gone on with by
    one that does: else it saw what is there."""
    tells = _tells(ledger, life)
    for log, got in life.got.items():
        there = set(truth.get(log, ()))
        last: Place = ()
        who = f"{life.role} (life {life.number}) in {log}"
        for at, place, name in got:
            if place <= last:
                yield Finding("no repeat on reading", f"{who}: {name} at {place} behind {last}", at)
            if life.facts.get("told") and not tells and (place, name) not in there:
                ended = life.why or "no error"
                yield Finding("reads what is there", f"{who}: {name} at {place}, which the log does not hold, and it ended by {ended}", at)
                break
            last = place


def _tells(ledger: Ledger, life: Life) -> bool:
    """Whether a reader was told in this life, or in one that went on where it ended by other trouble."""
    if life.why.partition(":")[0] in life.facts.get("told", ()):
        return True
    following = ledger.lives.get((life.role, life.number + 1))
    return bool(life.why) and following is not None and isinstance(following.facts.get("start"), dict) and _tells(ledger, following)


def _there(ledger: Ledger, life: Life, log: str) -> Place | None:
    """The last place in a log that a producer had been told when this life began."""
    if not life.facts.get("stop"):
        return None
    roles = [role for role in ledger.kind("producer") if role.topic == topic_of(log) and role.promise.kept]
    told = (ack for role in roles for ack in ledger.acked[role.name].values() if ack.log == log and ack.at < life.began)
    return max((ack.place for ack in told), default=None)


def _last(ledger: Ledger, life: Life, truth: Truth, logs: list[str]) -> Iterator[Finding]:
    """One that follows the log for ever has reached its end when the campaign ends."""
    if life.facts.get("stop") or life.why or (life.role, life.number + 1) in ledger.lives or life.ended is None:
        return
    for log in logs:
        rows = truth[log]
        got = life.got.get(log, [])
        start = life.facts.get("start")
        begun = after(rows, tuple(start[log]) if isinstance(start, dict) and start.get(log) is not None else None)
        reached = after(rows, got[-1][1]) if got else begun
        if reached < len(rows):
            text = f"{life.role} in {log}: {len(rows) - reached} of {len(rows)} were never delivered"
            yield Finding("reads to the end", text, life.ended)
