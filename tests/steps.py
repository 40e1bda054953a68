"""What becomes of a fault at each step of a client's life: the matrix of docs/faults.md, and how it is measured.

A cell is a step × a fault. It is tried twice: with the fault once, and with the fault for ever. The first tells whether the client goes on;
the second what it raises in the end, and whether it has tried again. All is told by events (what the broker saw, what was raised), nothing
by a clock, but for one bound: a call ends within its timeout and `LATE` seconds.

`python -m steps` writes docs/faults.md; tests/wire/test_steps.py holds the page to what happens.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import wireproto
from wireproto.devbroker import DevBroker
from wireproto.errors import WireprotoError

PAGE = Path(__file__).resolve().parents[1] / "docs" / "faults.md"
PROTOCOLS = ("kafka", "pulsar", "rocketmq", "zookeeper")
TIMEOUT = 6.0
CONNECT = 2.0
ATTEMPT = 0.5
LATE = 30.0  # a machine that is busy with other things
TOPIC = "t"
GOES_ON = "goes on"
HTTP = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"
TLS_ALERT = b"\x15\x03\x01\x00\x02\x02\x28"


class Peer:
    """A port in front of a broker that mistreats the first connections.

    Args:
        fault: called with each such connection; None: all are passed on.
        times: how many; -1: every one.
    """

    def __init__(self, target: tuple[str, int], fault: Callable[[socket.socket], None], times: int) -> None:
        self._target, self._fault, self._left = target, fault, times
        self.mistreated = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self._open.append(sock)
                if self._left:
                    self._left -= 1
                    self.mistreated += 1
                    threading.Thread(target=self._mistreat, args=(sock,), daemon=True).start()
                else:
                    self._pass_on(sock)

    def _mistreat(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            self._fault(sock)

    def _pass_on(self, sock: socket.socket) -> None:
        server = socket.create_connection(self._target)
        self._open.append(server)
        for source, sink in ((sock, server), (server, sock)):
            threading.Thread(target=pump, args=(source, sink), daemon=True).start()

    def close(self) -> None:
        for sock in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()


def pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def reset(sock: socket.socket) -> None:
    sock.recv(1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def end(sock: socket.socket) -> None:
    sock.recv(1 << 16)
    sock.shutdown(socket.SHUT_RDWR)
    sock.close()


def silence(sock: socket.socket) -> None:
    while sock.recv(1 << 16):
        pass


def saying(data: bytes) -> Callable[[socket.socket], None]:
    def say(sock: socket.socket) -> None:
        sock.recv(1 << 16)
        sock.sendall(data)
        silence(sock)

    return say


HANDSHAKE: dict[str, Callable[[socket.socket], None]] = {
    "reset": reset,
    "end of stream": end,
    "silence": silence,
    "half a frame, then silence": saying(b"\x00\x00\x00\x20\x00\x00"),
    "a frame of zeros": saying(struct.pack(">i", 12) + bytes(12)),
    "an HTTP answer": saying(HTTP),
    "a TLS alert": saying(TLS_ALERT),
}
TLS: dict[str, Callable[[socket.socket], None]] = {
    "reset": reset,
    "end of stream": end,
    "silence": silence,
    "plain text": saying(HTTP),
}
CUTS = ("cut before it", "cut behind it", "silence", "half of the answer", "a byte changed")


Rig = tuple[str, dict[str, Any], Callable[[], int], Callable[[], None]]
"""Where to connect, options, how often the fault was met so far, and what ends it."""


@dataclass(frozen=True)
class Request:
    """A step that is one request: its name, and the codes that a broker may answer there."""

    step: str
    name: str
    codes: tuple[int, ...] = ()


REQUESTS: dict[str, tuple[Request, ...]] = {
    "kafka": (
        Request("handshake", "ApiVersions", (35,)),
        Request("metadata", "Metadata", (3, 5, 17, 29, 41, -1)),
        Request("producer id", "InitProducerId", (14, 15, 31, 53)),
        Request("send", "Produce", (2, 3, 5, 6, 7, 10, 19, 20, 22, 29, 45, 47, 56, 59, 87, -1)),
    ),
    "pulsar": (
        Request("handshake", "connect", (0, 3, 6)),
        Request("partitions", "partitionMetadata", (0, 1, 4, 6, 11, 14)),
        Request("look-up", "lookupTopic", (0, 1, 4, 6, 11, 14)),
        Request("producer", "producer", (0, 2, 4, 6, 7, 8, 11, 15, 16, 17, 22)),
        Request("send", "send", (0, 2, 4, 6, 9, 15, 22, 25)),
    ),
    "rocketmq": (
        Request("route", "GetRouteInfoByTopic", (1, 2, 17)),
        Request("handshake", "HeartBeat", (1, 2, 16)),
        Request("send", "SendMessageV2", (1, 2, 13, 14, 16, 17)),
    ),
    "zookeeper": (
        Request("handshake", "createSession"),
        Request("make the queue", "exists", (-1, -101, -102, -112)),
        Request("send", "create", (-1, -4, -101, -102, -110, -112, -118, -127)),
    ),
}


@dataclass(frozen=True)
class Cell:
    """A step × a fault, and how to put the fault in so many times (-1: for ever)."""

    protocol: str
    step: str
    fault: str
    rig: Callable[[DevBroker, int], Rig]


def cells(protocol: str) -> Iterator[Cell]:
    """All of a protocol, in the order of the page."""
    yield Cell(protocol, "connect", "refused", lambda broker, times: (closed_port(), {}, lambda: 0, lambda: None))
    for name, fault in TLS.items():
        yield Cell(protocol, "TLS", name, partial(mistreating, protocol, fault, tls=True))
    for name, fault in HANDSHAKE.items():
        yield Cell(protocol, "first request", name, partial(mistreating, protocol, fault))
    for request in REQUESTS[protocol]:
        for what in (*CUTS, *request.codes):
            told = what if isinstance(what, str) else f"code {what}"
            yield Cell(protocol, f"{request.step}: {request.name}", told, partial(hurt, protocol, request.name, what))


def closed_port() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


def mistreating(protocol: str, fault: Callable[[socket.socket], None], broker: DevBroker, times: int, *, tls: bool = False) -> Rig:
    host, _, port = broker.address(protocol).rpartition(":")
    peer = Peer((host, int(port)), fault, times)
    options: dict[str, Any] = {"address_map": {broker.address(protocol): peer.address}}
    if tls:
        options |= {"tls": True, "tls_verify": False}
    return peer.address, options, lambda: peer.mistreated, peer.close


def hurt(protocol: str, name: str, what: str | int, broker: DevBroker, times: int) -> Rig:
    faults = broker.faults(protocol)
    if isinstance(what, int):
        faults.error(name, what, times)
    elif what == "cut before it":
        faults.disconnect(name, times)
    elif what == "cut behind it":
        faults.lose_reply(name, times)
    elif what == "silence":
        faults.drop(name, times)
    elif what == "half of the answer":
        faults.truncate(name, 6, times)
    else:
        faults.corrupt(name, at=5, times=times)
    return broker.address(protocol), {}, lambda: faults.seen(name), lambda: None


OPTIONS: dict[str, dict[str, Any]] = {
    "kafka": {"request_timeout": ATTEMPT, "topic_patience": ATTEMPT},
    "pulsar": {"operation_timeout": ATTEMPT},
    "rocketmq": {"request_timeout": ATTEMPT},
    "zookeeper": {"session_timeout": 6.0},
}


def work(protocol: str, address: str, options: dict[str, Any], query: str) -> None:
    """A client's life up to its first record: connect, open a producer, send."""
    given = OPTIONS[protocol] | {"timeout": TIMEOUT, "connect_timeout": CONNECT} | options
    client: Any = wireproto.connect(f"{protocol}://{address}{query}", **given)
    try:
        if protocol == "zookeeper":
            out = client.producer(TOPIC, timeout=TIMEOUT, delivery_timeout=TIMEOUT)
        else:
            out = client.producer(TOPIC, delivery_timeout=TIMEOUT)
        out.send(b"x", timeout=TIMEOUT).position(TIMEOUT * 2)
    finally:
        with contextlib.suppress(WireprotoError):
            client.close(0.5)


