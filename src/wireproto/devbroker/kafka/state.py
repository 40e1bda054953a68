"""Holds the state of the Kafka side that its handlers use: topics, groups, transactions, credentials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ..side import Side
from .access import Credentials
from .catalogue import Topics
from .cluster import Cluster
from .group import Group
from .nodes import Node
from .quotas import Quotas
from .transaction import Transaction


class KafkaState(Side):
    """The state of all nodes.

    Attributes:
        cluster: its nodes, and what each of them leads.
        topics: over the store's logs. groups: by name.
        credentials: users and tokens that are let in.
        quotas: exceeded ones.
        transactions: by transactional id.
        level: the cluster's finalized ``transaction.version``.
    """

    protocol = "kafka"
    kinds: ClassVar[Mapping[str, int]] = {"nodes": 1}

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.credentials = Credentials()
        self.cluster = Cluster(self, self.counts["nodes"])
        self.topics = Topics(self, self.cluster)
        self.quotas = Quotas()
        self.level = 2
        self.transactions: dict[str, Transaction] = {}
        for name, kept in self.store.facts.get("transactions", {}).items():
            self.transactions[name] = Transaction(name, self.next_producer)
            self.transactions[name].restore(kept)
        self.groups: dict[str, Group] = {name: Group.restored(name, kept) for name, kept in self.store.facts.get("groups", {}).items()}

    def next_producer(self) -> int:
        """Return a new producer id."""
        facts = self.store.facts
        facts["next producer"] = facts.get("next producer", 1000) + 1
        found: int = facts["next producer"]
        return found

    def place_of(self, node: Node | None) -> tuple[str, int]:
        """Return a node's host and port; for None what Kafka answers, ("", -1)."""
        if node is None:
            return "", -1
        host, _, port = self.address(node.listener).rpartition(":")
        return host, int(port)
