"""RocketMQ's own client as a judge, in one JVM of each version for all that a process asks: to start one costs a second of a core.

    found = judge.ask("5.5.0", "pull", broker.name_server, topic)

The modes and what they print stand at the head of java/RocketJudge.java. One that stays is a `java.Program` instead.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from . import java

SECONDS = 120.0
_judges: dict[str, java.Program] = {}
"""By version."""


def ask(
    version: str,
    *words: str,
    input: Iterable[Any] = (),  # noqa: A002
    properties: Mapping[str, str] | None = None,
    timeout: float = SECONDS,
) -> list[dict[str, Any]]:
    """Have RocketJudge run one of its modes to the end.

    Args:
        version: of the client.
        words: the mode and its arguments.
        input: objects that the mode reads.
        properties: of the JVM, for as long as the mode runs.
        timeout: seconds.
    Returns:
        the JSON objects that the mode printed.
    Raises:
        RuntimeError: it failed, or did not end in time; its JVM is ended.
    """
    if version not in _judges:
        _judges[version] = java.Program(f"rocketmq-{version}", "RocketJudge", "stay").__enter__()
    judge = _judges[version]
    late = threading.Timer(timeout, judge.child.kill)
    late.start()
    found: list[dict[str, Any]] = []
    try:
        judge.send({"words": words, "input": list(input), "properties": dict(properties or {})})
        for line in judge.lines():
            if "done" in line:
                return found
            if "failed" in line:
                end(version)
                raise RuntimeError(line["failed"])
            found.append(line)
    finally:
        late.cancel()
    end(version)
    raise RuntimeError(f"the judge ended, or was ended after {timeout} s")


def end(*versions: str) -> None:
    """End the JVMs of these versions."""
    for version in versions:
        _judges.pop(version).__exit__()


@atexit.register
def _end_all() -> None:
    end(*_judges)
