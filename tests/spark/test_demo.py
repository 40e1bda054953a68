"""The demo as a person runs it: to its end, and stopped by Ctrl-C at several points."""

from __future__ import annotations

import os
import re
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
    """The environment of a program of the demo's: all that it starts carries the mark. Spark's Python processes begin sooner than those of
    a person (spark/warm), whose demo `make nightly` runs."""
    path = os.pathsep.join(str(CLONE / place) for place in ("src", "examples", "tests/spark/warm"))
    return {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", MARK: mark}


@contextmanager
def started(out: Path, mark: str) -> Iterator[subprocess.Popen[str]]:
    """The demo on the dev broker with some of the flights, ended with the block; `mark` is in the environment of all that it starts."""
    command = [sys.executable, "-m", "flights", "--limit", "4000", "--out", str(out), "--cache", str(CLONE / ".cache")]
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, env=marked(mark), text=True, start_new_session=True, **pipes) as process:
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
    steps = [int(number) for number in re.findall(r"^\[ ?(\d+)/17\] ", said, re.MULTILINE)]
    assert steps == list(range(1, 18))
    assert said.startswith("Flights of 2013 through Kafka, Pulsar, RocketMQ and ZooKeeper")
    assert "Traceback" not in said
    assert (tmp_path / "delay-by-hour.svg").stat().st_size > 10_000
    assert list((tmp_path / "delays.parquet").glob("*.parquet"))
    wait_until_alone(mark)


def read_to(process: subprocess.Popen[str], point: str) -> str:
    """What it says until it says `point`."""
    assert process.stdout is not None
    said = ""
    while point not in said:
        chunk = process.stdout.read(1)
        assert chunk, said[-3000:]
        said += chunk
    return said


def java_of(mark: str) -> list[str]:
    """The JVMs among the living processes that carry the mark."""
    return [line for line in left_behind(mark) if "java" in line.partition(" ")[0]]


OTHER_POINTS = [pytest.param(point, marks=pytest.mark.soak) for point in ("data set:", "load pulsar", "stream kafka to pulsar")]


@pytest.mark.parametrize("point", [*OTHER_POINTS, "start Spark", "Spark reads kafka"])
def test_ctrl_c_ends_it_quietly_and_leaves_no_process_behind(tmp_path: Path, point: str) -> None:
    """As a terminal does, it comes to the whole group. While Spark starts, the JVM is there already, and does not know its parent yet."""
    mark = uuid.uuid4().hex
    with started(tmp_path, mark) as process:
        read_to(process, point)
        if point == "start Spark":
            until(lambda: bool(java_of(mark)), "no JVM was started")
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate(timeout=2 * LONG)
    assert process.returncode == 130, said[-3000:]
    assert "Traceback" not in said
    assert "demo: " not in said
    wait_until_alone(mark)


@pytest.mark.parametrize(
    ("victim", "point", "step", "advice"),
    [
        ("wireproto.devbroker", "load kafka", "load ", "the broker is gone"),
        pytest.param("wireproto.devbroker", "Spark reads kafka", "Spark reads ", "the broker is gone", marks=pytest.mark.soak),
        pytest.param("java", "Spark reads kafka", "Spark reads ", "Spark has ended", marks=pytest.mark.soak),
    ],
)
def test_a_process_that_is_killed_fails_the_step_with_advice(tmp_path: Path, victim: str, point: str, step: str, advice: str) -> None:
    mark = uuid.uuid4().hex
    with started(tmp_path, mark) as process:
        read_to(process, point)
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                ours = f"{MARK}={mark}".encode() in (folder / "environ").read_bytes()
                if ours and victim.encode() in (folder / "cmdline").read_bytes():
                    os.kill(int(folder.name), signal.SIGKILL)
        said, _ = process.communicate(timeout=2 * LONG)
    assert process.returncode == 1, said[-3000:]
    assert "Traceback" not in said
    first, second = said.splitlines()[-2:]
    assert first.startswith(f"demo: {step}")
    assert second.startswith(f"demo: what to do: {advice}")
    wait_until_alone(mark)


def test_its_first_program_does_not_outlive_the_demo(tmp_path: Path) -> None:
    """Ctrl-C may come before the demo knows that it has started one: that ends with its standard input, and its JVM with it."""
    mark = uuid.uuid4().hex
    command = [sys.executable, "-m", "flights.stream", "127.0.0.1:1", "pulsar://127.0.0.1:1", str(tmp_path)]
    with subprocess.Popen(command, env=marked(mark), stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True) as process:
        assert process.stdin is not None
        try:
            until(lambda: bool(java_of(mark)), "no JVM was started")
            process.stdin.close()
            assert process.wait(LONG) == -signal.SIGKILL
        finally:
            process.kill()
    wait_until_alone(mark)
