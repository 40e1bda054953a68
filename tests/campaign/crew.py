"""The processes of the workload: started, told to finish, killed; what each one said on its standard error is kept.

May assume: work.py is what they run. A process dies with us (brokers.process.spawn).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from brokers.process import spawn

from .clocks import CLIENTS
from .producing import RATE
from .site import Site, Work

ROOT = Path(__file__).resolve().parents[2]


class Crew:
    """Args: the folder for plans and journals, the site, and by what factor producers send at their rate."""

    def __init__(self, folder: Path, site: Site, pace: float = 1.0) -> None:
        self._folder, self._site, self._pace = folder, site, pace
        self._living: dict[str, subprocess.Popen[bytes]] = {}
        self.deaths: list[str] = []

    def start(self, work: Work) -> None:
        roles = [facts | {"rate": facts.get("rate", RATE) * self._pace} for _, facts in work.roles]
        plan = {"name": work.name, "url": self._site.url(work.door), "options": self._site.options() | work.options, "roles": roles}
        path = self._folder / f"{work.name}.json"
        path.write_text(json.dumps(plan))
        environment = dict(os.environ) | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}", "PYTHONUNBUFFERED": "1"}
        if self._site.clocks is not None and not work.stream:
            environment |= self._site.clocks.environment(CLIENTS)
        with (self._folder / f"{work.name}.log").open("ab") as log:
            module = "campaign.streaming" if work.stream else "campaign.work"
            command = [sys.executable, "-m", module, str(path), str(self._folder / f"{work.name}.journal")]
            self._living[work.name] = spawn(
                command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )

    def tell(self, name: str) -> None:
        """To finish what it does, and end."""
        child = self._living.get(name)
        if child is not None and child.stdin is not None:
            with contextlib.suppress(OSError):
                child.stdin.write(b"finish\n")
                child.stdin.flush()

    def running(self, name: str) -> bool:
        child = self._living.get(name)
        return child is not None and child.poll() is None

    def wait(self, name: str, timeout: float) -> bool:
        """Whether it ended in order within `timeout`; else it is killed, and told of in `deaths`."""
        child = self._living.pop(name)
        try:
            code = child.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGQUIT)
            self._end(child)
            self.deaths.append(f"{name} did not end within {timeout:.0f} s")
            return False
        if code:
            self.deaths.append(f"{name} ended with {code}: {self._tail(name)}")
        return code == 0

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self._end(self._living.pop(name))

    def close(self) -> None:
        for name in list(self._living):
            self.kill(name)

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(10.0)

    def _tail(self, name: str) -> str:
        text = (self._folder / f"{name}.log").read_text(errors="replace").strip()
        return text[-400:]
