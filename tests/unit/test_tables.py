"""Tables of codes and names that decide where a request goes and what its answer means, against lists of names written here by hand."""

from __future__ import annotations

from typing import Any

import pytest

from wireproto.kafka import messages as k
from wireproto.kafka import routing
from wireproto.kafka.metadata import Metadata
from wireproto.net import debug
from wireproto.rocketmq import admin, remoting, requests
from wireproto.rocketmq import messages as r
from wireproto.zookeeper import lists, request
from wireproto.zookeeper import messages as z
from wireproto.zookeeper.codes import OPERATIONS

CONTROLLER = """CreateTopics DeleteTopics CreatePartitions ElectLeaders AlterPartitionReassignments ListPartitionReassignments
    AlterUserScramCredentials UpdateFeatures UnregisterBroker"""
GROUP = """OffsetCommit OffsetFetch JoinGroup Heartbeat LeaveGroup SyncGroup DescribeGroups TxnOffsetCommit DeleteGroups OffsetDelete
    ConsumerGroupHeartbeat ConsumerGroupDescribe ShareGroupHeartbeat ShareGroupDescribe StreamsGroupHeartbeat StreamsGroupDescribe
    DescribeShareGroupOffsets AlterShareGroupOffsets DeleteShareGroupOffsets"""
TRANSACTION = "InitProducerId AddPartitionsToTxn AddOffsetsToTxn EndTxn DescribeTransactions"
SHARE = "InitializeShareGroupState ReadShareGroupState WriteShareGroupState DeleteShareGroupState ReadShareGroupStateSummary"
LEADER = """Produce Fetch ListOffsets DeleteRecords OffsetForLeaderEpoch WriteTxnMarkers AlterReplicaLogDirs DescribeProducers ShareFetch
    ShareAcknowledge"""
NAMED = {"group_id": "g", "groups_names": ("g",), "group_ids": ("g",), "groups": ("g",)}
TRANSACTIONS = {"transactional_id": "t", "v3_and_below_transactional_id": "t", "transactional_ids": ("t",)}


def made(name: str, values: dict[str, Any]) -> Any:
    """The request with those of these values that it has fields for."""
    cls = getattr(k, f"{name}Request")
    fields = {field[0] if isinstance(field, tuple) else field.name for field in cls.FIELDS}
    return cls(**{key: value for key, value in values.items() if key in fields})


def kafka_requests() -> list[str]:
    names = [name.removesuffix("Request") for name in dir(k) if name.endswith("Request")]
    return [name for name in names if hasattr(getattr(k, f"{name}Request"), "API_KEY")]


def test_changes_of_a_kafka_cluster_go_to_its_controller() -> None:
    found = {name for name in kafka_requests() if routing.destination(made(name, {}), Metadata()).kind == "controller"}
    assert found == set(CONTROLLER.split())


def test_what_names_a_kafka_group_or_transaction_goes_to_its_coordinator() -> None:
    for names, values, name, kind in ((GROUP, NAMED, "g", 0), (TRANSACTION, TRANSACTIONS, "t", 1)):
        for one in names.split():
            message = made(one, values | ({"groups": (k.OffsetFetchRequestGroup(group_id="g"),)} if one == "OffsetFetch" else {}))
            if one in ("DescribeShareGroupOffsets",):
                message = k.DescribeShareGroupOffsetsRequest(groups=(k.DescribeShareGroupOffsetsRequestGroup(group_id="g"),))
            assert routing.destination(message, Metadata()) == ("coordinator", name, kind), one


def test_a_share_groups_state_goes_to_the_coordinator_of_its_partition() -> None:
    topic_id = bytes(16)
    kinds = {
        "InitializeShareGroupState": (k.InitializeStateData, k.InitializeShareGroupStatePartitionData),
        "ReadShareGroupState": (k.ReadStateData, k.ReadShareGroupStatePartitionData),
        "WriteShareGroupState": (k.WriteStateData, k.WriteShareGroupStatePartitionData),
        "DeleteShareGroupState": (k.DeleteStateData, k.DeleteShareGroupStatePartitionData),
        "ReadShareGroupStateSummary": (k.ReadStateSummaryData, k.ReadShareGroupStateSummaryPartitionData),
    }
    assert set(kinds) == set(SHARE.split())
    for name, (topic, part) in kinds.items():
        message = getattr(k, f"{name}Request")(group_id="g", topics=(topic(topic_id=topic_id, partitions=(part(partition=3),)),))
        assert routing.destination(message, Metadata()) == ("coordinator", "g:AAAAAAAAAAAAAAAAAAAAAA:3", 2), name
        assert routing.destination(getattr(k, f"{name}Request")(group_id="g", topics=()), Metadata()).kind == "any"


