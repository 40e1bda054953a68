"""A write of ZooKeeper's whose answer was lost: the error names the request, its path, the server, and why the connection was lost."""

from __future__ import annotations

import asyncio
import errno
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import wireproto.aio
from brokers.proxy import FaultProxy
from wireproto.devbroker import DevBroker, Faults
from wireproto.errors import Closed, Disconnected, TimedOut, WireprotoError
from wireproto.zookeeper.codes import SessionExpired
from wireproto.zookeeper.errors import ConnectionLoss
from wireproto.zookeeper.multi import Create, Set
from wireproto.zookeeper.session import State

PROTOCOL, SECONDS = "zookeeper", 20.0
CLIENT = {"timeout": SECONDS}
SHORT = 1.0
AWAY = 4.0
"""Seconds until there is a connection again."""
AGO = r", sent [0-9.]+ s ago, was lost: Disconnected: "
UNKNOWN = "whether it was done is not known: the answer to "


@pytest.fixture
def node(dial: Any) -> str:
    return str(dial().tree().create(f"/n-{time.monotonic_ns()}", b"0"))


def check(raised: pytest.ExceptionInfo[WireprotoError], what: str, why: str = "by the peer") -> None:
    """What was lost is named once, with its server, and why is the cause."""
    error = raised.value
    assert error.doubtful
    assert isinstance(error.__cause__, Disconnected)
    assert why in error.__cause__.text
    assert error.__cause__.peer is not None
    assert f"peer {error.__cause__.peer}" in str(error)
    assert str(error).count(what) == 1
    if isinstance(error, ConnectionLoss):
        assert error.peer == error.__cause__.peer
        assert len(re.findall(r"peer \d", str(error))) == 1


WRITES: dict[str, Callable[[Any, str], Any]] = {
    "setData": lambda tree, node: tree.set(node, b"1"),
    "create": lambda tree, node: tree.create(f"{node}/new"),
    "create2": lambda tree, node: tree.create2(f"{node}/new"),
    "delete": lambda tree, node: tree.delete(node),
    "multi": lambda tree, node: tree.multi([Set(node, b"1"), Create(f"{node}/new")]),
}
CALLS: dict[str, Callable[[Any, str], Any]] = {
    "setData": lambda tree, node: tree.set_async(node, b"1"),
    "create": lambda tree, node: tree.create_async(f"{node}/new"),
    "delete": lambda tree, node: tree.delete_async(node),
}


@pytest.mark.parametrize("message", WRITES)
def test_a_write_names_its_answer_that_was_lost(dial: Any, faults: Faults, node: str, message: str) -> None:
    tree = dial().tree()
    faults.lose_reply(message)
    with pytest.raises(ConnectionLoss, match=rf"^{UNKNOWN}{message} {node}.*{AGO}closed by the peer \(peer 127\.0\.0\.1:") as lost:
        WRITES[message](tree, node)
    check(lost, f"{message} {node}")


@pytest.mark.parametrize("message", CALLS)
def test_a_call_names_its_answer_that_was_lost(dial: Any, faults: Faults, node: str, message: str) -> None:
    tree = dial().tree()
    faults.lose_reply(message)
    call = CALLS[message](tree, node)
    for _ in range(2):
        with pytest.raises(ConnectionLoss, match=rf"^{UNKNOWN}{message} {node}.*{AGO}closed by the peer \(peer 127\.0\.0\.1:") as lost:
            call.result(SECONDS)
        check(lost, f"{message} {node}")


def test_a_read_that_may_not_be_repeated_names_its_answer(dial: Any, faults: Faults, node: str) -> None:
    tree = dial().tree()
    faults.drop("getData")
    faults.lose_reply("setData")
    read, write = tree.get_async(node), tree.set_async(node, b"1")
    with pytest.raises(ConnectionLoss, match=rf"^the answer to getData {node}{AGO}.*, and a write behind it may have taken effect") as lost:
        read.result(SECONDS)
    check(lost, f"getData {node}")
    with pytest.raises(ConnectionLoss):
        write.result(SECONDS)


