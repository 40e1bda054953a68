"""TLS and every SASL mechanism on real brokers; refusals say what is wrong and never show a secret."""

from __future__ import annotations

import base64
import itertools
import json
import time
from typing import Any

import pytest

import wireproto
from brokers.kafka import Kafka
from patience import until
from wireproto import LATEST
from wireproto.errors import AuthError, OptionError, TlsError, TransportError
from wireproto.kafka.codes import TopicAuthorizationFailed
from wireproto.kafka.messages import AclCreation, CreateAclsRequest, ListGroupsRequest

BROKERS = ["kafka-3.9.2-secure", "kafka-4.3.1-secure"]
_numbers = itertools.count()


def jwt(subject: str, seconds: int = 600) -> str:
    """An unsecured token, as the brokers' default validator takes it."""

    def part(facts: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(facts).encode()).decode().rstrip("=")

    now = int(time.time())
    return f"{part({'alg': 'none'})}.{part({'sub': subject, 'iat': now, 'exp': now + seconds})}."


def round_trip(url: str, **options: Any) -> None:
    """Create, produce, read, join a group: every kind of connection the client makes."""
    topic = f"secure-{next(_numbers)}"
    with wireproto.connect(url, **options) as client:
        client.admin().create_topic(topic)
        with client.producer(topic) as producer:
            assert producer.send(b"v", key=b"k").position(60.0).offset == 0
        with client.reader(topic, stop=LATEST) as reader:
            assert [value for batch in reader for value in batch.values()] == [b"v"]
        with client.consumer(topic, f"g-{topic}") as consumer:
            deadline = time.monotonic() + 60
            batch = None
            while batch is None:
                assert time.monotonic() < deadline
                batch = consumer.poll(1.0)
            consumer.commit()


