"""What could lose, stall or wrong a task: early answers, wake-ups, signals, deadlines, shared errors, cancelling, close, fork."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from patience import KEPT, soon
from task_steps import ask, asking, begin, connect, waiting
from wireproto._net import Call, Connection, Descriptors, Event, Loop, Mailbox, Timer
from wireproto.errors import AuthError, Closed, Disconnected, Forked, WireprotoError
from wireproto.net import task as task_module
from wireproto.net.task import Steps, Task, Tasks, after, ready


def test_an_answer_that_comes_before_the_yield_resumes_all_the_same(tasks: Tasks, conn: Connection) -> None:
    begun: list[Call] = []
    there = threading.Event()
    answered = threading.Event()

    def steps() -> Steps[bytes]:
        call = begin(conn, b"e", b"early")
        begun.append(call)
        there.set()
        assert answered.wait(20)
        assert call.done
        yield call
        return call.result(0.0)[4:]

    task = tasks.spawn(steps(), "overtaken")
    assert there.wait(20)
    assert begun[0].wait(soon()), "this thread reads the answer while the steps still run"
    answered.set()
    assert task.wait(soon()) == b"early"


def test_no_wake_up_is_lost_however_often_threads_switch(tasks: Tasks, loop: Loop, port: int) -> None:
    conns = [connect(loop, port) for _ in range(2)]
    wrong: list[BaseException] = []

    def call_on(conn: Connection) -> None:
        try:
            while not over.is_set():
                ask(conn, b"e", b"by a thread")
        except BaseException as why:
            wrong.append(why)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for round_ in range(8):
            over = threading.Event()
            threads = [threading.Thread(target=call_on, args=(conns[n % 2],)) for n in range(round_ % 3)]
            for thread in threads:
                thread.start()
            running_ = [tasks.spawn(asking(conns[n % 2], b"%d." % n, 40), f"task {n}") for n in range(8)]
            ends = [threading.Event() for _ in running_]
            for task, end in zip(running_, ends, strict=True):
                after(task, end.set)
            assert all(end.wait(30) for end in ends), f"stalled in round {round_}: {running_}"
            assert [task.result() for task in running_] == [40] * 8
            over.set()
            for thread in threads:
                thread.join(20)
    finally:
        sys.setswitchinterval(before)
    assert wrong == []


class Alarm(Exception):
    """Raised by the signal handler."""


def test_tasks_do_not_die_of_the_signals_of_a_thread_that_reads_for_them(tasks: Tasks, conn: Connection) -> None:
    armed = [False]
    interrupts = 0

    def ring(number: int, frame: object) -> None:
        if armed[0]:
            armed[0] = False
            raise Alarm

    def wait_until_rung() -> None:
        armed[0] = True
        while not task.ready_by(soon(0.05)) and time.monotonic() < end:
            pass
        armed[0] = False

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.0007, 0.0007)
    total = 0
    try:
        end = time.monotonic() + 60
        while interrupts < 200 and time.monotonic() < end:
            task = tasks.spawn(asking(conn, b"x", 200), "beside a storm")
            while not task.done and time.monotonic() < end:
                with contextlib.suppress(Alarm):
                    wait_until_rung()
                    continue
                interrupts += 1
            total += task.result() - 200
    finally:
        armed[0] = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupts >= 200
    assert total == 0


class CountingLoop(Loop):
    """Counts the timers that are set."""

    timers = 0

    def call_at(self, when: float, fn: Callable[..., object], *args: Any) -> Timer:
        self.timers += 1
        return super().call_at(when, fn, *args)


def test_a_task_has_one_timer_for_all_of_its_deadlines(port: int) -> None:
    loop = CountingLoop("timers")
    tasks = Tasks(loop)
    conn = connect(loop, port)

    def steps() -> Steps[int]:
        on_time = 0
        for _ in range(100):
            call = begin(conn, b"e")
            on_time += yield call, time.monotonic() + 20.0
        return on_time

    assert tasks.spawn(steps(), "deadlines").wait(soon()) == 100
    assert loop.timers == 1
    loop.close()


def test_deadlines_of_a_task_are_kept_be_the_next_sooner_or_later(tasks: Tasks, loop: Loop) -> None:
    never = Event(loop)

    def steps() -> Steps[list[tuple[bool, float]]]:
        seen = []
        for seconds in (0.03, 0.05, 0.01):
            there = Event(loop)
            loop.call_soon(there.set)
            assert (yield there, time.monotonic() + 50.0)  # a long deadline first: the timer must be set anew
            start = time.monotonic()
            answer = yield never, start + seconds
            seen.append((answer, time.monotonic() - start - seconds))
        start = time.monotonic()
        answer = yield start + 0.02
        seen.append((answer, time.monotonic() - start - 0.02))
        return seen

    for answer, late in tasks.spawn(steps(), "deadlines").wait(soon()):
        assert answer is False
        assert 0 <= late < KEPT


def test_each_waiter_gets_an_error_of_its_own(tasks: Tasks, loop: Loop) -> None:
    event = Event(loop)

    def steps() -> Steps[None]:
        yield event
        raise AuthError("no", code=58, name="SASL_AUTHENTICATION_FAILED", peer="a:1") from ValueError("the cause")

    task = tasks.spawn(steps(), "refused")
    caught: list[AuthError] = []

    def wait() -> None:
        try:
            task.wait(soon())
        except AuthError as error:
            caught.append(error)

    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    event.set()
    for thread in threads:
        thread.join(20)
    for _ in range(3):
        wait()
    assert len(caught) == 6
    assert len({id(error) for error in caught}) == 6
    assert len({id(error.__traceback__) for error in caught}) == 6
    assert {str(error) for error in caught} == {"SASL_AUTHENTICATION_FAILED [58]: no (peer a:1)"}
    assert {error.code for error in caught} == {58}
    assert {str(error.__cause__) for error in caught} == {"the cause"}
    depths = [sum(1 for _ in walk(error)) for error in caught]
    assert len(set(depths)) == 1, f"tracebacks grow: {depths}"


def walk(error: BaseException) -> Iterator[object]:
    trace = error.__traceback__
    while trace is not None:
        yield trace
        trace = trace.tb_next


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (AuthError("no", code=58, name="SASL_AUTHENTICATION_FAILED"), "AuthError: SASL_AUTHENTICATION_FAILED [58]: no"),
        (ZeroDivisionError("a fault of this package"), "ZeroDivisionError: a fault of this package"),
    ],
)
def test_what_fails_unawaited_is_told_to_the_log_once(
    tasks: Tasks, loop: Loop, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, error: Exception, line: str
) -> None:
    """With a traceback only where it is none of the errors that brokers and networks cause."""
    monkeypatch.setattr(task_module, "GRACE", 0.0)
    told = threading.Event()
    caplog.handler.addFilter(lambda record: told.set() or True)

    def steps() -> Steps[None]:
        raise error
        yield 0.0

    with caplog.at_level(logging.WARNING, "wireproto"):
        task = tasks.spawn(steps(), "sign on")
        assert told.wait(20)
        with pytest.raises(type(error)):
            task.result()
        awaited = tasks.spawn(waiting(task), "one that waits")  # and says nothing of it
        awaited.wait(soon())
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [f"sign on failed: {line}"]
    assert [record.exc_info is not None for record in caplog.records] == [not isinstance(error, WireprotoError)]


def test_what_fails_and_is_asked_for_is_not_told_to_the_log(
    tasks: Tasks, loop: Loop, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_module, "GRACE", 0.3)

    def steps(why: BaseException) -> Steps[None]:
        raise why
        yield 0.0

    with caplog.at_level(logging.WARNING, "wireproto"):
        task = tasks.spawn(steps(AuthError("no", code=58)), "sign on")
        with pytest.raises(AuthError):
            task.wait(soon())
        tasks.spawn(steps(Closed("over")), "closed").ready_by(soon())
        asked_later = tasks.spawn(steps(AuthError("no", code=58)), "sign on")
        while not asked_later.done:
            os.sched_yield()
        with pytest.raises(AuthError):
            asked_later.result()
        later = Event(loop)
        loop.call_at(time.monotonic() + 0.4, later.set)
        later.wait(soon())
    assert caplog.records == []


def test_a_cancelled_task_is_told_where_it_waits(tasks: Tasks, loop: Loop) -> None:
    never = Event(loop)
    ended: list[str] = []
    begun = threading.Event()

    def steps() -> Steps[None]:
        try:
            begun.set()
            yield never
        finally:
            ended.append(threading.current_thread().name)

    task = tasks.spawn(steps(), "cancelled")
    assert begun.wait(20)
    task.cancel(Disconnected("the link is gone"))
    with pytest.raises(Disconnected, match="the link is gone"):
        task.wait(soon())
    assert ended == ["wireproto-io test"]
    never.set()  # nothing hangs on it any more
    task.cancel(Disconnected("again"))
    done = tasks.spawn(waiting(never), "after it")
    assert done.wait(soon())
    with pytest.raises(Disconnected, match="the link is gone"):
        task.result()
    before_it_began = Task(loop, steps(), "never begun")
    before_it_began.cancel(Disconnected("not wanted"))
    with pytest.raises(Disconnected, match="not wanted"):
        before_it_began.wait(soon())
    assert len(ended) == 1


def test_close_ends_all_tasks_in_the_io_thread_and_tells_who_waits(port: int, caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop("closing")
    tasks = Tasks(loop)
    conn = connect(loop, port)
    ended: list[str] = []
    failed: list[BaseException] = []

    def steps(what: Any) -> Steps[None]:
        try:
            yield what
        except Closed as why:
            ended.append(f"{threading.current_thread().name}: {why}")
            raise

    def ignores() -> Steps[None]:
        while True:
            with contextlib.suppress(Closed):
                yield never

    def waits_when_it_ends() -> Steps[None]:
        try:
            yield never
        finally:
            yield time.monotonic() + 30.0

    never = Event(loop)
    kinds: list[Steps[None]] = [steps(never), steps(time.monotonic() + 60.0), steps(begin(conn, b"n")), steps(Mailbox(loop)), ignores()]
    every = [tasks.spawn(kind, f"task {n}") for n, kind in enumerate(kinds)]
    every.append(tasks.spawn(waits_when_it_ends(), "one that waits in a finally"))

    def wait() -> None:
        try:
            every[0].wait(soon())
        except Closed as why:
            failed.append(why)

    thread = threading.Thread(target=wait)
    thread.start()
    assert tasks.spawn(asking(conn, b"all have begun"), "last").wait(soon()) == 1
    start = time.monotonic()
    with caplog.at_level(logging.WARNING, "wireproto"):
        loop.close()
    assert time.monotonic() - start < KEPT
    thread.join(20)
    assert len(failed) == 1
    assert ended.count("wireproto-io closing: client 'closing' is closed") >= 3
    assert all(task.done for task in every)
    for task in every:
        with pytest.raises(Closed):
            task.result()
    assert {record.getMessage() for record in caplog.records} == {
        f"{name} failed: RuntimeError: the task waits again although the client is closed"
        for name in ("task 4", "one that waits in a finally")
    }
    with pytest.raises(Closed):
        tasks.spawn(waiting(never), "too late")
    with pytest.raises(Closed):
        tasks.shared("key", lambda: waiting(never), "too late")
    assert not tasks.running("key")


def test_close_does_not_wait_for_a_step_that_blocks(port: int) -> None:
    loop = Loop("blocked")
    tasks = Tasks(loop)
    inside, go = threading.Event(), threading.Event()

    def blocks() -> Steps[None]:
        inside.set()
        go.wait(20)
        yield 0.0

    tasks.spawn(blocks(), "blocks")
    assert inside.wait(20)
    start = time.monotonic()
    loop.close()
    assert time.monotonic() - start < 1.0 + KEPT
    go.set()


def test_a_task_that_closes_the_client_ends_like_the_others(port: int) -> None:
    loop = Loop("own")
    tasks = Tasks(loop)

    def closes() -> Steps[None]:
        yield time.monotonic()
        loop.close()
        yield time.monotonic() + 60.0

    task = tasks.spawn(closes(), "closes")
    with pytest.raises(Closed):
        task.wait(soon())
    end = soon()
    while not task.done and time.monotonic() < end:
        os.sched_yield()
    assert task.done


def test_a_forked_child_leaves_the_parents_tasks_alone(tasks: Tasks, loop: Loop, conn: Connection) -> None:
    never = Event(loop)
    begun = threading.Event()
    read, write = os.pipe()

    def steps() -> Steps[None]:
        try:
            begun.set()
            yield never
        finally:
            os.write(write, b"finally in %d;" % os.getpid())

    task: Task[None] | None = tasks.spawn(steps(), "of the parent")
    assert begun.wait(20)
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            assert task is not None
            for attempt in (lambda: task.wait(soon()), lambda: tasks.spawn(waiting(never), "new"), lambda: tasks.shared(1, steps, "new")):
                try:
                    attempt()
                except Forked:
                    os.write(write, b"forked;")
            event = tasks.offload(os.getpid)  # of the parent's loop: cannot be waited for, but is done
            task = None
            import gc

            del tasks, loop, event
            gc.collect()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    never.set()
    assert task is not None
    task.wait(soon())
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read() == b"forked;" * 3 + b"finally in %d;" % parent


def test_a_task_that_never_waits_long_leaves_timers_and_sockets_their_turn(tasks: Tasks, loop: Loop, conn: Connection) -> None:
    ready = Event(loop)
    ready.set()
    over: list[bool] = []
    timed, answered = threading.Event(), threading.Event()

    def greedy() -> Steps[int]:
        rounds = 0
        while not over:
            yield ready
            rounds += 1
        return rounds

    greedy_tasks = [tasks.spawn(greedy(), "greedy") for _ in range(3)]
    loop.call_at(time.monotonic() + 0.01, timed.set)
    after(tasks.spawn(asking(conn, b"x", 5), "modest"), answered.set)
    try:
        assert timed.wait(20)
        assert answered.wait(20)
        assert ask(conn, b"e", b"a caller") == b"a caller"
    finally:
        over.append(True)
    rounds = [task.wait(soon()) for task in greedy_tasks]
    assert max(rounds) - min(rounds) <= 1, f"each in its turn: {rounds}"


def test_descriptors_are_told_once_by_whoever_reads_and_never_after_their_stop(tasks: Tasks, loop: Loop, conn: Connection) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        task = tasks.spawn(ready(loop, [ours.fileno()], soon()), "nobody reads but the I/O thread")
        theirs.send(b"1")
        assert task.wait(soon()) == ours.fileno()
        assert ours.recv(10) == b"1"
        both = Descriptors(loop, [ours.fileno(), theirs.fileno()], writing=True)
        assert both.ready_by(soon()), "this thread reads"
        assert both.found == ours.fileno()
        late = tasks.spawn(ready(loop, [ours.fileno()], time.monotonic() + 0.05), "in vain")
        while not late.done:
            assert ask(conn, b"e", b"beside") == b"beside"
        assert late.result() == -1
        stopped = Descriptors(loop, [ours.fileno()])
        stopped.stop()
        theirs.send(b"2")
        other = Descriptors(loop, [ours.fileno()])
        assert other.ready_by(soon())
        assert not stopped.done
        assert stopped.found == -1
    loop.close()
    with pytest.raises(Closed):
        Descriptors(loop, [0])


def test_what_a_poll_finds_of_a_descriptor_that_was_stopped_meanwhile_is_told_to_no_other(
    tasks: Tasks, loop: Loop, conn: Connection
) -> None:
    over = threading.Event()
    call = begin(conn, b"n")
    leader = threading.Thread(target=lambda: [call.ready_by(soon(0.5)) for _ in iter(over.is_set, True)])
    leader.start()

    def steps() -> Steps[int]:
        wrong = 0
        for _ in range(200):
            ours, theirs = socket.socketpair()
            quiet, other = socket.socketpair()
            with ours, theirs, quiet, other:
                gone = Descriptors(loop, [ours.fileno()])
                yield gone, time.monotonic() + 0.0005  # the other thread polls it
                theirs.send(b"1")  # wakes that thread, which cannot go on before this one waits
                gone.stop()
                silent = Descriptors(loop, [quiet.fileno()])
                wrong += yield silent, time.monotonic() + 0.001
                silent.stop()
        return wrong

    try:
        assert tasks.spawn(steps(), "one after the other").wait(soon(60.0)) == 0
    finally:
        over.set()
        call.cancel()
        leader.join(20)
