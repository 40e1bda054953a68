"""What the ZooKeeper client promises over a lost connection: no event is missed, nothing goes back, nothing slips into another session."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from brokers.proxy import FaultProxy
from patience import until
from wireproto.devbroker import DevBroker, Faults
from wireproto.errors import BufferFull, Revoked, TimedOut
from wireproto.net.task import Steps
from wireproto.position import LATEST
from wireproto.zookeeper.acl import OPEN
from wireproto.zookeeper.codes import EventType, NoAuth, SessionExpired
from wireproto.zookeeper.messages import ACL, Id, ReplyHeader, WatcherEvent
from wireproto.zookeeper.multi import Set
from wireproto.zookeeper.session import State

PROTOCOL, SECONDS = "zookeeper", 20.0
CLIENT = {"timeout": SECONDS}


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


# -- one session and the next -----------------------------------------------------------------------------------------------


@pytest.fixture
def expire(broker: DevBroker, faults: Faults) -> Callable[[Any], None]:
    """Ends a client's session; returns when the client knows that its connection is lost, and not yet that its session is."""

    def end(tree: Any, away: float = 1.0) -> None:
        suspended = threading.Event()
        tree.on_state(lambda event: suspended.set() if event.state is State.SUSPENDED else None)
        faults.delay("createSession", away)
        assert broker.call("zookeeper", "expire", tree.session[0])
        assert suspended.wait(SECONDS)

    return end


WAITING: dict[str, Callable[[Any, str], Any]] = {
    "set": lambda tree, node: tree.set(node, b"mine"),
    "set_async": lambda tree, node: tree.set_async(node, b"mine").result(SECONDS),
    "create": lambda tree, node: tree.create(f"{node}/mine", ephemeral=True),
    "create with parents": lambda tree, node: tree.create(f"{node}/a/b", ephemeral=True, parents=True),
    "delete": lambda tree, node: tree.delete(node),
    "multi": lambda tree, node: tree.multi([Set(node, b"mine")]),
    "get": lambda tree, node: tree.get(node),
    "get_async": lambda tree, node: tree.get_async(node).result(SECONDS),
    "children with a watch": lambda tree, node: tree.children(node, watch=tree.watch()),
}


@pytest.mark.parametrize("call", WAITING)
def test_what_waits_while_its_session_ends_is_not_done_in_the_next(dial: Any, node: str, expire: Any, call: str) -> None:
    tree = dial().tree()
    before, ephemerals = tree.session[0], tree.ephemerals()
    expire(tree)
    with pytest.raises(SessionExpired):
        WAITING[call](tree, node)
    assert tree.get(node)[0] == b"0"
    assert tree.session[0] != before
    assert tree.ephemerals() == ephemerals
    assert tree.set(node, b"1").version == 1, "and the next call is one of the new session"


def test_reads_in_flight_end_with_their_session(dial: Any, node: str, expire: Any, faults: Faults) -> None:
    tree = dial().tree()
    faults.drop("getData")
    call = tree.get_async(node)
    expire(tree, 0.0)
    tree.any_session().exists(node)  # the next one is there
    with pytest.raises(SessionExpired):
        call.result(SECONDS)


def test_calls_of_a_scope_end_with_its_session_whenever_they_are_made(dial: Any, node: str, expire: Any) -> None:
    tree = dial().tree()
    with tree.session_scope() as scope:
        assert scope.set(node, b"1").version == 1
        expire(tree, 0.0)
        while tree.session[0] == scope.session[0] and tree.state is not State.CONNECTED:
            tree.any_session().exists(node)
        tree.any_session().exists(node)
        for call in WAITING.values():
            with pytest.raises(SessionExpired):
                call(scope, node)
        with pytest.raises(SessionExpired):
            scope.session_scope().set(node, b"2")
    assert tree.session_scope().set(node, b"2").version == 2


def test_calls_of_any_session_go_into_the_next(dial: Any, node: str, expire: Any) -> None:
    tree = dial().tree()
    expire(tree)
    assert tree.any_session().set(node, b"1").version == 1
    expire(tree)
    assert tree.any_session().get_async(node).result(SECONDS)[0] == b"1"


@pytest.fixture
def jobs(dial: Any) -> Iterator[str]:
    topic = f"q-{time.monotonic_ns()}"
    with dial().producer(topic) as out:
        out.send(b"job").position()
    return topic


