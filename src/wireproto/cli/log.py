"""Prints the clients' warnings as lines of the command.

`Lines` is a handler of the logger ``wireproto``, for a process that runs the command only. A line is held back for a moment, so that a
reason which the command's final error repeats is printed once. If a program that calls the command has configured logging, nothing is
added.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from wireproto.errors import WireprotoError

_MOMENT = 0.5
"""Seconds for which a line is held back."""


class Lines(logging.Handler):
    """Prints warnings on standard error.

    Args:
        moment: seconds for which a line is held back.
    """

    def __init__(self, moment: float = _MOMENT) -> None:
        super().__init__(logging.WARNING)
        self._moment = moment
        self._waiting: list[logging.LogRecord] = []
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Hold a record back, and start the timer that prints it."""
        self._waiting.append(record)
        if self._timer is None:
            self._timer = threading.Timer(self._moment, self.end)
            self._timer.daemon = True
            self._timer.start()

    def end(self, said: str = "") -> None:
        """Print the lines that are held back, except those whose reason is in `said`, the text of the command's error."""
        self.acquire()
        try:
            waiting, self._waiting = self._waiting, []
            timer, self._timer = self._timer, None
            for record in waiting:
                if not said or (said not in record.getMessage() and _reason(record) not in said):
                    print(f"wireproto: {self.format(record)}", file=sys.stderr)
        finally:
            self.release()
        if timer is not None:
            timer.cancel()


def _reason(record: logging.LogRecord) -> str:
    """Return the text of the error that a line ends with, or else the line itself."""
    last = record.args[-1] if isinstance(record.args, tuple) and record.args else None
    return last.text if isinstance(last, WireprotoError) and last.text else record.getMessage()


@contextmanager
def printed() -> Iterator[Lines | None]:
    """Have warnings printed within the ``with`` block, unless another handler of the logger does that."""
    logger = logging.getLogger("wireproto")
    if logger.hasHandlers():
        yield None
        return
    lines = Lines()
    logger.addHandler(lines)
    try:
        yield lines
    finally:
        logger.removeHandler(lines)
        lines.end()
