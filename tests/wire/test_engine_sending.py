"""What the engine sends: how much it keeps for a peer that does not read, in which order, how soon, and whom it wakes for that."""

from __future__ import annotations

import gc
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from patience import soon
from task_steps import CAP, ask
from wireproto._net import Connection, Event, Loop, Mailbox
from wireproto.errors import BufferFull, FrameTooLarge, TimedOut

UNSENT = 8 << 20
"""Bytes that a connection keeps unsent before a sender must wait."""


@pytest.fixture
def ends(loop: Loop) -> Iterator[tuple[Connection, socket.socket]]:
    """A connection, and its other end in this process: what the kernel takes of it changes only when this end is read."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(20.0)
    with theirs:
        yield loop.open(ours, "peer", "zookeeper", CAP), theirs


def received(theirs: socket.socket, count: int) -> bytes:
    """So many bytes."""
    found = bytearray()
    while len(found) < count:
        more = theirs.recv(count - len(found))
        assert more
        found += more
    return bytes(found)


def fill(conn: Connection) -> int:
    """Send until exactly UNSENT bytes are left unsent; how many were sent in all."""
    sent = 0
    while not conn.unsent:  # until it is more than the kernel takes
        conn.send(bytes(1 << 20))
        sent += 4 + (1 << 20)
    size = UNSENT - conn.unsent - 4
    conn.send(bytes(size))
    assert conn.unsent == UNSENT
    return sent + 4 + size


def test_just_as_much_as_may_be_unsent_is_no_reason_to_refuse(ends: tuple[Connection, socket.socket]) -> None:
    conn, _ = ends
    fill(conn)
    conn.send(b"one more")
    assert conn.unsent == UNSENT + 12
    with pytest.raises(BufferFull):
        conn.send(b"x")
    assert conn.unsent == UNSENT + 12


def test_who_may_wait_for_room_waits_and_goes_on_when_the_peer_has_read(ends: tuple[Connection, socket.socket]) -> None:
    conn, theirs = ends
    sent = fill(conn)
    with pytest.raises(TimedOut, match="no reply in time"):
        conn.ask(1, b"", time.monotonic())
    assert conn.unsent == UNSENT + 12, "what is asked goes the short way, too"
    assert conn.ask(1, b"", soon()) is None, "beyond it nothing is sent"
    with pytest.raises(TimedOut, match="does not read"):
        conn.send(b"x", timeout_at=time.monotonic())
    assert conn.unsent == UNSENT + 12
    reader = threading.Thread(target=received, args=(theirs, sent + 12))
    reader.start()
    conn.send(b"last", timeout_at=soon())
    reader.join(20)
    assert received(theirs, 8) == struct.pack(">i", 4) + b"last"


def test_big_frames_of_several_threads_do_not_mix(conn: Connection) -> None:
    wrong: list[object] = []

    def work(name: int) -> None:
        payload = b"%d" % name * 300_000
        try:
            wrong.extend(name for _ in range(20) if ask(conn, b"e", payload) != payload)
        except Exception as why:
            wrong.append(why)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


def test_what_one_thread_sends_leaves_while_another_reads(ends: tuple[Connection, socket.socket]) -> None:
    """That one is in poll, for long, and the I/O thread sleeps as long as somebody reads."""
    conn, theirs = ends
    first = conn.post(0, b"")
    reader = threading.Thread(target=first.wait, args=(soon(60.0),))
    reader.start()
    for number in range(20):
        if number:
            conn.post(number, b"")
        assert received(theirs, 12) == struct.pack(">iii", 8, number + 1, number)
    assert reader.is_alive()
    theirs.close()
    reader.join(20)


def test_what_is_sent_while_nobody_reads_leaves_soon() -> None:
    took: list[float] = []
    for number in range(12):
        loop = Loop(f"soon {number}")
        ours, theirs = socket.socketpair()
        with theirs:
            theirs.settimeout(20.0)
            conn = loop.open(ours, "peer", "zookeeper", CAP)
            conn.post(0, b"")  # what stands behind it is collected, for whoever reads or waits next
            received(theirs, 12)
            assert not Event(loop).ready_by(time.monotonic())  # somebody has just read: the I/O thread looks whether he comes again
            begin = time.monotonic()
            conn.post(0, b"")
            received(theirs, 12)
            took.append(time.monotonic() - begin)
        loop.close()
    assert min(took) < 0.03


def test_nobody_is_woken_who_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next to read would begin by coming back from poll for nothing."""
    pipes: list[tuple[int, int]] = []
    real = os.pipe
    with monkeypatch.context() as patched:
        patched.setattr(os, "pipe", lambda: pipes.append(real()) or pipes[-1])
        loop = Loop("quiet")
    ours, theirs = socket.socketpair()
    busy, go_on = threading.Event(), threading.Event()
    loop.call_soon(lambda: (busy.set(), go_on.wait(20)))
    try:
        assert busy.wait(20), "the I/O thread is at something else, and does not read"
        conn = loop.open(ours, "peer", "zookeeper", CAP)
        assert not Event(loop).ready_by(time.monotonic())
        for number in range(3):
            conn.post(number, b"")
        assert not select.select([pipes[0][0]], [], [], 0.0)[0]
    finally:
        go_on.set()
        loop.close()
        theirs.close()


def test_a_closed_loop_has_no_descriptors_left_to_close(loop: Loop) -> None:
    """Others have their numbers by then."""
    closed = Loop("closed")
    closed.close()
    others = [os.pipe() for _ in range(4)]
    del closed
    gc.collect()
    for fds in others:
        for fd in fds:
            os.fstat(fd)
            os.close(fd)


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_lines_come_whole_in_whatever_pieces(loop: Loop, size: int) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        conn = loop.open(ours, "peer", "lines", 5000)
        box = Mailbox(loop)
        for number in range(1, 4):
            conn.submit(number, b"ask %d" % number, box)
        assert received(theirs, 18) == b"ask 1\nask 2\nask 3\n"
        wanted = [b"", b"answer", b"x" * 5000]
        text = b"".join(line + b"\n" for line in wanted)
        for start in range(0, len(text), size):
            theirs.sendall(text[start : start + size])
        assert [box.get(soon()).frame for _ in wanted] == wanted
        last = conn.submit(4, b"ask 4")
        theirs.sendall(b"x" * 5001 + b"\n")
        with pytest.raises(FrameTooLarge):
            last.result(soon())
