"""Child processes that never outlive us: start, wait until ready, stop, kill, tail of the log.

What it is: `Server`, one JVM with its log file. Three things end it: `stop`/`kill`, atexit, and the kernel (shim.py) when this process
dies by whatever means. It runs in its own session, so that Ctrl-C reaches the test run and not the broker under it.
Linux sends the death signal when the *thread* that forked ends, hence one spawner thread that lives as long as the process.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import ctypes
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import maven
from .errors import BootFailed

BOOT_TIMEOUT = float(os.environ.get("WIREPROTO_BOOT_TIMEOUT", "180"))
SHIM = Path(__file__).with_name("shim.py")

_PR_SET_TIMERSLACK = 29

_jobs: queue.SimpleQueue[tuple[list[str], float, dict[str, Any], queue.SimpleQueue[Any]]] = queue.SimpleQueue()
_spawner: threading.Thread | None = None
_spawner_lock = threading.Lock()
_living: set[Server] = set()
boots: collections.Counter[str] = collections.Counter()
"""How often servers of each broker became ready in this process."""


def _spawn_for_ever() -> None:
    while True:
        command, slack, keywords, answer = _jobs.get()
        try:
            _set_slack(slack)
            answer.put(subprocess.Popen(command, **keywords))
        except BaseException as why:  # handed to the caller
            answer.put(why)


def _set_slack(seconds: float) -> None:
    """Let this thread's timers run late by so much, and those of the processes that it starts; 0 is the system's default."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(round(seconds * 1e9)))


def spawn(command: Sequence[str], *, slack: float = 0.0, **keywords: Any) -> subprocess.Popen[bytes]:
    """Popen through shim.py from the spawner thread: the child dies with this process, not with the calling thread.

    Args:
        command: argv.
        slack: seconds by which the kernel may wake the child's sleeping threads later than they ask, to wake several at once.
        keywords: Popen's.
    """
    global _spawner
    with _spawner_lock:
        if _spawner is None or not _spawner.is_alive():
            _spawner = threading.Thread(target=_spawn_for_ever, name="broker-spawner", daemon=True)
            _spawner.start()
    answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
    _jobs.put(([sys.executable, "-S", str(SHIM), str(os.getpid()), *command], slack, keywords, answer))
    outcome = answer.get()
    if isinstance(outcome, BaseException):
        raise outcome
    child: subprocess.Popen[bytes] = outcome
    return child


def await_standstill(pid: int, limit: float = 30.0) -> None:
    """Return when no thread of a process runs on. SIGSTOP only asks: a busy machine has been seen to answer a request after it."""
    deadline = time.monotonic() + limit
    pause = 0.0002
    while moving := _moving(pid):
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"process {pid} was sent SIGSTOP {limit:.0f} s ago, and {len(moving)} of its threads still run: {moving[:4]}"
            )
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)


def _moving(pid: int) -> list[str]:
    """The threads of a process, with their state, that are neither stopped (T, t) nor ended (Z, X)."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # a thread may end meanwhile
            state = task.read_text(errors="replace").rpartition(")")[2].split()[0]
            if state not in "TtZX":
                found.append(f"{task.parent.name} {state}")
    return found


class Server:
    """One server process.

    Args:
        name: for messages, like ``kafka-4.3.1 node 1``.
        command: argv.
        folder: its working directory; its output goes to ``<folder>/<label>.log``.
        ready: called until it returns true; raising is "not yet".
        slack: see `spawn`.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        folder: Path,
        ready: Callable[[], bool],
        *,
        label: str = "out",
        env: Mapping[str, str] | None = None,
        stop_limit: float = 60.0,
        slack: float = 0.0,
    ) -> None:
        self.name, self.command, self.folder, self._ready = name, list(command), folder, ready
        self.log = folder / f"{label}.log"
        self._env = dict(os.environ) | dict(env or {})
        self._stop_limit, self._slack = stop_limit, slack
        self._child: subprocess.Popen[bytes] | None = None
        self.boot_seconds = 0.0

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None else None

    @property
    def running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def launch(self) -> None:
        """Start the process without waiting for it to be ready."""
        if self.running:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self.command = maven.with_archive(self.command)
        with self.log.open("ab") as out:
            self._said_before = out.tell()
            self._child = spawn(
                self.command,
                slack=self._slack,
                cwd=self.folder,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._launched = time.monotonic()
        _living.add(self)

    def await_ready(self, timeout: float = BOOT_TIMEOUT) -> None:
        """Poll the ready check; raises BootFailed with the log's tail, leaving no process."""
        deadline = time.monotonic() + timeout  # it may have been launched long ago, and not see the others now
        pause, last = 0.02, ""
        while True:
            if not self.running:
                code = self._child.returncode if self._child else None
                raise BootFailed(f"{self.name} ended with {code} before it was ready\n{self.tail()}")
            try:
                if self._ready():
                    break
            except Exception as why:  # any failure here means: not ready yet
                last = f"{type(why).__name__}: {why}"
            if time.monotonic() > deadline:
                self.kill()
                raise BootFailed(f"{self.name} was not ready after {timeout:.0f} s (last: {last or 'no'})\n{self.tail()}")
            time.sleep(pause)
            pause = min(pause * 1.5, 0.25)
        self.boot_seconds = time.monotonic() - self._launched
        boots[self.name.partition(" ")[0]] += 1

    def start(self, timeout: float = BOOT_TIMEOUT) -> None:
        self.launch()
        self.await_ready(timeout)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL when it is not gone in time."""
        self._end(signal.SIGTERM, self._stop_limit)

    def kill(self) -> None:
        """SIGKILL: a crash, as seen from the clients."""
        self._end(signal.SIGKILL, 10.0)

    def pause(self) -> None:
        """SIGSTOP: the process keeps its sockets and answers nothing, from the return of this call on."""
        self._signal(signal.SIGSTOP)
        if self.running:
            assert self._child is not None
            await_standstill(self._child.pid)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def keep_classes(self) -> None:
        """Leave the archive of its classes that later boots use (maven.py), if it runs, was ready once, and there is none yet."""
        if self.running and self.boot_seconds and self.pid is not None and _moving(self.pid):
            maven.keep_classes(self.pid, self.command)

    def _signal(self, number: signal.Signals) -> None:
        if self.running:
            assert self._child is not None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, number)

    def _end(self, number: signal.Signals, limit: float) -> None:
        child = self._child
        if child is None:
            return
        if child.poll() is None:
            self._signal(number)
            if number is signal.SIGTERM:
                self._signal(signal.SIGCONT)
            try:
                child.wait(limit)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
                child.wait(60.0)
        _living.discard(self)

    def said(self, words: bytes) -> bool:
        """Whether its output since it was launched has these words."""
        with self.log.open("rb") as out:
            out.seek(self._said_before)
            return words in out.read()

    def tail(self, lines: int = 40) -> str:
        """The last lines of its output."""
        try:
            text = self.log.read_text(errors="replace")
        except OSError:
            return "(no log)"
        kept = text.splitlines()[-lines:]
        return "\n".join([f"--- end of {self.log} ---", *kept])


@atexit.register
def _end_all() -> None:
    for server in list(_living):
        server._signal(signal.SIGKILL)