def test_a_silent_server_is_named_as_such(broker: DevBroker, proxy: FaultProxy, dial: Any, node: str) -> None:
    tree = dial(proxy.url(broker.url("zookeeper")), session_timeout=1.5).tree()
    tree.get(node)
    proxy.stall()
    with pytest.raises(ConnectionLoss, match=r"no byte from the server for [0-9.]+ s, of a session timeout of 1\.5 s") as lost:
        tree.set(node, b"1")
    check(lost, f"setData {node}", "no byte from the server")
    proxy.heal()


def test_a_reset_is_named_as_such(broker: DevBroker, proxy: FaultProxy, dial: Any, faults: Faults, node: str) -> None:
    seen = broker.record("zookeeper")
    tree = dial(proxy.url(broker.url("zookeeper"))).tree()
    faults.drop("setData")
    write = tree.set_async(node, b"1")
    seen.wait("setData", timeout=SECONDS)
    proxy.cut()
    with pytest.raises(ConnectionLoss, match="Connection reset by peer") as lost:
        write.result(SECONDS)
    check(lost, f"setData {node}", "Connection reset by peer")
    assert lost.value.__cause__.errno == errno.ECONNRESET  # type: ignore[union-attr]


@pytest.mark.parametrize("later", [False, True])
def test_a_write_that_is_not_answered_in_time_names_its_request(dial: Any, faults: Faults, node: str, later: bool) -> None:
    tree = dial().tree()
    faults.drop("setData")
    text = rf"^no reply in time: setData {node}, sent 1\.\d s ago; the server has sent nothing for [01]\.\d s; whether it was done"
    with pytest.raises(TimedOut, match=text) as late:
        tree.set_async(node, b"1").result(SHORT) if later else tree.set(node, b"1", timeout=SHORT)
    assert late.value.doubtful
    assert late.value.peer is not None


def test_a_read_that_is_not_answered_in_time_names_its_request(dial: Any, faults: Faults, node: str) -> None:
    tree = dial().tree()
    faults.drop("getData")
    with pytest.raises(TimedOut, match=rf"^no reply in time: getData {node}") as late:
        tree.get(node, timeout=SHORT)
    assert not late.value.doubtful
    assert "not known" not in str(late.value)


# -- calls that take several requests ---------------------------------------------------------------------------------------


def test_what_times_out_behind_a_lost_answer_names_both(broker: DevBroker, proxy: FaultProxy, dial: Any, faults: Faults, node: str) -> None:
    """The answer that was lost, and why there was no connection to ask again."""
    created = broker.record("zookeeper")
    tree = dial(proxy.url(broker.url("zookeeper"))).tree()
    faults.drop("create")
    call = beside(lambda: tree.ensure(f"{node}/new", timeout=SHORT * 2))
    created.wait("create", timeout=SECONDS)
    proxy.refuse()
    with pytest.raises(TimedOut, match=rf"^no connection to the ensemble: .*; {UNKNOWN}create {node}/new{AGO}") as late:
        call()
    assert late.value.doubtful
    assert isinstance(late.value.__cause__, Disconnected)


def test_what_an_expired_session_ends_behind_a_lost_answer_names_it(broker: DevBroker, dial: Any, faults: Faults, node: str) -> None:
    seen = broker.record("zookeeper")
    tree = dial().tree()
    session = tree.session[0]
    faults.delay("create", 0.0)
    faults.lose_reply("create")
    faults.delay("createSession", SHORT)
    call = beside(lambda: tree.create(f"{node}/a/b", parents=True, timeout=SECONDS))
    seen.wait("create", 2, timeout=SECONDS)
    broker.call("zookeeper", "expire", session)
    with pytest.raises(SessionExpired, match=rf"; {UNKNOWN}create {node}/a{AGO}closed by the peer") as ended:
        call()
    check(ended, f"create {node}/a,")


