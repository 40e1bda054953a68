"""How the ZooKeeper client keeps to a server and finds the next: slow lines, names with several addresses, servers that hang up."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from struct import pack
from typing import Any

import pytest

import wireproto
from brokers.proxy import FaultProxy
from patience import KEPT, until
from wireproto.devbroker import DevBroker, Faults
from wireproto.errors import AuthError, ConnectError, TimedOut, TlsError
from wireproto.zookeeper.errors import ConnectionLoss
from wireproto.zookeeper.messages import ConnectResponse, ReplyHeader
from wireproto.zookeeper.session import SessionEvent, State

PROTOCOL, SECONDS = "zookeeper", 20.0
CLIENT = {"timeout": SECONDS}


@pytest.fixture
def node(broker: DevBroker) -> str:
    with wireproto.connect(broker.url("zookeeper")) as client:
        return str(client.tree().create(f"/n-{time.monotonic_ns()}", b"0"))


# -- what was received, and when --------------------------------------------------------------------------------------------


def test_a_reply_that_nobody_looked_at_counts_as_seen(broker: DevBroker, dial: Any, node: str) -> None:
    """Else a server that is behind it would take the session, and reads would go back."""
    seen = broker.record("zookeeper")
    tree, other = dial().tree(), dial().tree()
    zxid = other.set(node, b"1").mzxid
    call = tree.get_async(node)
    assert call.wait(SECONDS)
    assert tree.zxid >= zxid
    broker.kick("zookeeper")
    assert tree.any_session().exists(node) is not None
    again = [request.message for request in seen.requests("createSession") if request.message.session_id == tree.session[0]]
    assert again[0].last_zxid_seen >= zxid
    assert call.result(SECONDS)[0] == b"1"


def test_what_is_no_reply_counts_for_nothing(broker: DevBroker, dial: Any, node: str) -> None:
    """An event's transaction may have more events; those of identities and watches tell of none at all."""
    seen = broker.record("zookeeper")
    tree, other = dial(user="ann", password="x").tree(), dial().tree()
    watch = tree.watch()
    before = tree.get(node, watch=watch)[1].mzxid
    zxid = tree.zxid
    assert before <= zxid < 1 << 62
    assert other.set(node, b"1").mzxid > zxid
    assert watch.wait(SECONDS) is not None
    assert tree.zxid == zxid
    broker.kick("zookeeper")
    tree.exists(node)
    again = [request.message for request in seen.requests("createSession") if request.message.session_id == tree.session[0]]
    assert [request.last_zxid_seen for request in again] == [zxid]


def test_a_reply_that_takes_longer_than_a_silent_server_may_is_read(proxy: FaultProxy, broker: DevBroker, dial: Any, node: str) -> None:
    seen = broker.record("zookeeper")
    url = proxy.url(broker.url("zookeeper", f"slow-{time.monotonic_ns()}"))
    tree = dial(url, session_timeout=3.0).tree()
    tree.ensure("/")
    data = bytes(range(256)) * 2000
    tree.set("/", data)
    asked = len(seen.requests("createSession"))
    proxy.slow(150_000)  # 3.4 s; after 2 s without a byte the server would be given up
    begin = time.monotonic()
    assert tree.get("/", timeout=60.0)[0] == data
    assert time.monotonic() - begin > 2.0
    assert len(seen.requests("createSession")) == asked
    assert len(seen.requests("getData")) == 1


# -- order ------------------------------------------------------------------------------------------------------------------


def test_a_read_before_a_write_never_sees_it(dial: Any, faults: Faults, node: str) -> None:
    """The server does both, and their answers are lost: the read may not be repeated behind the write."""
    tree = dial().tree()
    faults.drop("getData", times=2)
    faults.lose_reply("setData")
    before = tree.get_async(node)
    anyway = tree.get_async(node).unordered()
    write = tree.set_async(node, b"1")
    after = tree.get_async(node)
    for call in (before, write):
        for _ in range(2):
            with pytest.raises(ConnectionLoss):
                call.result(SECONDS)
            assert call.done
    assert anyway.result(SECONDS)[0] == b"1"
    assert after.result(SECONDS)[0] == b"1"


def test_a_read_in_flight_is_not_done_behind_a_later_connections_write(dial: Any, faults: Faults, node: str) -> None:
    tree = dial().tree()
    faults.lose_reply("getData")
    read = tree.get_async(node)
    while True:
        try:
            tree.set(node, b"1")
            break
        except ConnectionLoss:
            continue
    with pytest.raises(ConnectionLoss, match="a write behind it"):
        read.result(SECONDS)


