"""The admin HTTP interface and whoever stands at its address: redirects, what is no answer, ports that a URL leaves out, subscriptions."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

import certificates
import wireproto
from pulsar_server import PulsarServer
from wireproto import MessageId
from wireproto.errors import ConnectError, Disconnected, Malformed, TimedOut, TlsError, WireprotoError
from wireproto.pulsar import admin_http
from wireproto.pulsar.codes import AdminRefused, AuthorizationError, ServiceNotReady

HEAD = b"HTTP/1.1 200 OK\r\n"
STATS = "/admin/v2/persistent/public/default/t/stats"
Request = tuple[str, str, bytes]
Answer = Callable[[socket.socket, Request], None]


def answer(status: str, body: bytes = b"", *headers: str) -> Answer:
    """Of this status."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return lambda sock, asked: sock.sendall("\r\n".join(lines).encode() + body)


def said(data: bytes) -> Answer:
    """These bytes, and the end."""
    return lambda sock, asked: sock.sendall(data)


def reset(sock: socket.socket, asked: Request) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class Peer:
    """Takes one request a connection; answers them one after the other, with the last answer from then on."""

    def __init__(self, *answers: Answer, tls: ssl.SSLContext | None = None, listens: bool = True) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.asked: list[Request] = []
        self.over = threading.Event()
        self._answers = answers
        self._tls = tls
        self._listens = listens
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self.listener.accept()
                with suppress(OSError), sock if self._tls is None else self._tls.wrap_socket(sock, server_side=True) as talk:
                    request = _read(talk) if self._listens else ("", "", b"")
                    self.asked.append(request)
                    self._answers[min(len(self.asked), len(self._answers)) - 1](talk, request)

    def silence(self, sock: socket.socket, asked: Request) -> None:
        """Nothing, until the test is over."""
        self.over.wait(60.0)

    def close(self) -> None:
        self.over.set()
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)  # else accept() waits on, and on the next one's listener if it has the number
        self.listener.close()


def _read(sock: socket.socket) -> Request:
    data = b""
    while b"\r\n\r\n" not in data:
        more = sock.recv(65536)
        if not more:
            raise OSError("it hung up")
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    size = next((int(line.partition(":")[2]) for line in lines if line.lower().startswith("content-length:")), 0)
    while len(body) < size:
        body += sock.recv(65536)
    method, path, _ = lines[0].split(" ")
    return method, path, body


@contextmanager
def asking(
    *answers: Answer, tls: ssl.SSLContext | None = None, listens: bool = True, url: str = "{0}", **options: Any
) -> Iterator[tuple[Any, Peer]]:
    """An admin, and who answers it; `url` and what is mapped may name the peer's own URL as {0} and its port as {1}."""
    peer = Peer(*answers, tls=tls, listens=listens)
    mapped = {there: here.format(peer.url, peer.port) for there, here in options.pop("mapped", {}).items()}
    try:
        with (
            PulsarServer() as server,
            wireproto.connect(server.url, admin=url.format(peer.url, peer.port), address_map=mapped or None, **options) as client,
        ):
            yield client.admin(), peer
    finally:
        peer.close()


# -- where it goes --------------------------------------------------------------------------------------------------------


def test_a_url_without_a_port_means_its_scheme_s() -> None:
    with asking(answer("200 OK", b"{}"), url="http://admin.example", mapped={"admin.example:80": "127.0.0.1:{1}"}) as (admin, peer):
        assert admin.deduplication("t") == "unknown"
        assert peer.asked == [("GET", STATS, b"")]


def test_a_secured_url_without_a_port_means_its_scheme_s(tmp_path: Any) -> None:
    pems = certificates.make(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pems.server, pems.server_key)
    given = {"tls_ca_file": pems.ca, "tls_verify_host": False, "mapped": {"admin.example:443": "127.0.0.1:{1}"}}
    with asking(answer("200 OK", b"{}"), tls=context, url="https://admin.example", **given) as (admin, peer):
        assert admin.deduplication("t") == "unknown"
        assert len(peer.asked) == 1


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"])
def test_a_redirect_is_followed_with_all_that_was_asked(status: str) -> None:
    moved = answer(status, b"", "Location: http://owner.example/elsewhere?x=1")
    with asking(moved, answer("204 No Content"), mapped={"owner.example:80": "127.0.0.1:{1}"}) as (admin, peer):
        assert admin.set_deduplication("public/default", True) is None
        path = "/admin/v2/namespaces/public/default/deduplication"
        assert peer.asked == [("POST", path, b"true"), ("POST", "/elsewhere?x=1", b"true")]


def test_redirects_in_a_circle_end() -> None:
    here = "127.0.0.1:{1}"
    with asking(answer("307 Temporary Redirect", b"", "Location: http://a.example/"), mapped={"a.example:80": here}) as (admin, peer):
        with pytest.raises(AdminRefused) as caught:
            admin.deduplication("t")
        assert caught.value.code == 307
        assert len(peer.asked) == 6
    with asking(answer("307 Temporary Redirect")) as (admin, peer):  # where to is not said
        with pytest.raises(AdminRefused):
            admin.deduplication("t")
        assert len(peer.asked) == 1


@pytest.mark.parametrize("where", ["ftp://127.0.0.1/", "/relative", "http://"])
def test_a_redirect_to_what_is_no_admin_interface_is_malformed(where: str) -> None:
    with asking(answer("307 Temporary Redirect", b"", f"Location: {where}")) as (admin, peer):
        with pytest.raises(Malformed, match="redirects to"):
            admin.deduplication("t")
        assert len(peer.asked) == 1


