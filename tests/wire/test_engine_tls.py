"""TLS over the engine's loop, against Python's own TLS server in another process."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

import certificates
from certificates import Certificates
from net_server import running
from patience import KEPT, soon
from wireproto._net import Connection, Loop
from wireproto.errors import BufferFull, Disconnected, OptionError, TimedOut, TlsError
from wireproto.net.dial import dial
from wireproto.net.tls import TlsOptions


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def port(certs: Certificates) -> Iterator[int]:
    with running(certs.server, certs.server_key) as port:
        yield port


def connect(loop: Loop, port: int, options: TlsOptions) -> Connection:
    return loop.open(dial(("localhost", port), soon(), tls=options), f"localhost:{port}", "kafka", 64 << 20)


def ask(conn: Connection, verb: bytes, payload: bytes = b"") -> bytes:
    token = conn.next_token()
    return conn.call(token, [struct.pack(">i", token), verb, payload], soon())[4:]


@pytest.mark.parametrize("size", [0, 1, 16384, 16385, 100_000, 3_000_000])
def test_calls_over_tls(loop: Loop, port: int, certs: Certificates, size: int) -> None:
    conn = connect(loop, port, TlsOptions(ca_file=certs.ca))
    payload = bytes(range(256)) * (size // 256 + 1)
    assert ask(conn, b"e", payload[:size]) == payload[:size]
    assert ask(conn, b"w", b"byte by byte") == b"byte by byte"


def test_threads_and_pipelining_over_tls(loop: Loop, port: int, certs: Certificates) -> None:
    conn = connect(loop, port, TlsOptions(ca_file=certs.ca))
    wrong: list[object] = []

    def work(name: int) -> None:
        try:
            for i in range(0, 200, 10):
                calls = []
                for j in range(i, i + 10):
                    token = conn.next_token()
                    payload = (b"%d.%d " % (name, j)) * (j * 10)
                    calls.append((conn.submit(token, [struct.pack(">i", token), b"e", payload]), payload))
                wrong.extend(payload for call, payload in calls if call.result(soon())[4:] != payload)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert wrong == []


def test_big_frames_of_several_threads_do_not_mix_over_tls(loop: Loop, port: int, certs: Certificates) -> None:
    conn = connect(loop, port, TlsOptions(ca_file=certs.ca))
    wrong: list[object] = []

    def work(name: int) -> None:
        payload = b"%d" % name * 300_000
        try:
            wrong.extend(name for _ in range(10) if ask(conn, b"e", payload) != payload)
        except Exception as why:
            wrong.append(why)

    threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []


@pytest.mark.parametrize(("verb", "text"), [(b"k", "closed by the peer"), (b"m", "12 bytes into a frame")])
def test_a_peer_that_closes_is_told_over_tls_too(loop: Loop, port: int, certs: Certificates, verb: bytes, text: str) -> None:
    conn = connect(loop, port, TlsOptions(ca_file=certs.ca))
    with pytest.raises(Disconnected, match=text):
        ask(conn, verb, b"12345678")
    assert conn.closed


def test_a_wait_over_tls_costs_no_processor_time(loop: Loop, port: int, certs: Certificates) -> None:
    conn = connect(loop, port, TlsOptions(ca_file=certs.ca))
    assert ask(conn, b"e", b"x") == b"x"
    began = time.thread_time()
    token = conn.next_token()
    with pytest.raises(TimedOut):
        conn.call(token, [struct.pack(">i", token), b"n"], soon(0.4))
    assert time.thread_time() - began < 0.05, "this thread reads, for nothing comes: it sleeps"


def test_a_peer_that_does_not_read_over_tls_makes_no_sender_spin_and_gets_everything(loop: Loop, port: int, certs: Certificates) -> None:
    conn = connect(loop, port, TlsOptions(ca_file=certs.ca))
    token = conn.next_token()
    slow = conn.submit(token, [struct.pack(">i", token), b"s", struct.pack(">I", 300)])
    refused: list[BaseException] = []

    def fill() -> None:
        try:
            while True:
                conn.send(bytes(1 << 20))
        except BufferFull as why:
            refused.append(why)

    sender = threading.Thread(target=fill, daemon=True)
    sender.start()
    sender.join(20)
    assert len(refused) == 1, "it was told that there is no room"
    conn.send(bytes(1 << 20), timeout_at=soon())
    assert slow.result(soon())
    assert ask(conn, b"e", b"behind all that") == b"behind all that"


HANDLER = """
import faulthandler, signal, struct, sys, time
from wireproto._net import Loop
from wireproto.net.dial import dial
from wireproto.net.tls import TlsOptions

