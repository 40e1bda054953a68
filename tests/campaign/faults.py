"""Faults that any cluster can have: of processes (kill, freeze, restart, roll) and of the lines to them (through the proxies).

Each is a context manager over a site and a round: entering puts the fault in and tells which nodes have it (None: all), leaving heals it.
Whether the brokers serve again is waited for by who leaves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from .clocks import CLIENTS, LOOKS
from .ledger import CLOCK
from .plan import Round
from .site import Site

Sick = frozenset[int] | None
JUMP = 5.0  # hours, at most that and a fifth
Fault = Callable[[Site, Round], AbstractContextManager[Sick]]


@contextmanager
def kill(site: Site, round_: Round) -> Iterator[Sick]:
    """SIGKILL; it comes back with its data."""
    server = site.servers[round_.node]
    site.broker.kill(server)
    yield frozenset({round_.node})
    site.broker.start(server)


@contextmanager
def freeze(site: Site, round_: Round) -> Iterator[Sick]:
    """SIGSTOP: sockets stay open, nothing answers."""
    server = site.broker.servers[site.servers[round_.node]]
    server.pause()
    try:
        yield frozenset({round_.node})
    finally:
        server.resume()


@contextmanager
def restart(site: Site, round_: Round) -> Iterator[Sick]:
    """An ordered stop and a start."""
    server = site.servers[round_.node]
    site.broker.stop(server)
    yield frozenset({round_.node})
    site.broker.start(server)


@contextmanager
def roll(site: Site, _: Round) -> Iterator[Sick]:
    """Every node is stopped in order and started again, one after the other, as upgrades are done."""
    for server in site.servers:
        site.broker.stop(server)
        site.broker.start(server)
        site.await_answers()
    yield None


@contextmanager
def black_hole(site: Site, round_: Round) -> Iterator[Sick]:
    """Nothing passes in either direction, and nothing is said of it."""
    proxy = site.proxies[round_.node]
    proxy.stall()
    try:
        yield frozenset({round_.node})
    finally:
        proxy.heal()


@contextmanager
def swallow(site: Site, round_: Round) -> Iterator[Sick]:
    """What goes one way is taken and thrown away; then the connections are reset, since bytes are missing in them."""
    proxy = site.proxies[round_.node]
    proxy.drop("down" if round_.amount < 0.5 else "up")
    try:
        yield frozenset({round_.node})
    finally:
        proxy.cut()
        proxy.heal()


@contextmanager
def cut(site: Site, round_: Round) -> Iterator[Sick]:
    """Connections are reset again and again, most of them in the middle of a frame."""
    proxy = site.proxies[round_.node]
    end = time.monotonic() + round_.seconds
    step = 0
    while time.monotonic() < end:
        proxy.cut_after(1 + int(round_.amount * 7919 + step * 977) % 5000)
        step += 1
        time.sleep(0.1 + round_.amount * 0.3)
    yield frozenset({round_.node})
    proxy.heal()


@contextmanager
def half_close(site: Site, round_: Round) -> Iterator[Sick]:
    """The node's side of each connection ends; ours may go on talking."""
    proxy = site.proxies[round_.node]
    proxy.half_close()
    yield frozenset({round_.node})
    proxy.heal()


@contextmanager
def refuse(site: Site, round_: Round) -> Iterator[Sick]:
    """Its port is closed, its connections are reset."""
    proxy = site.proxies[round_.node]
    proxy.refuse()
    try:
        yield frozenset({round_.node})
    finally:
        proxy.heal()


@contextmanager
def far(site: Site, _: Round) -> Iterator[Sick]:
    """300 ms to every node, in each direction."""
    for proxy in site.proxies:
        proxy.delay(0.3)
    try:
        yield None
    finally:
        for proxy in site.proxies:
            proxy.heal()


@contextmanager
def narrow(site: Site, round_: Round) -> Iterator[Sick]:
    """20 kB a second to one node."""
    proxy = site.proxies[round_.node]
    proxy.slow(20_000)
    try:
        yield frozenset({round_.node})
    finally:
        proxy.cut()  # what waits on the line would trickle on
        proxy.heal()


@contextmanager
def clock(site: Site, round_: Round) -> Iterator[Sick]:
    """The clients' wall clock jumps by hours, and a node's the other way where brokers bear it; monotonic clocks go on. Healed, all jump
    back."""
    assert site.clocks is not None, "the campaign leaves this fault out where there is no libfaketime"
    hours = JUMP * (1.0 if round_.amount < 0.5 else -1.0) * (0.2 + round_.amount)
    site.clocks.set(f"node-{round_.node}", hours)
    site.clocks.set(CLIENTS, -hours)
    try:
        time.sleep(LOOKS + 1.5)  # until it is seen
        yield None
    finally:
        site.clocks.set(f"node-{round_.node}", 0.0)
        site.clocks.set(CLIENTS, 0.0)


FAULTS: dict[str, Fault] = {
    "kill": kill,
    "freeze": freeze,
    "restart": restart,
    "roll": roll,
    "black-hole": black_hole,
    "swallow": swallow,
    "cut": cut,
    "half-close": half_close,
    "refuse": refuse,
    "far": far,
    "narrow": narrow,
    CLOCK: clock,
}
