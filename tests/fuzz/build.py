"""The package with a core built for sanitizers, in a folder of its own: the clone's Python files, linked, and extensions with checks.

What it is: `sanitized() -> Sanitized`, the folder and the environment in which a Python runs it. Built anew when a source or the compiler
changed. May assume: gcc or clang, whose sanitizers' library a Python without them can load first, Cython. Must not: touch the clone's own
extensions.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

CLONE = Path(__file__).resolve().parents[2]
FOLDER = CLONE / ".cache" / "sanitized"
KINDS = "address,undefined"
FLAGS = ("-Og", "-g1", "-fno-omit-frame-pointer", f"-fsanitize={KINDS}", "-fno-sanitize-recover=all")
"""What both extensions are compiled by.

-Og runs as fast as -O1 here and takes gcc 11 seconds of the processor for `_net` where -O1 takes 22; -O0 takes 8, and an input a quarter
longer. -g1 has the line numbers that a report needs. A fault ends the process, as `settings` asks for: without a way back behind each
check, gcc takes a tenth less.
"""
RUNTIMES = (  # what to load first: clang's, which knows undefined behaviour too, before gcc's, which clang finds as well
    (f"libclang_rt.asan-{platform.machine()}.so",),
    ("libclang_rt.asan.so",),
    ("libasan.so", "libubsan.so"),
)


class Sanitized(NamedTuple):
    """Where the package is, and the environment variables that its Python needs."""

    folder: Path
    environment: dict[str, str]


def sanitized() -> Sanitized:
    """Build if need be. Raises subprocess.CalledProcessError, or FileNotFoundError where the compiler has no sanitizers."""
    loaded = runtimes()  # who cannot build need not wait for who does
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:  # two runs may want it at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _sanitized(loaded, FOLDER / "wireproto")


def _sanitized(loaded: str, package: Path) -> Sanitized:
    ours = CLONE / "src/wireproto"
    sources = [*ours.rglob("*.p[yx][xd]"), *(ours / "_codec_parts").glob("*.[ch]"), CLONE / "setup.py", Path(__file__)]  # flags are here
    newest = max(path.stat().st_mtime for path in sources)
    built = list(package.glob("_codec*.so")) + list(package.glob("_net*.so"))
    note = FOLDER / "compiler"
    if len(built) < 2 or min(path.stat().st_mtime for path in built) < newest or not note.exists() or note.read_text() != loaded:
        build(package)
        note.write_text(loaded)
    for path in ours.iterdir():
        link = package / path.name
        compiled = path.suffix in (".so", ".c", ".pyx", ".pxd") or path.name in ("_codec_parts", "_net_parts", "__pycache__")
        if not compiled and not link.exists():
            link.symlink_to(path)
    return Sanitized(FOLDER, settings(loaded) | {"PYTHONPATH": f"{FOLDER}:{CLONE / 'tests'}"})


def settings(loaded: str) -> dict[str, str]:
    """Environment variables under which a Python without sanitizers runs code that has them."""
    address = "detect_leaks=0:allocator_may_return_null=1:handle_segv=1"  # CPython keeps much until its end
    if "clang_rt" in loaded:
        address += f":external_symbolizer_path={symbolizer()}"
    return {
        "LD_PRELOAD": loaded,
        "PYTHONMALLOC": "malloc",  # each object an allocation of its own, so that reading beside one is seen
        "ASAN_OPTIONS": address,
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    }


def symbolizer() -> Path:
    """clang's namer of addresses without the sanitizers in itself: with them it never ends, and holds the output of who called it open."""
    asked = subprocess.run([*compiler(), "-print-prog-name=llvm-symbolizer"], capture_output=True, text=True, check=True).stdout.strip()
    path = FOLDER / "llvm-symbolizer"
    FOLDER.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_text(f'#!/bin/sh\nunset LD_PRELOAD\nexec {shlex.quote(asked)} "$@"\n', encoding="utf-8")
    fresh.chmod(0o755)
    return fresh.replace(path)


def compiler() -> list[str]:
    """The C compiler: `CC`, else the one that is called cc, as for the Makefile."""
    return shlex.split(os.environ.get("CC", "")) or ["cc"]


def runtimes() -> str:
    """The compiler's libraries of the sanitizers, as LD_PRELOAD takes them; raises FileNotFoundError."""
    for names in RUNTIMES:
        asked = [[*compiler(), f"-print-file-name={name}"] for name in names]
        found = [Path(subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()) for ask in asked]
        if all(path.is_absolute() and path.exists() for path in found):
            return ":".join(str(path.resolve()) for path in found)
    raise FileNotFoundError(f"{shlex.join(compiler())} has neither {' nor '.join(names[0] for names in RUNTIMES)}")


def build(package: Path) -> None:
    """Compile both extensions with the sanitizers."""
    package.mkdir(parents=True, exist_ok=True)
    for old in package.glob("*.so"):
        old.unlink()
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"} | {
        "WIREPROTO_SANITIZE": " ".join(FLAGS),
        "CC": shlex.join(compiler()),
    }
    folders = ["--build-lib", str(FOLDER), "--build-temp", str(FOLDER / "objects")]
    subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--force", *folders], cwd=CLONE, env=environment, check=True)


if __name__ == "__main__":
    print(sanitized().folder)
