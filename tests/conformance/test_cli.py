"""The commands as a user types them, on the development broker with all four protocols."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from brokers import ports
from patience import LONG
from wireproto.cli import main
from wireproto.devbroker import DevBroker
from wireproto.kafka import messages

SRC = Path(__file__).resolve().parents[2] / "src"
LOGS = ("kafka", "pulsar", "rocketmq")
ALL = (*LOGS, "zookeeper")


class Shell:
    """Runs commands in this process, with what they read and write as bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfdbinary: Any) -> None:
        self.monkeypatch, self.captured = monkeypatch, capfdbinary

    def __call__(self, *words: str, stdin: bytes = b"", code: int = 0) -> bytes:
        """Standard output; the exit code must be `code`, and an error one line."""
        self.captured.readouterr()
        self.monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        found = main(words)
        sys.stdout.flush()
        out, self.errors = self.captured.readouterr()
        assert found == code, self.errors.decode()
        if code:
            assert self.errors.startswith(b"wireproto: ")
            assert self.errors.count(b"\n") == 1, self.errors.decode()
        return bytes(out)

    def rows(self, *words: str) -> list[dict[str, Any]]:
        """What consume prints, as JSON."""
        return [json.loads(line) for line in self("consume", *words).splitlines()]


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capfdbinary: Any) -> Shell:
    return Shell(monkeypatch, capfdbinary)


def url_of(broker: DevBroker, protocol: str, name: str = "") -> str:
    """The server's URL, or a topic's; Pulsar's names its admin interface, over which topics are made."""
    return broker.url(protocol, name) if name else broker.url(protocol)


