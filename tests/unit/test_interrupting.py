"""Where `interrupting.Signal` raises: where the interpreter itself looks for signals, and nowhere else."""

from __future__ import annotations

import _thread
import signal
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, pairwise
from typing import Any

import pytest

import interrupting


class Raised(Exception):
    pass


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    def raises(number: int, frame: Any) -> None:
        raise Raised

    before = signal.signal(signal.SIGUSR1, raises)
    yield
    signal.signal(signal.SIGUSR1, before)


def sent_and(seen: list[int]) -> Iterator[Any]:
    """In C: a signal that has come when the first is taken, and then what was gone on to."""
    return chain(map(_thread.interrupt_main, [signal.SIGUSR1]), map(seen.append, range(3)))


def yielding(steps: Iterator[Any]) -> Iterator[Any]:
    for one in steps:  # noqa: UP028 - which of the two it is matters here
        yield one


def delegating(steps: Iterator[Any]) -> Iterator[Any]:
    yield from steps


def resumptions(function: Callable[..., Any]) -> list[bool]:
    """Of each place where it goes on when it is resumed: whether a `Signal` may raise there."""
    found = []
    code: Any = function.__code__
    instructions = list(interrupting.dis.get_instructions(code))
    for one, behind in pairwise(instructions):
        if one.opname == "RESUME" and one.arg:
            found.append(behind.offset in interrupting._looked_at(code))
    return found


@pytest.mark.parametrize(("steps", "looks"), [(yielding, True), (delegating, False)])
def test_a_signal_is_seen_where_a_generator_goes_on_and_not_where_it_hands_that_on_to_another(steps: Any, looks: bool) -> None:
    seen: list[int] = []
    with pytest.raises(Raised):
        deque(steps(sent_and(seen)))
    assert seen == ([] if looks else [0, 1, 2]), "the interpreter's own word"
    assert resumptions(steps) == [looks]
