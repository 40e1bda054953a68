"""Reads and writes JSON bodies of commands: routes, clusters, topic lists, heartbeats, members of a group.

Each body is a frozen value with `decode(body)` or `encode()`; field names on the wire are the vendor's, attributes are snake_case.

    code 105 reply   TopicRouteData      206, 224, 304 reply  TopicList       34 request  HeartbeatData
    code 106 reply   ClusterInfo         38 reply             ConsumerIds

Reading is tolerant of fields that are missing or unknown (the broker lines differ), strict about types: a wrong one raises Malformed with
its path, never a KeyError or TypeError later on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from wireproto._codec import java_hash as hash_of_text
from wireproto.errors import Malformed

from . import fastjson

T = TypeVar("T")

PERM_WRITE = 2
PERM_READ = 4
MASTER = 0
"""Broker id of the master of a broker name."""


def java_hash(text: str) -> int:
    """Return Java's ``String.hashCode``: int32 over UTF-16 units."""
    return hash_of_text(text.encode("utf-8", "surrogatepass"))


def _want(value: Any, kind: type[T], path: str, default: T | None = None) -> T:
    """Return `value` if it is of that type, the default for None, if there is one; else raise Malformed."""
    if value is None and default is not None:
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise Malformed(f"expected {kind.__name__}, found {type(value).__name__}", path=path)
    return value


def _object(body: bytes, what: str) -> Mapping[Any, Any]:
    return _want(fastjson.loads(body), dict, what)


def _name(key: Any, path: str) -> str:
    """Return a key that has to be text: fastjson's may be objects, too."""
    return _want(key, str, path)


def _texts(value: Any, path: str) -> tuple[str, ...]:
    return tuple(_want(item, str, f"{path}[{at}]") for at, item in enumerate(_want(value, list, path, [])))


def _addresses(value: Any, path: str) -> dict[int, str]:
    """Return addresses by broker id; ids come as text or bare numbers."""
    out: dict[int, str] = {}
    for number, address in _want(value, dict, path, {}).items():
        try:
            out[int(number)] = _want(address, str, f"{path}.{number}")
        except (TypeError, ValueError):
            raise Malformed(f"broker id {number!r} is not a number", path=path) from None
    return out


