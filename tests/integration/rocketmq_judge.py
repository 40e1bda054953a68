"""RocketMQ's own client as a judge of what is there to read, in one JVM for all questions of a module: see RocketMQJudges.java."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from brokers import RocketMQ, java

SECONDS = 120.0
_judges: dict[str, java.Program] = {}
"""The JVM of each version of the client."""


def pulled(broker: RocketMQ, topic: str, *credentials: str) -> list[dict[str, Any]]:
    """What Java's client reads, from the first message of every queue to the last there is, as ``RocketJudge pull`` prints it.

    Raises:
        RuntimeError: the judge failed, or did not answer in `SECONDS`.
    """
    pom = f"rocketmq-{broker.version}"
    if pom not in _judges:
        folder = java.compiled(pom, "RocketJudge").partition(os.pathsep)[0]
        _judges[pom] = java.Program(pom, "RocketMQJudges", folder).__enter__()
    judge = _judges[pom]
    late = threading.Timer(SECONDS, judge.child.kill)
    late.start()
    found: list[dict[str, Any]] = []
    try:
        judge.send(["pull", broker.name_server, topic, *credentials])
        for line in judge.lines():
            if "done" in line:
                return found
            if "failed" in line:
                end(pom)
                raise RuntimeError(line["failed"])
            found.append(line)
    finally:
        late.cancel()
    end(pom)
    raise RuntimeError(f"the judge ended, or was ended after {SECONDS} s")


def end(*poms: str) -> None:
    """End the judges of these clients."""
    for pom in poms:
        _judges.pop(pom).__exit__()


@pytest.fixture(scope="module", autouse=True)
def judges() -> Iterator[None]:
    """A module with ``judges = rocketmq_judge.judges`` ends its judges with it."""
    yield
    end(*_judges)
