"""What ran where: counts by broker and part of the suite, failures, skips and seconds, as text, JSON and a page of the docs.

`python -m brokers.table .cache/ran.json docs/conformance.md` writes the page of one whole run of `make test`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from campaign import kept

_OUTCOMES = ("passed", "failed", "skipped")


@dataclass
class Results:
    """What one session of pytest, or several of one run, came to.

    Attributes:
        counts: by broker, part and outcome. missing: what could not run, and why. boot_seconds: of brokers.
        failures: ids of tests. skips: by reason and place, a broker or a part. seconds: by session and file.
        details: of each failure its test, why it is believed without a second run ("" where it is not), and its traceback.
        flickers: ids of tests that failed once and passed when run again alone; they are no failures.
        boots: by broker, how often one of its servers became ready.
        boots_again: brokers that were ready at a later attempt only, with the words of the earlier ones.
    """

    counts: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    boot_seconds: dict[str, float] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    skips: dict[str, dict[str, int]] = field(default_factory=dict)
    seconds: dict[str, dict[str, float]] = field(default_factory=dict)
    details: dict[str, dict[str, str]] = field(default_factory=dict)
    flickers: list[str] = field(default_factory=list)
    boots: dict[str, int] = field(default_factory=dict)
    boots_again: dict[str, list[str]] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether no broker was named."""
        return not self.counts and not self.missing

    def count(self, broker: str, part: str, outcome: str, number: int = 1) -> None:
        cell = self.counts.setdefault(broker, {}).setdefault(part, dict.fromkeys(_OUTCOMES, 0))
        cell[outcome] += number

    def skip(self, why: str, place: str, number: int = 1) -> None:
        places = self.skips.setdefault(why, {})
        places[place] = places.get(place, 0) + number

    def merge(self, other: Results) -> None:
        """Add what another session of the same run came to; nothing that was there goes away."""
        for broker, parts in other.counts.items():
            for part, outcomes in parts.items():
                for outcome, number in outcomes.items():
                    self.count(broker, part, outcome, number)
        for why, places in other.skips.items():
            for place, number in places.items():
                self.skip(why, place, number)
        for session, files in other.seconds.items():
            kept = self.seconds.setdefault(session, {})
            for name, seconds in files.items():
                kept[name] = kept.get(name, 0.0) + seconds
        self.failures += other.failures
        self.flickers += other.flickers
        self.details |= other.details
        for name, words in other.boots_again.items():
            self.boots_again.setdefault(name, []).extend(words)
        for name, number in other.boots.items():
            self.boots[name] = self.boots.get(name, 0) + number
        self.missing |= other.missing
        self.boot_seconds |= other.boot_seconds

    def flickered(self, entries: Iterable[str], test: str) -> None:
        """Take these failures of a test back, which passed when it was run again."""
        ran = False
        for entry in entries:
            self.failures.remove(entry)
            detail = self.details[entry]
            once = not entry.endswith(" (teardown)")  # behind a test that was counted as passed
            for broker in detail["brokers"].split():
                self.count(broker, detail["part"], "failed", -1)
                self.count(broker, detail["part"], "passed", int(once and not ran))
            ran = ran or once
        self.flickers.append(test)

    def to_json(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}


def load(path: Path) -> Results:
    """Results from a file."""
    return results_of(json.loads(path.read_text()))


def results_of(facts: dict[str, Any]) -> Results:
    """Results from what a file holds."""
    return Results(**{each.name: facts[each.name] for each in fields(Results) if each.name in facts})


def _cell(counts: dict[str, int] | None) -> str:
    if not counts:
        return ""
    return ", ".join(f"{number} {outcome}" for outcome, number in counts.items() if number)


def rows(results: Results) -> Iterator[list[str]]:
    """Head and body of the table."""
    parts = sorted({part for cells in results.counts.values() for part in cells})
    yield ["broker", "boot", *parts]
    for broker in sorted({*results.counts, *results.missing}):
        boot = f"{results.boot_seconds[broker]:.1f} s" if broker in results.boot_seconds else ""
        yield [broker, boot, *(_cell(results.counts.get(broker, {}).get(part)) for part in parts)]


def lines(results: Results) -> list[str]:
    """The table as aligned text."""
    body = list(rows(results))
    widths = [max(len(row[column]) for row in body) for column in range(len(body[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in body]


def page(results: Results, facts: dict[str, Any]) -> str:
    """The page of the docs; `facts` are the run's own, as tests/run.py keeps them."""
    head, *body = rows(results)
    verdict = "all of it passed" if facts["code"] == 0 else "it FAILED"
    out = [
        "# Which tests ran on which broker",
        "",
        f"One whole run of `make test` at {facts['commit']}, {facts['when']}: {verdict}.",
        "",
        f"    {facts['closing']}",
        "",
        "`dev-*` is the embedded dev broker, the others are real servers from Maven Central. Tests that name no broker are in no row.",
        "",
        *_grid(head, body),
        *(f"\nNOT RUN: {name}: {why}" for name, why in sorted(results.missing.items())),
        *(["", "## Failed", "", *(f"- `{name}`" for name in results.failures)] if results.failures else []),
        *(
            ["", "## Failed once, passed when run again alone", "", *(f"- `{name}`" for name in results.flickers)]
            if results.flickers
            else []
        ),
        "",
        "## Skipped",
        "",
        "A role or value that this broker does not have: other tests prove that it is refused.",
        "",
        *_grid(["why", "tests", "where"], list(_skips(results))),
        "",
        "## Parts",
        "",
        "Minutes of the clock; several run beside each other.",
        "",
        *_grid(["part", "result", "minutes"], [[name, *map(str, state)] for name, state in facts["parts"].items()]),
        *_campaigns(),
    ]
    return "\n".join(out) + "\n"


def _campaigns() -> list[str]:
    """Runs of their own, of other commits: the newest one of each protocol and seed."""
    told = '[Real brokers that are hurt](campaign.md), by `make campaign ARGS="… --keep"`; a finding is a promise that was broken.'
    found = [row.cells() for row in kept.read()]
    return ["", "## Campaigns", "", told, "", *_grid(kept.HEAD, found)] if found else []


def _skips(results: Results) -> Iterator[list[str]]:
    for why, places in sorted(results.skips.items()):
        yield [why, str(sum(places.values())), ", ".join(sorted(places))]


def _grid(head: list[str], body: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *body)]


def write(source: Path, target: Path) -> None:
    """The page of the run whose record `source` is."""
    if not source.exists():
        raise SystemExit(f"there is no {source}: only a whole run of make test leaves one")
    facts = json.loads(source.read_text())  # once: a run that ends meanwhile puts its own record there
    target.write_text(page(results_of(facts), facts))


if __name__ == "__main__":
    write(*(Path(argument) for argument in sys.argv[1:3]))
