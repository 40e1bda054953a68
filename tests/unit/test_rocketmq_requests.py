"""Whom any command of RocketMQ goes to, and which codes of its reply are answers: over the whole table of commands."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from wireproto._codec import Columns
from wireproto.errors import OptionError, UsageError
from wireproto.net.task import Steps, steps
from wireproto.rocketmq import messages
from wireproto.rocketmq.bodies import BrokerData, ClusterInfo
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.codes import TopicNotExist
from wireproto.rocketmq.requests import Router, body_bytes
from wireproto.rocketmq.route import Queue, Route

ALL = {kind.NAME.removesuffix("Request"): kind for _, kind in inspect.getmembers(messages, inspect.isclass) if hasattr(kind, "CODE")}
OF_NAME_SERVERS = {
    *("PutKvConfig", "GetKvConfig", "DeleteKvConfig", "GetKvListByNamespace"),
    *("RegisterBroker", "UnregisterBroker", "BrokerHeartbeat", "GetBrokerClusterInfo", "GetBrokerMemberGroup", "QueryDataVersion"),
    *("GetRouteInfoByTopic", "GetTopicsByCluster", "RegisterTopicInNamesrv", "DeleteTopicInNamesrv"),
    *("GetAllTopicListFromNameserver", "GetSystemTopicListFromNs", "GetUnitTopicList", "GetHasUnitSubTopicList"),
    *("GetHasUnitSubUnunitTopicList", "WipeWritePermOfBroker", "AddWritePermOfBroker", "UpdateNamesrvConfig", "GetNamesrvConfig"),
}
SENDS = {"SendMessage", "SendMessageV2", "SendBatchMessage", "SendReplyMessage", "SendReplyMessageV2"}
PULLS, POPS = {"PullMessage", "LitePullMessage"}, {"PopMessage", "PopLiteMessage"}
QUEUES = (Queue(0, "a", 0, None, True, True), Queue(1, "b", 0, "b:1", True, True), Queue(2, "b", 1, "b:1", True, True))


class Cluster:
    """Brokers "a" (no master), "b" and "c"; the topic "t" on the first two, and the retry topic of the group "g" on the third."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, frozenset[int]]] = []
        there = {"c": ("c:1",), "b": ("b:1",), "a": ()}
        self.brokers = {name: BrokerData("cluster", name, dict(enumerate(addresses))) for name, addresses in there.items()}
        self.routes = {
            "t": Route("t", QUEUES, (("a", 0, 1), ("b", 0, 2)), ("b:1",), (0, 1, 2), {}),
            "%RETRY%g": Route("%RETRY%g", (), (), ("c:1",), (), {}),
            "bare": Route("bare", (), (), (), (), {}),
        }
        self.one_way: list[Any] = []
        self.names = self

    def order(self) -> list[str]:
        return ["names:1", "names:2"]

    def routing(self, topic: str, until: float) -> Steps[Route]:
        if topic not in self.routes:
            raise TopicNotExist("no such topic")
        return self.routes[topic]
        yield 0.0

    def info(self, until: float) -> Steps[ClusterInfo]:
        return ClusterInfo(self.brokers, {})
        yield 0.0

    def asking_names(self, message: Any, body: bytes, *, until: float, accept: frozenset[int]) -> Steps[str]:
        self.asked.append(("names", accept))
        return "reply"
        yield 0.0

    def invoking(self, target: str, message: Any, body: bytes, *, until: float, accept: frozenset[int]) -> Steps[str]:
        self.asked.append((target, accept))
        return "reply"
        yield 0.0

    def connecting(self, target: str, until: float) -> Steps[str]:
        return f"to {target}"
        yield 0.0

    def send_one_way(self, conn: str, message: Any, body: bytes) -> None:
        self.one_way.append((conn, message, body))


def request(message: Any, to: Any = None, *, one_way: bool = False) -> tuple[Cluster, Any]:
    cluster: Any = Cluster()
    return cluster, done(Router(cluster).requesting(message, b"body", to, 9.0, one_way=one_way))


def done(steps: Steps[Any]) -> Any:
    """What steps give that have nothing to wait for."""
    try:
        next(steps)
    except StopIteration as end:
        return end.value
    raise AssertionError("they wait")


def asked(message: Any, to: Any = None) -> str:
    cluster, _ = request(message, to)
    ((target, _),) = cluster.asked
    return target


class Message:
    """As much of a command as its way depends on."""

    CODE, SENT_TO = 11, "broker"

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


