"""A peer that hangs up in the middle of TLS or SASL, as balancers and brokers do that go down: once it has worked it is asked again, and no
record, read or call fails of it. What is refused is refused at once."""

from __future__ import annotations

import contextlib
import itertools
import logging
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import certificates
import wireproto
from certificates import Certificates
from patience import KEPT, until
from wireproto import LATEST
from wireproto._net import Event
from wireproto.devbroker import DevBroker
from wireproto.errors import AuthError, TlsError
from wireproto.kafka import handshake
from wireproto.kafka.codes import SaslAuthenticationFailed
from wireproto.kafka.messages import ListGroupsRequest

SOON = 20.0
USERS = {"alice": "secret"}
_numbers = itertools.count()


class Gate:
    """A balancer: passes bytes on to a port, or closes what it accepted.

    Attributes:
        closing: so many more connections are closed at once. closed: how many were.
    """

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.closing = self.closed = 0
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.closing:
                    self.closing -= 1
                    self.closed += 1
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self._to))
                self._open += [client, server]
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=pair, daemon=True).start()

    @staticmethod
    def _pass(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        for sock in (source, sink):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for sock in (self._listener, *self._open):
            sock.close()


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def broker() -> Iterator[DevBroker]:
    with DevBroker(["kafka"]) as made:
        made.call("kafka", "let_in", USERS)
        yield made
        made.faults("kafka").clear()


@pytest.fixture
def secure(certs: Certificates) -> Iterator[tuple[DevBroker, Gate]]:
    """A broker with TLS, behind a gate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certs.server, certs.server_key)
    with DevBroker(["kafka"], host="127.0.0.1", tls=context) as made:
        gate = Gate(int(made.address("kafka").rpartition(":")[2]))
        yield made, gate
        gate.close()


def everything(client: Any, disturb: Any) -> None:
    """Send, read, be a member and ask, each right after a disturbance of all connections."""
    name = f"hangups-{next(_numbers)}"
    client.admin().create_topic(name)
    with client.producer(name) as producer, client.reader(name) as reader, client.consumer(name, "g", heartbeat_interval=0.1) as member:
        assert producer.send(b"one").position(SOON).offset == 0
        for role in (reader, member):
            assert role.poll(SOON).values() == [b"one"]
        disturb()
        assert producer.send(b"two").position(SOON).offset == 1
        disturb()
        assert reader.poll(SOON).values() == [b"two"]
        disturb()
        assert member.poll(SOON).values() == [b"two"]
        member.commit(timeout=SOON)
        disturb()
        assert name in client.admin().list_topics(timeout=SOON)
        assert sum(place.offset for place in client.admin().positions(name, LATEST, timeout=SOON).values()) == 2


def test_a_broker_that_hangs_up_in_the_middle_of_sasl_is_asked_again(broker: DevBroker) -> None:
    orders: list[Any] = []

    def disturb() -> None:
        orders.append(broker.faults("kafka").disconnect("SaslAuthenticate", times=2))
        orders.append(broker.faults("kafka").disconnect("SaslHandshake", times=1))
        broker.kick("kafka")

    with wireproto.connect(broker.url("kafka"), user="alice", password="secret", timeout=SOON) as client:
        everything(client, disturb)
    assert [order.times for order in orders[:2]] == [0, 0]


def test_a_balancer_that_accepts_and_closes_is_asked_again_under_tls(secure: tuple[DevBroker, Gate], certs: Certificates) -> None:
    broker, gate = secure

    def disturb() -> None:
        gate.closing = 3
        broker.kick("kafka")

    way = {broker.address("kafka"): gate.address}
    with wireproto.connect(broker.url("kafka"), timeout=SOON, tls_ca_file=certs.ca, address_map=way) as client:
        everything(client, disturb)
    assert gate.closed >= 9


def test_what_never_worked_is_told_at_once(broker: DevBroker, secure: tuple[DevBroker, Gate], certs: Certificates) -> None:
    began = time.monotonic()
    broker.faults("kafka").disconnect("SaslAuthenticate", times=-1)
    with (
        wireproto.connect(broker.url("kafka"), user="alice", password="secret") as client,
        pytest.raises(AuthError, match="closed the connection during PLAIN"),
    ):
        client.admin().list_topics()
    behind, gate = secure
    gate.closing = 1 << 30
    with (
        wireproto.connect(behind.url("kafka"), tls_ca_file=certs.ca, address_map={behind.address("kafka"): gate.address}) as client,
        pytest.raises(TlsError, match="is this a port without TLS"),
    ):
        client.admin().list_topics()
    assert time.monotonic() - began < 1.0 + KEPT


def test_a_session_that_ends_costs_a_connection_and_no_record(broker: DevBroker) -> None:
    """A broker that limits sessions (connections.max.reauth.ms) hangs up at the first request behind the time."""
    seen = broker.record("kafka")
    with wireproto.connect(broker.url("kafka"), user="alice", password="secret", timeout=SOON) as client:
        client.admin().create_topic("sessions")
        sent: list[bytes] = []
        found: list[bytes] = []
        with client.producer("sessions") as producer, client.consumer("sessions", "g", heartbeat_interval=0.05) as member:
            until(lambda: member.poll(0.05) is None and member.assignment)  # a join whose session ends is made again
            broker.call("kafka", "let_in", USERS, lifetime=0.2)
            broker.kick("kafka")
            begun = time.monotonic()
            while len(seen.requests("SaslAuthenticate")) < 20 or len(found) < len(sent):
                assert time.monotonic() - begun < 60.0, (len(sent), len(found))
                if len(seen.requests("SaslAuthenticate")) < 20:
                    sent.append(b"%d" % len(sent))
                    assert producer.send(sent[-1]).position(SOON).offset == len(sent) - 1
                batch = member.poll(0.05)
                found += batch.values() if batch is not None else []
            assert found == sent
            assert len(seen.requests("SyncGroup")) == 1, "the membership outlives its connections"


def test_a_session_that_is_over_ends_no_request(broker: DevBroker) -> None:
    """A call of its own is not repeated, so the connection is left in time. Those that have one under way keep it until then."""
    lifetime = 1.0  # what is sent has as long to be served, however busy the machine
    broker.call("kafka", "let_in", USERS, lifetime=lifetime)
    with wireproto.connect(broker.url("kafka"), user="alice", password="secret", timeout=SOON) as client:
        for _ in range(4):
            assert not client.request(ListGroupsRequest()).error_code
            over = Event(client.loop)
            client.loop.call_at(time.monotonic() + lifetime, over.set)
            over.wait(time.monotonic() + SOON)
        until(lambda: len(client.loop.connections) <= 1, "what was left is closed")


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_a_session_that_ends_under_a_producer_costs_it_nothing(broker: DevBroker, acks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It changes connections before the end, with nothing on its way: what nobody acknowledges is not lost, and what has no numbers is not
    there twice."""
    monkeypatch.setattr(handshake, "_USED", (0.1, 0.1))  # what is under way has 3.6 s to be served here, however busy the machine
    topic = f"ends-{acks}"
    broker.call("kafka", "let_in", USERS, lifetime=4.0)
    seen = broker.record("kafka")
    with wireproto.connect(broker.url("kafka"), user="alice", password="secret", timeout=SOON) as client:
        client.admin().create_topic(topic)
        sent: list[bytes] = []
        with client.producer(topic, acks=acks, linger=0.0) as producer:
            begun = time.monotonic()
            while len({request.connection for request in seen.requests("Produce")}) < 4:
                assert time.monotonic() - begun < 60.0
                before = len(seen.requests("Produce"))
                for _ in range(10):
                    sent.append(b"%d" % len(sent))
                    producer.send(sent[-1])
                producer.flush(SOON)
                seen.wait("Produce", before + 1, timeout=SOON)  # a pace, where nobody answers
        with client.reader(topic, stop=LATEST) as reader:
            assert [value for batch in reader for value in batch.values()] == sent


def test_a_reader_leaves_a_connection_before_its_session_ends(
    broker: DevBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also the reader of one partition, whose next Fetch leaves by the connection that the last answer came by."""
    monkeypatch.setattr(handshake, "_USED", (0.1, 0.1))
    broker.call("kafka", "let_in", USERS, lifetime=4.0)
    seen = broker.record("kafka")
    with (
        caplog.at_level(logging.INFO, "wireproto.kafka"),
        wireproto.connect(broker.url("kafka"), user="alice", password="secret", timeout=SOON, max_wait=0.05) as client,
    ):
        client.admin().create_topic("left")
        with client.producer("left") as producer, client.reader("left") as reader:
            begun, sent, found = time.monotonic(), 0, 0
            while len({request.connection for request in seen.requests("Fetch")}) < 4:
                assert time.monotonic() - begun < 60.0
                producer.send(b"x").position(SOON)
                sent += 1
                while found < sent:
                    batch = reader.poll(SOON)
                    found += len(batch) if batch is not None else 0
    assert [line for line in caplog.messages if "ended: " in line and "its session" not in line and "another one" not in line] == []


def test_a_password_that_is_refused_is_final_also_after_it_has_worked(broker: DevBroker) -> None:
    with wireproto.connect(broker.url("kafka"), user="alice", password="secret", timeout=SOON) as client:
        client.admin().create_topic("refused")
        with client.producer("refused", delivery_timeout=60.0) as producer:
            producer.send(b"one").position(SOON)
            broker.call("kafka", "let_in", {"alice": "another"})
            broker.kick("kafka")
            began = time.monotonic()
            with pytest.raises(SaslAuthenticationFailed):
                producer.send(b"two").position(SOON)
            with pytest.raises(SaslAuthenticationFailed):
                client.admin().list_topics(timeout=SOON)
            assert time.monotonic() - began < 3.0 + KEPT
            producer.flush(SOON)
