"""A signal handler that raises at a chosen place of a call, as Ctrl-C does at any.

What it is: `Signal`, for tests that try one place after the other where the interpreter looks for signals, in the client's own code: behind
a call of C, and where Python code begins.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


class Signal:
    """Raises at the n-th place of a call.

    Attributes:
        came: whether there were so many. where: the place.
    """

    def __init__(self, number: int) -> None:
        self.left, self.came, self.where = number, False, ""

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        code = frame.f_code
        if event not in ("call", "c_return") or code.co_name == "<genexpr>" or "/src/wireproto/" not in code.co_filename:
            return
        self.left -= 1
        if not self.left and collecting(frame):
            self.left = 1  # what is raised there is nobody's: the next place, then
        elif not self.left:
            self.came = True
            sys.setprofile(None)
            self.where = f"{event} in {code.co_name}, {code.co_filename.rpartition('/wireproto/')[2]}:{frame.f_lineno}"
            raise KeyboardInterrupt(self.where)

    def within(self, call: Callable[[], object]) -> bool:
        """Whether it broke in."""
        sys.setprofile(self)
        try:
            call()
        except KeyboardInterrupt:
            return True
        finally:
            sys.setprofile(None)
        return False


def collecting(frame: FrameType | None) -> bool:
    """Whether an object's `__del__` runs, which the collector may have called anywhere."""
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None
