"""The options that every client has, TLS apart: each one changes what is dialled, sent, read or waited for."""

from __future__ import annotations

import importlib
import pkgutil
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

import wireproto
from brokers.proxy import FaultProxy
from patience import KEPT
from wireproto._net import Mailbox
from wireproto.devbroker import DevBroker
from wireproto.errors import TimedOut
from wireproto.net.options import CommonOptions
from wireproto.net.runtime import Runtime

PROTOCOLS = ("kafka", "pulsar", "rocketmq", "zookeeper")


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker() as made:
        yield made


@pytest.fixture
def loaded(protocol: str) -> None:
    """The first client of a protocol loads its adapter, for which a busy machine takes seconds that belong to no call's time."""
    adapter = importlib.import_module(f"wireproto.{protocol}")
    for module in pkgutil.walk_packages(adapter.__path__, f"{adapter.__name__}."):
        importlib.import_module(module.name)


@pytest.fixture(params=["does not accept", "accepts and says nothing"])
def silent(request: pytest.FixtureRequest) -> Iterator[str]:
    """Address of a server that answers no attempt, or no request."""
    accepts = request.param.startswith("accepts")
    with socket.create_server(("127.0.0.1", 0), backlog=8 if accepts else 0) as server:
        fillers = [socket.socket() for _ in range(0 if accepts else 3)]
        for filler in fillers:  # its queue is full then: further attempts are not answered
            filler.setblocking(False)
            filler.connect_ex(server.getsockname())
        yield f"127.0.0.1:{server.getsockname()[1]}"
        for filler in fillers:
            filler.close()


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_one_connection_has_its_time_and_the_next_one_the_callers(protocol: str, silent: str) -> None:
    """What was not answered in `connect_timeout` is tried again, until `timeout` is over."""
    begin = time.monotonic()
    with pytest.raises(TimedOut), wireproto.connect(f"{protocol}://{silent}", connect_timeout=0.3, timeout=2.0) as client:
        client.admin().list_topics(timeout=2.0)
    assert 0.9 <= time.monotonic() - begin < 2.0 + KEPT


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_moment_of_silence_costs_an_attempt_and_no_call(broker: DevBroker, protocol: str) -> None:
    """What the first connection asks is taken and never answered; there is time enough for another one."""
    with FaultProxy() as proxy:
        proxy.drop()
        threading.Timer(1.2, proxy.heal).start()
        address = broker.address(protocol)
        url = broker.url(protocol).replace(address, proxy.through(address))
        with wireproto.connect(url, connect_timeout=0.8, timeout=30.0, address_map={address: proxy.through(address)}) as client:
            assert client.admin().list_topics(timeout=30.0) is not None


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_call_without_a_timeout_has_the_clients(protocol: str, silent: str) -> None:
    begin = time.monotonic()
    with pytest.raises(TimedOut), wireproto.connect(f"{protocol}://{silent}", connect_timeout=20.0, timeout=0.3) as client:
        client.producer("topic")
    assert 0.3 <= time.monotonic() - begin < 0.3 + KEPT


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_addresses_are_rewritten_before_dialling(broker: DevBroker, protocol: str) -> None:
    port = broker.address(protocol).rpartition(":")[2]
    query = ""
    if protocol == "pulsar":
        query = f"?admin=http://broker.invalid:{broker.address('pulsar', 'admin').rpartition(':')[2]}"
    with wireproto.connect(f"{protocol}://broker.invalid:{port}{query}", address_map={"broker.invalid": "127.0.0.1"}) as client:
        assert client.admin().list_topics() is not None


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_advertised_addresses_are_rewritten_too(protocol: str) -> None:
    """What a broker says of itself is where nobody is; the map leads back to it."""
    asked: list[Any] = []
    with DevBroker([protocol]) as broker:

        def led(address: tuple[str, int]) -> tuple[str, int]:
            asked.append(address)
            return address

        url = broker.url(protocol)
        with wireproto.connect(url, address_map=led) as client:
            if protocol != "zookeeper":
                client.admin().create_topic("mapped", partitions=1)
            with client.producer("mapped") as out:
                out.send(b"").position()
        wanted = {broker.listeners(protocol)[name] for name in broker.listeners(protocol)}
    assert {f"{host}:{port}" for host, port in asked} == wanted


def test_the_clients_name_is_told_to_brokers(broker: DevBroker) -> None:
    seen = broker.record("kafka")
    with wireproto.connect(broker.url("kafka"), client_id="ann") as client:
        client.admin().list_topics()
        assert {request.header.client_id for request in seen.requests() if request.name != "ApiVersions"} == {"ann"}
    seen = broker.record("rocketmq")
    with wireproto.connect(broker.url("rocketmq"), client_id="ann") as client:
        client.admin().create_topic("named", partitions=1)
        with client.consumer("named", "group-named") as consumer:
            consumer.poll(0.1)
            (beat, *_) = seen.wait("HeartBeat", 1, timeout=20.0)
        assert b'"clientID":"ann"' in bytes(beat.header.body)  # of the client itself; its members add what makes them differ


class Client(Runtime[CommonOptions]):
    protocol = "pulsar"


@pytest.mark.parametrize(("memory", "all_of_it"), [(1 << 16, False), (64 << 20, True)])
def test_what_is_read_ahead_is_bounded(memory: int, all_of_it: bool) -> None:
    """A peer pushes what nobody takes: it is read up to `fetch_memory`, the rest stays with the peer."""
    push = bytes.fromhex("0807 3a04 0805 1000")  # CommandSendReceipt of producer 5
    frame = struct.pack(">II", 4 + len(push) + 100_000, len(push)) + push + bytes(100_000)
    total = 320 * len(frame)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        closing(Client(CommonOptions(fetch_memory=memory))) as client,
        closing(client.pool.get(server.getsockname(), deadline=time.monotonic() + 20.0)) as conn,
    ):
        from wireproto._net import producer_channel

        box = Mailbox(client.loop)
        conn.route(producer_channel(5), box)
        peer, _ = server.accept()
        peer.settimeout(1.0 if not all_of_it else 20.0)
        sent = 0
        with peer:
            try:
                while sent < total:
                    sent += peer.send(frame[sent % len(frame) :])
            except TimeoutError:
                pass
            assert (sent == total) is all_of_it
            if not all_of_it:
                assert sent < total / 2, "what the kernel holds, and 64 kB"
                taken = threading.Event()

                def take() -> None:
                    while box.get(time.monotonic() + 1.0) is not None:
                        taken.set()

                taker = threading.Thread(target=take)
                taker.start()
                peer.settimeout(20.0)
                peer.sendall(frame[sent % len(frame) :])  # goes on when somebody takes
                assert taken.wait(20.0)
                taker.join(20.0)
