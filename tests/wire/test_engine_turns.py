"""The engine's turns: how soon what comes is seen, whom it wakes, and what is left behind of connections and tasks that end."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import socket
import struct
import sys
import threading
import time
from pathlib import Path

import pytest

from patience import soon, until
from task_steps import CAP, ask, connect
from wireproto._net import WATCHES, Call, Connection, Descriptors, Loop, Mailbox, Runnable
from wireproto.errors import Disconnected

IO_NAP = 0.005
"""Seconds that the I/O thread leaves to a thread that has just read, to come again."""


def test_the_io_thread_reads_at_once_what_a_handler_waits_for_when_a_thread_has_read(loop: Loop, port: int) -> None:
    """It does not look first whether that thread comes back: of the handler's request nobody else would think."""
    conn = connect(loop, port)
    prompt = 0
    for _ in range(400):
        told = threading.Event()

        def tell(call: Call, told: threading.Event = told) -> None:
            if call.context == "last":
                told.set()

        box = Mailbox(loop, tell)
        begin = time.monotonic()
        for verb, context in ((b"q", "first"), (b"a", "last")):
            token = conn.next_token()
            conn.submit(token, struct.pack(">i", token) + verb, box, context=context)
            if context == "first":
                assert ask(conn, b"e", b"mine") == b"mine"  # whoever read this, gives the role away with it
        conn.flush()
        assert told.wait(20)
        prompt += time.monotonic() - begin < IO_NAP  # it lay down after `begin`: where it sleeps first, never
        if prompt == 5:
            break
    assert prompt == 5


def test_a_trickle_of_a_big_frame_is_seen_soon(loop: Loop) -> None:
    """The kernel is told to wake us for much at once, and `last_read` tells all the same that the peer is there."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        conn = loop.open(socket.create_connection(server.getsockname()), "peer", "kafka", CAP)
        peer, _ = server.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        body = bytes(400_000)
        call = conn.submit(1, [struct.pack(">i", 1), b"e"])
        reader = threading.Thread(target=call.wait, args=(soon(60.0),))
        reader.start()
        frame = memoryview(struct.pack(">ii", 4 + len(body), 1) + body)
        at = 100_000
        took: list[float] = []

        def seen_after(data: memoryview) -> float:
            begin = time.monotonic()
            peer.sendall(data)
            until(lambda: conn.last_read > begin)
            return conn.last_read - begin

        seen_after(frame[:at])
        while len(took) < 4 or (min(took[3:]) > 0.1 and len(took) < 20):  # the first may see what is left of the beginning
            took.append(seen_after(frame[at : at + 1000]))
            at += 1000
        assert min(took[3:]) < 0.1
        peer.sendall(frame[at:])
        assert len(call.result(soon())) == 4 + len(body)
        reader.join(20)
        peer.close()


class Counted:
    """A loop whose wake-ups are counted on their way: they take one of two pipes, and a thread carries them to the other."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        heard, self._tell = os.pipe()
        self._come, woken = os.pipe()
        self.wakes = 0
        with monkeypatch.context() as patched:
            patched.setattr(os, "pipe", lambda: (heard, woken))
            self.loop = Loop("counted")
        self._carrier = threading.Thread(target=self._carry)
        self._carrier.start()

    def _carry(self) -> None:
        while os.read(self._come, 1):
            self.wakes += 1
            with contextlib.suppress(BrokenPipeError):  # it is closed
                os.write(self._tell, b"!")

    def close(self) -> None:
        self.loop.close()
        self._carrier.join(20)
        os.close(self._come)
        os.close(self._tell)


