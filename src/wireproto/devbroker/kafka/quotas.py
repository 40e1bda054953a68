"""Quotas that a test says are used up: a reply comes at once and names a time, for which its connection is not read from (KIP-219)."""

from __future__ import annotations


class Quotas:
    """Orders by the name of a request: seconds, and how often."""

    def __init__(self) -> None:
        self._orders: dict[str, tuple[float, int]] = {}

    def use_up(self, name: str, seconds: float, times: int) -> None:
        """Of the next replies of this name; -1: of all."""
        self._orders[name] = seconds, times

    def take(self, name: str) -> float:
        """For how long the connection of a request is not read from; 0.0 where it is within its quota."""
        seconds, times = self._orders.get(name, (0.0, 0))
        if times:
            self._orders[name] = seconds, times - 1
        return seconds if times else 0.0
