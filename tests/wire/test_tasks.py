"""Tasks and operations: steps that wait without a thread of their own."""

from __future__ import annotations

import os
import signal
import struct
import threading
import time
from typing import Any

import pytest

from patience import KEPT, soon
from task_steps import ask, asking, begin, connect, waiting
from wireproto._net import Connection, Event, Loop, Mailbox
from wireproto.errors import Disconnected, TimedOut
from wireproto.net import offload as offload_module
from wireproto.net.task import Steps, Tasks, after

# ---- what they do ---------------------------------------------------------------------------------------------------------------


def test_a_task_runs_in_the_io_thread_and_brings_its_result(tasks: Tasks, conn: Connection) -> None:
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
    assert set(threads) == {"wireproto-io test"}
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
    assert 0.05 <= time.monotonic() - start < 0.05 + KEPT
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
            signal.setitimer(signal.ITIMER_REAL, 0.05)  # here, so that a late machine is interrupted nowhere else
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
        with pytest.raises(KeyboardInterrupt):
            tasks.drive(steps(), soon())
    finally:
        signal.signal(signal.SIGALRM, before)
    assert seen == ["interrupted", "finally"]
    event.set()
    assert shared.wait(soon())


def test_an_operation_in_the_io_thread_is_refused(tasks: Tasks, loop: Loop) -> None:
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
    monkeypatch.setattr(offload_module, "IDLE", 1.5)

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
