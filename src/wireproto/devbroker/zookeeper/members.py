"""Holds how each member of the embedded ensemble misbehaves; all of them show one tree.

This is sans-IO state. The members share nodes, watches and sessions, so what one has written the others show at once: no member is
really behind, or without a quorum. It only behaves so to clients that connect.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Member:
    """One member.

    Attributes:
        read_only: it has no quorum: it accepts only clients that allow that, and no writes.
        wants_identity: it serves no client without an identity, pings included.
        behind: number of transactions that it has missed: it accepts no client that has seen them.
        local: sessions that it has opened without a quorum, which no other member knows.
    """

    read_only: bool = False
    wants_identity: bool = False
    behind: int = 0
    local: set[int] = field(default_factory=set)


def named(count: int) -> dict[str, Member]:
    """Make this many members; their listeners are ``main``, ``member-2``, ``member-3`` and so on."""
    return {"main" if number == 1 else f"member-{number}": Member() for number in range(1, count + 1)}
