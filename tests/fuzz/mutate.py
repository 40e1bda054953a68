"""mutate.c, compiled on first use and called by ctypes: one call an input."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import tempfile
from pathlib import Path

from .build import compiler

SOURCE = Path(__file__).with_name("mutate.c")
FOLDER = SOURCE.resolve().parents[2] / ".cache"
CAP = 1 << 16
HEAD = 24  # runs, size, entry: three uint64


def library() -> ctypes.CDLL:
    """The compiled mutations."""
    FOLDER.mkdir(exist_ok=True)
    made = FOLDER / "mutate.so"
    if not made.exists() or made.stat().st_mtime < SOURCE.stat().st_mtime:
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            fresh = Path(folder) / "mutate.so"
            environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
            command = [*compiler(), "-O2", "-shared", "-fPIC", "-o", str(fresh), str(SOURCE)]
            subprocess.run(command, check=True, env=environment)
            fresh.replace(made)
    return ctypes.CDLL(str(made))


class Mutator:
    """Inputs made from a corpus.

    Args:
        path: a file for the memory that a watcher can read: how many inputs there were, and the present one.
        seed: what decides all inputs.
    """

    def __init__(self, path: Path, seed: int) -> None:
        path.write_bytes(bytes(HEAD + CAP))
        with path.open("r+b") as file:
            self.memory = mmap.mmap(file.fileno(), 0)
        self._lib = library()
        self._anchor = ctypes.c_char.from_buffer(self.memory)
        self._lib.start(ctypes.c_void_p(ctypes.addressof(self._anchor)), ctypes.c_uint64(seed))
        self._lib.add.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
        self.next = self._lib.next
        self.next.argtypes = []
        self.next.restype = ctypes.c_uint32
        self.labels: list[object] = []

    def add(self, label: object, data: bytes) -> None:
        """An entry of the corpus; `label` comes back with what is made of it."""
        if self._lib.add(data, len(data)) == 0:
            self.labels.append(label)

    def input(self) -> tuple[object, bytes]:
        """(label of the entry that it was made from, the next input)."""
        size = self.next()
        memory = self.memory
        return self.labels[int.from_bytes(memory[16:20], "little")], memory[HEAD : HEAD + size]


def present(path: Path) -> tuple[int, int, bytes]:
    """(inputs so far, entry, the present input) of another process's memory."""
    data = path.read_bytes()
    size = int.from_bytes(data[8:16], "little")
    return int.from_bytes(data[:8], "little"), int.from_bytes(data[16:24], "little"), data[HEAD : HEAD + size]
