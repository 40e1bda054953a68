"""Whether a watched node was seen as it was set: never an older version behind a newer one, and the last one in the end. Sans-IO."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from .ledger import Finding, Ledger


def judge(ledger: Ledger) -> Iterator[Finding]:
    for at, role, text in ledger.trees:
        yield Finding("a tree's own sessions see what they did", f"{role}: {text}", at)
    for setter in ledger.kind("setter"):
        acked = ledger.acked[setter.name]
        names = {ack.place: f"{setter.name}:{number}" for number, ack in acked.items()}
        newest = max(names, default=(0,))
        for watcher in ledger.kind("watcher"):
            if watcher.topic != setter.topic:
                continue
            seen = [entry for life in ledger.lives.values() if life.role == watcher.name for rows in life.got.values() for entry in rows]
            for (_, before, _), (at, place, name) in itertools.pairwise(seen):
                if place < before:
                    yield Finding("a watcher never goes back", f"{watcher.name}: version {place[0]} behind {before[0]}", at)
                if names.get(place, name) != name:
                    text = f"{watcher.name}: {name} as version {place[0]}, which is {names[place]}"
                    yield Finding("a watcher sees what was set", text, at)
            if not seen or seen[-1][1] < newest:
                last = seen[-1][1][0] if seen else "none"
                yield Finding("no watch event is lost", f"{watcher.name}: the last version that it saw is {last}, {newest[0]} was set")
