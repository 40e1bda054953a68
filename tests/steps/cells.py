"""What becomes of a fault at each step of a client's life: the cells of docs/faults.md, and how each is measured.

A cell is a step of a life × a fault. It is tried twice: with the fault once, and with the fault for ever. The first tells whether a client
goes on; the second what it raises in the end, and whether it has tried again. All is told by events (what the broker saw, what was raised),
nothing by a clock, but for two bounds: a call ends within its timeout and `LATE` seconds, and in that time no step is tried `MOST` times.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import wireproto
from wireproto.devbroker import DevBroker
from wireproto.errors import WireprotoError

from .administering import ADMINISTERS
from .keeping import KEEPS
from .lives import LIVES, LOGINS, SENDS, TIMEOUT, TOPIC, Life, Request
from .peer import HANDSHAKE, TLS, Peer, Relay
from .returning import ENDS, RETURNS

CONNECT = 2.0
ATTEMPT = 0.5
LATE = 30.0  # a machine that is busy with other things
MOST = 600  # times that a step is tried again while a life lasts: three times what the busiest needs; who storms comes to thousands
GOES_ON = "goes on"
CUTS = ("cut before it", "cut behind it", "silence", "half of the answer", "a byte changed")
PUSHES = ("cut in the middle", "never comes", "a byte changed")
PUSHES_IN_ORDER = ("cut in the middle", "a byte changed")  # one of several cannot get lost on a connection that lives
LINES = ("half-open", "slow bytes")
OPTIONS: dict[str, dict[str, Any]] = {
    "kafka": {"request_timeout": ATTEMPT, "unknown_topic_timeout": ATTEMPT},
    "pulsar": {"operation_timeout": ATTEMPT, "keep_alive": 1.0},
    "rocketmq": {"request_timeout": ATTEMPT, "heartbeat_interval": 1.0},
    "zookeeper": {"session_timeout": 6.0},
}

Rig = tuple[str, dict[str, Any], Callable[[], int], Callable[[], None]]
"""Where to connect, options, how often the fault was met so far, and what ends it."""


@dataclass(frozen=True)
class Cell:
    """A step of a life × a fault, and how to put the fault in so many times (-1: for ever)."""

    protocol: str
    life: Life
    step: str
    fault: str
    rig: Callable[[DevBroker, int], Rig]


def cells(protocol: str) -> Iterator[Cell]:
    """All of a protocol, in the order of the page."""
    yield Cell(protocol, SENDS, "connect", "refused", lambda broker, times: (closed_port(), {}, lambda: 0, lambda: None))
    yield Cell(protocol, SENDS, "connect", "silence", lambda broker, times: full())
    for name, fault in TLS.items():
        yield Cell(protocol, SENDS, "TLS", name, partial(mistreating, protocol, fault, tls=True))
    for name, fault in HANDSHAKE.items():
        yield Cell(protocol, SENDS, "first request", name, partial(mistreating, protocol, fault))
    for request in LOGINS.get(protocol, ()):
        for told, what in faults_of(request):
            yield Cell(protocol, SENDS, f"{request.step}: {request.name}", told, partial(guarded, protocol, request, what))
    for life in (*LIVES, KEEPS, ADMINISTERS, RETURNS, ENDS):
        yield from of_a_life(protocol, life)


def of_a_life(protocol: str, life: Life) -> Iterator[Cell]:
    """Its requests, what is said unasked, and its connections."""
    if protocol not in life.requests:
        return
    for request in life.requests[protocol]:
        for told, what in faults_of(request):
            yield Cell(protocol, life, f"{request.step}: {request.name}", told, partial(hurt, protocol, request, what))
    for name in life.pushes.get(protocol, ()):
        for told in PUSHES if name != "message" else PUSHES_IN_ORDER:
            yield Cell(protocol, life, f"unasked: {name}", told, partial(relayed, protocol, name, told))
    for told in LINES:
        name = life.last[protocol] if told == "half-open" else None
        yield Cell(protocol, life, f"{life.name}: connection", told, partial(relayed, protocol, name, told))


def faults_of(request: Request) -> Iterator[tuple[str, str | int]]:
    """What a request may meet, as the page names it and as it is."""
    for cut in CUTS:
        if request.name != "flow" or cut != "silence":  # no answer belongs to it
            yield cut, cut
    yield from ((f"code {code}", code) for code in request.codes)


def closed_port() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


class Attempts(logging.Handler):
    """Counts what the log tells of attempts to connect to an address: nobody else sees one that is not answered."""

    def __init__(self, address: str) -> None:
        super().__init__(logging.WARNING)
        self._address, self.count = address, 0
        logging.getLogger("wireproto").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.count += self._address in record.getMessage()


def full() -> Rig:
    """A port whose queue of connections is full: attempts at one are not answered."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=0)
    waiting = [socket.socket() for _ in range(3)]
    for sock in waiting:
        sock.setblocking(False)
        sock.connect_ex(listener.getsockname())
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    attempts = Attempts(address)

    def stop() -> None:
        logging.getLogger("wireproto").removeHandler(attempts)
        for sock in (*waiting, listener):
            sock.close()

    return address, {}, lambda: attempts.count, stop


