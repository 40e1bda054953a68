"""Every version that a real broker offers of the messages that the adapter speaks, and the fall-backs between them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

import wireproto
from brokers import Broker
from wireproto import LATEST
from wireproto._codec import KafkaBatchBuilder, decode_kafka
from wireproto.errors import TransportError, UnsupportedVersion
from wireproto.kafka import messages as m
from wireproto.kafka import wire

BROKERS = ["kafka-3.9.2", "kafka-3.9.2-zookeeper", "kafka-4.3.1", "kafka-4.4.0"]
_numbers = itertools.count()


@pytest.fixture
def client(broker: Broker) -> Iterator[Any]:
    with wireproto.connect(broker.url) as opened:
        yield opened


@pytest.fixture
def topic(client: Any) -> str:
    name = f"versions-{next(_numbers)}"
    client.admin().create_topic(name)
    return name


def offered(client: Any, request: Any) -> range:
    """Versions that both sides speak."""
    conn = client.cluster.reach(client.cluster.to_any, client.deadline())
    agreed: wire.Agreed = conn.context
    low, high = agreed.versions.offered.get(request.API_KEY, (0, -1))
    if request is m.ProduceRequest and low == 0 and not agreed.versions.has(m.LeaderAndIsrRequest) and high >= 13:
        low = 3  # 4.x says 0 for the sake of an old client library, and refuses what is below 3
    return range(max(low, request.MIN_VERSION), min(high, request.MAX_VERSION) + 1)


def records(magic: int) -> bytes:
    builder = KafkaBatchBuilder(magic=magic)
    for number in range(3):
        assert builder.append(
            b"v%d" % number, b"k", (("h", b"1"),) if magic == 2 else (), None if magic == 0 else 1_700_000_000_000 + number
        )
    return builder.finish()


@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_produce_and_fetch_in_every_version(client: Any, topic: str) -> None:
    client.admin().describe_topic(topic)
    topic_id = client.cluster.metadata.topics[topic].id
    written = 0
    for version in offered(client, m.ProduceRequest):
        data = records(0 if version < 2 else 1 if version == 2 else 2)
        part = m.PartitionProduceData(index=0, records=data)
        request = m.ProduceRequest(
            acks=-1, timeout_ms=10_000, topic_data=(m.TopicProduceData(name=topic, topic_id=topic_id, partition_data=(part,)),)
        )
        reply = client.request(request, version=version)
        answer = reply.responses[0].partition_responses[0]
        assert (answer.error_code, answer.base_offset) == (0, written), version
        written += 3
    assert written >= 33
    for version in offered(client, m.FetchRequest):
        values: list[bytes | None] = []
        stamps: list[int | None] = []
        while len(values) < written:  # brokers that convert to an old format may cut the answer short
            columns, following = fetch(client, topic, topic_id, len(values), version)
            assert columns.positions() == list(range(len(values), following)), version
            values += columns.values()
            stamps += columns.timestamps()
        assert values == [b"v%d" % (number % 3) for number in range(written)], version
        if version >= 2:
            assert stamps[-3:] == [1_700_000_000_000, 1_700_000_000_001, 1_700_000_000_002]


def fetch(client: Any, topic: str, topic_id: bytes, offset: int, version: int) -> tuple[Any, int]:
    part = m.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=-1)
    question = m.FetchTopic(topic=topic, topic_id=topic_id, partitions=(part,))
    reply = client.request(m.FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, topics=(question,)), version=version)
    answer = reply.responses[0].partitions[0]
    assert answer.error_code == 0, version
    columns, following = decode_kafka(answer.records, topic=topic, partition=0, fetch_offset=offset)
    assert following > offset, version
    return columns, following


@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_every_version_of_the_questions(client: Any, topic: str, broker: Broker) -> None:
    """The answer of each version decodes to its last byte (a rest would be Malformed) and says no error."""
    group = f"g-{topic}"
    with client.producer(topic) as producer:
        producer.send(b"v").position(10.0)
    topic_id = client.cluster.metadata.topics[topic].id
    deadline = client.deadline(60.0)
    client.cluster.reach(client.cluster.to_coordinator(group), deadline)  # makes the brokers' own topic
    asked = 0

    def every(request: Any, make: Any, first: int = 0) -> None:
        nonlocal asked
        for version in offered(client, request):
            if version >= first:
                reply = client.request(make(version), version=version)
                while getattr(reply, "error_code", 0) in (14, 15, 16) and time.monotonic() < deadline:  # the coordinator loads its log
                    reply = client.request(make(version), version=version)
                assert not getattr(reply, "error_code", 0), (request.NAME, version, reply)
                asked += 1

    named = (m.MetadataRequestTopic(name=topic),)
    every(m.ApiVersionsRequest, lambda v: m.ApiVersionsRequest(client_software_name="test", client_software_version="1"))
    every(m.MetadataRequest, lambda v: m.MetadataRequest(topics=named))
    every(m.DescribeClusterRequest, lambda v: m.DescribeClusterRequest())
    every(m.InitProducerIdRequest, lambda v: m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000))
    every(m.ListGroupsRequest, lambda v: m.ListGroupsRequest())
    every(m.DescribeGroupsRequest, lambda v: m.DescribeGroupsRequest(groups=(group,)))
    coordinator = {"key": group}
    every(
        m.FindCoordinatorRequest,
        lambda v: m.FindCoordinatorRequest(coordinator_keys=(group,)) if v >= 4 else m.FindCoordinatorRequest(**coordinator),
    )
    resource = m.DescribeConfigsResource(resource_type=2, resource_name=topic, configuration_keys=None)
    every(m.DescribeConfigsRequest, lambda v: m.DescribeConfigsRequest(resources=(resource,)))
    spot = m.ListOffsetsPartition(partition_index=0, timestamp=-1, max_num_offsets=1)
    every(m.ListOffsetsRequest, lambda v: m.ListOffsetsRequest(topics=(m.ListOffsetsTopic(name=topic, partitions=(spot,)),)))
    place = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    stored = m.OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=(place,))
    keeper = broker.flavour == "zookeeper"
    every(m.OffsetCommitRequest, lambda v: m.OffsetCommitRequest(group_id=group, topics=(stored,)), first=0 if keeper else 1)
    assert asked >= 40


@pytest.mark.soak
@pytest.mark.parametrize("broker", ["kafka-3.9.2-zookeeper"], indirect=True)
def test_offsets_in_zookeeper(client: Any, topic: str) -> None:
    """Version 0 of OffsetCommit and OffsetFetch keeps offsets in ZooKeeper, apart from the group coordinator's."""
    place = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=42, committed_metadata="note")
    request = m.OffsetCommitRequest(group_id="old", topics=(m.OffsetCommitRequestTopic(name=topic, partitions=(place,)),))
    assert client.request(request, version=0).topics[0].partitions[0].error_code == 0
    question = m.OffsetFetchRequest(group_id="old", topics=(m.OffsetFetchRequestTopic(name=topic, partition_indexes=(0,)),))
    answer = client.request(question, version=0).topics[0].partitions[0]
    assert (answer.error_code, answer.committed_offset) == (0, 42)
    assert client.request(question, version=1).topics[0].partitions[0].committed_offset == -1


