"""Every command that a single broker and its name server answer, sent once by `client.request` to both broker lines; and what brokers ask.

The 61 codes of the protocol's public list, the others of 4.9, and those of 5.x. What a line does not serve is asserted as such: error 3,
or (4.9 name servers, which never answer an unknown code) a time-out. The outcome of each code is printed as a table.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import wireproto
from brokers import RocketMQ
from wireproto._codec import RocketBatchBuilder, decode_rocketmq
from wireproto._net import REQUESTS, Mailbox, Push
from wireproto.errors import TimedOut, WireprotoError
from wireproto.position import EARLIEST, LATEST
from wireproto.rocketmq import codes, fastjson, messages, remoting
from wireproto.rocketmq.bodies import SubscriptionData
from wireproto.rocketmq.client import RocketClient
from wireproto.rocketmq.cluster import Reply
from wireproto.rocketmq.codes import (
    DeleteAclConfigFailed,
    IllegalOperation,
    InvalidParameter,
    NoMessage,
    NoPermission,
    PullNotFound,
    RequestCodeNotSupported,
    ServerError,
    UpdateAndCreateAclConfigFailed,
    UpdateGlobalWhiteAddrsConfigFailed,
)
from wireproto.rocketmq.consumer import RocketConsumer
from wireproto.rocketmq.ids import OffsetId

SEED_CODES = {
    *(10, 11, 12, 14, 15, 17, 21, 25, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 45, 100, 101, 102, 105, 106),
    *(200, 201, 202, 203, 204, 205, 206, 208, 215, 216, 220, 221, 222, 223, 224, 300, 303, 304, 305, 306, 307, 308, 309, 315, 316, 317),
    *(318, 319, 320, 321, 322),
}
BROKERS_ONLY = {
    *(103, 104, 326, 902, 903, 905, 908),  # from broker to name server, client or broker; brokers in a container
    *range(1001, 1007), *range(1008, 1019),  # controllers
}  # fmt: skip
"""Sent elsewhere, or not by clients."""
OLD = RequestCodeNotSupported
_numbers = itertools.count()

pytestmark = pytest.mark.parametrize("broker", ["rocketmq-4.9.7", "rocketmq-5.5.0"], indirect=True)


@dataclass
class Ask:
    """One command: what it is sent with, what each line answers (None: success), and what must hold of a success."""

    message: Any
    body: Any = b""
    old: type[Exception] | None = None
    new: type[Exception] | None = None
    check: Callable[[Reply], Any] | None = None
    to: Any = None
    timeout: float = 20.0
    """For what is never answered; all else has 20 s."""


class Scene:
    """A topic with messages and a group with a member, and the commands that ask about them."""

    def __init__(self, client: RocketClient, broker: RocketMQ) -> None:
        self.client, self.broker = client, broker
        self.topic = f"Commands-{os.getpid()}-{next(_numbers)}"
        self.group = f"group-{self.topic}"
        self.address = f"127.0.0.1:{broker.broker_ports[0]}"
        self.queue = {"topic": self.topic, "queue_id": 1}
        self.now = int(time.time() * 1000)
        client.admin().create_topic(self.topic, partitions=4)
        with client.producer(self.topic) as producer:
            for number in range(12):
                producer.send(b"v%d" % number, key=b"k%d" % number, partition=number % 4)
            producer.flush()
        self.consumer: RocketConsumer = client.consumer(self.topic, self.group)
        seen = 0
        deadline = time.monotonic() + 30
        while seen < 12:
            assert time.monotonic() < deadline
            batch = self.consumer.poll(0.5)
            if batch is not None:
                seen += len(batch)
                self.consumer.commit()

    def send(self, number: int, **more: Any) -> dict[str, Any]:
        """The fields of a send."""
        unique = f"7F00000100000000000000000000{number:04X}"
        fields = {"producer_group": "senders", "topic": self.topic, "default_topic": "TBW102", "default_topic_queue_nums": 4, "queue_id": 1}
        fields |= {"sys_flag": 0, "born_timestamp": self.now, "flag": 0}
        properties = f"KEYS\x01kk\x02UNIQ_KEY\x01{unique}\x02{more.pop('properties', '')}"
        return {**fields, "properties": properties, **more}

    def pull(self, **more: Any) -> dict[str, Any]:
        fields = {"consumer_group": self.group, "queue_offset": 0, "max_msg_nums": 4, "sys_flag": 4, "commit_offset": 0}
        fields |= {"suspend_timeout_millis": 0, "subscription": "*", "sub_version": 0, "expression_type": "TAG"}
        return {**fields, **self.queue, **more}

    def shown(self) -> None:
        """Wait until queues and index hold all that was sent: a broker acknowledges first, and then writes them, in that order."""
        self.client.admin().positions(self.topic)


def values(reply: Reply) -> list[bytes | None]:
    """Bodies of the stored messages in a reply."""
    return decode_rocketmq([reply.body], topic="t", partition=0)[0].values()


def seed_commands(scene: Scene) -> Iterator[Ask]:
    """The 61 codes, in an order that lets later ones find what earlier ones made."""
    m, group, topic, queue, now = messages, scene.group, scene.topic, scene.queue, scene.now
    replies: list[Reply] = []
    yield Ask(m.SendMessageRequest(**scene.send(1)), b"body", check=lambda r: replies.append(r) or r.message.queue_offset == 3)
    stored = OffsetId.parse(replies[0].message.msg_id)
    builder = RocketBatchBuilder(1 << 20)
    for number in range(3):
        builder.append(b"b%d" % number, None, (), f"7F00000100000000000000000001{number:04X}")
    batch = m.SendBatchMessageRequest(**scene.send(2, batch=True, properties=""))
    yield Ask(batch, bytes(builder.finish()), check=lambda r: r.message.msg_id.count(",") == 2)
    scene.shown()
    yield Ask(m.PullMessageRequest(**scene.pull()), check=lambda r: values(r) == [b"v1", b"v5", b"v9", b"body"])
    search = m.QueryMessageRequest(topic=topic, key="kk", max_num=10, begin_timestamp=0, end_timestamp=now + 10**7)
    yield Ask(search, check=lambda r: b"body" in values(r))
    yield Ask(m.QueryConsumerOffsetRequest(consumer_group=group, **queue), check=lambda r: r.message.offset == 3)
    yield Ask(m.UpdateConsumerOffsetRequest(consumer_group=group, commit_offset=2, **queue))
    other = f"{topic}-b"
    create = m.UpdateAndCreateTopicRequest(topic=other, default_topic="TBW102", read_queue_nums=2, write_queue_nums=2, perm=6)
    yield Ask(create.replace(topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False))
    yield Ask(m.GetAllTopicConfigRequest(), check=lambda r: r.json()["topicConfigTable"][topic]["readQueueNums"] == 4)
    yield Ask(m.UpdateBrokerConfigRequest(), "flushDelayOffsetInterval=9000\n")
    yield Ask(m.GetBrokerRuntimeInfoRequest(), check=lambda r: r.json()["table"]["bootTimestamp"])
    yield Ask(m.SearchOffsetByTimestampRequest(timestamp=now - 10**6, **queue), check=lambda r: r.message.offset == 0)
    yield Ask(m.GetMaxOffsetRequest(**queue), check=lambda r: r.message.offset == 7)
    yield Ask(m.GetMinOffsetRequest(**queue), check=lambda r: r.message.offset == 0)
    yield Ask(m.GetEarliestMsgStoretimeRequest(**queue), check=lambda r: abs(r.message.timestamp - now) < 10**5)
    view = m.ViewMessageByIdRequest(offset=stored.offset, topic=topic)
    yield Ask(view, to=f"{stored.host}:{stored.port}", check=lambda r: values(r) == [b"body"])
    beat = {"clientID": "x@1", "producerDataSet": [{"groupName": "senders"}], "consumerDataSet": []}
    yield Ask(m.HeartBeatRequest(), beat, check=lambda r: r.message.is_support_heart_beat_v2 in (None, True))
    senders = m.GetProducerConnectionListRequest(producer_group="senders")
    yield Ask(senders, check=lambda r: r.json()["connectionSet"][0]["clientId"] == "x@1")
    yield Ask(m.UnregisterClientRequest(client_id="x@1", producer_group="senders"))
    yield Ask(m.ConsumerSendMsgBackRequest(offset=stored.offset, group=group, delay_level=1, origin_topic=topic, max_reconsume_times=3))
    prepared = m.SendMessageV2Request(**scene.send(3, sys_flag=4, properties="TRAN_MSG\x01true\x02PGROUP\x01pg\x02"))
    half = scene.client.request(prepared, body=b"half")
    end = m.EndTransactionRequest(producer_group="pg", tran_state_table_offset=half.message.queue_offset, commit_or_rollback=8, topic=topic)
    yield Ask(end.replace(commit_log_offset=OffsetId.parse(half.message.msg_id).offset, msg_id="7F000001000000000000000000000003"))
    members = m.GetConsumerListByGroupRequest(consumer_group=group)
    yield Ask(members, check=lambda r: r.json() == {"consumerIdList": [scene.consumer.member_id]})
    yield Ask(m.CheckTransactionStateRequest(tran_state_table_offset=0, commit_log_offset=0), old=OLD, new=OLD)
    yield Ask(m.NotifyConsumerIdsChangedRequest(consumer_group=group), old=OLD, new=OLD)
    lock = {"consumerGroup": "locks", "clientId": "a@1", "mqSet": [{"topic": topic, "brokerName": "broker-a", "queueId": 0}]}
    yield Ask(m.LockBatchMqRequest(), lock, check=lambda r: r.json()["lockOKMQSet"] == lock["mqSet"])
    yield Ask(m.UnlockBatchMqRequest(), lock)
    yield Ask(m.GetAllConsumerOffsetRequest(), check=lambda r: r.json()["offsetTable"][f"{topic}@{group}"]["1"] == 2)
    yield Ask(m.GetAllDelayOffsetRequest(), check=lambda r: "offsetTable" in r.json())
    yield Ask(m.PutKvConfigRequest(namespace="ns", key="k", value="v"))
    yield Ask(m.GetKvConfigRequest(namespace="ns", key="k"), check=lambda r: r.message.value == "v")
    yield Ask(m.DeleteKvConfigRequest(namespace="ns", key="k"))
    yield Ask(m.GetRouteInfoByTopicRequest(topic=topic), check=lambda r: r.json()["queueDatas"][0]["readQueueNums"] == 4)
    yield Ask(m.GetBrokerClusterInfoRequest(), check=lambda r: r.json()["brokerAddrTable"]["broker-a"]["brokerAddrs"]["0"])
    yield Ask(m.UpdateAndCreateSubscriptionGroupRequest(), {"groupName": f"{group}-b", "consumeEnable": True, "retryMaxTimes": 3})
    groups = m.GetAllSubscriptionGroupConfigRequest()
    yield Ask(groups, check=lambda r: r.json()["subscriptionGroupTable"][f"{group}-b"]["retryMaxTimes"] == 3)
    ends = m.GetTopicStatsInfoRequest(topic=topic)
    yield Ask(ends, check=lambda r: {queue["queueId"]: row["maxOffset"] for queue, row in r.json()["offsetTable"].items()}[0] == 3)
    online = m.GetConsumerConnectionListRequest(consumer_group=group)
    yield Ask(online, check=lambda r: r.json()["connectionSet"][0]["clientId"] == scene.consumer.member_id)
    yield Ask(m.WipeWritePermOfBrokerRequest(broker_name="broker-a"), check=lambda r: r.message.wipe_topic_count > 0)
    yield Ask(m.AddWritePermOfBrokerRequest(broker_name="broker-a"), check=lambda r: r.message.add_topic_count > 0)
    yield Ask(m.GetAllTopicListFromNameserverRequest(), check=lambda r: topic in r.json()["topicList"])
    stats = m.GetConsumeStatsRequest(consumer_group=group, topic=topic)
    yield Ask(stats, check=lambda r: {queue["queueId"] for queue in r.json()["offsetTable"]} == {0, 1, 2, 3})
    yield Ask(m.ResetConsumerClientOffsetRequest(topic=topic, group=group, timestamp=0, is_force=True), old=OLD, new=OLD)
    yield Ask(m.GetConsumerStatusFromClientRequest(topic=topic, group=group), old=OLD, new=OLD)
    reset = m.InvokeBrokerToResetOffsetRequest(topic=topic, group=group, timestamp=0, is_force=True)
    yield Ask(reset, check=lambda r: set(r.json()["offsetTable"].values()) == {0})
    status = m.InvokeBrokerToGetConsumerStatusRequest(topic=topic, group=group)
    yield Ask(status, check=lambda r: len(r.json()["consumerTable"][scene.consumer.member_id]) == 4)
    yield Ask(m.GetTopicsByClusterRequest(cluster="DefaultCluster"), check=lambda r: topic in r.json()["topicList"])
    yield Ask(m.QueryTopicConsumeByWhoRequest(topic=topic), check=lambda r: group in r.json()["groupList"])
    yield Ask(m.QueryConsumeTimeSpanRequest(topic=topic, group=group), check=lambda r: len(r.json()["consumeTimeSpanSet"]) == 4)
    yield Ask(m.GetSystemTopicListFromNsRequest(), check=lambda r: "broker-a" in r.json()["topicList"])
    yield Ask(m.GetSystemTopicListFromBrokerRequest(), check=lambda r: "BenchmarkTest" in r.json()["topicList"])
    yield Ask(m.CleanExpiredConsumequeueRequest())
    running = m.GetConsumerRunningInfoRequest(consumer_group=group, client_id=scene.consumer.member_id, jstack_enable=False)
    yield Ask(running, check=lambda r: len(r.json()["mqTable"]) >= 4, to="broker-a")
    correct = m.QueryCorrectionOffsetRequest(compare_group=group, topic=topic, filter_groups="")
    yield Ask(correct, check=lambda r: set(r.json()["correctionOffsets"]) == {"0", "1", "2", "3"})
    take = m.ConsumeMessageDirectlyRequest(consumer_group=group, client_id=scene.consumer.member_id, msg_id=str(stored), topic=topic)
    yield Ask(take, old=ServerError, new=ServerError)  # our own client's answer
    yield Ask(m.ViewBrokerStatsDataRequest(stats_name="TOPIC_PUT_NUMS", stats_key=topic), check=lambda r: "statsMinute" in r.json())
    yield Ask(m.CleanUnusedTopicRequest())
    yield Ask(m.GetBrokerConsumeStatsRequest(is_order=False), check=lambda r: any(group in row for row in r.json()["consumeStatsList"]))
    yield Ask(m.UpdateNamesrvConfigRequest(), "serverWorkerThreads=8\n")
    yield Ask(m.GetNamesrvConfigRequest(), check=lambda r: b"serverWorkerThreads=8" in r.body)
    index = m.QueryConsumeQueueRequest(consumer_group=group, index=0, count=3, **queue)
    yield Ask(index, check=lambda r: len(r.json()["queueData"]) == 3)
    version = m.QueryDataVersionRequest(broker_name="broker-a", broker_addr=scene.address, cluster_name="DefaultCluster", broker_id=0)
    yield Ask(version, {"counter": 1, "timestamp": 2}, check=lambda r: r.message.changed and "counter" in r.json())
    yield Ask(m.DeleteTopicInBrokerRequest(topic=other), to="broker-a")
    yield Ask(m.DeleteTopicInNamesrvRequest(topic=other))


def other_commands(scene: Scene) -> Iterator[Ask]:
    """What both lines have beside them, and what 4.9 alone has."""
    m, group, topic = messages, scene.group, scene.topic
    yield Ask(m.SendMessageV2Request(**scene.send(20)), b"v2", check=lambda r: r.message.msg_id)
    yield Ask(m.GetBrokerConfigRequest(), check=lambda r: b"brokerName=broker-a" in r.body and r.message.version)
    bad = {**SubscriptionData(topic).tree(), "expressionType": "SQL92", "subString": "a > 1"}
    yield Ask(m.CheckClientConfigRequest(), {"clientId": "a@1", "group": group, "subscriptionData": bad})
    yield Ask(m.GetKvListByNamespaceRequest(namespace="none"), old=codes.QueryNotFound, new=codes.QueryNotFound)
    yield Ask(m.ResumeCheckHalfMessageRequest(msg_id="7F000001000000000000000000000003", topic=topic), old=ServerError, new=ServerError)
    yield Ask(m.CloneGroupOffsetRequest(src_group=group, dest_group=f"{group}-c", topic=topic, offline=False))
    for kind in (m.GetUnitTopicListRequest, m.GetHasUnitSubTopicListRequest, m.GetHasUnitSubUnunitTopicListRequest):
        yield Ask(kind(), check=lambda r: r.json() == {"topicList": []})
    yield Ask(m.GetAllProducerInfoRequest(), check=lambda r: "data" in r.json())
    yield Ask(m.DeleteExpiredCommitlogRequest())
    answer = scene.send(21, queue_id=0, properties="CORRELATION_ID\x01c\x02REPLY_TO_CLIENT\x01nobody\x02MSG_TYPE\x01reply\x02")
    answer["topic"] = "DefaultCluster_REPLY_TOPIC"
    yield Ask(m.SendReplyMessageRequest(**answer), b"r", old=ServerError, new=ServerError)  # nobody is not connected
    yield Ask(m.SendReplyMessageV2Request(**answer), b"r", old=ServerError, new=ServerError)
    account = m.UpdateAndCreateAclConfigRequest(access_key="abcdefghi", secret_key="abcdefghi", admin=False)
    yield Ask(account, old=UpdateAndCreateAclConfigFailed, new=OLD)
    yield Ask(m.DeleteAclConfigRequest(access_key="abcdefghi"), old=DeleteAclConfigFailed, new=OLD)
    addresses = m.UpdateGlobalWhiteAddrsConfigRequest(global_white_addrs="1.1.1.1", acl_file_full_path="")
    yield Ask(addresses, old=UpdateGlobalWhiteAddrsConfigFailed, new=OLD)
    yield Ask(m.GetBrokerClusterAclInfoRequest(), old=TimedOut, new=OLD, timeout=2.0)  # without ACL a 4.9 broker never answers these two
    yield Ask(m.GetBrokerClusterAclConfigRequest(), old=TimedOut, new=OLD, timeout=2.0)
    for code in (13, 22, 23, 27, 47, 209, 210, 211, 212, 213, 214, 301, 302, 200072, 200073):
        yield Ask(getattr(m, codes.COMMANDS[code] + "Request")(), old=OLD, new=OLD)
    yield Ask(m.DeleteSubscriptionGroupRequest(group_name=f"{group}-b"), to="broker-a")


def newer_commands(scene: Scene) -> Iterator[Ask]:
    """What 5.x has."""
    m, group, topic = messages, scene.group, scene.topic
    config = {"topicName": f"{topic}-c", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    yield Ask(m.UpdateAndCreateTopicListRequest(), {"topicConfigList": [config]}, OLD)
    yield Ask(m.UpdateAndCreateSubscriptionGroupListRequest(), {"groupConfigList": [{"groupName": f"{group}-d"}]}, OLD)
    yield Ask(m.GetTimerCheckPointRequest(), old=OLD, check=lambda r: len(r.body) >= 32)
    yield Ask(m.GetTimerMetricsRequest(), old=OLD, check=lambda r: "timingCount" in r.json())
    yield Ask(m.QueryTopicsByConsumerRequest(group=group), old=OLD, check=lambda r: topic in r.json()["topicList"])
    subscription = m.QuerySubscriptionByConsumerRequest(group=group, topic=topic)
    yield Ask(subscription, old=OLD, check=lambda r: r.json()["subscriptionData"]["topic"] == topic)
    yield Ask(m.GetTopicConfigRequest(topic=topic), old=OLD, check=lambda r: r.json()["readQueueNums"] == 4)
    yield Ask(m.GetSubscriptiongroupConfigRequest(group=group), old=OLD, check=lambda r: r.json()["groupName"] == group)
    forbidden = m.UpdateAndGetGroupForbiddenRequest(group=group, topic=topic, readable=True)
    yield Ask(forbidden, old=OLD, check=lambda r: r.json()["readable"])
    yield Ask(m.CheckRocksdbCqWriteProgressRequest(topic=topic), old=OLD, check=lambda r: "checkStatus" in r.json())
    yield Ask(m.ExportRocksdbConfigToJsonRequest(config_type="topics;"), old=OLD)
    yield Ask(m.LitePullMessageRequest(**scene.pull(sys_flag=4 | 16)), old=OLD, check=lambda r: values(r)[:3] == [b"v1", b"v5", b"v9"])
    timer = scene.client.request(m.SendMessageV2Request(**scene.send(30, properties="TIMER_DELAY_SEC\x0160\x02")), body=b"timer")
    recall = m.RecallMessageRequest(topic=topic, recall_handle=timer.message.recall_handle or "none", producer_group="senders")
    yield Ask(recall, old=OLD, check=lambda r: r.message.msg_id.endswith("001E"))
    share = {"topic": topic, "consumerGroup": f"{group}-pop", "clientId": "a@1", "strategyName": "AVG", "messageModel": "CLUSTERING"}
    yield Ask(m.QueryAssignmentRequest(), share, OLD, check=lambda r: isinstance(r.json(), dict))
    mode = {"topic": topic, "consumerGroup": f"{group}-pop", "mode": "POP", "popShareQueueNum": 0}
    yield Ask(m.SetMessageRequestModeRequest(), mode, OLD)
    modes = m.GetAllMessageRequestModeRequest()
    yield Ask(modes, old=OLD, check=lambda r: r.json()["messageRequestModeMap"][topic][f"{group}-pop"]["mode"] == "POP")
    yield Ask(m.UpdateAndCreateStaticTopicRequest(), {}, OLD, InvalidParameter)
    brokers = m.GetBrokerMemberGroupRequest(cluster_name="DefaultCluster", broker_name="broker-a")
    yield Ask(brokers, old=TimedOut, timeout=2.0, check=lambda r: r.json()["brokerMemberGroup"]["brokerAddrs"]["0"])
    route = {"queueDatas": [{"brokerName": "broker-a", "perm": 6, "readQueueNums": 1, "writeQueueNums": 1, "topicSysFlag": 0}]}
    yield Ask(m.RegisterTopicInNamesrvRequest(topic=f"{topic}-r"), route, TimedOut, timeout=2.0)
    beat = m.BrokerHeartbeatRequest(cluster_name="DefaultCluster", broker_addr=scene.address, broker_name="broker-a", broker_id=0)
    yield Ask(beat, old=TimedOut, timeout=2.0)
    yield Ask(m.ExchangeBrokerHaInfoRequest(), old=OLD, check=lambda r: r.message.master_address == scene.address)
    yield Ask(m.GetBrokerHaStatusRequest(), old=OLD, check=lambda r: r.json()["master"])
    yield Ask(m.GetBrokerEpochCacheRequest(), old=OLD, new=ServerError)  # in controller mode only
    yield Ask(m.UpdateColdDataFlowCtrConfigRequest(), "g=1\n", OLD)
    yield Ask(m.GetColdDataFlowCtrInfoRequest(), old=OLD, check=lambda r: r.json()["configTable"]["g"] == 1)
    yield Ask(m.RemoveColdDataFlowCtrConfigRequest(), "g", OLD)
    yield Ask(m.SetCommitlogReadModeRequest(read_ahead_mode="0"), old=OLD)
    yield Ask(m.SwitchTimerEngineRequest(engine="F"), old=OLD)
    refused: dict[int, type[Exception]] = {3003: NoPermission, 3005: ServerError, 3006: ServerError, 3007: ServerError, 3008: NoPermission}
    refused |= {3009: NoPermission, 3010: ServerError}
    for code in range(3001, 3011):  # without authentication in its settings the broker has nothing to keep users in
        yield Ask(getattr(m, codes.COMMANDS[code] + "Request")(), old=OLD, new=refused.get(code, InvalidParameter))
    yield from pop_commands(scene)
    yield Ask(m.GetBrokerLiteInfoRequest(), old=OLD, check=lambda r: "currentLmqNum" in r.json())
    lite = m.PopLiteMessageRequest(client_id="c", consumer_group=group, topic=topic, max_msg_num=1, invisible_time=10_000)
    yield Ask(lite.replace(born_time=int(time.time() * 1000)), old=OLD, new=InvalidParameter)  # no lite topic
    yield Ask(m.LiteSubscriptionCtlRequest(), {"subscriptionSet": []}, OLD, IllegalOperation)
    yield Ask(m.GetParentTopicInfoRequest(topic=topic), old=OLD, new=InvalidParameter)
    yield Ask(m.GetLiteTopicInfoRequest(parent_topic=topic, lite_topic="l"), old=OLD, new=InvalidParameter)
    yield Ask(m.GetLiteClientInfoRequest(parent_topic=topic, group=group, client_id="c", max_count=5), old=OLD, new=InvalidParameter)
    yield Ask(m.GetLiteGroupInfoRequest(group=group, top_k=3), old=OLD, new=InvalidParameter)
    yield Ask(m.TriggerLiteDispatchRequest(group=group, client_id="c"), old=OLD, new=InvalidParameter)


def pop_commands(scene: Scene) -> Iterator[Ask]:
    m, group, topic = messages, f"{scene.group}-popped", scene.topic
    popped: list[Reply] = []
    pop = m.PopMessageRequest(consumer_group=group, topic=topic, queue_id=-1, max_msg_nums=1, invisible_time=20_000, poll_time=0)
    pop = pop.replace(born_time=int(time.time() * 1000), init_mode=0, exp_type="TAG", exp="*", order=False)
    yield Ask(pop, old=OLD, check=lambda r: popped.append(r) or len(values(r)) == 1)
    queue_id, offset, extra = 0, 0, "x"
    if popped:
        fields = popped[0].message
        _, place, check_point = fields.start_offset_info.split(";")[0].split(" ")
        queue_id, offset = int(place), int(fields.msg_offset_info.split(";")[0].split(" ")[2].split(",")[0])
        extra = f"{check_point} {fields.pop_time} {fields.invisible_time} {fields.revive_qid} 0 broker-a {queue_id} {offset}"
    later: list[Reply] = []
    change = m.ChangeMessageInvisibleTimeRequest(consumer_group=group, topic=topic, queue_id=queue_id, extra_info=extra, offset=offset)
    yield Ask(change.replace(invisible_time=30_000), old=OLD, check=lambda r: later.append(r) or r.message.pop_time > 0)
    if later:
        fields = later[0].message
        extra = f"{offset} {fields.pop_time} {fields.invisible_time} {fields.revive_qid} 0 broker-a {queue_id} {offset}"
    yield Ask(m.AckMessageRequest(consumer_group=group, topic=topic, queue_id=queue_id, extra_info=extra, offset=offset), old=OLD)
    yield Ask(m.BatchAckMessageRequest(), {"brokerName": "broker-a", "acks": []}, OLD, NoMessage)
    yield Ask(m.PeekMessageRequest(topic=topic, queue_id=0, max_msg_nums=1, consumer_group=scene.group), old=OLD, new=PullNotFound)
    notify = m.NotificationRequest(consumer_group=group, topic=topic, queue_id=-1, poll_time=0, born_time=int(time.time() * 1000))
    yield Ask(notify, old=OLD, check=lambda r: r.message.has_msg is True)
    yield Ask(m.PollingInfoRequest(consumer_group=group, topic=topic, queue_id=0), old=OLD, check=lambda r: r.message.polling_num == 0)
    yield Ask(m.PopRollbackRequest(), old=OLD)


def outcome(client: RocketClient, ask: Ask, old_line: bool) -> tuple[str, str]:
    """What came of it, and what is wrong with that, if anything."""
    expected = ask.old if old_line else ask.new
    try:
        reply = client.request(ask.message, body=ask.body, to=ask.to, timeout=ask.timeout if expected is TimedOut else Ask.timeout)
    except WireprotoError as error:
        found = type(error).__name__
        return found, "" if expected is not None and isinstance(error, expected) else str(error)
    if expected is not None:
        return "answered", f"answered, expected {expected.__name__}"
    answer = getattr(type(ask.message), "RESPONSE", None)
    if answer is not None and type(reply.message) is not answer:
        return "answered", f"a reply of type {type(reply.message).__name__}"
    try:
        problem = "" if ask.check is None or ask.check(reply) else "not what was expected"
    except Exception as error:
        problem = f"{type(error).__name__} {error}"
    return "answered", problem and f"{problem} in {reply.message} {reply.body[:200]!r}"


@pytest.mark.parametrize("header", ["json", "binary"])
def test_every_command_is_answered_as_its_line_does(
    broker: RocketMQ, header: str, oracle: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    table: dict[int, str] = {}
    problems: list[str] = []
    old_line = broker.version.startswith("4.")
    with broker.timers(), wireproto.connect(broker.url, header=header) as client:
        assert isinstance(client, RocketClient)
        scene = Scene(client, broker)
        for commands in (seed_commands, other_commands, newer_commands):
            for ask in commands(scene):
                code = type(ask.message).CODE
                table[code], problem = outcome(client, ask, old_line)
                if problem:
                    problems.append(f"{code} {codes.COMMANDS[code]}: {problem}")
        scene.consumer.close()
    with capsys.disabled():
        print(f"\nRocketMQ {broker.version}, {header} header:")
        for found in sorted(set(table.values())):
            print(f"  {found}: {' '.join(str(code) for code in sorted(table) if table[code] == found)}")
    assert not problems, "\n".join(problems)
    assert len(SEED_CODES) == 61
    assert table.keys() >= SEED_CODES
    assert set(codes.COMMANDS) - table.keys() == BROKERS_ONLY
    answered = sum(found == "answered" for found in table.values())
    oracle(f"live RocketMQ {broker.version}", commands=len(table), answered=answered, refused_as_that_line_does=len(table) - answered)


def test_one_way_commands_are_carried_out(broker: RocketMQ) -> None:
    with wireproto.connect(broker.url) as client:
        topic, group = f"OneWay-{os.getpid()}-{next(_numbers)}", "one-way"
        client.admin().create_topic(topic, partitions=2)
        client.request(messages.UpdateAndCreateSubscriptionGroupRequest(), body={"groupName": group})  # 5.x asks for it
        message = messages.UpdateConsumerOffsetRequest(consumer_group=group, topic=topic, queue_id=1, commit_offset=77)
        assert client.request(message, one_way=True, to=(topic, 1)).message is None
        asked = messages.QueryConsumerOffsetRequest(consumer_group=group, topic=topic, queue_id=1)
        deadline = time.monotonic() + 20
        offset = -1
        while offset != 77:
            assert time.monotonic() < deadline
            with contextlib.suppress(codes.QueryNotFound):  # not carried out yet
                offset = client.request(asked).message.offset
            client.cluster.pause(0.05)


@pytest.mark.parametrize("header", ["json", "binary"])
def test_an_administrator_sets_a_group_back_under_its_members(broker: RocketMQ, header: str) -> None:
    """222 makes the broker send 220 to the member, whose records come again and whose old positions are not committed over the new."""
    with wireproto.connect(broker.url, header=header) as client:
        scene = Scene(client, broker)
        reset = messages.InvokeBrokerToResetOffsetRequest(topic=scene.topic, group=scene.group, timestamp=0, is_force=True)
        client.request(reset)
        again: list[bytes | None] = []
        deadline = time.monotonic() + 30
        while len(again) < 12:
            assert time.monotonic() < deadline, again
            batch = scene.consumer.poll(0.5)
            again += batch.values() if batch is not None else []
        assert sorted(value for value in again if value) == sorted(b"v%d" % number for number in range(12))
        scene.consumer.commit()
        assert {position.offset for position in scene.consumer.committed().values()} == {3}  # type: ignore[attr-defined]
        scene.consumer.close()


def test_a_broker_asks_what_became_of_a_transaction(broker: RocketMQ) -> None:
    """39, provoked by a half message that nobody ends; answered with 37, after which the message is there to read."""
    with wireproto.connect(broker.url) as client:
        scene = Scene(client, broker)
        group = f"senders-{scene.topic}"
        drive, until = client.cluster.drive, client.deadline(10.0)
        conn = drive(client.cluster.connecting(scene.address, until, "transactions"), until)
        box = Mailbox(client.loop)
        conn.route(REQUESTS, box)
        beat = {"clientID": "tx@1", "producerDataSet": [{"groupName": group}], "consumerDataSet": []}
        half = messages.SendMessageV2Request(**scene.send(40, sys_flag=4, properties=f"TRAN_MSG\x01true\x02PGROUP\x01{group}\x02"))
        client.request(half, body=b"half")
        deadline = time.monotonic() + 60
        found = None
        while found is None:
            assert time.monotonic() < deadline, "the broker did not ask"
            body = fastjson.dumps(beat)
            beating = client.cluster.invoking(scene.address, messages.HeartBeatRequest(), body, until=deadline, purpose="transactions")
            drive(beating, deadline)
            item = box.get(time.monotonic() + 2.0)
            found = item if isinstance(item, Push) else None
        command = remoting.decode(found.frame)
        asked = messages.CheckTransactionStateRequest.from_ext(command.ext)
        assert command.code == asked.CODE == 39
        assert values(Reply(None, bytes(command.body), 0, None, ""))[0] == b"half"
        end = messages.EndTransactionRequest(
            producer_group=group,
            tran_state_table_offset=asked.tran_state_table_offset,
            commit_log_offset=asked.commit_log_offset,
            commit_or_rollback=8,
            from_transaction_check=True,
            msg_id=asked.msg_id,
            transaction_id=asked.transaction_id,
            topic=scene.topic,
        )
        client.request(end, to=scene.address)
        with client.reader(scene.topic, start=EARLIEST, stop=LATEST) as reader:
            assert b"half" in [value for batch in reader for value in batch.values()]
        box.close()
        scene.consumer.close()


def test_a_broker_hands_on_the_answer_to_a_request_message(broker: RocketMQ) -> None:
    """324 and 325 make the broker send 326 to the client that is named, and pass on whether that took it."""
    with wireproto.connect(broker.url) as client:
        scene = Scene(client, broker)
        taken: list[remoting.Command] = []

        def take(item: object) -> None:
            assert isinstance(item, Push)
            command = remoting.decode(item.frame)
            taken.append(command)
            item.conn.send(remoting.Command(0, command.opaque, flag=remoting.RESPONSE, serializer=command.serializer).encode())

        deadline = client.deadline(30.0)
        box = Mailbox(client.loop, handler=take)
        drive = client.cluster.drive
        drive(client.cluster.connecting(scene.address, deadline, "waiting"), deadline).route(REQUESTS, box)
        beat = {"clientID": "waiting@1", "producerDataSet": [{"groupName": "askers"}], "consumerDataSet": []}
        body = fastjson.dumps(beat)
        drive(client.cluster.invoking(scene.address, messages.HeartBeatRequest(), body, until=deadline, purpose="waiting"), deadline)
        words = "CORRELATION_ID\x01c7\x02REPLY_TO_CLIENT\x01waiting@1\x02MSG_TYPE\x01reply\x02"
        for kind in (messages.SendReplyMessageRequest, messages.SendReplyMessageV2Request):
            fields = scene.send(70, queue_id=0, properties=words) | {"topic": "DefaultCluster_REPLY_TOPIC"}
            assert client.request(kind(**fields), body=b"the answer").code == 0
            command = taken.pop()
            pushed = messages.PushReplyMessageToClientRequest.from_ext(command.ext)
            assert command.code == pushed.CODE == 326
            assert bytes(command.body) == b"the answer"
            assert pushed.topic == "DefaultCluster_REPLY_TOPIC"
            assert "CORRELATION_ID\x01c7" in (pushed.properties or "").split("\x02")
            assert pushed.store_timestamp > 0
        box.close()
        scene.consumer.close()


def test_a_consumer_reads_what_its_group_gave_back(broker: RocketMQ) -> None:
    """36 of any member puts a copy into the group's retry topic, which the Consumer reads and commits like its own."""
    with wireproto.connect(broker.url) as client:
        scene = Scene(client, broker)
        reply = client.request(messages.SendMessageV2Request(**scene.send(50)), body=b"again")
        stored = OffsetId.parse(reply.message.msg_id)
        back = messages.ConsumerSendMsgBackRequest(offset=stored.offset, group=scene.group, delay_level=1, origin_topic=scene.topic)
        client.request(back.replace(max_reconsume_times=3))
        seen: list[tuple[str, bytes | None]] = []
        deadline = time.monotonic() + 90
        while len(seen) < 2:
            assert time.monotonic() < deadline, seen
            batch = scene.consumer.poll(0.5)
            if batch is not None:
                seen += [(batch.topic, value) for value in batch.values()]
                scene.consumer.commit()
        retry = f"%RETRY%{scene.group}"
        assert sorted(seen) == [(retry, b"again"), (scene.topic, b"again")]
        assert {topic for topic, _ in scene.consumer.assignment} == {scene.topic}
        committed = messages.QueryConsumerOffsetRequest(consumer_group=scene.group, topic=retry, queue_id=0)
        assert client.request(committed).message.offset == 1
        scene.consumer.close()


def test_queues_that_are_added_are_read_by_open_consumers(broker: RocketMQ) -> None:
    with wireproto.connect(broker.url, route_age=1.0, rebalance_interval=1.0) as client:
        scene = Scene(client, broker)
        assert len(scene.consumer.assignment) == 4
        grow = messages.UpdateAndCreateTopicRequest(topic=scene.topic, default_topic="TBW102", read_queue_nums=6, write_queue_nums=6)
        client.request(grow.replace(perm=6, topic_filter_type="SINGLE_TAG", topic_sys_flag=0, order=False))
        deadline = time.monotonic() + 60
        while len(scene.consumer.assignment) < 6:
            assert time.monotonic() < deadline
            scene.consumer.poll(0.5)
        client.request(messages.SendMessageV2Request(**scene.send(60, queue_id=5)), body=b"new queue")
        while (batch := scene.consumer.poll(0.5)) is None or batch.values() != [b"new queue"]:
            assert time.monotonic() < deadline
        assert batch.partition == 5
        scene.consumer.close()
