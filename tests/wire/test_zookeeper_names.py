"""How the ZooKeeper client goes by the addresses of a name: each is tried, and the name is looked up before each attempt."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import wireproto
from patience import KEPT, LATE
from wireproto.devbroker import DevBroker

PROTOCOL, SECONDS = "zookeeper", 20.0
CLIENT = {"timeout": SECONDS}


@contextmanager
def hanging_up(address: tuple[str, int]) -> Iterator[list[float]]:
    """A server that accepts and hangs up: when it was met."""
    met: list[float] = []
    with socket.create_server(address) as server:

        def serve() -> None:
            while True:
                try:
                    sock, _ = server.accept()
                except OSError:
                    return
                met.append(time.monotonic())
                sock.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield met
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Has the name ``ensemble.test`` resolve to these addresses."""
    real = socket.getaddrinfo

    def give(*hosts: str) -> None:
        def look_up(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
            if host != "ensemble.test":
                return real(host, port, *rest, **more)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in hosts]

        monkeypatch.setattr(socket, "getaddrinfo", look_up)

    return give


def test_every_address_of_a_name_is_tried(broker: DevBroker, dial: Any, named: Any) -> None:
    """The first one accepts and hangs up, as a member without quorum does; the second refuses; the third serves."""
    port = int(broker.address("zookeeper").rpartition(":")[2])
    named("127.0.0.2", "127.0.0.3", "127.0.0.1")
    with hanging_up(("127.0.0.2", port)) as met:
        begin = time.monotonic()
        tree = dial(f"zookeeper://ensemble.test:{port}", shuffle=False).tree()
        assert time.monotonic() - begin < LATE
        assert tree.exists("/") is not None
        assert len(met) == 1


def test_a_silent_address_of_a_name_has_its_share_of_time(broker: DevBroker, dial: Any, named: Any) -> None:
    port = int(broker.address("zookeeper").rpartition(":")[2])
    named("127.0.0.2", "127.0.0.1")
    with socket.create_server(("127.0.0.2", port)):
        begin = time.monotonic()
        dial(f"zookeeper://ensemble.test:{port}", shuffle=False, session_timeout=2.0)
        assert 1.0 <= time.monotonic() - begin < 1.0 + KEPT


def test_a_name_is_looked_up_before_each_attempt(broker: DevBroker, dial: Any, named: Any) -> None:
    """Its addresses have changed while the first of the old ones was silent: no time is spent on the next old one."""
    port = int(broker.address("zookeeper").rpartition(":")[2])
    named("127.0.0.2", "127.0.0.3")
    with socket.create_server(("127.0.0.2", port)) as first, socket.create_server(("127.0.0.3", port)) as second:

        def move() -> None:
            sock, _ = first.accept()
            with sock:
                named("127.0.0.1")
                while sock.recv(1000):
                    pass  # until the client has had enough

        thread = threading.Thread(target=move, daemon=True)
        thread.start()
        tree = dial(f"zookeeper://ensemble.test:{port}", shuffle=False, session_timeout=2.0).tree()
        assert tree.exists("/") is not None
        thread.join(SECONDS)
        second.setblocking(False)
        with pytest.raises(BlockingIOError):
            second.accept()


def test_an_address_that_was_tried_is_left_out_of_the_next_look_up_and_others_stay_where_that_fails(
    broker: DevBroker, dial: Any, named: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = int(broker.address("zookeeper").rpartition(":")[2])
    named("127.0.0.2", "127.0.0.1")
    with hanging_up(("127.0.0.2", port)) as met:
        known, looked = socket.getaddrinfo, []

        def once(host: Any, *rest: Any, **more: Any) -> Any:
            if host == "ensemble.test":
                looked.append(host)
                if len(looked) > 1:
                    raise socket.gaierror(socket.EAI_AGAIN, "the name server is away")
            return known(host, *rest, **more)

        monkeypatch.setattr(socket, "getaddrinfo", once)
        assert dial(f"zookeeper://ensemble.test:{port}", shuffle=False).tree().exists("/") is not None
        assert len(met) == 1
        assert len(looked) == 2


def test_clients_spread_over_the_addresses_of_a_name(broker: DevBroker, named: Any) -> None:
    port = int(broker.address("zookeeper").rpartition(":")[2])
    named("127.0.0.1", "127.0.0.2")
    with DevBroker(["zookeeper"], host="127.0.0.2", ports={"zookeeper": port}) as other:
        recordings = [broker.record("zookeeper"), other.record("zookeeper")]

        def met() -> list[int]:
            return [len(recording.requests("createSession")) for recording in recordings]

        for _ in range(8):
            wireproto.connect(f"zookeeper://ensemble.test:{port}", shuffle=False).close()
        assert met() == [8, 0]
        for _ in range(64):
            wireproto.connect(f"zookeeper://ensemble.test:{port}").close()
            if met()[1]:
                break
        assert met()[1] == 1, "by chance alone once in 2^64"