def test_an_outcome_stays(dial: Any, faults: Faults, node: str) -> None:
    tree, other = dial().tree(), dial().tree()
    faults.lose_reply("getData")
    call = tree.get_async(node)
    assert call.result(SECONDS)[0] == b"0"
    assert call.done
    other.set(node, b"1")
    assert call.result(0.0)[0] == b"0"


def test_a_call_that_timed_out_may_be_asked_again(dial: Any, faults: Faults, node: str) -> None:
    tree = dial().tree()
    faults.delay("setData", 1.5)
    call = tree.set_async(node, b"1")
    with pytest.raises(TimedOut):
        call.result(0.05)
    assert call.result(SECONDS).version == 1
    assert call.result(0.0).version == 1


# -- the next connection ----------------------------------------------------------------------------------------------------


@contextmanager
def hanging_up(address: tuple[str, int] = ("127.0.0.1", 0), *, greet: bool = True) -> Iterator[tuple[int, list[float], threading.Event]]:
    """A server that hangs up, after the handshake or before: its port, when it was met, and an event for the eighth time."""
    met: list[float] = []
    eighth = threading.Event()
    answer = ConnectResponse(protocol_version=0, time_out=10_000, session_id=7, passwd=bytes(16), read_only=False).encode()
    with socket.create_server(address) as server:

        def serve() -> None:
            while True:
                try:
                    sock, _ = server.accept()
                except OSError:
                    return
                with sock:
                    met.append(time.monotonic())
                    if greet and sock.recv(100):
                        sock.sendall(len(answer).to_bytes(4, "big") + answer)
                if len(met) == 8:
                    eighth.set()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1], met, eighth
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def test_a_server_that_hangs_up_after_the_handshake_is_not_stormed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wireproto.zookeeper.link.random.random", lambda: 0.0)
    with hanging_up() as (port, met, eighth), wireproto.connect(f"zookeeper://127.0.0.1:{port}", timeout=SECONDS):
        assert eighth.wait(60.0)
        assert met[7] - met[0] > 0.7 * (0.05 + 0.1 + 0.2 + 0.4 + 0.8 + 1.0), "each pause is longer than the one before"


@contextmanager
def resetting(times: int, *, read: bool) -> Iterator[int]:
    """The port of a server that resets so many connections, at once or behind their first bytes, as if it had too many, and then serves."""
    answer = ConnectResponse(protocol_version=0, time_out=10_000, session_id=7, passwd=bytes(16), read_only=False).encode()
    kept: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            left = times
            while True:
                try:
                    sock, _ = server.accept()
                except OSError:
                    return
                left -= 1
                if left >= 0:
                    if read:
                        sock.recv(4)
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
                    sock.close()
                elif sock.recv(100):
                    sock.sendall(len(answer).to_bytes(4, "big") + answer)
                    kept.append(sock)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join(5)
            for sock in kept:
                sock.close()


@pytest.mark.parametrize("read", [False, True], ids=["at once", "behind the first bytes"])
def test_a_server_that_takes_no_more_connections_is_asked_again_beyond_a_servers_time(read: bool) -> None:
    with resetting(6, read=read) as port:
        client = wireproto.connect(f"zookeeper://127.0.0.1:{port}", timeout=SECONDS, connect_timeout=0.2)
        assert client.tree().session[0] == 7
        client.close(0.0)


@pytest.mark.parametrize("read", [False, True], ids=["at once", "behind the first bytes"])
def test_a_server_that_takes_no_more_connections_has_its_limit_named(read: bool) -> None:
    with resetting(1000, read=read) as port, pytest.raises(ConnectError, match=r"maxClientCnxns.*127\.0\.0\.1"):
        wireproto.connect(f"zookeeper://127.0.0.1:{port}", timeout=0.5)


@pytest.mark.parametrize("read", [False, True], ids=["at once", "behind the first bytes"])
def test_a_server_that_takes_no_more_connections_has_its_limit_named_under_tls_too(read: bool) -> None:
    """Where it hangs up at once, that may be noticed before TLS has begun."""
    with resetting(1000, read=read) as port, pytest.raises((ConnectError, TlsError), match=r"maxClientCnxns.*127\.0\.0\.1") as raised:
        wireproto.connect(f"zookeeper://127.0.0.1:{port}", timeout=0.5, tls=True)
    if read or isinstance(raised.value, TlsError):
        assert "a port without TLS, or " in raised.value.text


def test_a_handshake_may_be_refused_by_an_order(dial: Any, faults: Any) -> None:
    faults.error("createSession", -119)
    with pytest.raises(ConnectError, match="it has no quorum"):
        dial()
    tree = dial().tree()
    before = tree.session[0]
    states: list[State] = []
    tree.on_state(lambda event: states.append(event.state))
    faults.error("createSession", -119)
    tree.link.current.close("so that it is gone on with")
    assert tree.exists("/") is not None
    assert tree.session[0] == before
    faults.error("createSession", -112)
    tree.link.current.close("so that it is gone on with")
    until(lambda: states[-1:] == [State.CONNECTED] and State.EXPIRED in states, limit=SECONDS)
    assert tree.session[0] != before


