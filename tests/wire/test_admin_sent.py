"""What admins ask brokers for, and what they make of the answers, on the embedded broker."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import wireproto
from wireproto import EARLIEST, LATEST
from wireproto.devbroker import DevBroker
from wireproto.devbroker.kafka.cluster import slot_of
from wireproto.devbroker.recording import Recording
from wireproto.errors import BrokerError, OptionError, UsageError
from wireproto.kafka.codes import GroupIdNotFound, NotCoordinator, TopicAlreadyExists, UnknownTopicOrPartition
from wireproto.kafka.messages import MetadataResponsePartition
from wireproto.position import LogOffset, MessageId, QueueOffset
from wireproto.pulsar.codes import SubscriptionNotFound, TopicNotFound
from wireproto.rocketmq.codes import TopicExistAlready, TopicNotExist
from wireproto.zookeeper.codes import NodeExists, NoNode

_numbers = itertools.count()


def new() -> str:
    return f"made-{next(_numbers)}"


class Scene:
    """A client on a dev broker of its own, and what it sends."""

    def __init__(self, protocol: str, **options: Any) -> None:
        self.protocol = protocol
        self.broker = DevBroker([protocol], auto_create=False).start()
        self.seen: Recording = self.broker.record(protocol)
        self.client = wireproto.connect(self.broker.url(protocol), timeout=10.0, **options)
        self.admin = self.client.admin()
        self.faults = self.broker.faults(protocol)

    def close(self) -> None:
        self.client.close()
        self.broker.stop()

    def answered(self, key: int, change: Callable[[Any], Any]) -> None:
        """Kafka: have the broker's answers to a request changed."""
        offered = self.broker._sides["kafka"].offered  # type: ignore[attr-defined]
        name, low, high, handler = offered[key]

        async def changed(context: Any, handler: Callable[[Any], Awaitable[Any]] = handler) -> Any:
            return change(await handler(context))

        offered[key] = (name, low, high, changed)


@pytest.fixture
def kafka() -> Iterator[Scene]:
    scene = Scene("kafka", unknown_topic_timeout=0.3)
    yield scene
    scene.close()


@pytest.fixture
def pulsar() -> Iterator[Scene]:
    scene = Scene("pulsar")
    yield scene
    scene.close()


@pytest.fixture
def rocketmq() -> Iterator[Scene]:
    scene = Scene("rocketmq")
    yield scene
    scene.close()


@pytest.fixture
def zookeeper() -> Iterator[Scene]:
    scene = Scene("zookeeper")
    yield scene
    scene.close()


# Kafka


def test_a_kafka_topic_is_made_as_asked_for(kafka: Scene) -> None:
    kafka.admin.create_topic("t", partitions=3, config={"cleanup.policy": "compact"}, replication=1, timeout=60.0)
    kafka.admin.create_topic("u")
    first, second = (one.message for one in kafka.seen.requests("CreateTopics"))
    [wanted] = first.topics
    assert (wanted.name, wanted.num_partitions, wanted.replication_factor) == ("t", 3, 1)
    assert [(one.name, one.value) for one in wanted.configs] == [("cleanup.policy", "compact")]
    assert 40_000 < first.timeout_ms <= 60_000
    assert (second.topics[0].num_partitions, second.topics[0].replication_factor) == (1, -1), "as the cluster is set"
    asked = kafka.seen.requests("ListOffsets")[0].message
    assert asked.isolation_level == 0
    assert sorted(one.partition_index for one in asked.topics[0].partitions) == [0, 1, 2], "each leader is asked before it is called done"
    with pytest.raises(TopicAlreadyExists):
        kafka.admin.create_topic("t")


@pytest.mark.parametrize(("version", "copies"), [(3, 1), (4, -1)])
def test_an_old_kafka_broker_is_told_how_many_copies(kafka: Scene, version: int, copies: int) -> None:
    kafka.broker._sides["kafka"].offer("CreateTopics", version)  # type: ignore[attr-defined]
    kafka.admin.create_topic("t")
    assert [one.message.topics[0].replication_factor for one in kafka.seen.requests("CreateTopics")] == [copies]


