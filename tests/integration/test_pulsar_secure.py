"""Pulsar with tokens and TLS: who gets in, who does not, and a token that runs out while we talk."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import wireproto
from brokers.pulsar import Pulsar
from integration.pulsar_tools import new_topic
from patience import LONG, soon
from wireproto import LATEST
from wireproto.errors import AuthError, OptionError, TimedOut, TlsError, TransportError
from wireproto.pulsar.codes import AuthenticationError, AuthorizationError

pytestmark = pytest.mark.parametrize("broker", ["pulsar-4.2.4-secure"], indirect=True)


def ca(broker: Pulsar) -> str:
    assert broker.certificates is not None
    return str(broker.certificates.ca)


def round_trip(client: Any, topic: str) -> list[bytes | None]:
    with client.producer(topic) as producer:
        producer.send(b"safe")
    return [record.value for batch in client.reader(topic, stop=LATEST) for record in batch]


@pytest.mark.parametrize("form", ["plain", "tls"])
def test_a_token_opens_both_ports_and_the_admin_interface(broker: Pulsar, form: str) -> None:
    topic = new_topic(broker)
    with wireproto.connect(broker.urls[form], token=broker.token("admin"), tls_ca_file=ca(broker)) as client:
        assert round_trip(client, topic) == [b"safe"]
        admin = client.admin()
        admin.create_topic(topic + "-made", partitions=2)
        assert len(admin.describe_topic(topic + "-made").partitions) == 2
        admin.delete_topic(topic + "-made")


@pytest.mark.parametrize("what", ["none", "expired", "broken"])
def test_without_a_good_token_the_broker_says_so_at_once(broker: Pulsar, what: str) -> None:
    tokens = {"none": {}, "expired": {"token": broker.token("admin", -60.0)}, "broken": {"token": "a.b.c"}}
    begun = time.monotonic()
    with pytest.raises(AuthenticationError) as caught:
        wireproto.connect(broker.urls["plain"], timeout=LONG, **tokens[what])
    assert time.monotonic() - begun < LONG / 2, "it is not tried again until the time is over"
    assert isinstance(caught.value, AuthError)
    assert "a.b.c" not in str(caught.value)


def test_a_user_without_rights_is_told(broker: Pulsar) -> None:
    topic = new_topic(broker)
    with wireproto.connect(broker.urls["plain"], token=broker.token("stranger")) as client:
        with pytest.raises(AuthorizationError):
            client.producer(topic, timeout=20.0)
        with pytest.raises(AuthorizationError):
            client.admin().create_topic(topic + "-x")


def test_a_token_from_file_environment_and_callable(broker: Pulsar, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text(broker.token("admin") + "\n")
    monkeypatch.setenv("PULSAR_TOKEN", broker.token("admin"))
    for source in (f"file:{file}", "env:PULSAR_TOKEN", lambda: broker.token("admin")):
        with wireproto.connect(broker.urls["plain"], token=source) as client:
            assert client.broker_info().max_message_size > 0
            assert broker.token("admin") not in repr(client.cluster.options)


def test_the_challenge_is_answered_with_a_fresh_token(broker: Pulsar) -> None:
    """The broker asks again when a token runs out; a callable gives the next, and the same connection goes on."""
    topic = new_topic(broker)
    asked: list[float] = []

    def fresh() -> str:
        asked.append(time.monotonic())
        return broker.token("admin", 8.0)  # which must reach the broker before it runs out

    with wireproto.connect(broker.urls["plain"], token=fresh) as client, client.producer(topic) as producer:
        connections = set(client.loop.connections)
        before, deadline, number, over = len(asked), soon(LONG), 0, float("inf")
        while time.monotonic() < over:
            assert time.monotonic() < deadline, "it is not asked again"
            producer.send(b"%d" % number).position(LONG)
            number += 1
            time.sleep(0.1)
            if len(asked) > before and over == float("inf"):
                over = soon(5.0)  # past the broker's next look, which cuts off who has not answered
        assert connections <= set(client.loop.connections)
        assert all(not conn.closed for conn in connections)
        read = [record.value for batch in client.reader(topic, stop=LATEST) for record in batch]
    assert read == [b"%d" % i for i in range(number)]


def test_a_token_that_is_not_renewed_ends_the_producer_with_the_reason(broker: Pulsar) -> None:
    topic = new_topic(broker)

    stored: list[object] = []

    def send_on() -> None:
        """The failed record's error is told by its receipt, and again by the flush of a close that meets it first."""
        with wireproto.connect(broker.urls["plain"], token=broker.token("admin", 10.0)) as client:
            producer = client.producer(topic, delivery_timeout=10.0)  # longer than a broker stands still while the token is good
            deadline = soon(LONG)
            while time.monotonic() < deadline:
                stored.append(producer.send(b"x").position(LONG))
                time.sleep(0.1)

    with pytest.raises(TimedOut, match=r"last trouble: AuthenticationError"):  # it might be renewed until the record's time is over
        send_on()
    assert stored


def test_tls_checks_certificate_and_host_name(broker: Pulsar) -> None:
    token = broker.token("admin")
    with pytest.raises(TlsError):
        wireproto.connect(broker.urls["tls"], token=token)
    with pytest.raises(TlsError, match="Hostname mismatch"):
        wireproto.connect(broker.urls["tls"], token=token, tls_ca_file=ca(broker), tls_server_name="elsewhere.example")


def test_tls_against_plain_and_plain_against_tls_are_told_apart(broker: Pulsar) -> None:
    token = broker.token("admin")
    begun = time.monotonic()
    with pytest.raises(TransportError):
        wireproto.connect(f"pulsar+tls://localhost:{broker.binary_port}", token=token, tls_ca_file=ca(broker), timeout=5.0)
    with pytest.raises(TransportError):
        wireproto.connect(f"pulsar://localhost:{broker.tls_port}", token=token, timeout=5.0)
    with pytest.raises(TransportError):
        wireproto.connect(f"pulsar://localhost:{broker.http_port}", token=token, timeout=5.0)
    assert time.monotonic() - begun < 20.0


def test_without_an_admin_url_the_error_says_what_is_missing(broker: Pulsar) -> None:
    url = broker.urls["plain"].partition("?")[0]
    with wireproto.connect(url, token=broker.token("admin")) as client, pytest.raises(OptionError, match="admin="):
        client.admin().create_topic("anything")
