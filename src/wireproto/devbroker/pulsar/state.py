"""Holds the state of the Pulsar side that sessions and the admin interface use: topics by name, partition counts, ids."""

from __future__ import annotations

import itertools
from typing import Any

from ...errors import OptionError
from ...pulsar.topics import TopicName, parse_topic, without_partition
from ..side import Side
from .settings import Settings
from .subscription import Subscription
from .topic import Topic
from .transactions import ASSIGN, Coordinator

FIRST_LEDGER = 1
PROTOCOL_VERSION = 21


class PulsarState(Side):
    """One broker's state.

    Attributes:
        entry_metadata: whether MESSAGE has broker entry metadata (0x0e02) for clients that can read it.
        topics: those in use or kept, by full name.
        partitioned: number of partitions, by full name.
        deduplicates: by namespace, whether repeated messages are dropped there; where it is not set, no.
        protocol_version: the newest that CONNECTED names.
        settings: the broker's configuration.
        coordinator: of transactions.
    """

    protocol = "pulsar"
    cap = (5 << 20) + 10240

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.entry_metadata = False
        self.protocol_version = PROTOCOL_VERSION
        self.settings = Settings()
        self.topics: dict[str, Topic] = {}
        self._names = itertools.count()
        facts = self.store.facts
        self.coordinator = Coordinator(self.topics, facts)
        self.partitioned: dict[str, int] = facts.setdefault("partitioned", {})
        self._ledgers: dict[str, int] = facts.setdefault("ledgers", {})
        self.deduplicates: dict[str, bool] = facts.setdefault("deduplicates", {})
        for name in self.store.topics:
            self._open(name)
        for name, subscriptions in facts.get("subscriptions", {}).items():
            for sub in subscriptions if name in self.topics else ():
                self._restore(self.topics[name], sub)

    async def stopped(self) -> None:
        """Roll back transactions, and save subscriptions."""
        self.coordinator.stop()
        self.store.facts["hidden"] = {name: sorted(topic.buffer.hidden) for name, topic in self.topics.items() if topic.buffer.hidden}
        self.store.facts["subscriptions"] = {
            name: [
                {"name": s.name, "kind": int(s.kind), "mark": s.mark, "done": sorted(s.done), "partial": list(s.partial.items())}
                for s in topic.subscriptions.values()
                if s.durable
            ]
            for name, topic in self.topics.items()
        }
        self.store.save()

    # -- topics -----------------------------------------------------------------------------------------------------------

    def partitions(self, name: str) -> int | None:
        """Return the number of partitions of a topic; 0 when it is not partitioned, None when there is no such topic."""
        if name == ASSIGN and self.settings.transactions:
            return 1
        if name in self.partitioned:
            return self.partitioned[name]
        return 0 if name in self.topics else None

    def topic(self, name: str, create: bool = True) -> Topic | None:
        """Return a topic by full name, or None.

        It is created where `create` is set, the broker allows it and it is no partition beyond its topic's number.
        """
        found = self.topics.get(name)
        if found is None and create and self.auto_create and name not in self.partitioned:
            parsed = parse_topic(name)
            whole = without_partition(name)
            if parsed.partition >= 0 and whole in self.partitioned and parsed.partition >= self.partitioned[whole]:
                return None
            found = self.create(name)
        return found

    def create(self, name: str) -> Topic:
        """Create a topic that is not partitioned, or one partition."""
        self.store.create(name, 1)
        return self._open(name)

    def create_partitioned(self, name: str, count: int) -> None:
        """Create a partitioned topic, or add partitions to one."""
        self.partitioned[name] = count
        for number in range(count):
            part = parse_topic(name).of_partition(number)
            if part not in self.topics:
                self.create(part)

    def delete(self, name: str) -> None:
        """Delete a topic; its producers and consumers are closed."""
        topic = self.topics.pop(name, None)
        if topic is not None:
            self.unload(topic)
            self.store.delete(name)
            self._ledgers.pop(name, None)

    def unload(self, topic: Topic) -> None:
        """Close a topic's producers and consumers, as a broker does before the topic moves; clients come back."""
        for session in {*topic.producers.values(), *(c.session for s in topic.subscriptions.values() for c in s.consumers)}:
            session.close_topic(topic)

    def terminate(self, topic: Topic) -> None:
        """Terminate a topic: producers are refused, and consumers get REACHED_END_OF_TOPIC at its end."""
        topic.terminated = True
        for subscription in topic.subscriptions.values():
            subscription.dispatch()

    def in_namespace(self, namespace: str, domain: str = "persistent") -> list[str]:
        """Return full names of the topics (partitions one by one) of ``tenant/namespace``."""
        return [name for name in self.topics if _in(parse_topic(name), namespace, domain)]

    def _open(self, name: str) -> Topic:
        if name not in self._ledgers:
            self._ledgers[name] = self._new_ledger()
        log = self.store.log(name, 0)
        assert log is not None
        topic = self.topics[name] = Topic(name, self._ledgers[name], log, self.settings)
        topic.buffer.hidden.update(self.store.facts.get("hidden", {}).get(name, ()))
        topic.deduplicate(self.deduplicates.get(parse_topic(name).namespace_name, False), stored=True)
        return topic

    def _new_ledger(self) -> int:
        """Return a number that no ledger ever had, so that a position in a deleted topic is none in a new one."""
        facts = self.store.facts
        number = facts["last_ledger"] = max([facts.get("last_ledger", FIRST_LEDGER - 1), *self._ledgers.values()]) + 1
        return int(number)

    def deduplicate(self, namespace: str, on: bool | None) -> None:
        """Drop repeated messages in a namespace from now on, or not; None: remove the setting."""
        if on is None:
            self.deduplicates.pop(namespace, None)
        else:
            self.deduplicates[namespace] = on
        for name, topic in self.topics.items():
            if parse_topic(name).namespace_name == namespace:
                topic.deduplicate(bool(on))

    def _restore(self, topic: Topic, kept: dict[str, Any]) -> None:
        subscription = Subscription(topic, kept["name"], kept["kind"], kept["mark"], durable=True)
        subscription.done = set(kept["done"])
        subscription.partial = {int(number): words for number, words in kept["partial"]}
        topic.subscriptions[kept["name"]] = subscription

    def producer_name(self) -> str:
        """Return a name for a producer that has none."""
        return f"dev-{next(self._names)}"


def _in(name: TopicName, namespace: str, domain: str) -> bool:
    return name.namespace_name == namespace and name.domain == domain


def full_name(text: str) -> str | None:
    """Return a full topic name, or None for one that is not valid."""
    try:
        return str(parse_topic(text))
    except OptionError:
        return None
