"""The admin HTTP interface: who asks, and whom it trusts."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

import certificates
import wireproto
from pulsar_server import PulsarServer
from wireproto.errors import OptionError, TlsError
from wireproto.pulsar.codes import AuthenticationError


@contextmanager
def web(demand: str | None = None, tls: ssl.SSLContext | None = None) -> Iterator[tuple[str, list[str | None]]]:
    """An admin interface that deletes whatever it is told to, for who says `demand`: its URL, and the Authorization of each request."""
    said: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_DELETE(self) -> None:
            said.append(self.headers["Authorization"])
            self.send_response(204 if demand is None or said[-1] == demand else 401)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    class Server(HTTPServer):
        def handle_error(self, *_: object) -> None:
            pass  # a handshake that the client ended

    with Server(("127.0.0.1", 0), Handler) as served:
        if tls is not None:
            served.socket = tls.wrap_socket(served.socket, server_side=True)
        threading.Thread(target=served.serve_forever, daemon=True).start()
        try:
            yield f"http{'s' if tls else ''}://127.0.0.1:{served.server_port}", said
        finally:
            served.shutdown()


@pytest.mark.parametrize(
    ("credentials", "demand"),
    [({"token": "s3cret"}, "Bearer s3cret"), ({"user": "me", "password": "s3cret"}, "Basic bWU6czNjcmV0")],
)
def test_a_request_carries_the_client_s_credentials(credentials: dict[str, str], demand: str) -> None:
    with web(demand) as (url, said), PulsarServer() as server:
        with wireproto.connect(server.url, admin=url, **credentials) as client:
            client.admin().delete_topic("t", timeout=20.0)
        assert said == [demand]
        with wireproto.connect(server.url, admin=url) as client, pytest.raises(AuthenticationError):
            client.admin().delete_topic("t", timeout=20.0)
        assert said == [demand, None]


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return certificates.make(tmp_path_factory.mktemp("certificates"))


@contextmanager
def secured(chain: str, key: str) -> Iterator[tuple[str, list[str | None]]]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    with web(tls=context) as found:
        yield found


def delete(url: str, **options: Any) -> None:
    with PulsarServer() as server, wireproto.connect(server.url, admin=url, **options) as client:
        client.admin().delete_topic("t", timeout=20.0)


def test_the_host_that_a_certificate_names_is_checked(pems: certificates.Certificates) -> None:
    with secured(pems.stranger, pems.stranger_key) as (url, said):
        with pytest.raises(TlsError):
            delete(url, tls_ca_file=pems.ca)
        assert said == []
        delete(url, tls_ca_file=pems.ca, tls_server_name="elsewhere.example")
        delete(url, tls_ca_file=pems.ca, tls_verify_host=False)
        assert len(said) == 2


def test_who_signed_a_certificate_is_checked(pems: certificates.Certificates) -> None:
    with secured(pems.server, pems.server_key) as (url, said):
        with pytest.raises(TlsError):
            delete(url)
        with pytest.raises(TlsError):
            delete(url, tls_verify_host=False)
        assert said == []
        delete(url, tls_ca_file=pems.ca)
        delete(url, tls_ca_data=Path(pems.ca).read_text(encoding="ascii"))
        delete(url, tls_verify=False)
        assert len(said) == 3


@pytest.mark.parametrize(
    "given",
    ["http://a:1,b:2", "http://a:1,http://b:2", "http://a,b", "http://a:port", "http://a:99999", "http://:80", "http://[::1", "a:8080"],
)
def test_an_admin_url_that_does_not_name_one_host_is_refused_at_connect(given: str) -> None:
    with pytest.raises(OptionError, match="admin is the URL"):
        wireproto.connect("pulsar://127.0.0.1:1", admin=given)
