"""What the RocketMQ side knows: topics, groups, other brokers. Handlers are given this much of it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from ..._codec import RemotingCommand
from ..side import Side
from .members import Groups
from .topics import Queues, broker_host

if TYPE_CHECKING:
    from ..server import Connection

ONEWAY = 2


class RocketMQState(Side):
    """One name server's and one broker's state.

    Attributes:
        default_queues: how many queues the template topic offers.
        others: addresses of other embedded brokers by name, for which this one is the name server, too.
    """

    protocol = "rocketmq"

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.default_queues = 4
        self.others: dict[str, str] = {}
        self.queues = Queues(self)
        self.groups = Groups(self, self.queues, self.push)
        self._turn = itertools.count()
        self._opaque = itertools.count(1)

    @property
    def broker_host(self) -> tuple[str, int]:
        """Where the broker listens; part of message ids."""
        return broker_host(self)

    def pick(self, count: int) -> int:
        """A queue for a send that leaves the choice to the broker."""
        return next(self._turn) % count

    def push(self, connection: Connection, message: Any) -> None:
        """A one-way command of the broker's own."""
        if not connection.closed:
            command = RemotingCommand(message.CODE, next(self._opaque), flag=ONEWAY, ext=message.to_ext())
            connection.send(*command.encode())
