"""The package with a core built for sanitizers, in a folder of its own: the clone's Python files, linked, and extensions with checks.

What it is: `sanitized() -> Sanitized`, the folder and the environment in which a Python runs it. Built anew when a source changed.
May assume: gcc or clang with libasan, Cython. Must not: touch the clone's own extensions.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

CLONE = Path(__file__).resolve().parents[2]
FOLDER = CLONE / ".cache" / "sanitized"
KINDS = "address,undefined"


class Sanitized(NamedTuple):
    """Where the package is, and the environment variables that its Python needs."""

    folder: Path
    environment: dict[str, str]


def sanitized() -> Sanitized:
    """Build if need be. Raises subprocess.CalledProcessError, or FileNotFoundError where the compiler has no libasan."""
    package = FOLDER / "wireproto"
    sources = [*(CLONE / "src/wireproto").rglob("*.p[yx][xd]"), *(CLONE / "src/wireproto/_codec_parts").glob("*.[ch]"), CLONE / "setup.py"]
    newest = max(path.stat().st_mtime for path in sources)
    built = list(package.glob("_codec*.so")) + list(package.glob("_net*.so"))
    if len(built) < 2 or min(path.stat().st_mtime for path in built) < newest:
        build(package)
    for path in (CLONE / "src/wireproto").iterdir():
        link = package / path.name
        compiled = path.suffix in (".so", ".c", ".pyx", ".pxd") or path.name in ("_codec_parts", "_net_parts", "__pycache__")
        if not compiled and not link.exists():
            link.symlink_to(path)
    runtimes = [runtime(name) for name in ("libasan.so", "libubsan.so")]
    return Sanitized(
        FOLDER,
        {
            "LD_PRELOAD": ":".join(runtimes),
            "PYTHONMALLOC": "malloc",  # each object an allocation of its own, so that reading beside one is seen
            "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:handle_segv=1",  # CPython keeps much until its end
            "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
            "PYTHONPATH": f"{FOLDER}:{CLONE / 'tests'}",
        },
    )


def runtime(name: str) -> str:
    """Where the compiler has a sanitizer's library; raises FileNotFoundError."""
    compiler = os.environ.get("CC", "gcc").split()[0]
    found = Path(subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip())
    if not found.is_absolute():
        raise FileNotFoundError(f"{compiler} has no {name}")
    return str(found.resolve())


def build(package: Path) -> None:
    """Compile both extensions with the sanitizers."""
    package.mkdir(parents=True, exist_ok=True)
    for old in package.glob("*.so"):
        old.unlink()
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"} | {"WIREPROTO_SANITIZE": KINDS}
    command = [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", str(FOLDER), "--build-temp", str(FOLDER / "objects")]
    subprocess.run(command, cwd=CLONE, env=environment, check=True)


if __name__ == "__main__":
    print(sanitized().folder)
