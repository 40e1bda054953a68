"""The sanitizers behind `make fuzz`: whichever compiler is here, a read beside its memory ends the process; without them nothing passes."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from fuzz import build

CLONE = Path(__file__).resolve().parents[2]
FAULT = """
#include <stdlib.h>
__attribute__((noinline)) static int look(char *room, int at) { return room[at]; }
int beside(int at) { char *room = malloc(16); int found; room[15] = 1; found = look(room, at); free(room); return found; }
int shifted(int by) { return 1 << by; }
"""
CALL = "import ctypes, sys; print(getattr(ctypes.CDLL(sys.argv[1]), sys.argv[2])(int(sys.argv[3])))"
COMPILERS = [name for name in ("cc", "gcc", "clang") if shutil.which(name)]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_each_compiler_that_is_here_sees_its_kind_of_faults(compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", compiler)
    loaded = build.runtimes()
    source, library = tmp_path / "fault.c", tmp_path / "fault.so"
    source.write_text(FAULT)
    subprocess.run([*build.compiler(), *build.FLAGS, "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    environment = os.environ | build.settings(loaded)

    def call(name: str, number: int) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", CALL, str(library), name, str(number)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)

    assert call("beside", 15).stdout == "1\n"
    assert call("shifted", 4).stdout == "16\n"
    read, shift = call("beside", 16), call("shifted", 64)
    assert read.returncode
    assert "heap-buffer-overflow" in read.stderr
    assert shift.returncode
    assert "shift exponent 64 is too large" in shift.stderr


def test_without_sanitizers_nothing_has_passed(tmp_path: Path) -> None:
    """A compiler that has none answers with the bare name that it was asked for."""
    compiler = tmp_path / "cc"
    compiler.write_text('#!/bin/sh\necho "${1#-print-file-name=}"\n')
    compiler.chmod(0o755)
    environment = os.environ | {"CC": str(compiler), "PYTHONPATH": f"{CLONE / 'src'}:{CLONE / 'tests'}"}
    command = [sys.executable, "-m", "fuzz", "framer", "--runs", "1"]
    build.FOLDER.mkdir(parents=True, exist_ok=True)
    with (build.FOLDER / "lock").open("a") as lock:  # as while another run builds
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        done = subprocess.run(command, cwd=CLONE, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2, done.stdout
    assert "neither libclang_rt.asan" in done.stderr
    assert "--plain" in done.stderr
