"""Where a request goes, by what it names."""

from __future__ import annotations

from typing import Any

import pytest

from wireproto.kafka import messages as m
from wireproto.kafka.metadata import Metadata
from wireproto.kafka.routing import ANY, GROUP, SHARE, TRANSACTION, Destination, destination

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