@dataclass(frozen=True, slots=True)
class QueueData:
    """Says how many queues of a topic one broker holds. perm: 4 read + 2 write."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0

    @classmethod
    def of(cls, item: Any, path: str) -> QueueData:
        """Read one from the JSON at `path`; raises Malformed."""
        item = _want(item, dict, path)
        read = _want(item.get("readQueueNums"), int, f"{path}.readQueueNums", 0)
        write = _want(item.get("writeQueueNums"), int, f"{path}.writeQueueNums", 0)
        if not 0 <= read <= 1 << 20 or not 0 <= write <= 1 << 20:
            raise Malformed(f"impossible number of queues {read}, {write}", path=path)
        return cls(
            broker_name=_want(item.get("brokerName"), str, f"{path}.brokerName"),
            read_queue_nums=read,
            write_queue_nums=write,
            perm=_want(item.get("perm"), int, f"{path}.perm", 0),
            topic_sys_flag=_want(item.get("topicSysFlag", item.get("topicSynFlag")), int, f"{path}.topicSysFlag", 0),
        )


@dataclass(frozen=True, slots=True)
class BrokerData:
    """Holds the addresses of one broker name by broker id; 0 is the master."""

    cluster: str
    broker_name: str
    broker_addrs: Mapping[int, str]

    @classmethod
    def of(cls, item: Any, path: str) -> BrokerData:
        """Read one from the JSON at `path`; raises Malformed."""
        item = _want(item, dict, path)
        return cls(
            cluster=_want(item.get("cluster"), str, f"{path}.cluster", ""),
            broker_name=_want(item.get("brokerName"), str, f"{path}.brokerName"),
            broker_addrs=_addresses(item.get("brokerAddrs"), f"{path}.brokerAddrs"),
        )

    @property
    def master(self) -> str | None:
        """Return the address of the master, or None while there is none."""
        return self.broker_addrs.get(MASTER)


@dataclass(frozen=True, slots=True)
class TopicRouteData:
    """Names the brokers and queues of a topic (reply of code 105).

    Attributes:
        queue_datas: queues by broker. broker_datas: addresses of the brokers.
        order: of an order topic, brokers and the number of their queues that keys are spread over, also while a broker is away.
        static: it has logical queues mapped over its brokers' (5.x), with numbers and offsets of their own.
    """

    queue_datas: tuple[QueueData, ...]
    broker_datas: tuple[BrokerData, ...]
    order: tuple[tuple[str, int], ...] = ()
    static: bool = False

    @classmethod
    def decode(cls, body: bytes) -> TopicRouteData:
        """Read a body; raises Malformed."""
        tree = _object(body, "TopicRouteData")
        queues = _want(tree.get("queueDatas"), list, "queueDatas", [])
        brokers = _want(tree.get("brokerDatas"), list, "brokerDatas", [])
        return cls(
            queue_datas=tuple(QueueData.of(item, f"queueDatas[{at}]") for at, item in enumerate(queues)),
            broker_datas=tuple(BrokerData.of(item, f"brokerDatas[{at}]") for at, item in enumerate(brokers)),
            order=_order(_want(tree.get("orderTopicConf"), str, "orderTopicConf", "")),
            static=bool(tree.get("topicQueueMappingByBroker")),
        )


def _order(text: str) -> tuple[tuple[str, int], ...]:
    """Parse ``broker:queues;…`` as an operator has written it. A malformed text is ignored, so that the topic can still be read."""
    found: list[tuple[str, int]] = []
    for part in filter(None, text.split(";")):
        broker, _, count = part.rpartition(":")
        if not broker or not count.isascii() or not count.isdigit() or int(count) > 1 << 20:
            return ()
        found.append((broker, int(count)))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """Names every broker that the name server knows (reply of code 106)."""

    brokers: Mapping[str, BrokerData]
    clusters: Mapping[str, tuple[str, ...]]

    @property
    def masters(self) -> list[str]:
        """Return the addresses of all masters, in order of their brokers' names; a broker whose master is away is left out."""
        return [address for name in sorted(self.brokers) if (address := self.brokers[name].master)]

    @classmethod
    def decode(cls, body: bytes) -> ClusterInfo:
        """Read a body; raises Malformed."""
        tree = _object(body, "ClusterInfo")
        brokers = _want(tree.get("brokerAddrTable"), dict, "brokerAddrTable", {})
        clusters = _want(tree.get("clusterAddrTable"), dict, "clusterAddrTable", {})
        return cls(
            brokers={_name(name, "brokerAddrTable"): BrokerData.of(item, f"brokerAddrTable.{name}") for name, item in brokers.items()},
            clusters={_name(name, "clusterAddrTable"): _texts(item, f"clusterAddrTable.{name}") for name, item in clusters.items()},
        )


@dataclass(frozen=True, slots=True)
class TopicList:
    """Lists topics (replies of 206, 224, 304, 305)."""

    topics: tuple[str, ...]
    broker_addr: str | None = None

    @classmethod
    def decode(cls, body: bytes) -> TopicList:
        """Read a body; raises Malformed."""
        tree = _object(body, "TopicList")
        return cls(_texts(tree.get("topicList"), "topicList"), _want(tree.get("brokerAddr"), str, "brokerAddr", "") or None)


@dataclass(frozen=True, slots=True)
class ConsumerIds:
    """Lists the client ids of a group's members (reply of code 38)."""

    members: tuple[str, ...]

    @classmethod
    def decode(cls, body: bytes) -> ConsumerIds:
        """Read a body; raises Malformed."""
        if not body:
            return cls(())
        return cls(_texts(_object(body, "ConsumerIds").get("consumerIdList"), "consumerIdList"))


@dataclass(frozen=True, slots=True)
class SubscriptionData:
    """Says what a member reads of one topic: everything (``*``) or tags (``a || b``)."""

    topic: str
    expression: str = "*"
    version: int = 0

    def tree(self) -> dict[str, Any]:
        """Return the JSON object as Java's client writes it."""
        tags = [] if self.expression == "*" else [tag.strip() for tag in self.expression.split("||") if tag.strip()]
        return {
            "classFilterMode": False,
            "codeSet": [java_hash(tag) for tag in tags],
            "expressionType": "TAG",
            "subString": self.expression,
            "subVersion": self.version,
            "tagsSet": tags,
            "topic": self.topic,
        }