def jsonl(*rows: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def made(shell: Shell, broker: DevBroker, protocol: str, name: str, partitions: int = 1) -> str:
    """A topic's URL."""
    topic = f"/{name}" if protocol == "zookeeper" else name
    shell("topics", url_of(broker, protocol), "create", topic, "--partitions", str(partitions))
    return url_of(broker, protocol, name)


@pytest.mark.parametrize("protocol", ALL)
def test_what_produce_reads_consume_prints(shell: Shell, dev_broker: DevBroker, protocol: str) -> None:
    url = made(shell, dev_broker, protocol, f"cli-jsonl-{protocol}")
    rows: list[dict[str, Any]] = [{"value": "plain"}, {"value": "Grüße 🛫"}, {"value": {"base64": "/wA="}}]
    if protocol in LOGS:
        rows += [{"key": "k", "value": "v", "headers": [["a", "1"], ["b", "2"]], "timestamp": 1357034400000}]
        rows += [{"key": "k", "value": "v", "headers": {"a": "1"}}]
    if protocol in ("kafka", "pulsar"):
        rows += [{"value": None, "key": "k"}, {"value": "", "key": "k"}, {"value": "x", "key": ""}]
    shell("produce", url, stdin=jsonl(*rows))
    assert shell.errors == f"{len(rows)} records acknowledged\n".encode()
    found = shell.rows(url, "--to", "latest")
    assert [row["value"] for row in found] == [row["value"] for row in rows]
    assert [row["key"] for row in found] == [row.get("key") for row in rows]
    assert all(set(row) == {"key", "value", "headers", "timestamp", "partition", "position"} for row in found)
    if protocol in LOGS:
        assert found[3]["headers"] == [["a", "1"], ["b", "2"]]
        assert found[3]["timestamp"] == 1357034400000
        assert found[4]["headers"] == [["a", "1"]]
    # what consume printed, produce takes
    again = made(shell, dev_broker, protocol, f"cli-again-{protocol}")
    if protocol == "zookeeper":  # its queue keeps no time of the writer's
        shell("produce", again, stdin=jsonl(found[0]), code=1)
        found = [{**row, "timestamp": None} for row in found]
    shell("produce", again, stdin=jsonl(*found))
    strip = ("position", "timestamp") if protocol == "zookeeper" else ("position",)
    copied = shell.rows(again, "--to", "latest")
    assert [{k: v for k, v in row.items() if k not in strip} for row in copied] == [
        {k: v for k, v in row.items() if k not in strip} for row in found
    ]


@pytest.mark.parametrize("protocol", ALL)
def test_lines_templates_and_files(shell: Shell, dev_broker: DevBroker, protocol: str, tmp_path: Path) -> None:
    url = made(shell, dev_broker, protocol, f"cli-lines-{protocol}")
    (tmp_path / "in").write_bytes(b"one\n\xff\xfe\nlast without an end")
    shell("produce", url, str(tmp_path / "in"), "--format", "lines")
    words = ("consume", url, "--to", "latest", "--format", "template")
    assert shell(*words, "--template", "{value}\\n") == b"one\n\xff\xfe\nlast without an end\n"
    shell(*words, "--template", "{value},", "--output", str(tmp_path / "out"))
    assert (tmp_path / "out").read_bytes() == b"one,\xff\xfe,last without an end,"
    if protocol in LOGS:
        shell("produce", url, "--format", "template", "--template", "{key}:{value}", stdin=b"k1:v1\nk2:v:2\n")
        assert [(row["key"], row["value"]) for row in shell.rows(url, "--to", "latest")[3:]] == [("k1", "v1"), ("k2", "v:2")]
        shell("produce", url, "--format", "template", "--template", "{key}:{value}", stdin=b"k1:v1\nno colon\n", code=1)
        assert b"line 2" in shell.errors


@pytest.mark.parametrize("protocol", LOGS)
def test_from_and_to_take_every_kind_of_place(shell: Shell, dev_broker: DevBroker, protocol: str) -> None:
    url = made(shell, dev_broker, protocol, f"cli-places-{protocol}")
    shell("produce", url, stdin=jsonl(*({"value": str(n)} for n in range(5))))
    last = int(time.time() * 1000)  # the broker's clock is ours, and it has stored them by now
    while int(time.time() * 1000) <= last:
        time.sleep(0.001)
    middle = int(time.time() * 1000)
    shell("produce", url, stdin=jsonl(*({"value": str(n)} for n in range(5, 10))))
    rows = shell.rows(url, "--to", "latest")
    assert [row["value"] for row in rows] == [str(n) for n in range(10)]
    places = [f"{row['partition']}={row['position']}" for row in rows]
    assert [row["value"] for row in shell.rows(url, "--from", places[3], "--to", places[6])] == ["3", "4", "5"]
    assert [row["value"] for row in shell.rows(url, "--from", f"@{middle}", "--to", "latest")] == ["5", "6", "7", "8", "9"]
    assert [row["value"] for row in shell.rows(url, "--to", f"@{middle}")] == ["0", "1", "2", "3", "4"]
    assert shell.rows(url, "--from", "latest", "--to", "latest") == []
    assert [row["value"] for row in shell.rows(url, "--limit", "3")] == ["0", "1", "2"]
    assert shell.rows(url, "--limit", "0") == []
    at = shell("positions", url, "--at", f"@{middle}").decode().strip()
    assert [row["value"] for row in shell.rows(url, "--from", at, "--limit", "1")] == ["5"]
    shell("consume", url, "--from", "yesterday", "--to", "latest", code=1)
    assert len(shell.rows(url, "--from", "2013-01-01T00:00:00", "--to", "latest")) == 10
    shell("consume", url, "--from", str(middle), "--to", "latest", code=1)
    assert f"write @{middle} for a time".encode() in shell.errors


@pytest.mark.parametrize("protocol", LOGS)
def test_partitions_are_picked_when_writing_and_reading(shell: Shell, dev_broker: DevBroker, protocol: str) -> None:
    url = made(shell, dev_broker, protocol, f"cli-parts-{protocol}", partitions=3)
    server = url_of(dev_broker, protocol)
    shell("produce", url, "--partition", "2", stdin=jsonl({"value": "a"}, {"value": "b"}))
    shell("produce", url, stdin=jsonl({"value": "c", "partition": 0}))
    assert [(row["value"], row["partition"]) for row in shell.rows(url, "--partition", "2", "--to", "latest")] == [("a", 2), ("b", 2)]
    assert [row["value"] for row in shell.rows(url, "--partition", "0", "--partition", "1", "--to", "latest")] == ["c"]
    shell("consume", url, "--partition", "7", "--to", "latest", code=1)
    assert b"no partition 7" in shell.errors
    shell("produce", url, "--partition", "7", "--timeout", "5", stdin=jsonl({"value": "a"}), code=1)
    table = shell("positions", url).decode().splitlines()
    assert [line.split()[0] for line in table] == ["partition", "0", "1", "2"]
    assert f"cli-parts-{protocol}" in shell("topics", server).decode()
    assert len(shell("topics", server, "describe", f"cli-parts-{protocol}").decode().splitlines()) == 4
    shell("topics", server, "delete", f"cli-parts-{protocol}")
    assert f"cli-parts-{protocol}" not in shell("topics", server).decode()


@pytest.mark.parametrize("form", ["parquet", "arrow"])
@pytest.mark.parametrize("protocol", ALL)
def test_columns_hold_the_same(shell: Shell, dev_broker: DevBroker, protocol: str, form: str, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    url = made(shell, dev_broker, protocol, f"cli-{form}-{protocol}", partitions=1 if protocol == "zookeeper" else 2)
    shell("produce", url, stdin=jsonl(*({"value": f"v{n}"} for n in range(6))))
    data = shell("consume", url, "--to", "latest", "--format", form)
    table = pq.read_table(io.BytesIO(data)) if form == "parquet" else pa.ipc.open_stream(data).read_all()
    assert sorted(table["value"].to_pylist()) == [b"v0", b"v1", b"v2", b"v3", b"v4", b"v5"]
    assert {"timestamp", "key", "headers", "partition"} <= set(table.column_names)
    out = tmp_path / "out"
    shell("consume", url, "--format", form, "--limit", "4", "--output", str(out))
    table = pq.read_table(out) if form == "parquet" else pa.ipc.open_stream(out.read_bytes()).read_all()
    assert table.num_rows == 4
    empty = made(shell, dev_broker, protocol, f"cli-empty-{form}-{protocol}")
    data = shell("consume", empty, "--to", "latest", "--format", form)
    table = pq.read_table(io.BytesIO(data)) if form == "parquet" else pa.ipc.open_stream(data).read_all()
    assert table.num_rows == 0
    shell("consume", url, "--format", form, code=1)
    assert b"needs an end" in shell.errors


def test_tree_shows_and_changes_nodes(shell: Shell, dev_broker: DevBroker) -> None:
    url = dev_broker.url("zookeeper")
    assert shell("tree", url, "create", "/cli/a/b", "hello", "--parents") == b"/cli/a/b\n"
    assert shell("tree", url, "get", "/cli/a/b") == b"hello"
    assert main(["tree", url, "set", "/cli/a/b"]) != 0  # a slip must not empty the node
    assert shell("tree", url, "get", "/cli/a/b") == b"hello"
    shell("tree", url, "set", "/cli/a/b", "-", stdin=b"\xff\x00")
    assert shell("tree", url, "get", "/cli/a/b") == b"\xff\x00"
    assert [line.strip().split()[0] for line in shell("tree", url, "show", "/cli").decode().splitlines()] == ["/cli", "a", "b"]
    assert b"version=1" in shell("tree", url, "stat", "/cli/a/b")
    assert shell("tree", url, "create", "/cli/s-", "--sequence") == b"/cli/s-0000000001\n"
    shell("tree", url, "delete", "/cli", code=1)
    assert b"NotEmpty" in shell.errors
    shell("tree", url, "delete", "/cli", "--recursive")
    shell("tree", url, "get", "/cli", code=1)
    assert b"NoNode" in shell.errors
    assert b"/cli" in shell.errors


@pytest.mark.parametrize("protocol", ALL)
def test_wrong_places_are_one_line(shell: Shell, dev_broker: DevBroker, protocol: str) -> None:
    words = ("--to", "latest", "--timeout", "2")
    port = ports.take()  # nobody's, also while others look for a free one
    shell("consume", f"{protocol}://127.0.0.1:{port}/t", *words, code=1)
    ports.release(port)
    assert f"127.0.0.1:{port}".encode() in shell.errors
    assert b"refused" in shell.errors
    shell("consume", f"{protocol}://no-such-host.invalid/t", *words, code=1)
    assert b"no-such-host.invalid" in shell.errors
    if protocol != "pulsar":  # which makes topics when they are asked for
        shell("consume", dev_broker.url(protocol, "cli-nothing-there"), *words, code=1)
        assert b"cli-nothing-there" in shell.errors
    url = dev_broker.url(protocol, "t")
    shell("consume", f"{url}{'&' if '?' in url else '?'}colour=blue", *words, code=1)
    assert b"colour" in shell.errors
    for other in ALL:
        if other != protocol:
            where = dev_broker.url(other).partition("://")[2].partition("/")[0].partition("?")[0]
            begun = time.monotonic()
            shell("consume", f"{protocol}://{where}/t", *words, code=1)
            assert where.encode() in shell.errors, shell.errors
            assert time.monotonic() - begun < 15  # and not the half minute that it has without --timeout


def test_bad_lines_are_named(shell: Shell, dev_broker: DevBroker) -> None:
    url = made(shell, dev_broker, "kafka", "cli-bad")
    for line, words in (
        (b"{", b"line 2 is not JSON"),
        (b"5", b"line 2 is not a JSON object"),
        (b'{"valeu":"x"}', b"valeu"),
        (b'{"value":5}', b"line 2, value"),
        (b'{"value":{"base64":"%"}}', b"line 2, value"),
        (b'{"value":"x","headers":5}', b"line 2, headers"),
        (b'{"value":"x","timestamp":"now"}', b"line 2, timestamp"),
        (b'{"value":"\\ud800"}', b"surrogate"),
        (b"\xff", b"line 2"),
    ):
        shell("produce", url, stdin=b'{"value":"ok"}\n' + line + b"\n", code=1)
        assert words in shell.errors, shell.errors
    shell("produce", url, "/no/such/file", code=1)
    shell("produce", dev_broker.url("kafka"), stdin=b"", code=1)
    assert b"no topic" in shell.errors
    shell("produce", "smtp://localhost/t", code=1)
    shell("consume", url, "--format", "template", "--template", "{colour}", "--to", "latest", code=1)


def run(*words: str, stdin: bytes = b"", **more: Any) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    command = [sys.executable, "-m", "wireproto.cli", *words]
    return subprocess.run(command, input=stdin, capture_output=True, env=environment, timeout=60, check=False, **more)


def start(*words: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(SRC), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "wireproto.cli", *words]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)


def test_wrong_usage_is_exit_code_two() -> None:
    for words in ((), ("colour",), ("consume",), ("consume", "kafka://h/t", "--format", "xml"), ("consume", "kafka://h/t", "--limit", "x")):
        found = run(*words)
        assert found.returncode == 2
        assert found.stderr.startswith(b"usage: ")
        assert not found.stdout
    assert b"wireproto" in run("--version").stdout
    assert b"produce" in run("--help").stdout


@pytest.mark.parametrize("protocol", ALL)
def test_a_refused_connection_is_said_once(protocol: str) -> None:
    """Not by the log and by the error, in a program of its own, where nobody else has configured logging."""
    port = ports.take()
    found = run("consume", f"{protocol}://127.0.0.1:{port}/t", "--to", "latest", "--timeout", "2")
    ports.release(port)
    assert found.returncode == 1
    assert found.stderr.startswith(b"wireproto: ")
    assert (found.stderr.count(b"refused"), found.stderr.count(b"\n")) == (1, 1), found.stderr.decode()


@pytest.mark.parametrize("protocol", ALL)
def test_a_follower_prints_at_once_and_ends_quietly_at_ctrl_c(shell: Shell, dev_broker: DevBroker, protocol: str) -> None:
    url = made(shell, dev_broker, protocol, f"cli-follow-{protocol}")
    shell("produce", url, stdin=jsonl({"value": "before"}))
    follower = start("consume", url)
    try:
        assert follower.stdout is not None
        assert follower.stderr is not None
        assert json.loads(follower.stdout.readline())["value"] == "before"
        shell("produce", url, stdin=jsonl({"value": "after"}))
        assert json.loads(follower.stdout.readline())["value"] == "after"
        follower.send_signal(signal.SIGINT)
        assert follower.wait(LONG) == 130
        assert follower.stderr.read() == b""
        assert follower.stdout.read() == b""
    finally:
        follower.kill()
        follower.communicate()


def test_a_closed_pipe_ends_quietly(shell: Shell, dev_broker: DevBroker) -> None:
    url = made(shell, dev_broker, "kafka", "cli-pipe")
    shell("produce", url, stdin=jsonl(*({"value": "x" * 1000} for _ in range(2000))))
    reader = start("consume", url, "--to", "latest")
    assert reader.stdout is not None
    assert reader.stderr is not None
    reader.stdout.readline()
    reader.stdout.close()
    try:
        assert reader.wait(LONG) == 141
        assert reader.stderr.read() == b""
    finally:
        reader.kill()
        reader.stderr.close()
        assert reader.stdin is not None
        reader.stdin.close()


def test_debug_shows_the_wire_without_secrets(dev_broker: DevBroker, shell: Shell) -> None:
    url = made(shell, dev_broker, "kafka", "cli-debug")
    found = run("produce", "--debug", url, stdin=jsonl({"value": "wire" * 20}))
    assert found.returncode == 0
    assert b"> 127.0.0.1" in found.stderr
    assert b"< 127.0.0.1" in found.stderr
    assert b"wirewirewire" in found.stderr


def test_debug_hides_the_password_that_it_sends() -> None:
    """A peer that goes as far as PLAIN, which the development broker has not, and then hangs up."""
    offered = tuple(messages.ApiVersion(api_key=key, max_version=last) for key, last in ((3, 5), (17, 1), (18, 2), (36, 1)))
    seen: list[bytes] = []

    def serve(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                conn = server.accept()[0]
                with conn, conn.makefile("rwb") as stream:
                    while head := stream.read(4):
                        frame = stream.read(int.from_bytes(head, "big"))
                        seen.append(frame)
                        key, version = struct.unpack_from(">hh", frame)
                        if key == 18 and version > 2:
                            body = messages.ApiVersionsResponse(error_code=35).encode(0)
                        elif key == 18:
                            body = messages.ApiVersionsResponse(api_keys=offered).encode(version)
                        elif key == 17:
                            body = messages.SaslHandshakeResponse(mechanisms=("PLAIN",)).encode(version)
                        else:
                            break
                        stream.write((len(body) + 4).to_bytes(4, "big") + frame[4:8] + body)
                        stream.flush()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, args=(server,), daemon=True).start()
        url = f"kafka://127.0.0.1:{server.getsockname()[1]}/t?sasl=PLAIN&user=u&password=hunter2"
        found = run("consume", "--debug", url, "--to", "latest", "--timeout", "10")
    assert found.returncode == 1
    assert any(b"hunter2" in frame for frame in seen)
    assert b"bytes, secret" in found.stderr
    assert b"hunter2" not in found.stderr


def test_debug_hides_a_sessions_password(dev_broker: DevBroker) -> None:
    found = run("tree", "--debug", dev_broker.url("zookeeper"))
    assert found.returncode == 0
    lines = found.stderr.decode().splitlines()
    assert [line.endswith("bytes, secret") for line in lines if " < " in line or " > " in line][:2] == [True, True]


def test_dev_runs_until_it_is_told_to_stop() -> None:
    broker = start("dev", "--free-ports", "--protocols", "kafka,zookeeper")
    try:
        assert broker.stdout is not None
        assert broker.stderr is not None
        lines = [broker.stdout.readline().decode() for _ in range(3)]
        assert "kafka://127.0.0.1:" in lines[1]
        assert "zookeeper://127.0.0.1:" in lines[2]
        url = lines[1].split()[0].rstrip("/") + "/t"
        assert run("topics", url, "create", "t").returncode == 0
        assert run("produce", url, stdin=jsonl({"value": "x"})).returncode == 0
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(LONG) == 0
        assert broker.stderr.read() == b""
    finally:
        broker.kill()
        broker.communicate()
