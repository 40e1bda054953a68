"""Holds the state of one broker that its handlers use: a master, or a slave of one.

The differences between the two lines, and between a master and a slave, are properties here. A slave gets its messages by
`replica.Replica`.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from ..._codec import RemotingCommand
from .members import Groups
from .topics import Queues

if TYPE_CHECKING:
    from ..log import Store
    from ..server import Connection
    from ..side import Side
    from .registry import Announced

ONEWAY = 2
CLUSTER, BROKER = "DevCluster", "dev"
PAGE_CACHE = 40
"""Per cent of the memory that a reader may be behind: accessMessageInMemoryMaxRatio. No reader here is ever that far, but for 0."""


class Node:
    """A broker's state.

    Attributes:
        listener: name of its listener.
        number: 0 is the master, others are its slaves.
        default_queues: number of queues in the template topic's route.
        replicas: a master's slaves.
        synchronous: whether a master waits for a slave before it answers a send (SYNC_MASTER).
        reads: whether slaves may be read from (slaveReadEnable).
        pulled: whether any client has pulled from it since it started.
        behind: per cent of the memory that a reader may be behind; above it the reader is sent to a slave, where it may read there.
        version: grows with each change of the topics' settings; it is part of what a broker registers at name servers.
        changed: functions that are called with this node and the topic when a topic was made or changed.
    """

    def __init__(self, side: Side, listener: str, number: int, store: Store) -> None:
        self._side = side
        self.listener = listener
        self.number = number
        self.store = store
        self.default_queues = 4
        self.replicas: list[Any] = []  # of `replica.Replica`, which knows this class
        self.synchronous = False
        self.reads = False
        self.behind = PAGE_CACHE
        self.pulled = False
        self.version = 0
        self.changed: list[Any] = []  # called with this node and the topic
        self.queues = Queues(self)
        self.groups = Groups(store, self.queues, self.push)
        self._turn = itertools.count()
        self._opaque = itertools.count(1)

    @property
    def auto_create(self) -> bool:
        """Return whether topics are created at their first use."""
        return self._side.auto_create

    @property
    def old(self) -> bool:
        """Return whether it answers as the 4.9 line does."""
        return self.groups.old

    @property
    def slave(self) -> bool:
        """Return whether it is a slave."""
        return self.number != 0

    @property
    def up(self) -> bool:
        """Return whether it listens."""
        return self._side.listening and self.listener in self._side.listeners

    @property
    def address(self) -> str:
        """Return ``host:port``."""
        return self._side.address(self.listener)

    @property
    def broker_host(self) -> tuple[str, int]:
        """Return host and port, which are part of message ids."""
        host, _, port = self.address.rpartition(":")
        return host, int(port)

    def announced(self) -> Announced:
        """Return what it registers at name servers."""
        from .registry import Announced

        return Announced(BROKER, self.number, self.address, self.version, dict(self.queues.topics))

    @property
    def far(self) -> bool:
        """Return whether reads count as reads from the disk."""
        return self.behind < 1

    def suggested(self) -> int:
        """Return the number of the broker that a reader is to pull from next, after a pull that found something."""
        return 1 if self.reads and self.far else 0

    def pick(self, count: int) -> int:
        """Return a queue for a send that leaves the choice to the broker."""
        return next(self._turn) % count

    def touch(self, topic: str | None) -> None:
        """Note that a topic was made or changed, or (None) that one was deleted."""
        self.version += 1
        for tell in self.changed if topic is not None else ():
            tell(self, topic)

    def push(self, connection: Connection, message: Any) -> None:
        """Send a one-way command to a client."""
        if not connection.closed:
            command = RemotingCommand(message.CODE, next(self._opaque), flag=ONEWAY, ext=message.to_ext())
            connection.send(*command.encode())