def beside(fn: Callable[[], Any]) -> Callable[[], Any]:
    """Call `fn` in a thread; returns the function that waits for its result."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(fn)
    pool.shutdown(wait=False)
    return lambda: future.result(SECONDS)


def test_no_connection_names_its_cause(broker: DevBroker, proxy: FaultProxy, dial: Any, node: str) -> None:
    tree = dial(proxy.url(broker.url("zookeeper"))).tree()
    suspended = threading.Event()
    tree.on_state(lambda event: suspended.set() if event.state is State.SUSPENDED else None)
    proxy.refuse()
    assert suspended.wait(SECONDS)
    with pytest.raises(TimedOut, match=r"^no connection to the ensemble: ") as late:
        tree.set(node, b"1", timeout=SHORT)
    assert isinstance(late.value.__cause__, WireprotoError)
    assert not late.value.doubtful


# -- a queue's producer -----------------------------------------------------------------------------------------------------


def test_a_message_that_is_not_repeated_names_its_answer(dial: Any, faults: Faults, topic: str) -> None:
    with dial().producer(topic, repeat=False) as out:
        faults.lose_reply("create")
        receipt = out.send(b"v")
        for _ in range(2):
            with pytest.raises(ConnectionLoss, match=rf"^{UNKNOWN}create /{topic}/entries/.*{AGO}closed by the peer") as lost:
                receipt.position(SECONDS)
            check(lost, f"create /{topic}/entries/")
        faults.lose_reply("create")
        out.send(b"w")
        with pytest.raises(ConnectionLoss) as lost:
            out.flush(SECONDS)
        check(lost, f"create /{topic}/entries/")


def test_a_message_at_which_servers_hang_up_names_the_last_connection(dial: Any, faults: Faults, topic: str) -> None:
    with dial().producer(topic) as out:
        faults.disconnect("create", times=-1)
        with pytest.raises(ConnectionLoss, match=r"closed by the peer.*is it more than the servers' jute\.maxbuffer") as lost:
            out.send(bytes(300_000)).position(SECONDS)
        faults.clear()
        check(lost, f"create /{topic}/entries/")


@pytest.mark.parametrize("call", ["position", "flush", "close"])
def test_a_message_that_is_late_behind_a_lost_answer_names_it(dial: Any, faults: Faults, topic: str, call: str) -> None:
    out = dial().producer(topic)
    faults.lose_reply("create")
    faults.delay("createSession", AWAY)
    receipt = out.send(b"v")
    run = {"position": lambda: receipt.position(SHORT), "flush": lambda: out.flush(SHORT), "close": lambda: out.close(SHORT)}[call]
    text = rf"; {UNKNOWN}create /{topic}/entries/.*{AGO}closed by the peer"
    with pytest.raises(TimedOut, match=text) as late:
        run()
    check(late, f"create /{topic}/entries/")
    if call == "close":
        with pytest.raises(Closed, match=text) as closed:
            receipt.position(SHORT)
        check(closed, f"create /{topic}/entries/")


@pytest.mark.parametrize("call", ["position", "flush"])
def test_a_message_that_is_sent_and_late_names_its_request(dial: Any, faults: Faults, topic: str, call: str) -> None:
    out = dial().producer(topic)
    faults.drop("create")
    receipt = out.send(b"v")
    text = rf"^the message is not acknowledged yet.*: create /{topic}/entries/\S*, sent 1\.\d s ago, is not answered.*not known.*peer 127"
    with pytest.raises(TimedOut, match=text) as late:
        receipt.position(SHORT) if call == "position" else out.flush(SHORT)
    assert late.value.doubtful


# -- asyncio ----------------------------------------------------------------------------------------------------------------


def test_lost_answers_are_named_under_asyncio_too(broker: DevBroker, faults: Faults, topic: str) -> None:
    async def body() -> None:
        async with wireproto.aio.connect(broker.url("zookeeper")) as client:
            tree = client.tree()
            node = await tree.create(f"/d-{time.monotonic_ns()}")
            faults.lose_reply("setData")
            with pytest.raises(ConnectionLoss, match=rf"^{UNKNOWN}setData {node}{AGO}closed by the peer") as lost:
                await tree.set(node, b"1")
            check(lost, f"setData {node}")
            out = client.producer(topic, repeat=False)
            faults.lose_reply("create")
            with pytest.raises(ConnectionLoss, match=rf"^{UNKNOWN}create /{topic}/entries/.*{AGO}closed by the peer") as lost:
                await out.send(b"v")
            check(lost, f"create /{topic}/entries/")
            await tree.exists(node)  # there is a connection again
            faults.lose_reply("create")
            faults.delay("createSession", AWAY)
            with pytest.raises(TimedOut, match=rf"{UNKNOWN}create {node}/new{AGO}closed by the peer") as late:
                await tree.ensure(f"{node}/new", timeout=SHORT)
            check(late, f"create {node}/new")

    asyncio.run(body())
