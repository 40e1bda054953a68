"""What breaks clients: signals, forks, closes at bad moments, peers that do not read, interpreter exit, races with time-outs."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import certificates
from net_server import running
from patience import KEPT, soon, until
from task_steps import CAP, connect
from wireproto._net import Connection, Loop, Mailbox
from wireproto.errors import BufferFull, Closed, Disconnected, Forked, TimedOut
from wireproto.net.dial import dial
from wireproto.net.tls import TlsOptions


def ask(conn: Connection, verb: bytes, payload: bytes = b"", timeout: float = 20.0) -> bytes:
    token = conn.next_token()
    return conn.call(token, [struct.pack(">i", token), verb, payload], soon(timeout))[4:]


class Alarm(Exception):
    """Raised by the signal handler."""


def storm(conn: Connection, seconds: float, rings: int, calls: int) -> list[object]:
    """Call from three threads and from this one while a signal handler raises in it; what went wrong.

    It lasts for so many seconds, and until there were more than so many interrupts and calls of each thread.
    """
    wrong: list[object] = []
    counts = [0, 0, 0, 0]
    over = threading.Event()

    def check(name: int) -> None:
        payload = b"%d.%d" % (name, counts[name])
        if ask(conn, b"e", payload) != payload:
            wrong.append(payload)
        counts[name] += 1

    def work(name: int) -> None:
        try:
            while not over.is_set():
                check(name)
        except Exception as error:
            wrong.append(error)

    armed = [False]

    def ring(number: int, frame: object) -> None:
        if armed[0]:
            armed[0] = False  # once for each time that we are ready to catch it
            raise Alarm

    def enough() -> bool:
        return time.monotonic() >= end and ((interrupts > rings and min(counts) > calls) or time.monotonic() >= end + 60)

    def call_until_rung() -> None:  # its own function: CPython leaves a loop's jump out of the try block around it
        armed[0] = True
        while not enough():
            check(0)
        armed[0] = False

    threads = [threading.Thread(target=work, args=(n,)) for n in (1, 2, 3)]
    for thread in threads:
        thread.start()
    interrupts = 0
    end = time.monotonic() + seconds
    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.0007, 0.0007)
    try:
        while not enough():
            try:
                call_until_rung()
            except Alarm:
                interrupts += 1
    finally:
        armed[0] = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        over.set()
    for thread in threads:
        thread.join(10)
    with contextlib.suppress(Alarm):  # one that rang inside OpenSSL during the last call: the next one tells it
        check(0)
    if not (interrupts > rings and min(counts) > calls):
        wrong.append(f"{interrupts} interrupts; calls of each thread: {counts}")
    if any(thread.is_alive() for thread in threads):
        wrong.append("a thread is stuck")
    return wrong


@pytest.mark.no_rerun
def test_a_storm_of_signals_loses_nothing(loop: Loop, port: int) -> None:
    conn = connect(loop, port)
    assert storm(conn, 3.0, rings=300, calls=100) == []
    assert conn.pending == 0
    assert ask(conn, b"e", b"after") == b"after"


def test_a_storm_of_signals_over_tls_loses_nothing(loop: Loop, tmp_path: Path) -> None:
    certs = certificates.make(tmp_path)
    with running(certs.server, certs.server_key) as port:
        stream = dial(("localhost", port), soon(), tls=TlsOptions(ca_file=certs.ca))
        conn = loop.open(stream, "localhost", "kafka", CAP)
        assert storm(conn, 2.0, rings=100, calls=30) == []
        assert ask(conn, b"e", b"after") == b"after"


def in_child(work: Callable[[], bool]) -> bool:
    """Whether `work` returned true in a forked child."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if work() else 1
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


def test_a_forked_child_is_refused_and_the_parent_goes_on(loop: Loop, port: int) -> None:
    conn = connect(loop, port)
    wrong: list[object] = []
    over = threading.Event()

    def work(name: int) -> None:
        try:
            i = 0
            while not over.is_set():
                i += 1
                payload = b"%d.%d" % (name, i)
                if ask(conn, b"e", payload) != payload:
                    wrong.append(payload)
        except Exception as error:
            wrong.append(error)

    def child() -> bool:
        for use in (lambda: ask(conn, b"e"), loop.check, lambda: conn.send(b"x"), lambda: Mailbox(loop).get(soon())):
            try:
                use()
                return False
            except Forked:
                pass
        fresh = Loop("child")
        own = connect(fresh, port)
        fine = ask(own, b"e", b"own") == b"own"
        fresh.close()
        loop.close()
        return fine

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    try:
        assert all(in_child(child) for _ in range(10))
    finally:
        over.set()
        for thread in threads:
            thread.join(10)
    assert wrong == []
    assert ask(conn, b"e", b"still here") == b"still here"


def send_for_ever(conn: Connection, timeout_at: float) -> None:
    while True:
        conn.send(bytes(1 << 20), timeout_at=timeout_at)


