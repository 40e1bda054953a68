"""Every command of the README's "Command line" runs as printed, in order, in a shell, beside the ``wireproto dev`` that it names.

Of what is printed two things are other ones here: the ports, since somebody may have the usual ones meanwhile (which are chosen when:
tests/unit/test_dev_ports.py), and the folder of a ZooKeeper server, which need not be on this machine: its log is one of the tests' data.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import wireproto
from patience import LONG
from wireproto.spark.kafka_decisions import PARTITIONS
from wireproto.spark.kafka_options import DECISIONS

CLONE = Path(wireproto.__file__).parents[2]
LOG = CLONE / "tests" / "wire" / "zookeeper" / "log"
_SECTION = re.compile(r"^## Command line$(.*?)^## ", re.DOTALL | re.MULTILINE)
_ADDRESS = re.compile(r"(kafka|pulsar|rocketmq|zookeeper)://localhost:(\d+)")
USUAL = {"kafka": "9092", "pulsar": "6650", "rocketmq": "9876", "zookeeper": "2181"}


def commands() -> list[str]:
    """The section's indented lines; the first starts the broker."""
    section = _SECTION.search((CLONE / "README.md").read_text())
    assert section is not None
    return [line.strip() for line in section[1].splitlines() if line.startswith("    ")]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """In which ``wireproto`` is this clone's."""
    script = tmp_path / "bin" / "wireproto"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m wireproto.cli "$@"\n')
    script.chmod(0o755)
    return {**os.environ, "PYTHONPATH": str(CLONE / "src"), "PATH": f"{script.parent}:{os.environ['PATH']}", "PYTHONUNBUFFERED": "1"}


@pytest.fixture
def urls(environment: dict[str, str], tmp_path: Path) -> Iterator[dict[str, str]]:
    """``host:port`` of each protocol of the broker that the README's first command starts, on free ports."""
    first, _, _ = commands()[0].partition("#")
    assert first.split() == ["wireproto", "dev"]
    command = ["wireproto", "dev", "--free-ports"]
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            assert broker.stdout.readline().startswith("development broker: ")
            found = [re.match(r"  (\w+)://([^?\s]+)", broker.stdout.readline()) for _ in USUAL]
            yield {match[1]: match[2] for match in found if match is not None}
            broker.send_signal(signal.SIGINT)
            assert broker.wait(LONG) == 0
        finally:
            broker.kill()


def prepared(line: str, urls: dict[str, str]) -> str:
    """The line with what is another here; what ``sinks drop`` looks for is made, as a Spark sink does."""
    for protocol, port in _ADDRESS.findall(line):
        assert port == USUAL[protocol], "the README's ports are not those that `wireproto dev` takes"
    if "sinks drop" in line:
        with wireproto.connect(f"kafka://{urls['kafka']}") as client:
            client.admin().create_topic(DECISIONS, partitions=PARTITIONS)
    return _ADDRESS.sub(lambda found: f"{found[1]}://{urls[found[1]]}", line).replace("/var/lib/zookeeper/version-2/log.1", str(LOG))


def shown(line: str, out: str, errors: str, folder: Path) -> bool:
    """Whether a command did what the README has it for; a command that this does not know fails."""
    words = re.findall(r"wireproto (\w+(?: drop| log)?)", line.partition("#")[0])
    if "--format parquet" in line:
        import pyarrow.parquet as pq

        return sorted(map(int, pq.read_table(folder / "orders.parquet")["value"].to_pylist())) == list(range(1, 1001))
    if words == ["topics"]:
        return not out + errors
    if words == ["produce"]:
        return errors in ("2 records acknowledged\n", "1000 records acknowledged\n")
    if words == ["consume"]:
        return [json.loads(row)["value"] for row in out.splitlines()] == ["two teas", "one coffee"]
    if words == ["positions"]:
        return len(out.strip().split(",")) == 4
    if words == ["tree"]:
        return out.splitlines()[:2] == ["/", "  zookeeper"]
    if words == ["encode", "decode"]:
        return '"orders"' in out and "topics[0].name" in out
    if words == ["sinks drop"]:
        return out == "nothing is there of etl-7\n"
    if words == ["zookeeper log"]:
        return json.loads(out.splitlines()[0])["operation"] == "createSession"
    raise AssertionError(f"say what this command of the README's is to do: {line}")


def test_the_commands_run_as_printed(urls: dict[str, str], environment: dict[str, str], tmp_path: Path) -> None:
    lines = commands()[1:]
    assert len(lines) >= 10
    for line in lines:
        command = ["bash", "-e", "-o", "pipefail", "-c", prepared(line, urls)]
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=2 * LONG
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        assert shown(line, done.stdout, done.stderr, tmp_path), f"{line}\n{done.stdout}{done.stderr}"
