"""The brokers of the demo: the embedded dev broker, or real servers from Maven Central.

What it is: one context manager that starts them, yields a URL per protocol, and stops them however the demo ends.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

Urls = dict[str, str]


@contextmanager
def running(kind: str) -> Iterator[Urls]:
    """Start the brokers named by `kind` (``dev`` or ``real``)."""
    with ExitStack() as stack:
        yield dev(stack) if kind == "dev" else real(stack)


def dev(stack: ExitStack) -> Urls:
    """All four protocols in one process of their own, which ends when its standard input does: it cannot outlive the demo."""
    command = [sys.executable, "-m", "wireproto.devbroker", "--until-eof"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, text=True)
    stack.callback(stop, process)
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit("the dev broker did not start")
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
        begin = time.perf_counter()
        stack.enter_context(server)
        urls[name] = server.url
        print(f"started {name} in {time.perf_counter() - begin:.1f} s", flush=True)
    return urls
