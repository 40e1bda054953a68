"""What roles share: one thread at a time, and an end that comes once, keeps its time and hides no other error."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from patience import LATE, LONG
from wireproto._net import Loop
from wireproto.errors import BrokerError, Closed, ConcurrentUse, TimedOut
from wireproto.flow.role import Role
from wireproto.net.closing import INTERRUPTED, Closing

SOON = 20.0


class Reader(Role):
    def __init__(self, loop: Loop, problem: Exception | None = None) -> None:
        super().__init__("reader", loop)
        self.ended = 0
        self.problem = problem
        self.inside, self.go_on = threading.Event(), threading.Event()

    def poll(self) -> str:
        with self._only:
            return "batch"

    def stay(self) -> None:
        with self._only:
            self.inside.set()
            assert self.go_on.wait(SOON)

    def _let_go(self, deadline: float) -> None:
        self.ended += 1
        if self.problem is not None:
            raise self.problem


class Waiting(Reader):
    waits = True


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop("role")
    yield made
    made.close()


def inside(role: Reader) -> threading.Thread:
    thread = threading.Thread(target=role.stay, daemon=True)
    thread.start()
    assert role.inside.wait(SOON)
    return thread


def test_a_second_thread_is_refused_while_one_is_inside(loop: Loop) -> None:
    role = Reader(loop)
    thread = inside(role)
    with pytest.raises(ConcurrentUse, match="this reader is in use by another thread"):
        role.poll()
    role.go_on.set()
    thread.join(SOON)
    assert role.poll() == "batch"


def test_user_code_that_runs_inside_may_call_the_role(loop: Loop) -> None:
    role = Reader(loop)
    with role._only:
        with role._only.outside():
            assert role.poll() == "batch"
        with pytest.raises(ConcurrentUse):
            role.poll()
    assert role.poll() == "batch"


def test_an_error_inside_lets_the_next_call_in(loop: Loop) -> None:
    role = Reader(loop)
    with pytest.raises(KeyError), role._only:
        raise KeyError
    assert role.poll() == "batch"


@pytest.mark.parametrize("storm", [0.00002, 0.0002])
def test_no_call_that_a_signal_handler_ends_leaves_the_role_in_use(loop: Loop, storm: float) -> None:
    class Struck(Exception):
        pass

    def strike(*_: object) -> None:
        raise Struck

    role, struck, through = Reader(loop), 0, 0
    before = signal.signal(signal.SIGALRM, strike)
    end = time.monotonic() + 1.0
    most = end + LONG  # a loaded machine gives us little of a second
    try:
        while time.monotonic() < end or (min(struck, through) <= 100 and time.monotonic() < most):
            with suppress(Struck):
                try:
                    signal.setitimer(signal.ITIMER_REAL, random.random() * storm + 1e-6)
                    while True:
                        role.poll()
                        through += 1
                except Struck:
                    struck += 1
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert struck > 100
    assert through > 100
    assert role.poll() == "batch"


def test_a_closed_role_and_a_closed_client_say_so(loop: Loop) -> None:
    role, other = Reader(loop), Reader(loop)
    role.close()
    with pytest.raises(Closed, match="the reader was closed"):
        role.poll()
    loop.close()
    with pytest.raises(Closed):
        other.poll()


def test_a_role_ends_once_also_when_its_end_failed(loop: Loop) -> None:
    role = Reader(loop, BrokerError("commit was refused"))
    with pytest.raises(BrokerError):
        role.close()
    role.close()
    assert role.ended == 1


def test_two_that_close_at_once_end_it_once(loop: Loop) -> None:
    begun, may = threading.Event(), threading.Event()

    class Slow(Reader):
        def _let_go(self, deadline: float) -> None:
            super()._let_go(deadline)
            begun.set()
            assert may.wait(SOON)

    role = Slow(loop)
    first = threading.Thread(target=role.close, daemon=True)
    first.start()
    assert begun.wait(SOON)
    began = time.monotonic()
    with pytest.raises(TimedOut):
        role.close(0.1)
    assert 0.1 <= time.monotonic() - began < 0.1 + LATE
    may.set()
    first.join(SOON)
    role.close(0.0)
    assert role.ended == 1


def test_a_close_that_timed_out_behind_another_threads_call_may_be_repeated(loop: Loop) -> None:
    role = Waiting(loop)
    thread = inside(role)
    began = time.monotonic()
    with pytest.raises(TimedOut, match="another thread is still inside a call of this reader"):
        role.close(0.1)
    assert 0.1 <= time.monotonic() - began < 0.1 + LATE
    assert role.ended == 0
    with pytest.raises(Closed):
        role.poll()
    role.go_on.set()
    thread.join(SOON)
    role.close(0.0)
    assert role.ended == 1


def test_one_that_does_not_wait_ends_under_another_threads_call(loop: Loop) -> None:
    role = Reader(loop)
    thread = inside(role)
    role.close(0.0)
    assert role.ended == 1
    role.go_on.set()
    thread.join(SOON)


class Thing(Closing):
    def __init__(self, problem: Exception | None = None) -> None:
        self.problem = problem
        self.timeouts: list[float] = []

    def close(self, timeout: float = 30.0) -> None:
        self.timeouts.append(timeout)
        if self.problem is not None:
            raise self.problem


def test_a_block_closes_at_its_end_and_tells_what_that_raises() -> None:
    with pytest.raises(TimedOut), Thing(TimedOut("flush")):
        pass
    with Thing() as thing:
        assert thing.timeouts == []
    assert thing.timeouts == [30.0]


def test_the_error_that_ends_a_block_is_the_one_to_see() -> None:
    thing = Thing(TimedOut("not all was acknowledged"))
    with pytest.raises(KeyError) as caught, thing:
        raise KeyError("the body's")
    assert caught.value.__notes__ == ["closing failed, too: TimedOut: not all was acknowledged"]
    assert thing.timeouts == [30.0]


def test_an_interrupted_block_is_closed_in_a_short_time() -> None:
    thing = Thing(TimedOut("flush"))
    with pytest.raises(KeyboardInterrupt), thing:
        raise KeyboardInterrupt
    assert thing.timeouts == [INTERRUPTED]


def test_an_end_in_steps_comes_once_keeps_its_time_and_lets_nobody_in(loop: Loop) -> None:
    class Slow(Reader):
        def __init__(self, loop: Loop) -> None:
            super().__init__(loop)
            self.deadlines: list[float] = []

        def _let_go(self, deadline: float) -> None:
            super()._let_go(deadline)
            self.deadlines.append(deadline)

    role = Slow(loop)
    began = time.monotonic()
    assert list(role.ending(500.0)) == []
    (deadline,) = role.deadlines
    assert began + 500.0 <= deadline <= time.monotonic() + 500.0
    with pytest.raises(Closed):
        role.poll()
    assert list(role.ending()) == []
    role.close()
    assert role.ended == 1
    other = Slow(loop)
    other.close(500.0)
    assert list(other.ending()) == []
    assert other.ended == 1
    assert began + 500.0 <= other.deadlines[0] <= time.monotonic() + 500.0


def test_work_that_failed_is_told_to_the_role_before_it_ends(loop: Loop) -> None:
    class Worker(Reader):
        failed = 0

        def _work_failed(self) -> None:
            assert not self.ended
            self.failed += 1

    with pytest.raises(KeyError), Worker(loop) as role:
        raise KeyError
    assert (role.failed, role.ended) == (1, 1)
    with Worker(loop) as role:
        pass
    assert (role.failed, role.ended) == (0, 1)
