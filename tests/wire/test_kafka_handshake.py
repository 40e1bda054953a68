"""How a Kafka connection begins: versions and SASL, with a broker side written here that checks what it is sent."""

from __future__ import annotations

import base64
import hashlib
import hmac
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import wireproto
from wireproto.devbroker import DevBroker
from wireproto.devbroker.recording import Recording
from wireproto.errors import AuthError, BrokerError, OptionError, Unreachable
from wireproto.kafka import messages as m

SALT, ROUNDS, USER, PASSWORD = b"sixteen bytes ok", 4096, "al,ice=", "pencil"
Say = Callable[[str, list[bytes]], tuple[int, bytes]]  # mechanism, what the client has said -> error code, challenge


class Listener:
    """A dev broker that wants SASL.

    Attributes:
        say: answers the client's last word. said: each connection's words. named: the mechanisms asked for. offered: those there are.
    """

    def __init__(self, broker: DevBroker) -> None:
        self.say: Say = lambda mechanism, words: (0, b"")
        self.said: dict[str, list[bytes]] = {}
        self.named: list[str] = []
        self.offered: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
        self.text = ""
        offered = broker._sides["kafka"].offered  # type: ignore[attr-defined]
        offered[17] = ("SaslHandshake", 0, 1, self.handshake)
        offered[36] = ("SaslAuthenticate", 0, 2, self.authenticate)

    async def handshake(self, context: Any) -> Any:
        self.named.append(context.request.mechanism)
        known = context.request.mechanism in self.offered
        return m.SaslHandshakeResponse(error_code=0 if known else 33, mechanisms=self.offered)

    async def authenticate(self, context: Any) -> Any:
        words = self.said.setdefault(context.peer, [])
        words.append(bytes(context.request.auth_bytes))
        code, challenge = self.say(self.named[-1], words)
        if code == -99:
            raise ConnectionResetError
        return m.SaslAuthenticateResponse(error_code=code, error_message=self.text or None, auth_bytes=challenge)

    @property
    def words(self) -> list[bytes]:
        """What the one connection said."""
        [words] = self.said.values()
        return words


@pytest.fixture
def broker() -> Iterator[DevBroker]:
    with DevBroker(["kafka"]) as made:
        yield made


@pytest.fixture
def listener(broker: DevBroker) -> Listener:
    return Listener(broker)


def topics(broker: DevBroker, **options: Any) -> list[str]:
    with wireproto.connect(broker.url("kafka"), timeout=10.0, **options) as client:
        found: list[str] = client.admin().list_topics()
        return found


def scram(algorithm: str, lie: bool = False) -> Say:
    """The server's half of SCRAM, by RFC 5802; `lie`: it does not know the password itself."""

    def digest(key: bytes, text: bytes) -> bytes:
        return hmac.new(key, text, algorithm).digest()

    def say(mechanism: str, words: list[bytes]) -> tuple[int, bytes]:
        bare = words[0].partition(b",,")[2]
        nonce = bare.partition(b",r=")[2] + b"more"
        first = b"r=" + nonce + b",s=" + base64.b64encode(SALT) + b",i=%d" % ROUNDS
        if len(words) == 1:
            assert bare.startswith(b"n=al=2Cice=3D,r=")
            return 0, first
        salted = hashlib.pbkdf2_hmac(algorithm, PASSWORD.encode(), SALT, ROUNDS)
        without, _, proof = words[1].partition(b",p=")
        told = b",".join((bare, first, without))
        key = digest(salted, b"Client Key")
        signature = digest(hashlib.new(algorithm, key).digest(), told)
        if bytes(a ^ b for a, b in zip(key, signature, strict=True)) != base64.b64decode(proof):
            return 58, b""
        server = digest(digest(salted, b"Server Key"), told)
        return 0, b"v=" + base64.b64encode(server[::-1] if lie else server)

    return say


def test_a_user_means_plain_and_goes_over_as_rfc_4616_has_it(broker: DevBroker, listener: Listener) -> None:
    assert topics(broker, user=USER, password=PASSWORD) == []
    assert listener.named == ["PLAIN"]
    assert listener.words == [b"\0al,ice=\0pencil"]


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
def test_scram_proves_the_password_and_checks_the_servers_proof(broker: DevBroker, listener: Listener, algorithm: str) -> None:
    mechanism = f"SCRAM-SHA-{algorithm[3:]}"
    listener.say = scram(algorithm)
    assert topics(broker, sasl=mechanism, user=USER, password=PASSWORD) == []
    assert listener.named == [mechanism]
    assert len(listener.words) == 2
    with pytest.raises(AuthError) as refused:
        topics(broker, sasl=mechanism, user=USER, password="pen")
    assert refused.value.code == 58
    listener.say = scram(algorithm, lie=True)
    with pytest.raises(AuthError, match="server"):
        topics(broker, sasl=mechanism, user=USER, password=PASSWORD)


