"""Turns the `timeout` that a caller gives into a deadline.

Every blocking call calls `deadline_after` before it does anything else, so that all of them accept and refuse the same values. The module
knows errors only, not what is waited for.
"""

from __future__ import annotations

from time import monotonic
from typing import Any

from .errors import OptionError

NEVER = float("inf")


def deadline_after(timeout: float) -> float:
    """Return the deadline that lies `timeout` seconds from now, as a `time.monotonic()` value.

    Args:
        timeout: seconds; below 0 gives a deadline in the past, infinity gives `NEVER`.

    Raises:
        OptionError: `timeout` is not a number of seconds.
    """
    when = monotonic() + (timeout if type(timeout) is float else seconds(timeout))
    if when != when:
        raise OptionError("a timeout is a number of seconds, not nan: no clock ever reaches that")
    return when


def seconds(timeout: Any) -> float:
    """Return `timeout` as a float; a number too large for a float is infinite.

    Raises:
        OptionError: `timeout` is not a number: text, None, a boolean, nan.
    """
    if isinstance(timeout, bool) or not hasattr(timeout, "__float__"):
        raise OptionError(f"a timeout is a number of seconds, not {timeout!r}")
    try:
        number = float(timeout)
    except OverflowError:
        number = NEVER if timeout > 0 else -NEVER
    if number != number:
        raise OptionError("a timeout is a number of seconds, not nan: no clock ever reaches that")
    return number
