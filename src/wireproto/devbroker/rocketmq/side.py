"""Serves RocketMQ's commands: from a frame to its answer, with header, dispatch, faults and pushes.

frame    int32 header length with the serialize type in its top byte · header · body
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from ..._codec import RemotingCommand
from ...errors import Malformed
from ...rocketmq import messages as m
from ..side import Side
from . import groups, names, queues, replica, settings, special
from .names import Asked
from .node import ONEWAY, Node
from .registry import NameServer
from .replica import Replica
from .reply import Reply, Request, refuse

if TYPE_CHECKING:
    from ..server import Connection

NOT_SUPPORTED, SYSTEM_BUSY = 3, 2
RESPONSE = 1
PULL, COMMIT, END_TRANSACTION = 11, 15, 37
SENDS = frozenset({10, 36, 310, 320})
REGISTER_SECONDS = 30.0
"""Seconds between a broker's registrations at all name servers."""
Handler = Callable[[Request], Awaitable[Reply]]
NamesHandler = Callable[[Asked], Awaitable[Reply]]

COMMANDS: dict[int, tuple[str, Handler]] = {
    10: ("SendMessage", queues.send),
    11: ("PullMessage", queues.pull),
    12: ("QueryMessage", special.query_message),
    14: ("QueryConsumerOffset", groups.query_offset),
    15: ("UpdateConsumerOffset", groups.update_offset),
    17: ("UpdateAndCreateTopic", queues.create_topic),
    25: ("UpdateBrokerConfig", settings.update_config),
    28: ("GetBrokerRuntimeInfo", queues.runtime_info),
    29: ("SearchOffsetByTimestamp", queues.search_offset),
    30: ("GetMaxOffset", queues.max_offset),
    31: ("GetMinOffset", queues.min_offset),
    33: ("ViewMessageById", queues.view_message),
    34: ("HeartBeat", groups.heart_beat),
    35: ("UnregisterClient", groups.unregister),
    36: ("ConsumerSendMsgBack", queues.send_back),
    38: ("GetConsumerListByGroup", groups.members),
    41: ("LockBatchMq", groups.lock_queues),
    42: ("UnlockBatchMq", groups.unlock_queues),
    43: ("GetAllConsumerOffset", groups.all_offsets),
    46: ("CheckClientConfig", special.check_client_config),
    200: ("UpdateAndCreateSubscriptionGroup", groups.create_group),
    201: ("GetAllSubscriptionGroupConfig", groups.all_groups),
    203: ("GetConsumerConnectionList", groups.connections),
    215: ("DeleteTopicInBroker", queues.delete_topic),
    222: ("InvokeBrokerToResetOffset", groups.reset_offset),
    305: ("GetSystemTopicListFromBroker", queues.no_topics),
    310: ("SendMessageV2", queues.send),
    320: ("SendBatchMessage", queues.send),
    321: ("QueryConsumeQueue", queues.queue_entries),
    351: ("GetTopicConfig", queues.topic_config),
    907: ("GetBrokerHaStatus", queues.ha_status),
}


NAME_SERVER_COMMANDS: dict[int, tuple[str, NamesHandler]] = {
    101: ("GetKvConfig", names.get_kv),
    105: ("GetRouteInfoByTopic", names.route),
    106: ("GetBrokerClusterInfo", names.cluster),
    206: ("GetAllTopicListFromNameserver", names.topics),
    216: ("DeleteTopicInNamesrv", names.delete_topic),
    224: ("GetTopicsByCluster", names.topics),
    304: ("GetSystemTopicListFromNs", names.no_topics),
}


