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
from wireproto import EARLIEST, LATEST, AtTime, LogOffset
from wireproto.devbroker import DevBroker
from wireproto.kafka.messages import (
    CreatePartitionsRequest,
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from wireproto.kafka.messages.create_partitions import CreatePartitionsTopic
from wireproto.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from wireproto.kafka.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from wireproto.kafka.messages.offset_fetch import OffsetFetchRequestTopic

BEGAN = 1_700_000_000_000
BROKERS = ["kafka-4.3.1"]


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
        topic, count = self._topic(), self.chance.choice([1, 2, 3, 0, -2])
        return False, lambda client: client.admin().create_topic(topic, partitions=count, timeout=SECONDS), f"{topic!r}, {count}"

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


def beside(broker: Broker, count: int, chance: random.Random, prefix: str) -> None:
    """So many calls on both."""
    with (
        DevBroker(["kafka"], auto_create=False) as dev,
        wireproto.connect(broker.url, timeout=SECONDS, topic_patience=0.1) as real,
        wireproto.connect(dev.url("kafka"), timeout=SECONDS, topic_patience=0.1) as ours,
    ):
        compare(real, ours, KafkaCalls(chance, prefix), count)


@pytest.mark.parametrize("broker", BROKERS, indirect=True)
@pytest.mark.parametrize("chosen", [7])
def test_the_embedded_broker_answers_as_the_real_one_does(broker: Broker, chosen: int) -> None:
    beside(broker, 100, random.Random(chosen), f"alike-{chosen}")


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_the_embedded_broker_answers_as_the_real_one_does_for_long(broker: Broker) -> None:
    beside(broker, 10_000, random.Random(seed()), f"alike-long-{seed()}")
