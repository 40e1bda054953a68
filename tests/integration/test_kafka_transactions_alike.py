"""Transactions of the embedded Kafka beside a real one's: the same random requests on both, in both protocols, by names that several lives
have; what they answer is compared, and what readers of committed records see.

How: see alike.py. Producer ids are compared by who got them when; CONCURRENT_TRANSACTIONS is asked again, as real brokers write markers a
moment later.
"""

from __future__ import annotations

import random
import time
from typing import Any

import pytest

import wireproto
from brokers import Kafka
from chance import seed
from integration.alike import SECONDS, Calls, Kind, compare
from patience import until
from wireproto import LATEST
from wireproto._codec import KafkaBatchBuilder
from wireproto.devbroker import DevBroker
from wireproto.kafka import messages as m

BUSY = (14, 15, 16, 19, 51)
"""Codes that are asked again."""
BROKERS = ["kafka-4.3.1-transactions", "kafka-4.3.1-level-1"]


class TransactionCalls(Calls):
    """Attributes:
    level: of the cluster. versions: of Produce, TxnOffsetCommit and EndTxn that are asked in, mostly those of the level.
    """

    def __init__(self, chance: random.Random, prefix: str, level: int) -> None:
        super().__init__(chance, prefix)
        self.level = level
        self._ids: dict[Any, list[int]] = {}  # producer ids, in the order in which a client was told of them
        self._now: dict[Any, dict[str, tuple[int, int]]] = {}  # the newest identity of each name
        self._next: dict[Any, dict[tuple[int, int, int], int]] = {}  # sequence by producer id, epoch, partition
        self._sent = 0

    def _name(self) -> str:
        return f"{self.prefix}-{self.chance.choice(('x', 'x', 'x', 'y'))}"

    def _by_level(self) -> bool:
        """Whether a request is of level 2."""
        return (self.level == 2) is (self.chance.random() < 0.9)

    def _back(self) -> int:
        """So many epochs before the newest one."""
        return self.chance.choice((0, 0, 0, 0, 0, 0, 1, 2, -1))

    def _asked_of(self, client: Any, name: str, back: int) -> tuple[int, int]:
        producer, epoch = self._now.setdefault(client, {}).get(name, (1 << 40, 0))
        return producer, max(0, epoch - back)

    def _told(self, client: Any, name: str, producer: int, epoch: int) -> tuple[int, int]:
        ids = self._ids.setdefault(client, [])
        if producer < 0:
            return -1, epoch
        if producer not in ids:
            ids.append(producer)
        self._now.setdefault(client, {})[name] = (producer, epoch)
        return ids.index(producer), epoch

    def do_init(self) -> Kind:
        name, version, back = self._name(), self.chance.choice((2, 4, 5)), self.chance.choice((None, None, 0, 0, 1, 2))

        def init(client: Any) -> Any:
            known = self._asked_of(client, name, back or 0) if back is not None and version >= 3 else (-1, -1)
            message = m.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=600_000)
            if version >= 3:
                message = message.replace(producer_id=known[0], producer_epoch=known[1])
            reply = asked(client, message, version, lambda found: found.error_code, transaction=name)
            return reply.error_code, self._told(client, name, reply.producer_id, reply.producer_epoch)

        return False, init, f"{name!r}, v{version}, {back}"

    def do_add(self) -> Kind:
        name, back, parts = self._name(), self._back(), self.chance.choice(((0,), (1,), (0, 1), (0, 7)))

        def add(client: Any) -> Any:
            producer, epoch = self._asked_of(client, name, back)
            topic = m.AddPartitionsToTxnTopic(name=self.prefix, partitions=parts)
            message = m.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=producer,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=(topic,),
            )

            def codes(reply: Any) -> list[int]:
                return [part.partition_error_code for each in reply.results_by_topic_v3_and_below for part in each.results_by_partition]

            return sorted(codes(asked(client, message, 3, lambda reply: max(codes(reply)), transaction=name)))

        return False, add, f"{name!r}, {back}, {parts}"

    def do_send(self) -> Kind:
        name, back, partition = self._name(), self._back(), self.chance.choice((0, 1))
        version, gap = 12 if self._by_level() else 11, self.chance.choice((0, 0, 0, 0, 0, 3))
        self._sent += 1
        value = b"%d" % self._sent

        def send(client: Any) -> Any:
            producer, epoch = self._asked_of(client, name, back)
            key = (producer, epoch, partition)
            sequence = self._next.setdefault(client, {}).get(key, 0) + gap
            builder = KafkaBatchBuilder()
            builder.append(value, None, (), 1_700_000_000_000)
            part = m.PartitionProduceData(index=partition, records=builder.finish(producer, epoch, sequence, transactional=True))
            topic = m.TopicProduceData(name=self.prefix, partition_data=(part,))
            message = m.ProduceRequest(transactional_id=name, acks=-1, timeout_ms=5000, topic_data=(topic,))
            reply = asked(client, message, version, lambda found: found.responses[0].partition_responses[0].error_code)
            code = reply.responses[0].partition_responses[0].error_code
            if not code:
                self._next[client][key] = sequence + 1
            return code

        return False, send, f"{name!r}, {back}, {partition}, v{version}, +{gap}"

    def do_end(self) -> Kind:
        name, back, commit, version = self._name(), self._back(), self.chance.random() < 0.6, 5 if self._by_level() else 4

        def end(client: Any) -> Any:
            producer, epoch = self._asked_of(client, name, back)
            message = m.EndTxnRequest(transactional_id=name, producer_id=producer, producer_epoch=epoch, committed=commit)
            reply = asked(client, message, version, lambda found: found.error_code, transaction=name)
            if not reply.error_code:
                until(lambda: not self._ending(client, name), "its markers are not written")
            if reply.error_code or version < 5:
                return reply.error_code
            return self._told(client, name, reply.producer_id, reply.producer_epoch)

        return False, end, f"{name!r}, {back}, {'commit' if commit else 'abort'}, v{version}"

    def _ending(self, client: Any, name: str) -> bool:
        """Its markers are on their way: what is sent now may still become part of it (level 1)."""
        return bool(client.admin().describe_transactions([name], timeout=SECONDS)[name].state.startswith("Prepare"))

    def do_commit_offsets(self) -> Kind:
        name, back, version, offset = self._name(), self._back(), 5 if self._by_level() else 4, self.chance.choice((1, 2, 3))
        adds = version < 5 and self.chance.random() < 0.8

        def commit(client: Any) -> Any:
            producer, epoch = self._asked_of(client, name, back)
            group = f"g-{self.prefix}"
            added = None
            if adds:
                joining = m.AddOffsetsToTxnRequest(transactional_id=name, producer_id=producer, producer_epoch=epoch, group_id=group)
                added = asked(client, joining, 3, lambda reply: reply.error_code, transaction=name).error_code
            part = m.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=None)
            message = m.TxnOffsetCommitRequest(
                transactional_id=name,
                group_id=group,
                producer_id=producer,
                producer_epoch=epoch,
                topics=(m.TxnOffsetCommitRequestTopic(name=self.prefix, partitions=(part,)),),
            )
            reply = asked(client, message, version, lambda found: found.topics[0].partitions[0].error_code, group=group)
            return added, reply.topics[0].partitions[0].error_code

        return False, commit, f"{name!r}, {back}, {offset}, v{version}, {adds}"

    def do_look_at_offsets(self) -> Kind:
        stable = self.chance.random() < 0.5

        def look(client: Any) -> Any:
            topic = m.OffsetFetchRequestTopic(name=self.prefix, partition_indexes=(0,))
            message = m.OffsetFetchRequest(group_id=f"g-{self.prefix}", topics=(topic,), require_stable=stable)
            reply = client.request(message, version=7, group=message.group_id)
            return [(one.committed_offset, one.error_code) for one in reply.topics[0].partitions]

        return True, look, f"{stable}"

    def do_read(self) -> Kind:
        def read(client: Any) -> Any:
            with client.reader(self.prefix, stop=LATEST) as reader:
                return sorted((record.partition, record.position.offset, record.value) for batch in reader for record in batch)

        return True, read, ""

    def do_describe(self) -> Kind:
        name = self._name()

        def describe(client: Any) -> Any:
            (one,) = client.admin().describe_transactions([name], timeout=SECONDS).values()
            ids = self._ids.setdefault(client, [])
            place = ids.index(one.producer_id) if one.producer_id in ids else None
            parts = sorted(part for topic, part in one.partitions if topic == self.prefix)
            return one.state, place, one.producer_epoch, one.timeout, parts

        return True, describe, f"{name!r}"

    def do_look_at_producers(self) -> Kind:
        def producers(client: Any) -> Any:
            ids = self._ids.setdefault(client, [])
            return {
                key: sorted(
                    (ids.index(one.producer_id), one.producer_epoch, one.last_sequence, one.coordinator_epoch, one.transaction_start)
                    for one in some
                    if one.producer_id in ids
                )
                for key, some in client.admin().describe_producers(self.prefix, timeout=SECONDS).items()
            }

        return True, producers, ""


