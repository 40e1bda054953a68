"""Connections to `net_server` for tests of the engine, what is asked on them, and steps for tests of tasks."""

from __future__ import annotations

import socket
import struct
from typing import Any

from patience import soon
from wireproto._net import Call, Connection, Loop
from wireproto.net.task import Steps

CAP = 64 << 20


def connect(loop: Loop, port: int) -> Connection:
    return loop.open(socket.create_connection(("127.0.0.1", port)), f"127.0.0.1:{port}", "kafka", CAP)


def ask(conn: Connection, verb: bytes, payload: bytes = b"") -> bytes:
    token = conn.next_token()
    return conn.call(token, [struct.pack(">i", token), verb, payload], soon())[4:]


def begin(conn: Connection, verb: bytes, payload: bytes = b"") -> Call:
    token = conn.next_token()
    return conn.submit(token, [struct.pack(">i", token), verb, payload])


def asking(conn: Connection, payload: bytes, times: int = 1) -> Steps[int]:
    """So many round trips; how many brought the right answer."""
    right = 0
    for number in range(times):
        wanted = payload + b"%d" % number
        call = begin(conn, b"e", wanted)
        yield call
        right += call.result(0.0)[4:] == wanted
    return right


def waiting(what: Any) -> Steps[bool]:
    answer = yield what
    return answer