def test_a_claim_that_waits_while_its_session_ends_hides_no_message(
    dial: Any, jobs: str, expire: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, other = dial(), dial()
    with client.queue(jobs, "g") as queue:
        real = queue._look

        def look(deadline: float) -> Steps[bool]:
            found = yield from real(deadline)
            monkeypatch.undo()
            expire(client.tree())
            return found

        monkeypatch.setattr(queue, "_look", look)
        delivery = queue.receive(SECONDS)
        assert delivery is not None
        assert delivery.value == b"job"
        assert (
            other.tree().exists(f"/{jobs}/taken/{other.tree().children(f'/{jobs}/taken')[0][0]}").ephemeral_owner
            == client.tree().session[0]
        )
        delivery.ack()
    assert other.tree().children(f"/{jobs}/entries")[0] == other.tree().children(f"/{jobs}/taken")[0] == []


@pytest.mark.parametrize("end", ["ack", "release"])
def test_an_end_that_waits_while_its_session_ends_leaves_anothers_claim_alone(dial: Any, jobs: str, expire: Any, end: str) -> None:
    client, other, third = dial(), dial(), dial()
    with client.queue(jobs, "g") as queue, other.queue(jobs, "g") as heir, third.queue(jobs, "g") as last:
        delivery = queue.receive(SECONDS)
        expire(client.tree())
        again = heir.receive(SECONDS)
        assert again.value == b"job"
        for _ in range(2):  # said each time
            with pytest.raises(Revoked):
                getattr(delivery, end)()
        assert last.receive(0.3) is None, "one worker at a time"
        again.ack()
        assert last.receive(0.3) is None


SECRET = [ACL(perms=31 - 1, id=Id(scheme="world", id="anyone"))]
"""Of a claim that its worker may not read."""


def closed(worker: Any, faults: Faults, away: Callable[[str], None]) -> Callable[[], None]:
    assert worker.receive(SECONDS) is not None
    away("delete")
    return lambda: worker.close(SECONDS)


def unreadable(worker: Any, faults: Faults, away: Callable[[str], None]) -> Callable[[], None]:
    faults.error("getData", NoAuth.code)
    away("delete")

    def receive() -> None:
        with pytest.raises(NoAuth):
            worker.receive(SECONDS)

    return receive


def released(worker: Any, faults: Faults, away: Callable[[str], None]) -> Callable[[], None]:
    delivery = worker.receive(SECONDS)
    away("multi")
    with pytest.raises(TimedOut):
        delivery.release(0.2)
    return lambda: worker.close(SECONDS)


def released_and_acked(worker: Any, faults: Faults, away: Callable[[str], None]) -> Callable[[], None]:
    delivery = worker.receive(SECONDS)
    away("multi")
    with pytest.raises(TimedOut):
        delivery.release(0.2)

    def ack() -> None:
        with pytest.raises(Revoked):
            delivery.ack(SECONDS)

    return ack


@pytest.mark.parametrize(
    ("give_back", "access"),
    [(closed, OPEN), (closed, SECRET), (unreadable, OPEN), (released, OPEN), (released_and_acked, OPEN)],
)
def test_a_claim_that_is_given_back_again_after_a_lost_answer_leaves_anothers_alone(
    dial: Any, jobs: str, faults: Faults, give_back: Callable[..., Callable[[], None]], access: Any
) -> None:
    client, other, third = dial(), dial(), dial()

    def away(message: str) -> None:
        faults.lose_reply(message)
        faults.delay("createSession", 2.0)

    queue, heir, last = client.queue(jobs, "g", acl=access), other.queue(jobs, "g"), third.queue(jobs, "g")
    done: list[None] = []
    again = give_back(queue, faults, away)
    giving = threading.Thread(target=lambda: done.append(again()))
    before = faults.seen("getData")
    giving.start()
    if give_back is unreadable:  # the refusal is for this worker, not for its heir
        until(lambda: faults.seen("getData") > before)
    delivery = heir.receive(SECONDS)
    assert delivery.value == b"job"
    giving.join(SECONDS)
    assert done == [None]
    third.tree().catch_up("/")
    assert last.receive(0.2) is None, "one worker at a time"
    delivery.ack()
    assert other.tree().children(f"/{jobs}/entries")[0] == other.tree().children(f"/{jobs}/taken")[0] == []


def test_what_a_close_had_no_time_to_give_back_is_given_back_behind_it(broker: DevBroker, proxy: FaultProxy, dial: Any, jobs: str) -> None:
    client, other = dial(proxy.url(broker.url("zookeeper"))), dial()
    suspended = threading.Event()
    client.tree().on_state(lambda event: suspended.set() if event.state is State.SUSPENDED else None)
    worker, heir = client.queue(jobs, "g"), other.queue(jobs, "g")
    assert worker.receive(SECONDS) is not None
    proxy.refuse()
    assert suspended.wait(SECONDS)
    with pytest.raises(TimedOut):
        worker.close(0.1)
    worker.close(0.0)
    assert heir.receive(0.1) is None
    proxy.heal()
    assert heir.receive(SECONDS).value == b"job"
    assert client.tree().state is State.CONNECTED


def test_a_queue_that_is_made_again_is_gone_on_with(dial: Any, jobs: str) -> None:
    client, other = dial(), dial()
    with client.queue(jobs, "g") as queue:
        queue.receive(SECONDS).ack()
        assert queue.receive(0.1) is None
        for value in (b"a", b"b"):
            other.admin().delete_topic(jobs)
            assert queue.receive(0.2) is None
            with other.producer(jobs) as out:
                out.send(value).position()
            delivery = queue.receive(SECONDS)
            assert delivery is not None
            assert delivery.value == value
            delivery.ack()


def test_a_queue_that_is_deleted_while_a_claim_is_made_is_gone_on_with(dial: Any, jobs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client, other = dial(), dial()
    with client.queue(jobs, "g") as queue:
        real = queue._look

        def look(deadline: float) -> Steps[bool]:
            found = yield from real(deadline)
            monkeypatch.undo()
            other.admin().delete_topic(jobs)
            return found

        monkeypatch.setattr(queue, "_look", look)
        assert queue.receive(0.5) is None
        with other.producer(jobs) as out:
            out.send(b"again").position()
        assert queue.receive(SECONDS).value == b"again"


# -- the producer -----------------------------------------------------------------------------------------------------------


def test_more_than_a_connection_holds_is_sent_again_after_a_cut(
    broker: DevBroker, faults: Faults, dial: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """32 MiB may wait for answers, of which the engine takes 8 at once: the rest follows, each message once and in order."""
    client, other = dial(), dial()
    topic = f"q-{time.monotonic_ns()}"
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    with client.producer(topic) as out:
        suspended = threading.Event()
        client.tree().on_state(lambda event: suspended.set() if event.state is State.SUSPENDED else None)
        faults.delay("createSession", 0.5)
        broker.kick("zookeeper")
        assert suspended.wait(SECONDS)
        values = [b"%04d" % number + bytes(500_000) for number in range(40)]
        receipts = [out.send(value, timeout=0.0) for value in values]
        out.flush(60.0)
        assert [receipt.position().offset for receipt in receipts] == list(range(40))
        assert unraisable == []
    got = [value[:4] for batch in other.reader(topic, stop=LATEST) for value in batch.values()]
    assert got == [b"%04d" % number for number in range(40)]


def test_a_message_is_taken_or_refused_and_never_both(broker: DevBroker, dial: Any, faults: Faults) -> None:
    """The server reads nothing for a while: what the connection has no room for waits in the producer, and goes out though nobody asks."""
    seen = broker.record("zookeeper")
    client, other = dial(buffer_memory=48 << 20), dial()
    topic = f"q-{time.monotonic_ns()}"
    with client.producer(topic) as out:
        faults.delay("create", 1.0)
        taken = 0
        try:
            for number in range(120):
                out.send(b"%04d" % number + bytes(500_000), timeout=0.0)
                taken += 1
        except BufferFull:
            pass
        assert taken * 500_000 > 47 << 20, "as much as the producer's memory holds, and not as the connection takes"
        seen.wait("create", taken, timeout=60.0, when=lambda request: len(request.frame) > 500_000)
    got = [value[:4] for batch in other.reader(topic, stop=LATEST) for value in batch.values()]
    assert got == [b"%04d" % number for number in range(taken)]


# -- the chroot -------------------------------------------------------------------------------------------------------------


def test_a_chroot_holds_below_a_node_that_is_called_as_the_servers_own(broker: DevBroker, dial: Any, node: str) -> None:
    outside, inside = dial().tree(), dial(broker.url("zookeeper", node.strip("/"))).tree()
    assert inside.exists("/zookeeper") is None
    assert inside.create("/zookeeper/config", b"mine", parents=True) == "/zookeeper/config"
    assert outside.get(f"{node}/zookeeper/config")[0] == b"mine"
    assert inside.get("/zookeeper/config")[0] == b"mine"
    assert inside.multi([Set("/zookeeper/config", b"still mine")])
    assert outside.get(f"{node}/zookeeper/config")[0] == b"still mine"
    assert inside.children("/zookeeper")[0] == ["config"]


def test_the_ensembles_configuration_is_seen_from_a_chroot(broker: DevBroker, dial: Any, node: str) -> None:
    outside, inside = dial().tree(), dial(broker.url("zookeeper", node.strip("/"))).tree()
    inside.create("/zookeeper/config", b"mine", parents=True)
    theirs, mine = inside.watch(), inside.watch()
    assert inside.config(watch=theirs)[0] == outside.get("/zookeeper/config")[0]
    assert inside.get("/zookeeper/config", watch=mine)[0] == b"mine"
    gone, back = threading.Event(), threading.Event()
    inside.on_state(
        lambda event: (
            gone.set() if event.state is State.SUSPENDED else back.set() if gone.is_set() and event.state is State.CONNECTED else None
        )
    )
    broker.kick("zookeeper")
    assert back.wait(SECONDS)
    assert not theirs.fired
    assert not mine.fired
    outside.set(f"{node}/zookeeper/config", b"changed")
    assert mine.wait(SECONDS).path == "/zookeeper/config"
    assert not theirs.fired
    outside.set("/zookeeper/config", b"server.1=changed")
    assert theirs.wait(SECONDS).path == "/zookeeper/config"