def test_a_server_that_says_of_each_session_that_it_is_gone_is_not_stormed(dial: Any, faults: Any, seen: Any) -> None:
    tree = dial().tree()
    asked = len(seen.requests("createSession"))
    faults.error("createSession", -112, times=-1)
    tree.link.current.close("so that it is gone on with")
    with pytest.raises(TimedOut):
        tree.any_session().get("/", timeout=2.0)
    assert len(seen.requests("createSession")) - asked < 30
    faults.clear()
    assert tree.any_session().exists("/") is not None


def test_two_clients_of_one_session_that_take_it_from_each_other_do_not_storm(
    seen: Any, dial: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server cuts the connection that had the session: without pauses, some 200 connections a second."""
    monkeypatch.setattr("wireproto.zookeeper.link.random.random", lambda: 0.0)
    tree = dial().tree()
    dial(session=tree.session)
    met = [request.at for request in seen.wait("createSession", 14, timeout=60.0)]
    assert met[13] - met[1] > 0.7 * (0.05 + 0.1 + 0.2 + 0.4), "each pause of a client is longer than the one before"


@pytest.mark.parametrize(("chance", "least"), [(0.99, 0.45), (0.0, 0.0)])
def test_clients_that_lose_a_server_together_spread(
    broker: DevBroker, dial: Any, monkeypatch: pytest.MonkeyPatch, chance: float, least: float
) -> None:
    seen = broker.record("zookeeper")
    monkeypatch.setattr("wireproto.zookeeper.link.random.random", lambda: chance)
    tree = dial().tree()
    begin = time.monotonic()
    broker.kick("zookeeper")
    tree.exists("/")
    first, second = seen.requests("createSession")
    assert first.at < begin
    assert least <= second.at - begin < least + KEPT


@pytest.mark.parametrize("told", ["ping", "getData"])
def test_a_server_that_wants_an_identity_is_given_up(broker: DevBroker, faults: Faults, dial: Any, told: str) -> None:
    seen = broker.record("zookeeper")
    client = dial(session_timeout=6.0)  # what a busy machine takes from it is no reason to come anew
    tree = client.tree()
    states: list[State] = []
    over, closed = threading.Event(), threading.Event()

    def note(event: SessionEvent) -> None:
        states.append(event.state)
        if event.state is State.AUTH_FAILED:
            over.set()
        elif event.state is State.CLOSED:
            closed.set()

    tree.on_state(note)
    faults.error(told, -124, times=-1)
    if told == "getData":
        with pytest.raises(AuthError, match="SESSIONCLOSEDREQUIRESASLAUTH"):
            tree.get("/")
    assert over.wait(SECONDS)
    for _ in range(3):
        with pytest.raises(AuthError, match="SESSIONCLOSEDREQUIRESASLAUTH"):
            tree.get("/")
    assert len(seen.requests("createSession")) == 1
    client.close()
    assert closed.wait(SECONDS)
    assert [state for state in states if state is not State.SUSPENDED] == [State.CONNECTED, State.AUTH_FAILED, State.CLOSED]
    if told == "ping":  # the end of its connection, which follows, is no news
        assert State.SUSPENDED not in states


def test_what_a_server_says_is_told_before_what_none_says() -> None:
    """One has no quorum and says so, behind the other's port nobody listens; the order does not matter."""
    told = ReplyHeader(xid=0, zxid=0, err=-119).encode()

    def serve(server: socket.socket) -> None:
        while True:
            try:
                sock, _ = server.accept()
            except OSError:
                return
            with sock:
                if sock.recv(100):
                    sock.sendall(len(told).to_bytes(4, "big") + told)

    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=serve, args=(server,), daemon=True)
        thread.start()
        ports = [server.getsockname()[1], nobody.getsockname()[1]]
        for first, second in (ports, ports[::-1]):
            with pytest.raises(ConnectError, match=r"NOTREADONLY.*no quorum"):
                wireproto.connect(f"zookeeper://127.0.0.1:{first},127.0.0.1:{second}", shuffle=False, timeout=5.0)
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def test_an_identity_may_be_given_after_connecting(broker: DevBroker, dial: Any) -> None:
    """Where servers hang up at the first request without one, the client's own must not come first."""
    seen = broker.record("zookeeper")
    tree = dial().tree()
    tree.add_auth("digest", "ann:secret")
    assert [request.name for request in seen.requests()][:2] == ["createSession", "auth"]