LEADERS = [
    k.ProduceRequest(topic_data=(k.TopicProduceData(name="t", partition_data=(k.PartitionProduceData(index=4),)),)),
    k.FetchRequest(topics=(k.FetchTopic(topic="t", partitions=(k.FetchPartition(partition=4),)),)),
    k.ListOffsetsRequest(topics=(k.ListOffsetsTopic(name="t", partitions=(k.ListOffsetsPartition(partition_index=4),)),)),
    k.DeleteRecordsRequest(topics=(k.DeleteRecordsTopic(name="t", partitions=(k.DeleteRecordsPartition(partition_index=4),)),)),
    k.OffsetForLeaderEpochRequest(topics=(k.OffsetForLeaderTopic(topic="t", partitions=(k.OffsetForLeaderPartition(partition=4),)),)),
    k.WriteTxnMarkersRequest(markers=(k.WritableTxnMarker(topics=(k.WritableTxnMarkerTopic(name="t", partition_indexes=(4,)),)),)),
    k.AlterReplicaLogDirsRequest(dirs=(k.AlterReplicaLogDir(path="/x", topics=(k.AlterReplicaLogDirTopic(name="t", partitions=(4,)),)),)),
    k.DescribeProducersRequest(topics=(k.DescribeProducersTopicRequest(name="t", partition_indexes=(4,)),)),
]


@pytest.mark.parametrize("message", LEADERS, ids=lambda message: message.NAME)
def test_what_is_asked_of_a_log_goes_to_its_leader(message: Any) -> None:
    assert routing.destination(message, Metadata()) == ("leader", "t", 4)


def test_every_kafka_request_has_been_thought_of() -> None:
    known = set(" ".join((CONTROLLER, GROUP, TRANSACTION, SHARE, LEADER)).split())
    known |= {"DescribeConfigs", "AlterConfigs", "IncrementalAlterConfigs"}
    for name in set(kafka_requests()) - known:
        assert routing.destination(made(name, NAMED | TRANSACTIONS), Metadata()) == routing.ANY, name


@pytest.mark.parametrize("kind", ["DescribeConfigs", "AlterConfigs", "IncrementalAlterConfigs"])
def test_a_brokers_own_settings_are_its_own_affair(kind: str) -> None:
    cls = getattr(k, f"{kind}Request")
    resource = getattr(k, {"IncrementalAlterConfigs": "AlterConfigsResource"}.get(kind, f"{kind}Resource"))
    for number, to in ((4, ("node", "", 7)), (8, ("node", "", 7)), (2, routing.ANY)):
        assert routing.destination(cls(resources=(resource(resource_type=number, resource_name="7"),)), Metadata()) == to
    assert routing.destination(cls(resources=(resource(resource_type=4, resource_name=""),)), Metadata()) == routing.ANY
    two = (resource(resource_type=2, resource_name="t"), resource(resource_type=4, resource_name="5"))
    assert routing.destination(cls(resources=two), Metadata()) == ("node", "", 5)


NAME_SERVER = """PutKvConfig GetKvConfig DeleteKvConfig RegisterBroker UnregisterBroker GetRouteInfoByTopic GetBrokerClusterInfo
    WipeWritePermOfBroker GetAllTopicListFromNameserver DeleteTopicInNamesrv RegisterTopicInNamesrv GetKvListByNamespace GetTopicsByCluster
    GetSystemTopicListFromNs GetUnitTopicList GetHasUnitSubTopicList GetHasUnitSubUnunitTopicList UpdateNamesrvConfig GetNamesrvConfig
    QueryDataVersion AddWritePermOfBroker GetBrokerMemberGroup BrokerHeartbeat"""
ANSWERS = {
    "SendMessage SendMessageV2 SendBatchMessage SendReplyMessage SendReplyMessageV2": {10, 11, 12},
    "PullMessage LitePullMessage": {19, 20, 21},
    "PopMessage PopLiteMessage": {210},
}


def test_which_rocketmq_commands_name_servers_answer() -> None:
    commands = [one for one in vars(r).values() if isinstance(one, type) and hasattr(one, "CODE")]
    assert len(commands) > 150
    assert {one.NAME.removesuffix("Request") for one in commands if one.SENT_TO == "name_server"} == set(NAME_SERVER.split())
    assert {one.SENT_TO for one in commands} == {"name_server", "broker"}


