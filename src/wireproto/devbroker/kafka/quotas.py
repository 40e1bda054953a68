"""Applies quotas that a test declares exceeded.

A reply comes at once with a throttle time, for which its connection is not read (KIP-219).
"""

from __future__ import annotations


class Quotas:
    """The exceeded quotas: seconds and how often, by name of the request."""

    def __init__(self) -> None:
        self._orders: dict[str, tuple[float, int]] = {}

    def use_up(self, name: str, seconds: float, times: int) -> None:
        """Throttle the next `times` replies of this name (-1: all) for `seconds`."""
        self._orders[name] = seconds, times

    def take(self, name: str) -> float:
        """Return the seconds for which a request's connection is not read; 0.0 where it is within its quota."""
        seconds, times = self._orders.get(name, (0.0, 0))
        if times:
            self._orders[name] = seconds, times - 1
        return seconds if times else 0.0
