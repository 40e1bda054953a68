"""Three embedded nodes of Kafka beside three real ones: what each of them answers about a partition that one of them leads.

How: the same topics are made on both, each copy where it is wanted; the leader moves once; then both are asked the same at each node,
in several versions, under epochs that are over, of now and to come.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

import wireproto
from brokers import Broker
from patience import until
from wireproto._codec import KafkaBatchBuilder
from wireproto.devbroker import DevBroker
from wireproto.kafka import messages as m

SECONDS = 30.0
MOVED, SINGLE = "moved", "single"
COPIES = {MOVED: (1, 2, 3), SINGLE: (2,)}
Answers = dict[tuple[Any, ...], Any]


def batch() -> bytes:
    builder = KafkaBatchBuilder()
    builder.append(b"x", None, (), 1)
    return bytes(builder.finish())


class Cluster:
    """One of the two, and what it is asked. `prefix`: of its topics' names."""

    def __init__(self, client: Any, prefix: str) -> None:
        self.client, self.prefix = client, prefix

    def ask(self, message: Any, node: int, version: int | None = None) -> Any:
        return self.client.request(message, node=node, version=version, timeout=SECONDS)

    def make(self) -> None:
        """The topics, known to each node."""
        config = (m.CreatableTopicConfig(name="min.insync.replicas", value="1"),)
        for name, nodes in COPIES.items():
            place = m.CreatableReplicaAssignment(partition_index=0, broker_ids=nodes)
            topic = m.CreatableTopic(
                name=self.prefix + name, num_partitions=-1, replication_factor=-1, assignments=(place,), configs=config
            )
            reply = self.client.request(m.CreateTopicsRequest(timeout_ms=10_000, topics=(topic,)), controller=True)
            assert [one.error_code for one in reply.topics] == [0]
            self.led(name, nodes[0], 0)

    def led(self, name: str, leader: int, epoch: int) -> None:
        """Wait until each node says so."""
        for node in (1, 2, 3):
            until(partial(self.says, name, node, (0, leader, epoch)), f"{name} of {leader} at {node}")

    def says(self, name: str, node: int, what: tuple[int, int, int]) -> bool:
        return self.told(name, node) == [what]

    def told(self, name: str, node: int) -> list[tuple[int, int, int]]:
        (topic,) = self.ask(m.MetadataRequest(topics=(m.MetadataRequestTopic(name=self.prefix + name),)), node, 9).topics
        return [(one.error_code, one.leader_id, one.leader_epoch) for one in topic.partitions]

    def produce(self, name: str, node: int, version: int) -> tuple[Any, ...]:
        part = m.PartitionProduceData(index=0, records=batch())
        topic = m.TopicProduceData(name=self.prefix + name, partition_data=(part,))
        reply = self.ask(m.ProduceRequest(acks=1, timeout_ms=3000, topic_data=(topic,)), node, version)
        (told,) = reply.responses[0].partition_responses
        leader = told.current_leader
        endpoints = [one.node_id for one in reply.node_endpoints]
        return told.error_code, told.base_offset, told.log_start_offset, leader.leader_id, leader.leader_epoch, endpoints

    def fill(self, leader: int, name: str = MOVED) -> None:
        """One record, as soon as that node leads by its own account."""
        until(lambda: self.produce(name, leader, 9)[0] == 0)

    def fetch(self, name: str, node: int, version: int, epoch: int) -> tuple[Any, ...]:
        part = m.FetchPartition(partition=0, fetch_offset=0, current_leader_epoch=epoch, partition_max_bytes=1 << 20)
        message = m.FetchRequest(max_wait_ms=1, max_bytes=1 << 20, topics=(m.FetchTopic(topic=self.prefix + name, partitions=(part,)),))
        told = self.ask(message, node, version).responses[0].partitions[0]
        return told.error_code, told.high_watermark, told.last_stable_offset, told.log_start_offset, len(told.records or b"")

    def offsets(self, name: str, node: int, version: int, epoch: int, replica: int) -> tuple[Any, ...]:
        part = m.ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=epoch)
        topic = m.ListOffsetsTopic(name=self.prefix + name, partitions=(part,))
        told = self.ask(m.ListOffsetsRequest(replica_id=replica, topics=(topic,)), node, version).topics[0].partitions[0]
        return told.error_code, told.offset, told.timestamp, told.leader_epoch

    def epoch_end(self, name: str, node: int, version: int, epoch: int, of: int) -> tuple[Any, ...]:
        part = m.OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=of)
        topic = m.OffsetForLeaderTopic(topic=self.prefix + name, partitions=(part,))
        told = self.ask(m.OffsetForLeaderEpochRequest(replica_id=-1, topics=(topic,)), node, version).topics[0].partitions[0]
        return told.error_code, told.leader_epoch, told.end_offset

    def answers(self) -> Answers:
        """All of them; what is asked of who leads comes to a state that both have."""
        found: Answers = {}
        for name, node, epoch in itertools.product(COPIES, (1, 2, 3), (-1, 0, 1, 2)):
            for version in (4, 10, 11, 12) if epoch == -1 else (10, 11, 12):
                found["Fetch", name, node, version, epoch] = self.fetch(name, node, version, epoch)
            for version, replica in itertools.product((1, 4, 7) if epoch == -1 else (4, 7), (-1, -2)):
                found["ListOffsets", name, node, version, epoch, replica] = self.offsets(name, node, version, epoch, replica)
            for version, of in itertools.product((2, 4), (-1, 0, 1, 2)):
                found["OffsetForLeaderEpoch", name, node, version, epoch, of] = self.epoch_end(name, node, version, epoch, of)
        for name, node, version in itertools.product((*COPIES, "none"), (1, 3), (3, 9, 10, 11)):
            found["Produce", name, node, version] = self.produce(name, node, version)
        return found

    def group_answers(self) -> Answers:
        """Of a group's coordinator, and of the two others."""
        group = f"{self.prefix}group"
        find = m.FindCoordinatorRequest(coordinator_keys=(group,), key_type=0)
        until(lambda: self.ask(find, 1, 4).coordinators[0].error_code == 0)
        mine = self.ask(find, 1, 4).coordinators[0].node_id
        loaded = m.OffsetFetchRequest(group_id=group, topics=())
        until(lambda: self.ask(loaded, mine, 7).error_code == 0, "the coordinator is loaded")
        commit = m.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        questions: dict[str, tuple[Any, int, Callable[[Any], Any]]] = {
            "Heartbeat": (m.HeartbeatRequest(group_id=group, generation_id=1, member_id="who"), 4, lambda told: told.error_code),
            "LeaveGroup": (
                m.LeaveGroupRequest(group_id=group, members=(m.MemberIdentity(member_id="who"),)),
                5,
                lambda told: (told.error_code, [one.error_code for one in told.members]),
            ),
            "JoinGroup": (
                m.JoinGroupRequest(
                    group_id=group,
                    session_timeout_ms=6000,
                    rebalance_timeout_ms=6000,
                    member_id="who",
                    protocol_type="consumer",
                    protocols=(m.JoinGroupRequestProtocol(name="range", metadata=b""),),
                ),
                9,
                lambda told: (told.error_code, told.member_id),
            ),
            "DescribeGroups": (m.DescribeGroupsRequest(groups=(group,)), 5, lambda told: [one.error_code for one in told.groups]),
        }
        for name in (MOVED, "none"):
            topic = m.OffsetCommitRequestTopic(name=self.prefix + name, partitions=(commit,))
            asked = m.OffsetFetchRequestTopic(name=self.prefix + name, partition_indexes=(0,))
            questions[f"OffsetCommit {name}"] = (
                m.OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, topics=(topic,)),
                8,
                lambda told: told.topics[0].partitions[0].error_code,
            )
            for version in (1, 7):
                questions[f"OffsetFetch {name} {version}"] = (
                    m.OffsetFetchRequest(group_id=group, topics=(asked,)),
                    version,
                    lambda told: (told.error_code, [one.partitions[0].error_code for one in told.topics]),
                )
        found: Answers = {}
        for node, (name, (message, version, said)) in itertools.product((1, 2, 3), questions.items()):
            place = "coordinator" if node == mine else "another"
            found.setdefault((name, place), said(self.ask(message, node, version)))
        return found


