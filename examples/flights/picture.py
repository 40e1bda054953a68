"""What the report looks like: the six largest airlines in colour over the hours of the day, the others in grey, and the table of all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

FEW = 30  # an hour with fewer departures than this is left out of an airline's line: its mean says nothing
LARGEST = 6  # airlines that have a colour and a name in the picture
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # told apart by the colour-blind, too (Okabe and Ito)
GREY = "#c4c4c4"
Points = list[tuple[int, float]]


def lines(rows: Iterable[Any]) -> dict[str, Points]:
    """Hours and mean delays of each airline, the airline with the most flights first."""
    flights: dict[str, int] = defaultdict(int)
    points: dict[str, Points] = defaultdict(list)
    for row in rows:
        flights[row.airline] += row.flights
        if row.delay is not None and row.departed >= FEW:
            points[row.airline].append((row.hour, row.delay))
    return {airline: sorted(points[airline]) for airline in sorted(flights, key=lambda one: (-flights[one], one)) if points[airline]}


def runs(points: Points) -> list[Points]:
    """The same in pieces of hours that follow each other: no line leads over an hour without flights."""
    found: list[Points] = []
    for point in points:
        if found and point[0] == found[-1][-1][0] + 1:
            found[-1].append(point)
        else:
            found.append([point])
    return found


def apart(heights: Sequence[float], least: float) -> list[float]:
    """Heights of labels that want to be at these, moved so that any two are `least` apart."""
    groups: list[tuple[float, list[int]]] = []  # middle, and who is in it from below
    for index in sorted(range(len(heights)), key=lambda one: heights[one]):
        groups.append((heights[index], [index]))
        while len(groups) > 1 and groups[-1][0] - groups[-2][0] < least * (len(groups[-1][1]) + len(groups[-2][1])) / 2:
            members = groups.pop(-2)[1] + groups.pop()[1]
            groups.append((sum(heights[one] for one in members) / len(members), members))
    placed = [0.0] * len(heights)
    for middle, members in groups:
        for place, index in enumerate(members):
            placed[index] = middle + least * (place - (len(members) - 1) / 2)
    return placed


def title(rows: Iterable[Any]) -> str:
    """What is to be seen: the best and the worst hour of all airlines together."""
    departed: dict[int, int] = defaultdict(int)
    minutes: dict[int, float] = defaultdict(float)
    for row in rows:
        if row.delay is not None:
            departed[row.hour] += row.departed
            minutes[row.hour] += row.delay * row.departed
    means = {hour: minutes[hour] / count for hour, count in departed.items() if count >= FEW}
    if not means:
        return "Departure delays, New York 2013"
    best, worst = min(means, key=lambda hour: means[hour]), max(means, key=lambda hour: means[hour])
    early, late = (f"planned for {hour}:00" for hour in (best, worst))
    return f"A flight {early} leaves {means[best]:.0f} min late on average, one {late} {means[worst]:.0f} min late"


def draw(rows: list[Any], path: Path) -> None:
    """Draw departure delay by hour as PNG and SVG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    found = list(lines(rows).items())
    large, small = found[:LARGEST], found[LARGEST:]
    figure, axes = pyplot.subplots(figsize=(11, 6.2))
    for _, points in small:
        for run in runs(points):
            axes.plot(*zip(*run, strict=True), color=GREY, linewidth=1.2, marker="o", markersize=2.2, zorder=1)
    for colour, (_, points) in zip(COLOURS, large, strict=False):
        for run in runs(points):
            axes.plot(*zip(*run, strict=True), color=colour, linewidth=2.4, marker="o", markersize=4, zorder=3)
    low, high = axes.get_ylim()
    ends = [points[-1] for _, points in large]
    right = max((hour for _, points in found for hour, _ in points), default=23) + 0.6
    names = zip(COLOURS, large, ends, apart([height for _, height in ends], (high - low) / 19), strict=False)
    for colour, (airline, _), (hour, height), place in names:
        axes.plot([hour, right - 0.1], [height, place], color=colour, linewidth=0.8, linestyle=":", zorder=2)
        axes.annotate(airline, (right, place), color=colour, fontsize=10, fontweight="bold", va="center", annotation_clip=False)
    if small:
        text = f"grey: the {len(small)} smaller airlines; a point is a mean of {FEW} departures at least"
        axes.text(0.01, 0.965, text, transform=axes.transAxes, color="#777777", fontsize=9.5)
    axes.set_title(title(rows), loc="left", fontsize=14, fontweight="bold", pad=24)
    subtitle = "mean departure delay in minutes, by airline and planned hour; all flights from New York, 2013"
    axes.text(0, 1.025, subtitle, transform=axes.transAxes, fontsize=10.5, color="#444444")
    axes.set_xlabel("planned hour of departure")
    axes.set_xticks(range(5, 24))
    axes.axhline(0, color="#888888", linewidth=0.8, zorder=0)
    axes.grid(axis="y", alpha=0.25)
    axes.set_xlim(4.6, right - 0.1)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path.with_suffix(".png"), dpi=130, bbox_inches="tight")
    figure.savefig(path.with_suffix(".svg"), bbox_inches="tight")
    pyplot.close(figure)


def table(rows: list[Any]) -> str:
    """Airlines from most to least delayed, with their worst hour."""
    groups: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for row in rows:
        groups[row.carrier, row.airline].append(row)
    texts = []
    for (carrier, airline), hours in groups.items():
        departed = sum(row.departed for row in hours)
        mean = sum(row.delay * row.departed for row in hours if row.delay is not None) / max(departed, 1)
        seated = [row for row in hours if row.seats is not None]
        seats = sum(row.seats * row.flights for row in seated) / max(sum(row.flights for row in seated), 1)
        worst = max((row for row in hours if row.departed >= FEW), key=lambda row: row.delay, default=None)
        worst_text = f"{worst.hour:02d}:00 {worst.delay:6.1f}" if worst is not None else "-"
        texts.append((mean, f"{carrier:<3} {airline:<28} {sum(r.flights for r in hours):>8,} {mean:>7.1f} {seats:>6.0f}   {worst_text}"))
    head = f"{'':<3} {'airline':<28} {'flights':>8} {'delay':>7} {'seats':>6}   worst hour"
    return "\n".join([head, "-" * len(head), *(text for _, text in sorted(texts, reverse=True))])
