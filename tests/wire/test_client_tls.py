"""What TLS options do, asked of each client as its user has it: whom it talks to, and whom it refuses. The peer is the dev broker."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import certificates
import wireproto
from certificates import PASSWORD, Certificates
from wireproto.devbroker import DevBroker
from wireproto.errors import OptionError, TlsError, TransportError

PROTOCOLS = ("kafka", "pulsar", "rocketmq", "zookeeper")


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Of a certificate authority that has nothing to do with the broker's."""
    return certificates.make(tmp_path_factory.mktemp("other"))


@contextmanager
def serving(certificate: str, key: str, clients: str | None = None) -> Iterator[DevBroker]:
    """A dev broker with this certificate, which demands one of its clients where it has an authority for them."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    if clients is not None:
        context.load_verify_locations(clients)
        context.verify_mode = ssl.CERT_REQUIRED
    with DevBroker(tls=context) as broker:
        yield broker


@pytest.fixture(scope="module")
def honest(certs: Certificates) -> Iterator[DevBroker]:
    """Its certificate names 127.0.0.1 and localhost."""
    with serving(certs.server, certs.server_key) as broker:
        yield broker


@pytest.fixture(scope="module")
def stranger(certs: Certificates) -> Iterator[DevBroker]:
    """Its certificate names elsewhere.example and nothing else."""
    with serving(certs.stranger, certs.stranger_key) as broker:
        yield broker


@pytest.fixture(scope="module")
def demanding(certs: Certificates) -> Iterator[DevBroker]:
    """It wants to see a client's certificate."""
    with serving(certs.server, certs.server_key, certs.ca) as broker:
        yield broker


@pytest.fixture(scope="module")
def plain() -> Iterator[DevBroker]:
    with DevBroker(["pulsar"]) as broker:
        yield broker


class Way:
    """How one client meets a broker with TLS.

    Attributes:
        where: a protocol, or "pulsar admin" for its HTTP interface alone, with the binary protocol in plain text.
    """

    def __init__(self, where: str, plain: DevBroker) -> None:
        self.where = where
        self._plain = plain

    def meet(self, broker: DevBroker, *, timeout: float = 20.0, **options: Any) -> None:
        """Connect and ask for something, by every connection that the client has to this broker."""
        if self.where == "pulsar admin":
            url = f"pulsar://{self._plain.address('pulsar')}?admin=https://{broker.address('pulsar', 'admin')}"
        else:
            url = broker.url(self.where)
        with wireproto.connect(url, timeout=timeout, connect_timeout=timeout, **options) as client:
            assert client.admin().list_topics(timeout=timeout) is not None  # Pulsar's asks by its own protocol and by HTTP


@pytest.fixture(params=[*PROTOCOLS, "pulsar admin"])
def way(request: pytest.FixtureRequest, plain: DevBroker) -> Way:
    return Way(request.param, plain)


def test_the_broker_that_is_named_is_met(way: Way, honest: DevBroker, certs: Certificates) -> None:
    way.meet(honest, tls_ca_file=certs.ca)


def test_a_certificate_of_another_host_is_refused(way: Way, stranger: DevBroker, certs: Certificates) -> None:
    with pytest.raises(TlsError, match="IP address mismatch"):
        way.meet(stranger, tls_ca_file=certs.ca)
    way.meet(stranger, tls_ca_file=certs.ca, tls_verify_host=False)


def test_the_name_to_check_can_be_given(way: Way, stranger: DevBroker, certs: Certificates) -> None:
    way.meet(stranger, tls_ca_file=certs.ca, tls_server_name="elsewhere.example")
    with pytest.raises(TlsError, match="Hostname mismatch"):
        way.meet(stranger, tls_ca_file=certs.ca, tls_server_name="somewhere.example")


