"""What can be started: protocol to (class, versions, command-line flags with their types)."""

from __future__ import annotations

from typing import Any

from . import kafka, pulsar, rocketmq, zookeeper

KINDS: dict[str, tuple[Any, tuple[str, ...], dict[str, type]]] = {
    "kafka": (
        kafka.Kafka,
        kafka.VERSIONS,
        {"zookeeper": bool, "nodes": int, "tls": bool, "client_auth": str, "sasl": bool, "acl": bool, "heap": str},
    ),
    "pulsar": (
        pulsar.Pulsar,
        pulsar.VERSIONS,
        {"tokens": bool, "tls": bool, "transactions": bool, "entry_metadata": bool, "heap": str},
    ),
    "rocketmq": (
        rocketmq.RocketMQ,
        rocketmq.VERSIONS,
        {"nodes": int, "slave": bool, "name_servers": int, "binary": bool, "acl": bool, "tls": bool, "heap": str},
    ),
    "zookeeper": (
        zookeeper.ZooKeeper,
        zookeeper.VERSIONS,
        {"nodes": int, "netty": bool, "tls": bool, "client_auth": str, "heap": str},
    ),
}
