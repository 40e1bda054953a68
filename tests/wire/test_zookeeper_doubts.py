"""What a timeout tells of calls that take several requests: whether what was asked may have been done all the same."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import wireproto
import wireproto.aio
from brokers.proxy import FaultProxy
from wireproto.devbroker import DevBroker, Faults
from wireproto.errors import TimedOut
from wireproto.zookeeper.session import State

PROTOCOL, SECONDS = "zookeeper", 20.0
CLIENT = {"timeout": SECONDS}
SHORT = 1.0
AWAY = 4.0
"""Seconds until there is a connection again."""


class Site:
    """A client, a queue `/…/jobs` with one message, a tree `/…/a/b`, and another client that sees what was done."""

    def __init__(self, client: Any, other: Any) -> None:
        self.client, self.other = client, other.tree()
        self.node = f"/d-{time.monotonic_ns()}"
        self.other.create(f"{self.node}/a/b", parents=True)
        self.topic = f"{self.node}/jobs"
        self.out = client.producer(self.topic)
        self.out.send(b"job").position()
        self.worker = client.queue(self.topic)

    def there(self, path: str) -> bool:
        return self.other.exists(self.node + path) is not None

    def count(self, path: str) -> int:
        return len(self.other.children(self.node + path)[0])

    def delivery(self) -> Any:
        delivery = self.worker.receive(SECONDS)
        assert delivery is not None
        return delivery


@pytest.fixture
def site(broker: DevBroker, proxy: FaultProxy, dial: Any) -> Any:
    made = Site(dial(proxy.url(broker.url("zookeeper"))), dial())
    yield made
    proxy.heal()
    with suppress(TimedOut):  # what it holds cannot be given back where there is no connection yet
        made.worker.close(0.1)


Make = Callable[[Site], tuple[Callable[[], Any], Callable[[], bool]]]
"""What is to be called, and whether it was done."""


def position(site: Site) -> tuple[Callable[[], Any], Callable[[], bool]]:
    return lambda: site.out.send(b"another").position(SHORT), lambda: site.count("/jobs/entries") == 2


def flush(site: Site) -> tuple[Callable[[], Any], Callable[[], bool]]:
    def call() -> None:
        site.out.send(b"another")
        site.out.flush(SHORT)

    return call, lambda: site.count("/jobs/entries") == 2


def ack(site: Site) -> tuple[Callable[[], Any], Callable[[], bool]]:
    delivery = site.delivery()
    return lambda: delivery.ack(SHORT), lambda: site.count("/jobs/entries") == 0


def release(site: Site) -> tuple[Callable[[], Any], Callable[[], bool]]:
    delivery = site.delivery()
    return lambda: delivery.release(SHORT), lambda: site.count("/jobs/taken") == 0


def ensure(site: Site) -> tuple[Callable[[], Any], Callable[[], bool]]:
    return lambda: site.client.tree().ensure(f"{site.node}/new", timeout=SHORT), lambda: site.there("/new")


def delete(site: Site) -> tuple[Callable[[], Any], Callable[[], bool]]:
    tree = site.client.tree()
    return lambda: tree.delete(f"{site.node}/a/b", recursive=True, timeout=SHORT), lambda: not site.there("/a/b")


def delete_all(site: Site) -> tuple[Callable[[], Any], Callable[[], bool]]:
    tree = site.client.tree()
    return lambda: tree.delete(f"{site.node}/a", recursive=True, timeout=SHORT), lambda: not site.there("/a/b")


def create(site: Site) -> tuple[Callable[[], Any], Callable[[], bool]]:
    return lambda: site.client.tree().create(f"{site.node}/c/d", parents=True, timeout=SHORT), lambda: site.there("/c")


def create_topic(site: Site) -> tuple[Callable[[], Any], Callable[[], bool]]:
    return lambda: site.client.admin().create_topic(f"{site.node}/t", timeout=SHORT), lambda: site.there("/t/entries")


CALLS: dict[str, tuple[str, int, Make]] = {
    "receipt.position": ("create", 0, position),
    "producer.flush": ("create", 0, flush),
    "delivery.ack": ("multi", 0, ack),
    "delivery.release": ("multi", 0, release),
    "tree.ensure": ("create", 0, ensure),
    "tree.delete, recursive": ("delete", 0, delete),
    "tree.delete, recursive, of a child": ("delete", 1, delete_all),
    "tree.create with parents, of a parent": ("create", 1, create),
    "admin.create_topic": ("multi", 0, create_topic),
}
"""The request whose answer is lost, how many of its kind are answered before it, and the call."""


@pytest.mark.parametrize("call", CALLS)
def test_what_times_out_behind_a_lost_answer_may_be_done(site: Site, faults: Faults, call: str) -> None:
    message, before, make = CALLS[call]
    run, done = make(site)
    faults.delay(message, 0.0, times=before)
    faults.lose_reply(message)
    faults.delay("createSession", AWAY)
    with pytest.raises(TimedOut) as late:
        run()
    assert done()
    assert late.value.doubtful


@pytest.mark.parametrize("call", ["receipt.position", "producer.flush"])
def test_a_message_that_is_sent_and_not_answered_may_be_there(site: Site, faults: Faults, call: str) -> None:
    run, done = CALLS[call][2](site)
    faults.drop("create")
    with pytest.raises(TimedOut) as late:
        run()
    assert done()
    assert late.value.doubtful


def test_a_flush_is_doubtful_where_one_of_its_messages_is(seen: Any, site: Site, proxy: FaultProxy, faults: Faults) -> None:
    suspended = threading.Event()
    site.client.tree().on_state(lambda event: suspended.set() if event.state is State.SUSPENDED else None)
    faults.drop("create")
    first = site.out.send(b"sent")
    seen.wait("create", timeout=SECONDS, when=lambda request: b"sent" in bytes(request.message.data))
    proxy.refuse()
    assert suspended.wait(SECONDS)
    last = site.out.send(b"not sent")
    calls: list[tuple[Callable[[], Any], bool]] = [
        (lambda: first.position(SHORT), True),
        (lambda: last.position(SHORT), False),
        (lambda: site.out.flush(SHORT), True),
    ]
    for call, doubtful in calls:
        with pytest.raises(TimedOut) as late:
            call()
        assert late.value.doubtful is doubtful


def test_what_made_a_part_and_timed_out_at_a_read_is_doubtful(site: Site, faults: Faults) -> None:
    faults.delay("exists", 0.0, times=3)
    faults.drop("exists")
    with pytest.raises(TimedOut) as late:
        site.client.admin().create_topic(f"{site.node}/above/t", timeout=SHORT)
    assert site.there("/above")
    assert late.value.doubtful


@pytest.mark.parametrize("call", CALLS)
def test_what_was_not_sent_is_not_doubtful(site: Site, proxy: FaultProxy, call: str) -> None:
    run, done = CALLS[call][2](site)
    suspended = threading.Event()
    site.client.tree().on_state(lambda event: suspended.set() if event.state is State.SUSPENDED else None)
    proxy.refuse()
    assert suspended.wait(SECONDS)
    with pytest.raises(TimedOut) as late:
        run()
    assert not done()
    assert not late.value.doubtful


def test_a_read_that_times_out_behind_others_is_not_doubtful(site: Site, faults: Faults) -> None:
    """Nothing was to be made: the nodes are there."""
    faults.drop("exists", times=-1)
    with pytest.raises(TimedOut) as late:
        site.client.tree().ensure(f"{site.node}/a/b", timeout=SHORT)
    assert not late.value.doubtful


def test_doubts_are_told_under_asyncio_too(broker: DevBroker, faults: Faults) -> None:
    async def body() -> None:
        async with wireproto.aio.connect(broker.url("zookeeper")) as client:
            tree = client.tree()
            node = await tree.create(f"/d-{time.monotonic_ns()}")
            faults.lose_reply("create")
            faults.delay("createSession", AWAY)
            with pytest.raises(TimedOut) as late:
                await tree.ensure(f"{node}/new", timeout=SHORT)
            assert late.value.doubtful

    asyncio.run(body())
