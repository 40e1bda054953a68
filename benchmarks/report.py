"""Results as a table and as JSON, with what they were measured on."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from .harness import Bench, Row

PEERS = (
    *("confluent-kafka", "aiokafka", "kafka-python", "kio", "crc32c", "pulsar-client", "rocketmq", "kazoo"),
    *("pyarrow", "protobuf", "cramjam", "python-snappy"),
)


def table(row: Row) -> str:
    """A few lines: each contender's CPU and wall microseconds per unit, and its cost as a multiple of ours."""
    lines = [
        f"{row.suite}: {row.task}  ({row.count:,} x {row.unit} a round)",
        f"    {'':28} {'CPU us':>9} {'median':>9}   {'wall us':>9} {'median':>9}   {'per s':>11}   {'CPU':>7} {'wall':>7}   bar",
    ]
    for name, contender in row.contenders.items():
        facts = contender.facts()
        if not contender.cpu:
            lines.append(f"    {name:28} {contender.note.splitlines()[0][:110]}")
            continue
        text = "    {:28} {:9.3f} {:9.3f}   {:9.3f} {:9.3f}   {:11,.0f}".format(
            name, facts["cpu_us_min"], facts["cpu_us_median"], facts["wall_us_min"], facts["wall_us_median"], 1e6 / facts["wall_us_min"]
        )
        cpu, wall = row.ratio(name), row.ratio(name, "wall")
        if name != row.ours and cpu is not None and wall is not None:
            text += f"   {cpu:6.1f}x {wall:6.1f}x"
            for bars, ratio, by in ((row.bars, cpu if row.by == "cpu" else wall, row.by), (row.rates, wall, "wall")):
                if name in bars:
                    text += f"   {bars[name]:g}x {by} {'met' if ratio >= bars[name] else 'missed'}{'' if row.gate else ' (no gate)'}"
        if name in row.instructions:
            text += f"   {row.instructions[name] / row.count:,.0f} instructions"
        lines.append(text)
    return "\n".join(lines)


def machine() -> dict[str, Any]:
    """Where this runs: processor, cores, system, Python, versions of the packages compared."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0] if names else model
    versions = {}
    for name in PEERS:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": os.getloadavg()[0],
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "versions": versions,
    }


def document(bench: Bench, command: str) -> dict[str, Any]:
    """The whole run, as bench-out/results.json holds it."""
    import wireproto

    return {
        "command": command,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "wireproto": wireproto.__version__,
        "commit": commit(),
        "machine": machine(),
        "brokers": bench.brokers,
        "rows": [row.facts() for row in bench.rows],
    }


def commit() -> str | None:
    """The clone's commit, with a plus when files differ from it; None outside a clone."""
    here = Path(__file__).parent
    try:
        head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=here, capture_output=True, text=True, check=True).stdout.strip()
        dirty = subprocess.run(["git", "status", "--porcelain", "-uno"], cwd=here, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+" if dirty.strip() else "")


def heading(facts: dict[str, Any]) -> str:
    """The run's circumstances, in a few lines."""
    box = facts["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in box["versions"].items())
    brokers = "; ".join(facts["brokers"].values())
    return (
        f"wireproto {facts['wireproto']} ({facts['commit']}), {facts['date']}\n"
        f"command: {facts['command']}\n"
        f"machine: {box['processor']}, {box['cores']} cores, load {box['load']:.1f}, {box['system']}, {box['python']}\n"
        f"peers: {versions}" + (f"\nbrokers: {brokers}" if brokers else "")
    )
