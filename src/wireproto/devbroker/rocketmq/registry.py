"""What one name server knows: nothing but what brokers registered with it, and nothing after a restart.

Measured on 4.9.7 and 5.5.0, two name servers and a slave:

    a topic is made         its broker registers that topic alone, at once, with all that are there
    a name server is back   it knows nothing. Brokers register every 30 s, with all their topics
      in between 4.9.7      takes a topic that is made meanwhile, and with it the version of the topics' settings: what comes every 30 s
                            is no news then, and all other topics stay unknown until the broker starts again
      in between 5.5.0      refuses a single topic of a broker that it does not know, but knows its name from now on, without addresses
    a broker goes           with its connection, killed or stopped: its address is dropped, and its topics with the name's last one. Slaves
                            keep a name's topics routed
    a topic is deleted      by 216, at this name server alone; 5.5.0 learns it again where the broker still has it

Must not: know a connection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Announced:
    """One registration.

    Attributes:
        name: the broker's; a master and its slaves have one.
        number: 0 is the master.
        version: of the topics' settings.
        topics: settings by topic; of one alone when it has just been made.
    """

    name: str
    number: int
    address: str
    version: int
    topics: dict[str, dict[str, Any]]


class NameServer:
    """The tables of one.

    Attributes:
        topics: settings by topic and broker.
        brokers: addresses by broker and its members' numbers.
    """

    def __init__(self) -> None:
        self.topics: dict[str, dict[str, dict[str, Any]]] = {}
        self.brokers: dict[str, dict[int, str]] = {}
        self._versions: dict[str, int] = {}
        self.old = False

    def forget(self) -> None:
        """It went down: all of it was in memory."""
        self.topics.clear()
        self.brokers.clear()
        self._versions.clear()

    def register(self, told: Announced, *, single: bool = False) -> None:
        """A broker tells of itself.

        Args:
            single: of one topic alone.
        """
        members = self.brokers.setdefault(told.name, {})
        if single and not self.old and told.number not in members:
            return
        first = told.number not in members
        members[told.number] = told.address
        news = first or self._versions.get(told.address) != told.version
        self._versions[told.address] = told.version
        if told.number == 0:
            for topic, settings in told.topics.items():
                if news or (not self.old and told.name not in self.topics.get(topic, {})):
                    self.topics.setdefault(topic, {})[told.name] = dict(settings)

    def lose(self, address: str) -> None:
        """A broker's connection ended."""
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
