"""Free TCP ports that stay ours: across a broker's restart, and against parallel sessions on the same machine.

A port taken by binding 0 may be given to any outgoing connection the moment it is released, and a client that dials it while the
broker is down can even connect to itself. So ports are taken below the kernel's ephemeral range, each held by a lock on a file
(released by the kernel when this process ends, however it ends), and checked by binding.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

_LOW = 11000
_held: dict[int, int] = {}  # port -> descriptor of its locked file


def _high() -> int:
    try:
        low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        low = 32768
    return min(max(low, _LOW + 2000), 32768)


def _folder() -> Path:
    """The user's own: what one user made, another cannot write to. Against other users' sessions the check by binding does."""
    folder = Path(tempfile.gettempdir()) / f"wireproto-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _take(port: int) -> bool:
    if port in _held:
        return False
    try:
        fd = os.open(_folder() / str(port), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for host in ("127.0.0.1", "0.0.0.0"):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, port))
    except OSError:
        os.close(fd)
        return False
    _held[port] = fd
    return True


def release(*ports: int) -> None:
    """Give ports back that `take` or `take_block` returned."""
    for port in ports:
        fd = _held.pop(port, None)
        if fd is not None:
            os.close(fd)


def take() -> int:
    """One free port, held until `release` or the end of the process."""
    return take_block(1)[0]


def take_block(count: int) -> list[int]:
    """`count` free ports in a row, for servers that derive one port from another."""
    high = _high()
    for _ in range(2000):
        first = random.randrange(_LOW, high - count)
        taken: list[int] = []
        for port in range(first, first + count):
            if not _take(port):
                break
            taken.append(port)
        if len(taken) == count:
            return taken
        release(*taken)
    raise OSError(f"no {count} free ports in a row between {_LOW} and {high}")