def target(protocol: str, broker: DevBroker) -> tuple[str, int]:
    host, _, port = broker.address(protocol).rpartition(":")
    return host, int(port)


def mistreating(protocol: str, fault: Callable[[socket.socket], None], broker: DevBroker, times: int, *, tls: bool = False) -> Rig:
    peer = Peer(target(protocol, broker), fault, times)
    options: dict[str, Any] = {"address_map": {broker.address(protocol): peer.address}}
    if tls:
        options |= {"tls": True, "tls_verify": False}
    return peer.address, options, lambda: peer.mistreated, peer.close


def relayed(protocol: str, name: str | None, what: str, broker: DevBroker, times: int) -> Rig:
    served = [address for listener, address in broker.listeners(protocol).items() if listener != "admin"]
    relay = Relay(protocol, served, name, what, times)
    return relay.at[broker.address(protocol)], {"address_map": relay.at}, lambda: relay.met, relay.close


def hurt(protocol: str, request: Request, what: str | int, broker: DevBroker, times: int) -> Rig:
    faults, seen, name = broker.faults(protocol), broker.record(protocol), request.name
    for _ in range(request.after):
        faults.delay(name, 0.0)
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
    met = (lambda: asked(seen.requests(name))) if protocol == "rocketmq" else lambda: max(faults.seen(name) - request.after, 0)
    return broker.address(protocol), {}, met, lambda: None


def guarded(protocol: str, request: Request, what: str | int, broker: DevBroker, times: int) -> Rig:
    """`hurt`, where only who logs in is let in."""
    user, password = "alice", "secret"
    broker.call(protocol, "let_in", {user: password})
    address, _, met, stop = hurt(protocol, request, what, broker, times)
    return address, {"user": user, "password": password}, met, stop


def asked(requests: list[Any]) -> int:
    """How often one of RocketMQ's queues was asked about: several are beside each other, which is no second try."""
    of = Counter((one.message.topic, one.message.queue_id) if hasattr(one.message, "queue_id") else None for one in requests)
    return max(of.values(), default=0)


def lived(cell: Cell, address: str, options: dict[str, Any], query: str) -> None:
    """The client's life."""
    given = OPTIONS[cell.protocol] | {"timeout": TIMEOUT, "connect_timeout": CONNECT} | options
    client: Any = wireproto.connect(f"{cell.protocol}://{address}{query}", **given)
    try:
        cell.life.run(cell.protocol, client)
    finally:
        with contextlib.suppress(WireprotoError):
            client.close(0.5)


def tried(cell: Cell, times: int) -> tuple[str, int, float]:
    """How it ended, how often the fault was met, and seconds."""
    with DevBroker([cell.protocol]) as broker, wireproto.connect(broker.url(cell.protocol)) as sound:
        sound.admin().create_topic(TOPIC, **({} if cell.protocol == "zookeeper" else {"partitions": 1}))
        cell.life.prepare(cell.protocol, sound)
        faults = broker.faults(cell.protocol)
        faults.clear()
        address, options, met, stop = cell.rig(broker, times)
        query = broker.url(cell.protocol).partition(broker.address(cell.protocol))[2]
        began = time.monotonic()
        try:
            lived(cell, address, options, query)
            outcome = GOES_ON
        except WireprotoError as why:
            outcome = type(why).__name__
        finally:
            seconds = time.monotonic() - began
            count = met()
            stop()
            faults.clear()
        if outcome == GOES_ON and times > 0:
            cell.life.check(cell.protocol, sound)
        return outcome, count, seconds


def measured(cell: Cell) -> tuple[str, str, tuple[float, float]]:
    """The cell's two entries, and seconds of each. Raises AssertionError when a call outlasted its time, stormed, or lost something."""
    once, met, first = tried(cell, 1)
    ever, count, second = tried(cell, -1)
    name = f"{cell.protocol}, {cell.step}, {cell.fault}"
    assert max(first, second) < 4 * TIMEOUT + LATE, f"{name}: {first:.1f} s, {second:.1f} s"
    assert cell.step == "connect" or (met and count), f"{name}: nobody met it"
    assert count < MOST, f"{name}: met {count} times in {second:.1f} s"
    return once if once == GOES_ON else "fails", ended(ever, count), (first, second)


def ended(outcome: str, met: int) -> str:
    """The second entry: which passing error came last is chance where it was tried again, so that is not told."""
    if outcome == GOES_ON:
        return GOES_ON
    if met > 1:
        return "tried again, in vain"
    return "waited for, in vain" if outcome in ("TimedOut", "Unheard") else outcome
