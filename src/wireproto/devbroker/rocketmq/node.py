"""One broker: a master, or a slave of one. Handlers are given this much of it.

What differs between the two lines, and between a master and a slave, is asked here. A slave's messages come by `replica.Replica`.
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
"""Per cent of the memory that a reader may be behind: accessMessageInMemoryMaxRatio. Nothing of ours is ever so far, but above 0."""


class Node:
    """A broker's state.

    Attributes:
        listener: where it listens.
        number: 0 is the master, others are its slaves.
        default_queues: how many queues the template topic offers.
        replicas: of a master: its slaves.
        synchronous: a master waits for a slave before it answers a send (SYNC_MASTER).
        reads: slaves may be read from (slaveReadEnable).
        pulled: somebody pulled from it, since it started.
        behind: above how many per cent of the memory a reader is sent to a slave, where it may read there.
        version: grows with each change of the topics' settings; what a broker registers at name servers carries it.
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
        self.changed: list[Any] = []  # whom to tell of a change of topics: called with this node and the topic
        self.queues = Queues(self)
        self.groups = Groups(store, self.queues, self.push)
        self._turn = itertools.count()
        self._opaque = itertools.count(1)

    @property
    def auto_create(self) -> bool:
        """Whether topics make themselves."""
        return self._side.auto_create

    @property
    def old(self) -> bool:
        """Whether it answers as the 4.9 line does."""
        return self.groups.old

    @property
    def slave(self) -> bool:
        """Whether it has a master."""
        return self.number != 0

    @property
    def up(self) -> bool:
        """Whether it listens."""
        return self._side.listening and self.listener in self._side.listeners

    @property
    def address(self) -> str:
        """``host:port``."""
        return self._side.address(self.listener)

    @property
    def broker_host(self) -> tuple[str, int]:
        """Where it listens; part of message ids."""
        host, _, port = self.address.rpartition(":")
        return host, int(port)

    def announced(self) -> Announced:
        """What it registers at name servers."""
        from .registry import Announced

        return Announced(BROKER, self.number, self.address, self.version, dict(self.queues.topics))

    @property
    def far(self) -> bool:
        """Whether what is read counts as read from the disk."""
        return self.behind < 1

    def suggested(self) -> int:
        """Whom a reader is to ask next whose pull found something."""
        return 1 if self.reads and self.far else 0

    def pick(self, count: int) -> int:
        """A queue for a send that leaves the choice to the broker."""
        return next(self._turn) % count

    def touch(self, topic: str | None) -> None:
        """A topic was made or changed, or (None) one went."""
        self.version += 1
        for tell in self.changed if topic is not None else ():
            tell(self, topic)

    def push(self, connection: Connection, message: Any) -> None:
        """A one-way command of the broker's own."""
        if not connection.closed:
            command = RemotingCommand(message.CODE, next(self._opaque), flag=ONEWAY, ext=message.to_ext())
            connection.send(*command.encode())
