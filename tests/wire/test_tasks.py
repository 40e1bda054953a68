"""Tasks and operations: steps that wait without a thread, and all that could lose, stall or wrong them."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from net_server import running
from patience import LATE
from wireproto._net import Call, Connection, Event, Loop, Mailbox, Timer
from wireproto.errors import AuthError, Closed, Disconnected, Forked, TimedOut
from wireproto.net import offload as offload_module
from wireproto.net import task as task_module
from wireproto.net.task import Steps, Task, Tasks, after

CAP = 64 << 20


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with running() as port:
        yield port


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop("tasks")
    yield loop
    loop.close()


@pytest.fixture
def tasks(loop: Loop) -> Tasks:
    return Tasks(loop)


@pytest.fixture
def conn(loop: Loop, port: int) -> Connection:
    return connect(loop, port)


def connect(loop: Loop, port: int) -> Connection:
    return loop.open(socket.create_connection(("127.0.0.1", port)), f"127.0.0.1:{port}", "kafka", CAP)


def soon(seconds: float = 20.0) -> float:
    return time.monotonic() + seconds


def ask(conn: Connection, verb: bytes, payload: bytes = b"") -> bytes:
    token = conn.next_token()
    return conn.call(token, [struct.pack(">i", token), verb, payload], soon())[4:]


def begin(conn: Connection, verb: bytes, payload: bytes = b"") -> Call:
    token = conn.next_token()
    return conn.submit(token, [struct.pack(">i", token), verb, payload])


def asking(conn: Connection, payload: bytes, times: int = 1) -> Steps[int]:
    """So many round trips; how many brought the right answer."""
    right = 0
    for number in range(times):
        wanted = payload + b"%d" % number
        call = begin(conn, b"e", wanted)
        yield call
        right += call.result(0.0)[4:] == wanted
    return right


def waiting(what: Any) -> Steps[bool]:
    answer = yield what
    return answer


# ---- what they do ---------------------------------------------------------------------------------------------------------------


def test_a_task_runs_in_the_keeper_and_brings_its_result(tasks: Tasks, conn: Connection) -> None:
    threads: list[str] = []

    def steps() -> Steps[str]:
        threads.append(threading.current_thread().name)
        right = yield from asking(conn, b"x", 3)
        threads.append(threading.current_thread().name)
        return f"{right} of 3"

    task = tasks.spawn(steps(), "three round trips")
    assert task.wait(soon()) == "3 of 3"
    assert task.result() == "3 of 3"
    assert task.done
    assert set(threads) == {"wireproto-keeper tasks"}
    assert repr(task) == "<Task three round trips: done>"


def test_a_task_goes_on_while_nobody_waits_and_while_another_thread_reads(tasks: Tasks, conn: Connection) -> None:
    over = threading.Event()
    reads = threading.Thread(target=lambda: [ask(conn, b"e", b"y") for _ in iter(over.is_set, True)])
    alone = threading.Event()
    task = tasks.spawn(asking(conn, b"x", 50), "alone")
    after(task, alone.set)
    assert alone.wait(20)
    assert task.result() == 50
    reads.start()
    task = tasks.spawn(asking(conn, b"z", 50), "beside a reader")
    beside = threading.Event()
    after(task, beside.set)
    assert beside.wait(20)
    over.set()
    reads.join(20)
    assert task.result() == 50


def test_several_wait_for_one_and_each_is_resumed(tasks: Tasks, loop: Loop) -> None:
    event = Event(loop)
    waiters = [tasks.spawn(waiting(event), f"waiter {n}") for n in range(5)]
    called: list[int] = []
    for n in range(3):
        after(event, called.append, n)
    given_up = tasks.spawn(waiting((event, time.monotonic() + 0.02)), "impatient")
    assert given_up.wait(soon()) is False
    event.set("value")
    assert [waiter.wait(soon()) for waiter in waiters] == [True] * 5
    last = Event(loop)
    after(event, last.set)
    last.wait(soon())
    assert called == [0, 1, 2]


def test_a_task_waits_for_another_for_a_mailbox_and_for_an_event(tasks: Tasks, loop: Loop) -> None:
    box, event = Mailbox(loop), Event(loop)

    def inner() -> Steps[list[object]]:
        found: list[object] = []
        while len(found) < 3:
            yield box
            while (item := box.get()) is not None:
                found.append(item)
        return found

    def outer() -> Steps[object]:
        task = tasks.spawn(inner(), "inner")
        yield task
        yield event
        return task.result(), event.value

    task = tasks.spawn(outer(), "outer")
    for item in ("a", "b", "c"):
        box.put(item)
    event.set(5)
    assert task.wait(soon()) == (["a", "b", "c"], 5)


def test_shared_tasks_are_one_until_they_end(tasks: Tasks, loop: Loop) -> None:
    event = Event(loop)
    made: list[int] = []

    def steps() -> Steps[int]:
        made.append(1)
        yield event
        return len(made)

    one = tasks.shared(("look-up", "t"), steps, "look-up t")
    assert tasks.shared(("look-up", "t"), steps, "look-up t") is one
    assert tasks.shared(("look-up", "u"), steps, "look-up u") is not one
    assert tasks.running(("look-up", "t"))
    with pytest.raises(TimedOut, match="look-up t: not done in time"):
        one.wait(time.monotonic() + 0.02)
    event.set()
    one.wait(soon())
    assert not tasks.running(("look-up", "t")), "whoever is told of its end and asks again begins anew"
    assert tasks.shared(("look-up", "t"), steps, "look-up t") is not one


def test_an_error_of_a_call_is_raised_by_its_result_in_the_task(tasks: Tasks, conn: Connection) -> None:
    def steps() -> Steps[str]:
        call = begin(conn, b"k")
        yield call
        try:
            call.result(0.0)
        except Disconnected as why:
            return why.text
        return ""

    assert tasks.spawn(steps(), "cut off").wait(soon()) == "closed by the peer"


def test_a_call_given_up_by_another_resumes_its_task(tasks: Tasks, conn: Connection) -> None:
    call = begin(conn, b"n")
    task = tasks.spawn(waiting(call), "of a call")
    assert tasks.spawn(asking(conn, b"x"), "behind it").wait(soon()) == 1
    call.cancel()
    assert task.wait(soon())
    assert tasks.spawn(waiting(call), "of a late call").wait(soon())


def test_a_connection_held_back_by_a_full_mailbox_is_read_for_a_task(tasks: Tasks, loop: Loop, port: int) -> None:
    conn = connect(loop, port)
    full = Mailbox(loop, limit=1000)
    token = conn.next_token()
    conn.submit(token, [struct.pack(">i", token), b"b", struct.pack(">I", 4096)], full)
    assert full.ready_by(soon()), "its mailbox is over its limit: the connection is not read any more"
    assert tasks.spawn(asking(conn, b"x", 3), "held back").wait(soon()) == 3
    assert full.unread > 4096


def test_what_is_no_wait_is_told_to_the_steps(tasks: Tasks) -> None:
    wrong: Any = "a text"
    with pytest.raises(ValueError, match="could not convert"):
        tasks.spawn(waiting(wrong), "wrong").wait(soon())
    with pytest.raises(ValueError, match="could not convert"):
        tasks.drive(waiting(wrong), soon())


# ---- the traps ------------------------------------------------------------------------------------------------------------------


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
        while not task.ready_by(soon(0.05)) and interrupts < 2000:
            pass
        armed[0] = False

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.0007, 0.0007)
    total = 0
    try:
        end = time.monotonic() + 60
        while interrupts < 200 and time.monotonic() < end:
            task = tasks.spawn(asking(conn, b"x", 200), "beside a storm")
            while not task.done:
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
            ready = Event(loop)
            ready.set()
            assert (yield ready, time.monotonic() + 50.0)  # a long deadline first: the timer must be set anew
            start = time.monotonic()
            answer = yield never, start + seconds
            seen.append((answer, time.monotonic() - start - seconds))
        start = time.monotonic()
        answer = yield start + 0.02
        seen.append((answer, time.monotonic() - start - 0.02))
        return seen

    for answer, late in tasks.spawn(steps(), "deadlines").wait(soon()):
        assert answer is False
        assert 0 <= late < LATE


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


def test_what_fails_unawaited_is_told_to_the_log_once(
    tasks: Tasks, loop: Loop, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_module, "GRACE", 0.0)
    told = threading.Event()
    caplog.handler.addFilter(lambda record: told.set() or True)

    def steps() -> Steps[None]:
        raise AuthError("no", code=58, name="SASL_AUTHENTICATION_FAILED")
        yield 0.0

    with caplog.at_level(logging.WARNING, "wireproto"):
        task = tasks.spawn(steps(), "sign on")
        assert told.wait(20)
        with pytest.raises(AuthError):
            task.result()
        awaited = tasks.spawn(waiting(task), "one that waits")  # and says nothing of it
        awaited.wait(soon())
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["sign on failed: AuthError: SASL_AUTHENTICATION_FAILED [58]: no"]


def test_what_fails_and_is_asked_for_is_not_told_to_the_log(
    tasks: Tasks, loop: Loop, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_module, "GRACE", 0.05)

    def steps(why: BaseException) -> Steps[None]:
        raise why
        yield 0.0

    with caplog.at_level(logging.WARNING, "wireproto"):
        task = tasks.spawn(steps(AuthError("no", code=58)), "sign on")
        with pytest.raises(AuthError):
            task.wait(soon())
        tasks.spawn(steps(Closed("over")), "closed").ready_by(soon())
        later = Event(loop)
        loop.call_at(time.monotonic() + 0.1, later.set)
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
    assert ended == ["wireproto-keeper tasks"]
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


def test_close_ends_all_tasks_in_the_keeper_and_tells_who_waits(port: int, caplog: pytest.LogCaptureFixture) -> None:
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
    assert time.monotonic() - start < LATE
    thread.join(20)
    assert len(failed) == 1
    assert ended.count("wireproto-keeper closing: client 'closing' is closed") >= 3
    assert all(task.done for task in every)
    for task in every:
        with pytest.raises(Closed):
            task.result()
    assert {record.getMessage() for record in caplog.records} == {
        f"{name} failed: RuntimeError: it waits though the client is closed" for name in ("task 4", "one that waits in a finally")
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
    assert time.monotonic() - start < 1.0 + LATE
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


# ---- operations -----------------------------------------------------------------------------------------------------------------


def test_an_operation_runs_in_the_thread_that_called(tasks: Tasks, loop: Loop, conn: Connection) -> None:
    def steps() -> Steps[str]:
        right = yield from asking(conn, b"x", 3)
        start = time.monotonic()
        assert (yield start + 0.02) is False
        assert time.monotonic() >= start + 0.02
        assert (yield Event(loop), start + 0.03) is False
        return f"{right} by {threading.current_thread().name}"

    assert tasks.drive(steps(), soon()) == f"3 by {threading.current_thread().name}"


def test_an_operation_is_told_that_its_time_is_over(tasks: Tasks, loop: Loop) -> None:
    seen: list[str] = []

    def steps(stubborn: bool) -> Steps[str]:
        try:
            yield Event(loop), soon(50.0)
        except TimedOut as why:
            seen.append(why.text)
            if stubborn:
                yield Event(loop)
            return "what there is"
        finally:
            seen.append("finally")
        return ""

    start = time.monotonic()
    assert tasks.drive(steps(stubborn=False), start + 0.05) == "what there is"
    assert 0.05 <= time.monotonic() - start < 0.05 + LATE
    assert seen == ["not done in time", "finally"]
    with pytest.raises(TimedOut):
        tasks.drive(steps(stubborn=True), time.monotonic())
    assert seen == ["not done in time", "finally"] * 2


def test_an_interrupt_ends_the_operation_and_no_task(tasks: Tasks, loop: Loop) -> None:
    event = Event(loop)
    shared = tasks.shared("it", lambda: waiting(event), "it")
    seen: list[str] = []

    def steps() -> Steps[None]:
        try:
            yield shared
        except KeyboardInterrupt:
            seen.append("interrupted")
            raise
        finally:
            seen.append("finally")

    def ring(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            tasks.drive(steps(), soon())
    finally:
        signal.signal(signal.SIGALRM, before)
    assert seen == ["interrupted", "finally"]
    event.set()
    assert shared.wait(soon())


def test_an_operation_in_the_keeper_is_refused(tasks: Tasks, loop: Loop) -> None:
    def steps() -> Steps[None]:
        tasks.drive(waiting(Event(loop)), soon())
        yield 0.0

    with pytest.raises(RuntimeError, match="must not wait"):
        tasks.spawn(steps(), "drives").wait(soon())


# ---- what blocks ----------------------------------------------------------------------------------------------------------------


def test_a_job_that_hangs_holds_up_no_other(tasks: Tasks, loop: Loop) -> None:
    go = threading.Event()
    hangs = tasks.offload(go.wait, 20)

    def steps() -> Steps[str]:
        event = tasks.offload(threading.current_thread)
        yield event
        failing = tasks.offload(int, "x")
        yield failing
        assert isinstance(failing.error, ValueError)
        return str(event.value.name)

    assert tasks.spawn(steps(), "offloads").wait(soon()) == "wireproto-offload"
    assert not hangs.done
    go.set()
    assert hangs.wait(soon()) is True
    with pytest.raises(ValueError, match="invalid literal"):
        tasks.offload(int, "x").wait(soon())


def test_a_thread_serves_one_job_after_the_other_and_ends_when_idle(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    workers = offload_module.Workers()
    monkeypatch.setattr(offload_module, "_workers", workers)
    monkeypatch.setattr(offload_module, "IDLE", 0.3)

    def idle() -> bool:
        end = soon()
        while not workers._idle and time.monotonic() < end:
            os.sched_yield()
        return bool(workers._idle)

    threads = set()
    for _ in range(5):
        threads.add(offload_module.offload(loop, threading.current_thread).wait(soon()))
        assert idle()
    assert len(threads) == 1
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    assert workers._idle == []
    assert offload_module.offload(loop, threading.current_thread).wait(soon()) not in threads
