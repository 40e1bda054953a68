"""From a command's frame to its answer: header, dispatch, faults, pushes.

frame    int32 header length with the serialize type in its top byte · header · body
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from ..._codec import RemotingCommand
from ...errors import Malformed
from ...rocketmq import messages as m
from . import groups, names, queues, special
from .reply import Reply, Request, refuse
from .state import ONEWAY, RocketMQState

if TYPE_CHECKING:
    from ..server import Connection

NOT_SUPPORTED = 3
RESPONSE = 1
Handler = Callable[[Request], Awaitable[Reply]]

COMMANDS: dict[int, tuple[str, Handler]] = {
    10: ("SendMessage", queues.send),
    11: ("PullMessage", queues.pull),
    12: ("QueryMessage", special.query_message),
    14: ("QueryConsumerOffset", groups.query_offset),
    15: ("UpdateConsumerOffset", groups.update_offset),
    17: ("UpdateAndCreateTopic", queues.create_topic),
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
    101: ("GetKvConfig", names.get_kv),
    105: ("GetRouteInfoByTopic", names.route),
    106: ("GetBrokerClusterInfo", names.cluster),
    200: ("UpdateAndCreateSubscriptionGroup", groups.create_group),
    201: ("GetAllSubscriptionGroupConfig", groups.all_groups),
    203: ("GetConsumerConnectionList", groups.connections),
    206: ("GetAllTopicListFromNameserver", names.topics),
    215: ("DeleteTopicInBroker", queues.delete_topic),
    216: ("DeleteTopicInNamesrv", queues.delete_topic),
    222: ("InvokeBrokerToResetOffset", groups.reset_offset),
    224: ("GetTopicsByCluster", names.topics),
    304: ("GetSystemTopicListFromNs", names.no_topics),
    305: ("GetSystemTopicListFromBroker", names.no_topics),
    310: ("SendMessageV2", queues.send),
    320: ("SendBatchMessage", queues.send),
    351: ("GetTopicConfig", queues.topic_config),
}


class RocketMQSide(RocketMQState):
    """Serves RocketMQ's remoting protocol: the name server on ``main``, the broker on ``broker``."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._pulls: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        await self.listen("main")
        await self.listen("broker")

    def hold_queues(self) -> None:
        """Acknowledge what comes, and show none of it in the queues, until `show_queues`."""
        self.queues.hold()

    def show_queues(self) -> None:
        self.queues.show()

    def remove_while_read(self, topic: str, queue: int, until: int) -> None:
        """Answer pulls before this offset as a broker does that is deleting what they want."""
        self.queues.removed[topic, queue] = until

    def register(self, name: str, address: str | None) -> None:
        """Have the name server know another broker; None: no more. Its topics are made there, as everywhere, by an admin's create_topic."""
        if address is None:
            self.others.pop(name, None)
        else:
            self.others[name] = address

    def answer_as_old(self, old: bool) -> None:
        """Answer 0 for the offset of a group that has none in a queue that begins at 0, as the 4.9 line does; or no more."""
        self.groups.old = old

    async def serve(self, connection: Connection) -> None:
        """Answer each command; pulls that wait do not hold up those behind them."""
        try:
            async for frame in connection:
                command = RemotingCommand.decode(frame)
                if command.flag & RESPONSE:
                    continue
                name, _ = COMMANDS.get(command.code, (f"code {command.code}", groups.accept))
                fault = await connection.fault(name, ext=command.ext)
                work = self._answer(connection, command, fault)
                if command.code == 11:
                    task = asyncio.create_task(work)
                    self._pulls.add(task)
                    task.add_done_callback(self._pulls.discard)
                else:
                    await work
        finally:
            self.groups.lost(connection)

    async def _answer(self, connection: Connection, command: Any, fault: Any) -> None:
        found = COMMANDS.get(command.code)
        if fault is not None and fault.kind == "error":
            reply = refuse(fault.code, "asked for by a test")
        elif found is None:
            reply = refuse(NOT_SUPPORTED, f"request type {command.code} not supported")
        else:
            name, handler = found
            try:
                header = getattr(m, f"{name}Request").from_ext(command.ext)
                reply = await handler(Request(self, connection, header, bytes(command.body)))
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

    async def stopped(self) -> None:
        for task in list(self._pulls):
            task.cancel()
        self.store.save()
