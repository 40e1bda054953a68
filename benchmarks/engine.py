"""What the engine costs: CPU of this process per call, against the least that poll, send and recv themselves take.

One connection on the loopback, frames of 69 bytes, an echo server in another process. CPU counts user and system time of this process only,
so it holds on a busy machine where wall time does not.
"""

from __future__ import annotations

import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from wireproto._net import Connection, Loop, Mailbox

from .harness import Bench

ECHO = """
import socket, threading
def serve(peer):
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = bytearray(1 << 20)
    while n := peer.recv_into(buffer):
        peer.sendall(memoryview(buffer)[:n])
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""
PAYLOAD, LARGE = b"x" * 61, 1 << 20
FLOOR = "floor: send, poll, recv"


def connect(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def floor(sock: socket.socket, calls: int) -> None:
    """The same by hand in Python: send, poll, recv, look at the id."""
    sock.setblocking(False)
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    buffer = bytearray(65536)
    head = struct.Struct(">ii")
    for i in range(calls):
        sock.send(head.pack(65, i) + PAYLOAD)
        poller.poll()
        sock.recv_into(buffer)
        assert head.unpack_from(buffer)[1] == i


def sync(conn: Connection, calls: int) -> None:
    pack = struct.Struct(">i").pack
    deadline = time.monotonic() + 60
    for _ in range(calls):
        token = conn.next_token()
        conn.call(token, pack(token) + PAYLOAD, deadline)


def pipelined(conn: Connection, calls: int, depth: int) -> None:
    pack = struct.Struct(">i").pack
    deadline = time.monotonic() + 60
    for _ in range(calls // depth):
        waiting = []
        for _ in range(depth):
            token = conn.next_token()
            waiting.append(conn.submit(token, pack(token) + PAYLOAD))
        for call in waiting:
            call.result(deadline)


def into_mailbox(loop: Loop, conn: Connection, calls: int, depth: int) -> None:
    pack = struct.Struct(">i").pack
    deadline = time.monotonic() + 60
    box = Mailbox(loop)
    for _ in range(calls // depth):
        for _ in range(depth):
            token = conn.next_token()
            conn.submit(token, pack(token) + PAYLOAD, box)
        for _ in range(depth):
            box.get(deadline)


def threads(conn: Connection, calls: int, count: int) -> None:
    workers = [threading.Thread(target=sync, args=(conn, calls // count)) for _ in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def big(conn: Connection, calls: int, size: int) -> None:
    payload = bytes(size)
    deadline = time.monotonic() + 60
    for _ in range(calls):
        token = conn.next_token()
        conn.call(token, [struct.pack(">i", token), payload], deadline)


def big_floor(sock: socket.socket, calls: int, size: int) -> None:
    """The same by hand."""
    payload, buffer = bytes(size), bytearray(1 << 20)
    sock.setblocking(True)
    for _ in range(calls):
        left = size
        sender = threading.Thread(target=sock.sendall, args=(payload,))  # the echo comes while the rest is sent
        sender.start()
        while left:
            left -= sock.recv_into(buffer)
        sender.join()


def tasks(bench: Bench) -> None:
    """Calls one by one and in other ways, and large ones."""
    calls = 2000 if bench.quick else 10_000
    server = subprocess.Popen([sys.executable, "-c", ECHO], stdout=subprocess.PIPE)
    assert server.stdout is not None
    try:
        port = int(server.stdout.readline())
        loop = Loop("bench")
        conn = loop.open(connect(port), "bench", "kafka", 64 << 20)
        with connect(port) as raw:
            one_by_one = {"wireproto": lambda: sync(conn, calls), FLOOR: lambda: floor(raw, calls)}
            row(bench, "calls of 69 B", calls, one_by_one)
            row(bench, "calls of 69 B, 4 threads, one connection", calls, {"wireproto": lambda: threads(conn, calls, 4)})
            row(bench, "calls of 69 B, 1,000 pipelined, result()", calls, {"wireproto": lambda: pipelined(conn, calls, 1000)})
            row(bench, "calls of 69 B, 1,000 pipelined, mailbox", calls, {"wireproto": lambda: into_mailbox(loop, conn, calls, 1000)})
            large = {"wireproto": lambda: big(conn, 50, LARGE), FLOOR: lambda: big_floor(raw, 50, LARGE)}
            row(bench, "1 MB there and back", 50, large)
        loop.close()
    finally:
        server.kill()
        server.wait()


def row(bench: Bench, task: str, calls: int, jobs: dict[str, Callable[[], object]]) -> None:
    bench.compare(task, calls, jobs, unit="call", ahead=(FLOOR,), measures=("instructions", "cpu"))
