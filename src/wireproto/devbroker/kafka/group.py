"""Implements a classic consumer group: membership, generations, committed offsets.

This is the coordinator's state machine. A group is Empty, PreparingRebalance (waiting for its members to join), CompletingRebalance
(waiting for the leader's assignment) or Stable::

    join of a new or changed member ──▶ PreparingRebalance ── all joined, or the rebalance timeout is over ──▶ CompletingRebalance
    leader's sync ──▶ Stable        leave, or a session that timed out ──▶ PreparingRebalance, Empty when no member is left

A member that does not heartbeat within its session timeout is dropped, but not while its join is pending. A static name belongs to one
member at a time: a member that joins by it without an id takes its place over, with the assignment, and the former member is fenced.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field
from typing import Any

ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCE, FENCED = 22, 25, 27, 82


@dataclass(slots=True)
class Member:
    """One member and what it waits for.

    Attributes:
        id, client_id, host: as in DescribeGroups. instance: its static name.
        session, rebalance: timeouts in seconds. protocols: (name, metadata) that it offered. assignment: its part.
        joining, syncing: the pending JoinGroup and SyncGroup, whose result is an error code. expiry: timer of its session.
    """

    id: str
    client_id: str
    host: str
    instance: str | None = None
    session: float = 10.0
    rebalance: float = 60.0
    protocols: tuple[tuple[str, bytes], ...] = ()
    assignment: bytes = b""
    joining: asyncio.Future[Any] | None = None
    syncing: asyncio.Future[Any] | None = None
    expiry: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class Group:
    """One group; committed offsets outlive its members.

    Attributes:
        pending: member ids that were given out and have not joined.
        offsets: committed ones, (offset, leader epoch, metadata) by partition.
        pending_offsets: of open transactions, by producer id and partition, each with its number.
        applied: the number of each offset in `offsets`: as in Kafka's log the one sent last counts, not that of the transaction committed
            last.
        numbers: counts the offsets that were sent. timer: ends the join phase.
        unstable: behave as if a transaction that commits offsets were open.
    """

    name: str
    state: str = "Empty"
    generation: int = 0
    kind: str = ""
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)
    offsets: dict[tuple[str, int], tuple[int, int, str]] = field(default_factory=dict)
    pending_offsets: dict[int, dict[tuple[str, int], tuple[int, tuple[int, int, str]]]] = field(default_factory=dict)
    applied: dict[tuple[str, int], int] = field(default_factory=dict)
    numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    timer: asyncio.TimerHandle | None = None
    unstable: bool = False

    @classmethod
    def restored(cls, name: str, kept: dict[str, Any]) -> Group:
        """Make a group from what `kept` returned: its offsets, no members."""
        group = cls(name, kind=kept["kind"], generation=kept["generation"])
        group.offsets = {(topic, partition): (offset, epoch, note) for topic, partition, offset, epoch, note in kept["offsets"]}
        for producer, topic, partition, offset, epoch, note in kept.get("pending", ()):
            group.pending_offsets.setdefault(producer, {})[topic, partition] = next(group.numbers), (offset, epoch, note)
        return group

    def kept(self) -> dict[str, Any]:
        """Return what outlives the broker, as JSON values."""
        offsets = [[*key, *value] for key, value in self.offsets.items()]
        pending = [[producer, *key, *value] for producer, some in self.pending_offsets.items() for key, (_, value) in some.items()]
        return {"kind": self.kind, "generation": self.generation, "offsets": offsets, "pending": pending}

    def settle(self, producer: int, *, committed: bool) -> None:
        """End this producer's transaction: its offsets are committed or dropped."""
        for key, (number, value) in self.pending_offsets.pop(producer, {}).items():
            if committed and number > self.applied.get(key, 0):
                self.offsets[key], self.applied[key] = value, number

    def keep(self, topic: str, partition: int, value: tuple[int, int, str], producer: int | None = None) -> None:
        """Commit an offset (with its epoch and metadata), now or with this producer's transaction."""
        key, number = (topic, partition), next(self.numbers)
        if producer is None:
            self.offsets[key], self.applied[key] = value, number
        else:
            self.pending_offsets.setdefault(producer, {})[key] = number, value

    def undecided(self, topic: str, partition: int) -> bool:
        """Return whether an open transaction commits an offset of this partition."""
        return self.unstable or any((topic, partition) in some for some in self.pending_offsets.values())

    def answer_all(self, error: int) -> None:
        """Answer all waiting joins and syncs with this error."""
        for member in self.members.values():
            for waiting in (member.joining, member.syncing):
                if waiting and not waiting.done():
                    waiting.set_result(error)

    def pause(self) -> None:
        """Stop timers while the broker is away.

        A settled group's members outlive that, as in Kafka's log of offsets; an unsettled group's are dropped.
        """
        for member in self.members.values():
            member.joining = member.syncing = None
            if member.expiry:
                member.expiry.cancel()
        if self.timer:
            self.timer.cancel()
        self.pending.clear()
        if self.state != "Stable":
            self.members.clear()
            self.state, self.protocol, self.leader = "Empty", None, None

    def resume(self) -> None:
        """Start the members' sessions again when the broker is back, with their whole timeouts."""
        for member in self.members.values():
            self.touch(member)

    def holder(self, instance: str | None) -> Member | None:
        """Return the member that has this static name, or None."""
        return next((member for member in self.members.values() if instance is not None and member.instance == instance), None)

    def check(self, member_id: str, instance: str | None) -> int:
        """Return the error of a request from a member that is unknown, or whose static name another one has taken; or 0."""
        if instance is not None:
            holder = self.holder(instance)
            if holder is not None and holder.id != member_id:
                return FENCED
            return 0 if holder is not None else UNKNOWN_MEMBER
        return 0 if member_id in self.members else UNKNOWN_MEMBER

    def take_over(self, member: Member, member_id: str) -> None:
        """Give the member's static name and assignment to another member id."""
        for waiting in (member.joining, member.syncing):
            if waiting and not waiting.done():
                waiting.set_result(FENCED)
        member.joining = member.syncing = None
        if self.leader == member.id:
            self.leader = member_id
        self.members = {(member_id if one is member else key): one for key, one in self.members.items()}
        member.id = member_id

    def chosen(self) -> str | None:
        """Return the protocol of the next generation: the first in the first member's order that all members have."""
        shared = set.intersection(*({name for name, _ in member.protocols} for member in self.members.values()))
        first = next(iter(self.members.values()))
        return next((name for name, _ in first.protocols if name in shared), None)

    def touch(self, member: Member) -> None:
        """Start the member's session again, since it has sent a request."""
        if member.expiry:
            member.expiry.cancel()
        member.expiry = asyncio.get_running_loop().call_later(member.session, self._expire, member)

    def _expire(self, member: Member) -> None:
        if member.joining is not None:
            self.touch(member)
        elif self.members.get(member.id) is member:
            self.drop(member.id)

    def drop(self, member_id: str) -> None:
        """Remove a member that left or was lost."""
        member = self.members.pop(member_id)
        if member.expiry:
            member.expiry.cancel()
        for waiting in (member.joining, member.syncing):
            if waiting and not waiting.done():
                waiting.set_result(UNKNOWN_MEMBER)
        if self.members:
            self.prepare()
        else:
            self.generation += 1
            self.state, self.protocol, self.leader = "Empty", None, None
            if self.timer:
                self.timer.cancel()

    def prepare(self) -> None:
        """Begin a rebalance: every member has to join again."""
        if self.state != "PreparingRebalance":
            self.state = "PreparingRebalance"
            for member in self.members.values():
                if member.syncing and not member.syncing.done():
                    member.syncing.set_result(REBALANCE)
            longest = max(member.rebalance for member in self.members.values())
            if self.timer:
                self.timer.cancel()
            self.timer = asyncio.get_running_loop().call_later(longest, self._give_up)
        self.complete_if_all_joined()

    def _give_up(self) -> None:
        if self.state == "PreparingRebalance":
            for member_id in [key for key, member in self.members.items() if member.joining is None]:
                self.drop(member_id)
            self.complete_if_all_joined()

    def complete_if_all_joined(self) -> None:
        """End the join phase once each member has a pending join."""
        if self.state != "PreparingRebalance" or not self.members or any(x.joining is None for x in self.members.values()):
            return
        if self.timer:
            self.timer.cancel()
        self.generation += 1
        self.state = "CompletingRebalance"
        if self.leader not in self.members:
            self.leader = next(iter(self.members))
        self.protocol = self.chosen()
        for member in self.members.values():
            member.assignment = b""
            if member.joining and not member.joining.done():
                member.joining.set_result(0)
            member.joining = None
            self.touch(member)
