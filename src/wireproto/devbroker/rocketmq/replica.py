"""Replicates a master to a slave: messages at once, settings and offsets from time to time.

Measured on 4.9.7 and 5.5.0 with their default configuration:

    messages      at once, all of the commit log: a slave has those of topics that it does not know yet
    the rest      topics, groups and committed offsets: 4.9.7 3 s after the slave's start and every 10 s then, 5.5.0 after 10 s and every
                  63 s. Changes that were made at the slave itself are lost then, but for offsets of groups and topics of which the
                  master has none
    offsets       5.5.0's slave cannot read them once a client has pulled from its master, until the master is restarted: they stay
    SYNC_MASTER   4.9.7 answers a send with 11 where no slave is there, and with 12 where none has it within 3 s; 5.5.0 always with 0, since
                  one replica in sync is enough for it (inSyncReplicas=1)

This module knows no connection.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .node import Node

SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT = 11, 12
FLUSH_SECONDS = 3.0
FIRST, PERIOD = {True: 3.0, False: 10.0}, {True: 10.0, False: 63.0}
"""Seconds until a slave synchronises first, and between two times; by whether it is of the 4.9 line."""


class Replica:
    """One slave of a master.

    Attributes:
        frozen: whether nothing is replicated, though the connection is open.
    """

    def __init__(self, master: Node, slave: Node) -> None:
        self.master = master
        self.slave = slave
        self.frozen = False
        self._waking = False
        self._copied = asyncio.Event()

    @property
    def linked(self) -> bool:
        """Return whether both are up."""
        return self.master.up and self.slave.up

    def wake(self) -> None:
        """Copy messages soon: there are new ones."""
        if self.linked and not self.frozen and not self._waking:
            self._waking = True
            asyncio.get_running_loop().call_soon(self._copy)

    def _copy(self) -> None:
        self._waking = False
        if self.linked and not self.frozen:
            for place, topic, queue, offset, entry in self.master.queues.since(self.slave.queues.written):
                self.slave.queues.copy(place, topic, queue, offset, entry)
            self._copied.set()
            self._copied = asyncio.Event()

    async def has(self, commit_offset: int) -> None:
        """Wait until the slave has the master's log up to this offset."""
        while self.slave.queues.written < commit_offset:
            await self._copied.wait()

    def synchronise(self) -> None:
        """Copy the master's topics, groups and offsets."""
        if self.linked:
            ours, theirs = self.slave, self.master
            ours.queues.topics.clear()
            ours.queues.topics.update({topic: dict(settings) for topic, settings in theirs.queues.topics.items()})
            for topic, settings in ours.queues.topics.items():
                ours.store.create(topic, settings["queues"])
            ours.groups.known.clear()
            ours.groups.known.update(theirs.groups.known)
            if theirs.old or not theirs.pulled:
                ours.groups.offsets.update({key: dict(kept) for key, kept in theirs.groups.offsets.items()})

    async def keep(self) -> None:
        """Synchronise for ever."""
        await asyncio.sleep(FIRST[self.slave.old])
        while True:
            self.synchronise()
            await asyncio.sleep(PERIOD[self.slave.old])


async def stored_at(master: Node, *, waits: bool) -> int:
    """Return the code of a send's answer, once slaves have the message as the master's role asks.

    Args:
        waits: whether the message asks for it, too: its property WAIT is not false.
    """
    if not (master.synchronous and waits and master.old):
        return 0
    linked = [replica for replica in master.replicas if replica.linked]
    if not linked:
        return SLAVE_NOT_AVAILABLE
    tasks = [asyncio.ensure_future(replica.has(master.queues.written)) for replica in linked]
    done, late = await asyncio.wait(tasks, timeout=FLUSH_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    for task in late:
        task.cancel()
    return 0 if done else FLUSH_SLAVE_TIMEOUT
