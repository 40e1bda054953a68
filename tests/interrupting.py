"""A signal handler that raises at a chosen place of a call, as Ctrl-C does at any.

What it is: `Signal`, for tests that try one place after the other where the interpreter looks for signals, in the client's own code: behind
a call, where Python code begins, and where a loop begins anew.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

_NAMES = ("CALL", "CALL_FUNCTION_EX", "CALL_KW", "RESUME", "JUMP_BACKWARD")
_LOOKED_BEHIND = frozenset(dis.opmap[name] for name in _NAMES if name in dis.opmap)
"""Instructions behind which the interpreter looks for signals (CPython's `CHECK_EVAL_BREAKER`)."""
_WAITS, _YIELD_FROM = 3, 2
"""Of a RESUME's argument: what was gone on from; from here on the steps of another generator, or what is awaited, which go on first."""
_places: dict[CodeType, frozenset[int]] = {}


def _looked_at(code: CodeType) -> frozenset[int]:
    """Offsets of the instructions before which a signal is seen. Left out is what follows the last call of a `with` or `try`: raised there,
    an error would be out of its hands, and the signal is not."""
    found = _places.get(code)
    if found is None:
        handlers: list[Any] = dis._parse_exception_table(code)  # type: ignore[attr-defined]

        def handler(offset: int) -> int | None:
            return next((entry.target for entry in handlers if entry.start <= offset < entry.end), None)

        offsets: set[int] = set()
        behind: dis.Instruction | None = None
        for instruction in dis.get_instructions(code):
            if behind is not None and handler(behind.offset) == handler(instruction.offset):
                offsets.add(instruction.offset)
            behind = instruction if _is_looked_behind(instruction) else None
            if behind is not None and behind.opname == "JUMP_BACKWARD":
                offsets.add(int(behind.argval))
                behind = None
        found = _places[code] = frozenset(offsets)
    return found


def _is_looked_behind(instruction: dis.Instruction) -> bool:
    """Not as a `yield from` or `await` goes on: raised there, it would leave the generator within it where it waits, for good."""
    going_on = instruction.opname == "RESUME" and (instruction.arg or 0) & _WAITS >= _YIELD_FROM
    return instruction.opcode in _LOOKED_BEHIND and not going_on


class Signal:
    """Raises at the n-th place of a call.

    Attributes:
        came: whether there were so many. where: the place.
    """

    def __init__(self, number: int) -> None:
        self.left, self.came, self.where = number, False, ""

    def _entered(self, frame: FrameType, event: str, arg: Any) -> Any:
        code = frame.f_code
        if code.co_name == "<genexpr>" or "/src/wireproto/" not in code.co_filename:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._steps(_looked_at(code))

    def _steps(self, places: frozenset[int]) -> Any:
        """Make what is called at each instruction of a frame. It is called millions of times, so `places` is found once a frame."""

        def step(frame: FrameType, event: str, arg: Any) -> Any:
            if frame.f_lasti in places and event == "opcode":
                self._at_a_place(frame)
            return frame.f_trace  # itself, which it does not hold: no cycle a frame for the collector

        return step

    def _at_a_place(self, frame: FrameType) -> None:
        self.left -= 1
        if not self.left and collecting(frame):
            self.left = 1  # what is raised there is nobody's: the next place, then
        elif not self.left:
            self.came = True
            sys.settrace(None)
            code = frame.f_code
            self.where = f"in {code.co_name}, {code.co_filename.rpartition('/wireproto/')[2]}:{frame.f_lineno}, {frame.f_lasti}"
            raise KeyboardInterrupt(self.where)

    def within(self, call: Callable[[], object]) -> bool:
        """Whether it broke in."""
        before = sys.gettrace()
        sys.settrace(self._entered)
        try:
            call()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
        return False


def collecting(frame: FrameType | None) -> bool:
    """Whether an object's `__del__` runs, which the collector may have called anywhere."""
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None
