"""The embedded Kafka beside a real one: the same random calls on both, by clients of their own; what they answer is compared.

How: see alike.py. WIREPROTO_SEED chooses the calls of the long form; those of the short one are always the same.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

import wireproto
from brokers import Broker
from chance import seed
from integration.alike import SECONDS, Calls, Kind, compare
from patience import until
from wireproto import EARLIEST, LATEST, AtTime, LogOffset
from wireproto.devbroker import DevBroker
from wireproto.kafka.messages import (
    CreatePartitionsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from wireproto.kafka.messages.create_partitions import CreatePartitionsTopic
from wireproto.kafka.messages.join_group import JoinGroupRequestProtocol
from wireproto.kafka.messages.leave_group import MemberIdentity
from wireproto.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from wireproto.kafka.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from wireproto.kafka.messages.offset_fetch import OffsetFetchRequestTopic
from wireproto.kafka.messages.sync_group import SyncGroupRequestAssignment

BEGAN = 1_700_000_000_000
BROKERS = ["kafka-4.3.1"]
CONFIGS: list[dict[str, str]] = [
    *({} for _ in range(5)),
    {"retention.ms": "100000000000"},
    {"retention.ms": "-1", "preallocate": "false"},
    {"retention.ms": "long"},
    {"bogus.config": "3"},
    {"cleanup.policy": "compact,delete"},
    {"cleanup.policy": "none"},
    {"compression.type": "zstd"},
    {"compression.type": "rar"},
    {"unclean.leader.election.enable": "maybe"},
    {"message.timestamp.type": "CreateTime", "min.cleanable.dirty.ratio": "0.4"},
]


class KafkaCalls(Calls):
    def __init__(self, chance: random.Random, prefix: str) -> None:
        super().__init__(chance, prefix)
        self._time = BEGAN

    def _topic(self) -> str:
        odd = ["a/b", "..", "x" * 250, f"{self.prefix}-none", ""]
        return self.chance.choice(odd) if self.chance.random() < 0.1 else self.chance.choice(self.names)

    def _partition(self) -> int:
        return self.chance.choice([0, 0, 0, 1, 2, 7])

    def do_create(self) -> Kind:
        topic, count, config = self._topic(), self.chance.choice([1, 2, 3, 0, -2]), self.chance.choice(CONFIGS)

        def create(client: Any) -> Any:
            return client.admin().create_topic(topic, partitions=count, config=config, timeout=SECONDS)

        return False, create, f"{topic!r}, {count}, {config}"

    def do_delete(self) -> Kind:
        topic = self._topic()
        return False, lambda client: client.admin().delete_topic(topic, timeout=SECONDS), repr(topic)

    def do_describe(self) -> Kind:
        topic = self._topic()
        return True, lambda client: len(client.admin().describe_topic(topic, timeout=3.0).partitions), repr(topic)

    def do_list(self) -> Kind:
        return True, lambda client: [name for name in client.admin().list_topics(timeout=SECONDS) if name.startswith(self.prefix)], ""

    def do_produce(self) -> Kind:
        topic, count = self.chance.choice(self.names), self.chance.choice([1, 1, 2, 30])
        partition, self._time = self._partition(), self._time + 1000
        times = [self._time + self.chance.choice([0, 1, 5, -500]) for _ in range(count)]
        headers = self.chance.choice([(), (("h", b"v"),), (("h", None),)])
        key = self.chance.choice([None, b"", b"k"])

        def produce(client: Any) -> Any:
            with client.producer(topic, timeout=3.0) as out:
                sent = [out.send(b"%d" % at, key=key, headers=headers, timestamp=at, partition=partition) for at in times]
                return [receipt.position(SECONDS).offset for receipt in sent]

        return False, produce, f"{topic!r}, {partition}, {count}"

    def do_read(self) -> Kind:
        topic = self.chance.choice(self.names)
        place = LogOffset(topic, 0, self.chance.choice([0, 1, 5, 10**6]))
        start = self.chance.choice([EARLIEST, LATEST, AtTime(self._time - 3000), place])

        def read(client: Any) -> Any:
            with client.reader(topic, start=start, stop=LATEST, timeout=3.0) as reader:
                found = [record for batch in reader for record in batch]
            return sorted((one.partition, one.position.offset, one.timestamp, one.key, one.value, one.headers) for one in found)

        return True, read, f"{topic!r}, {start!r}"

    def do_places(self) -> Kind:
        topic, at = self._topic(), self.chance.choice([EARLIEST, LATEST, AtTime(0), AtTime(self._time - 2000), AtTime(self._time + 10**6)])

        def places(client: Any) -> Any:
            return {key: place.offset for key, place in client.admin().positions(topic, at, timeout=3.0).items()}

        return True, places, f"{topic!r}, {at!r}"

    def do_offsets(self) -> Kind:
        topic, partition, at = self._topic(), self._partition(), self.chance.choice([-1, -2, -3, -4, 0, self._time, self._time + 10**6])
        part = ListOffsetsPartition(partition_index=partition, timestamp=at)

        def offsets(client: Any) -> Any:
            message = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name=topic, partitions=(part,)),))
            (answer,) = client.request(message, version=7, any=True).topics
            return [(one.error_code, one.offset, one.timestamp) for one in answer.partitions]

        return True, offsets, f"{topic!r}, {partition}, {at}"

    def do_grow(self) -> Kind:
        topic, count = self._topic(), self.chance.choice([1, 2, 3, 4, 0])

        def grow(client: Any) -> Any:
            message = CreatePartitionsRequest(topics=(CreatePartitionsTopic(name=topic, count=count, assignments=None),), timeout_ms=10_000)
            return [one.error_code for one in client.request(message, controller=True).results]

        return False, grow, f"{topic!r}, {count}"

    def do_commit(self) -> Kind:
        topic, partition, group = self._topic(), self._partition(), f"{self.prefix}-{self.chance.choice('ab')}"
        offset, generation = self.chance.choice([0, 5, 10**6]), self.chance.choice([-1, -1, -1, 3])
        part = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata=None)

        def commit(client: Any) -> Any:
            message = OffsetCommitRequest(
                group_id=group, generation_id_or_member_epoch=generation, topics=(OffsetCommitRequestTopic(name=topic, partitions=(part,)),)
            )
            (answer,) = client.request(message, version=7).topics
            return [one.error_code for one in answer.partitions]

        return False, commit, f"{topic!r}, {partition}, {group!r}, {offset}, {generation}"

    def do_committed(self) -> Kind:
        topic, partition, group = self._topic(), self._partition(), f"{self.prefix}-{self.chance.choice('abc')}"

        def committed(client: Any) -> Any:
            message = OffsetFetchRequest(group_id=group, topics=(OffsetFetchRequestTopic(name=topic, partition_indexes=(partition,)),))
            reply = client.request(message, version=6)
            return reply.error_code, [(one.committed_offset, one.error_code) for answer in reply.topics for one in answer.partitions]

        return True, committed, f"{topic!r}, {partition}, {group!r}"


class StaticCalls(Calls):
    """Members of one group by static names, one in it at a time, so that no join waits for another; their ids are said by who got them."""

    def __init__(self, chance: random.Random, prefix: str) -> None:
        super().__init__(chance, prefix)
        self._ids: dict[Any, dict[str, str]] = {}
        self._newest = 0

    def _generation(self) -> int:
        return self._newest - self.chance.choice([0, 0, 0, 0, 1])

    def _name(self, client: Any, said: str) -> str:
        """What a client calls the member that `said` stands for: as many have been told of this name."""
        return self._ids.setdefault(client, {"": "", "who": "who"}).get(said, "never-told")

    def _told(self, client: Any, member_id: str) -> str:
        names = self._ids.setdefault(client, {"": "", "who": "who"})
        known = next((said for said, found in names.items() if found == member_id), None)
        if known is None:
            known = f"m{len(names)}"
            names[known] = member_id
        return known

    def _member(self) -> tuple[str, str | None]:
        newest = max((len(names) for names in self._ids.values()), default=2) - 1
        said = self.chance.choice(["", "", "who", f"m{newest}", f"m{newest}", f"m{newest - 1}"])
        return said, self.chance.choice(["one", "one", "one", "two", None])

    def do_join(self) -> Kind:
        said, instance = self._member()
        instance = "one" if said == "" else instance
        protocols = self.chance.choice([("range",), ("range",), ("range",), ("range", "other"), ("other",)])
        version = self.chance.choice([5, 7, 9])

        def join(client: Any) -> Any:
            message = JoinGroupRequest(
                group_id=f"{self.prefix}-static",
                session_timeout_ms=60_000,
                rebalance_timeout_ms=60_000,
                member_id=self._name(client, said),
                group_instance_id=instance,
                protocol_type="consumer",
                protocols=tuple(JoinGroupRequestProtocol(name=name, metadata=name.encode()) for name in protocols),
            )
            reply = client.request(message, version=version, group=message.group_id, timeout=SECONDS)
            who = self._told(client, reply.member_id)
            if reply.error_code:
                return reply.error_code, who
            members = sorted((self._told(client, one.member_id), one.group_instance_id, one.metadata) for one in reply.members)
            leader = self._told(client, reply.leader)
            self._newest = reply.generation_id
            return who, reply.generation_id, reply.protocol_type, reply.protocol_name, leader, reply.skip_assignment, members

        return False, join, f"{said!r}, {instance!r}, {protocols}, v{version}"

    def do_sync(self) -> Kind:
        (said, instance), generation = self._member(), self._generation()

        def sync(client: Any) -> Any:
            member_id = self._name(client, said)
            message = SyncGroupRequest(
                group_id=f"{self.prefix}-static",
                generation_id=generation,
                member_id=member_id,
                group_instance_id=instance,
                assignments=(SyncGroupRequestAssignment(member_id=member_id, assignment=said.encode()),),
            )
            reply = client.request(message, version=3, group=message.group_id)
            return reply.error_code, reply.assignment

        return False, sync, f"{said!r}, {instance!r}, {generation}"

    def do_beat(self) -> Kind:
        (said, instance), generation = self._member(), self._generation()

        def beat(client: Any) -> Any:
            message = HeartbeatRequest(
                group_id=f"{self.prefix}-static", generation_id=generation, member_id=self._name(client, said), group_instance_id=instance
            )
            return client.request(message, version=3, group=message.group_id).error_code

        return False, beat, f"{said!r}, {instance!r}, {generation}"

    def do_leave(self) -> Kind:
        said, instance = self._member()

        def leave(client: Any) -> Any:
            member = MemberIdentity(member_id=self._name(client, said), group_instance_id=instance)
            message = LeaveGroupRequest(group_id=f"{self.prefix}-static", members=(member,))
            reply = client.request(message, version=3, group=message.group_id)
            return reply.error_code, [(one.group_instance_id, one.error_code) for one in reply.members]

        return False, leave, f"{said!r}, {instance!r}"


def beside(broker: Broker, count: int, calls: Calls) -> None:
    """So many calls on both."""
    with (
        DevBroker(["kafka"], auto_create=False) as dev,
        wireproto.connect(broker.url, timeout=SECONDS, unknown_topic_timeout=0.1) as real,
        wireproto.connect(dev.url("kafka"), timeout=SECONDS, unknown_topic_timeout=0.1) as ours,
    ):
        loaded = OffsetFetchRequest(group_id=f"{calls.prefix}-static", topics=())
        until(lambda: real.request(loaded, version=6).error_code == 0, "the coordinator is loaded")
        compare(real, ours, calls, count)


@pytest.mark.parametrize("broker", BROKERS, indirect=True)
@pytest.mark.parametrize("chosen", [7])
def test_the_embedded_broker_answers_as_the_real_one_does(broker: Broker, chosen: int) -> None:
    beside(broker, 100, KafkaCalls(random.Random(chosen), f"alike-{chosen}"))


@pytest.mark.parametrize("broker", BROKERS, indirect=True)
@pytest.mark.parametrize("chosen", [1, 2, 3])
def test_the_embedded_broker_keeps_static_names_as_the_real_one_does(broker: Broker, chosen: int) -> None:
    beside(broker, 100, StaticCalls(random.Random(chosen), f"alike-static-{chosen}"))


@pytest.mark.soak
@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_the_embedded_broker_keeps_static_names_as_the_real_one_does_for_long(broker: Broker) -> None:
    beside(broker, 3_000, StaticCalls(random.Random(seed()), f"alike-static-long-{seed()}"))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_the_embedded_broker_answers_as_the_real_one_does_for_long(broker: Broker) -> None:
    beside(broker, 10_000, KafkaCalls(random.Random(seed()), f"alike-long-{seed()}"))
