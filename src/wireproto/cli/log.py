"""Warnings of the clients as lines of the command.

What it is: a handler of the logger ``wireproto``, for programs of which the command is all there is. A line waits a moment, so that what
the error that ends the command says as well is said once. Where a program that calls the command has configured logging, nothing is added.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from wireproto.errors import WireprotoError

_MOMENT = 0.5


class Lines(logging.Handler):
    """Prints warnings on standard error.

    Args:
        moment: seconds for which a line waits.
    """

    def __init__(self, moment: float = _MOMENT) -> None:
        super().__init__(logging.WARNING)
        self._moment = moment
        self._waiting: list[logging.LogRecord] = []
        self._timer: threading.Timer | None = None

    def emit(self, record: logging.LogRecord) -> None:
        self._waiting.append(record)
        if self._timer is None:
            self._timer = threading.Timer(self._moment, self.end)
            self._timer.daemon = True
            self._timer.start()

    def end(self, said: str = "") -> None:
        """Print what waits, but for lines with the reason that this error gives."""
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
    """What the error says that a line ends with; the line itself where it has none."""
    last = record.args[-1] if isinstance(record.args, tuple) and record.args else None
    return last.text if isinstance(last, WireprotoError) and last.text else record.getMessage()


@contextmanager
def printed() -> Iterator[Lines | None]:
    """Have warnings printed while this lasts, unless another handler takes them."""
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
