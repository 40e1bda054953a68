"""Whether the logs hold what producers were told: acknowledged means there, at its place; once; in order; given up means tried long enough.

Sans-IO: a ledger and the truth in, findings out. What a role was not promised (acks 0 and 1) is counted, and a finding only where no
fault explains it.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator

from .ledger import Finding, Ledger, Place, Role, Truth, key_of

SHOWN = 5  # examples in a text


def judge(ledger: Ledger, truth: Truth) -> Iterator[Finding]:
    where: dict[str, dict[int, list[tuple[str, Place]]]] = collections.defaultdict(lambda: collections.defaultdict(list))
    for log, rows in truth.items():
        for place, name in rows:
            source, _, number = name.rpartition(":")
            where[source][int(number)].append((log, place))
    for role in ledger.kind("producer"):
        places = where[role.name]
        yield from _lost(ledger, role, places)
        yield from _repeated(ledger, role, places)
        yield from _strangers(ledger, role, places)
        yield from _gave_up(ledger, role, places)
    yield from _order(ledger, truth)


def _some(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:SHOWN])) + (" …" if len(numbers) > SHOWN else "")


def _lost(ledger: Ledger, role: Role, places: dict[int, list[tuple[str, Place]]]) -> Iterator[Finding]:
    lost, moved = [], []
    for number, ack in ledger.acked[role.name].items():
        if number not in places:
            lost.append(number)
        elif ack.place and (ack.log, ack.place) not in places[number]:
            moved.append(number)
    if lost and not role.fleeting:
        explained = not role.promise.kept and all(_hurt(ledger, role, number) for number in lost)
        at = ledger.acked[role.name][lost[0]].at
        yield Finding("acknowledged is kept", f"{role.name}: {len(lost)} acknowledged and not there: {_some(lost)}", at, not explained)
    if moved:
        explained = not role.promise.kept and all(_hurt(ledger, role, number) for number in moved)
        yield Finding("place as told", f"{role.name}: {len(moved)} not where the receipt says: {_some(moved)}", fault=not explained)


def _hurt(ledger: Ledger, role: Role, number: int) -> bool:
    ack = ledger.acked[role.name][number]
    begin, end = ledger.sent[role.name][number] - 10.0, ack.at + 10.0
    return ledger.troubled(begin, end) or ledger.halted(begin, end) or (not role.promise.heard and ledger.waited(begin, end))


def _repeated(ledger: Ledger, role: Role, places: dict[int, list[tuple[str, Place]]]) -> Iterator[Finding]:
    twice = [number for number, found in places.items() if len(found) > 1]
    if twice:
        at = ledger.sent[role.name].get(twice[0], 0.0)
        yield Finding("no repeat on sending", f"{role.name}: {len(twice)} there twice: {_some(twice)}", at, role.promise.once)


def _strangers(ledger: Ledger, role: Role, places: dict[int, list[tuple[str, Place]]]) -> Iterator[Finding]:
    unknown = [number for number in places if number not in ledger.sent[role.name]]
    if unknown:
        yield Finding("only what was sent", f"{role.name}: {len(unknown)} in the log that were never sent: {_some(unknown)}")
    refused = [number for number in ledger.refused[role.name] if number in places]
    if refused:
        yield Finding("only what was taken", f"{role.name}: {len(refused)} in the log that `send` had refused: {_some(refused)}")


def _gave_up(ledger: Ledger, role: Role, places: dict[int, list[tuple[str, Place]]]) -> Iterator[Finding]:
    failed = ledger.failed[role.name]
    patience = role.promise.patience
    barred = {number for number, (at, why, _) in failed.items() if ledger.barred(role, at, why)}
    early = [n for n, (_, _, seconds) in failed.items() if patience is not None and seconds < patience and n not in barred]
    if early:
        at, why, seconds = failed[early[0]]
        text = f"{role.name}: {len(early)} given up after {seconds:.1f} s of {patience:.0f}: {_some(early)}: {why}"
        yield Finding("sends go on trying", text, at)
    elif failed:
        there = sum(number in places for number in failed)
        yield Finding("sends given up", f"{role.name}: {len(failed)} given up, {there} of them are there", fault=False)
    known = (failed, ledger.acked[role.name], ledger.refused[role.name])
    unknown = [number for number in ledger.sent[role.name] if not any(number in table for table in known)]
    if unknown:
        at = ledger.sent[role.name][unknown[0]]
        yield Finding("each send has an outcome", f"{role.name}: {len(unknown)} without one: {_some(unknown)}", at)


def _order(ledger: Ledger, truth: Truth) -> Iterator[Finding]:
    """In each log, the first time that each record of a producer stands there; of one whose order is by key, key by key."""
    for log, rows in truth.items():
        last: dict[tuple[str, int], int] = {}
        seen: dict[str, set[int]] = collections.defaultdict(set)
        wrong: dict[str, list[int]] = collections.defaultdict(list)
        for _, name in rows:
            source, _, text = name.rpartition(":")
            number = int(text)
            if number in seen[source]:
                continue
            seen[source].add(number)
            known = ledger.roles.get(source)
            line = source, key_of(number, known.keys) if known is not None and known.keys else 0
            if number < last.get(line, -1):
                wrong[source].append(number)
            last[line] = max(number, last.get(line, -1))
        for source, numbers in wrong.items():
            role = ledger.roles.get(source)
            promised = role is not None and role.promise.ordered
            yield Finding("order", f"{source} in {log}: {len(numbers)} behind later ones: {_some(numbers)}", fault=promised)
