"""Every call that asks a server something keeps its `timeout`, whichever of its requests stays without an answer.

The calls of one protocol run beside each other against the embedded broker, which takes one kind of request, and answers it no more.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import wireproto
from patience import KEPT
from wireproto import EARLIEST, LATEST
from wireproto.devbroker import DevBroker
from wireproto.errors import TimedOut
from wireproto.kafka import messages as k
from wireproto.position import AtTime, LogOffset, MessageId
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.rocketmq import messages as r
from wireproto.zookeeper import messages as z
from wireproto.zookeeper.multi import Delete, Get
from wireproto.zookeeper.session import State

BRIEF = 0.4
_numbers = itertools.count()
Call = Callable[[float], Any]
MEMBERS = {"lag", "seek", "committed", "commit", "commit_positions"}
"""Kafka's calls that belong to a member."""


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker() as made:
        yield made


def outcome(call: Call) -> str:
    """In time, or what went wrong."""
    began = time.monotonic()
    try:
        call(BRIEF)
    except TimedOut as why:
        if why.text.startswith("not done in time"):  # of a task of its own it says which
            return "ended from outside: it does not keep its time itself"
        took = time.monotonic() - began
        return "in time" if BRIEF * 0.9 <= took < BRIEF + KEPT else f"after {took:.2f} s"
    except Exception as why:
        return repr(why)
    return "returned"


def judged(calls: dict[str, Call]) -> dict[str, str]:
    """The outcome of each call, all at once."""
    with ThreadPoolExecutor(len(calls)) as threads:
        waiting = {name: threads.submit(outcome, call) for name, call in calls.items()}
        return {name: one.result(60.0) for name, one in waiting.items()}


def all_in_time(broker: DevBroker, protocol: str, message: str | None, client: Any, calls: dict[str, Call]) -> None:
    faults = broker.faults(protocol)
    faults.drop(message, times=-1)
    try:
        assert judged(calls) == dict.fromkeys(calls, "in time")
    finally:
        faults.clear()


def prepared(broker: DevBroker, protocol: str, **options: Any) -> tuple[Any, str]:
    """A client that has its connections, and a topic."""
    client = wireproto.connect(broker.url(protocol), timeout=10.0, **options)
    topic = f"slow-{next(_numbers)}"
    client.admin().create_topic(topic)
    return client, topic