faulthandler.dump_traceback_later(100, exit=True)
soon = lambda: time.monotonic() + 30.0
loop = Loop("handler")
conn = loop.open(dial(("localhost", int(sys.argv[1])), soon(), tls=TlsOptions(ca_file=sys.argv[2])), "peer", "kafka", 1 << 24)
sent, over = [], False

def send(payload):
    token = conn.next_token()
    call = conn.submit(token, [struct.pack(">i", token), b"e", payload])
    sent.append((call, payload))
    return call

def handler(*_):
    if not over:  # the last one may come when the timer has just been stopped
        send(b"handler %d" % len(sent))
        signal.setitimer(signal.ITIMER_REAL, 0.0005)

signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0005)
mine = 0
while mine < 200 or len(sent) < mine + 200:
    send(b"mine %d " % mine * 3000).result(soon())
    mine += 1
over = True
signal.setitimer(signal.ITIMER_REAL, 0)
assert [call.result(soon())[4:] for call, _ in sent] == [payload for _, payload in sent]
"""


def test_a_signal_handler_may_send_over_tls_wherever_it_comes(port: int, certs: Certificates) -> None:
    """In the middle of one of OpenSSL's calls too: it neither waits for the program below it nor gets between its bytes."""
    done = subprocess.run(
        [sys.executable, "-c", HANDLER, str(port), str(certs.ca)], capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_an_unknown_certificate_authority_is_refused(port: int) -> None:
    with pytest.raises(TlsError, match="certificate was refused"):
        dial(("localhost", port), soon(), tls=TlsOptions())


def test_a_certificate_for_another_host_is_refused_unless_told(certs: Certificates, loop: Loop) -> None:
    with running(certs.stranger, certs.stranger_key) as port:
        with pytest.raises(TlsError, match=r"[Hh]ostname mismatch|not valid for"):
            dial(("localhost", port), soon(), tls=TlsOptions(ca_file=certs.ca))
        assert ask(connect(loop, port, TlsOptions(ca_file=certs.ca, verify_host=False)), b"e", b"x") == b"x"
        assert ask(connect(loop, port, TlsOptions(ca_file=certs.ca, server_name="elsewhere.example")), b"e", b"x") == b"x"


def test_tls_against_a_plain_port_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def answer() -> None:
            peer, _ = server.accept()
            peer.recv(100)
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            peer.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(TlsError, match="does not speak TLS on this port: an HTTP server"):
            dial(("127.0.0.1", port), soon(), tls=TlsOptions(verify=False))
        thread.join()


def test_a_port_that_swallows_the_tls_hello_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        begin = time.monotonic()
        with pytest.raises(TimedOut, match="without TLS"):
            dial(("127.0.0.1", server.getsockname()[1]), soon(0.2), tls=TlsOptions(verify=False))
        assert time.monotonic() - begin < 0.2 + KEPT


def test_plain_against_a_tls_port_says_so(loop: Loop, port: int) -> None:
    conn = loop.open(dial(("localhost", port), soon()), "p", "kafka", 1 << 20)
    with pytest.raises(Exception, match=r"speaks TLS|closed by the peer"):
        ask(conn, b"e", b"not a client hello")


def test_missing_files_are_an_option_error() -> None:
    with pytest.raises(OptionError, match="missing"):
        TlsOptions(ca_file="/nonexistent/ca.pem").make_context()
