"""`client.request`: what goes out, to whom it goes, and which requests are not for a caller, on the embedded broker."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from patience import LONG
from wireproto.devbroker import DevBroker
from wireproto.devbroker.recording import Recording
from wireproto.errors import Disconnected, OptionError, UnsupportedVersion, UsageError, ValueUnsupported
from wireproto.kafka import messages as k
from wireproto.kafka.codes import UnknownTopicOrPartition
from wireproto.pulsar import PulsarApi_pb2 as api
from wireproto.rocketmq import messages as r
from wireproto.rocketmq.codes import ServerError
from wireproto.zookeeper import messages as z
from wireproto.zookeeper.codes import AuthFailed, NoNode
from wireproto.zookeeper.lists import MultiRequest, MultiResponse

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker() as made:
        yield made


def opened(broker: DevBroker, protocol: str, **options: Any) -> tuple[Any, Recording]:
    seen = broker.record(protocol)
    return wireproto.connect(broker.url(protocol), timeout=10.0, **options), seen


def new(client: Any, partitions: int = 1) -> str:
    name = f"asked-{next(_numbers)}"
    client.admin().create_topic(name, partitions=partitions)
    return name


# Kafka


@pytest.mark.parametrize(
    ("route", "before"),
    [
        ({"any": True}, []),
        ({"controller": True}, ["Metadata"]),
        ({"group": "g"}, ["FindCoordinator"]),
        ({"transaction": "t"}, ["FindCoordinator"]),
    ],
)
def test_a_kafka_route_asks_for_its_node_first(broker: DevBroker, route: dict[str, Any], before: list[str]) -> None:
    client, seen = opened(broker, "kafka")
    with client:
        client.request(k.ListGroupsRequest(), **route)
    names = [one.name for one in seen.requests() if one.name != "ApiVersions"]
    assert names == [*before, "ListGroups"]
    for asked in seen.requests("FindCoordinator"):
        assert asked.message.key_type == (1 if "transaction" in route else 0)
        assert asked.message.coordinator_keys == (next(iter(route.values())),)


def test_a_kafka_leader_is_looked_up_by_topic_and_partition(broker: DevBroker) -> None:
    with opened(broker, "kafka")[0] as other:
        topic = new(other, 2)
    client, seen = opened(broker, "kafka", unknown_topic_timeout=0.2)
    with client:
        client.request(k.ListGroupsRequest(), leader=(topic, 1))
        asked = [one.message.topics[0].name for one in seen.requests("Metadata") if one.message.topics]
        assert set(asked) == {topic}
        begun = time.monotonic()
        with pytest.raises(UnknownTopicOrPartition, match="there is no topic 'nowhere': create it, or connect with auto_create=true"):
            client.request(k.ListGroupsRequest(), leader=("nowhere", 0), timeout=LONG)
        assert time.monotonic() - begun < LONG / 2, "it was looked for longer than unknown_topic_timeout"


def test_a_kafka_node_that_is_not_there_is_told(broker: DevBroker) -> None:
    client, _ = opened(broker, "kafka")
    with client:
        node = next(iter(client.request(k.MetadataRequest(topics=())).brokers)).node_id
        assert client.request(k.ListGroupsRequest(), node=node).error_code == 0
        with pytest.raises(Disconnected, match="node 99 is not in the cluster"):
            client.request(k.ListGroupsRequest(), node=99, timeout=1.2)  # between two tries, so that none is cut off by the time


def test_a_kafka_request_goes_in_the_version_asked_for_or_the_newest_of_both(broker: DevBroker) -> None:
    client, seen = opened(broker, "kafka")
    with client:
        client.request(k.ListGroupsRequest(), version=2)
        client.request(k.ListGroupsRequest())
        assert [one.version for one in seen.requests("ListGroups")] == [2, 4]
        with pytest.raises(UnsupportedVersion):
            client.request(k.ListGroupsRequest(), version=99)
        with pytest.raises(OptionError, match="a route is one of"):
            client.request(k.ListGroupsRequest(), anywhere=True)
        with pytest.raises(OptionError, match="not node, any"):
            client.request(k.ListGroupsRequest(), node=1, any=True)


def test_a_kafka_coordinator_is_looked_up_anew_for_each_request_and_kept_by_roles(broker: DevBroker) -> None:
    client, seen = opened(broker, "kafka")
    with client:
        for _ in range(2):
            client.request(k.HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))
        assert len(seen.requests("FindCoordinator")) == 2, "replies' error codes are not read here"
        topic = new(client)
        for _ in range(3):
            client.admin().group_positions("g", topic)
        assert len(seen.requests("FindCoordinator")) == 2, "the admin reads them, so that what is known may be kept"


# Pulsar


def test_a_pulsar_command_goes_to_the_broker_of_its_topic_and_has_a_number_of_its_own(broker: DevBroker) -> None:
    client, seen = opened(broker, "pulsar")
    with client:
        topic = new(client)
        full = f"persistent://public/default/{topic}-partition-0"
        seen.clear()
        made = client.request(api.CommandProducer(topic=full, producer_id=70, request_id=0))
        assert made.producer_name
        assert [one.message.topic for one in seen.requests("lookupTopic")] == [full]
        client.request(api.CommandCloseProducer(producer_id=70, request_id=0), topic=f"{topic}-partition-0")
        assert len({one.message.request_id for one in [*seen.requests("producer"), *seen.requests("close_producer")]}) == 2
        found = client.request(api.CommandPartitionedTopicMetadata(topic=full, request_id=0))
        assert found.partitions == 0


def test_a_pulsar_message_is_sent_by_request_and_its_receipt_comes_back(broker: DevBroker) -> None:
    client, seen = opened(broker, "pulsar")
    with client:
        topic = new(client)
        with client.producer(topic) as other:
            other.send(b"first").position(5.0)
        entry = next(one.rest for one in seen.requests("send"))
        part = f"persistent://public/default/{topic}-partition-0"
        client.request(api.CommandProducer(topic=part, producer_id=71, request_id=0))
        receipt = client.request(api.CommandSend(producer_id=71, sequence_id=5, num_messages=1), entry=entry, topic=part)
        assert (receipt.producer_id, receipt.sequence_id, receipt.message_id.entryId) == (71, 5, 1)


def test_what_pulsar_has_no_answer_for_returns_at_once(broker: DevBroker) -> None:
    client, seen = opened(broker, "pulsar")
    with client:
        assert client.request(api.CommandPing()) is None
        seen.wait("ping", 1, timeout=5.0)


@pytest.mark.parametrize(
    ("message", "where", "text"),
    [
        (api.CommandConnect(client_version="x"), {}, "no command that a client may send by itself"),
        (api.CommandSend(producer_id=1, sequence_id=1), {}, "an entry goes with CommandSend"),
        (api.CommandPing(), {"entry": b"x"}, "an entry goes with CommandSend"),
    ],
)
def test_what_a_pulsar_caller_may_not_send_is_refused_before_it_goes(broker: DevBroker, message: Any, where: Any, text: str) -> None:
    client, seen = opened(broker, "pulsar")
    with client:
        with pytest.raises(OptionError, match=text):
            client.request(message, **where)
        assert {one.name for one in seen.requests()} <= {"connect"}


# RocketMQ


def test_a_rocketmq_command_finds_its_server(broker: DevBroker) -> None:
    client, seen = opened(broker, "rocketmq")
    with client:
        topic = new(client, 3)
        seen.clear()
        names = client.request(r.GetRouteInfoByTopicRequest(topic=topic))
        assert names.code == 0
        brokers = client.request(r.GetMaxOffsetRequest(topic=topic, queue_id=2))
        assert brokers.message.offset == 0
        assert (names.peer == brokers.peer) is False, "name server and broker have ports of their own"
        same = [client.request(r.GetMaxOffsetRequest(topic=topic, queue_id=1), to=to).peer for to in (brokers.peer, (topic, 1), None)]
        assert set(same) == {brokers.peer}
        assert client.request(r.GetBrokerClusterInfoRequest(), to="names").peer == names.peer
        with pytest.raises(ServerError) as refused:
            client.request(r.GetConsumerListByGroupRequest(consumer_group="nobody"))
        assert refused.value.peer == brokers.peer, "neither group nor topic is known: the first broker"
        [name] = client.cluster.drive(client.cluster.info(client.deadline(5.0)), client.deadline(5.0)).brokers
        assert client.request(r.GetMaxOffsetRequest(topic=topic, queue_id=0), to=name).peer == brokers.peer
        assert client.request(r.GetMaxOffsetRequest(topic=topic, queue_id=0, bname=name)).peer == brokers.peer


@pytest.mark.parametrize(
    ("to", "text"),
    [("elsewhere", "no broker 'elsewhere' has a master"), (("T", 3), "T has partitions 0 to 2, not 3"), (("T", -1), "not -1")],
)
def test_a_rocketmq_server_that_is_not_there_is_told(broker: DevBroker, to: Any, text: str) -> None:
    client, _ = opened(broker, "rocketmq")
    with client:
        topic = new(client, 3)
        place = (topic, to[1]) if isinstance(to, tuple) else to
        with pytest.raises(OptionError, match=text.replace("T ", f"{topic} ")):
            client.request(r.GetMaxOffsetRequest(topic=topic, queue_id=0), to=place)


def test_rocketmq_bodies_and_answers(broker: DevBroker) -> None:
    client, seen = opened(broker, "rocketmq")
    with client:
        topic = new(client)
        beat = {"clientID": "me", "consumerDataSet": [], "producerDataSet": []}
        for body in (beat, '{"clientID":"me"}', b'{"clientID":"me"}', bytearray(b'{"clientID":"me"}')):
            assert client.request(r.HeartBeatRequest(), body=body, to=(topic, 0)).code == 0
        bodies = [bytes(one.header.body) for one in seen.requests("HeartBeat")][-4:]
        assert all(body.startswith(b'{"clientID":"me"') for body in bodies)
        with pytest.raises(UsageError, match="not int"):
            client.request(r.HeartBeatRequest(), body=5)
        with pytest.raises(UsageError, match="not a request of RocketMQ"):
            client.request(object())
        with pytest.raises(OptionError, match="unknown: partition"):
            client.request(r.HeartBeatRequest(), partition=1)
        none_new = r.PullMessageRequest(  # 4: with a subscription, for the group has no member that told one
            consumer_group="g", topic=topic, queue_id=0, queue_offset=0, max_msg_nums=1, sys_flag=4, commit_offset=0,
            suspend_timeout_millis=0, subscription="*", sub_version=0,
        )  # fmt: skip
        assert client.request(none_new).code == 19, "an answer of a pull, no error"


def test_a_one_way_rocketmq_command_waits_for_nothing(broker: DevBroker) -> None:
    client, seen = opened(broker, "rocketmq")
    with client:
        topic = new(client)
        reply = client.request(
            r.UpdateConsumerOffsetRequest(consumer_group="g", topic=topic, queue_id=0, commit_offset=3), one_way=True, to=(topic, 0)
        )
        assert (reply.message, reply.code) == (None, 0)
        [sent] = seen.wait("UpdateConsumerOffset", 1, timeout=5.0)
        assert sent.header.flag & 2, "the server is told not to answer"
        assert client.request(r.QueryConsumerOffsetRequest(consumer_group="g", topic=topic, queue_id=0)).message.offset == 3


# ZooKeeper


@pytest.fixture
def keeper(broker: DevBroker) -> Iterator[Any]:
    client, _ = opened(broker, "zookeeper")
    with client:
        yield client


def test_a_zookeeper_operation_is_told_by_its_record_or_its_name(keeper: Any) -> None:
    node = f"/asked-{next(_numbers)}"
    acl = (z.ACL(perms=31, id=z.Id(scheme="world", id="anyone")),)
    made = keeper.request(z.CreateRequest(path=node, data=b"1", acl=acl, flags=0))
    assert made.path == node
    again = keeper.request(z.CreateRequest(path=f"{node}/a", data=b"2", acl=acl, flags=0), operation="create2")
    assert again.stat.data_length == 1
    assert keeper.request(z.GetDataRequest(path=node, watch=False)).data == b"1"
    assert keeper.request(z.DeleteRequest(path=f"{node}/a", version=-1)) is None
    with pytest.raises(NoNode):
        keeper.request(z.GetDataRequest(path=f"{node}/a", watch=False))
    assert keeper.request(operation="ping") is None


def test_zookeeper_multis_by_request(keeper: Any) -> None:
    node = f"/asked-{next(_numbers)}"
    acl = (z.ACL(perms=31, id=z.Id(scheme="world", id="anyone")),)
    create = z.CreateRequest(path=node, data=b"1", acl=acl, flags=0)
    done = keeper.request(MultiRequest((create, (15, create.replace(path=f"{node}/a")), z.CheckVersionRequest(path=node, version=0))))
    assert isinstance(done, MultiResponse)
    assert [code for code, _ in done.results] == [1, 15, 13]
    assert done.errors == (0, 0, 0)
    failed = keeper.request(MultiRequest((z.DeleteRequest(path=f"{node}/a", version=-1), z.DeleteRequest(path=f"{node}/b", version=-1))))
    assert failed.errors == (0, -101)
    assert keeper.request(z.ExistsRequest(path=f"{node}/a", watch=False)).stat.version == 0, "all of it or nothing"
    reads = MultiRequest((z.GetDataRequest(path=node, watch=False), z.GetChildrenRequest(path=node, watch=False)))
    assert reads.reads
    found = keeper.request(reads)
    assert (found.results[0][1].data, list(found.results[1][1].children)) == (b"1", ["a"])
    assert MultiRequest.decode(reads.encode()).operations == tuple((one.OP_CODE, one) for one in reads.operations)
    assert MultiResponse.decode(found.encode()) == found
    assert MultiResponse.decode(failed.encode()) == failed
    with pytest.raises(ValueUnsupported, match="ExistsRequest as operation 3 is not allowed in a multi"):
        MultiRequest((z.ExistsRequest(path=node, watch=False),)).encode()
    with pytest.raises(wireproto.errors.Malformed, match="1 bytes left over"):
        MultiResponse.decode(found.encode() + b"x")


def test_credentials_given_by_request_hold_on_the_next_connection_too(broker: DevBroker, keeper: Any) -> None:
    node = f"/asked-{next(_numbers)}"
    keeper.request(z.AuthPacket(type=0, scheme="digest", auth=b"ann:secret"))
    acl = (z.ACL(perms=31, id=z.Id(scheme="auth", id="")),)
    keeper.request(z.CreateRequest(path=node, data=b"mine", acl=acl, flags=0))
    broker.kick("zookeeper")
    assert keeper.request(z.GetDataRequest(path=node, watch=False)).data == b"mine"
    with pytest.raises(AuthFailed):
        keeper.request(z.AuthPacket(type=0, scheme="nosuch", auth=b"x"))


@pytest.mark.parametrize(
    ("message", "operation", "text"),
    [
        (z.ConnectRequest(), "createSession", "the client opens its session itself"),
        (None, "closeSession", "close the client"),
        (None, None, "neither a record nor an operation"),
        (None, "fly", "no operation 'fly'"),
        (None, "getData", "getData takes GetDataRequest, not none"),
        (z.DeleteRequest(path="/", version=-1), "getData", "getData takes GetDataRequest, not DeleteRequest"),
        (z.Stat(), None, "Stat is the request of no operation"),
        (MultiRequest((z.DeleteRequest(path="/x", version=-1),)), "multiRead", "a MultiRequest is no multiRead"),
    ],
)
def test_what_is_no_zookeeper_request_is_refused(keeper: Any, message: Any, operation: str | None, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        keeper.request(message, operation=operation)