def test_which_rocketmq_codes_are_answers_and_no_errors() -> None:
    wanted = {getattr(r, f"{name}Request").CODE: codes for names, codes in ANSWERS.items() for name in names.split()}
    assert wanted == requests.ANSWERS
    assert {10, 11, 12} == remoting.SEND_WARNINGS
    assert {19, 20, 21} == remoting.PULL_ANSWERS


@pytest.mark.parametrize(
    "remark",
    ["org.AclException: x", "Check signature failed", "No accessKey", "check signature failed for x", "the username cannot be null"],
)
def test_an_acl_refusal_of_an_old_rocketmq_broker_is_told_by_its_remark(remark: str) -> None:
    from wireproto._codec import RemotingCommand
    from wireproto.errors import AuthError

    for code in (1, 16):
        reply = RemotingCommand(code, 1, flag=1, remark=remark)
        assert isinstance(remoting.error_of(reply), AuthError)
    assert not isinstance(remoting.error_of(RemotingCommand(2, 1, flag=1, remark=remark)), AuthError)
    assert not isinstance(remoting.error_of(RemotingCommand(1, 1, flag=1, remark="boom")), AuthError)


def test_rocketmqs_own_topics_groups_and_settings() -> None:
    own = "TBW102 SELF_TEST_TOPIC OFFSET_MOVED_EVENT SCHEDULE_TOPIC_XXXX BenchmarkTest"
    own += " TRANS_CHECK_MAX_TIME_TOPIC wheel_timer CHECKPOINT_TOPIC"
    assert set(own.split()) == admin.SYSTEM_TOPICS
    assert {"perm", "order", "attributes"} == admin.CONFIG


def test_which_zookeeper_operations_may_be_sent_twice() -> None:
    reads = "exists getData getACL getChildren getChildren2 sync getEphemerals getAllChildrenNumber whoAmI multiRead checkWatches addWatch"
    assert set(reads.split()) == request._READS
    assert set(OPERATIONS) >= request._READS
    assert set(request._OWN) == {"createSession", "closeSession", "notification", "error"}


STAT = z.Stat(czxid=1, version=3)
OPERATIONS_OF_MULTIS: dict[int, tuple[Any, Any]] = {
    1: (z.CreateRequest(path="/a", data=b"1", acl=(), flags=0), z.CreateResponse(path="/a")),
    2: (z.DeleteRequest(path="/a", version=3), None),
    4: (z.GetDataRequest(path="/a", watch=False), z.GetDataResponse(data=b"1", stat=STAT)),
    5: (z.SetDataRequest(path="/a", data=b"1", version=3), z.SetDataResponse(stat=STAT)),
    8: (z.GetChildrenRequest(path="/a", watch=False), z.GetChildrenResponse(children=("x",))),
    13: (z.CheckVersionRequest(path="/a", version=3), None),
    15: (z.CreateRequest(path="/a", data=b"1", acl=(), flags=0), z.Create2Response(path="/a", stat=STAT)),
    19: (z.CreateRequest(path="/a", data=b"1", acl=(), flags=4), z.Create2Response(path="/a", stat=STAT)),
    21: (z.CreateTTLRequest(path="/a", data=b"1", acl=(), flags=5, ttl=9), z.Create2Response(path="/a", stat=STAT)),
}


@pytest.mark.parametrize("code", OPERATIONS_OF_MULTIS)
def test_each_operation_of_a_zookeeper_multi_there_and_back(code: int) -> None:
    record, result = OPERATIONS_OF_MULTIS[code]
    asked = lists.MultiRequest(((code, record),))
    assert lists.MultiRequest.decode(asked.encode()).operations == ((code, record),)
    assert asked.reads is (code in (4, 8))
    told = lists.MultiResponse(((code, result), (-1, z.ErrorResponse(err=-101))))
    assert lists.MultiResponse.decode(told.encode()) == told
    assert told.errors == (0, -101)
    assert told.encode().count((-101).to_bytes(4, "big", signed=True)) == 2, "an error stands in the header and in the record"
    assert set(OPERATIONS_OF_MULTIS) == set(lists.REQUESTS)
    assert set(OPERATIONS_OF_MULTIS) | {-1} == set(lists.RESULTS)


def test_a_multi_of_reads_and_writes_is_no_read() -> None:
    records = [OPERATIONS_OF_MULTIS[code][0] for code in (4, 5)]
    assert not lists.MultiRequest(records).reads
    assert not lists.MultiRequest(()).reads


@pytest.mark.parametrize("first", [0x14, 0x15, 0x16, 0x17])
def test_tls_is_told_by_its_first_byte(first: int) -> None:
    assert "TLS" in debug.describe_first_bytes(bytes([first, 3, 3, 0, 2]))
