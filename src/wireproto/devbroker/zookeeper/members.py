"""Members of the embedded ensemble: what each of them does not do, beside one tree that all show.

What it is: sans-IO state. The members share nodes, watches and sessions, so what one has taken the others show at once: no member is
really behind, or without a quorum. It behaves so to who connects.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Member:
    """One of them.

    Attributes:
        read_only: it has no quorum: it takes those who are content with that, and no writes.
        wants_identity: it serves no client without one, pings included.
        behind: so many transactions it has not heard of: it takes nobody who has seen them.
        local: sessions that it has opened without a quorum, which no other member knows.
    """

    read_only: bool = False
    wants_identity: bool = False
    behind: int = 0
    local: set[int] = field(default_factory=set)


def named(count: int) -> dict[str, Member]:
    """So many, by the names of their listeners: ``main``, ``member-2`` …"""
    return {"main" if number == 1 else f"member-{number}": Member() for number in range(1, count + 1)}