@pytest.mark.parametrize(
    ("message", "names"),
    [
        ("Metadata", "list_topics describe_topic delete_topic create_topic list_groups producer reader consumer send_elsewhere"),
        ("ListOffsets", "positions positions_at create_topic lag seek reader reader_seek"),
        ("InitProducerId", "producer send_elsewhere"),
        ("CreateTopics", "create_topic"),
        ("DeleteTopics", "delete_topic"),
        ("ListGroups", "list_groups request"),
        ("FindCoordinator", "describe_group group_positions"),
        ("DescribeGroups", "describe_group"),
        ("OffsetFetch", "group_positions committed"),
        ("OffsetCommit", "commit commit_positions admin_commit"),
    ],
)
def test_kafka(broker: DevBroker, message: str, names: str) -> None:
    client, topic = prepared(broker, "kafka")
    with client:
        admin, group = client.admin(), f"g-{topic}"
        calls: dict[str, Call] = {
            "list_topics": lambda s: admin.list_topics(timeout=s),
            "describe_topic": lambda s: admin.describe_topic(topic, timeout=s),
            "create_topic": lambda s: admin.create_topic(f"new-{next(_numbers)}", timeout=s),
            "delete_topic": lambda s: admin.delete_topic(topic, timeout=s),
            "positions": lambda s: admin.positions(topic, LATEST, timeout=s),
            "positions_at": lambda s: admin.positions(topic, AtTime(1), timeout=s),
            "list_groups": lambda s: admin.list_groups(timeout=s),
            "describe_group": lambda s: admin.describe_group(group, timeout=s),
            "group_positions": lambda s: admin.group_positions(group, topic, timeout=s),
            "admin_commit": lambda s: admin.commit(f"other-{topic}", {(topic, 0): LogOffset(topic, 0, 0)}, timeout=s),
            "request": lambda s: client.request(k.ListGroupsRequest(), timeout=s),
            "producer": lambda s: client.producer(topic, timeout=s),
            "reader": lambda s: client.reader(topic, start=LATEST, timeout=s),
            "consumer": lambda s: client.consumer(topic, group, timeout=s),
            "reader_seek": lambda s: reading.seek(LATEST, timeout=s),
            "send_elsewhere": lambda s: client.producer().send(b"x", topic=topic, timeout=s),
        }
        reading = client.reader(topic, start=EARLIEST)
        member: Any = contextlib.nullcontext()
        if MEMBERS & set(names.split()):
            client.producer(topic).send(b"one").position(10.0)
            member = client.consumer(topic, group, start=EARLIEST)
            while member.poll(1.0) is None:
                continue
            calls |= {
                "lag": lambda s: member.lag(timeout=s),
                "seek": lambda s: member.seek(AtTime(1), timeout=s),
                "committed": lambda s: member.committed(timeout=s),
                "commit": lambda s: member.commit(timeout=s),
                "commit_positions": lambda s: member.commit({(topic, 0): LogOffset(topic, 0, 1)}, timeout=s),
            }
        with member:
            own = [name for name in names.split() if name in MEMBERS]
            for one in own:  # a consumer is one thread's
                all_in_time(broker, "kafka", message, client, {one: calls[one]})
            others = {name: calls[name] for name in names.split() if name not in own}
            if others:
                all_in_time(broker, "kafka", message, client, others)


PULSAR = {
    "lookupTopic": "describe_topic producer reader queue consumer",
    "partitionMetadata": "describe_topic positions producer reader queue consumer create_topic delete_topic",
    "getTopicsOfNamespace": "list_topics",
    "subscribe": "positions reader",
    "producer": "producer",
    "ping": "",
}


@pytest.mark.parametrize("message", [one for one in PULSAR if PULSAR[one]])
def test_pulsar(broker: DevBroker, message: str) -> None:
    client, topic = prepared(broker, "pulsar")
    with client:
        admin = client.admin()
        calls: dict[str, Call] = {
            "list_topics": lambda s: admin.list_topics(timeout=s),
            "describe_topic": lambda s: admin.describe_topic(topic, timeout=s),
            "create_topic": lambda s: admin.create_topic(f"new-{next(_numbers)}", timeout=s),
            "delete_topic": lambda s: admin.delete_topic(topic, timeout=s),
            "positions": lambda s: admin.positions(topic, LATEST, timeout=s),
            "producer": lambda s: client.producer(topic, timeout=s),
            "reader": lambda s: client.reader(topic, start=EARLIEST, timeout=s),
            "consumer": lambda s: client.consumer(topic, "g", timeout=s),
            "queue": lambda s: client.queue(topic, "q", timeout=s),
            "request": lambda s: client.request(api.CommandPartitionedTopicMetadata(topic=topic, request_id=0), timeout=s),
        }
        all_in_time(broker, "pulsar", message, client, {name: calls[name] for name in PULSAR[message].split()})


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a port that accepts and says nothing."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_pulsar_by_its_admin_interface(broker: DevBroker, silent: str) -> None:
    client, topic = prepared(broker, "pulsar")
    client.close()
    with wireproto.connect(broker.url("pulsar"), admin=f"http://{silent}") as other:
        admin = other.admin()
        calls: dict[str, Call] = {
            "list_topics": lambda s: admin.list_topics(timeout=s),
            "create_topic": lambda s: admin.create_topic(f"new-{next(_numbers)}", timeout=s),
            "delete_topic": lambda s: admin.delete_topic(topic, timeout=s),
            "list_groups": lambda s: admin.list_groups(timeout=s),
            "describe_group": lambda s: admin.describe_group("g", topic=topic, timeout=s),
            "describe_group_anywhere": lambda s: admin.describe_group("g", timeout=s),
            "group_positions": lambda s: admin.group_positions("g", topic, timeout=s),
            "create_group": lambda s: admin.create_group("g", topic, MessageId(topic, -1, 1, 1), timeout=s),
            "deduplication": lambda s: admin.deduplication(topic, timeout=s),
            "set_deduplication": lambda s: admin.set_deduplication("public/default", True, timeout=s),
            "ledgers": lambda s: admin.ledgers(topic, timeout=s),
        }
        assert judged(calls) == dict.fromkeys(calls, "in time")


