"""Sends one request to several brokers concurrently, so that one that does not answer neither delays nor hides the others' answers.

    answers    returns the answers that came, and logs a warning for each broker that gave none; where none did, all are asked again until
               the deadline. For requests whose answers add up, such as lists of names.
    each       returns the answers that came, and the errors of the others, for the caller to raise with `WireprotoError.known` (`whole`):
               for requests where an answer that is left out would change the meaning of the result.

What is requested is the caller's: no protocol is known here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from ..errors import TimedOut, TransportError, WireprotoError
from ..net.client_log import ClientLog
from ..net.retry import Verdict, Waits, tell_before, verdict
from ..net.task import Steps, Tasks

K = TypeVar("K")
T = TypeVar("T")


def answers(
    tasks: Tasks, log: ClientLog, ask: Callable[[float], Steps[Mapping[str, Steps[T]]]], until: float, try_timeout: float
) -> Steps[tuple[dict[str, T], list[str]]]:
    """Ask several brokers until at least one of them has answered, or `until` has come.

    Args:
        tasks: the client's. log: the client's. until: `time.monotonic()` value.
        ask: looks up the brokers, and makes the steps that ask each, by the broker's address; called again for each try, with the time at
            which all of its steps end.
        try_timeout: seconds that the brokers have to answer in one try.

    Returns:
        the answers of the first try that brought any, by address, and the addresses of the brokers that gave none, which the log names.

    Raises:
        BrokerError: one refuses. TransportError: none has answered; it names them all.
    """
    waits = Waits()
    before: TransportError | None = None
    while True:
        try:
            found, silent = yield from _once(tasks, (yield from ask(min(until, time.monotonic() + try_timeout))))
        except TransportError as why:  # the look-up of the brokers
            tell_before(why, before)
            raise
        if found or not silent:
            for address, reason in silent.items():
                log.warning(("silent", address), "broker %s does not answer; the result is without its part: %s", address, reason)
            return found, sorted(silent)
        before = _none(silent)
        again = time.monotonic() + waits.next()
        if again >= until or not any(_may_pass(why) for why in silent.values()):
            raise before
        yield again


def each(
    tasks: Tasks, asked: Mapping[K, Steps[T]], until: float, most: int, what: str
) -> Steps[tuple[dict[K, T], dict[K, WireprotoError]]]:
    """Run all of these steps, at most `most` at a time; each keeps its own deadline.

    Args:
        asked: the steps, by key. until: `time.monotonic()` value after which no more of them are begun. most: steps at a time.
        what: is requested by each; names the tasks.

    Returns:
        their results, and the errors of the others, in the order of `asked`.
    """
    found: dict[K, T] = {}
    failed: dict[K, WireprotoError] = {}
    left = iter(asked.items())

    def some() -> Steps[None]:
        for key, steps in left:
            if time.monotonic() >= until:
                failed[key] = TimedOut(f"{what}: not requested, the timeout had passed")
                continue
            try:
                found[key] = yield from steps
            except WireprotoError as why:
                failed[key] = why

    yield from tasks.every([(what, some()) for _ in range(min(most, len(asked)))], float("inf"))
    return {key: found[key] for key in asked if key in found}, {key: failed[key] for key in asked if key in failed}


def whole(found: dict[K, T], failed: Mapping[K, WireprotoError]) -> dict[K, T]:
    """Return what was found, or raise the first error.

    The error has what was found in `known`, and says how many more errors there are.
    """
    for why in failed.values():
        if len(failed) > 1:
            why.text += f"; there is no answer of {len(failed) - 1} more"
        why.known = found
        raise why
    return found


def _once(tasks: Tasks, asked: Mapping[str, Steps[T]]) -> Steps[tuple[dict[str, T], dict[str, TransportError]]]:
    """Run all of these steps; returns their results, in the order of `asked`, and why the others have none."""
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
    return verdict(why, transient=(TimedOut,)) is not Verdict.NEVER


def _none(silent: Mapping[str, TransportError]) -> TransportError:
    """Return the error for the case that no broker has answered: the one that may pass soonest, which names all of them."""
    first = min(silent.values(), key=lambda why: (not _may_pass(why), why.lasting))
    if len(silent) > 1:
        each = "; ".join(f"{address}: {type(why).__name__}: {why.text}" for address, why in silent.items())
        first.text = f"none of {len(silent)} brokers answers: {each}"
    return first
