"""Caches what is known of a cluster: its nodes, topics, partitions and their leaders.

Sans-IO. MetadataResponses are fed in, questions are answered from memory; None means "not known: ask again". Topic entries are replaced,
never changed, so that readers need no lock; `apply`, `hint` and `locate` are called under the owner's. Responses may come in any order and
be stale: an older leader epoch of the same topic never overwrites a newer one. Sends nothing, and does not decide when to refresh.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from .._codec import Changes
from ..errors import BrokerError
from ..url import Address
from .codes import LeaderNotAvailable, error
from .messages import MetadataResponse, MetadataResponsePartition

NO_ID = bytes(16)


@dataclass(frozen=True, slots=True)
class Node:
    """A broker: its number and where it listens.

    Attributes:
        id: the node's number.
        host, port: the address.
        rack: its rack; None: not known.
    """

    id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> Address:
        """Return host and port."""
        return self.host, self.port


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of a partition, and the nodes that hold it.

    Attributes:
        node: number of the leader; -1: there is none.
        epoch: the leader epoch; -1: not known.
        replicas, in_sync, offline: numbers of all nodes that hold it, of the ISR, and of those that are offline.
    """

    node: int
    epoch: int = -1
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic as of the last response.

    Attributes:
        name: its name.
        id: 16 bytes, zeros where the broker does not say (before Metadata v12).
        error: the broker's code for this topic; 0 when it can be used.
        internal: whether it is one of the brokers' own.
        partitions: leaders by partition number; in order.
        available: numbers of the partitions that have a leader.
    """

    name: str
    id: bytes = NO_ID
    error: int = 0
    internal: bool = False
    partitions: Mapping[int, Leader] = field(default_factory=dict)
    available: tuple[int, ...] = ()

    @property
    def shown_id(self) -> str | None:
        """Return the topic's id as hex; None where it has none."""
        return self.id.hex() if self.id != NO_ID else None


class Metadata:
    """The cache.

    Attributes:
        nodes: by number. topics: by name. controller: number of a node; -1: not known. cluster_id: None: not known.
        changes: counts the changes of `topics`.
    All may be read at any time.
    """

    __slots__ = ("_names", "changes", "cluster_id", "controller", "nodes", "topics")

    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.topics: dict[str, Topic] = {}
        self.controller = -1
        self.cluster_id: str | None = None
        self._names: dict[bytes, str] = {}
        self.changes = Changes()

    def apply(self, reply: MetadataResponse, *, all_topics: bool = False) -> None:
        """Take in a response.

        Args:
            reply: the response. all_topics: whether topics that it does not name are gone.
        """
        self.nodes = {node.node_id: Node(node.node_id, node.host, node.port, node.rack) for node in reply.brokers}
        self.controller = reply.controller_id
        self.cluster_id = reply.cluster_id or self.cluster_id
        topics = {} if all_topics else dict(self.topics)
        for entry in reply.topics:
            name = entry.name if entry.name is not None else self._names.get(entry.topic_id)
            if name is None:
                continue
            before = self.topics.get(name)
            topic_id = entry.topic_id or NO_ID
            if before is not None and topic_id != NO_ID and before.id not in (topic_id, NO_ID):
                before = None  # deleted and created again: its leader epochs start over
            leaders = {p.partition_index: self._newer(before, p) for p in sorted(entry.partitions, key=lambda p: p.partition_index)}
            topics[name] = _topic(name, topic_id, entry.error_code, bool(entry.is_internal), leaders)
        self.topics = topics
        self._names = {topic.id: name for name, topic in topics.items() if topic.id != NO_ID}
        self.changes.note()

    @staticmethod
    def _newer(before: Topic | None, row: MetadataResponsePartition) -> Leader:
        """Return the leader in a response, or the one known before where its epoch is newer."""
        now = Leader(row.leader_id, row.leader_epoch, tuple(row.replica_nodes), tuple(row.isr_nodes), tuple(row.offline_replicas))
        known = before.partitions.get(row.partition_index) if before is not None else None
        return known if known is not None and known.epoch > now.epoch >= 0 else now

    def hint(self, topic: str, partition: int, node: int, epoch: int, endpoints: Iterable[Node] = ()) -> bool:
        """Take in the leader that a refusal names (Produce v10, Fetch v16).

        Args:
            topic, partition: which one. node, epoch: its leader, and the leader epoch.
            endpoints: nodes that the refusal describes.
        Returns:
            whether the leader was not known yet, and its node is known.
        """
        self.nodes = {**self.nodes, **{end.id: end for end in endpoints}}
        before = self.topics.get(topic)
        known = before.partitions.get(partition) if before is not None else None
        if before is None or known is None or node < 0 or node not in self.nodes or epoch <= known.epoch:
            return False
        leaders = {**before.partitions, partition: replace(known, node=node, epoch=epoch)}
        self.topics = {**self.topics, topic: _topic(topic, before.id, before.error, before.internal, leaders)}
        self.changes.note()
        return True

    def locate(self, node: int, host: str, port: int) -> None:
        """Take in where a node listens, as another response than metadata says."""
        known = self.nodes.get(node)
        if node >= 0 and host and (known is None or known.address != (host, port)):
            self.nodes = {**self.nodes, node: Node(node, host, port, known.rack if known is not None else None)}

    def moves(self, before: Mapping[str, Topic]) -> Iterator[tuple[str, int, int, int]]:
        """Yield the partitions whose leader is another node than in an earlier `topics`.

        Each is (topic, number, node before, node now); -1: no leader.
        """
        for name, topic in self.topics.items():
            old = before.get(name)
            if old is not None and old is not topic:
                for number, leader in topic.partitions.items():
                    known = old.partitions.get(number)
                    if known is not None and known.node != leader.node:
                        yield name, number, known.node, leader.node

    def forget(self, topic: str) -> None:
        """Drop what is known of a topic."""
        self.topics = {name: entry for name, entry in self.topics.items() if name != topic}
        self.changes.note()

    def counts(self, topics: Iterable[str]) -> dict[str, int]:
        """Return the number of partitions by topic; 0: the topic does not exist; topics that were not asked for are left out."""
        return {name: len(self.topics[name].partitions) for name in topics if name in self.topics}

    def leader(self, topic: str, partition: int) -> Node | None:
        """Return the node that leads a partition; None while that is not known, or there is no leader."""
        entry = self.topics.get(topic)
        leader = entry.partitions.get(partition) if entry is not None else None
        return self.nodes.get(leader.node) if leader is not None else None

    def epoch(self, topic: str, partition: int) -> int:
        """Return the leader epoch of a partition, -1 when not known."""
        entry = self.topics.get(topic)
        leader = entry.partitions.get(partition) if entry is not None else None
        return leader.epoch if leader is not None else -1

    def name(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with this id; None when not known."""
        return self._names.get(topic_id)

    def problem(self, topic: str) -> BrokerError | None:
        """Return the broker's error for a topic as a new object; None when it is fine or not known."""
        entry = self.topics.get(topic)
        if entry is None or not entry.error or (entry.error == LeaderNotAvailable.code and entry.partitions):
            return None
        return error(entry.error, topic=topic)


def _topic(name: str, topic_id: bytes, code: int, internal: bool, leaders: Mapping[int, Leader]) -> Topic:
    """Make a topic's entry."""
    available = tuple(number for number, leader in leaders.items() if leader.node >= 0)
    return Topic(name, topic_id, code, internal, leaders, available)
