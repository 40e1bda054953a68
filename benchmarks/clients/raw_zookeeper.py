"""The floor of a ZooKeeper call from Python: ready-made bytes, one send, one poll, one recv; nothing is decoded, watched or kept alive.

May assume: a server that answers in order and in one piece. A session that idled while others ran, and so may be over, is made anew before
the calls. Not a client.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from types import TracebackType

from wireproto.zookeeper.messages import ConnectRequest, ExistsRequest, GetDataRequest, SetDataRequest

SESSION = 30.0  # seconds without a call after which the server ends it
_OPERATIONS = {"get": 4, "exists": 3, "set": 5}


class RawSocket:
    """One session over one socket.

    Args:
        address: ``host:port``.
        path, value: what its calls are about.
    """

    def __init__(self, address: str, path: str, value: bytes) -> None:
        host, _, port = address.rpartition(":")
        self._address = host, int(port)
        self._bodies = {
            "get": GetDataRequest(path=path, watch=False).encode(0),
            "exists": ExistsRequest(path=path, watch=False).encode(0),
            "set": SetDataRequest(path=path, data=value, version=-1).encode(0),
        }
        self._open()

    def _open(self) -> None:
        self._socket = socket.create_connection(self._address, 10)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._xid = 0
        hello = ConnectRequest(time_out=int(SESSION * 1000), passwd=bytes(16)).encode(0)
        self._exchange(struct.pack(">i", len(hello)) + hello)
        self._used = time.monotonic()

    def repeat(self, verb: str, calls: int) -> None:
        """So many calls, one after the other."""
        if time.monotonic() > self._used + SESSION / 3:
            self._socket.close()
            self._open()
        operation, body = _OPERATIONS[verb], self._bodies[verb]
        for _ in range(calls):
            self._xid += 1
            self._exchange(struct.pack(">iii", 8 + len(body), self._xid, operation) + body)
        self._used = time.monotonic()

    def _exchange(self, frame: bytes) -> None:
        self._socket.sendall(frame)
        if not self._poll.poll(10_000) or not self._socket.recv(4096):
            raise ConnectionError("no answer")

    def __enter__(self) -> RawSocket:
        return self

    def __exit__(self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None) -> None:
        self._socket.close()
