"""What the ZooKeeper client promises over a lost connection: no event is missed, nothing goes back, nothing slips into another session."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import wireproto
from brokers.proxy import FaultProxy
from wireproto.devbroker import DevBroker, Faults
from wireproto.zookeeper.codes import EventType
from wireproto.zookeeper.messages import ReplyHeader, WatcherEvent
from wireproto.zookeeper.multi import Set

SECONDS = 20.0


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker(["zookeeper"]) as made:
        yield made


@pytest.fixture
def faults(broker: DevBroker) -> Iterator[Faults]:
    given = broker.faults("zookeeper")
    given.clear()
    yield given
    given.clear()


@pytest.fixture
def proxy() -> Iterator[FaultProxy]:
    with FaultProxy() as made:
        yield made


@pytest.fixture
def dial(broker: DevBroker, faults: Faults) -> Iterator[Callable[..., Any]]:
    opened: list[Any] = []

    def make(url: str = "", **options: Any) -> Any:
        opened.append(wireproto.connect(url or broker.url("zookeeper"), **{"timeout": SECONDS} | options))
        return opened[-1]

    yield make
    faults.clear()
    broker.kick("zookeeper")
    for client in opened:
        client.close(5.0)


@pytest.fixture
def node(dial: Any) -> str:
    return str(dial().tree().create(f"/n-{time.monotonic_ns()}", b"0"))


@pytest.mark.parametrize("told", [0, 1, 7, 19])
def test_a_cut_among_the_events_of_one_transaction_costs_none_of_them(
    broker: DevBroker, proxy: FaultProxy, dial: Any, node: str, told: int
) -> None:
    tree, other = dial(proxy.url(broker.url("zookeeper"))).tree(), dial().tree()
    names = [other.create(f"{node}/{number:02d}") for number in range(20)]
    watches = [tree.watch() for _ in names]
    for name, watch in zip(names, watches, strict=True):
        tree.get(name, watch=watch)
    event = ReplyHeader(xid=-1, zxid=1, err=0).encode() + WatcherEvent(type=3, state=3, path=names[0]).encode()
    proxy.cut_after(told * (4 + len(event)) + 10)  # so many are told, and a part of the next
    other.multi([Set(name, b"1") for name in names])
    deadline = time.monotonic() + SECONDS
    got = [watch.wait(deadline - time.monotonic()) for watch in watches]
    assert [event and (event.type, event.path) for event in got] == [(EventType.NODE_DATA_CHANGED, name) for name in names]