def test_a_node_that_is_no_controller_is_not_the_end(kafka: Scene) -> None:
    kafka.faults.error("CreateTopics", 41)
    kafka.admin.create_topic("t")
    assert len(kafka.seen.requests("CreateTopics")) == 2
    kafka.faults.error("DeleteTopics", 41)
    kafka.admin.delete_topic("t")
    assert len(kafka.seen.requests("DeleteTopics")) == 2


def test_a_topic_without_leaders_is_waited_for(kafka: Scene) -> None:
    left = [2]

    def later(reply: Any) -> Any:
        if not any(topic.name == "t" for topic in reply.topics) or not left[0]:
            return reply
        left[0] -= 1
        [topic] = reply.topics
        gone = tuple(one.replace(error_code=5, leader_id=-1) for one in topic.partitions)
        return reply.replace(topics=(topic.replace(partitions=gone),))

    kafka.answered(3, later)
    kafka.admin.create_topic("t", partitions=2)
    assert left == [0]
    asked = [one for one in kafka.seen.requests("Metadata") if one.message.topics and one.message.topics[0].name == "t"]
    assert len(asked) == 3


def test_kafka_topics_without_the_brokers_own_and_those_in_error(kafka: Scene) -> None:
    for name in ("b", "a", "own", "bad"):
        kafka.admin.create_topic(name)

    def changed(reply: Any) -> Any:
        topics = (one.replace(is_internal=one.name == "own", error_code=29 if one.name == "bad" else 0) for one in reply.topics)
        return reply.replace(topics=tuple(topics))

    kafka.answered(3, changed)
    assert kafka.admin.list_topics() == ["a", "b"]
    assert kafka.seen.requests("Metadata")[-1].message.topics is None, "every topic is asked for"


def test_a_kafka_topic_is_described_with_its_leaders(kafka: Scene) -> None:
    kafka.admin.create_topic("t", partitions=2)
    described: list[bytes] = []

    def changed(reply: Any) -> Any:
        if not reply.topics:
            return reply
        [topic] = reply.topics
        parts = tuple(
            one.replace(leader_epoch=7, replica_nodes=(one.leader_id, 5), isr_nodes=(one.leader_id,), offline_replicas=(5,))
            for one in topic.partitions
        )
        described.append(bytes(topic.topic_id))
        return reply.replace(topics=(topic.replace(partitions=parts),))

    kafka.answered(3, changed)
    found = kafka.admin.describe_topic("t")
    [node] = kafka.client.cluster.metadata.nodes.values()
    assert found.name == "t"
    assert [one.partition for one in found.partitions] == [0, 1]
    assert found.partitions[0].leader == f"{node.host}:{node.port}"
    expected = {"leader": node.id, "leader_epoch": 7, "replicas": (node.id, 5), "in_sync": (node.id,), "offline": (5,)}
    assert found.partitions[1].details == expected
    assert found.details["internal"] is False
    assert found.details["topic_id"] == (described[0].hex() if any(described[0]) else None)


def test_a_kafka_topic_is_gone_when_brokers_do_not_list_it(kafka: Scene) -> None:
    kafka.admin.create_topic("t")
    there: list[Any] = []
    left = [2]

    def still(reply: Any) -> Any:
        for topic in reply.topics or ():
            if topic.name == "t" and not topic.error_code:
                there[:] = [topic]
            elif topic.name == "t" and left[0]:
                left[0] -= 1
                return reply.replace(topics=(there[0],))
        return reply

    kafka.answered(3, still)
    kafka.admin.describe_topic("t")
    kafka.admin.delete_topic("t", timeout=60.0)
    assert left == [0]
    assert 40_000 < kafka.seen.requests("DeleteTopics")[0].message.timeout_ms <= 60_000
    assert kafka.client.cluster.metadata.topics.get("t") is None, "nothing goes on by what was known of it"
    with pytest.raises(UnknownTopicOrPartition):
        kafka.admin.delete_topic("t")
    assert len(kafka.seen.requests("DeleteTopics")) == 2, "a topic that nobody knows is not asked for again"