def tried(cell: Cell, times: int) -> tuple[str, int, float]:
    """How it ended, how often the fault was met, and seconds."""
    with DevBroker([cell.protocol]) as broker:
        with wireproto.connect(broker.url(cell.protocol)) as admin:
            admin.admin().create_topic(TOPIC, **({} if cell.protocol == "zookeeper" else {"partitions": 1}))
        broker.faults(cell.protocol).clear()
        address, options, met, stop = cell.rig(broker, times)
        query = broker.url(cell.protocol).partition(broker.address(cell.protocol))[2]
        began = time.monotonic()
        try:
            work(cell.protocol, address, options, query)
            outcome = GOES_ON
        except WireprotoError as why:
            outcome = type(why).__name__
        finally:
            seconds = time.monotonic() - began
            count = met()
            stop()
        return outcome, count, seconds


def measured(cell: Cell) -> tuple[str, str]:
    """The cell's two entries. Raises AssertionError when a call outlasted its time."""
    once, met, first = tried(cell, 1)
    ever, count, second = tried(cell, -1)
    name = f"{cell.protocol}, {cell.step}, {cell.fault}"
    assert max(first, second) < 4 * TIMEOUT + LATE, f"{name}: {first:.1f} s, {second:.1f} s"
    assert cell.step == "connect" or (met and count), f"{name}: nobody met it"
    return once if once == GOES_ON else "fails", ended(ever, count)


