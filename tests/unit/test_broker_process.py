"""The processes of real brokers: what a fault does to one of them has happened when the call returns."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokers import maven, plugin
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


SLEEPER = """public class Sleeper { public static void main(String[] words) throws Exception {
System.out.println("on"); System.out.flush(); if (words.length > 0) Thread.sleep(60000); } }
"""


@pytest.fixture
def jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A class path with one program, and a cache of its own."""
    if shutil.which("javac") is None or shutil.which("jcmd") is None:
        plugin.missing("a JDK", "javac or jcmd is not on PATH")
    monkeypatch.setenv("WIREPROTO_CACHE", str(tmp_path / "cache"))
    (tmp_path / "Sleeper.java").write_text(SLEEPER)
    subprocess.run(["javac", "-d", str(tmp_path), str(tmp_path / "Sleeper.java")], check=True)
    with zipfile.ZipFile(tmp_path / "sleeper.jar", "w") as out:
        out.write(tmp_path / "Sleeper.class", "Sleeper.class")
    return str(tmp_path / "sleeper.jar")


def shared(jar: str) -> tuple[list[str], str]:
    """A run of the program: the command line's flags, and what the JVM says of where it has the class from."""
    command = maven.java(jar, "Sleeper", flags=("-Xlog:class+load",))
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "on\n" in done.stdout
    return command, next(line for line in done.stdout.splitlines() if "Sleeper source:" in line)


def test_a_server_that_is_closed_leaves_its_classes_to_the_next(jar: str, tmp_path: Path) -> None:
    command, source = shared(jar)
    assert "-XX:+RecordDynamicDumpInfo" in command
    assert "shared objects file" not in source
    one = Server("sleeper node 0", maven.java(jar, "Sleeper", "stay"), tmp_path, ready=lambda: one.said(b"on"))
    with contextlib.ExitStack() as ends:
        ends.callback(one.kill)
        one.start()
        kept = maven.archive(jar, "Sleeper")
        with kept.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            one.keep_classes()  # another makes it just now
            assert not kept.exists()
        one.keep_classes()
        assert kept.exists()
        assert not kept.with_suffix(".new").exists()
        written = kept.stat().st_mtime_ns
        one.keep_classes()
        assert kept.stat().st_mtime_ns == written
        assert "-XX:+RecordDynamicDumpInfo" in one.command
        one.kill()
        one.start()
        assert f"-XX:SharedArchiveFile={kept}" in one.command
    command, source = shared(jar)
    assert f"-XX:SharedArchiveFile={kept}" in command
    assert "shared objects file (top)" in source


def test_a_program_that_ends_well_leaves_its_classes_to_the_next(jar: str) -> None:
    command, kept = maven.java(jar, "Sleeper"), maven.archive(jar, "Sleeper")
    for word in ("the run failed", "it ended without any"):
        with contextlib.suppress(RuntimeError), maven.leaving_classes(command) as words:
            if word == "the run failed":
                subprocess.run(words, capture_output=True, timeout=60, check=True)
                raise RuntimeError(word)
        assert not kept.exists()
    with maven.leaving_classes(command) as words:
        with maven.leaving_classes(command) as beside:
            assert beside == command
        subprocess.run(words, capture_output=True, timeout=60, check=True)
    assert kept.exists()
    assert not kept.with_suffix(".new").exists()
    with maven.leaving_classes(command) as words:
        assert f"-XX:SharedArchiveFile={kept}" in words
    assert "shared objects file (top)" in shared(jar)[1]


@pytest.mark.parametrize("spoil", ["gone", "cut", "noise"])
def test_an_archive_that_is_gone_or_broken_is_none(jar: str, spoil: str) -> None:
    kept = maven.archive(jar, "Sleeper")
    one = subprocess.Popen(maven.java(jar, "Sleeper", "stay"), stdout=subprocess.PIPE)
    assert one.stdout
    try:
        assert one.stdout.readline() == b"on\n"
        assert maven.keep_classes(one.pid, maven.java(jar, "Sleeper", "stay"))
    finally:
        one.kill()
        one.wait()
        one.stdout.close()
    before = maven.java(jar, "Sleeper")
    whole = kept.read_bytes()
    kept.unlink()
    if spoil != "gone":
        kept.write_bytes(whole[: len(whole) // 2] if spoil == "cut" else b"x" * len(whole))
    now = maven.java(jar, "Sleeper")
    assert ("-XX:+RecordDynamicDumpInfo" in now) is (spoil != "noise")
    for command in (now, *([before] if spoil == "gone" else [])):
        done = subprocess.run(command, capture_output=True, timeout=60)
        assert (done.returncode, done.stdout) == (0, b"on\n")


def test_jars_that_are_other_ones_have_another_archive(jar: str) -> None:
    before = maven.archive(jar, "Sleeper")
    assert maven.archive(jar, "Sleeper") == before
    assert maven.archive(jar, "Other") != before
    os.utime(jar, (1.0, 1.0))
    assert maven.archive(jar, "Sleeper") != before


def test_an_archive_that_no_jvm_has_read_for_a_month_goes_when_another_is_made(jar: str) -> None:
    command, kept = maven.java(jar, "Sleeper"), maven.archive(jar, "Sleeper")
    day, now = 86400.0, time.time()
    for name, read, written in (("old", 31, 40), ("read", 29, 40), ("new", 31, 29)):
        path = kept.with_name(f"{name}.jsa")
        path.touch()
        os.utime(path, (now - read * day, now - written * day))
    with maven.leaving_classes(command) as words:
        subprocess.run(words, capture_output=True, timeout=60, check=True)
    assert {path.name for path in kept.parent.glob("*.jsa")} == {kept.name, "read.jsa", "new.jsa"}


def test_what_all_clones_can_use_is_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the environment names another folder, or that one cannot be made."""
    monkeypatch.delenv("WIREPROTO_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    assert maven.user_folder("shared") == tmp_path / "user" / "wireproto" / "shared"
    assert (tmp_path / "user" / "wireproto" / "shared").is_dir()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert maven.user_folder("classes") == tmp_path / ".cache" / "wireproto" / "classes"
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(maven, "CLONE", tmp_path / "clone")
    assert maven.user_folder("shared") == tmp_path / "clone" / ".cache" / "shared"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setenv("WIREPROTO_CACHE", str(tmp_path / "named"))
    assert maven.user_folder("shared") == tmp_path / "named" / "shared"
