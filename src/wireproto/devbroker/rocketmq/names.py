"""Serves the name servers' commands: routes, clusters, lists of topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...rocketmq import fastjson
from .node import BROKER, CLUSTER
from .queues import TEMPLATE
from .reply import Reply, refuse

if TYPE_CHECKING:
    from .node import Node
    from .registry import NameServer

TOPIC_NOT_EXIST, QUERY_NOT_FOUND = 17, 22


@dataclass(frozen=True, slots=True)
class Asked:
    """One command to a name server.

    Attributes:
        server: the name server that answers.
        master: the broker of this process.
        others: addresses of further brokers, by name: every topic is on each of them.
        header: the typed command.
    """

    server: NameServer
    master: Node
    others: dict[str, str]
    header: Any

    def brokers(self) -> dict[str, dict[str, Any]]:
        """Return all brokers that are known, by name, as JSON has them."""
        places = {name: dict(members) for name, members in self.server.brokers.items()}
        places |= {name: {0: address} for name, address in self.others.items()}
        more = {} if self.server.old else {"enableActingMaster": False}
        return {
            name: {"brokerAddrs": dict(sorted(members.items())), "brokerName": name, "cluster": CLUSTER, **more}
            for name, members in places.items()
        }


async def route(asked: Asked) -> Reply:
    """Serve code 105: a topic's route; the template topic has one as long as topics are created at their first use."""
    topic, known = asked.header.topic, asked.brokers()
    queues = dict(asked.server.topics.get(topic, {}))
    if topic == TEMPLATE and asked.master.auto_create and BROKER in known:
        queues = {BROKER: {"queues": asked.master.default_queues, "perm": 7}}
    if not queues or not any(known[name]["brokerAddrs"] for name in queues):
        return refuse(TOPIC_NOT_EXIST, f"No topic route info in name server for the topic: {topic}")
    queues |= {name: queues[BROKER] for name in asked.others if BROKER in queues}
    tree = {
        "brokerDatas": [known[name] | {"brokerAddrs": {str(n): at for n, at in known[name]["brokerAddrs"].items()}} for name in queues],
        "filterServerTable": {},
        "queueDatas": [
            {
                "brokerName": name,
                "perm": settings["perm"],
                "readQueueNums": settings["queues"],
                "topicSysFlag": 0,
                "writeQueueNums": settings["queues"],
            }
            for name, settings in queues.items()
        ],
    }
    return Reply(body=fastjson.dumps(tree))


async def cluster(asked: Asked) -> Reply:
    """Serve code 106: brokers and clusters."""
    known = asked.brokers()
    return Reply(body=fastjson.dumps({"brokerAddrTable": known, "clusterAddrTable": {CLUSTER: list(known)} if known else {}}))


async def topics(asked: Asked) -> Reply:
    """Serve codes 206 and 224: all topics."""
    return Reply(body=fastjson.dumps({"topicList": list(asked.server.topics)}))


async def no_topics(asked: Asked) -> Reply:
    """Serve code 304: there are no system topics."""
    return Reply(body=fastjson.dumps({"topicList": []}))


async def delete_topic(asked: Asked) -> Reply:
    """Serve code 216: drop a topic here; its brokers still have it."""
    asked.server.topics.pop(asked.header.topic, None)
    return Reply()


async def get_kv(asked: Asked) -> Reply:
    """Serve code 101: nothing is configured."""
    return refuse(QUERY_NOT_FOUND, f"No config item, Namespace: {asked.header.namespace} Key: {asked.header.key}")
