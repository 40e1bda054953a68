"""What the engine costs: CPU of this process per call, against the least that poll, send and recv themselves take.

    python benchmarks/engine.py [calls]

One connection on the loopback, frames of 69 bytes, an echo server in another process. CPU counts user and system time of this process only,
so it holds on a busy machine where wall time does not.
"""

from __future__ import annotations

import resource
import select
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from wireproto._net import Connection, Loop, Mailbox

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
PAYLOAD = b"x" * 61


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def switches() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


def measure(name: str, count: int, work: Callable[[], object]) -> None:
    work()
    rounds = []
    before = switches()
    for _ in range(5):
        start, wall = cpu(), time.perf_counter()
        work()
        rounds.append(((cpu() - start) / count * 1e6, (time.perf_counter() - wall) / count * 1e6))
    away = (switches() - before) / (5 * count)
    used = sorted(r[0] for r in rounds)
    print(f"{name:46s} {used[0]:7.2f} {statistics.median(used):7.2f} {min(r[1] for r in rounds):8.2f} {away:6.2f}")


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


def main() -> None:
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    server = subprocess.Popen([sys.executable, "-c", ECHO], stdout=subprocess.PIPE)
    assert server.stdout is not None
    try:
        port = int(server.stdout.readline())
        loop = Loop("bench")
        conn = loop.open(connect(port), "bench", "kafka", 64 << 20)
        raw = connect(port)
        print(f"{'us per call':46s} {'CPU':>7s} {'median':>7s} {'wall':>8s} {'vcsw':>6s}")
        measure("floor: send, poll, recv in Python", calls, lambda: floor(raw, calls))
        measure("sync call, 1 thread", calls, lambda: sync(conn, calls))
        measure("sync call, 4 threads on one connection", calls, lambda: threads(conn, calls, 4))
        measure("1000 pipelined, result() of each", calls, lambda: pipelined(conn, calls, 1000))
        measure("1000 pipelined into a mailbox", calls, lambda: into_mailbox(loop, conn, calls, 1000))
        measure("1 MB there and back", 50, lambda: big(conn, 50, 1 << 20))
        loop.close()
    finally:
        server.kill()
        server.wait()


if __name__ == "__main__":
    main()
