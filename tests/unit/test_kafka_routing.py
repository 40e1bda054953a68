"""Where a request goes, by what it names."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from wireproto.kafka import messages as m
from wireproto.kafka.client import KafkaClient
from wireproto.kafka.metadata import Metadata
from wireproto.kafka.routing import ANY, GROUP, SHARE, TRANSACTION, Destination, destination
from wireproto.net.task import steps_of

TOPIC_ID = bytes(range(16))


@pytest.mark.parametrize(
    ("message", "to"),
    [
        (m.MetadataRequest(topics=None), ANY),
        (m.CreateTopicsRequest(), Destination("controller")),
        (m.OffsetCommitRequest(group_id="g"), Destination("coordinator", "g", GROUP)),
        (m.OffsetFetchRequest(groups=(m.OffsetFetchRequestGroup(group_id="g", topics=None),)), Destination("coordinator", "g", GROUP)),
        (m.DescribeGroupsRequest(groups=("g", "h")), Destination("coordinator", "g", GROUP)),
        (m.DeleteGroupsRequest(groups_names=("g",)), Destination("coordinator", "g", GROUP)),
        (m.ShareGroupDescribeRequest(group_ids=("g",)), Destination("coordinator", "g", GROUP)),
        (m.TxnOffsetCommitRequest(group_id="g", transactional_id="t"), Destination("coordinator", "g", GROUP)),
        (m.AddOffsetsToTxnRequest(group_id="g", transactional_id="t"), Destination("coordinator", "t", TRANSACTION)),
        (m.InitProducerIdRequest(transactional_id="t"), Destination("coordinator", "t", TRANSACTION)),
        (m.InitProducerIdRequest(transactional_id=None), ANY),
        (m.AddPartitionsToTxnRequest(v3_and_below_transactional_id="t"), Destination("coordinator", "t", TRANSACTION)),
        (
            m.AddPartitionsToTxnRequest(transactions=(m.AddPartitionsToTxnTransaction(transactional_id="t"),)),
            Destination("coordinator", "t", TRANSACTION),
        ),
        (m.DescribeTransactionsRequest(transactional_ids=("t",)), Destination("coordinator", "t", TRANSACTION)),
        (
            m.ReadShareGroupStateRequest(
                group_id="g", topics=(m.ReadStateData(topic_id=TOPIC_ID, partitions=(m.ReadShareGroupStatePartitionData(partition=3),)),)
            ),
            Destination("coordinator", "g:AAECAwQFBgcICQoLDA0ODw:3", SHARE),
        ),
        (
            m.ListOffsetsRequest(topics=(m.ListOffsetsTopic(name="t", partitions=(m.ListOffsetsPartition(partition_index=4),)),)),
            Destination("leader", "t", 4),
        ),
        (
            m.DescribeProducersRequest(topics=(m.DescribeProducersTopicRequest(name="t", partition_indexes=(5,)),)),
            Destination("leader", "t", 5),
        ),
        (m.ProduceRequest(topic_data=(m.TopicProduceData(topic_id=TOPIC_ID),)), ANY),
        (
            m.DescribeConfigsRequest(resources=(m.DescribeConfigsResource(resource_type=4, resource_name="7"),)),
            Destination("node", number=7),
        ),
        (m.DescribeConfigsRequest(resources=(m.DescribeConfigsResource(resource_type=2, resource_name="7"),)), ANY),
    ],
    ids=lambda value: getattr(value, "NAME", None) or getattr(value, "kind", None),
)
def test_a_request_goes_where_it_belongs(message: Any, to: Destination) -> None:
    assert destination(message, Metadata()) == to


class Named(Metadata):
    """Knows the name of one id."""

    def name(self, topic_id: bytes) -> str | None:
        return "t" if topic_id == TOPIC_ID else None


@pytest.mark.parametrize(
    "message",
    [
        m.ProduceRequest(topic_data=(m.TopicProduceData(topic_id=TOPIC_ID, partition_data=(m.PartitionProduceData(index=3),)),)),
        m.FetchRequest(topics=(m.FetchTopic(topic="t", partitions=(m.FetchPartition(partition=3),)),)),
        m.DeleteRecordsRequest(topics=(m.DeleteRecordsTopic(name="t", partitions=(m.DeleteRecordsPartition(partition_index=3),)),)),
        m.OffsetForLeaderEpochRequest(topics=(m.OffsetForLeaderTopic(topic="t", partitions=(m.OffsetForLeaderPartition(partition=3),)),)),
        m.WriteTxnMarkersRequest(
            markers=(m.WritableTxnMarker(topics=(m.WritableTxnMarkerTopic(name="t", partition_indexes=(3,)),)),),
        ),
        m.AlterReplicaLogDirsRequest(dirs=(m.AlterReplicaLogDir(topics=(m.AlterReplicaLogDirTopic(name="t", partitions=(3,)),)),)),
        m.ShareFetchRequest(topics=(m.ShareFetchTopic(topic_id=TOPIC_ID, partitions=(m.ShareFetchPartition(partition_index=3),)),)),
        m.ShareAcknowledgeRequest(
            topics=(m.AcknowledgeTopic(topic_id=TOPIC_ID, partitions=(m.AcknowledgePartition(partition_index=3),)),),
        ),
    ],
    ids=lambda message: message.NAME,
)
def test_what_names_a_partition_goes_to_its_leader(message: Any) -> None:
    assert destination(message, Named()) == Destination("leader", "t", 3)


def test_a_request_is_passed_on_with_its_version_and_way() -> None:
    given: list[tuple[Any, ...]] = []

    def requesting(message: Any, until: float, **more: Any) -> None:
        given.append((message, until, more))

    client: Any = KafkaClient.__new__(KafkaClient)
    client.cluster = SimpleNamespace(requesting=requesting)
    steps = steps_of(client.request)
    assert steps is not None
    message, now = m.ListGroupsRequest(), time.monotonic()
    steps(message, timeout=1000.0, version=2, node=3)
    [(passed, until, more)] = given
    assert (passed, more) == (message, {"version": 2, "node": 3})
    assert now + 1000.0 <= until <= time.monotonic() + 1000.0
