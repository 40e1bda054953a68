"""Results as a table and as JSON, with what they were measured on."""

from __future__ import annotations

import datetime
import hashlib
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from .figures import build

PEERS = (
    *("confluent-kafka", "aiokafka", "kafka-python", "kio", "crc32c", "pulsar-client", "rocketmq", "kazoo"),
    *("pyarrow", "protobuf", "cramjam", "python-snappy"),
)


def table(row: dict[str, Any]) -> str:
    """A few lines of a row's facts: each contender's CPU and wall microseconds per unit, its cost as a multiple of ours, what failed."""
    lines = [
        f"{row['suite']}: {row['task']}  ({row['count']:,} x {row['unit']} a round)",
        f"    {'':28} {'CPU us':>9} {'median':>9}   {'wall us':>9} {'median':>9}   {'per s':>11}   {'CPU':>7} {'wall':>7}   bar",
    ]
    for name, facts in row["contenders"].items():
        if "cpu_us_min" not in facts:
            lines.append(f"    {name:28} {facts['note'].splitlines()[0][:110]}")
            continue
        text = "    {:28} {:9.3f} {:9.3f}   {:9.3f} {:9.3f}   {:11,.0f}".format(
            name, facts["cpu_us_min"], facts["cpu_us_median"], facts["wall_us_min"], facts["wall_us_median"], 1e6 / facts["wall_us_min"]
        )
        ratios = row["ratios"].get(name, {})
        if name != row["ours"] and None not in ratios.values():
            text += f"   {ratios['cpu']:6.1f}x {ratios['wall']:6.1f}x"
            for peer, cost, bar in row["bars"]:
                if peer == name:
                    text += f"   {bar:g}x {cost} " + (("met" if ratios[cost] >= bar else "MISSED") if row["judged"] else "(not judged)")
        if name in row["instructions"]:
            text += f"   {row['instructions'][name]:,.0f} instructions"
        lines.append(text)
    return "\n".join([*lines, *(f"    FAILED: {words}" for words in row["failures"])])


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


def document(rows: list[dict[str, Any]], brokers: dict[str, str], command: str) -> dict[str, Any]:
    """The whole run, as bench-out/results.json holds it."""
    import wireproto

    return {
        "command": command,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "wireproto": wireproto.__version__,
        "commit": commit(),
        "sources": sources(),
        "build": build(),
        "machine": machine(),
        "brokers": brokers,
        "rows": rows,
    }


MEASURED = ("src", ":(glob)benchmarks/**/*.py", ":(glob)benchmarks/**/*.c")  # what a figure depends on


def commit() -> str | None:
    """The clone's commit, with a plus when what is measured differs from it; None outside a clone."""
    here = Path(__file__).parents[1]
    try:
        head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=here, capture_output=True, text=True, check=True).stdout.strip()
        status = ["git", "status", "--porcelain", "-uno", "--", *MEASURED]
        dirty = subprocess.run(status, cwd=here, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+" if dirty.strip() else "")


def sources() -> str:
    """A digest of what is measured and of what it is measured with, git or no git."""
    here, digest = Path(__file__).parents[1], hashlib.sha256()
    files = [path for folder in ("src", "benchmarks", "tests/brokers") for path in (here / folder).rglob("*")]
    for path in sorted(files):
        made = path.name in ("_codec.c", "_net.c")  # of the others
        if path.suffix in (".py", ".pyx", ".pxd", ".c", ".h", ".java") and not made:
            digest.update(f"{path.relative_to(here)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


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
