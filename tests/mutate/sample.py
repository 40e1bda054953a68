"""Which faults there are, and which of them a seed picks.

What it is: `everything(root)`, all mutants by group; `sample`, a seed's choice: what is always in it, and so many more of the group, kind
after kind in turn, so that a kind with few places counts as much as one with many. A mutant's rank goes by seed and key alone: what
changes elsewhere does not change the choice. Must not: run anything.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from . import engine, options, walk
from .cover import ADAPTERS
from .source import Mutant, Source, digest

GROUPS = (*ADAPTERS, "flow", "aio", "net", "engine")
PASSED_BY = {"codes.py", "plans.py", "messages.py", "PulsarApi_pb2.py", "option_types.py", "__init__.py", "forms.py"}
"""Generated; names; lists for the CLI."""


def modules(root: Path, *folders: str) -> list[Source]:
    """The hand-written modules of some folders of the package."""
    paths = [path for folder in folders for path in sorted((root / "src/wireproto" / folder).glob("*.py"))]
    return [Source.read(root, str(path.relative_to(root))) for path in paths if path.name not in PASSED_BY]


def everything(root: Path) -> dict[str, list[Mutant]]:
    """All mutants of the client half, by group."""
    floor = {"flow": modules(root, "flow"), "aio": modules(root, "aio"), "net": modules(root, "net", "auth")}
    common = [source for files in floor.values() for source in files]
    found: dict[str, list[Mutant]] = {}
    for adapter in ADAPTERS:
        files = modules(root, adapter)
        found[adapter] = [
            *options.dropped(adapter, files, common),
            *options.keywords(adapter, files),
            *(mutant for source in files for mutant in walk.changes(source, adapter)),
        ]
    for group, files in floor.items():
        found[group] = [mutant for source in files for mutant in walk.changes(source, group)]
    parts = sorted((root / "src/wireproto/_net_parts").glob("*.pyx"))
    found["engine"] = [mutant for path in parts for mutant in engine.changes(Source.read(root, str(path.relative_to(root))))]
    return found


def ranked(mutants: Sequence[Mutant], seed: int) -> Iterator[Mutant]:
    """The group's mutants in the order in which this seed takes them: the first of each kind, the second of each kind …"""
    kinds: dict[str, list[tuple[str, Mutant]]] = collections.defaultdict(list)
    for mutant in mutants:
        if not mutant.always:
            kinds[mutant.operator].append((digest(f"{seed}/{mutant.key}"), mutant))
    rows = [[mutant for _, mutant in sorted(kinds[kind], key=lambda one: one[0])] for kind in sorted(kinds)]
    for row in itertools.zip_longest(*rows):
        yield from (mutant for mutant in row if mutant is not None)


def always(mutants: Sequence[Mutant]) -> list[Mutant]:
    return [mutant for mutant in mutants if mutant.always]
