"""Which ports ``wireproto dev`` takes: the usual ones that nobody has, unless it is told others."""

from __future__ import annotations

import socket

import pytest

from brokers import ports
from wireproto.cli import dev, parser
from wireproto.devbroker import command

USUAL = {"kafka": 9092, "pulsar": 6650, "rocketmq": 9876, "zookeeper": 2181}


def test_the_usual_ports_are_the_servers() -> None:
    assert dev.usual_ports(USUAL) == USUAL
    assert dev.usual_ports(["kafka", "no-such-protocol"]) == {"kafka": 9092}


@pytest.mark.parametrize("given", ["kafka=19092", "kafka.main=19092"])
def test_a_port_that_is_given_is_taken(given: str) -> None:
    assert dev.unnamed(USUAL, [given, "pulsar.admin=8080"]) == {name: port for name, port in USUAL.items() if name != "kafka"}


def test_a_port_that_another_has_is_left_to_it() -> None:
    free, taken = dev.divided(USUAL, lambda port: port != 6650)
    assert free == {name: port for name, port in USUAL.items() if name != "pulsar"}
    assert taken == {"pulsar": 6650}


@pytest.mark.parametrize("other", ["127.0.0.1", "0.0.0.0"])
def test_who_listens_has_the_port(other: str) -> None:
    port = ports.take()
    try:
        assert dev.may_listen("127.0.0.1", port)
        with socket.create_server((other, port)):
            assert not dev.may_listen("127.0.0.1", port)
        assert dev.may_listen("127.0.0.1", port)
    finally:
        ports.release(port)


@pytest.mark.parametrize(("words", "wanted"), [((), True), (("--free-ports",), False)])
def test_what_is_said_is_where_it_listens(
    words: tuple[str, ...], wanted: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With two ports that are ours in the place of the usual ones, of which another program has one."""
    kafka, zookeeper = ports.take(), ports.take()
    monkeypatch.setattr(dev, "usual_ports", lambda _: {"kafka": kafka, "zookeeper": zookeeper})
    monkeypatch.setattr(command, "stop_signal", lambda: None)
    monkeypatch.setattr(command, "wait", lambda _: None)
    try:
        with socket.create_server(("127.0.0.1", zookeeper)):
            options = parser("dev").parse_args(["dev", "--protocols", "kafka,zookeeper", *words])
            assert dev.run(options) == 0
    finally:
        ports.release(kafka, zookeeper)
    _, first, second = capsys.readouterr().out.splitlines()
    assert (f"kafka://127.0.0.1:{kafka}" == first.strip()) is wanted
    assert (f"({zookeeper} is taken by another program)" in second) is wanted
    assert f"127.0.0.1:{zookeeper} " not in second
