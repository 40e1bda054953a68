"""The engine under asyncio: what could lose a wake-up, spin, hang, or leave something behind."""

from __future__ import annotations

import asyncio
import gc
import os
import select
import socket
import struct
import sys
import threading
import time
import weakref
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import certificates
from net_server import running
from patience import KEPT
from task_steps import CAP, asking, begin, connect, soon, waiting
from wireproto._net import Call, Connection, Event, Loop, Mailbox
from wireproto.aio.host import Host
from wireproto.errors import Closed, Disconnected, Forked, UsageError
from wireproto.net.dial import Progress, dialling
from wireproto.net.task import Steps, Tasks, after, offloaded, reply
from wireproto.net.tls import Contexts, TlsOptions

MIB = 1 << 20


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with running() as port:
        yield port


class Engine:
    """A loop under asyncio, and a connection of it to the scripted peer."""

    def __init__(self, port: int) -> None:
        self.loop = Loop("adopted")
        self.runs = 0
        self.host = Host(self.loop)
        self.conn = connect(self.loop, port)

    def call(self, verb: bytes, payload: bytes = b"", mailbox: Mailbox | None = None) -> Call:
        token = self.conn.next_token()
        return self.conn.submit(token, [struct.pack(">i", token), verb, payload], mailbox)


def descriptors() -> int:
    """How many this process has open."""
    return sum(1 for _ in Path("/dev/fd").iterdir())


def under_asyncio(port: int, body: Callable[[Engine], Awaitable[Any]], seconds: float = 30.0) -> Any:
    """Run a test's body in an event loop of its own, and close the engine behind it."""

    async def main() -> Any:
        engine = Engine(port)
        try:
            return await asyncio.wait_for(body(engine), seconds)
        finally:
            engine.host.close()

    return asyncio.run(main())


def test_operations_and_tasks_run_in_asyncios_thread_alone(port: int) -> None:
    before = set(threading.enumerate())

    async def body(engine: Engine) -> Any:
        ran: list[int] = []
        tasks = Tasks(engine.loop)
        task = tasks.spawn(asking(engine.conn, b"task", 5), "a task")
        after(task, lambda: ran.append(threading.get_ident()))
        together = await asyncio.gather(*(engine.host.drive(asking(engine.conn, b"%d:" % n, 20)) for n in range(100)))
        assert await engine.host.drive(waiting(task)) is True
        assert task.result() == 5
        assert ran == [threading.get_ident()]
        return together, set(threading.enumerate()) - before

    assert under_asyncio(port, body) == ([20] * 100, set())


def test_a_synchronous_wait_raises_in_any_thread_and_names_the_remedy(port: int) -> None:
    async def body(engine: Engine) -> None:
        wrong: list[BaseException] = []

        def wait() -> None:
            try:
                Event(engine.loop).wait(soon())
            except UsageError as why:
                wrong.append(why)

        wait()
        await asyncio.to_thread(wait)
        assert len(wrong) == 2
        assert "await it by wireproto.aio" in str(wrong[0])
        with pytest.raises(UsageError, match=r"wireproto\.aio"):
            engine.conn.call(1 << 20, [struct.pack(">i", 1 << 20), b"e"], soon())
        assert Event(engine.loop).ready_by(0.0) is False, "a look that does not wait is allowed"

    under_asyncio(port, body)


def test_a_loop_in_use_is_not_adopted(port: int) -> None:
    async def body() -> None:
        loop = Loop("in use")
        connect(loop, port)
        with pytest.raises(UsageError, match="before it is used"):
            Host(loop)
        loop.close()
        with pytest.raises(Closed):
            Host(loop)

    asyncio.run(body())


def test_what_is_ready_before_it_is_waited_for_resumes_at_once(port: int) -> None:
    async def body(engine: Engine) -> bool:
        event = Event(engine.loop)

        def steps() -> Steps[bool]:
            event.set()
            return (yield event, soon())

        return await engine.host.drive(steps())

    assert under_asyncio(port, body) is True


def test_no_wake_up_of_another_thread_is_lost_however_often_threads_switch(port: int) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    async def body(engine: Engine) -> list[bool]:
        events = [Event(engine.loop) for _ in range(2000)]
        threads = [threading.Thread(target=lambda part: [event.set() for event in part], args=(events[n::4],)) for n in range(4)]
        for thread in threads:
            thread.start()
        answers = [await engine.host.drive(waiting(event)) for event in events]
        for thread in threads:
            thread.join(20)
        return answers

    try:
        assert under_asyncio(port, body) == [True] * 2000
    finally:
        sys.setswitchinterval(interval)


def test_work_of_another_thread_brings_its_result(port: int) -> None:
    async def body(engine: Engine) -> int:
        return await engine.host.drive(offloaded(engine.loop, soon(), lambda: 7))

    assert under_asyncio(port, body) == 7


