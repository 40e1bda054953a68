"""Sends any command of a client to the broker that has to answer it: ``client.request``.

    | command                                           | goes to                                        | gives                       |
    |---------------------------------------------------|------------------------------------------------|-----------------------------|
    | PRODUCER, SUBSCRIBE, GET_OR_CREATE_SCHEMA, …      | the broker of the topic that the command names | what answers its request id |
    | TC_CLIENT_CONNECT, NEW_TXN, ADD_…_TO_TXN, END_TXN | the broker of the coordinator (its number)     | what answers its request id |
    | others with a request id                          | the broker of `topic`, else a service address  | what answers its request id |
    | SEND                                              | the broker of `topic`                          | SEND_RECEIPT                |
    | FLOW, REDELIVER_UNACKNOWLEDGED_MESSAGES, PING, …  | the broker of `topic`, else a service address  | None: nothing answers them  |

Producers, consumers and watchers that are opened here live on the client's own connection to that broker, which roles do not use; what is
pushed to them (messages, updates) is dropped. Nothing is retried, and what only the connection itself may send (CONNECT) is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import Message

from wireproto._net import Connection, Mailbox, producer_channel
from wireproto.errors import OptionError, TimedOut
from wireproto.net.task import Steps, getting

from . import PulsarApi_pb2 as api
from .connection import asking
from .frames import encode, has_request_id, reply_body
from .topics import parse_topic

if TYPE_CHECKING:
    from .cluster import PulsarCluster

COORDINATOR: Final = "persistent://pulsar/system/transaction_coordinator_assign-partition-"
_BY_TOPIC: Final = (
    api.CommandProducer,
    api.CommandSubscribe,
    api.CommandGetOrCreateSchema,
    api.CommandScalableTopicSubscribe,
    api.CommandEndTxnOnPartition,
)
_BY_COORDINATOR: Final = {
    api.CommandTcClientConnectRequest: "tc_id",
    api.CommandNewTxn: "tc_id",
    api.CommandAddPartitionToTxn: "txnid_most_bits",
    api.CommandAddSubscriptionToTxn: "txnid_most_bits",
    api.CommandEndTxn: "txnid_most_bits",
}
_ONE_WAY: Final = (
    api.CommandFlow,
    api.CommandRedeliverUnacknowledgedMessages,
    api.CommandPing,
    api.CommandScalableTopicLookup,
    api.CommandScalableTopicClose,
    api.CommandWatchScalableTopics,
    api.CommandWatchScalableTopicsClose,
    api.CommandWatchTcAssignments,
    api.CommandWatchTcAssignmentsClose,
)


def request(cluster: PulsarCluster, message: Message, topic: str | None, entry: bytes | None, deadline: float) -> Steps[Any]:
    """Send one command; see `PulsarClient.request`. Steps."""
    command = type(message)()
    command.CopyFrom(message)
    if has_request_id(command):
        command.request_id = 0  # type: ignore[attr-defined]
    elif not isinstance(command, (*_ONE_WAY, api.CommandSend)):
        raise OptionError(f"{message.DESCRIPTOR.name} is no command that a client may send by itself")
    if (entry is not None) != isinstance(command, api.CommandSend):
        raise OptionError("an entry goes with CommandSend, and only with it")
    encode(command)  # raises OptionError for what is missing, before anything is sent
    conn = yield from _connection(cluster, command, topic, deadline)
    if isinstance(command, api.CommandSend):
        return (yield from _send(conn, command, entry or b"", deadline))
    if has_request_id(command):
        return (yield from asking(conn, command, deadline))
    conn.send(encode(command), timeout_at=deadline)
    return None


def _connection(cluster: PulsarCluster, command: Any, topic: str | None, deadline: float) -> Steps[Connection]:
    if topic is None and isinstance(command, _BY_TOPIC):
        topic = command.topic
    if topic is None and type(command) in _BY_COORDINATOR:
        topic = f"{COORDINATOR}{getattr(command, _BY_COORDINATOR[type(command)])}"
    if topic is None:
        return (yield from cluster.serving(deadline))
    broker = yield from cluster.finding(str(parse_topic(topic)), deadline)
    return (yield from cluster.retrying(lambda: cluster.connecting(broker, "main", deadline), deadline))


def _send(conn: Connection, command: Any, entry: bytes, deadline: float) -> Steps[Any]:
    """Send SEND, which has no request id: its receipt comes to the producer."""
    box = Mailbox(conn.loop)
    channel = producer_channel(command.producer_id)
    conn.route(channel, box)
    try:
        conn.send((encode(command), entry), timeout_at=deadline)
        while (push := (yield from getting(box, deadline))) is not None:
            reply = reply_body(push.frame, conn.peer)
            if getattr(reply, "sequence_id", None) == command.sequence_id:
                return reply
    finally:
        conn.route(channel, None)
    raise TimedOut("no receipt in time", peer=conn.peer, message="CommandSend")