def test_a_server_that_never_reads_neither_hangs_nor_deadlocks(loop: Loop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        conn = connect(loop, server.getsockname()[1])
        peer, _ = server.accept()
        begin = time.monotonic()
        with pytest.raises(TimedOut, match="does not read"):
            send_for_ever(conn, begin + 0.5)
        assert 0.5 <= time.monotonic() - begin < 0.5 + KEPT
        with pytest.raises(BufferFull):
            conn.send(b"x")
        with pytest.raises(BufferFull):  # whoever is told by a mailbox does not wait
            conn.submit(conn.next_token(), b"x", Mailbox(loop), time.monotonic() + 60.0)
        assert conn.unsent > 1 << 20
        peer.close()
        with pytest.raises(Disconnected):
            ask(conn, b"e")


def test_a_blocked_sender_reads_so_that_both_sides_go_on(loop: Loop, port: int) -> None:
    """The server stops reading while its own answers are not read: only a sender that reads gets both going again."""
    conn = connect(loop, port)
    calls = []
    for _ in range(60):
        token = conn.next_token()
        calls.append(conn.submit(token, [struct.pack(">i", token), b"e", bytes(1 << 20)], timeout_at=soon(60)))
    assert [len(call.result(soon(60))) for call in calls] == [4 + (1 << 20)] * 60


def test_a_full_mailbox_stops_the_reading_of_its_connection(loop: Loop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        conn = loop.open(socket.create_connection(server.getsockname()), "peer", "zookeeper", CAP)
        peer, _ = server.accept()
        box = Mailbox(loop, limit=300_000)
        conn.route(-1, box)
        frame = struct.pack(">ii", 100_000, -1) + bytes(99_996)
        peer.setblocking(False)
        sent = 0
        push = memoryview(frame * 400)
        quiet = 0
        while quiet < 20 and sent < len(push):
            try:
                sent += peer.send(push[sent:])
                quiet = 0
            except BlockingIOError:
                quiet += 1
                threading.Event().wait(0.01)
        assert sent < len(push), "the peer was never held back"
        assert box.unread < 300_000 + 2 * 100_200
        peer.setblocking(True)
        rest = threading.Thread(target=peer.sendall, args=(push[sent:],))
        rest.start()
        for _ in range(400):
            push_item = box.get(soon())
            assert push_item is not None
            assert len(push_item.frame) == 100_000
        rest.join(20)
        peer.close()


def test_fetch_memory_bounds_all_mailboxes_but_not_awaited_replies(port: int) -> None:
    loop = Loop("small", fetch_memory=1 << 20)
    try:
        conn = connect(loop, port)
        box = Mailbox(loop)
        for _ in range(20):
            token = conn.next_token()
            conn.submit(token, struct.pack(">i", token) + b"b" + struct.pack(">I", 500 * 1024), box)
        while loop.unread <= 1 << 20:
            threading.Event().wait(0.005)
        other = connect(loop, port)
        assert ask(other, b"e", b"other connection") == b"other connection"
        assert loop.unread < 4 << 20
        assert ask(conn, b"e", b"same connection") == b"same connection"
        assert len([box.get(soon()) for _ in range(20)]) == 20
        assert loop.unread == 0
    finally:
        loop.close()


def test_who_has_taken_all_is_read_on_whatever_lies_with_others(port: int) -> None:
    """Else two roles of which one waits for the other would both wait for ever."""
    loop = Loop("small", fetch_memory=1 << 20)
    try:
        other, ours = (connect(loop, port), Mailbox(loop)), (connect(loop, port), Mailbox(loop))
        for conn, box in (other, ours):
            for _ in range(20):
                token = conn.next_token()
                conn.submit(token, struct.pack(">i", token) + b"b" + struct.pack(">I", 200 * 1024), box)
            until(lambda: conn.held_back, "there is no room for more")  # noqa: B023
        left = len(other[1])
        assert left > 5
        assert len(ours[1]) < 20
        assert all(ours[1].get(soon()) is not None for _ in range(20))
        assert other[0].held_back, "its owner has taken nothing"
        assert left == len(other[1])
        assert all(other[1].get(soon()) is not None for _ in range(20))
        assert loop.unread == 0
        assert not other[0].held_back
        assert not ours[0].held_back
    finally:
        loop.close()


def test_a_lying_length_allocates_next_to_nothing(loop: Loop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        conn = loop.open(socket.create_connection(server.getsockname()), "peer", "kafka", (1 << 31) - 1)
        peer, _ = server.accept()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        peer.sendall(struct.pack(">ii", (1 << 31) - 1, 7) + bytes(100_000))
        with pytest.raises(TimedOut):
            ask(conn, b"e", timeout=0.1)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000
        peer.recv(100)
        peer.close()
        with pytest.raises(Disconnected, match="of a frame's 2147483647 bytes"):
            ask(conn, b"e")


def test_time_out_races_leave_nothing_behind(loop: Loop, port: int) -> None:
    """Deadlines that fall exactly when replies come, in several threads."""
    conn = connect(loop, port)
    wrong: list[object] = []
    outcomes = [0, 0]

    def work(seed: int) -> None:
        chance = random.Random(seed)
        try:
            for i in range(60):
                payload = struct.pack(">I", 2) + b"%d.%d" % (seed, i)
                try:
                    patience = 0.005 if i % 4 else 0.1  # enough for some on a loaded machine too
                    if ask(conn, b"d", payload, timeout=chance.uniform(0.0, patience)) != payload:
                        wrong.append(payload)
                    outcomes[0] += 1
                except TimedOut:
                    outcomes[1] += 1
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []
    assert outcomes[0] > 10
    assert outcomes[1] > 10
    assert conn.pending == 0
    assert ask(conn, b"e", b"after") == b"after"


def test_closing_while_threads_call_never_hangs(port: int) -> None:
    for _ in range(20):
        loop = Loop("closing")
        conn = connect(loop, port)
        ended: list[BaseException] = []

        def work(conn: Connection = conn, ended: list[BaseException] = ended) -> None:
            try:
                while True:
                    ask(conn, b"e", b"x")
            except (Closed, Disconnected) as error:
                ended.append(error)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        ask(conn, b"e", b"y")
        loop.close()
        for thread in threads:
            thread.join(20)
        assert len(ended) == 3


EXIT = """
import socket, struct, sys, threading, time
from wireproto._net import Loop, Mailbox
loop = Loop("exit")
conn = loop.open(socket.create_connection(("127.0.0.1", int(sys.argv[1]))), "p", "kafka", 1 << 20)
def call():
    token = conn.next_token()
    return conn.call(token, struct.pack(">i", token) + b"e", time.monotonic() + 20)
def spin():
    while True:
        call()
call()
if sys.argv[2] == "busy":
    for _ in range(2):
        threading.Thread(target=spin, daemon=True).start()
    call()
elif sys.argv[2] == "reading":
    done = threading.Event()
    loop.call_at(time.monotonic() + 0.02, done.set)
    done.wait()
"""


@pytest.mark.parametrize("how", ["plain", "busy", "reading"])
def test_the_interpreter_exits_cleanly_with_an_open_client(port: int, how: str) -> None:
    for _ in range(7):
        done = subprocess.run([sys.executable, "-c", EXIT, str(port), how], capture_output=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, b"")


def pieces(frame: bytes, size: int) -> list[bytes]:
    return [frame[start : start + size] for start in range(0, len(frame), size)]


@pytest.mark.parametrize("buffer", [None, 4096])
@pytest.mark.parametrize("piece", [1, 100, 60_000, 1 << 22])
def test_a_big_frame_in_any_pieces_and_small_frames_behind_it(loop: Loop, piece: int, buffer: int | None) -> None:
    """The socket wakes us for many bytes at once while a big frame comes in, and for each one afterwards; its buffer may hold fewer."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        stream = socket.socket()
        if buffer is not None:
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        stream.connect(server.getsockname())
        conn = loop.open(stream, "peer", "kafka", CAP)
        peer, _ = server.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        size = 17_000 if piece == 1 else 400_000 if buffer is not None or piece == 100 else 6_000_000

        def answer(token: int, body: bytes) -> bytes:
            return struct.pack(">ii", 4 + len(body), token) + body

        def work(body: bytes) -> None:
            for token in range(1, 10):
                frame = answer(token, body if token % 3 else b"small")
                for part in pieces(frame, piece):
                    peer.sendall(part)

        body = bytes(range(250)) * (size // 250)
        sender = threading.Thread(target=work, args=(body,))
        calls = [conn.submit(token, [struct.pack(">i", token), b"e"]) for token in range(1, 10)]
        sender.start()
        try:
            found = [call.result(soon(30)) for call in calls]
            assert [frame[4:] == (body if token % 3 else b"small") for token, frame in enumerate(found, 1)] == [True] * 9
        finally:
            peer.close()
            sender.join()


def test_the_end_of_a_big_frame_does_not_wait_for_more(loop: Loop) -> None:
    """Nor does its middle, when the rest comes late: what is there is taken, and a time-out holds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        conn = loop.open(socket.create_connection(server.getsockname()), "peer", "kafka", CAP)
        peer, _ = server.accept()
        body = bytes(300_000)
        call = conn.submit(1, [struct.pack(">i", 1), b"e"])
        frame = struct.pack(">ii", 4 + len(body), 1) + body
        peer.sendall(frame[:250_001])
        began = time.monotonic()
        with pytest.raises(TimedOut):
            call.result(soon(0.15))
        assert 0.14 < time.monotonic() - began < KEPT
        again = conn.submit(2, [struct.pack(">i", 2), b"e"])
        peer.sendall(frame[250_001:] + struct.pack(">ii", 5, 2) + b"x")
        assert again.result(soon())[4:] == b"x"
        peer.close()