@pytest.mark.parametrize("listener", ["sasl", "sasl_tls"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_user_and_password(broker: Kafka, mechanism: str, listener: str) -> None:
    tls = {"tls_ca_file": str(broker.certificates.ca)} if listener == "sasl_tls" else {}
    round_trip(broker.urls[listener], sasl=mechanism, user="admin", password="admin-secret", **tls)
    with wireproto.connect(broker.urls[listener], sasl=mechanism, user="admin", password="wrong-secret", **tls) as client:
        with pytest.raises(AuthError) as caught:
            client.admin().list_topics(timeout=10.0)
        assert "wrong-secret" not in str(caught.value) + repr(caught.value) + repr(client.cluster.options)
    with (
        wireproto.connect(broker.urls[listener], sasl=mechanism, user="admin", **tls) as client,
        pytest.raises(OptionError, match="password"),
    ):
        client.admin().list_topics(timeout=10.0)


@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_a_bearer_token_from_a_callback(broker: Kafka) -> None:
    asked = []

    def token() -> str:
        asked.append(1)
        return jwt("admin")

    round_trip(broker.urls["sasl"], token=token)
    assert asked, "the callback gives the token"
    with wireproto.connect(broker.urls["sasl"], token="bm90.YQ.") as client, pytest.raises(AuthError):
        client.admin().list_topics(timeout=10.0)


@pytest.mark.parametrize("broker", BROKERS[-1:], indirect=True)
@pytest.mark.parametrize(("acks", "seconds", "tokens"), [("all", 4, 4), ("0", 20, 2)])
def test_a_token_s_end_costs_a_connection_and_no_record(broker: Kafka, acks: str, seconds: int, tokens: int) -> None:
    """The broker ends a session with its token, at the next request; the client has come back with another one by then: a twentieth of the
    token's time before at least, which is how long a loaded machine may keep from the broker what nobody acknowledges. Records are on their
    way all the while, and without any pause where a connection is about to be left; and a call that is not repeated meets no end either."""
    asked: list[float] = []

    def token() -> str:
        asked.append(time.monotonic())
        return jwt("admin", seconds=seconds)

    topic = f"secure-{next(_numbers)}"
    with wireproto.connect(broker.urls["sasl"], token=token) as client:
        client.admin().create_topic(topic)
        begun, count, unchecked, hurries = time.monotonic(), 0, 0, 0

        def end() -> int:
            return sum(place.offset for place in client.admin().positions(topic, LATEST).values())

        with client.producer(topic, acks=acks) as producer:
            first = len(asked)
            while len(asked) < first + tokens or unchecked:
                assert time.monotonic() < begun + 120.0
                for _ in range(10):
                    producer.send(b"%d" % count)
                    count += 1
                producer.flush(20.0)
                unchecked += 1
                hurried = about_to_be_left(client)
                hurries += hurried
                if unchecked >= (100 if hurried else 10):
                    assert not client.request(ListGroupsRequest()).error_code
                    until(lambda wanted=count: end() == wanted, "not all are there that nobody has acknowledged", limit=20.0)
                    unchecked = 0
                if not hurried:
                    time.sleep(0.02)
        assert hurries, "no record was on its way when a connection was left"
        with client.reader(topic, stop=LATEST) as reader:
            assert [value for batch in reader for value in batch.values()] == [b"%d" % number for number in range(count)]


def about_to_be_left(client: Any) -> bool:
    """Whether one of the client's connections has so little left of the part of its session that is used; it is so until that is closed."""
    return any(conn.context.until <= time.monotonic() + 0.25 for conn in client.loop.connections if conn.context is not None)


@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_secrets_from_the_environment_and_from_files(broker: Kafka, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "admin-secret")
    round_trip(broker.urls["sasl"] + "?user=admin&password=env:KAFKA_PASSWORD")
    (tmp_path / "password").write_text("admin-secret\n")
    round_trip(broker.urls["sasl"] + f"?user=admin&sasl=SCRAM-SHA-256&password=file:{tmp_path / 'password'}")


@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_tls_checks_the_server_and_shows_the_client(broker: Kafka) -> None:
    certificates = broker.certificates
    round_trip(
        broker.urls["tls"],
        tls_ca_file=str(certificates.ca),
        tls_cert_file=str(certificates.client),
        tls_key_file=str(certificates.client_key),
    )
    with wireproto.connect(broker.urls["tls"]) as client, pytest.raises(TlsError, match="certificate"):
        client.admin().list_topics(timeout=10.0)


@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_tls_and_plain_mixed_up_say_so(broker: Kafka) -> None:
    plain = broker.urls["plain"].replace("kafka://", "kafka+tls://")
    bare = broker.urls["tls"].replace("kafka+tls://", "kafka://")
    for url in (plain, bare):
        began = time.monotonic()
        with wireproto.connect(url, tls_ca_file=str(broker.certificates.ca)) as client, pytest.raises(TransportError, match="TLS"):
            client.admin().list_topics(timeout=5.0)
        assert time.monotonic() - began < 8.0


@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_no_permission_is_the_brokers_own_error(broker: Kafka) -> None:
    topic = f"forbidden-{next(_numbers)}"
    with wireproto.connect(broker.url) as owner:
        owner.admin().create_topic(topic)
        rule = AclCreation(
            resource_type=2, resource_name=topic, resource_pattern_type=3, principal="User:bob", host="*", operation=2, permission_type=2
        )
        reply = owner.request(CreateAclsRequest(creations=(rule,)))
        assert reply.results[0].error_code == 0
        with wireproto.connect(broker.urls["sasl"], user="bob", password="bob-secret") as client:
            with pytest.raises(TopicAuthorizationFailed) as caught:
                open_until_refused(client, topic)
            assert (caught.value.code, caught.value.name) == (29, "TOPIC_AUTHORIZATION_FAILED")


def open_until_refused(client: Any, topic: str) -> None:
    """The rule reaches the authorizer a moment after it was accepted."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        client.producer(topic).close()