def test_times_are_kept_in_order_an_earlier_one_set_last_too(port: int) -> None:
    async def body(engine: Engine) -> list[str]:
        seen: list[str] = []
        over = Event(engine.loop)
        now = time.monotonic()
        engine.loop.call_at(now + 0.2, lambda: (seen.append("late"), over.set()))
        await asyncio.sleep(0)
        engine.loop.call_at(now + 0.1, seen.append, "early")
        engine.loop.call_at(now + 0.15, seen.append, "cancelled").cancel()
        assert await engine.host.drive(waiting((over, soon()))) is True
        assert time.monotonic() >= now + 0.2
        assert await engine.host.drive(waiting((Event(engine.loop), time.monotonic() + 0.05))) is False
        return seen

    assert under_asyncio(port, body) == ["early", "late"]


def test_a_cancelled_operation_runs_its_finally_and_leaves_nothing_behind(port: int) -> None:
    async def body(engine: Engine) -> None:
        ended: list[str] = []

        def steps() -> Steps[bytes]:
            try:
                return (yield from reply(engine.call(b"q"), soon()))
            finally:
                ended.append("finally")

        for _ in range(3):
            work = asyncio.ensure_future(engine.host.drive(steps()))
            while not engine.conn.pending:
                await asyncio.sleep(0)
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
            assert engine.conn.pending == 0, "its call is given up"
        gone = weakref.ref(work)
        del work
        while gone() is not None:  # until the next run of the engine
            await asyncio.sleep(0)
            gc.collect()
        assert ended == ["finally"] * 3
        # the answers to what was given up come first, and are dropped
        assert await engine.host.drive(reply(engine.call(b"a", b"last"), soon())) is not None
        assert await engine.host.drive(asking(engine.conn, b"again", 3)) == 3

    under_asyncio(port, body)


def test_an_operation_may_do_something_else_when_it_is_cancelled(port: int) -> None:
    async def body(engine: Engine) -> Any:
        def steps() -> Steps[str]:
            try:
                yield Event(engine.loop)
            except asyncio.CancelledError:
                return f"asked {yield from asking(engine.conn, b'x', 2)} times more"
            return "never"

        work = asyncio.ensure_future(engine.host.drive(steps()))
        await asyncio.sleep(0)
        work.cancel()
        return await work

    assert under_asyncio(port, body) == "asked 2 times more"


def test_close_ends_what_waits_and_closes_every_descriptor(port: int) -> None:
    before = descriptors()

    async def main() -> None:
        engine = Engine(port)
        tasks = Tasks(engine.loop)
        task = tasks.spawn(waiting(Event(engine.loop)), "for ever")
        operations: list[Steps[Any]] = [waiting(Event(engine.loop)), reply(engine.call(b"n"), soon())]
        waits = [asyncio.ensure_future(engine.host.drive(steps)) for steps in operations]
        await asyncio.sleep(0.01)
        engine.host.close()
        engine.host.close()
        for wait in waits:
            with pytest.raises((Closed, Disconnected)):
                await wait
        assert isinstance(task.error, Closed)
        with pytest.raises(Closed):
            await engine.host.drive(waiting(Event(engine.loop)))
        with pytest.raises(Closed):
            Event(engine.loop).wait(soon())

    asyncio.run(main())
    gc.collect()
    assert descriptors() <= before


def test_a_lost_connection_is_told_to_who_waits(port: int) -> None:
    async def body(engine: Engine) -> None:
        told: list[BaseException] = []
        engine.conn.on_lost(told.append)
        with pytest.raises(Disconnected):
            await engine.host.drive(reply(engine.call(b"k"), soon()))
        while not told:
            await asyncio.sleep(0)
        assert isinstance(told[0], Disconnected)
        assert engine.loop.connections == []

    under_asyncio(port, body)


def test_a_full_mailbox_stops_reading_without_spinning_and_goes_on_when_emptied(port: int) -> None:
    async def body(engine: Engine) -> None:
        box = Mailbox(engine.loop, limit=2 * MIB)
        other = connect(engine.loop, port)
        for _ in range(16):
            engine.call(b"b", struct.pack(">I", MIB), box)
        while box.unread <= 2 * MIB:
            await asyncio.sleep(0)
        held = len(box)
        ran = 0
        run = engine.loop.run_ready

        async def counted() -> None:
            nonlocal ran
            fd = engine.host._fd
            engine.host.io.remove_reader(fd)

            def readable() -> None:
                nonlocal ran
                ran += 1
                run()

            engine.host.io.add_reader(fd, readable)
            assert await engine.host.drive(asking(other, b"beside", 50)) == 50
            engine.host.io.remove_reader(fd)
            engine.host.io.add_reader(fd, engine.host._run, True)

        await counted()
        assert ran <= 200, "what is held back must not keep the event loop busy"
        assert len(box) <= held + 1
        got = 0
        while got < 16:
            if len(box):
                box.get()
                got += 1
            else:
                assert await engine.host.drive(waiting((box, soon())))

    under_asyncio(port, body)


