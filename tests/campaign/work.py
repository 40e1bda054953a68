"""A process of the workload: ``python -m campaign.work PLAN.json JOURNAL``: its roles in a thread each, until a line comes on its input.

The line ``finish`` ends producers at once, what reads behind a quiet moment; the end of the input (the campaign is gone) ends the process.
Beside them run a sampler of memory, and one that tells when this process got no processor: delays are judged less by so much.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import wireproto
from wireproto.errors import TransportError
from wireproto.kafka import sessions

from .grouping import Grouping
from .journal import Journal, said
from .producing import Producing
from .queueing import Queueing
from .reading import Reading
from .treeing import Holding, Setting, Watching

KINDS: dict[str, Any] = {"producer": Producing, "reader": Reading, "member": Grouping, "worker": Queueing} | {
    "setter": Setting,
    "watcher": Watching,
    "holder": Holding,
}
TICK = 0.05
OPEN = 30.0
JUMP = 60.0  # seconds by which the wall clock is told to have jumped
STALL = 0.1  # seconds late from which on a tick is told


def watch(journal: Journal, name: str) -> None:
    """Memory each second, ticks that came late, and jumps of the wall clock."""
    page = os.sysconf("SC_PAGE_SIZE") // 1024
    due, sampled, apart = time.monotonic() + TICK, 0.0, time.time() - time.monotonic()
    pause = threading.Event()  # never set; `time.sleep` fails under libfaketime
    while True:
        pause.wait(max(0.0, due - time.monotonic()))
        now = time.monotonic()
        if now - due > STALL:
            journal.note("stall", name, round(now - due, 3), at=now)
        if now - sampled > 1.0:
            sampled = now
            now_apart = time.time() - now
            if abs(now_apart - apart) > JUMP:
                journal.note("jumped", name, round(now_apart - apart))
            apart = now_apart
            journal.note("memory", name, int(Path("/proc/self/statm").read_text().split()[1]) * page)
        due = now + TICK


def work(kind: Any, client: Any, journal: Journal, role: dict[str, Any], finish: threading.Event) -> None:
    try:
        kind(client, journal, role, finish).run()
    except BaseException as why:  # a role that dies of what is no WireprotoError is a finding, not the end of its process
        journal.note("call", role["name"], "role", 0.0, 0.0, "died: " + said(why))
        raise


def opened(journal: Journal, plan: dict[str, Any]) -> Any:
    """The process's client, tried again while the cluster cannot be reached."""
    while True:
        try:
            return journal.timed(plan["name"], "connect", OPEN, lambda: wireproto.connect(plan["url"], **plan["options"]))
        except TransportError:
            threading.Event().wait(0.5)


def main() -> int:
    plan = json.loads(Path(sys.argv[1]).read_text())
    journal = Journal(Path(sys.argv[2]))
    sessions.FROM = 2  # as where a node leads more partitions than here: who reads two of it does so by a session
    finish = threading.Event()
    threading.Thread(target=watch, args=(journal, plan["name"]), daemon=True).start()
    with opened(journal, plan) as client:
        each = [(KINDS[role["kind"]], client, journal, role, finish) for role in plan["roles"]]
        threads = [threading.Thread(target=work, args=one, name=one[3]["name"]) for one in each]
        for thread in threads:
            thread.start()

        def listen() -> None:
            for line in sys.stdin:
                if line.strip() == "finish":
                    finish.set()
            os._exit(3)

        threading.Thread(target=listen, daemon=True).start()
        for thread in threads:
            thread.join()
    journal.note("count", plan["name"], "ended in order", 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