def ended(outcome: str, met: int) -> str:
    """The second entry: which passing error came last is chance where it was tried again, so that is not told."""
    if outcome == GOES_ON:
        return GOES_ON
    if met > 1:
        return "tried again, in vain"
    return "waited for, in vain" if outcome == "TimedOut" else outcome


def row(cell: Cell) -> str:
    """Its line of the table."""
    once, ever = measured(cell)
    return f"| {cell.step} | {cell.fault} | {once} | {ever} |"


def disagreeing(protocol: str, page: str) -> list[str]:
    """Lines of the table that are not on the page, each measured again, alone, to see whether a busy machine made the difference."""
    section = page.partition(f"## {protocol}\n")[2].partition("\n## ")[0]
    known = section.splitlines()

    def attempt(cell: Cell) -> str:
        try:
            return row(cell)
        except AssertionError as why:
            return str(why)

    every = list(cells(protocol))
    with ThreadPoolExecutor(12) as pool:
        odd = [cell for cell, line in zip(every, pool.map(attempt, every), strict=True) if line not in known]
    left = [[line for line in (attempt(cell) for _ in range(3)) if line] for cell in odd]
    assert len(known) > len(every)
    return [lines[-1] for lines in left if not set(lines) & set(known)]


def page() -> str:
    parts = [INTRODUCTION]
    for protocol in PROTOCOLS:
        head = f"## {protocol}\n\n| step | fault | met once | met for ever |\n|---|---|---|---|\n"
        with ThreadPoolExecutor(12) as pool:
            parts.append(head + "\n".join(pool.map(row, cells(protocol))) + "\n")
    return "\n".join(parts)


INTRODUCTION = """# What becomes of a fault, step by step

Made by `make faults`; a test holds it to what happens. A client connects, opens a producer and sends a record, against a scripted peer or
the embedded broker, and one step meets a fault: once, or for ever. *goes on*: the record is stored, the caller hears nothing. *tried again,
in vain*: as long as there was time, then the last error is raised, or TimedOut that tells it. *waited for, in vain*: TimedOut. A class:
that error is raised at once. Every call ends within its timeout, which is 6 s here, with 2 s for a connection.

*silence*: the peer takes what is sent and never answers. *a byte changed*: the sixth of the answer.
"""


if __name__ == "__main__":
    PAGE.write_text(page())