@dataclass(frozen=True, slots=True)
class HeartbeatData:
    """Announces a client and its groups to a broker (request of code 34), sent each `heartbeat_interval`.

    Attributes:
        client_id: unique in the group; also the member's name for rebalance.
        producer_groups: names of groups that we send for.
        consumers: group name to its subscriptions.
        consume_from: where a group without offset starts; brokers only record it, the client decides.
    """

    client_id: str
    producer_groups: Sequence[str] = ()
    consumers: Mapping[str, Sequence[SubscriptionData]] = field(default_factory=dict)
    consume_from: str = "CONSUME_FROM_FIRST_OFFSET"

    def encode(self) -> bytes:
        """Write the body."""
        consumers = [
            {
                "consumeFromWhere": self.consume_from,
                "consumeType": "CONSUME_PASSIVELY",
                "groupName": group,
                "messageModel": "CLUSTERING",
                "subscriptionDataSet": [subscription.tree() for subscription in subscriptions],
                "unitMode": False,
            }
            for group, subscriptions in self.consumers.items()
        ]
        producers = [{"groupName": group} for group in self.producer_groups]
        return fastjson.dumps({"clientID": self.client_id, "consumerDataSet": consumers, "producerDataSet": producers})


@dataclass(frozen=True, slots=True)
class Connection:
    """Describes one live client of a group (reply of 203)."""

    client_id: str
    address: str
    language: str
    version: int


@dataclass(frozen=True, slots=True)
class ConsumerConnection:
    """Describes the live members of a group and what they subscribe to (reply of code 203)."""

    connections: tuple[Connection, ...]
    topics: tuple[str, ...]
    details: Mapping[str, Any]

    @classmethod
    def decode(cls, body: bytes) -> ConsumerConnection:
        """Read a body; raises Malformed."""
        tree = _object(body, "ConsumerConnection")
        found = []
        for at, item in enumerate(_want(tree.get("connectionSet"), list, "connectionSet", [])):
            path = f"connectionSet[{at}]"
            item = _want(item, dict, path)
            found.append(
                Connection(
                    client_id=_want(item.get("clientId"), str, f"{path}.clientId", ""),
                    address=_want(item.get("clientAddr"), str, f"{path}.clientAddr", ""),
                    language=_want(item.get("language"), str, f"{path}.language", ""),
                    version=_want(item.get("version"), int, f"{path}.version", 0),
                )
            )
        table = _want(tree.get("subscriptionTable"), dict, "subscriptionTable", {})
        details = {name: tree[name] for name in ("consumeType", "messageModel", "consumeFromWhere") if name in tree}
        return cls(tuple(found), tuple(sorted(map(str, table))), details)


def subscription_groups(body: bytes) -> tuple[str, ...]:
    """Return the names of the groups in a broker's table (reply of code 201)."""
    table = _want(_object(body, "SubscriptionGroups").get("subscriptionGroupTable"), dict, "subscriptionGroupTable", {})
    return tuple(map(str, table))


def retry_queues(body: bytes, group: str) -> int | None:
    """Return `retryQueueNums` of a group; None: the group is not there.

    The body has the group's settings (reply of code 352), or is a broker's table of all groups (201), which may be megabytes, so that
    nothing else of it is parsed.
    """
    if b'"subscriptionGroupTable"' not in body:
        return _want(_object(body, "SubscriptionGroupConfig").get("retryQueueNums"), int, "retryQueueNums", 1)
    name = re.escape(group.encode())
    found = re.search(rb'"groupName":"' + name + rb'"[^{}]*(?:\{[^{}]*\}[^{}]*)*?"retryQueueNums":(-?\d+)', body)
    return int(found[1]) if found else None


def runtime_info(body: bytes) -> Mapping[str, str]:
    """Return a broker's state as texts (reply of code 28)."""
    table = _want(_object(body, "RuntimeInfo").get("table"), dict, "table", {})
    return {str(name): str(value) for name, value in table.items()}


def log_end(body: bytes) -> int:
    """Return where the commit log of a master ends (reply of code 907); -1 where the reply does not say."""
    tree = _object(body, "HARuntimeInfo")
    return _want(tree.get("masterCommitLogMaxOffset"), int, "masterCommitLogMaxOffset", -1) if tree.get("master") is True else -1


def entries_end(body: bytes) -> int:
    """Return where in the commit log the last of a queue's entries ends (reply of code 321); 0: there is none."""
    end = 0
    for at, item in enumerate(_want(_object(body, "QueryConsumeQueue").get("queueData"), list, "queueData", [])):
        item = _want(item, dict, f"queueData[{at}]")
        end = max(end, sum(_want(item.get(name), int, f"queueData[{at}].{name}") for name in ("physicOffset", "physicSize")))
    return end