def test_a_kafka_controller_may_take_longer_over_topics_than_a_request(kafka: Scene) -> None:
    """It was told how long it may take; who asked again would meet what the first one has done."""
    with wireproto.connect(kafka.broker.url("kafka"), request_timeout=0.3) as client:
        for name, work in (("CreateTopics", client.admin().create_topic), ("DeleteTopics", client.admin().delete_topic)):
            kafka.broker.faults("kafka").delay(name, 0.6)
            work("slow", timeout=30.0)
            assert len(kafka.seen.requests(name)) == 1


def test_a_newer_kafka_broker_is_given_the_topics_state(kafka: Scene) -> None:
    from wireproto.kafka import messages as k

    kafka.admin.create_topic("t")
    asked: list[Any] = []

    async def delete(context: Any) -> Any:
        asked.append((context.version, context.request))
        kafka.answered(3, lambda reply: reply.replace(topics=tuple(one.replace(error_code=3, partitions=()) for one in reply.topics or ())))
        return k.DeleteTopicsResponse(responses=(k.DeletableTopicResult(name="t"),))

    kafka.broker._sides["kafka"].offered[20] = ("DeleteTopics", 0, 6, delete)  # type: ignore[attr-defined]
    with wireproto.connect(kafka.broker.url("kafka"), timeout=10.0) as later:
        later.admin().delete_topic("t")
    [(version, request)] = asked
    assert version == 6
    assert [one.name for one in request.topics] == ["t"]
    assert not request.topic_names


def test_kafka_groups_of_every_node_and_their_members(kafka: Scene) -> None:
    kafka.admin.create_topic("t", partitions=2)
    kafka.client.producer("t").send(b"1", partition=1).position(10.0)
    for group in ("g2", "g1"):
        with kafka.client.consumer("t", group, start=EARLIEST) as member:
            while member.poll(1.0) is None:
                continue
            member.commit()
            if group == "g1":
                found = kafka.admin.describe_group("g1")
                assert (found.name, found.state) == ("g1", "Stable")
                [only] = found.members
                assert only.partitions == (("t", 0), ("t", 1))
                assert only.client == "wireproto"
                assert found.details == {"protocol_type": "consumer", "protocol": "range"}
                assert kafka.admin.list_groups() == ["g1", "g2"]
                assert kafka.admin.group_positions("g1", "t")[("t", 1)] == LogOffset("t", 1, 1)
    looked = len(kafka.seen.requests("FindCoordinator"))
    refusals = [16]

    def refused(reply: Any) -> Any:
        code = refusals.pop() if refusals else 0
        return reply.replace(groups=tuple(one.replace(error_code=code) for one in reply.groups))

    kafka.answered(15, refused)
    assert kafka.admin.describe_group("g1").state == "Empty"
    assert len(kafka.seen.requests("FindCoordinator")) == looked + 1, "a coordinator that refuses is looked up anew"
    with pytest.raises(GroupIdNotFound):
        kafka.admin.describe_group("nobody")


def test_what_another_kind_of_group_holds_is_not_guessed(kafka: Scene) -> None:
    kafka.admin.create_topic("t")
    with kafka.client.consumer("t", "g") as member:
        member.poll(1.0)
        while not member.assignment:
            member.poll(0.2)

        def changed(reply: Any) -> Any:
            [group] = reply.groups
            return reply.replace(groups=(group.replace(members=tuple(one.replace(member_assignment=b"?") for one in group.members)),))

        kafka.answered(15, changed)
        assert [one.partitions for one in kafka.admin.describe_group("g").members] == [()]


def test_kafka_positions_of_some_partitions_only(kafka: Scene) -> None:
    kafka.admin.create_topic("t", partitions=3)
    kafka.client.producer("t").send(b"1", partition=2).position(10.0)
    assert {key: place.offset for key, place in kafka.admin.positions("t").items()} == {("t", 0): 0, ("t", 1): 0, ("t", 2): 1}
    assert {place.offset for place in kafka.admin.positions("t", EARLIEST).values()} == {0}
    assert set(kafka.admin.positions("t", {("t", 2): LogOffset("t", 2, 1)})) == {("t", 2)}


# RocketMQ


