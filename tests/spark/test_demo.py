"""The demo as a person runs it: to its end, and stopped by Ctrl-C at several points."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from patience import LONG, until

CLONE = Path(__file__).parents[2]
MARK = "WIREPROTO_DEMO_MARK"


def marked(mark: str) -> dict[str, str]:
    """The environment of a program of the demo's: all that it starts carries the mark."""
    return {**os.environ, "PYTHONPATH": f"{CLONE / 'src'}:{CLONE / 'examples'}", "PYTHONUNBUFFERED": "1", MARK: mark}


@contextmanager
def started(out: Path, mark: str) -> Iterator[subprocess.Popen[str]]:
    """The demo on the dev broker with some of the flights, ended with the block; `mark` is in the environment of all that it starts."""
    command = [sys.executable, "-m", "flights", "--limit", "4000", "--out", str(out), "--cache", str(CLONE / ".cache")]
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, env=marked(mark), text=True, **pipes) as process:
        try:
            yield process
        finally:
            if process.poll() is None:  # the test has failed
                process.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    process.communicate(timeout=2 * LONG)
                process.kill()


def left_behind(mark: str) -> list[str]:
    """Command lines of living processes that carry the mark."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:200])
        except OSError:
            continue  # it ended meanwhile
    return found


def wait_until_alone(mark: str) -> None:
    until(lambda: not left_behind(mark), "processes are left behind")


def test_it_proves_the_logs_equal_and_writes_its_report(tmp_path: Path) -> None:
    mark = uuid.uuid4().hex
    with started(tmp_path, mark) as process:
        said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said[-3000:]
    assert said.count(": equal") == 5
    assert (tmp_path / "delay-by-hour.svg").stat().st_size > 10_000
    assert list((tmp_path / "delays.parquet").glob("*.parquet"))
    wait_until_alone(mark)


EARLIER = [pytest.param(point, marks=pytest.mark.soak) for point in ("data set:", "load pulsar")]


@pytest.mark.parametrize("point", [*EARLIER, "stream kafka to pulsar"])
def test_ctrl_c_leaves_no_process_behind(tmp_path: Path, point: str) -> None:
    mark = uuid.uuid4().hex
    with started(tmp_path, mark) as process:
        assert process.stdout is not None
        said = ""
        while point not in said:
            chunk = process.stdout.read(1)
            assert chunk, said[-3000:]
            said += chunk
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=2 * LONG)
    assert process.returncode != 0
    wait_until_alone(mark)


def test_its_first_program_does_not_outlive_the_demo(tmp_path: Path) -> None:
    """Ctrl-C may come before the demo knows that it has started one: that ends with its standard input, and its JVM with it."""
    mark = uuid.uuid4().hex
    command = [sys.executable, "-m", "flights.stream", "127.0.0.1:1", "pulsar://127.0.0.1:1", str(tmp_path)]
    with subprocess.Popen(command, env=marked(mark), stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        assert process.stdin is not None
        try:
            until(lambda: any("java" in line.partition(" ")[0] for line in left_behind(mark)), "no JVM was started")
            process.stdin.close()
            assert process.wait(LONG) == -signal.SIGKILL
        finally:
            process.kill()
    wait_until_alone(mark)