def test_each_connection_has_a_nonce_of_its_own(broker: DevBroker, listener: Listener) -> None:
    listener.say = scram("sha256")
    for _ in range(2):
        topics(broker, sasl="SCRAM-SHA-256", user=USER, password=PASSWORD)
    first, second = (words[0] for words in listener.said.values())
    assert first != second
    assert len(first.partition(b",r=")[2]) >= 24


def test_a_token_means_oauthbearer_with_its_extensions(broker: DevBroker, listener: Listener) -> None:
    topics(broker, token=lambda: "abc.def", sasl_extensions={"logicalCluster": "lkc-1"})
    assert listener.named == ["OAUTHBEARER"]
    assert listener.words == [b"n,,\x01auth=Bearer abc.def\x01logicalCluster=lkc-1\x01\x01"]


def test_a_token_that_the_server_has_something_against_is_refused_with_its_words(broker: DevBroker, listener: Listener) -> None:
    listener.say = lambda mechanism, words: (0, b'{"status": "invalid_token"}')
    with pytest.raises(AuthError, match="invalid_token"):
        topics(broker, token="abc")
    listener.say = lambda mechanism, words: (58, b"")
    listener.text = "signature is stale"
    with pytest.raises(AuthError, match="signature is stale"):
        topics(broker, token="abc")


def test_a_mechanism_that_is_not_offered_is_told_with_those_that_are(broker: DevBroker, listener: Listener) -> None:
    listener.offered = ("GSSAPI", "PLAIN")
    with pytest.raises(AuthError, match="SCRAM-SHA-256; the broker offers GSSAPI, PLAIN"):
        topics(broker, sasl="SCRAM-SHA-256", user=USER, password=PASSWORD)
    assert not listener.said, "nothing is said to a broker that will not listen"


def test_a_refusal_without_words_still_says_what_was_refused(broker: DevBroker, listener: Listener) -> None:
    listener.say = lambda mechanism, words: (58, b"")
    with pytest.raises(AuthError, match="refused the credentials") as refused:
        topics(broker, user=USER, password=PASSWORD)
    assert PASSWORD not in str(refused.value)


def test_a_connection_that_is_closed_instead_of_answered_is_a_matter_of_credentials(broker: DevBroker, listener: Listener) -> None:
    listener.say = lambda mechanism, words: (-99, b"")
    with pytest.raises(AuthError, match="closed the connection during PLAIN"):
        topics(broker, user=USER, password=PASSWORD)


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({"sasl": "PLAIN", "user": "u"}, "PLAIN needs user and password"),
        ({"sasl": "SCRAM-SHA-256", "password": "p"}, "SCRAM-SHA-256 needs user and password"),
        ({"sasl": "OAUTHBEARER", "user": "u", "password": "p"}, "OAUTHBEARER needs a token"),
    ],
)
def test_missing_credentials_are_said_before_any_is_sent(broker: DevBroker, listener: Listener, options: Any, missing: str) -> None:
    with pytest.raises(OptionError, match=missing):
        topics(broker, **options)
    assert not listener.said


def test_who_we_are_goes_with_the_question_for_versions(broker: DevBroker) -> None:
    seen: Recording = broker.record("kafka")
    topics(broker, client_id="flights")
    asked = seen.requests("ApiVersions")[0]
    assert asked.version == 4
    assert (asked.message.client_software_name, asked.message.client_software_version) == ("wireproto", wireproto.__version__)
    assert {one.header.client_id for one in seen.requests()} == {"flights"}
    assert "SaslHandshake" not in {one.name for one in seen.requests()}


def test_a_node_that_will_not_tell_its_versions_is_no_broker(broker: DevBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    from wireproto.devbroker.kafka import side

    refusal = m.ApiVersionsResponse(error_code=35).encode(0)
    asked: list[int] = []

    def refuse(version: int, correlation: int, offered: Any, level: int) -> list[bytes]:
        asked.append(version)
        return [correlation.to_bytes(4, "big"), refusal]

    monkeypatch.setattr(side, "api_versions", refuse)
    with pytest.raises(BrokerError, match="ApiVersions was refused"):
        topics(broker)
    assert asked[:2] == [4, 0], "the version that every broker knows is tried last"


def test_what_answers_without_telling_versions_is_said_to_speak_no_kafka() -> None:
    """In the newest version of the question and in the oldest: the token is there, and behind it nothing that could be read."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            peer, _ = server.accept()
            with peer:
                while asked := peer.recv(1000):
                    peer.sendall(struct.pack(">i", 7) + asked[8:12] + b"\0\0\x7f")

        speaker = threading.Thread(target=answer)
        speaker.start()
        url = f"kafka://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(Unreachable, match="does not speak Kafka"), wireproto.connect(url, timeout=20.0) as client:
            client.admin().list_topics()
        speaker.join(20)
