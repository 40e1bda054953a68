"""Runs one piece within its minutes and keeps how far it came, so that the next call goes on.

What it is: `run(piece, …) -> Row | None`, None where steps are left for another call. A step that passed counts while the piece's sources
are the same; one that failed runs again. May assume: only one run of a piece at a time in this clone. Must not: write the page.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brokers.process import spawn

from . import work
from .page import Row
from .pieces import AGAIN, Piece, Step

FOLDER = work.CLONE / ".cache" / "nightly"
GRACE = 60.0  # seconds that a step has to end after SIGINT
TAIL = 30  # lines shown of a step that failed


@dataclass
class Kept:
    """How far a piece came: by step, what it said when it ended."""

    path: Path
    sources: str
    steps: dict[str, dict[str, Any]]

    @classmethod
    def load(cls, path: Path, sources: str) -> Kept:
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return cls(path, sources, found["steps"] if found.get("sources") == sources else {})

    def put(self, step: Step, verdict: str, figure: str, seconds: float) -> None:
        before = self.steps[step.name]["seconds"] if self.verdict(step) == "again" else 0
        self.steps[step.name] = {"verdict": verdict, "figure": figure, "seconds": round(before + seconds, 1)}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps({"sources": self.sources, "steps": self.steps}, indent=1) + "\n", encoding="utf-8")
        fresh.replace(self.path)

    def verdict(self, step: Step) -> str:
        return str(self.steps.get(step.name, {}).get("verdict", ""))


def run(piece: Piece, minutes: float, say: Callable[[str], None], folder: Path = FOLDER, clone: Path = work.CLONE) -> Row | None:
    """Run what is left of it, for so many minutes.

    Returns:
        its row, which says how many steps are left, or None: none has passed or failed yet.
    """
    kept = Kept.load(folder / f"{piece.name}.json", work.digest(piece.places, clone))
    commit = work.commit(piece.places, clone)
    until = time.monotonic() + minutes * 60
    left = [step for step in piece.steps if kept.verdict(step) != "ok"]
    if len(left) < len(piece.steps):
        say(f"{piece.name}: {len(piece.steps) - len(left)} of {len(piece.steps)} steps passed before")
    for step in left:
        room = until - time.monotonic()
        if room < min(60.0, minutes * 30) and step is not left[0]:
            break
        log = folder / piece.name / f"{step.name.replace(' ', '-')}.log"
        say(f"{piece.name}: {step.name} (output in {log})")
        began = time.monotonic()
        code = follow(step, room, log, clone)
        if work.digest(piece.places, clone) != kept.sources:
            say(f"{piece.name}: {step.name}: not kept, for the sources changed while it ran")
            break
        said = log.read_text(encoding="utf-8", errors="replace")
        verdict = {0: "ok", AGAIN: "again", None: "again"}.get(code, "FAILED")
        if code is None and step is left[0]:
            verdict, said = "FAILED", f"{said}\nnot ended after {minutes:.0f} minutes\n"
        ended = f" (ended with {code})" if verdict == "FAILED" and code is not None else ""
        kept.put(step, verdict, figure(step, said) + ended, time.monotonic() - began)
        say(f"{piece.name}: {step.name}: {verdict}: {kept.steps[step.name]['figure']}")
        if verdict == "FAILED":
            say("".join(f"    {line}\n" for line in said.splitlines()[-TAIL:]))
    return row(piece, kept, commit)


def row(piece: Piece, kept: Kept, commit: str) -> Row | None:
    """What the page says of it; None while no step has passed or failed."""
    verdicts = [kept.verdict(step) for step in piece.steps]
    failed, undone = verdicts.count("FAILED"), sum(verdict in ("", "again") for verdict in verdicts)
    if undone == len(verdicts):
        return None
    several = len(piece.steps) > 1
    facts = [(step, kept.steps[step.name]) for step in piece.steps if kept.verdict(step) in ("ok", "FAILED")]
    told = "; ".join(f"{step.name}: {fact['figure']}" if several else str(fact["figure"]) for step, fact in facts)
    verdict = "ok" if not failed else f"FAILED {failed} of {len(verdicts)} steps" if several else "FAILED"
    if undone:
        verdict += f", {undone} not run"
    minutes = sum(float(fact["seconds"]) for _, fact in facts) / 60
    return Row(verdict, told, f"{minutes:.1f}", time.strftime("%Y-%m-%d"), commit, kept.sources)


def follow(step: Step, seconds: float, log: Path, clone: Path = work.CLONE) -> int | None:
    """Run one command, its output into a file; its code, or None when the time was up."""
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = dict(os.environ) | {"PYTHONUNBUFFERED": "1", "CI": "true"} | dict(step.environment)
    with log.open("wb") as out:
        keywords = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": subprocess.STDOUT, "cwd": clone, "env": environment}
        child = spawn(step.command, start_new_session=True, **keywords)
        try:
            return child.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if child.poll() is None:
                end(child)


def end(child: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C does, and after a while for good."""
    os.killpg(child.pid, signal.SIGINT)
    try:
        child.wait(GRACE)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def figure(step: Step, said: str) -> str:
    """The last of what the step's pattern finds in its output, else its last line."""
    found = list(re.finditer(step.figure, said, re.MULTILINE))
    if found:
        return " ".join(found[-1].groups() or [found[-1].group()])[:200]
    return next((line.strip() for line in reversed(said.splitlines()) if line.strip()), "said nothing")[:200]