def test_an_unknown_authority_is_refused(way: Way, honest: DevBroker, certs: Certificates, other: Certificates) -> None:
    for trusted in ({}, {"tls_ca_file": other.ca}, {"tls_ca_file": other.ca, "tls_verify_host": False}):
        with pytest.raises(TlsError, match=r"unable to get local issuer certificate|certificate signature failure|self-signed"):
            way.meet(honest, **trusted)
    way.meet(honest, tls_verify=False)


def test_authorities_may_come_as_text(way: Way, honest: DevBroker, certs: Certificates, other: Certificates) -> None:
    way.meet(honest, tls_ca_data=Path(certs.ca).read_text())
    with pytest.raises(TlsError):
        way.meet(honest, tls_ca_data=Path(other.ca).read_text())


def test_the_clients_certificate_is_shown(way: Way, demanding: DevBroker, certs: Certificates, other: Certificates) -> None:
    way.meet(demanding, tls_ca_file=certs.ca, tls_cert_file=certs.client, tls_key_file=certs.client_key)
    with pytest.raises(TransportError):  # told after the handshake, so that clients take it for a loss and try again
        way.meet(demanding, timeout=0.5, tls_ca_file=certs.ca)
    with pytest.raises(TransportError):
        way.meet(demanding, timeout=0.5, tls_ca_file=certs.ca, tls_cert_file=other.client, tls_key_file=other.client_key)


def test_the_clients_key_may_be_encrypted(way: Way, demanding: DevBroker, certs: Certificates) -> None:
    named = {"tls_ca_file": certs.ca, "tls_cert_file": certs.client, "tls_key_file": certs.locked_key}
    way.meet(demanding, **named, tls_key_password=PASSWORD)
    with pytest.raises(OptionError, match="TLS files cannot be used"):
        way.meet(demanding, **named, tls_key_password="another")
    with pytest.raises(OptionError, match="tls_key_password"):  # and nobody is asked for it at the terminal
        way.meet(demanding, **named)


def test_a_context_is_used_as_it_is(way: Way, stranger: DevBroker, certs: Certificates) -> None:
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=certs.ca)
    with pytest.raises(TlsError, match="IP address mismatch"):
        way.meet(stranger, tls_context=context, tls_verify_host=False)
    context.check_hostname = False
    way.meet(stranger, tls_context=context)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_tls_may_be_an_option(protocol: str, honest: DevBroker, certs: Certificates) -> None:
    url = honest.url(protocol).replace("+tls", "")
    with wireproto.connect(url, tls=True, tls_ca_file=certs.ca, timeout=20.0) as client:
        assert client.admin().list_topics() is not None
    with pytest.raises(TransportError), wireproto.connect(url, timeout=0.5) as client:
        client.admin().list_topics(timeout=0.5)


def test_certificates_that_are_renewed_are_used_by_the_next_connection(
    demanding: DevBroker, certs: Certificates, other: Certificates, tmp_path: Path
) -> None:
    cert, key = tmp_path / "client.pem", tmp_path / "client.key"

    def put(made: Certificates | None) -> None:
        for file, source in ((cert, made and made.client), (key, made and made.client_key)):
            new = tmp_path / "new"
            new.write_bytes(Path(source).read_bytes() if source else b"half a")
            new.replace(file)

    def ask() -> None:
        with wireproto.connect(url, **options) as client:
            client.tree().exists("/")

    put(certs)
    url = demanding.url("zookeeper")
    options = {"tls_ca_file": certs.ca, "tls_cert_file": str(cert), "tls_key_file": str(key), "timeout": 20.0}
    with wireproto.connect(url, **options) as client:
        tree = client.tree()
        put(other)
        demanding.kick("zookeeper")
        with pytest.raises(TransportError):
            tree.exists("/", timeout=1.0)
        put(certs)
        assert tree.exists("/", timeout=20.0) is not None
        put(None)  # in the middle of being replaced
        demanding.kick("zookeeper")
        assert tree.exists("/", timeout=20.0) is not None
        put(certs)
        demanding.kick("zookeeper")
        assert tree.exists("/", timeout=20.0) is not None
    ask()
    put(None)
    with pytest.raises(OptionError):
        ask()
