"""A signal handler that raises in the middle of a send, as Ctrl-C does: whatever it breaks into, what comes next is stored, and soon.

The handler raises at one place after the other where the interpreter looks for signals, in the client's own code: behind a call of C, and
where Python code begins.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

import wireproto
from wireproto.devbroker import DevBroker
from wireproto.errors import WireprotoError

SOON = 1.0
_numbers = itertools.count()


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


@pytest.fixture(params=["kafka", "pulsar", "rocketmq"])
def client(request: pytest.FixtureRequest) -> Iterator[Any]:
    with DevBroker([request.param]) as broker, wireproto.connect(broker.url(request.param)) as opened:
        yield opened


def waited(out: Any) -> None:
    """One that is waited for: the short way."""
    out.send(b"x", partition=0).position(SOON)


def several(out: Any) -> None:
    """Behind one that is on its way."""
    out.send(b"x", partition=0)
    out.send(b"y", partition=0)
    out.send(b"z", partition=0).position(SOON)


def flushed(out: Any) -> None:
    out.send(b"x", partition=0)
    out.flush(SOON)


def rows(out: Any) -> None:
    out.send_batch(pa.table({"value": pa.array([b"x"] * 3, pa.binary())}), partition=0)
    out.flush(SOON)


def filled(out: Any) -> None:
    """More than one batch takes, each way."""
    for _ in range(3):
        out.send(b"x" * 40_000, partition=0)
    out.send_batch(pa.table({"value": pa.array([b"y" * 40_000] * 3, pa.binary())}), partition=0)
    out.flush(SOON)


@pytest.mark.parametrize(("work", "linger"), [(waited, 0.0), (several, 0.0), (flushed, 0.02), (rows, 0.02), (filled, 0.02)])
@pytest.mark.parametrize("fresh", [False, True], ids=["used", "new"])
def test_a_signal_anywhere_in_sending_holds_up_nothing_that_comes_later(
    client: Any, work: Callable[[Any], None], fresh: bool, linger: float
) -> None:
    topic = f"t-{next(_numbers)}"
    client.admin().create_topic(topic, partitions=1)
    stuck = []
    out = client.producer(topic, linger=linger)
    for number in itertools.count(1):
        signal = Signal(number)
        signal.within(partial(work, out))
        try:
            out.send(b"after-%d" % number, partition=0).position(SOON)
            out.flush(SOON)
        except WireprotoError as why:
            stuck.append(f"{signal.where}: {why}")
            with suppress(WireprotoError):
                out.close(0.0)
            out = client.producer(topic, linger=linger)
        if not signal.came:
            break
        if fresh:
            out.close(SOON)
            out = client.producer(topic, linger=linger)
    assert stuck == [], len(stuck)
