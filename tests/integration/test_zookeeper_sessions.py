"""Sessions on real ZooKeeper servers: resumed, expired, handed over, kept alive; watches and identities over a reconnect; TLS."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

import wireproto
import wireproto.aio
from brokers import ZooKeeper
from patience import LATE, LONG, until
from wireproto.errors import ConnectError, Disconnected, TimedOut, TlsError, TransportError, ValueUnsupported
from wireproto.zookeeper import acl as access
from wireproto.zookeeper.codes import AuthFailed, EventType, KeeperState, NoAuth, NoNode, SessionExpired
from wireproto.zookeeper.errors import ConnectionLoss
from wireproto.zookeeper.messages import ReplyHeader, WatcherEvent
from wireproto.zookeeper.multi import Set
from wireproto.zookeeper.session import SessionEvent, State

SECONDS = 20.0
ONE, THREE, SECURE = (pytest.mark.parametrize("broker", [f"zookeeper-3.9.5{name}"], indirect=True) for name in ("", "-ensemble", "-secure"))


@pytest.fixture
def dial(broker: ZooKeeper) -> Iterator[Callable[..., Any]]:
    opened: list[Any] = []

    def make(url: str = "", **options: Any) -> Any:
        opened.append(wireproto.connect(url or broker.url, **options))
        return opened[-1]

    yield make
    for client in opened:
        client.close(5.0)


@pytest.fixture
def cut_off(broker: ZooKeeper, fault_proxy: Any, dial: Any) -> Callable[..., Any]:
    """A client behind the fault proxy."""

    def make(**options: Any) -> Any:
        return dial(fault_proxy.url(broker.url), address_map=fault_proxy.address_map(broker.addresses), **options)

    return make


@pytest.fixture
def node(dial: Any, request: pytest.FixtureRequest) -> Iterator[str]:
    tree = dial().tree()
    path = tree.create(f"/s-{time.monotonic_ns()}", b"0")
    yield path
    tree.delete(path, recursive=True)


LOST = r"^whether it was done is not known: the answer to setData {}, sent [0-9.]+ s ago, was lost: Disconnected: .*peer 127\.0\.0\.1:"


@ONE
@pytest.mark.parametrize("kept", ["sync", "asyncio"])
def test_a_write_whose_server_is_killed_names_what_was_lost(broker: ZooKeeper, dial: Any, node: str, kept: str) -> None:
    async def awaited() -> None:
        async with wireproto.aio.connect(broker.url) as client:
            tree = client.tree()
            await tree.get(node)
            broker.pause()
            try:
                write = asyncio.ensure_future(tree.set(node, b"1"))
                await asyncio.sleep(0.1)  # it is sent in the first turn
            finally:
                broker.kill()
            try:
                with pytest.raises(ConnectionLoss, match=LOST.format(node)) as lost:
                    await write
                assert isinstance(lost.value.__cause__, Disconnected)
            finally:
                broker.start()

    if kept == "asyncio":
        asyncio.run(awaited())
        return
    tree = dial().tree()
    tree.get(node)
    broker.pause()
    try:
        write = tree.set_async(node, b"1")
    finally:
        broker.kill()
    try:
        with pytest.raises(ConnectionLoss, match=LOST.format(node)) as lost:
            write.result(SECONDS)
        assert isinstance(lost.value.__cause__, Disconnected)
        with pytest.raises(TimedOut, match=r"^no connection to the ensemble: ") as late:
            tree.ensure(f"{node}/new", timeout=2.0)
        assert str(late.value.__cause__) in str(late.value)
        assert isinstance(late.value.__cause__, TransportError)
        assert not late.value.doubtful
    finally:
        broker.start()


@ONE
def test_a_write_whose_server_is_frozen_names_its_silence(broker: ZooKeeper, dial: Any, node: str) -> None:
    tree = dial(session_timeout=4.0).tree()
    out = dial(session_timeout=4.0).producer(f"{node}/jobs", repeat=False)
    out.send(b"there").position(SECONDS)
    broker.pause()
    try:
        receipt = out.send(b"v")
        with pytest.raises(TimedOut, match=rf"^no reply in time: setData {node}, sent 0.5 s ago; the server has sent nothing for ") as late:
            tree.set(node, b"1", timeout=0.5)
        assert late.value.doubtful
        silence = r"no byte from the server for [0-9.]+ s, of a session timeout of [0-9.]+ s"
        with pytest.raises(ConnectionLoss, match=f"setData {node}, .* was lost: Disconnected: {silence}") as lost:
            tree.set(node, b"2", timeout=SECONDS)
        assert isinstance(lost.value.__cause__, Disconnected)
        with pytest.raises(ConnectionLoss, match=rf"the answer to create {node}/jobs/entries/.* was lost: Disconnected: {silence}") as lost:
            receipt.position(SECONDS)
        assert isinstance(lost.value.__cause__, Disconnected)
    finally:
        broker.resume()
    out.close()


def states(tree: Any) -> tuple[list[State], Callable[..., bool]]:
    """Every state behind that of now, and a function that waits for one of some."""
    seen: list[State] = []
    told: list[SessionEvent] = []
    news = threading.Condition()

    def note(event: SessionEvent) -> None:
        with news:
            if told:
                seen.append(event.state)
            told.append(event)
            news.notify_all()

    def wait(*any_of: State) -> bool:
        with news:
            return news.wait_for(lambda: not set(seen).isdisjoint(any_of), SECONDS)

    tree.on_state(note)
    return seen, wait


@ONE
def test_a_session_is_resumed_after_a_cut(cut_off: Any, dial: Any, fault_proxy: Any, node: str) -> None:
    tree, other = cut_off().tree(), dial().tree()
    before = tree.session
    tree.create(f"{node}/mine", ephemeral=True)
    changed, listed, created, quiet = (tree.watch() for _ in range(4))
    tree.get(node, watch=changed)
    tree.children(node, watch=listed)
    tree.exists(f"{node}/new", watch=created)
    tree.get(f"{node}/mine", watch=quiet)
    seen, wait = states(tree)
    fault_proxy.refuse()
    assert wait(State.SUSPENDED)
    other.set(node, b"1")
    other.create(f"{node}/new")
    fault_proxy.heal()
    assert tree.get(node, timeout=SECONDS)[0] == b"1"
    assert tree.session == before
    assert wait(State.CONNECTED)
    assert seen[:2] == [State.SUSPENDED, State.CONNECTED]
    assert [watch.wait(SECONDS).type for watch in (changed, listed, created)] == [
        EventType.NODE_DATA_CHANGED,
        EventType.NODE_CHILDREN_CHANGED,
        EventType.NODE_CREATED,
    ]
    assert not quiet.fired
    other.set(f"{node}/mine", b"now")
    assert quiet.wait(SECONDS) is not None
    assert other.exists(f"{node}/mine").ephemeral_owner == before[0]


@ONE
def test_reads_in_flight_are_sent_again_and_writes_are_not(cut_off: Any, dial: Any, fault_proxy: Any, node: str) -> None:
    tree, other = cut_off().tree(), dial().tree()
    fault_proxy.stall("down")
    before = [tree.get_async(node) for _ in range(10)]
    write = tree.set_async(node, b"perhaps")
    behind = [tree.get_async(node) for _ in range(10)]
    watch = other.watch()
    if other.get(node, watch=watch)[0] != b"perhaps":
        assert watch.wait(SECONDS) is not None  # it took effect, though nobody was told
    fault_proxy.cut()
    fault_proxy.heal()
    assert [read.result(SECONDS)[0] for read in behind] == [b"perhaps"] * 10
    for call in (*before, write):  # a read that was sent before the write must not see it
        with pytest.raises(ConnectionLoss):
            call.result(SECONDS)
    assert tree.set(node, b"sure").version == 2


@ONE
def test_watches_that_stay_are_set_again_after_a_cut(cut_off: Any, dial: Any, fault_proxy: Any, node: str) -> None:
    tree, other = cut_off().tree(), dial().tree()
    seen: list[tuple[str, EventType]] = []
    news = threading.Condition()

    def note(event: Any) -> None:
        with news:
            seen.append((event.path, event.type))
            news.notify_all()

    tree.add_watch(node, note)
    tree.create(f"{node}/deep/er", parents=True)
    tree.add_watch(f"{node}/deep", note, recursive=True)
    _, wait = states(tree)
    fault_proxy.cut()
    assert wait(State.CONNECTED)
    seen.clear()
    for _ in range(2):
        other.set(node, b"x")
        other.set(f"{node}/deep/er", b"x")
        other.create(f"{node}/deep/er/est", ephemeral=True)
        other.delete(f"{node}/deep/er/est")
    expected = [
        (node, EventType.NODE_DATA_CHANGED),
        (f"{node}/deep/er", EventType.NODE_DATA_CHANGED),
        (f"{node}/deep/er/est", EventType.NODE_CREATED),
        (f"{node}/deep/er/est", EventType.NODE_DELETED),
    ]
    with news:
        assert news.wait_for(lambda: len(seen) >= 8, SECONDS)
    assert seen == expected * 2


@ONE
def test_a_cut_among_the_events_of_one_transaction_costs_none_of_them(cut_off: Any, dial: Any, fault_proxy: Any, node: str) -> None:
    tree, other = cut_off().tree(), dial().tree()
    names = [other.create(f"{node}/{number:02d}") for number in range(20)]
    for told in (1, 7, 19):
        watches = [tree.watch() for _ in names]
        for name, watch in zip(names, watches, strict=True):
            tree.get(name, watch=watch)
        event = ReplyHeader(xid=-1, zxid=1, err=0).encode() + WatcherEvent(type=3, state=3, path=names[0]).encode()
        fault_proxy.cut_after(told * (4 + len(event)) + 10)  # so many are told, and a part of the next
        other.multi([Set(name, b"1") for name in names])
        deadline = time.monotonic() + SECONDS
        got = [watch.wait(deadline - time.monotonic()) for watch in watches]
        assert [event and event.path for event in got] == names


@ONE
def test_an_expired_session_says_so_and_a_new_one_is_opened(cut_off: Any, dial: Any, fault_proxy: Any, node: str) -> None:
    client = cut_off(session_timeout=4.0)
    tree, other = client.tree(), dial().tree()
    assert tree.session_timeout == pytest.approx(4.0)
    before = tree.session[0]
    tree.create(f"{node}/mine", ephemeral=True)
    gone, told = other.watch(), tree.watch()
    other.exists(f"{node}/mine", watch=gone)
    tree.get(node, watch=told)
    seen, wait = states(tree)
    fault_proxy.refuse()
    assert gone.wait(SECONDS) is not None
    with ThreadPoolExecutor(1) as pool:
        before_it = tree._link.writes
        waits = pool.submit(tree.set, node, b"1", timeout=SECONDS)
        until(lambda: tree._link.writes > before_it)  # it waits already: the next session may be there as soon as one can be
        fault_proxy.heal()
        with pytest.raises(SessionExpired):  # what waits is of the session that is over
            waits.result(LONG)
    assert tree.get(node, timeout=SECONDS)[0] == b"0"
    assert tree.session[0] != before
    assert wait(State.CONNECTED)
    event = told.wait(SECONDS)
    assert event is not None
    assert (event.type, event.state) == (EventType.NONE, KeeperState.EXPIRED)
    assert seen[:4] == [State.SUSPENDED, State.LOST, State.EXPIRED, State.CONNECTED]
    with pytest.raises(NoNode):
        tree.get(f"{node}/mine")


@ONE
def test_a_silent_server_is_left_in_time(cut_off: Any, fault_proxy: Any, node: str) -> None:
    tree = cut_off(session_timeout=18.0).tree()
    _, wait = states(tree)
    begin = time.monotonic()
    fault_proxy.stall()
    assert wait(State.SUSPENDED, State.LOST)  # LOST at once where this process stood still meanwhile
    assert time.monotonic() - begin < 18.0, "the session would be gone before another server could be reached"
    fault_proxy.heal()
    assert tree.get(node, timeout=SECONDS)[0] == b"0"


@ONE
def test_a_call_keeps_its_timeout_while_nobody_can_be_reached(cut_off: Any, fault_proxy: Any, node: str) -> None:
    tree = cut_off().tree()
    fault_proxy.refuse()
    for call in (lambda: tree.get(node, timeout=0.5), lambda: tree.set(node, b"", timeout=0.5)):
        begin = time.monotonic()
        with pytest.raises((TimedOut, ConnectionLoss)):
            call()
        assert time.monotonic() - begin < 0.5 + 2 * LATE


@ONE
def test_an_idle_session_lives(dial: Any, node: str) -> None:
    tree = dial(session_timeout=8.0).tree()  # half of it is longer than a loaded server stands still
    before = tree.session
    tree.create(f"{node}/mine", ephemeral=True)
    gone = tree.watch()
    tree.exists(f"{node}/mine", watch=gone)
    assert gone.wait(17.0) is None
    assert tree.session == before


@ONE
def test_a_session_is_handed_over(dial: Any, node: str) -> None:
    first = dial()
    first.tree().create(f"{node}/mine", ephemeral=True)
    second = dial(session=first.tree().session)
    assert second.tree().session == first.tree().session
    assert second.tree().ephemerals(node) == [f"{node}/mine"]


@ONE
def test_thousands_of_watches_are_armed_again_in_packets(cut_off: Any, dial: Any, fault_proxy: Any, node: str) -> None:
    tree, other = cut_off().tree(), dial().tree()
    names = [f"{node}/{'long' * 20}-{number:05d}" for number in range(4000)]  # 340 kB of paths: three packets
    for call in [other.create_async(name) for name in names]:
        call.result(SECONDS)
    fired: list[str] = []
    everything = threading.Event()

    def note(event: Any) -> None:
        fired.append(event.path)
        if len(fired) == len(names):
            everything.set()

    for call in [tree.get_async(name, watch=note) for name in names]:
        call.result(SECONDS)
    _, wait = states(tree)
    fault_proxy.cut()
    assert wait(State.CONNECTED)
    for call in [other.set_async(name, b"x") for name in names]:
        call.result(SECONDS)
    assert everything.wait(SECONDS), f"{len(fired)} of {len(names)}"
    assert sorted(fired) == names


@ONE
def test_identities_are_given_again_before_anything_else(cut_off: Any, dial: Any, fault_proxy: Any, node: str) -> None:
    tree = cut_off().tree()
    tree.add_auth("digest", "ann:secret")
    tree.create(f"{node}/hers", b"s", acl=access.CREATOR_ALL)
    with pytest.raises(NoAuth) as refused:
        dial().tree().get(f"{node}/hers")
    assert refused.value.node == f"{node}/hers"
    calls = [tree.get_async(f"{node}/hers") for _ in range(20)]
    fault_proxy.cut()
    assert all(call.result(SECONDS)[0] == b"s" for call in calls)


@ONE
def test_an_auth_reply_that_overtakes_does_no_harm(dial: Any, node: str) -> None:
    tree = dial().tree()
    for number in range(20):
        calls = [tree.get_async(node) for _ in range(50)]
        tree.add_auth("digest", f"user{number}:x")
        assert [call.result(SECONDS)[0] for call in calls] == [b"0"] * 50


@ONE
def test_an_unknown_scheme_is_refused_and_the_client_lives(dial: Any, node: str) -> None:
    tree = dial().tree()
    with pytest.raises(AuthFailed):
        tree.add_auth("telepathy", "x")
    assert tree.get(node, timeout=SECONDS)[0] == b"0"


@ONE
def test_a_chroot_is_invisible(broker: ZooKeeper, dial: Any, node: str) -> None:
    outside, inside = dial().tree(), dial(f"{broker.url}{node}").tree()
    assert inside.create("/a/b", b"1", parents=True) == "/a/b"
    assert outside.get(f"{node}/a/b")[0] == b"1"
    assert inside.create("/a/s-", sequence=True) == "/a/s-0000000001"
    watch = inside.watch()
    assert inside.get("/", watch=watch)[0] == b"0"
    outside.set(node, b"1")
    assert watch.wait(SECONDS).path == "/"
    assert inside.sync("/a") == "/a"
    assert inside.exists("/zookeeper") is None
    assert inside.config(timeout=SECONDS) == outside.get("/zookeeper/config", timeout=SECONDS)
    inside.create("/e", ephemeral=True)
    assert inside.ephemerals() == ["/e"]
    inside.delete("/a", recursive=True)
    assert outside.children(node)[0] == ["e"]


@ONE
def test_what_no_server_takes_is_refused_before_it_is_sent(dial: Any, node: str) -> None:
    tree = dial().tree()
    with pytest.raises(ValueUnsupported, match=r"jute\.maxbuffer"):
        tree.set(node, b"x" * 1_100_000)
    for path in ("", "a", "/a/", "//a", "/a/../b", "/\x00", "/\uf8ff"):
        with pytest.raises(ValueUnsupported):
            tree.get(path)
    assert tree.get(node)[0] == b"0"


@THREE
def test_a_killed_leader_costs_no_session_and_no_watch(broker: ZooKeeper, dial: Any, node: str) -> None:
    clients = [dial(session_timeout=10.0) for _ in range(3)]
    trees = [client.tree() for client in clients]
    before = [tree.session for tree in trees]
    watches = []
    for number, tree in enumerate(trees):
        tree.create(f"{node}/e{number}", ephemeral=True)
        watch = tree.watch()
        tree.exists(f"{node}/flag", watch=watch)
        watches.append(watch)
    lost = broker.leader()
    broker.kill(lost)
    try:
        begin = time.monotonic()
        for number, tree in enumerate(trees):
            while True:
                try:
                    tree.set(f"{node}/e{number}", b"after", timeout=LONG)
                    break
                except ConnectionLoss:
                    assert time.monotonic() - begin < LONG
        assert [tree.session for tree in trees] == before
        trees[0].create(f"{node}/flag")
        assert all(watch.wait(SECONDS) is not None for watch in watches)
    finally:
        broker.start(lost)


@THREE
def test_a_close_in_an_election_ends_the_session(broker: ZooKeeper, dial: Any, node: str) -> None:
    client = dial(session_timeout=60.0)
    client.tree().create(f"{node}/lock", ephemeral=True)
    lost = broker.leader()
    broker.kill(lost)
    try:
        begin = time.monotonic()
        client.close()
        other = dial().tree()
        other.sync(node)
        assert other.exists(f"{node}/lock") is None
        assert time.monotonic() - begin < 50.0  # the session would have lived on for 60
    finally:
        broker.start(lost)


@SECURE
def test_tls_with_and_without_a_client_certificate(broker: ZooKeeper, dial: Any) -> None:
    certificates = broker.certificates
    assert certificates is not None
    url = broker.urls["tls"]
    assert dial(url, tls_ca_file=str(certificates.ca)).tree().exists("/zookeeper") is not None
    named = dial(url, tls_ca_file=str(certificates.ca), tls_cert_file=str(certificates.client), tls_key_file=str(certificates.client_key))
    assert any(who.auth_scheme == "x509" for who in named.tree().whoami())
    calls = [named.tree().get_async("/zookeeper") for _ in range(1000)]
    assert len([call.result(SECONDS) for call in calls]) == 1000
    with pytest.raises(TlsError):
        dial(url, tls_ca_file=str(certificates.stranger))
    with pytest.raises(TransportError, match="TLS"):
        dial(url.replace("+tls", ""), timeout=3.0, connect_timeout=2.0)
    with pytest.raises((TlsError, ConnectError, TimedOut)):
        dial(broker.url.replace("://", "+tls://"), timeout=5.0)


@ONE
def test_every_request_record_can_be_sent_as_it_is(dial: Any, node: str) -> None:
    from wireproto.zookeeper import messages as m

    client = dial()
    assert client.request(m.GetDataRequest(path=node, watch=False)).data == b"0"
    made = client.request(m.CreateRequest(path=f"{node}/r", data=b"r", acl=access.OPEN, flags=0), operation="create2")
    assert (made.path, made.stat.data_length) == (f"{node}/r", 1)
    assert client.request(m.DeleteRequest(path=f"{node}/r", version=-1)) is None
    assert client.request(m.GetChildrenRequest(path=node, watch=False)).children == ()
    with pytest.raises(NoNode):
        client.request(m.GetACLRequest(path=f"{node}/r"))


@ONE
def test_a_closed_client_ends_its_session_at_once(dial: Any, broker: ZooKeeper, node: str) -> None:
    tree = dial().tree()
    watch = tree.watch()
    with closing(wireproto.connect(broker.url, session_timeout=30.0)) as short:
        short.tree().create(f"{node}/mine", ephemeral=True)
        tree.exists(f"{node}/mine", watch=watch)
    assert watch.wait(15.0) is not None, "the session would have ended by itself after 30 s"