# -- what comes back ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "kind", "text"),
    [
        (said(b""), Disconnected, "dropped the connection: RemoteDisconnected"),
        (reset, Disconnected, "dropped the connection"),
        (said(HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc"), Disconnected, "dropped the connection: IncompleteRead"),
        (said(HEAD + b"Transfer-Encoding: chunked\r\n\r\nnothing like it"), Disconnected, "dropped the connection: IncompleteRead"),
        (said(b"SSH-2.0-OpenSSH_9.2\r\n"), ConnectError, "not an HTTP port"),
        (said(b"HTTP/3.9 200 OK\r\n\r\n"), ConnectError, "not an HTTP port"),
        (answer("200 OK", b"<html>"), Malformed, "answered GET /admin/v2/.*t/stats with a body that is not JSON"),
        (answer("403 Forbidden", b'{"reason": "not yours"}'), AuthorizationError, "not yours"),
        (answer("412 Precondition Failed", b"words"), AdminRefused, "words"),
        (answer("500 Server Error"), AdminRefused, "Server Error"),
    ],
)
def test_what_is_no_good_answer(reply: Answer, kind: type[WireprotoError], text: str) -> None:
    with asking(reply) as (admin, peer):
        with pytest.raises(kind, match=text) as caught:
            admin.deduplication("t", timeout=20.0)
        assert type(caught.value) is kind
        assert caught.value.peer == f"127.0.0.1:{peer.port}"
        assert len(peer.asked) == 1


def test_an_answer_without_an_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_http, "MAX_BODY", 1000)
    with asking(answer("200 OK", b" " * 998 + b"{}"), answer("200 OK", b" " * 999 + b"{}")) as (admin, _):
        assert admin.deduplication("t") == "unknown"
        with pytest.raises(Malformed, match="more than 1000 bytes"):
            admin.deduplication("t")


def test_who_says_nothing_is_given_up_in_time() -> None:
    silent: list[Peer] = []
    with asking(lambda sock, asked: silent[0].silence(sock, asked)) as (admin, peer):
        silent.append(peer)
        with pytest.raises(TimedOut, match="did not answer in time"):
            admin.deduplication("t", timeout=2.0)


def test_who_does_not_speak_tls_is_told_apart_from_who_hangs_up() -> None:
    refusal = said(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with asking(refusal, listens=False, url="https://127.0.0.1:{1}") as (admin, _), pytest.raises(TlsError):
        admin.deduplication("t", timeout=20.0)


def test_a_broker_that_starts_is_asked_again_until_the_time_is_over() -> None:
    starting = answer("503 Service Unavailable", b'{"reason": "starting"}')
    with asking(starting, starting, answer("200 OK", b'{"deduplicationStatus": "Enabled"}')) as (admin, peer):
        assert admin.deduplication("t", timeout=30.0) == "Enabled"
        assert len(peer.asked) == 3
    with asking(starting) as (admin, _), pytest.raises(ServiceNotReady, match="starting"):
        admin.deduplication("t", timeout=2.0)


# -- subscriptions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "body"),
    [
        (MessageId("t", -1, 7, 4), {"ledgerId": 7, "entryId": 4, "partitionIndex": -1, "isExcluded": False}),
        (MessageId("t", -1, 7, 4, after=True), {"ledgerId": 7, "entryId": 5, "partitionIndex": -1, "isExcluded": False}),
        (MessageId("t", -1, 7, 4, 0), {"ledgerId": 7, "entryId": 4, "partitionIndex": -1, "isExcluded": False, "batchIndex": 0}),
    ],
)
def test_a_subscription_is_made_where_it_is_to_begin(place: MessageId, body: dict[str, Any]) -> None:
    with asking(answer("204 No Content")) as (admin, peer):
        assert admin.create_group("a/b", "t", place)
        [(method, path, sent)] = peer.asked
    assert (method, path) == ("PUT", "/admin/v2/persistent/public/default/t/subscription/a%2Fb")
    assert json.loads(sent) == body


@pytest.mark.parametrize(
    ("place", "made_after", "done"), [(MessageId("t", -1, 7, 4, 2), False, 2), (MessageId("t", -1, 7, 4, 2, after=True), True, 3)]
)
def test_a_subscription_that_is_to_begin_within_a_batch_is_reset_to_it(place: MessageId, made_after: bool, done: int) -> None:
    """Brokers (4.2.4) ignore the index when they create a subscription, and that of a reset is the number of messages that are done."""
    with asking(answer("204 No Content")) as (admin, peer):
        assert admin.create_group("a/b", "t", place)
        made, reset = peer.asked
    path, entry = "/admin/v2/persistent/public/default/t/subscription/a%2Fb", {"ledgerId": 7, "entryId": 4, "partitionIndex": -1}
    assert made[:2] == ("PUT", path)
    assert json.loads(made[2]) == {**entry, "isExcluded": made_after, "batchIndex": 2}
    assert reset[:2] == ("POST", f"{path}/resetcursor")
    assert json.loads(reset[2]) == {**entry, "isExcluded": True, "batchIndex": done}


def test_a_subscription_that_is_there_is_left_alone() -> None:
    with asking(answer("409 Conflict", b'{"reason": "Subscription already exists"}')) as (admin, _):
        assert not admin.create_group("g", "t", MessageId("t", -1, 7, 4))
    with asking(answer("404 Not Found")) as (admin, _), pytest.raises(WireprotoError):
        admin.create_group("g", "t", MessageId("t", -1, 7, 4))
