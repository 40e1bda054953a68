"""Whether a group saw every record, and whether each owner of a partition began where the one before it had committed.

Sans-IO. No callback is believed: a *stint* begins where a member's deliveries do not follow one another. It must begin at or before the
first record that no commit tried to cover (else records were passed over), and, where the role is exact, not before what a commit that was
acknowledged earlier covers (else they came again although they were done with). Of a log that is cut or made again neither can be said: its
group has to come to the last record.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator, Sequence

from .judge_reads import after
from .ledger import Commit, Finding, Ledger, Place, Truth, topic_of

Rows = Sequence[tuple[Place, str]]


def judge(ledger: Ledger, truth: Truth) -> Iterator[Finding]:
    groups: dict[str, list[str]] = collections.defaultdict(list)
    for role in (role for role in ledger.kind("member") if not role.fleeting):
        groups[role.group].append(role.name)
    yield from _behind_losses(ledger, truth)
    for group, members in groups.items():
        topic, exact = ledger.roles[members[0]].topic, ledger.roles[members[0]].exact
        for log, rows in truth.items():
            if topic_of(log) == topic:
                yield from _one(ledger, group, set(members), log, rows, exact)


def _behind_losses(ledger: Ledger, truth: Truth) -> Iterator[Finding]:
    """Groups of topics that are cut or made again: whoever the member is, each log's last record comes to one."""
    for group, topic in {(role.group, role.topic) for role in ledger.kind("member") if role.fleeting}:
        names = {role.name for role in ledger.kind("member") if role.group == group}
        for log, rows in truth.items():
            if topic_of(log) != topic or not rows:
                continue
            lives = [life for life in ledger.lives.values() if life.role in names]
            if rows[-1] not in {(place, name) for life in lives for _, place, name in life.got.get(log, [])}:
                yield Finding("a group goes on", f"{group} in {log}: the last of {len(rows)} records, at {rows[-1][0]}, never came")


def _one(ledger: Ledger, group: str, members: set[str], log: str, rows: Rows, exact: bool) -> Iterator[Finding]:
    commits = sorted((c for c in ledger.commits if c.role in members and log in c.places), key=lambda c: c.at)
    stints: list[tuple[float, int, str, int | None]] = []
    seen: collections.Counter[Place] = collections.Counter()
    for life in ledger.lives.values():
        if life.role not in members:
            continue
        expected: int | None = None
        for at, place, name in life.got.get(log, []):
            seen[place] += 1
            number = after(rows, place) - 1
            if number < 0 or rows[number] != (place, name):
                yield Finding("reads what is there", f"{life.role} of {group} in {log}: {name} at {place}, which the log does not hold", at)
                continue
            if number != expected:
                stints.append((at, number, life.role, expected))
            expected = number + 1
    stints.sort(key=lambda stint: stint[0])
    for at, number, member, before in stints:
        yield from _beginning(ledger, group, commits, log, rows, exact, at, number, member, before)
    missing = [place for place, _ in rows if place not in seen]
    if missing:
        text = f"{group} in {log}: {len(missing)} of {len(rows)} were never delivered, from {missing[0]} to {missing[-1]}"
        yield Finding("a group sees every record", text)
    again = sum(times - 1 for times in seen.values())
    if again:
        yield Finding("deliveries again", f"{group} in {log}: {again}, in {len(stints)} stints", fault=False)


def _beginning(
    ledger: Ledger,
    group: str,
    commits: list[Commit],
    log: str,
    rows: Rows,
    exact: bool,
    at: float,
    number: int,
    member: str,
    before: int | None,
) -> Iterator[Finding]:
    resets = [(began, told, after(rows, to[log])) for began, told, name, to in ledger.resets if name == group and log in to and began < at]
    since, _, base = max((reset for reset in resets if reset[1] < at), default=(0.0, 0.0, 0))
    _, over, back = max(resets, default=(0.0, 0.0, 0))  # one that is under way has been done, or has not
    tried = max((after(rows, c.places[log]) for c in commits if since < c.at and c.began < at), default=base)  # one under way may hold, too
    done = max((after(rows, c.places[log]) for c in commits if c.done and over < c.began and c.at < at), default=back)
    who = f"{member} of {group} in {log}"
    if number > max(tried, base):
        yield Finding("no gap", f"{who}: begins at {rows[number][0]}, {number - max(tried, base)} records behind what was committed", at)
    if number < done:
        text = f"{who}: begins at {rows[number][0]}, {done - number} records before the commit" + (
            f" (had read on to {rows[before - 1][0]})" if before else ""
        )
        yield Finding("resumes at the commit", text, at, exact)
