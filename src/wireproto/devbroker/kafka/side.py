"""Serves Kafka's requests: from a request frame to a response frame, with header, dispatch, versions and faults.

    request frame    api key int16 · api version int16 · correlation id int32 · client id string · [tags] · body
    response frame   correlation id int32 · [tags] · body

An api key or version that is not offered closes the connection, as in Kafka, except for ApiVersions, which answers in version 0. Requests
of one connection are served strictly in order.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...errors import OptionError, Truncated, UnsupportedVersion
from ...kafka import messages as m
from . import epochs, groups, logs, sasl, topics, transactions
from .access import Credentials, Session
from .context import Context
from .nodes import NO_LEADER
from .state import KafkaState

if TYPE_CHECKING:
    from ..log import PartitionLog
    from ..server import Connection
    from .nodes import Copies

UNSUPPORTED_VERSION = 35
API_VERSIONS = 18
NEWEST = 4  # version of ApiVersions
FEATURE = "transaction.version"
Handler = Callable[[Context], Awaitable[Any]]

# api key: message, lowest and highest version offered, handler
OFFERED: dict[int, tuple[str, int, int, Handler]] = {
    0: ("Produce", 3, 12, logs.produce),
    1: ("Fetch", 4, 12, logs.fetch),
    2: ("ListOffsets", 1, 8, logs.list_offsets),
    3: ("Metadata", 0, 13, topics.metadata),
    8: ("OffsetCommit", 2, 8, groups.offset_commit),
    9: ("OffsetFetch", 1, 7, groups.offset_fetch),
    10: ("FindCoordinator", 0, 4, groups.find_coordinator),
    11: ("JoinGroup", 0, 9, groups.join),
    12: ("Heartbeat", 0, 4, groups.heartbeat),
    13: ("LeaveGroup", 0, 5, groups.leave),
    14: ("SyncGroup", 0, 5, groups.sync),
    15: ("DescribeGroups", 0, 5, groups.describe),
    16: ("ListGroups", 0, 4, groups.list_groups),
    17: ("SaslHandshake", 0, 1, sasl.handshake),
    19: ("CreateTopics", 0, 7, topics.create),
    20: ("DeleteTopics", 0, 5, topics.delete),
    22: ("InitProducerId", 0, 5, transactions.init_producer_id),
    23: ("OffsetForLeaderEpoch", 2, 4, logs.offset_for_leader_epoch),
    24: ("AddPartitionsToTxn", 0, 3, transactions.add_partitions),
    25: ("AddOffsetsToTxn", 0, 4, transactions.add_offsets),
    26: ("EndTxn", 0, 5, transactions.end),
    27: ("WriteTxnMarkers", 1, 1, transactions.write_markers),
    28: ("TxnOffsetCommit", 0, 5, transactions.offset_commit),
    32: ("DescribeConfigs", 0, 4, topics.describe_configs),
    36: ("SaslAuthenticate", 0, 2, sasl.authenticate),
    37: ("CreatePartitions", 0, 3, topics.create_partitions),
    60: ("DescribeCluster", 0, 1, topics.describe_cluster),
    61: ("DescribeProducers", 0, 0, transactions.describe_producers),
    65: ("DescribeTransactions", 0, 0, transactions.describe),
    66: ("ListTransactions", 0, 2, transactions.list_of_node),
    68: ("ConsumerGroupHeartbeat", 0, 1, groups.refuse_consumer_groups),
}


class KafkaSide(KafkaState):
    """Serves Kafka's protocol.

    Attributes:
        offered: the requests that ApiVersions lists and that are answered, as `OFFERED`.
    """

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.offered = dict(OFFERED)

    async def start(self) -> None:
        """Open each node's listener, bring its node back, and resume groups and transactions."""
        for node in self.cluster.nodes.values():
            await self.listen(node.listener)
            node.sessions.forget()
            if not node.up:
                self.cluster.back(node)
        for group in self.groups.values():
            group.resume()
        for transaction in self.transactions.values():
            if transaction.ongoing:
                transactions.watch(self, transaction)

    def place(self) -> str:
        """Return the addresses of all nodes, separated by commas."""
        return ",".join(self.address(name) for name in self.cluster.nodes)

    async def node_down(self, name: str, *, abruptly: bool = False) -> None:
        """Take a node away: other nodes lead its partitions and groups at once."""
        if abruptly:
            self.kick(name)  # before the cluster changes, so that no client learns of it by this node
        self.cluster.lost(self.cluster.nodes[name])
        await super().node_down(name, abruptly=abruptly)

    async def node_up(self, name: str) -> None:
        """Bring a node back."""
        await super().node_up(name)
        node = self.cluster.nodes[name]
        if name in self.listeners and not node.up:
            self.cluster.back(node)

    async def serve(self, connection: Connection) -> None:
        """Answer each request; raises what a broker would close the connection on."""
        session, node = Session(), self.cluster.nodes[connection.listener]
        async for frame in connection:
            if len(frame) < 8:
                raise Truncated("a request needs 8 bytes at least", peer=connection.peer)
            api_key, version, correlation = struct.unpack_from(">hhi", frame)
            if api_key == API_VERSIONS:
                fault = await connection.fault("ApiVersions", node=node.number)
                connection.send(*api_versions(version, correlation, self.offered, self.level), fault=fault)
                continue
            offered = self.offered.get(api_key)
            if offered is None or not offered[1] <= version <= offered[2]:
                raise UnsupportedVersion("the dev broker does not offer this", message=f"api {api_key}", version=version)
            name, _, _, handler = offered
            request_class = getattr(m, f"{name}Request")
            header, start = m.RequestHeader.decode_from(frame, request_class.header_version(version))
            request, _ = request_class.decode_from(frame, version, start=start)  # brokers ignore trailing bytes; librdkafka sends some
            fault = await connection.fault(name, node=node.number)
            code = fault.code if fault is not None and fault.kind == "error" else 0
            if session.refuses(self.credentials, name):
                return
            code = code or self.cluster.refuses(name, request, node)
            response = await handler(Context(self, request, version, header.client_id or "", connection.peer, code, session, node))
            muted = self.quotas.take(name)
            if response is not None:
                if muted:
                    response = response.replace(throttle_time_ms=int(muted * 1000))
                head = m.ResponseHeader(correlation_id=correlation).encode(type(response).header_version(version))
                connection.send(head, *response.encode_parts(version), fault=fault)
                await connection.drain()
                if getattr(response, "error_code", 0) == sasl.AUTHENTICATION_FAILED:
                    return
            if muted:
                await asyncio.sleep(muted)

    def offer(self, name: str, newest: int | None = None) -> None:
        """Behave as an older broker: offer a request up to this version, or not at all (None)."""
        (key,) = (key for key, (found, *_) in OFFERED.items() if found == name)
        found, low, _, handler = OFFERED[key]
        if newest is None:
            self.offered.pop(key, None)
        else:
            self.offered[key] = (found, min(low, newest), newest, handler)

    def let_in(self, users: Mapping[str, str] | None = None, tokens: Iterable[str] = (), lifetime: float = 0.0) -> None:
        """Require authentication from now on, by SASL PLAIN or OAUTHBEARER; without users and tokens everyone is let in again.

        Args:
            users: passwords by name. tokens: for OAUTHBEARER.
            lifetime: seconds that a session lasts (``connections.max.reauth.ms``): the first request after it closes the connection.
        """
        self.credentials = Credentials(dict(users or {}), frozenset(tokens), lifetime)

    def speak_transactions(self, level: int) -> None:
        """Set the cluster's ``transaction.version`` to 1 or 2: whether producers add partitions by requests of their own."""
        if level not in (1, 2):
            raise OptionError(f"transaction.version is 1 or 2, not {level}")
        self.level = level

    def throttle(self, name: str, seconds: float, times: int = 1) -> None:
        """Throttle the next `times` replies of this name (Produce, Fetch): their connections are not read for `seconds`."""
        self.quotas.use_up(name, seconds, times)

    def sessions_kept(self) -> int:
        """Return the number of fetch sessions."""
        return sum(len(node.sessions) for node in self.cluster.nodes.values())

    def limit_sessions(self, places: int) -> None:
        """Keep at most this many fetch sessions on each node."""
        for node in self.cluster.nodes.values():
            node.sessions.places = places

    def forget_sessions(self, *, epochs: bool = False) -> None:
        """Drop clients' fetch sessions, or (`epochs`) put them out of step."""
        for node in self.cluster.nodes.values():
            node.sessions.forget(epochs=epochs)

    def move_leader(self, topic: str, partition: int, node: int | None = None) -> int:
        """Make another node a partition's leader (None: the next one in sync); returns its number.

        It begins the next epoch; nothing is lost.
        """
        return self.cluster.move(self._log(topic, partition), node)

    def move_coordinator(self, group: str, node: int | None = None) -> int:
        """Make another node the coordinator of a group, with its members and offsets, and of others of its slot; returns its number."""
        return self.cluster.move_group(group, node)

    def leader(self, topic: str, partition: int) -> int:
        """Return the number of the node that leads a partition; -1: none."""
        copies: Copies = self._log(topic, partition).facts["copies"]
        return copies.leader

    def coordinator(self, group: str) -> int:
        """Return the number of the node that coordinates a group; -1: none."""
        node = self.cluster.coordinator(group)
        return NO_LEADER if node is None else node.number

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions."""
        self.topics.grow(topic, partitions)

    def elect(self, topic: str, partition: int, end: int) -> None:
        """Make an unclean election: another leader, where there is another node, whose log ends at or before `end`."""
        log = self._log(topic, partition)
        copies: Copies = log.facts["copies"]
        if copies.leader != NO_LEADER:
            copies.move(None)
        epochs.elect(log, end)
        log.notify_watchers()

    def move_away(self, topic: str, partition: int, below: int, *, slow: int) -> None:
        """Move records below an offset to remote storage; its next `slow` reads take too long and are answered without records."""
        self._log(topic, partition).facts.update(local=below, slow=slow)

    def leave_out(self, topic: str, partition: int, count: int) -> None:
        """Leave out the next `count` offsets, as after a compaction."""
        self._log(topic, partition).end += count

    def trim(self, topic: str, partition: int, below: int) -> None:
        """Delete records below an offset, as by DeleteRecords or retention."""
        self._log(topic, partition).start = below

    def _log(self, topic: str, partition: int) -> PartitionLog:
        log = self.topics.log(topic, partition)
        if log is None:
            raise OptionError(f"there is no {topic}[{partition}]")
        return log

    def hold_offsets(self, group: str, *, held: bool = True) -> None:
        """Behave as if a transaction that commits offsets of this group were open: requests for stable offsets are refused."""
        groups.group_of(self, group).unstable = held

    async def stopped(self) -> None:
        """Save transactions and committed offsets; sessions of group members stop until the broker is back."""
        self.store.facts["transactions"] = {name: transaction.kept() for name, transaction in self.transactions.items()}
        self.store.facts["groups"] = {name: group.kept() for name, group in self.groups.items()}
        for group in self.groups.values():
            group.pause()
        self.store.save()


def api_versions(
    version: int, correlation: int, offered: Mapping[int, tuple[str, int, int, Handler]] = OFFERED, level: int = 2
) -> list[bytes]:
    """Return the response to ApiVersions: every version offered, and the transaction version.

    An unknown version of this request gets error 35 in version 0.
    """
    keys = {**{key: (low, high) for key, (_, low, high, _) in offered.items()}, API_VERSIONS: (0, NEWEST)}
    known = version <= NEWEST
    response = m.ApiVersionsResponse(
        error_code=0 if known else UNSUPPORTED_VERSION,
        api_keys=tuple(m.ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in sorted(keys.items())),
        supported_features=(m.SupportedFeatureKey(name=FEATURE, min_version=0, max_version=2),) if version >= 4 else (),  # KAFKA-17011
        finalized_features_epoch=0,
        finalized_features=(m.FinalizedFeatureKey(name=FEATURE, max_version_level=level, min_version_level=level),),
    )
    return [struct.pack(">i", correlation), response.encode(version if known else 0)]
