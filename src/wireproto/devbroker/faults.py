"""Injects faults into the dev broker: what it can do wrong on request.

There is a list of faults for each protocol, added from any thread, and taken by the side as requests come in. A fault names a message (the
vendor's name of the request, or None for any), how often it applies, and optionally a test of the request's facts.

    | fault        | what happens                                                                    | done by |
    |--------------|---------------------------------------------------------------------------------|---------|
    | refuse       | a new connection is closed at once                                              | server  |
    | delay        | the request is served `seconds` later (later ones of its connection wait)       | server  |
    | disconnect   | the connection is cut before the request takes effect                           | server  |
    | lose_reply   | it takes effect, then the connection is cut without the reply                   | server  |
    | drop         | it takes effect, no reply is sent                                               | server  |
    | corrupt      | a byte of the reply is changed                                                  | server  |
    | truncate     | the reply is cut and the connection closed                                      | server  |
    | stall        | nothing more is read from this connection                                       | server  |
    | error        | the reply has this error code; the request takes no effect                      | side    |
    | redirect     | the reply names another address (look-up, not leader)                           | side    |

This module must not know a protocol.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

ACCEPT = "accept"
"""The message name that `refuse` uses: a new connection, before anything is sent on it."""
When = Callable[[Mapping[str, Any]], bool]


@dataclass(slots=True)
class Fault:
    """One fault.

    Attributes:
        kind: a name of the table above.
        message: the request that it applies to; None for any.
        times: how often it still applies; -1 for ever.
        seconds: of a delay.
        code: of an error, in the protocol's own numbers.
        at: byte of the frame to change (negative counts from its end), or how many bytes of it to keep.
        mask: what the byte is xor-ed with.
        to: the address in a redirect, ``host:port``.
        when: called with the request's facts; the fault applies where it returns true. None: always.
    """

    kind: str
    message: str | None = None
    times: int = 1
    seconds: float = 0.0
    code: int = 0
    at: int = -1
    mask: int = 0xFF
    to: str = ""
    when: When | None = field(default=None, repr=False)


class Faults:
    """The faults of one protocol, oldest first; thread-safe.

    In each method, `message` is the vendor's name of the request (None: any), `times` how often the fault applies (-1: for ever), and
    `when` a test of the request's facts. All return the fault, so that `times` can be watched.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._orders: list[Fault] = []
        self._seen: Counter[str] = Counter()

    def add(self, fault: Fault) -> Fault:
        """Add a fault, and return it."""
        with self._lock:
            self._orders.append(fault)
        return fault

    def refuse(self, times: int = 1) -> Fault:
        """Close new connections at once."""
        return self.add(Fault("refuse", ACCEPT, times))

    def delay(self, message: str | None, seconds: float, times: int = 1, when: When | None = None) -> Fault:
        """Serve the request `seconds` later."""
        return self.add(Fault("delay", message, times, seconds=seconds, when=when))

    def disconnect(self, message: str | None, times: int = 1, when: When | None = None) -> Fault:
        """Cut the connection before the request takes effect."""
        return self.add(Fault("disconnect", message, times, when=when))

    def lose_reply(self, message: str | None, times: int = 1, when: When | None = None) -> Fault:
        """Cut the connection without the reply, after the request took effect."""
        return self.add(Fault("lose_reply", message, times, when=when))

    def drop(self, message: str | None, times: int = 1, when: When | None = None) -> Fault:
        """Send no reply."""
        return self.add(Fault("drop", message, times, when=when))

    def corrupt(self, message: str | None, at: int = -1, mask: int = 0xFF, times: int = 1, when: When | None = None) -> Fault:
        """Change a byte of the reply: the one at `at` (negative counts from the end), xor-ed with `mask`."""
        return self.add(Fault("corrupt", message, times, at=at, mask=mask, when=when))

    def truncate(self, message: str | None, keep: int, times: int = 1, when: When | None = None) -> Fault:
        """Send only the first `keep` bytes of the reply, and close the connection."""
        return self.add(Fault("truncate", message, times, at=keep, when=when))

    def stall(self, message: str | None, times: int = 1, when: When | None = None) -> Fault:
        """Read nothing more from the connection."""
        return self.add(Fault("stall", message, times, when=when))

    def error(self, message: str | None, code: int, times: int = 1, when: When | None = None) -> Fault:
        """Reply with this error code; the request takes no effect."""
        return self.add(Fault("error", message, times, code=code, when=when))

    def redirect(self, message: str | None, to: str, times: int = 1, when: When | None = None) -> Fault:
        """Reply with another address, `to`: ``host:port``."""
        return self.add(Fault("redirect", message, times, to=to, when=when))

    def clear(self) -> None:
        """Drop every fault and every count."""
        with self._lock:
            self._orders.clear()
            self._seen.clear()

    def seen(self, message: str) -> int:
        """Return how many requests of this name have come in since the last `clear`."""
        with self._lock:
            return self._seen[message]

    def take(self, message: str, **facts: Any) -> Fault | None:
        """Return the oldest fault that applies to this request and count it down, or None; called by the sides."""
        with self._lock:
            self._seen[message] += 1
            for fault in self._orders:
                if fault.times == 0 or (fault.message is None and message == ACCEPT) or fault.message not in (None, message):
                    continue
                if fault.when is not None and not fault.when(facts):
                    continue
                if fault.times > 0:
                    fault.times -= 1
                return fault
        return None