def test_a_rocketmq_topic_is_made_as_asked_for(rocketmq: Scene) -> None:
    rocketmq.admin.create_topic("t", partitions=3, config={"perm": "4", "order": "true", "attributes": "+message.type=FIFO"})
    rocketmq.admin.create_topic("u")
    first, second = (one.message for one in rocketmq.seen.requests("UpdateAndCreateTopic"))
    assert (first.topic, first.read_queue_nums, first.write_queue_nums, first.perm) == ("t", 3, 3, 4)
    assert (first.order, first.attributes, first.topic_filter_type) == (True, "+message.type=FIFO", "SINGLE_TAG")
    assert first.default_topic == "TBW102"
    assert (second.read_queue_nums, second.perm, second.order, second.attributes) == (1, 6, False, None)
    with pytest.raises(TopicExistAlready):
        rocketmq.admin.create_topic("u")
    assert len(rocketmq.seen.requests("UpdateAndCreateTopic")) == 2, "a broker would change it"
    with pytest.raises(OptionError, match="no setting 'colour'; there are attributes, order, perm"):
        rocketmq.admin.create_topic("v", config={"colour": "red"})
    with pytest.raises(OptionError, match="at least one partition"):
        rocketmq.admin.create_topic("v", partitions=0)


def test_rocketmq_topics_and_groups_without_the_brokers_own(rocketmq: Scene) -> None:
    for name in ("b", "a"):
        rocketmq.admin.create_topic(name)
    with rocketmq.client.consumer("a", "g", start=EARLIEST) as member:
        rocketmq.client.producer("a").send(b"1").position(10.0)
        while member.poll(1.0) is None:
            continue
        assert rocketmq.admin.group_positions("g", "a") == {}, "a queue without a commit is left out"
        member.commit()
        assert rocketmq.admin.group_positions("g", "a") == {("a", 0): QueueOffset("a", 0, 1, "dev", 0)}
        found = rocketmq.admin.describe_group("g")
        assert (found.name, found.state, len(found.members)) == ("g", "ONLINE", 1)
        assert found.details["topics"]
    assert rocketmq.admin.list_topics() == ["a", "b"], "the group's retry topic is the broker's"
    assert rocketmq.admin.list_groups() == ["g"]
    assert rocketmq.admin.describe_group("nobody").state == "OFFLINE"
    assert rocketmq.admin.describe_group("nobody").members == ()


def test_a_rocketmq_topic_is_deleted_everywhere(rocketmq: Scene) -> None:
    rocketmq.admin.create_topic("t", partitions=2)
    info = rocketmq.admin.describe_topic("t")
    assert [one.details["queue"] for one in info.partitions] == [0, 1]
    assert all(one.details["readable"] and one.details["writable"] for one in info.partitions)
    assert all(one.leader and one.leader.count(":") == 1 for one in info.partitions)
    rocketmq.faults.error("DeleteTopicInBroker", 2)
    rocketmq.admin.delete_topic("t")
    assert len(rocketmq.seen.requests("DeleteTopicInBroker")) == 2, "a busy broker is asked again"
    assert rocketmq.seen.requests("DeleteTopicInNamesrv")
    with pytest.raises(TopicNotExist):
        rocketmq.admin.describe_topic("t")
    with pytest.raises(TopicNotExist):
        rocketmq.admin.delete_topic("t")


# Pulsar


@pytest.fixture
def http() -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    """An admin interface written here: its URL, what it was asked (method, path, type, body), and what it answers by path."""
    asked: list[Any] = []
    answers: dict[str, Any] = {}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked.append((self.command, self.path, self.headers.get("Content-Type"), body.decode(), self.headers.get("Authorization")))
            answer = answers.get(self.path.partition("/admin/v2/")[2], {})
            code, told = answer if isinstance(answer, tuple) else (200, answer)
            data = json.dumps(told).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_DELETE = serve  # noqa: N815

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}", asked, answers
    server.shutdown()
    server.server_close()
    thread.join(5.0)


STATS = "persistent/public/default/t-partition-0/stats"
INTERNAL = "persistent/public/default/t-partition-0/internalStats"


@pytest.fixture
def told(pulsar: Scene, http: Any) -> Iterator[tuple[Any, list[Any], dict[str, Any]]]:
    """An admin whose HTTP interface is `http`, on a topic `t` of one partition."""
    pulsar.admin.create_topic("t")
    url, asked, answers = http
    with wireproto.connect(pulsar.broker.url("pulsar"), timeout=5.0, admin=url, token="secret-token") as client:
        yield client.admin(), asked, answers