def test_a_peer_that_does_not_read_for_a_while_gets_everything(port: int) -> None:
    async def body(engine: Engine) -> None:
        engine.call(b"s", struct.pack(">I", 100))
        while not engine.conn.unsent:  # until it is more than the kernel takes
            engine.call(b"n", bytes(MIB))
        assert len(await engine.host.drive(reply(engine.call(b"e", b"last"), soon()))) == 8

    under_asyncio(port, body)


@pytest.mark.parametrize("size", [64 * 1024, 24 * MIB])
def test_frames_of_any_size_come_whole(port: int, size: int) -> None:
    async def body(engine: Engine) -> int:
        return len(await engine.host.drive(reply(engine.call(b"b", struct.pack(">I", size)), soon())))

    assert under_asyncio(port, body) == size + 4


def test_a_forked_child_cannot_use_it_and_the_parent_goes_on(port: int) -> None:
    async def body(engine: Engine) -> int:
        wait = asyncio.ensure_future(engine.host.drive(waiting(Event(engine.loop))))
        await asyncio.sleep(0)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                engine.loop.check()
            except Forked:
                try:
                    engine.loop.adopt(lambda: None)
                except Forked:
                    code = 0
            engine.conn.close()
            gc.collect()
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        wait.cancel()
        return await engine.host.drive(asking(engine.conn, b"parent", 5))

    assert under_asyncio(port, body) == 5


def test_dialling_and_tls_need_no_thread_but_the_one_that_looks_names_up(tmp_path: Path) -> None:
    files = certificates.make(tmp_path)
    options = TlsOptions(ca_file=files.ca)

    async def main(port: int) -> tuple[int, set[str]]:
        loop = Loop("tls")
        host = Host(loop)
        try:
            before = set(threading.enumerate())
            steps = dialling(loop, ("127.0.0.1", port), soon(), Progress(), tls=options, context=Contexts(options).now())
            conn: Connection = loop.open(await host.drive(steps), "peer", "kafka", CAP)
            right = await host.drive(asking(conn, b"over TLS", 20))
            begun = begin(conn, b"b", struct.pack(">I", 8 * MIB))
            assert len(await host.drive(reply(begun, soon()))) == 8 * MIB + 4
            return right, {thread.name for thread in set(threading.enumerate()) - before}
        finally:
            host.close()

    with running(files.server, files.server_key) as port:
        assert asyncio.run(main(port)) == (20, set())


def test_what_a_signal_handler_raises_in_the_schedule_comes_out_of_the_next_run() -> None:
    def schedule() -> None:
        raise KeyboardInterrupt

    loop = Loop("interrupted")
    fd = loop.adopt(schedule)
    try:
        loop.call_soon(lambda: None)
        assert select.select([fd], [], [], 20.0)[0], "the wake pipe says that there is something to do"
        with pytest.raises(KeyboardInterrupt):
            loop.run_ready()
        began = time.monotonic()
        assert loop.run_ready() == float("inf")
        assert time.monotonic() - began < KEPT
    finally:
        loop.close()


def test_a_run_is_asked_for_once_however_much_there_is_to_do() -> None:
    asked: list[int] = []
    ran: list[int] = []
    loop = Loop("asked")
    loop.adopt(lambda: asked.append(1))
    try:
        for number in (1, 2):
            for _ in range(3):
                loop.call_soon(ran.append, number)
            assert asked == [1] * number
            loop.run_ready(False)
            assert ran == [1] * 3 + [2] * 3 * (number - 1)
    finally:
        loop.close()


def test_a_connection_that_ends_with_its_loop_is_told_lost() -> None:
    told: list[BaseException] = []
    ours, theirs = socket.socketpair()
    loop = Loop("closed")
    loop.adopt(lambda: None)
    loop.open(ours, "peer", "kafka", CAP).on_lost(told.append)
    loop.close()
    theirs.close()
    assert [type(why) for why in told] == [Closed]


def is_quiet_behind_a_lost_connection(number: int | None) -> bool:
    """Whether the loop's descriptor, which has this number, says nothing any more once a connection has failed whose socket lives on."""
    ours, theirs = socket.socketpair()
    kept = ours.dup()  # as in a forked child
    loop = Loop("adopted")
    if number is not None:
        os.close(number)
    fd = loop.adopt(lambda: None)
    assert number in (None, fd)
    conn = loop.open(ours, "peer", "kafka", CAP)
    loop.run_ready()
    theirs.close()
    deadline = soon()
    while not conn.closed and time.monotonic() < deadline:
        assert select.select([fd], [], [], 20.0)[0]
        loop.run_ready()
    loop.run_ready()
    quiet = conn.closed and not select.select([fd], [], [], 0.0)[0]
    loop.close()
    kept.close()
    return quiet


def test_a_connection_that_failed_is_watched_no_more_though_its_socket_lives_on() -> None:
    assert is_quiet_behind_a_lost_connection(None)


def test_zero_is_a_descriptor_like_any_other() -> None:
    """A program without standard input has it to give; tried in a child, where no other thread takes it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if is_quiet_behind_a_lost_connection(0) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
