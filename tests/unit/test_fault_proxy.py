"""The fault proxy does to a connection what its commands say: the tests that use it would prove nothing otherwise."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from brokers.proxy import FaultProxy
from patience import LONG, until


@pytest.fixture
def echo() -> Iterator[str]:
    """Address of a server that sends back what it gets."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                sock, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(sock,), daemon=True).start()

    def answer(sock: socket.socket) -> None:
        with sock:
            try:
                while data := sock.recv(65536):
                    sock.sendall(data)
            except OSError:
                pass

    threading.Thread(target=serve, daemon=True).start()
    yield f"127.0.0.1:{server.getsockname()[1]}"
    server.shutdown(socket.SHUT_RDWR)
    server.close()


@pytest.fixture
def proxy() -> Iterator[FaultProxy]:
    with FaultProxy() as made:
        yield made


def dial(address: str) -> socket.socket:
    host, port = address.split(":")
    return socket.create_connection((host, int(port)), LONG)


def ask(sock: socket.socket, data: bytes = b"ping") -> bytes:
    sock.sendall(data)
    got = b""
    while len(got) < len(data):
        part = sock.recv(65536)
        if not part:
            break
        got += part
    return got


def silent(sock: socket.socket) -> bool:
    sock.settimeout(0.2)
    try:
        sock.recv(1)
    except TimeoutError:
        return True
    finally:
        sock.settimeout(LONG)
    return False


def test_passes_large_data_unchanged(proxy: FaultProxy, echo: str) -> None:
    data = bytes(range(256)) * 20_000
    with dial(proxy.through(echo)) as sock:
        writer = threading.Thread(target=sock.sendall, args=(data,))
        writer.start()
        got = bytearray()
        while len(got) < len(data) and (part := sock.recv(65536)):
            got += part
        writer.join()
    assert got == data
    assert proxy.passed == {"up": len(data), "down": len(data)}


def test_stall_keeps_the_connection_and_heal_delivers(proxy: FaultProxy, echo: str) -> None:
    with dial(proxy.through(echo)) as sock:
        assert ask(sock) == b"ping"
        proxy.stall()
        sock.sendall(b"late")
        assert silent(sock)
        proxy.heal()
        assert sock.recv(4) == b"late"


def test_drop_loses_the_bytes_only(proxy: FaultProxy, echo: str) -> None:
    with dial(proxy.through(echo)) as sock:
        proxy.drop("down")
        sock.sendall(b"lost")
        until(lambda: proxy.dropped["down"] == 4)  # healed before, it would pass them
        assert silent(sock)
        proxy.heal()
        assert ask(sock, b"kept") == b"kept"


def test_delay_holds_each_direction_back(proxy: FaultProxy, echo: str) -> None:
    with dial(proxy.through(echo)) as sock:
        proxy.delay(0.1)
        began = time.monotonic()
        assert ask(sock) == b"ping"
        assert time.monotonic() - began >= 0.2


def test_a_slow_line_lets_so_many_bytes_through_a_second(proxy: FaultProxy, echo: str) -> None:
    with dial(proxy.through(echo)) as sock:
        proxy.slow(100_000)
        data = bytes(range(256)) * 100
        began = time.monotonic()
        assert ask(sock, data) == data
        assert time.monotonic() - began >= 0.25
        proxy.heal()
        assert ask(sock) == b"ping"


def test_cut_resets_the_open_and_lets_new_ones_pass(proxy: FaultProxy, echo: str) -> None:
    with dial(proxy.through(echo)) as sock:
        assert ask(sock) == b"ping"
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            sock.recv(1)
    with dial(proxy.through(echo)) as sock:
        assert ask(sock) == b"ping"


def test_cut_after_some_bytes(proxy: FaultProxy, echo: str) -> None:
    with dial(proxy.through(echo)) as sock:
        proxy.cut_after(6)
        assert ask(sock) == b"ping"
        with pytest.raises(ConnectionResetError):
            ask(sock, b"never all of it")
    assert proxy.passed["down"] == 6


def test_half_close_ends_one_direction(proxy: FaultProxy, echo: str) -> None:
    with dial(proxy.through(echo)) as sock:
        assert ask(sock) == b"ping"
        proxy.half_close()
        assert sock.recv(1) == b""


def test_refuse_and_heal(proxy: FaultProxy, echo: str) -> None:
    address = proxy.through(echo)
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        dial(address)
    proxy.heal()
    with dial(address) as sock:
        assert ask(sock) == b"ping"


def test_url_leads_each_address_through(proxy: FaultProxy) -> None:
    url = proxy.url("kafka://127.0.0.1:1111,127.0.0.1:2222/topic?admin=http://127.0.0.1:3333")
    first, second = proxy.through("127.0.0.1:1111"), proxy.through("127.0.0.1:2222")
    assert url == f"kafka://{first},{second}/topic?admin=http://127.0.0.1:3333"
    assert proxy.address_map(["127.0.0.1:2222"]) == {"127.0.0.1:2222": second}
