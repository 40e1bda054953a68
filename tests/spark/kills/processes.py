"""What belongs to a job, found by a mark in the environment that everything which it starts inherits, and how to kill it."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MARK = "WIREPROTO_KILLS_MARK"


@dataclass(frozen=True)
class Process:
    """A living process."""

    pid: int
    parent: int
    command: str

    def ran(self) -> int:
        """Nanoseconds of processor time so far, 0 when it has ended."""
        try:
            return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[0])
        except OSError:
            return 0

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class Watch:
    """Waits for a process's end; holds on to that very process, whoever gets its number next."""

    def __init__(self, process: Process) -> None:
        self.process = process
        try:
            self._handle = os.pidfd_open(process.pid)
        except ProcessLookupError:
            self._handle = -1

    def ended(self, timeout: float = 0.0) -> bool:
        """Whether it has ended, waiting so many seconds for it; that it has needs to be told once only."""
        if self._handle >= 0:
            poller = select.poll()
            poller.register(self._handle, select.POLLIN)
            if not poller.poll(max(0.0, timeout) * 1000):
                return False
            os.close(self._handle)
            self._handle = -1
        return True


def marked(mark: str) -> list[Process]:
    """Living processes whose environment has the mark, by pid; those that only wait to be collected are dead."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted not in (folder / "environ").read_bytes():
                continue
            state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it ended meanwhile
        if state != "Z":
            found.append(Process(int(folder.name), int(parent), command))
    return sorted(found, key=lambda process: process.pid)


def driver(all_of_it: list[Process]) -> list[Process]:
    """The JVM and the program that started it, the JVM first: what follows it to its end must do so by itself."""
    virtual = [process for process in all_of_it if "org.apache.spark.deploy.SparkSubmit" in process.command]
    program = [process for process in all_of_it if "kills.job" in process.command and process not in virtual]
    return virtual + program


def workers(all_of_it: list[Process]) -> list[Process]:
    """Python workers, busy and idle: children of Spark's daemon."""
    daemons = {process.pid for process in all_of_it if "pyspark.daemon" in process.command}
    return [process for process in all_of_it if process.pid in daemons and process.parent in daemons]


def at_tasks(found: list[Process]) -> list[Process]:
    """Those of these workers that run tasks: Spark's other ones plan, begin and end a read or a write, in modules of their own."""
    return [process for process in found if process.command.split()[-1:] == ["pyspark.worker"]]