@pytest.mark.parametrize("name", ALL)
def test_each_command_goes_to_the_kind_of_server_that_knows_it(name: str) -> None:
    message = Message()
    message.CODE, message.SENT_TO = ALL[name].CODE, ALL[name].SENT_TO  # type: ignore[misc]
    cluster, reply = request(message)
    ((target, accept),) = cluster.asked
    assert target == ("names" if name in OF_NAME_SERVERS else "b:1"), "else to the first broker that has a master"
    answers = {10, 11, 12} if name in SENDS else {19, 20, 21} if name in PULLS else {210} if name in POPS else set()
    assert accept == answers
    assert reply == "reply"


def test_all_commands_are_in_the_table() -> None:
    assert len(ALL) == 174
    assert ALL.keys() >= OF_NAME_SERVERS | SENDS | PULLS | POPS


@pytest.mark.parametrize(
    ("fields", "to", "target"),
    [
        ({}, "names", "names"),
        ({}, "host:7", "host:7"),
        ({}, "c", "c:1"),
        ({"bname": "c"}, None, "c:1"),
        ({"bname": "c"}, "b", "b:1"),
        ({}, ("t", 1), "b:1"),
        ({"topic": "t"}, None, "b:1"),
        ({"topic": "t", "queue_id": 1}, None, "b:1"),
        ({"topic": "t", "queue_id": 0}, None, "b:1"),  # the first that has it and a master
        ({"topic": "t", "queue_id": 9}, None, "b:1"),
        ({"topic": "unknown"}, None, "b:1"),
        ({"topic": ""}, None, "b:1"),
        ({"topic": "bare"}, None, "b:1"),
        ({"consumer_group": "g"}, None, "c:1"),
        ({"group": "g"}, None, "c:1"),
        ({"group": "strangers"}, None, "b:1"),
        ({"topic": "t", "consumer_group": "g"}, None, "b:1"),
        ({"topic": "unknown", "consumer_group": "g"}, None, "c:1"),
        ({"topic": 7, "group": 7}, None, "b:1"),
    ],
)
def test_where_a_command_goes_that_brokers_know(fields: dict[str, Any], to: Any, target: str) -> None:
    assert asked(Message(**fields), to) == target


@pytest.mark.parametrize(
    ("fields", "to", "text"),
    [
        ({}, "z", "no broker 'z' has a master; there are a, b, c"),
        ({}, "a", "no broker 'a' has a master"),
        ({"bname": "z"}, None, "no broker 'z' has a master"),
        ({}, ("t", 3), "t has partitions 0 to 2, not 3"),
        ({}, ("t", -1), "t has partitions 0 to 2, not -1"),
        ({}, ("t", 0), r"broker a of t\[0\] has no master now"),
    ],
)
def test_what_names_nobody_is_refused(fields: dict[str, Any], to: Any, text: str) -> None:
    with pytest.raises(OptionError, match=text):
        asked(Message(**fields), to)


def test_a_topic_that_is_named_outright_must_be_there() -> None:
    with pytest.raises(TopicNotExist):
        asked(Message(), ("unknown", 0))


@pytest.mark.parametrize(("to", "conn"), [(None, "to b:1"), ("names", "to names:1"), ("c", "to c:1")])
def test_a_command_without_a_reply_is_sent_and_told_empty(to: Any, conn: str) -> None:
    message = Message()
    cluster, reply = request(message, to, one_way=True)
    assert cluster.one_way == [(conn, message, b"body")]
    assert cluster.asked == []
    assert (reply.message, reply.body, reply.code, reply.remark, reply.peer) == (None, b"", 0, None, conn[3:])


def test_bodies_are_bytes_text_or_json() -> None:
    assert body_bytes("grün") == "grün".encode()
    for raw in (b"x", bytearray(b"x"), memoryview(b"x")):
        assert body_bytes(raw) == b"x"
        assert type(body_bytes(raw)) is bytes
    assert body_bytes({"a": 1}) == b'{"a":1}'
    assert body_bytes([1, "b"]) == body_bytes((1, "b")) == b'[1,"b"]'
    for wrong in (None, 7, Columns):
        with pytest.raises(UsageError, match="a body is bytes, text, an object or a list"):
            body_bytes(wrong)  # type: ignore[arg-type]


def test_a_client_passes_on_whether_a_command_wants_an_answer() -> None:
    client: Any = RocketClient.__new__(RocketClient)
    client.cluster = Cluster()
    message = Message()
    request = steps(client.request)
    assert done(request(message, body=b"body")) == "reply"
    assert client.cluster.one_way == []
    done(request(message, body=b"body", one_way=True))
    assert client.cluster.one_way == [("to b:1", message, b"body")]
    assert len(client.cluster.asked) == 1