def asked(client: Any, message: Any, version: int, code: Any, **to: Any) -> Any:
    """The answer, once nothing is in its way."""
    deadline = time.monotonic() + SECONDS
    while True:
        reply = client.request(message, version=version, timeout=SECONDS, **to)
        if code(reply) not in BUSY or time.monotonic() > deadline:
            return reply


def beside(broker: Kafka, count: int, calls: TransactionCalls) -> None:
    """So many calls on both."""
    with (
        DevBroker(["kafka"], auto_create=False) as dev,
        wireproto.connect(broker.url, timeout=SECONDS) as real,
        wireproto.connect(dev.url("kafka"), timeout=SECONDS) as ours,
    ):
        dev.call("kafka", "speak_transactions", calls.level)
        for client in (real, ours):
            client.admin().create_topic(calls.prefix, partitions=2)
        loaded = m.OffsetFetchRequest(group_id=f"g-{calls.prefix}", topics=())
        until(lambda: real.request(loaded, version=6).error_code == 0, "the coordinator is loaded")
        compare(real, ours, calls, count)


@pytest.mark.parametrize("broker", BROKERS, indirect=True)
@pytest.mark.parametrize("chosen", [1, 2, 3])
def test_the_embedded_broker_answers_as_the_real_one_does(broker: Kafka, chosen: int) -> None:
    level = 1 if broker.features else 2
    beside(broker, 200, TransactionCalls(random.Random(chosen), f"alike-{level}-{chosen}", level))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("broker", BROKERS, indirect=True)
def test_the_embedded_broker_answers_as_the_real_one_does_for_long(broker: Kafka) -> None:
    level = 1 if broker.features else 2
    beside(broker, 5_000, TransactionCalls(random.Random(seed()), f"alike-long-{level}-{seed()}", level))
