"""Results as a picture: for each task, bars of CPU time per unit, the slowest contender filling the width. Standard library only.

python -m benchmarks.picture bench-out/results.json docs/benchmarks.svg kafka pulsar rocketmq zookeeper
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

WIDTH, LEFT, BAR, GAP = 860, 250, 15, 16
ROOM = WIDTH - LEFT - 150
STYLE = """
text { font: 12px system-ui, -apple-system, 'Segoe UI', sans-serif; fill: #24292f }
.task { font-weight: 600 } .head { font-size: 15px; font-weight: 600 } .small { font-size: 11px; fill: #57606a }
.ours { fill: #0969da } .peer { fill: #b8c0c8 } .back { fill: #ffffff }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .small { fill: #9198a1 } .back { fill: #0d1117 } .peer { fill: #4d5560 } }
"""


def draw(facts: dict[str, Any], suites: Iterable[str] | None = None) -> str:
    """An SVG of the rows of these suites (None: all); every figure is the best round of its contender."""
    rows = [row for row in facts["rows"] if suites is None or row["suite"] in suites]
    y, parts = 30, [f'<text x="16" y="{24}" class="head">CPU time of the client process, microseconds; shorter is better</text>']
    for row in rows:
        cells = [(name, cell["cpu_us_min"]) for name, cell in row["contenders"].items() if "cpu_us_min" in cell]
        if not cells:
            continue
        longest = max(value for _, value in cells) or 1.0
        y += GAP + 12
        parts.append(f'<text x="16" y="{y}" class="task">{escape(row["suite"])}: {escape(row["task"])}, per {escape(row["unit"])}</text>')
        for name, value in cells:
            y += BAR + 4
            kind = "ours" if name.startswith("wireproto") else "peer"
            parts.append(f'<text x="{LEFT - 8}" y="{y}" text-anchor="end">{escape(name)}</text>')
            parts.append(
                f'<rect x="{LEFT}" y="{y - 11}" width="{max(value / longest * ROOM, 1.5):.1f}" height="{BAR - 2}" rx="2" class="{kind}"/>'
            )
            base = dict(cells).get(row["ours"])
            times = f"  {value / base:.1f}x" if base and name != row["ours"] else ""
            parts.append(f'<text x="{LEFT + value / longest * ROOM + 6:.1f}" y="{y}">{number(value)}{times}</text>')
    box = facts["machine"]
    for line in (
        f"{facts['command']}   {facts['date'][:10]}   wireproto {facts['wireproto']} ({facts['commit']})",
        f"{box['processor']}, {box['cores']} cores, {box['python']}; "
        + "; ".join(text for name, text in facts["brokers"].items() if name != "memory"),
        ", ".join(f"{name} {version}" for name, version in box["versions"].items()),
    ):
        y += 6
        for piece in textwrap.wrap(line, 130):
            y += 15
            parts.append(f'<text x="16" y="{y}" class="small">{escape(piece)}</text>')
    height = y + 16
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">'
    return "\n".join([head, f"<style>{STYLE}</style>", f'<rect class="back" width="{WIDTH}" height="{height}"/>', *parts, "</svg>"]) + "\n"


def number(value: float) -> str:
    """Three significant digits."""
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


if __name__ == "__main__":
    source, target, *wanted = sys.argv[1:]
    Path(target).write_text(draw(json.loads(Path(source).read_text()), wanted or None))
