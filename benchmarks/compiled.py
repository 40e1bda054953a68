"""C programs of the bench, compiled for the run by whatever C compiler there is: $CC, cc, gcc or clang."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path


def compiler() -> list[str]:
    """The command. Raises FileNotFoundError where there is none."""
    for words in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        command = shlex.split(words)
        if command and shutil.which(command[0]):
            return command
    raise FileNotFoundError("no C compiler: neither $CC nor cc, gcc or clang")


def build(source: Path, target: Path, options: Sequence[str] = ()) -> Path:
    """The source, compiled to the target. Raises CalledProcessError with what the compiler said in `stderr`."""
    command = [*compiler(), "-O2", *options, "-o", str(target), str(source)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return target
