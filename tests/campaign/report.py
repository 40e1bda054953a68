"""What a campaign came to: lines for people, JSON for what reads it later, and a time line as a picture.

Must not: judge.
"""

from __future__ import annotations

import collections
import dataclasses
import json
import subprocess
import time
from pathlib import Path
from xml.sax.saxutils import escape

from .kept import Row
from .ledger import Ledger
from .run import Outcome

HERE = Path(__file__).parent
CHECKS = (
    "acknowledged is kept",
    "place as told",
    "no repeat on sending",
    "order",
    "only what was sent",
    "only what was taken",
    "sends go on trying",
    "each send has an outcome",
    "no gap",
    "no repeat on reading",
    "reads what is there",
    "reads to its stop",
    "reads to the end",
    "a group sees every record",
    "a group goes on",
    "resumes at the commit",
    "a queue hands out every message",
    "what is not acked comes again",
    "acked is done",
    "a tree's own sessions see what they did",
    "a watcher never goes back",
    "a watcher sees what was set",
    "no watch event is lost",
    "ephemeral nodes go",
    "a refused login is told",
    "who is refused stays out",
    "clocks jump",
    "calls end in time",
    "all flows again",
    "a healthy partition is not delayed",
    "memory is flat",
    "processes end in order",
)
WIDE, LINE = 1200, 18  # pixels


def lines(outcome: Outcome) -> list[str]:
    """The table, and each fault that was found."""
    ledger = outcome.ledger
    assert ledger is not None
    failed = collections.Counter(finding.check for finding in outcome.faults)
    took = f"{outcome.seconds / 60:.1f} minutes, {len(outcome.rounds)} faults"
    found = [f"\n=== {outcome.protocol} {outcome.version}, seed {outcome.seed}: {took}"]
    acked = sum(len(rows) for rows in ledger.acked.values())
    counts = f"{outcome.records} records sent, {acked} acknowledged, {delivered(ledger)} deliveries, {len(ledger.commits)} commits"
    found.append(counts)
    kinds = collections.Counter(window.name for window in ledger.windows)
    found.append("faults: " + ", ".join(f"{times} {name}" for name, times in sorted(kinds.items())))
    if outcome.flows:
        middle = sorted(outcome.flows)[len(outcome.flows) // 2]
        found.append(f"all flowed {middle:.1f} s behind healing (median), {max(outcome.flows):.1f} s at most")
    found += [f"  {check:<40} {'ok' if not failed[check] else f'{failed[check]} FINDINGS'}" for check in CHECKS]
    for finding in outcome.faults:
        found.append(f"FINDING {finding.check}: {finding.text}" + (f" (at {finding.at - outcome.began:.1f} s)" if finding.at else ""))
    found += [f"counted: {f.check}: {f.text}" for f in outcome.findings if not f.fault]
    found += [f"counted: {what}: {times}" for what, times in sorted(ledger.counts.items()) if "in order" not in what]
    return found


def row(outcome: Outcome, minutes: float) -> Row:
    """As it is kept."""
    ledger = outcome.ledger
    assert ledger is not None
    head = subprocess.run(["git", "rev-parse", "--short=10", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False).stdout.strip()
    flows = sorted(outcome.flows) or [0.0]
    return Row(
        outcome.protocol,
        outcome.version,
        outcome.seed,
        minutes,
        head or "unknown",
        time.strftime("%Y-%m-%d"),
        len(outcome.rounds),
        outcome.records,
        delivered(ledger),
        round(flows[len(flows) // 2], 1),
        round(flows[-1], 1),
        len(outcome.faults),
    )


def delivered(ledger: Ledger) -> int:
    return sum(len(rows) for life in ledger.lives.values() for rows in life.got.values()) + len(ledger.taken)


def to_json(outcome: Outcome) -> str:
    facts = {
        "protocol": outcome.protocol,
        "version": outcome.version,
        "seed": outcome.seed,
        "seconds": round(outcome.seconds, 1),
        "records": outcome.records,
        "rounds": [dataclasses.asdict(round_) for round_ in outcome.rounds],
        "flows": [round(seconds, 2) for seconds in outcome.flows],
        "findings": [dataclasses.asdict(finding) for finding in outcome.findings],
    }
    return json.dumps(facts, indent=1) + "\n"


def picture(outcome: Outcome) -> str:
    """A time line: faults as bands, and for each producer a mark where an acknowledgement took more than a second."""
    ledger = outcome.ledger
    assert ledger is not None
    producers = [role.name for role in ledger.kind("producer")]
    high = (len(producers) + 3) * LINE
    scale = (WIDE - 120) / max(outcome.seconds, 1.0)

    def at(moment: float) -> float:
        return 110 + (moment - outcome.began) * scale

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDE}" height="{high}" font-family="sans-serif" font-size="11">']
    parts.append(f'<rect width="{WIDE}" height="{high}" fill="white"/>')
    for window in ledger.windows:
        left, right = at(window.began), at(window.healed or window.began)
        parts.append(f'<rect x="{left:.1f}" y="{LINE}" width="{max(right - left, 1):.1f}" height="{high - 2 * LINE}" fill="#f6c9b8"/>')
        parts.append(f'<text x="{left:.1f}" y="{LINE - 5}" font-size="8">{escape(window.name)}</text>')
    for row, name in enumerate(producers):
        y = (row + 2) * LINE
        parts.append(f'<text x="4" y="{y + 4}">{escape(name)}</text><line x1="110" x2="{WIDE - 10}" y1="{y}" y2="{y}" stroke="#8ab"/>')
        slow = {(int(at(ack.at - ack.seconds)), int(at(ack.at))) for ack in ledger.acked[name].values() if ack.seconds > 1.0}
        parts += [f'<line x1="{a}" x2="{max(b, a + 1)}" y1="{y}" y2="{y}" stroke="#246" stroke-width="4"/>' for a, b in sorted(slow)]
    for finding in outcome.faults:
        if finding.at:
            title = f"<title>{escape(finding.text)}</title>"
            parts.append(f'<circle cx="{at(finding.at):.1f}" cy="{high - LINE}" r="4" fill="#c00">{title}</circle>')
    return "\n".join([*parts, "</svg>\n"])


def write(outcome: Outcome, folder: Path) -> None:
    (folder / "campaign.json").write_text(to_json(outcome))
    (folder / "campaign.svg").write_text(picture(outcome))
    (folder / "campaign.txt").write_text("\n".join(lines(outcome)) + "\n")
