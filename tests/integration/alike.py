"""An embedded broker beside a real one: the same random calls on both, each by a client of its own; what they answer is compared.

A protocol's test derives `Calls` and says which calls there are; `compare` does so many of them on both. Values, offsets and errors are
compared, errors by their class. What a real broker does a moment later (a topic that is made, a message that shows) is asked for again,
where the call only looks. May assume: names that begin with the prefix are the test's own.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from wireproto.errors import WireprotoError

SECONDS = 30.0
"""Seconds that one call may take."""
SETTLES = 20.0
"""Seconds for a real broker to show what it has done."""
LAST = 30
"""Calls named with a difference."""

T = TypeVar("T")
Call: TypeAlias = Callable[[Any], Any]
Kind: TypeAlias = "tuple[bool, Call, str]"
"""Whether it only looks, what it does with a client, and its arguments as text."""


class Calls:
    """Random calls: each method `do_…` makes one. `chance` decides, so that a seed repeats them."""

    def __init__(self, chance: random.Random, prefix: str) -> None:
        self.chance = chance
        self.prefix = prefix
        self.names = [f"{prefix}-{number}" for number in range(5)]
        self._kinds = [name for name in dir(self) if name.startswith("do_")]

    def next(self) -> tuple[str, bool, Call]:
        """The next call: its text, whether it only looks, and itself."""
        kind = self.chance.choice(self._kinds)
        looks, call, shown = getattr(self, kind)()
        return f"{kind[3:]}({shown})", looks, call

    def one_of(self, *options: T) -> T:
        return self.chance.choice(options)


def outcome(call: Call, client: Any) -> Any:
    """What a call came to, as both can say it."""
    try:
        return call(client)
    except WireprotoError as why:
        return type(why).__name__


def compare(real: Any, ours: Any, calls: Calls, count: int) -> None:
    """So many calls on both clients; the first difference fails."""
    done: deque[str] = deque(maxlen=LAST)
    for _ in range(count):
        name, looks, call = calls.next()
        done.append(name)
        theirs, mine = outcome(call, real), outcome(call, ours)
        until = time.monotonic() + SETTLES
        while looks and theirs != mine and time.monotonic() < until:
            theirs = outcome(call, real)
        assert mine == theirs, f"{name}: {mine!r} where the real one says {theirs!r}, after {list(done)}"
