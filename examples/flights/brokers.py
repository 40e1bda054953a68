"""The brokers of the demo: the embedded dev broker, or real servers from Maven Central.

What it is: one context manager that starts them, yields a URL per protocol, and stops them however the demo ends.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from .steps import Failed, Steps, explained, say

Urls = dict[str, str]


@contextmanager
def running(kind: str, out: Path, steps: Steps) -> Iterator[Urls]:
    """Start the brokers named by `kind` (``dev`` or ``real``); the dev broker's errors go to a file in `out`."""
    with ExitStack() as stack:
        with steps.step("start the brokers", "from Maven Central, once some hundred MB" if kind == "real" else ""):
            urls = dev(stack, out / "broker.log") if kind == "dev" else real(stack)
        yield urls


def dev(stack: ExitStack, log: Path) -> Urls:
    """All four protocols in one process of their own, which ends when its standard input does: it cannot outlive the demo."""
    command = [sys.executable, "-m", "wireproto.devbroker", "--until-eof"]
    with log.open("w") as errors:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors}
        process: subprocess.Popen[str] = subprocess.Popen(command, start_new_session=True, text=True, **pipes)
    stack.callback(stop, process)
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise Failed(f"the dev broker ended before it listened: {' '.join(log.read_text().split())[-300:] or 'it said nothing'}")
    told = json.loads(line)
    return {protocol: facts["url"] for protocol, facts in told.items()}


def stop(process: subprocess.Popen[str]) -> None:
    """End a process that ends with its input; kill it when it does not."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def real(stack: ExitStack) -> Urls:
    """Kafka, Pulsar, RocketMQ and ZooKeeper servers, started by the launcher that the tests use; needs a JDK and Maven."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
    from brokers import Kafka, Pulsar, RocketMQ, ZooKeeper

    urls = {}
    kafka, pulsar = Kafka("4.3.1"), Pulsar(transactions=True)
    for name, server in (("zookeeper", ZooKeeper()), ("kafka", kafka), ("rocketmq", RocketMQ("5.5.0")), ("pulsar", pulsar)):
        say(f"{name} …")
        try:
            stack.enter_context(server)
        except Exception as why:
            failed = explained(why)
            failed.step = f"start {name}"
            raise failed from why
        urls[name] = server.url
    return urls