@pytest.mark.parametrize("broker", ["kafka-3.9.2"], indirect=True)
def test_without_zookeeper_version_0_of_offsets_is_refused_by_code(client: Any, topic: str) -> None:
    place = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=42, committed_metadata="")
    request = m.OffsetCommitRequest(group_id="old", topics=(m.OffsetCommitRequestTopic(name=topic, partitions=(place,)),))
    assert client.request(request, version=0).topics[0].partitions[0].error_code == 35


@pytest.mark.parametrize("broker", ["kafka-4.3.1"], indirect=True)
def test_a_version_that_nobody_shares_is_an_error_and_the_client_goes_on(client: Any, topic: str) -> None:
    with pytest.raises(UnsupportedVersion, match="LeaderAndIsr"):
        client.request(m.LeaderAndIsrRequest())
    part = m.PartitionProduceData(index=0, records=records(0))
    old = m.ProduceRequest(acks=1, timeout_ms=1000, topic_data=(m.TopicProduceData(name=topic, partition_data=(part,)),))
    with pytest.raises(TransportError):
        client.request(old, version=0)  # 4.x drops the connection
    with client.producer(topic) as producer:
        producer.send(b"v").position(10.0)
    with client.reader(topic, stop=LATEST) as reader:
        assert [value for batch in reader for value in batch.values()] == [b"v"]
