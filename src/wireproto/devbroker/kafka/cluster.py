"""Decides what happens when a node goes or comes back, or a leader moves: partitions and groups get other nodes.

These are the controller's decisions, made at once. A partition that gets another leader, or none, begins an epoch, and fetches that wait
for its records are answered. A group belongs to the leader of its slot, one of 50 chosen by Kafka's hash of the name; a settled group's
members move with it, as in Kafka's log of offsets, and waiting joins and syncs get NOT_COORDINATOR. When a node comes back nothing returns
to it by itself. This module must not touch a connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ..._codec import java_hash
from . import epochs
from .nodes import NO_LEADER, Copies, Node, named, placed

if TYPE_CHECKING:
    from ..log import PartitionLog
    from .catalogue import Topics
    from .group import Group

SLOTS = 50  # offsets.topic.num.partitions, transaction.state.log.num.partitions
COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 15, 16
COORDINATED = frozenset(("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch", "TxnOffsetCommit"))
TRANSACTIONAL = {
    "InitProducerId": "transactional_id",
    "AddPartitionsToTxn": "v3_and_below_transactional_id",
    "AddOffsetsToTxn": "transactional_id",
    "EndTxn": "transactional_id",
}
"""Requests about a transactional id, and the field that has it."""


class Owner(Protocol):
    """The side that has the nodes."""

    topics: Topics
    groups: dict[str, Group]


class Cluster:
    """The nodes, and what they lead.

    Attributes:
        nodes: by listener. slots: the replicas of each slot of groups and transactions.
    """

    def __init__(self, side: Owner, count: int) -> None:
        self._side = side
        self.nodes = named(count)
        numbers = [node.number for node in self.nodes.values()]
        self.slots = [Copies.among(placed(numbers, slot, count), numbers) for slot in range(SLOTS)]

    @property
    def live(self) -> list[int]:
        """Return the numbers of the nodes that are up."""
        return [node.number for node in self.nodes.values() if node.up]

    def numbered(self, number: int) -> Node | None:
        """Return the node of this number, or None."""
        return next((node for node in self.nodes.values() if node.number == number), None)

    def lost(self, node: Node) -> None:
        """Take a node as gone: its fetch sessions are lost, and others lead what it led."""
        node.up = False
        node.sessions.forget()
        for log, copies in self._partitions():
            if copies.lose(node.number):
                self._led(log)
        for slot, copies in enumerate(self.slots):
            if copies.lose(node.number):
                self._hand_over(slot)

    def back(self, node: Node) -> None:
        """Take a node as there again."""
        node.up = True
        for log, copies in self._partitions():
            if copies.elect_again(node.number, self.live):
                self._led(log)
        for slot, copies in enumerate(self.slots):
            if copies.elect_again(node.number, self.live):
                self._hand_over(slot)

    def move(self, log: PartitionLog, node: int | None) -> int:
        """Make another node the leader of a partition; returns its number."""
        copies: Copies = log.facts["copies"]
        if copies.move(node):
            self._led(log)
        return copies.leader

    def move_group(self, name: str, node: int | None) -> int:
        """Make another node the coordinator of a group, and of those that share its slot; returns its number."""
        slot = slot_of(name)
        if self.slots[slot].move(node):
            self._hand_over(slot)
        return self.slots[slot].leader

    def coordinator(self, name: str) -> Node | None:
        """Return the coordinator of a group or transactional id; None while there is none."""
        return self.numbered(self.slots[slot_of(name)].leader)

    def refuses(self, name: str, request: Any, node: Node) -> int:
        """Return NOT_COORDINATOR for a request about a group or transactional id that another node coordinates, or 0."""
        if name in TRANSACTIONAL:
            named = getattr(request, TRANSACTIONAL[name])
            return NOT_COORDINATOR if named and self.coordinator(named) is not node else 0
        if name not in COORDINATED or (name == "JoinGroup" and not request.group_id):  # without a name it is refused anywhere
            return 0
        return 0 if self.coordinator(request.group_id) is node else NOT_COORDINATOR

    def _partitions(self) -> list[tuple[PartitionLog, Copies]]:
        topics = self._side.topics
        return [(log, log.facts["copies"]) for name in topics.names() for log in topics.logs(name)]

    def _led(self, log: PartitionLog) -> None:
        epochs.begin(log)
        log.notify_watchers()

    def _hand_over(self, slot: int) -> None:
        for group in self._side.groups.values():
            if slot_of(group.name) == slot:
                group.answer_all(NOT_COORDINATOR)
                group.pause()
                if self.slots[slot].leader != NO_LEADER:
                    group.resume()


def slot_of(name: str) -> int:
    """Return the slot of a name, as Kafka chooses it: the hash of a Java string, without its sign."""
    number = java_hash(name.encode())
    return 0 if number == -(1 << 31) else abs(number) % SLOTS