def test_a_pulsar_topic_is_made_as_asked_for(told: Any, pulsar: Scene) -> None:
    admin, asked, _ = told
    pulsar.admin.create_topic("u", partitions=0)
    admin.create_topic("t", partitions=3)
    admin.create_topic("u", partitions=0)
    admin.create_topic("t", partitions=2, config={"a": "b"})
    admin.create_topic("u", partitions=0, config={"a": "b"})
    path = "/admin/v2/persistent/public/default"
    with_config = '{"partitions": 2, "properties": {"a": "b"}}'
    found = [(method, where, kind, body and json.loads(body)) for method, where, kind, body, _ in asked]
    assert found[0] == ("PUT", f"{path}/t/partitions", "application/json", 3)
    assert found[1][:2] == ("PUT", f"{path}/u")
    assert not found[1][3]
    assert found[2] == ("PUT", f"{path}/t/partitions", "application/vnd.partitioned-topic-metadata+json", json.loads(with_config))
    assert found[3] == ("PUT", f"{path}/u", "application/json", {"a": "b"})
    assert {one[4] for one in asked} == {"Bearer secret-token"}
    with pytest.raises(OptionError, match="must not be negative"):
        admin.create_topic("t", partitions=-1)


def test_a_pulsar_topic_is_deleted_by_force_and_by_its_kind(told: Any, pulsar: Scene) -> None:
    admin, asked, answers = told
    pulsar.admin.create_topic("u", partitions=0)
    admin.delete_topic("t")
    admin.delete_topic("u")
    path = "/admin/v2/persistent/public/default"
    assert [one[:2] for one in asked] == [("DELETE", f"{path}/t/partitions?force=true"), ("DELETE", f"{path}/u?force=true")]
    answers["persistent/public/default/u?force=true"] = (404, {"reason": "Topic not found"})
    with pytest.raises(TopicNotFound):
        admin.delete_topic("u")


def test_pulsar_subscriptions_and_who_is_fed(told: Any) -> None:
    admin, _, answers = told
    member = {"consumerName": "one", "address": "/1.2.3.4:5"}
    failover = {"type": "Failover", "msgBacklog": 3, "activeConsumerName": "two", "consumers": [member, member | {"consumerName": "two"}]}
    answers[STATS] = {"subscriptions": {"g": failover, "h": {"type": "Shared", "msgBacklog": 1, "consumers": [member]}, "i": {}}}
    found = admin.describe_group("g", topic="t")
    assert (found.state, found.details) == ("Stable", {"type": "Failover", "backlog": 3})
    assert [(one.member, one.partitions) for one in found.members] == [("one", ()), ("two", (("t", 0),))]
    assert [one.partitions for one in admin.describe_group("h", topic="t").members] == [(("t", 0),)], "all of a shared one are fed"
    empty = admin.describe_group("i", topic="t")
    assert (empty.state, empty.members, empty.details) == ("Empty", (), {"type": "none", "backlog": 0})
    with pytest.raises(SubscriptionNotFound):
        admin.describe_group("nobody", topic="t")


def test_a_pulsar_subscription_of_one_topic_is_looked_for_there_alone(told: Any, pulsar: Scene) -> None:
    admin, asked, answers = told
    pulsar.admin.create_topic("u", partitions=0)
    answers[STATS] = {"subscriptions": {"g": {"type": "Shared", "msgBacklog": 1}}}
    answers["persistent/public/default/u/stats"] = {"subscriptions": {"g": {"type": "Failover", "msgBacklog": 2}}}
    answers["persistent/public/default/partitioned"] = []
    assert admin.describe_group("g", topic="t").details == {"type": "Shared", "backlog": 1}
    assert [one[1] for one in asked] == [f"/admin/v2/{STATS}"]
    assert admin.describe_group("g").details == {"type": "Failover, Shared", "backlog": 3}


