"""Keeps what one name server knows: only what brokers registered with it, and nothing after a restart.

Measured on 4.9.7 and 5.5.0, two name servers and a slave:

    a topic is made         its broker registers that topic alone, at once, with all name servers that are up
    a name server is back   it knows nothing. Brokers register every 30 s, with all their topics
      in between 4.9.7      accepts a topic that is made meanwhile, and with it the version of the topics' settings: the registration
                            every 30 s then counts as no change, and all other topics stay unknown until the broker is restarted
      in between 5.5.0      refuses a single topic of a broker that it does not know, but knows its name from then on, without addresses
    a broker goes           with its connection, killed or stopped: its address is dropped, and its topics with the name's last address.
                            Slaves keep a name's topics routed
    a topic is deleted      by 216, at this name server alone; 5.5.0 learns it again where the broker still has it

This module knows no connection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Announced:
    """One registration.

    Attributes:
        name: the broker's; a master and its slaves share one.
        number: 0 is the master.
        address: ``host:port``.
        version: of the topics' settings.
        topics: settings by topic; of one alone when it has just been made.
    """

    name: str
    number: int
    address: str
    version: int
    topics: dict[str, dict[str, Any]]


class NameServer:
    """The tables of one name server.

    Attributes:
        topics: settings by topic and broker.
        brokers: addresses by broker and its members' numbers.
        old: whether it behaves as 4.9.7 does.
    """

    def __init__(self) -> None:
        self.topics: dict[str, dict[str, dict[str, Any]]] = {}
        self.brokers: dict[str, dict[int, str]] = {}
        self._versions: dict[str, int] = {}
        self.old = False

    def forget(self) -> None:
        """Drop everything: the name server was stopped."""
        self.topics.clear()
        self.brokers.clear()
        self._versions.clear()

    def register(self, announced: Announced, *, single: bool = False) -> None:
        """Apply a broker's registration.

        Args:
            single: it is of one topic alone.
        """
        members = self.brokers.setdefault(announced.name, {})
        if single and not self.old and announced.number not in members:
            return
        first = announced.number not in members
        members[announced.number] = announced.address
        news = first or self._versions.get(announced.address) != announced.version
        self._versions[announced.address] = announced.version
        if announced.number == 0:
            for topic, settings in announced.topics.items():
                if news or (not self.old and announced.name not in self.topics.get(topic, {})):
                    self.topics.setdefault(topic, {})[announced.name] = dict(settings)

    def lose(self, address: str) -> None:
        """Drop a broker whose connection ended."""
        self._versions.pop(address, None)
        for name, members in list(self.brokers.items()):
            for number in [number for number, where in members.items() if where == address]:
                del members[number]
                if not members:
                    self._drop(name)

    def _drop(self, name: str) -> None:
        del self.brokers[name]
        for topic, queues in list(self.topics.items()):
            queues.pop(name, None)
            if not queues:
                del self.topics[topic]
