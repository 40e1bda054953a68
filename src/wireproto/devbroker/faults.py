"""What the dev broker can be told to do wrong.

What it is: a list of orders per protocol, given from any thread, taken by the side as requests come in. An order names a message
(the vendor's name of the request, or None for any), how often it holds, and optionally a test of the request's facts.

    | order        | what happens                                                                    | done by |
    |--------------|---------------------------------------------------------------------------------|---------|
    | refuse       | a new connection is closed at once                                              | frame   |
    | delay        | the request is served `seconds` later (those behind it on its connection wait)  | frame   |
    | disconnect   | the connection is cut before the request takes effect                           | frame   |
    | lose_reply   | it takes effect, then the connection is cut without the reply                   | frame   |
    | drop         | it takes effect, no reply is sent                                               | frame   |
    | corrupt      | a byte of the reply is changed                                                  | frame   |
    | truncate     | the reply is cut and the connection closed                                      | frame   |
    | stall        | nothing more is read from this connection                                       | frame   |
    | error        | the reply carries this error code; it takes no effect                           | side    |
    | redirect     | the reply sends the client elsewhere (look-up, not leader)                      | side    |

Must not: know a protocol.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

ACCEPT = "accept"
"""What `refuse` names: a new connection, before anything is said on it."""
When = Callable[[Mapping[str, Any]], bool]


@dataclass(slots=True)
class Fault:
    """One order.

    Attributes:
        kind: a name of the table above.
        message: the request that it holds for; None for any.
        times: how often it still holds; -1 for ever.
        seconds: of a delay.
        code: of an error, in the protocol's own numbers.
        at: byte of the frame to change (negative counts from its end), or how many bytes of it to keep.
        mask: what the byte is xor-ed with.
        to: where a redirect sends the client, ``host:port``.
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
    """The orders of one protocol, oldest first; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._orders: list[Fault] = []
        self._seen: Counter[str] = Counter()

    def add(self, fault: Fault) -> Fault:
        """Give an order; returns it, so that `times` can be watched."""
        with self._lock:
            self._orders.append(fault)
        return fault

    def refuse(self, times: int = 1) -> Fault:
        return self.add(Fault("refuse", ACCEPT, times))

    def delay(self, message: str | None, seconds: float, times: int = 1, when: When | None = None) -> Fault:
        return self.add(Fault("delay", message, times, seconds=seconds, when=when))

    def disconnect(self, message: str | None, times: int = 1, when: When | None = None) -> Fault:
        return self.add(Fault("disconnect", message, times, when=when))

    def lose_reply(self, message: str | None, times: int = 1, when: When | None = None) -> Fault:
        return self.add(Fault("lose_reply", message, times, when=when))

    def drop(self, message: str | None, times: int = 1, when: When | None = None) -> Fault:
        return self.add(Fault("drop", message, times, when=when))

    def corrupt(self, message: str | None, at: int = -1, mask: int = 0xFF, times: int = 1, when: When | None = None) -> Fault:
        return self.add(Fault("corrupt", message, times, at=at, mask=mask, when=when))

    def truncate(self, message: str | None, keep: int, times: int = 1, when: When | None = None) -> Fault:
        return self.add(Fault("truncate", message, times, at=keep, when=when))

    def stall(self, message: str | None, times: int = 1, when: When | None = None) -> Fault:
        return self.add(Fault("stall", message, times, when=when))

    def error(self, message: str | None, code: int, times: int = 1, when: When | None = None) -> Fault:
        return self.add(Fault("error", message, times, code=code, when=when))

    def redirect(self, message: str | None, to: str, times: int = 1, when: When | None = None) -> Fault:
        return self.add(Fault("redirect", message, times, to=to, when=when))

    def clear(self) -> None:
        """Forget every order and every count."""
        with self._lock:
            self._orders.clear()
            self._seen.clear()

    def seen(self, message: str) -> int:
        """How many requests of this name have come in since the last `clear`."""
        with self._lock:
            return self._seen[message]

    def take(self, message: str, **facts: Any) -> Fault | None:
        """For a side: the oldest order that holds for this request, counted down; None when all is well."""
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
