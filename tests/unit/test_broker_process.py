"""The processes of real brokers: what a fault does to one of them has happened when the call returns."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokers.process import Server, await_standstill
from patience import until

BUSY = """
import threading, zlib
data = bytes(1 << 20)
def work():
    while True:
        zlib.compress(data)
for _ in range(8):
    threading.Thread(target=work).start()
print("busy", flush=True)
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """Eight threads that compute without the interpreter's lock."""
    one = Server("busy", [sys.executable, "-c", BUSY], tmp_path, ready=lambda: "busy" in (tmp_path / "out.log").read_text())
    with contextlib.ExitStack() as ends:
        ends.callback(one.kill)
        one.start()
        yield one


def states(pid: int) -> list[str]:
    return [task.read_text().rpartition(")")[2].split()[0] for task in Path(f"/proc/{pid}/task").glob("*/stat")]


def test_a_process_that_was_paused_stands_still_with_all_its_threads_until_it_is_resumed(server: Server) -> None:
    assert server.pid is not None
    for _ in range(20):
        server.pause()
        assert set(states(server.pid)) == {"T"}
        assert len(states(server.pid)) >= 9
        server.resume()
        until(lambda: "R" in states(server.pid or 0))


def test_a_process_that_does_not_stand_still_is_told_of_by_its_threads(server: Server) -> None:
    assert server.pid is not None
    with pytest.raises(TimeoutError, match=rf"process {server.pid} was sent SIGSTOP .* of its threads still run"):
        await_standstill(server.pid, limit=0.1)


def test_a_process_may_be_told_to_oversleep_and_the_next_is_not(tmp_path: Path) -> None:
    for slack, expected in ((0.004, 4_000_000), (0.0, 50_000)):
        one = Server("sleeper", [sys.executable, "-c", "import time; time.sleep(60)"], tmp_path, ready=lambda: True, slack=slack)
        with contextlib.ExitStack() as ends:
            ends.callback(one.kill)
            one.start()
            assert int(Path(f"/proc/{one.pid}/timerslack_ns").read_text()) == expected


def test_what_a_server_said_is_counted_from_its_launch(tmp_path: Path) -> None:
    said = tmp_path / "out.log"
    one = Server("talker", [sys.executable, "-c", "import time; print('hello', flush=True); time.sleep(60)"], tmp_path, ready=lambda: True)
    said.write_bytes(b"of a boot before\n")
    with contextlib.ExitStack() as ends:
        ends.callback(one.kill)
        one.start()
        until(lambda: one.said(b"hello"))
        assert not one.said(b"of a boot before")
