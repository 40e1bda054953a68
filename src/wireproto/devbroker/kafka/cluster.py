"""What happens to all when one node goes or comes, or a leader moves: partitions and groups change hands.

What it is: the controller's decisions, taken at once. A partition that gets another leader, or none, begins an epoch, and who waits for
its records is answered. A group belongs to the leader of its slot, one of 50 chosen by Kafka's hash of the name; a settled group's
members go along, as in Kafka's log of offsets, and joins and syncs that wait are told NOT_COORDINATOR. After a node is back nothing returns
to it by itself. Must not: touch a connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from ..._codec import java_hash
from . import epochs
from .nodes import NOBODY, Copies, Node, named, placed

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
"""Requests about a transactional id, and where it stands."""


class Owner(Protocol):
    """Whose the nodes are."""

    topics: Topics
    groups: dict[str, Group]


class Cluster:
    """The nodes, and what is theirs.

    Attributes:
        nodes: by listener. slots: whose the groups and transactions are.
    """

    def __init__(self, side: Owner, count: int) -> None:
        self._side = side
        self.nodes = named(count)
        numbers = [node.number for node in self.nodes.values()]
        self.slots = [Copies.among(placed(numbers, slot, count), numbers) for slot in range(SLOTS)]

    @property
    def live(self) -> list[int]:
        """Numbers of those that are up."""
        return [node.number for node in self.nodes.values() if node.up]

    def numbered(self, number: int) -> Node | None:
        """The node of this number."""
        return next((node for node in self.nodes.values() if node.number == number), None)

    def lost(self, node: Node) -> None:
        """It is gone, and the sessions of who fetched from it."""
        node.up = False
        node.sessions.forget()
        for log, copies in self._partitions():
            if copies.lose(node.number):
                self._led(log)
        for slot, copies in enumerate(self.slots):
            if copies.lose(node.number):
                self._hand_over(slot)

    def back(self, node: Node) -> None:
        """It is there again."""
        node.up = True
        for log, copies in self._partitions():
            if copies.regain(node.number, self.live):
                self._led(log)
        for slot, copies in enumerate(self.slots):
            if copies.regain(node.number, self.live):
                self._hand_over(slot)

    def move(self, log: PartitionLog, node: int | None) -> int:
        """Another node leads a partition; who."""
        copies: Copies = log.facts["copies"]
        if copies.move(node):
            self._led(log)
        return copies.leader

    def move_group(self, name: str, node: int | None) -> int:
        """Another node is the coordinator of a group, and of those that share its slot; who."""
        slot = slot_of(name)
        if self.slots[slot].move(node):
            self._hand_over(slot)
        return self.slots[slot].leader

    def coordinator(self, name: str) -> Node | None:
        """Whose a group or transaction is; None: nobody's now."""
        return self.numbered(self.slots[slot_of(name)].leader)

    def refuses(self, name: str, request: Any, node: Node) -> int:
        """NOT_COORDINATOR for a request about a group or transactional id that is another node's; 0."""
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
        log.stir()

    def _hand_over(self, slot: int) -> None:
        for group in self._side.groups.values():
            if slot_of(group.name) == slot:
                group.answer_all(NOT_COORDINATOR)
                group.pause()
                if self.slots[slot].leader != NOBODY:
                    group.resume()


def slot_of(name: str) -> int:
    """Kafka's choice: the hash of a Java string, whose sign is dropped."""
    number = java_hash(name.encode())
    return 0 if number == -(1 << 31) else abs(number) % SLOTS