ROCKETMQ = {
    "GetAllTopicListFromNameserver": "list_topics",
    "GetBrokerClusterInfo": "list_topics create_topic list_groups describe_group",
    "GetRouteInfoByTopic": "describe_topic create_topic delete_topic",
    "UpdateAndCreateTopic": "create_topic",
    "GetMaxOffset": "create_topic positions request",
    "DeleteTopicInBroker": "delete_topic",
    "DeleteTopicInNamesrv": "delete_topic",
    "SearchOffsetByTimestamp": "positions_at",
    "GetAllSubscriptionGroupConfig": "list_groups",
    "GetConsumerConnectionList": "describe_group",
    "QueryConsumerOffset": "group_positions",
}


@pytest.mark.parametrize("message", ROCKETMQ)
def test_rocketmq(broker: DevBroker, message: str) -> None:
    client, topic = prepared(broker, "rocketmq")
    with client:
        admin = client.admin()
        client.producer(topic).send(b"one").position(10.0)
        calls: dict[str, Call] = {
            "list_topics": lambda s: admin.list_topics(timeout=s),
            "describe_topic": lambda s: admin.describe_topic(topic, timeout=s),
            "create_topic": lambda s: admin.create_topic(f"new-{next(_numbers)}", timeout=s),
            "delete_topic": lambda s: admin.delete_topic(topic, timeout=s),
            "positions": lambda s: admin.positions(topic, LATEST, timeout=s),
            "positions_at": lambda s: admin.positions(topic, AtTime(1), timeout=s),
            "list_groups": lambda s: admin.list_groups(timeout=s),
            "describe_group": lambda s: admin.describe_group("g", timeout=s),
            "group_positions": lambda s: admin.group_positions("g", topic, timeout=s),
            "request": lambda s: client.request(r.GetMaxOffsetRequest(topic=topic, queue_id=0), timeout=s),
        }
        all_in_time(broker, "rocketmq", message, client, {name: calls[name] for name in ROCKETMQ[message].split()})


ANYONE = (z.ACL(perms=31, id=z.Id(scheme="world", id="anyone")),)


