"""The brokers of the demo: the embedded dev broker, or real servers from Maven Central.

What it is: one context manager that starts them, yields a URL per protocol, and stops them however the demo ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path


@contextmanager
def running(kind: str, cache: Path) -> Iterator[dict[str, str]]:
    """Start the brokers named by `kind` (``dev`` or ``real``)."""
    with ExitStack() as stack:
        yield dev(stack, cache) if kind == "dev" else real(stack)


def dev(stack: ExitStack, cache: Path) -> dict[str, str]:
    """All four protocols in one process of their own."""
    raise NotImplementedError


def real(stack: ExitStack) -> dict[str, str]:
    """Kafka, Pulsar, RocketMQ and ZooKeeper servers; needs a JDK and Maven."""
    raise NotImplementedError