def move_real(cluster: Cluster) -> None:
    """Node 2 becomes the preferred one, and is elected."""
    name = cluster.prefix + MOVED
    part = m.ReassignablePartition(partition_index=0, replicas=(2, 1, 3))
    message = m.AlterPartitionReassignmentsRequest(timeout_ms=10_000, topics=(m.ReassignableTopic(name=name, partitions=(part,)),))
    assert cluster.client.request(message, controller=True).error_code == 0
    elect = m.ElectLeadersRequest(
        election_type=0, timeout_ms=10_000, topic_partitions=(m.ElectLeadersTopicPartitions(topic=name, partitions=(0,)),)
    )
    until(lambda: cluster.client.request(elect, controller=True) and cluster.told(MOVED, 1) == [(0, 2, 1)], "node 2 is elected")


def caught_up(cluster: Cluster) -> bool:
    return [cluster.fetch(MOVED, node, 12, 1)[1] for node in (1, 2, 3)] == [2, 2, 2]


@pytest.fixture
def pair(broker: Broker) -> Iterator[tuple[Cluster, Cluster, DevBroker]]:
    prefix = f"nodes-{next(_numbers)}-"
    with (
        DevBroker(["kafka"], auto_create=False, nodes={"kafka.nodes": 3}) as dev,
        wireproto.connect(broker.url, timeout=SECONDS) as real,
        wireproto.connect(dev.url("kafka"), timeout=SECONDS) as ours,
    ):
        yield Cluster(real, prefix), Cluster(ours, prefix), dev


_numbers = itertools.count()


@pytest.mark.parametrize("broker", ["kafka-4.3.1-cluster"], indirect=True)
def test_embedded_nodes_answer_as_real_ones_whoever_leads_or_coordinates(pair: tuple[Cluster, Cluster, DevBroker]) -> None:
    real, ours, dev = pair
    for cluster in (real, ours):
        cluster.make()
        cluster.fill(1)
    move_real(real)
    assert dev.call("kafka", "move_leader", ours.prefix + MOVED, 0, 2) == 2
    for cluster in (real, ours):
        cluster.led(MOVED, 2, 1)
        cluster.fill(2)
        until(partial(caught_up, cluster), "copies have caught up")
    theirs, mine = real.answers(), ours.answers()
    assert {key: (told, mine[key]) for key, told in theirs.items() if told != mine[key]} == {}
    assert {told[0] for told in mine.values()} == {0, 3, 6, 74, 75}
    assert real.group_answers() == ours.group_answers()
