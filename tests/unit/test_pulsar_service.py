"""How a Pulsar client finds brokers and introduces itself, against scripted ones; and the budget of bytes that wait for a broker."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import wireproto
from patience import LATE, until
from pulsar_server import Link, PulsarServer
from wireproto._net import Mailbox
from wireproto.errors import AuthError, ConnectError, Disconnected, Malformed, OptionError, TimedOut, TransportError
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.pulsar.client import PulsarClient
from wireproto.pulsar.codes import ServiceNotReady, TopicNotFound
from wireproto.pulsar.connection import DEFAULT_MAX_MESSAGE_SIZE
from wireproto.pulsar.lookup import Lookup
from wireproto.url import parse

T = "persistent://public/default/t"
Answers = dict[str, Callable[[Link, Any], Any]]


def connected(**fields: Any) -> api.CommandConnected:
    return api.CommandConnected(**{"server_version": "Pulsar 9", "protocol_version": 20, "max_message_size": 1 << 20} | fields)


def closed_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port: int = made.getsockname()[1]
        return port


# service addresses


@pytest.mark.parametrize("silent", ["partitionMetadata", "lookupTopic"])
def test_a_look_up_that_is_not_answered_is_made_at_the_next_service_address(silent: str) -> None:
    with PulsarServer(**{silent: lambda link, ask: None}) as frozen, PulsarServer() as well:
        url = f"pulsar://127.0.0.1:{frozen.port},127.0.0.1:{well.port}"
        with wireproto.connect(url, timeout=6.0) as client:
            client.producer("t").close()
            assert (frozen.count(silent), well.count(silent)) == (1, 1)
            client.producer("u").close()
            assert (frozen.count(silent), well.count(silent)) == (1, 2), "it is not asked first again"


def test_a_service_address_that_accepts_and_says_nothing_leaves_the_others_some_of_the_time() -> None:
    with PulsarServer(connect=lambda link, ask: None) as frozen, PulsarServer() as well:
        client = wireproto.connect(f"pulsar://127.0.0.1:{frozen.port},127.0.0.1:{well.port}", timeout=4.0)
        client.producer("t").close()
        client.close()


def test_a_broker_that_a_look_up_is_sent_on_to_and_that_is_silent_is_named_with_the_step() -> None:
    with PulsarServer(lookupTopic=lambda link, ask: None) as frozen, PulsarServer() as well:
        well.answers["lookupTopic"] = lambda link, ask: well.here(ask, brokerServiceUrl=frozen.url, response="Redirect")
        with wireproto.connect(well.url) as client, pytest.raises(TimedOut, match="CommandLookupTopic was not answered") as caught:
            client.producer("t", timeout=3.0)  # in which the connection stands, on a late machine too
    assert str(frozen.port) in str(caught.value.peer)


# introduction


def test_we_say_who_we_are_and_what_we_can() -> None:
    with PulsarServer() as server, wireproto.connect(server.url, client_id="flights"):
        [said] = server.commands("connect")
    assert said.client_version == "flights"
    assert said.protocol_version >= 19
    assert said.auth_method_name == "none"
    assert not said.auth_data
    assert not said.proxy_to_broker_url
    flags = {field.name for field, value in said.feature_flags.ListFields() if value}
    assert flags == {
        "supports_auth_refresh",
        "supports_broker_entry_metadata",
        "supports_partial_producer",
        "supports_get_partitioned_metadata_without_auto_creation",
    }


@pytest.mark.parametrize(
    ("options", "method", "data"),
    [
        ({"token": "t0"}, "token", b"t0"),
        ({"user": "u", "password": "p"}, "basic", b"u:p"),
        ({}, "none", b""),
    ],
)
def test_how_we_authenticate_goes_by_what_is_given(options: dict[str, Any], method: str, data: bytes) -> None:
    with PulsarServer() as server, wireproto.connect(server.url, **options):
        [said] = server.commands("connect")
    assert (said.auth_method_name, said.auth_data) == (method, data)


def test_a_user_needs_a_password() -> None:
    with PulsarServer() as server, pytest.raises(OptionError, match="user without password"):
        wireproto.connect(server.url, user="u")


def test_what_the_broker_told_of_itself_is_kept() -> None:
    flags = api.FeatureFlags(supports_partial_producer=True, supports_auth_refresh=False)
    answers: Answers = {"connect": lambda link, ask: connected(feature_flags=flags)}
    with PulsarServer(**answers) as server, wireproto.connect(server.url) as client:
        info = client.broker_info()
        assert (info.server_version, info.protocol_version, info.max_message_size) == ("Pulsar 9", 20, 1 << 20)
        assert info.flags == {"supports_partial_producer"}
    answers = {"connect": lambda link, ask: connected(max_message_size=0)}
    with PulsarServer(**answers) as server, wireproto.connect(server.url) as client:
        assert client.broker_info().max_message_size == DEFAULT_MAX_MESSAGE_SIZE


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (lambda link, ask: api.CommandSuccess(request_id=2**64 - 1), ConnectError, "answered CONNECT with CommandSuccess"),
        (lambda link, ask: link.close(), ConnectError, "no Pulsar broker answers there|dropped the connection"),
        (lambda link, ask: api.CommandError(request_id=2**64 - 1, error="AuthenticationError", message="no"), AuthError, "no"),
        (lambda link, ask: None, TimedOut, "answer"),
    ],
)
def test_what_is_no_welcome(answer: Any, kind: Any, text: str) -> None:
    with PulsarServer(connect=answer) as server, pytest.raises(kind, match=text):
        wireproto.connect(server.url, timeout=0.5 if kind is TimedOut else 5.0)


def test_a_challenge_later_is_answered_with_fresh_credentials() -> None:
    tokens = iter(["first", "second"])
    with PulsarServer() as server, wireproto.connect(server.url, token=lambda: next(tokens)):
        server.links[0].send(api.CommandAuthChallenge(challenge=api.AuthData(auth_method_name="token", auth_data=b"")))
        with server.came:
            assert server.came.wait_for(lambda: server.count("authResponse"), 10.0)
        [said] = server.commands("authResponse")
    assert (said.response.auth_method_name, said.response.auth_data) == ("token", b"second")


def test_a_challenge_is_answered_while_a_producer_s_return_hangs() -> None:
    """Neither the attempt that is not answered nor what waits for it keeps the token away."""
    tokens = iter([b"1", b"2", b"3", b"4"])
    with PulsarServer() as server, wireproto.connect(server.url, token=lambda: next(tokens)) as client, client.producer("t") as out:
        out.send(b"a").position(20.0)
        server.answers["producer"] = lambda link, ask: None
        link = server.links[-1]
        link.send(api.CommandCloseProducer(producer_id=server.commands("producer")[0].producer_id, request_id=2**64 - 1))
        server.wait("producer", 2)
        link.send(api.CommandAuthChallenge(challenge=api.AuthData(auth_method_name="token", auth_data=b"")))
        assert server.wait("authResponse").response.auth_data == b"3"  # after one for each connection
        assert link.alive


def test_a_challenge_that_cannot_be_answered_ends_the_connection() -> None:
    given = ["first"]
    with PulsarServer() as server, wireproto.connect(server.url, token=lambda: given.pop()) as client:
        [conn] = client.loop.connections
        lost: list[str] = []
        done = threading.Event()
        conn.on_lost(lambda why: (lost.append(str(why)), done.set()))
        server.links[0].send(api.CommandAuthChallenge(challenge=api.AuthData(auth_method_name="token", auth_data=b"")))
        assert done.wait(10.0)
        assert conn.closed
        assert "no fresh credentials for the broker's AUTH_CHALLENGE: IndexError" in lost[0]


@pytest.mark.parametrize("when", ["at first", "later"])
def test_credentials_are_in_no_log_of_frames(when: str) -> None:
    """Neither those of CONNECT nor those that answer a challenge."""
    tokens = iter([b"hunter1", b"hunter2", b"hunter3"])
    challenge = api.CommandAuthChallenge(challenge=api.AuthData(auth_method_name="token", auth_data=b""))
    answers: Answers = {"connect": lambda link, ask: challenge, "authResponse": PulsarServer._connected} if when == "at first" else {}
    with PulsarServer(**answers) as server:
        url = parse(server.url)
        client = PulsarClient.made(url, {"token": lambda: next(tokens)})
        seen: list[tuple[str, str, Any]] = []
        client.loop.tap = Mailbox(client.loop, seen.append)  # what `wireproto.net.debug` shows
        with client:
            client.broker_info()
            if when == "later":
                server.links[0].send(challenge)
            assert server.wait("authResponse").response.auth_data == b"hunter2"
            client.cluster.names("t", time.monotonic() + 20.0)  # behind it
            until(lambda: any(isinstance(frame, bytes) and b"persistent" in frame for _, _, frame in seen), "nothing is logged")
    assert [way for way, _, frame in seen if isinstance(frame, int)].count(">") == 2
    assert not any(isinstance(frame, bytes) and b"hunter" in frame for _, _, frame in seen)


# look-up


def test_each_service_address_has_its_share_of_the_time_and_the_last_all_that_is_left() -> None:
    """Times are those that the attempts are given: no clock is waited for."""
    given: list[float] = []

    def connecting(broker: Any, purpose: str, patience: float) -> Any:
        given.append(patience - time.monotonic())
        raise Disconnected("not there", peer="h:1")
        yield

    addresses = [("a", 1), ("b", 2), ("c", 3)]
    lookup = Lookup(None, connecting, addresses, tls=False, connect_timeout=40.0)  # type: ignore[arg-type]
    with pytest.raises(Disconnected):
        next(lookup.serving(time.monotonic() + 1000.0))
    assert [round(seconds, -1) for seconds in given] == [40.0, 40.0, 1000.0]
    given.clear()
    with pytest.raises(Disconnected):
        next(lookup.serving(time.monotonic() + 20.0))
    assert [round(seconds) for seconds in given] == [7, 10, 20], "less where that leaves the others none"


def test_service_addresses_have_the_time_of_a_connection() -> None:
    with PulsarServer() as server, wireproto.connect(server.url, connect_timeout=7.0) as client:
        assert client.cluster.lookup._connect_timeout == 7.0


@pytest.mark.parametrize("there", ["pulsar://[fd00::7]:6650", "pulsar://hidden.example:6650"])
def test_a_proxy_is_told_the_broker_as_an_address_is_written(there: str) -> None:
    hidden = {"brokerServiceUrl": there, "proxy_through_service_url": True}
    answers: Answers = {"lookupTopic": lambda link, ask: link.server.here(ask, **hidden)}
    with PulsarServer(**answers) as server, wireproto.connect(server.url) as client:
        found = client.cluster.lookup.broker(T, time.monotonic() + 20.0)
        assert found.proxied == there.removeprefix("pulsar://")
        assert found.address == ("127.0.0.1", server.port)


def test_a_service_address_that_does_not_answer_is_passed_over_and_stays_behind() -> None:
    with PulsarServer() as server:
        url = f"pulsar://127.0.0.1:{closed_port()},127.0.0.1:{server.port}"
        with wireproto.connect(url, connect_timeout=0.5) as client:
            deadline = time.monotonic() + 10.0
            first, _ = client.cluster.lookup.service(deadline)
            assert first == ("127.0.0.1", server.port)
            assert client.cluster.lookup._service[0] == first, "the last that worked comes first"


def test_when_no_service_address_answers_the_last_failure_is_told() -> None:
    ports = [closed_port(), closed_port()]
    began = time.monotonic()
    with pytest.raises(TransportError):
        wireproto.connect(f"pulsar://127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}", timeout=2.0)
    assert time.monotonic() - began < 2.0 + LATE


@pytest.mark.parametrize("create", [True, False])
def test_partitions_are_asked_for_with_or_without_making_the_topic(create: bool) -> None:
    with PulsarServer() as server, wireproto.connect(server.url) as client:
        assert client.cluster.names("t", time.monotonic() + 5.0, create=create) == [(-1, T)]
        [asked] = server.commands("partitionMetadata")
        assert asked.topic == T
        assert asked.metadata_auto_creation_enabled is create
        assert client.cluster.names("t-partition-3", time.monotonic() + 5.0) == [(-1, f"{T}-partition-3")]
        assert server.count("partitionMetadata") == 1, "a partition has none"


def test_the_partitions_of_a_topic_have_numbers() -> None:
    answers: Answers = {
        "partitionMetadata": lambda link, ask: api.CommandPartitionedTopicMetadataResponse(
            request_id=ask.request_id, partitions=2, response="Success"
        )
    }
    with PulsarServer(**answers) as server, wireproto.connect(server.url) as client:
        assert client.cluster.names("t", time.monotonic() + 5.0) == [(0, f"{T}-partition-0"), (1, f"{T}-partition-1")]


@pytest.mark.parametrize(
    ("fields", "kind", "text"),
    [
        ({"response": "Failed", "error": "ServiceNotReady", "message": "busy"}, ServiceNotReady, "busy"),
        ({"response": "Failed", "error": "TopicNotFound", "message": "none"}, TopicNotFound, "none"),
        ({"brokerServiceUrl": ""}, ServiceNotReady, "no plain address"),
        ({"brokerServiceUrl": "what?"}, Malformed, "broker URL 'what"),
    ],
)
def test_a_look_up_without_a_broker(fields: dict[str, Any], kind: Any, text: str) -> None:
    answers: Answers = {"lookupTopic": lambda link, ask: link.server.here(ask, **fields)}
    with PulsarServer(**answers) as server, wireproto.connect(server.url) as client, pytest.raises(kind, match=text):
        client.cluster.lookup.broker(T, time.monotonic() + 5.0)


def test_the_listener_that_is_asked_for() -> None:
    for options, name in (({"listener": "inside"}, "inside"), ({}, "")):
        with PulsarServer() as server, wireproto.connect(server.url, **options) as client:
            client.cluster.lookup.broker(T, time.monotonic() + 5.0)
            [asked] = server.commands("lookupTopic")
            assert (asked.topic, asked.advertised_listener_name, asked.authoritative) == (T, name, False)


def test_topics_of_a_namespace_are_named_once() -> None:
    answers: Answers = {
        "getTopicsOfNamespace": lambda link, ask: api.CommandGetTopicsOfNamespaceResponse(
            request_id=ask.request_id, topics=[f"{T}-partition-1", f"{T}-partition-0", "persistent://public/default/a"]
        )
    }
    with PulsarServer(**answers) as server, wireproto.connect(server.url) as client:
        assert client.cluster.lookup.topics("public/default", time.monotonic() + 5.0) == ["persistent://public/default/a", T]
        [asked] = server.commands("getTopicsOfNamespace")
        assert (asked.namespace, asked.mode) == ("public/default", api.CommandGetTopicsOfNamespace.ALL)
