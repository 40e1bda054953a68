"""Wall clocks that jump, by libfaketime: a file says by how much a process is off, and may be changed while it runs.

The monotonic clock goes on as it is. May assume: Linux, and Debian's package `faketime` where there is to be a jump at all. Must not: touch
the clock of this machine, or of any process that was not started with `environment`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

PLACES = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib*/faketime/libfaketimeMT.so.1")
CLIENTS = "clients"  # the clock that all processes of the workload have
LOOKS = 1  # seconds from one look into the file to the next


def library() -> Path | None:
    """libfaketime for programs of several threads, where it is installed."""
    return next((path for place in PLACES for path in Path("/").glob(place.lstrip("/"))), None)


class Clocks:
    """Args: the library, and a folder for the files."""

    def __init__(self, found: Path, folder: Path) -> None:
        self._library, self._folder = found, folder

    def environment(self, name: str) -> dict[str, str]:
        """What a process is started with whose clock is called so."""
        file = self._folder / f"{name}.clock"
        if not file.exists():
            self.set(name, 0.0)
        words = {"LD_PRELOAD": str(self._library), "FAKETIME_TIMESTAMP_FILE": str(file), "FAKETIME_CACHE_DURATION": str(LOOKS)}
        words |= {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1"}
        return words | {"FAKETIME_FORCE_MONOTONIC_FIX": "0"}  # meant for old C libraries: here it lets timed waits return at once

    def command(self, name: str, command: Sequence[str]) -> list[str]:
        """The same command, with that clock."""
        return ["/usr/bin/env", *(f"{word}={value}" for word, value in self.environment(name).items()), *command]

    def set(self, name: str, hours: float) -> None:
        """From the next look on, this clock is so many hours off."""
        file = self._folder / f"{name}.clock"
        fresh = file.with_suffix(".new")
        fresh.write_text(f"{hours * 3600:+.0f}\n")
        fresh.replace(file)  # in one step: who looks meanwhile reads the one or the other
