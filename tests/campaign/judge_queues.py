"""Whether queue workers saw every message until somebody acked it, and none again that was acked.

Sans-IO. A message is known by its place: the same id at two places was sent twice.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator

from .ledger import Finding, Ledger, Taken


def judge(ledger: Ledger) -> Iterator[Finding]:
    groups: dict[tuple[str, str], set[str]] = collections.defaultdict(set)
    for role in ledger.kind("worker"):
        groups[role.topic, role.group].add(role.name)
    for (topic, group), workers in groups.items():
        mine = [taken for taken in ledger.taken if taken.role in workers]
        exact = ledger.roles[next(iter(workers))].exact
        yield from _complete(ledger, topic, group, mine)
        yield from _again(ledger, group, mine, exact)


def _complete(ledger: Ledger, topic: str, group: str, mine: list[Taken]) -> Iterator[Finding]:
    seen = {taken.name for taken in mine}
    places = ledger.done.keys() | ledger.tried
    ended = {taken.name for taken in mine if (group, taken.log, taken.place) in places}
    for role in ledger.kind("producer"):
        if role.topic != topic or not role.promise.kept:
            continue
        acked = [f"{role.name}:{number}" for number in ledger.acked[role.name]]
        lost = [name for name in acked if name not in seen]
        if lost:
            yield Finding("a queue hands out every message", f"{group}: {len(lost)} of {role.name} were never handed out: {lost[:5]}")
        open_ones = [name for name in acked if name in seen and name not in ended]
        if open_ones:
            text = f"{group}: {len(open_ones)} of {role.name} were handed out, and no ack of theirs held: {open_ones[:5]}"
            yield Finding("what is not acked comes again", text)


def _again(ledger: Ledger, group: str, mine: list[Taken], exact: bool) -> Iterator[Finding]:
    wrong, times = [], 0
    seen: set[tuple[str, tuple[int, ...]]] = set()
    for taken in sorted(mine, key=lambda one: one.at):
        times += (taken.log, taken.place) in seen
        seen.add((taken.log, taken.place))
        done = ledger.done.get((group, taken.log, taken.place))
        if done is not None and done[1] < taken.at:
            wrong.append((taken, done))
    if wrong:
        taken, done = wrong[0]
        when = f"{taken.name} to {taken.role} {taken.at - done[1]:.1f} s behind {done[2]}'s"
        text = f"{group}: {len(wrong)} came again behind their ack; {when}"
        yield Finding("acked is done", text, taken.at, exact)
    if times:
        yield Finding("messages again", f"{group}: {times}", fault=False)
