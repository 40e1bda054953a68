"""One question to several brokers, asked beside each other, so that a silent one neither holds up nor hides what the others answer.

What it is: the answers, and a warning for each broker that gives none. For questions whose answers add up, such as lists of names; where
what is left out would mean something else, the caller raises instead, with `WireprotoError.known`.
Must not: know a protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from ..errors import TransportError
from ..net.task import Steps, Tasks
from ..net.told import Told

T = TypeVar("T")


def answers(tasks: Tasks, log: Told, asked: Mapping[str, Steps[T]]) -> Steps[tuple[dict[str, T], list[str]]]:
    """Take all of these steps, by the broker's address, each of which keeps its own time.

    Returns:
        the answers, in the order of `asked`, and the addresses of the brokers that gave none, which the log names.
    Raises:
        BrokerError: one refuses. TransportError: none answers.
    """
    found: dict[str, T] = {}
    silent: dict[str, TransportError] = {}

    def take(address: str, steps: Steps[T]) -> Steps[None]:
        try:
            found[address] = yield from steps
        except TransportError as why:
            silent[address] = why

    yield from tasks.every([(f"what {address} knows", take(address, steps)) for address, steps in asked.items()], float("inf"))
    for address, why in silent.items():
        if not found:
            raise why
        log.warning(("silent", address), "broker %s does not answer, and what it knows is left out: %s", address, why)
    return {address: found[address] for address in asked if address in found}, sorted(silent)
