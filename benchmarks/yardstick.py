"""A fixed piece of work, beside which CPU time is measured: what slows the machine down moves both.

It has something of each that a client does: interpreted Python, copies of memory, system calls on a socket. It is no contender and must
not change: every CPU figure in figures.txt would lose its meaning.
"""

from __future__ import annotations

import hashlib
import socket
import time

REFERENCE_MS = 7.5  # CPU that it took on the machine of the first figures, calm: a figure reads as microseconds there
_BLOCK = bytes(range(256)) * 4096  # 1 MiB


def work() -> None:
    """Once: a third each of interpreter, memory and system calls."""
    table: dict[int, int] = {}
    for number in range(24_000):
        table[number & 1023] = table.get(number & 1023, 0) + (number ^ 5)
    digest = hashlib.sha1(usedforsecurity=False)
    for _ in range(2):
        digest.update(bytearray(_BLOCK))
    for _ in range(4):
        b"".join([_BLOCK[:65536]] * 16)
    left, right = socket.socketpair()
    with left, right:
        for _ in range(1500):
            left.send(b"x" * 100)
            right.recv(4096)


def milliseconds() -> float:
    """CPU that the work takes now, of this thread: a peer's threads may still be busy beside it."""
    began = time.thread_time()
    work()
    return (time.thread_time() - began) * 1e3
