"""The dev broker's frame, with a side that echoes: frames, faults, coming and going, its process, its logs."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from wireproto.devbroker import DevBroker, PartitionLog, Store
from wireproto.devbroker.server import Connection
from wireproto.devbroker.side import Side
from wireproto.errors import OptionError


class EchoSide(Side):
    """Answers every frame with itself."""

    protocol: ClassVar[str] = "echo"
    cap: ClassVar[int] = 1000

    async def serve(self, connection: Connection) -> None:
        async for frame in connection:
            fault = await connection.fault("Echo", first=frame[:1])
            connection.send(frame, fault=fault)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[DevBroker]:
    monkeypatch.setattr("wireproto.devbroker.broker.side_class", lambda name: EchoSide)
    with DevBroker(["echo"]) as made:
        yield made


def dial(broker: DevBroker) -> socket.socket:
    host, port = broker.address("echo").split(":")
    return socket.create_connection((host, int(port)), 5)


def frame(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def all_of(sock: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size and (part := sock.recv(size - len(got))):
        got += part
    return got


def test_frames_are_answered_in_order_however_they_are_cut(broker: DevBroker) -> None:
    with dial(broker) as sock:
        stream = b"".join(frame(b"x" * size) for size in (0, 1, 999, 1000))
        for at in range(0, len(stream), 7):
            sock.sendall(stream[at : at + 7])
        assert all_of(sock, len(stream)) == stream


def test_a_frame_above_the_cap_costs_the_connection_and_no_other(broker: DevBroker) -> None:
    with dial(broker) as good, dial(broker) as bad:
        bad.sendall((1001).to_bytes(4, "big"))
        assert bad.recv(1) == b""
        good.sendall(frame(b"still here"))
        assert all_of(good, 14) == frame(b"still here")


def test_faults_hold_as_often_as_they_were_asked_for(broker: DevBroker) -> None:
    faults = broker.faults("echo")
    faults.corrupt("Echo", at=0, mask=1)
    faults.drop("Echo", when=lambda facts: facts["first"] == b"d")
    with dial(broker) as sock:
        sock.sendall(frame(b"abc") + frame(b"dropped") + frame(b"dank"))
        assert all_of(sock, 7) == frame(b"`bc")
        assert all_of(sock, 8) == frame(b"dank")
    assert faults.seen("Echo") == 3


@pytest.mark.parametrize("kind", ["disconnect", "lose_reply"])
def test_a_cut_connection_is_cut(broker: DevBroker, kind: str) -> None:
    getattr(broker.faults("echo"), kind)("Echo")
    with dial(broker) as sock:
        sock.sendall(frame(b"abc"))
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(10) == b""


def test_a_truncated_reply_ends_early(broker: DevBroker) -> None:
    broker.faults("echo").truncate("Echo", keep=2)
    with dial(broker) as sock:
        sock.sendall(frame(b"abc"))
        assert all_of(sock, 100) == frame(b"abc")[:6]


def test_it_goes_away_and_comes_back_on_the_same_port(broker: DevBroker) -> None:
    before = broker.address("echo")
    with dial(broker) as sock:
        broker.pause("echo")
        assert sock.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        dial(broker)
    broker.resume("echo")
    assert broker.address("echo") == before
    with dial(broker) as sock:
        sock.sendall(frame(b"back"))
        assert all_of(sock, 8) == frame(b"back")


def test_a_port_is_nobody_elses_while_its_broker_is_away(broker: DevBroker) -> None:
    """It comes from those that the kernel gives to outgoing connections too."""
    host, port = broker.address("echo").split(":")
    broker.pause("echo")
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind((host, int(port)))
    broker.pause("echo")  # once more does no harm
    broker.resume("echo")
    dial(broker).close()


def test_an_unknown_protocol_says_which_there_are() -> None:
    with pytest.raises(OptionError, match="zookeeper"):
        DevBroker(["carrier pigeon"])


def test_the_process_ends_with_its_parents_pipe(tmp_path: Path) -> None:
    where = tmp_path / "ports.json"
    process = subprocess.Popen(
        [sys.executable, "-m", "wireproto.devbroker", "--protocols", "zookeeper", "--port-file", str(where), "--until-eof"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        for _ in range(1000):
            if where.exists() or process.poll() is not None:
                break
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.02)
        told = json.loads(where.read_text())
        host, port = told["zookeeper"]["listeners"]["main"].split(":")
        socket.create_connection((host, int(port)), 5).close()
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


# -- logs -----------------------------------------------------------------------------------------------------------------


def test_a_log_finds_the_entry_that_holds_an_offset() -> None:
    log = PartitionLog()
    for count, timestamp in ((3, 10), (1, 30), (4, 20)):
        log.append(b"x" * count, count=count, timestamp=timestamp)
    assert (log.start, log.end) == (0, 8)
    assert [entry.base for entry in log.read(2, 1)] == [0]
    assert [entry.base for entry in log.read(3, 100)] == [3, 4]
    assert [entry.base for entry in log.read(0, 100, stop=4)] == [0, 3]
    assert log.read(8, 100) == []
    found = log.at_time(15)
    assert found is not None
    assert found.base == 3
    assert log.at_time(31) is None
    log.delete_before(4)
    assert log.start == 4
    assert [entry.base for entry in log] == [4]


def test_a_log_in_a_folder_survives_and_drops_what_a_crash_cut(tmp_path: Path) -> None:
    store = Store(tmp_path)
    log = store.create("a/b", 2)[1]
    log.append(b"one", timestamp=1)
    log.append(b"three", count=3, timestamp=2)
    store.facts["offsets"] = {"g": 4}
    store.close()
    (path,) = [file for file in tmp_path.glob("*/1.log") if file.stat().st_size]
    path.write_bytes(path.read_bytes() + b"\0" * 17)
    again = Store(tmp_path)
    assert again.facts == {"offsets": {"g": 4}}
    assert again.topics == ["a/b"]
    reread = again.partitions("a/b")[1]
    assert [(entry.base, entry.count, entry.data) for entry in reread] == [(0, 1, b"one"), (1, 3, b"three")]
    assert reread.append(b"next").base == 4
    again.close()