def test_who_waits_beside_a_reader_wakes_it_for_nothing(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    """Their requests go out by themselves, and their replies find them: the reader's poll is left alone."""
    counted = Counted(monkeypatch)
    try:
        first, second = (connect(counted.loop, port) for _ in range(2))
        slow = first.submit(1, struct.pack(">i", 1) + b"n")
        reader = threading.Thread(target=slow.wait, args=(soon(60.0),))
        reader.start()
        for number in range(100):
            assert ask(second, b"e", b"%d" % number) == b"%d" % number
        assert counted.wakes < 20, "the connections are made known to it, little else"
        first.close()
        reader.join(20)
    finally:
        counted.close()


def test_the_first_bytes_of_a_connection_stay_the_first(conn: Connection) -> None:
    assert conn.first_bytes == b""
    for payload in (b"one", b"two", b"three"):
        assert ask(conn, b"e", payload) == payload
    assert conn.first_bytes == struct.pack(">ii", 7, 1) + b"one"


def test_nothing_was_found_before_something_is(loop: Loop) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        watched = Descriptors(loop, [ours.fileno()])
        assert (watched.found, watched.done) == (-1, False)
        theirs.sendall(b"x")
        assert watched.ready_by(soon())
        assert watched.found == ours.fileno()


@pytest.mark.parametrize("bound", ["fetch_memory", "limit"])
def test_reading_stops_above_the_bound_and_goes_on_at_half_of_it(bound: str) -> None:
    """An item weighs 128 bytes more than its frame: 1000 here."""
    loop = Loop("small", **({"fetch_memory": 4000} if bound == "fetch_memory" else {}))
    ours, theirs = socket.socketpair()
    with theirs:
        conn = loop.open(ours, "peer", "zookeeper", CAP)
        box = Mailbox(loop, limit=4000 if bound == "limit" else None)
        conn.route(WATCHES, box)

        def come(count: int, there: int) -> None:
            theirs.sendall((struct.pack(">ii", 872, -1) + bytes(868)) * count)
            until(lambda: len(box) == there)

        come(4, there=4)
        held = [conn.held_back]
        for _ in range(2):
            come(1, there=5)
            held += [conn.held_back, *(box.get() is not None and conn.held_back for _ in range(3))]
            come(2, there=4)
        assert held == [False] + [True, True, True, False] * 2
        assert loop.unread == 4000
        loop.close()


# ---- what is left behind ----------------------------------------------------------------------------------------------------------


def wait_closed(fd: int) -> None:
    """Until there is no such descriptor any more."""

    def is_closed() -> bool:
        try:
            os.fstat(fd)
        except OSError:
            return True
        return False

    until(is_closed, limit=20)


def test_a_connection_closed_while_a_thread_sends_leaves_no_descriptor(loop: Loop) -> None:
    """Whoever comes last closes it: it may be in use until then."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    frame = bytes(4 << 20)
    try:
        for _ in range(60):
            ours, theirs = socket.socketpair()
            fd = ours.fileno()
            conn = loop.open(ours, "peer", "zookeeper", CAP)
            begun: list[int] = []

            def send(conn: Connection = conn, begun: list[int] = begun) -> None:
                begun.append(1)
                with contextlib.suppress(Disconnected):  # the close was quicker
                    conn.send(frame)

            sender = threading.Thread(target=send)
            sender.start()
            while not begun:
                pass
            conn.close()
            sender.join(20)
            wait_closed(fd)
            theirs.close()
    finally:
        sys.setswitchinterval(interval)


def resident() -> int:
    """KiB of memory that this process has, or had at most where the system tells no more."""
    if Path("/proc/self/statm").exists():
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def leave_unsent(times: int) -> None:
    """So many connections that end with much in their queues."""
    part = bytes(4096)
    for _ in range(times):
        loop = Loop("left")
        ours, theirs = socket.socketpair()
        conn = loop.open(ours, "peer", "zookeeper", CAP)
        while not conn.unsent:  # until it is more than the kernel takes
            conn.send(bytes(1 << 20))
        for _ in range(30):
            conn.send([part, b"small"] * 30)
        assert conn.unsent
        loop.close()
        theirs.close()


def test_what_was_never_sent_is_given_back() -> None:
    leave_unsent(20)
    gc.collect()
    before = resident()
    leave_unsent(60)
    gc.collect()
    assert resident() - before < 4 << 10  # one of them had more


class Slow(Runnable):
    """Takes its time to stop."""

    def __init__(self, loop: Loop, stopped: list[Runnable]) -> None:
        super().__init__(loop)
        self.stopped = stopped

    def stop(self, error: BaseException) -> None:
        self.stopped.append(self)
        threading.Event().wait(0.6)


def test_a_close_waits_a_second_for_tasks_that_take_their_time_to_end_and_drops_the_rest() -> None:
    loop = Loop("slow")
    loop.adopt(lambda: None)
    stopped: list[Runnable] = []
    for _ in range(4):
        Slow(loop, stopped).attend()
    loop.close()
    assert len(stopped) in (1, 2), "none is begun later than a second after the first"