class RocketMQSide(Side):
    """Serves RocketMQ's remoting protocol: name servers on ``main``, ``names-2`` …, a master on ``broker``, its slaves on ``slave`` ….

    Attributes:
        names: the name servers by listener.
        brokers: the master and its slaves by listener.
        others: addresses of other embedded brokers by name, which use these name servers, too.
    """

    protocol = "rocketmq"
    kinds: ClassVar[Mapping[str, int]] = {"name_servers": 1, "slaves": 0}

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.others: dict[str, str] = {}
        self.master = Node(self, "broker", 0, self.store)
        listeners = [f"slave-{number}" if number > 1 else "slave" for number in range(1, self.counts["slaves"] + 1)]
        self.slaves = [Node(self, name, number, self.store.beside(f".{name}")) for number, name in enumerate(listeners, 1)]
        self.master.replicas = [Replica(self.master, slave) for slave in self.slaves]
        self.brokers = {node.listener: node for node in (self.master, *self.slaves)}
        self.names = {f"names-{n}" if n > 1 else "main": NameServer() for n in range(1, self.counts["name_servers"] + 1)}
        for node in self.brokers.values():
            node.changed.append(self._made)
        self._tasks: set[asyncio.Task[None]] = set()
        self._upkeep: list[asyncio.Task[None]] = []

    # -- life -------------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open all listeners, and register the brokers."""
        for name in (*self.names, *self.brokers):
            await self.listen(name)
        self.announce()
        self._wake()
        self._keep()

    async def node_up(self, name: str) -> None:
        """Bring a name server or broker back; a broker registers at once."""
        await super().node_up(name)
        if name in self.brokers:
            self._announce(self.brokers[name])
            self._wake()

    async def node_down(self, name: str, *, abruptly: bool = False) -> None:
        """Take a name server or broker away; a name server loses everything that it knew."""
        await super().node_down(name, abruptly=abruptly)
        if name in self.names:
            self.names[name].forget()
        else:
            self.brokers[name].pulled = False
            for server in self.names.values():
                server.lose(self.brokers[name].address)

    async def stopped(self) -> None:
        """Stop tasks, clear the name servers, and save."""
        for task in (*self._tasks, *self._upkeep):
            task.cancel()
        self._upkeep.clear()
        for server in self.names.values():
            server.forget()
        self.master.pulled = False
        self.store.save()

    def place(self) -> str:
        """Return the addresses of all name servers, separated by commas."""
        return ",".join(self.address(name) for name in self.names)

    def _keep(self) -> None:
        for task in self._upkeep:
            task.cancel()
        self._upkeep = [asyncio.ensure_future(made.keep()) for made in self.master.replicas]
        self._upkeep.append(asyncio.ensure_future(self._register_for_ever()))

    async def _register_for_ever(self) -> None:
        while True:
            await asyncio.sleep(REGISTER_SECONDS)
            self.announce()

    # -- what tests and users may call ------------------------------------------------------------------------------------

    def announce(self) -> None:
        """Register all brokers at all name servers now; they do it at their start and every 30 s."""
        for node in self.brokers.values():
            self._announce(node)

    def synchronise(self) -> None:
        """Copy the master's topics, groups and offsets to its slaves now; they do it every 10 s (4.9) or 63 s."""
        for made in self.master.replicas:
            made.synchronise()

    def read_from_slaves(self, allowed: bool = True) -> None:
        """Set slaveReadEnable, of all brokers; 5.x slaves answer no pull without it."""
        for node in self.brokers.values():
            node.reads = allowed

    def freeze_slaves(self, frozen: bool = True) -> None:
        """Stop replication from the master to its slaves, though they are up; or continue it."""
        for made in self.master.replicas:
            made.frozen = frozen
            made.wake()

    def waiting(self) -> int:
        """Return how many pulls and sends are held now."""
        return len(self._tasks)

    def hold_queues(self) -> None:
        """Acknowledge messages without showing them in the queues, until `show_queues`."""
        self.master.queues.hold()

    def show_queues(self) -> None:
        """Show all messages in the queues."""
        self.master.queues.show()

    def remove_while_read(self, topic: str, queue: int, until: int) -> None:
        """Answer pulls before this offset as a broker does that is deleting these messages."""
        self.master.queues.removed[topic, queue] = until

    def register(self, name: str, address: str | None) -> None:
        """Register another master at the name servers, or (None) remove it.

        Its topics are created there, too, by an admin's create_topic.
        """
        if address is None:
            self.others.pop(name, None)
        else:
            self.others[name] = address

    def answer_as_old(self, old: bool) -> None:
        """Answer as the 4.9 line does (0 for the offset of a group that has none in a queue that begins at 0 …), or not."""
        for node in self.brokers.values():
            node.groups.old = old
        for server in self.names.values():
            server.old = old
        self._keep()

    # -- what happens by itself -------------------------------------------------------------------------------------------

    def _servers(self) -> list[NameServer]:
        """Return the name servers that listen."""
        return [server for name, server in self.names.items() if name in self.listeners]

    def _announce(self, node: Node) -> None:
        if node.up:
            announced = node.announced()
            for server in self._servers():
                server.register(announced)

    def _made(self, node: Node, topic: str) -> None:
        """Register a topic that was made, alone."""
        if node.up:
            announced = node.announced()
            announced = replace(announced, topics={topic: announced.topics[topic]})
            for server in self._servers():
                server.register(announced, single=True)

    def _wake(self) -> None:
        for made in self.master.replicas:
            made.wake()

    # -- commands ---------------------------------------------------------------------------------------------------------

    async def serve(self, connection: Connection) -> None:
        """Answer each command; some do not delay those behind them."""
        node = self.brokers.get(connection.listener)
        known: Mapping[int, tuple[str, Any]] = COMMANDS if node is not None else NAME_SERVER_COMMANDS
        try:
            async for frame in connection:
                command = RemotingCommand.decode(frame)
                if command.flag & RESPONSE:
                    continue
                name, _ = known.get(command.code, (f"code {command.code}", None))
                fault = await connection.fault(name, ext=command.ext)
                work = self._answer(connection, node, command, fault)
                if _beside_others(node, command):
                    task = asyncio.create_task(work)
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                else:
                    await work
        finally:
            if node is not None:
                node.groups.lost(connection)

    async def _answer(self, connection: Connection, node: Node | None, command: Any, fault: Any) -> None:
        known: Mapping[int, tuple[str, Any]] = COMMANDS if node is not None else NAME_SERVER_COMMANDS
        found = known.get(command.code)
        if fault is not None and fault.kind == "error":
            reply = refuse(fault.code, "asked for by a test")
        elif node is not None and (refused := _not_for_slaves(node, command.code)) is not None:
            reply = refused
        elif found is None:
            reply = refuse(NOT_SUPPORTED, f"request type {command.code} not supported")
        else:
            name, handler = found
            try:
                header = getattr(m, f"{name}Request").from_ext(command.ext)
                if node is None:
                    reply = await handler(Asked(self.names[connection.listener], self.master, self.others, header))
                else:
                    reply = await handler(Request(node, connection, header, bytes(command.body)))
            except Malformed as why:
                reply = refuse(1, str(why))
        if not command.flag & ONEWAY and not connection.closed:
            answer = RemotingCommand(
                reply.code,
                command.opaque,
                flag=RESPONSE,
                remark=reply.remark,
                ext=dict(reply.ext),
                body=reply.body,
                serializer=command.serializer,
            )
            connection.send(*answer.encode(), fault=fault)
            await connection.drain()


def _beside_others(node: Node | None, command: Any) -> bool:
    """Return whether a command does not delay those behind it.

    Those are commands that wait, and commits, of which two concurrent first ones interfere as in real brokers.
    """
    if command.code in SENDS:
        return node is not None and node.synchronous
    return command.code == PULL or (command.code == COMMIT and not command.flag & ONEWAY)


def _not_for_slaves(node: Node, code: int) -> Reply | None:
    """Return a slave's answer to a command that it refuses unread; None: it serves the command."""
    if not node.slave:
        return None
    if code == END_TRANSACTION:
        return refuse(replica.SLAVE_NOT_AVAILABLE, "not set any response code")
    if not node.old and (code in SENDS or (code == PULL and not node.reads)):
        return refuse(SYSTEM_BUSY, "[REJECTREQUEST]system busy, start flow control for a while")
    return None
