"""One question to several brokers, asked beside each other, so that a silent one neither holds up nor hides what the others answer.

What it is: the answers, and a warning for each broker that gives none. Where none has answered, all are asked again until the deadline.
For questions whose answers add up, such as lists of names; where what is left out would mean something else, the caller raises instead,
with `WireprotoError.known`.
Must not: know a protocol.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from ..errors import TimedOut, TransportError
from ..net.retry import Verdict, Waits, tell_before, verdict
from ..net.task import Steps, Tasks
from ..net.told import Told

T = TypeVar("T")


def answers(
    tasks: Tasks, log: Told, ask: Callable[[float], Steps[Mapping[str, Steps[T]]]], until: float, patience: float
) -> Steps[tuple[dict[str, T], list[str]]]:
    """Ask several brokers until one of them at least has answered, or `until` has come.

    Args:
        ask: looks up the brokers, and makes the steps that ask each, by the broker's address; called anew for each try, with the time at
            which all of its steps end.
        patience: seconds that the brokers have to answer in one try.
    Returns:
        the answers of the first try that brought any, by address, and the addresses of the brokers that gave none, which the log names.
    Raises:
        BrokerError: one refuses. TransportError: none has answered; it names them all.
    """
    waits = Waits()
    before: TransportError | None = None
    while True:
        try:
            found, silent = yield from _once(tasks, (yield from ask(min(until, time.monotonic() + patience))))
        except TransportError as why:  # the look-up of the brokers
            tell_before(why, before)
            raise
        if found or not silent:
            for address, reason in silent.items():
                log.warning(("silent", address), "broker %s does not answer, and what it knows is left out: %s", address, reason)
            return found, sorted(silent)
        before = _none(silent)
        again = time.monotonic() + waits.next()
        if again >= until or not any(_may_pass(why) for why in silent.values()):
            raise before
        yield again


def _once(tasks: Tasks, asked: Mapping[str, Steps[T]]) -> Steps[tuple[dict[str, T], dict[str, TransportError]]]:
    """Take all of these steps; what they give, in the order of `asked`, and why the others gave nothing."""
    found: dict[str, T] = {}
    silent: dict[str, TransportError] = {}

    def take(address: str, steps: Steps[T]) -> Steps[None]:
        try:
            found[address] = yield from steps
        except TransportError as why:
            silent[address] = why

    yield from tasks.every([(f"what {address} knows", take(address, steps)) for address, steps in asked.items()], float("inf"))
    return {address: found[address] for address in asked if address in found}, silent


def _may_pass(why: TransportError) -> bool:
    return verdict(why, passing=(TimedOut,)) is not Verdict.NEVER


def _none(silent: Mapping[str, TransportError]) -> TransportError:
    """What is raised where no broker has answered: the error that may pass soonest, which names all of them."""
    first = min(silent.values(), key=lambda why: (not _may_pass(why), why.lasting))
    if len(silent) > 1:
        each = "; ".join(f"{address}: {type(why).__name__}: {why.text}" for address, why in silent.items())
        first.text = f"none of {len(silent)} brokers answers: {each}"
    return first