def test_zookeeper(broker: DevBroker) -> None:
    client, _ = prepared(broker, "zookeeper")
    with client:
        tree, admin = client.tree(), client.admin()
        node = f"/slow-{next(_numbers)}"
        tree.create(f"{node}/a", parents=True)
        calls: dict[str, Call] = {
            "get": lambda s: tree.get(node, timeout=s),
            "exists": lambda s: tree.exists(node, timeout=s),
            "children": lambda s: tree.children(node, timeout=s),
            "get_acl": lambda s: tree.get_acl(node, timeout=s),
            "sync": lambda s: tree.sync(node, timeout=s),
            "catch_up": lambda s: tree.catch_up(node, timeout=s),
            "ephemerals": lambda s: tree.ephemerals(timeout=s),
            "count": lambda s: tree.count(node, timeout=s),
            "create": lambda s: tree.create(f"{node}/b", timeout=s),
            "create_parents": lambda s: tree.create(f"{node}/p/q", parents=True, timeout=s),
            "create2": lambda s: tree.create2(f"{node}/d", timeout=s),
            "ensure": lambda s: tree.ensure(f"{node}/e/f", timeout=s),
            "set": lambda s: tree.set(node, b"1", timeout=s),
            "delete": lambda s: tree.delete(f"{node}/x", timeout=s),
            "delete_recursive": lambda s: tree.delete(f"{node}/a", recursive=True, timeout=s),
            "set_acl": lambda s: tree.set_acl(node, ANYONE, timeout=s),
            "multi": lambda s: tree.multi([Delete(f"{node}/z")], timeout=s),
            "multi_reads": lambda s: tree.multi([Get(node)], timeout=s),
            "add_watch": lambda s: tree.add_watch(node, print, timeout=s),
            "has_watch": lambda s: tree.has_watch(node, timeout=s),
            "whoami": lambda s: tree.whoami(timeout=s),
            "config": lambda s: tree.config(timeout=s),
            "reconfigure": lambda s: tree.reconfigure(joining="server.9=127.0.0.1:1:2;3", timeout=s),
            "add_auth": lambda s: tree.add_auth("digest", "a:b", timeout=s),
            "request": lambda s: client.request(z.GetDataRequest(path=node, watch=False), timeout=s),
            "list_topics": lambda s: admin.list_topics(timeout=s),
            "describe_topic": lambda s: admin.describe_topic(node, timeout=s),
            "create_topic": lambda s: admin.create_topic(f"/new-{next(_numbers)}", timeout=s),
            "delete_topic": lambda s: admin.delete_topic(node, timeout=s),
            "positions": lambda s: admin.positions(node, timeout=s),
            "positions_at": lambda s: admin.positions(node, AtTime(1), timeout=s),
        }
        all_in_time(broker, "zookeeper", None, client, calls)


ZOOKEEPER_LATER = {
    "getChildren2": "describe_topic list_topics delete_recursive positions",
    "exists": "create_topic list_topics positions_at",
    "multi": "create_topic",
}


@pytest.mark.parametrize("message", ZOOKEEPER_LATER)
def test_zookeeper_requests_that_come_later(broker: DevBroker, message: str) -> None:
    client, topic = prepared(broker, "zookeeper")
    with client:
        tree, admin = client.tree(), client.admin()
        client.producer(topic).send(b"1").position(10.0)
        calls: dict[str, Call] = {
            "describe_topic": lambda s: admin.describe_topic(topic, timeout=s),
            "list_topics": lambda s: admin.list_topics(timeout=s),
            "delete_recursive": lambda s: tree.delete(f"/{topic}", recursive=True, timeout=s),
            "positions": lambda s: admin.positions(topic, timeout=s),
            "positions_at": lambda s: admin.positions(topic, AtTime(1), timeout=s),
            "create_topic": lambda s: admin.create_topic(f"/new-{next(_numbers)}", timeout=s),
        }
        for name in ZOOKEEPER_LATER[message].split():
            all_in_time(broker, "zookeeper", message, client, {name: calls[name]})


def test_zookeeper_calls_that_do_not_wait_for_their_answer_wait_for_a_connection_in_time() -> None:
    with DevBroker(["zookeeper"]) as alone:
        client, _ = prepared(alone, "zookeeper")
        tree = client.tree()
        tree.create("/a")
        calls: dict[str, Call] = {
            "get_async": lambda s: tree.get_async("/a", timeout=s),
            "exists_async": lambda s: tree.exists_async("/a", timeout=s),
            "children_async": lambda s: tree.children_async("/a", timeout=s),
            "create_async": lambda s: tree.create_async("/c", timeout=s),
            "set_async": lambda s: tree.set_async("/a", b"2", timeout=s),
            "delete_async": lambda s: tree.delete_async("/y", timeout=s),
            "multi_async": lambda s: tree.multi_async([Get("/a")], timeout=s),
        }
        cut = threading.Event()
        tree.on_state(lambda event: cut.set() if event.state is State.SUSPENDED else None)
        alone.pause("zookeeper")
        assert cut.wait(10.0)
        try:
            assert judged(calls) == dict.fromkeys(calls, "in time")
        finally:
            alone.resume("zookeeper")
        client.close()
