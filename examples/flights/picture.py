"""What the report looks like: a line per airline over the hours of the day, and the table of airlines."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

FEW = 30  # an hour with fewer departures than this is left out of an airline's line: its mean says nothing


def draw(rows: list[Any], path: Path) -> None:
    """Departure delay by hour, a line per airline, as PNG and SVG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    lines: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for row in rows:
        if row.delay is not None and row.departed >= FEW:
            lines[row.airline].append((row.hour, row.delay))
    colours = pyplot.get_cmap("tab20")
    figure, axes = pyplot.subplots(figsize=(11, 6.2))
    for number, (airline, points) in enumerate(sorted(lines.items(), key=lambda line: -max(delay for _, delay in line[1]))):
        hours, minutes = zip(*sorted(points), strict=True)
        axes.plot(hours, minutes, marker="o", markersize=3, linewidth=1.6, color=colours(number % 20), label=airline)
    axes.set_title("Departure delay by hour of day, New York 2013")
    axes.set_xlabel("scheduled hour of departure")
    axes.set_ylabel("mean delay, minutes")
    axes.set_xticks(range(5, 24))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False, loc="upper left", ncols=2)
    figure.tight_layout()
    figure.savefig(path.with_suffix(".png"), dpi=130)
    figure.savefig(path.with_suffix(".svg"))
    pyplot.close(figure)


def table(rows: list[Any]) -> str:
    """Airlines from most to least delayed, with their worst hour."""
    groups: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for row in rows:
        groups[row.carrier, row.airline].append(row)
    lines = []
    for (carrier, airline), hours in groups.items():
        departed = sum(row.departed for row in hours)
        mean = sum(row.delay * row.departed for row in hours if row.delay is not None) / max(departed, 1)
        seated = [row for row in hours if row.seats is not None]
        seats = sum(row.seats * row.flights for row in seated) / max(sum(row.flights for row in seated), 1)
        worst = max((row for row in hours if row.departed >= FEW), key=lambda row: row.delay, default=None)
        worst_text = f"{worst.hour:02d}:00 {worst.delay:6.1f}" if worst is not None else "-"
        lines.append((mean, f"{carrier:<3} {airline:<28} {sum(r.flights for r in hours):>8,} {mean:>7.1f} {seats:>6.0f}   {worst_text}"))
    head = f"{'':<3} {'airline':<28} {'flights':>8} {'delay':>7} {'seats':>6}   worst hour"
    return "\n".join([head, "-" * len(head), *(text for _, text in sorted(lines, reverse=True))])
