"""What waiting does not mend is told when it is known, to a client that was never connected; one that was goes on trying.

Each client has minutes for what it is asked, and is to say within seconds why it cannot be: `SOON` holds on a busy machine, too.
"""

from __future__ import annotations

import re
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

import certificates
import wireproto
from brokers import ports
from kafka_relay import Relay
from wireproto.devbroker import DevBroker
from wireproto.errors import Disconnected, TimedOut, TlsError, TransportError, Unreachable, WireprotoError
from wireproto.net.retry import Policy, run

PROTOCOLS = ("kafka", "pulsar", "rocketmq", "zookeeper")
LONG, SOON = 120.0, 30.0


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker() as made:
        yield made


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevBroker]:
    made = certificates.make(tmp_path_factory.mktemp("certificates"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(made.server, made.server_key)
    with DevBroker(tls=context) as broker:
        yield broker


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def use(url: str, **options: Any) -> None:
    """Connect, and ask for one thing."""
    with wireproto.connect(url, timeout=LONG, **options) as client:
        client.admin().list_topics(timeout=LONG)


def told(url: str, **options: Any) -> WireprotoError:
    """What becomes of it, which is to be known soon."""
    began = time.monotonic()
    with pytest.raises(WireprotoError) as caught:
        use(url, **options)
    assert time.monotonic() - began < SOON, caught.value
    return caught.value


def test_a_name_that_nobody_knows(protocol: str) -> None:
    why = told(f"{protocol}://nowhere.invalid:1")
    assert isinstance(why, TransportError)
    assert "nowhere.invalid does not resolve" in str(why)


def test_nobody_listens_at_any_address(protocol: str) -> None:
    taken = [ports.take() for _ in range(2)]
    try:
        why = told(f"{protocol}://" + ",".join(f"127.0.0.1:{port}" for port in taken))
    finally:
        for port in taken:
            ports.release(port)
    assert isinstance(why, TransportError)
    assert "refused" in str(why)


def test_one_address_that_answers_is_enough(protocol: str, broker: DevBroker) -> None:
    port = ports.take()
    try:
        use(f"{protocol}://127.0.0.1:{port},{broker.address(protocol)}")
    finally:
        ports.release(port)


def test_a_port_that_wants_tls(protocol: str, secured: DevBroker) -> None:
    why = told(f"{protocol}://{secured.address(protocol)}")
    assert isinstance(why, TransportError)
    assert "TLS" in str(why)


def test_a_port_that_has_no_tls(protocol: str, broker: DevBroker) -> None:
    why = told(f"{protocol}+tls://{broker.address(protocol)}", tls_verify=False)
    assert isinstance(why, TlsError), why


def test_who_was_connected_goes_on_trying(protocol: str) -> None:
    """Nobody listens for a while, as during a restart."""
    with DevBroker([protocol]) as broker, wireproto.connect(broker.url(protocol), timeout=LONG) as client:
        client.admin().list_topics()
        broker.pause(protocol)
        again = threading.Timer(1.0, broker.resume, (protocol,))
        again.start()
        try:
            client.admin().list_topics(timeout=LONG)
        finally:
            again.join()


def test_each_call_whose_time_runs_out_says_what_was_met(protocol: str) -> None:
    """A record that cannot leave: the flush, the receipt and the close tell why, and a question of the administrator's, too."""
    topic = "/causes" if protocol == "zookeeper" else "causes"
    with DevBroker([protocol]) as broker, wireproto.connect(broker.url(protocol), timeout=LONG) as client:
        client.admin().create_topic(topic)
        out = client.producer(topic, delivery_timeout=LONG)
        out.send(b"stored").position(timeout=LONG)
        broker.pause(protocol)
        receipt = out.send(b"not stored")
        for call in (out.flush, receipt.position, client.admin().list_topics, out.close):
            with pytest.raises((TimedOut, TransportError)) as caught:
                call(timeout=0.8)
            assert re.search(r"refused|closed", str(caught.value)), (call, caught.value)
        broker.resume(protocol)


def test_a_kafka_node_that_wants_credentials(broker: DevBroker) -> None:
    """It tells its versions to everybody, and hangs up at the next request."""
    with closing(Relay(broker.address("kafka"), silent=False)) as node:
        why = told(f"kafka://127.0.0.1:{node.port}")
        assert isinstance(why, Unreachable)
        assert "SASL" in str(why)
        assert node.met == 2  # once may have been a restart


def test_time_that_runs_out_says_what_failed_before() -> None:
    """Time alone explains nothing."""
    attempts = iter([Disconnected("the node went away"), TimedOut("no answer in time")])

    def attempt() -> None:
        raise next(attempts)

    with pytest.raises(TimedOut, match=r"^no answer in time; last trouble: Disconnected: the node went away$"):
        run(attempt, time.monotonic() + LONG, Policy(first=0.001))
