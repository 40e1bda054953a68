"""Seats: one on the embedded broker, for the tests of one protocol, and one at the engine, with a scripted peer.

What it is: fixtures. For the embedded broker a module says `PROTOCOL = "zookeeper"` and takes what it needs of this; it may say more:
`BROKER`, options of its DevBroker; `CLIENT`, options of its clients. One that parametrizes its tests over `protocol` says `PROTOCOLS`
instead. A module's own fixture of a name goes before the one here.
Must not: know a protocol.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import wireproto
from brokers.proxy import FaultProxy
from net_server import running
from task_steps import connect
from wireproto._net import Connection, Loop
from wireproto.devbroker import DevBroker, Faults
from wireproto.devbroker.recording import Recording
from wireproto.net.task import Tasks

PATIENCE = 5.0  # seconds for a client to close
_topics = itertools.count()


@pytest.fixture(scope="module")
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.module.PROTOCOL)


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest) -> Iterator[DevBroker]:
    """The module's broker: of its PROTOCOL, or of all its PROTOCOLS."""
    module = request.module
    names = [module.PROTOCOL] if hasattr(module, "PROTOCOL") else module.PROTOCOLS
    with DevBroker(names, **getattr(module, "BROKER", {})) as made:
        yield made


@pytest.fixture
def topic(client: Any) -> str:
    """A new one, of one partition."""
    name = f"topic-{next(_topics)}"
    client.admin().create_topic(name, **({} if client.protocol == "zookeeper" else {"partitions": 1}))
    return name


@pytest.fixture
def faults(broker: DevBroker, protocol: str) -> Iterator[Faults]:
    """The broker's, none of them set before this test and after it."""
    given = broker.faults(protocol)
    given.clear()
    yield given
    given.clear()


@pytest.fixture
def seen(broker: DevBroker, protocol: str) -> Recording:
    """A recording from now on."""
    return broker.record(protocol)


@pytest.fixture
def proxy() -> Iterator[FaultProxy]:
    with FaultProxy() as made:
        yield made


@pytest.fixture
def dial(request: pytest.FixtureRequest, broker: DevBroker, faults: Faults, protocol: str) -> Iterator[Callable[..., Any]]:
    """Makes clients of the broker, or of another URL, which end with the test."""
    opened: list[Any] = []

    def make(url: str = "", **options: Any) -> Any:
        opened.append(wireproto.connect(url or broker.url(protocol), **getattr(request.module, "CLIENT", {}) | options))
        return opened[-1]

    yield make
    faults.clear()
    broker.kick(protocol)  # a close would wait for a server that a test has silenced
    for client in opened:
        client.close(PATIENCE)


@pytest.fixture
def client(dial: Callable[..., Any]) -> Any:
    return dial()


# ---- the engine -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A process of `net_server`."""
    with running() as port:
        yield port


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop("test")
    yield loop
    loop.close()


@pytest.fixture
def tasks(loop: Loop) -> Tasks:
    return Tasks(loop)


@pytest.fixture
def conn(loop: Loop, port: int) -> Connection:
    return connect(loop, port)
