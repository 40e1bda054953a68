"""Due: until when a call may take.

What it is: the one way from the `timeout` that a caller gives to a time of the clock. Every blocking call asks it before it does anything.
May assume: the errors. Must not: know what is waited for.
"""

from __future__ import annotations

from time import monotonic
from typing import Any

from .errors import OptionError

NEVER = float("inf")


def due(timeout: float) -> float:
    """`timeout` seconds from now, as a `time.monotonic()` value: in the past where it is below 0, `NEVER` where it is infinite.

    Raises:
        OptionError: it is no number of seconds.
    """
    when = monotonic() + (timeout if type(timeout) is float else seconds(timeout))
    if when != when:
        raise OptionError("a timeout is a number of seconds, not nan: no clock ever reaches that")
    return when


def seconds(timeout: Any) -> float:
    """A timeout as a number; one beyond all floating point numbers is infinite.

    Raises:
        OptionError: it is none: text, None, a truth value, nan.
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