def test_pulsar_positions_are_those_asked_for(pulsar: Scene) -> None:
    pulsar.admin.create_topic("t", partitions=2)
    with pulsar.client.producer("t", batching=False) as out:
        first, _, last = (out.send(b"x", partition=1).position(10.0) for _ in range(3))
    ends = pulsar.admin.positions("t")
    assert ends[("t", 1)] == replace(last, after=True) == pulsar.admin.positions("t", LATEST)[("t", 1)]
    assert pulsar.admin.positions("t", EARLIEST)[("t", 1)] == replace(first, after=False)
    assert pulsar.admin.positions("t", {("t", 1): first}) == {("t", 1): first}


def test_pulsar_subscriptions_of_a_namespace(told: Any) -> None:
    admin, asked, answers = told
    answers["persistent/public/default/partitioned"] = ["persistent://public/default/t", "persistent://public/default/__own"]
    answers["persistent/public/default/t/subscriptions"] = ["h", "g"]
    answers[STATS] = {"subscriptions": {"g": {"type": "Shared"}}}
    assert admin.list_topics() == ["t"]
    assert admin.list_groups() == ["g", "h"]
    assert admin.describe_group("g").name == "g"
    answers["persistent/other/space/partitioned"] = []
    assert admin.list_groups(namespace="other/space") == []
    with pytest.raises(SubscriptionNotFound):
        admin.describe_group("g", namespace="other/space")
    assert any("/other/space/" in one[1] for one in asked)


def test_where_a_pulsar_subscription_stands(told: Any) -> None:
    admin, _, answers = told
    answers[INTERNAL] = {
        "cursors": {"g": {"markDeletePosition": "7:4"}, "new": {"markDeletePosition": "7:-1"}},
        "ledgers": [{"ledgerId": 9, "entries": 0}, {"ledgerId": 7, "entries": 12}],
        "currentLedgerEntries": 5,
    }
    assert admin.group_positions("g", "t") == {("t", 0): MessageId("t", 0, 7, 4, after=True)}
    assert admin.group_positions("new", "t") == {("t", 0): MessageId("t", 0, 7, -1, after=True)}
    with pytest.raises(SubscriptionNotFound):
        admin.group_positions("nobody", "t")
    assert admin.ledgers("t-partition-0") == [(7, 12), (9, 5)], "the open ledger's entries are told apart"
    answers[INTERNAL] = {}
    assert admin.ledgers("t-partition-0") == []


def test_pulsar_deduplication_is_asked_for_and_set(told: Any) -> None:
    admin, asked, answers = told
    answers[STATS] = {"deduplicationStatus": "Enabled"}
    assert admin.deduplication("t-partition-0") == "Enabled"
    answers[STATS] = {}
    assert admin.deduplication("t-partition-0") == "unknown"
    for wanted in (True, False):
        admin.set_deduplication("public/default", wanted)
    told_so = [(method, path, body) for method, path, _, body, _ in asked if method == "POST"]
    assert told_so == [("POST", "/admin/v2/namespaces/public/default/deduplication", word) for word in ("true", "false")]


def test_a_pulsar_topic_that_is_not_there_is_not_described(pulsar: Scene) -> None:
    pulsar.admin.create_topic("u", partitions=0)
    info = pulsar.admin.describe_topic("u")
    assert [one.partition for one in info.partitions] == [-1]
    assert info.details == {"name": "persistent://public/default/u", "partitioned": False}
    pulsar.admin.create_topic("t", partitions=2)
    info = pulsar.admin.describe_topic("t")
    assert ([one.partition for one in info.partitions], info.details["partitioned"]) == ([0, 1], True)
    assert all(one.leader and ":" in one.leader for one in info.partitions)
    with pytest.raises(TopicNotFound):
        pulsar.admin.describe_topic("nowhere")


# ZooKeeper


