"""The name server's part: routes, clusters, lists of topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...rocketmq import fastjson
from .queues import TEMPLATE
from .reply import Reply, refuse

if TYPE_CHECKING:
    from .reply import Request
    from .state import RocketMQState

TOPIC_NOT_EXIST, QUERY_NOT_FOUND = 17, 22
CLUSTER, BROKER = "DevCluster", "dev"


async def route(request: Request) -> Reply:
    """Code 105; the template topic has a route as long as topics make themselves."""
    topic, side = request.header.topic, request.side
    settings = side.queues.topics.get(topic)
    if settings is None and topic == TEMPLATE and side.auto_create:
        settings = {"queues": side.default_queues, "perm": 7}
    if settings is None:
        return refuse(TOPIC_NOT_EXIST, f"No topic route info in name server for the topic: {topic}")
    known = brokers(side)
    queues = {
        "perm": settings["perm"],
        "readQueueNums": settings["queues"],
        "topicSysFlag": 0,
        "writeQueueNums": settings["queues"],
    }
    tree = {
        "brokerDatas": list(known.values()),
        "filterServerTable": {},
        "queueDatas": [{"brokerName": name, **queues} for name in known],
    }
    return Reply(body=fastjson.dumps(tree))


def brokers(side: RocketMQState) -> dict[str, dict[str, Any]]:
    """This broker and those that were registered, by name: every topic lies on each."""
    places = {BROKER: side.address("broker"), **side.others}
    return {name: {"brokerAddrs": {"0": address}, "brokerName": name, "cluster": CLUSTER} for name, address in places.items()}


async def cluster(request: Request) -> Reply:
    """Code 106."""
    known = brokers(request.side)
    return Reply(body=fastjson.dumps({"brokerAddrTable": known, "clusterAddrTable": {CLUSTER: list(known)}}))


async def topics(request: Request) -> Reply:
    """Codes 206 and 224."""
    return Reply(body=fastjson.dumps({"topicList": list(request.side.queues.topics)}))


async def no_topics(request: Request) -> Reply:
    """Codes 304 and 305: there are no system topics."""
    return Reply(body=fastjson.dumps({"topicList": []}))


async def get_kv(request: Request) -> Reply:
    """Code 101: nothing is configured."""
    return refuse(QUERY_NOT_FOUND, f"No config item, Namespace: {request.header.namespace} Key: {request.header.key}")