def test_a_zookeeper_queue_is_three_nodes(zookeeper: Scene) -> None:
    tree = zookeeper.client.tree()
    zookeeper.admin.create_topic("/a/jobs")
    assert sorted(tree.children("/a/jobs")[0]) == ["entries", "taken"]
    with pytest.raises(NodeExists):
        zookeeper.admin.create_topic("/a/jobs")
    tree.create("/bare")
    zookeeper.admin.create_topic("bare")
    assert zookeeper.admin.list_topics() == ["/bare"], "those directly below the root"
    tree.create("/half/entries", parents=True)
    assert zookeeper.admin.list_topics() == ["/bare"], "a queue has both nodes"
    with pytest.raises(UsageError, match="one partition, not 2"):
        zookeeper.admin.create_topic("t", partitions=2)
    with pytest.raises(UsageError, match="no configuration: a"):
        zookeeper.admin.create_topic("t", config={"a": "b"})
    with pytest.raises(NoNode):
        zookeeper.admin.describe_topic("nowhere")


def test_a_zookeeper_queue_whose_making_was_cut_off_is_made_once(zookeeper: Scene) -> None:
    zookeeper.faults.lose_reply("multi")
    zookeeper.admin.create_topic("jobs")
    assert zookeeper.admin.describe_topic("jobs").partitions[0].details == {"messages": 0, "taken": 0, "next": 0}
    zookeeper.faults.disconnect("multi")
    zookeeper.admin.create_topic("more")
    assert zookeeper.admin.list_topics() == ["/jobs", "/more"]


def test_what_a_zookeeper_queue_holds_and_where_it_goes_on(zookeeper: Scene) -> None:
    zookeeper.admin.create_topic("jobs")
    producer = zookeeper.client.producer("jobs")
    for value in (b"1", b"2", b"3"):
        producer.send(value).position(10.0)
    worker = zookeeper.client.queue("jobs", "")
    first = worker.receive(10.0)
    assert zookeeper.admin.describe_topic("jobs").partitions[0].details == {"messages": 3, "taken": 1, "next": 3}
    first.ack()
    worker.close()
    at = {where: zookeeper.admin.positions("jobs", where)[("jobs", 0)].offset for where in (EARLIEST, LATEST)}
    assert at == {EARLIEST: 1, LATEST: 3}
    zookeeper.admin.delete_topic("jobs")
    with pytest.raises(NoNode):
        zookeeper.admin.positions("jobs")


@pytest.mark.parametrize("ask", ["list_groups", "describe_group", "group_positions"])
def test_zookeeper_has_no_groups_and_says_what_comes_nearest(zookeeper: Scene, ask: str) -> None:
    given = {"list_groups": (), "describe_group": ("g",), "group_positions": ("g", "t")}[ask]
    with pytest.raises(wireproto.errors.RoleUnsupported, match="queue"):
        getattr(zookeeper.admin, ask)(*given)


def test_brokers_errors_of_admins_are_typed(kafka: Scene) -> None:
    kafka.faults.error("CreateTopics", 44)
    with pytest.raises(BrokerError) as refused:
        kafka.admin.create_topic("t")
    assert (refused.value.code, refused.value.name) == (44, "POLICY_VIOLATION")


def test_transactions_of_a_kafka_node_are_listed_when_it_has_loaded_them(kafka: Scene) -> None:
    """It is told who leads before it begins to load, and its list leaves out in silence what it has yet to load."""
    left = [1]

    def leading(reply: Any) -> Any:
        """As a real broker tells of the topic of states."""
        topics = []
        for topic in reply.topics or ():
            if topic.name == "__transaction_state":
                parts = tuple(MetadataResponsePartition(partition_index=number, leader_id=reply.brokers[0].node_id) for number in range(50))
                topic = topic.replace(error_code=0, partitions=parts)
            topics.append(topic)
        return reply.replace(topics=tuple(topics))

    def loading(reply: Any) -> Any:
        if not left[0]:
            return reply
        left[0] -= 1
        first, *others = reply.transaction_states
        return reply.replace(transaction_states=(first.replace(error_code=NotCoordinator.code), *others))

    kafka.answered(3, leading)
    kafka.answered(65, loading)
    kafka.client.transactions("work").close()
    assert [one.name for one in kafka.admin.list_transactions()] == ["work"]
    asked = [one.message for one in kafka.seen.requests() if one.name in ("DescribeTransactions", "ListTransactions")]
    assert [one.NAME for one in asked] == ["DescribeTransactionsRequest"] * 2 + ["ListTransactionsRequest"]
    assert sorted(slot_of(name) for name in asked[0].transactional_ids) == [*range(50)], "of each partition that it leads"
