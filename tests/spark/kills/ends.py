"""The logs at both ends of a job, through clients that are not ours: librdkafka and pulsar-client.

An end is read twice: while the job runs, to see how far it is, and once more from the beginning when all is through, by a new client.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import confluent_kafka
import confluent_kafka.admin

import pulsar
from brokers import Kafka, Pulsar

from . import records
from .records import Judge

PARTITIONS = 4
SECONDS = 60.0


def attached(broker: Kafka | Pulsar, topic: str) -> int:
    """Producers and subscriptions that a Pulsar broker has on the topic's partitions; Kafka's brokers know of none."""
    if isinstance(broker, Kafka):
        return 0
    paths = [f"/admin/v2/persistent/public/default/{topic}-partition-{number}/stats" for number in range(PARTITIONS)]
    stats = [json.loads(broker.call("GET", path)) for path in paths]
    return sum(len(one["publishers"]) + len(one["subscriptions"]) for one in stats)


class Sight(Protocol):
    """A target as it is read."""

    def look(self, judge: Judge, timeout: float) -> bool:
        """Give the judge what has come, waiting at most `timeout` seconds for a first record; whether any came."""

    def end(self, topic: str, partition: int) -> int:
        """Where another log of that broker ends, what is not committed included."""

    def close(self) -> None: ...

    @property
    def open_ones(self) -> bool:
        """Whether it sees records whose transactions are open."""
        ...


def fill(kafka: Kafka, topic: str, total: int) -> None:
    """The input: `total` records over the partitions, each key in one of them."""
    make(kafka, topic)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True, "linger.ms": 20, "queue.buffering.max.messages": 500_000}
    )
    for number in range(total):
        while True:
            try:
                producer.produce(topic, records.value(number), records.key(number), number % records.KEYS % PARTITIONS)
                break
            except BufferError:
                producer.poll(1)
    assert producer.flush(SECONDS) == 0


def make(kafka: Kafka, topic: str, partitions: int = PARTITIONS, **config: str) -> None:
    """A topic, unless it is there."""
    client = confluent_kafka.admin.AdminClient({"bootstrap.servers": kafka.bootstrap})
    if topic in client.list_topics(timeout=SECONDS).topics:
        return
    for outcome in client.create_topics([confluent_kafka.admin.NewTopic(topic, partitions, 1, config=config)]).values():
        outcome.result(SECONDS)


def make_pulsar(broker: Pulsar, topic: str) -> None:
    """A partitioned topic of PARTITIONS partitions."""
    broker.call("PUT", f"/admin/v2/persistent/public/default/{topic}/partitions", PARTITIONS)


class KafkaSight:
    """A Kafka topic, all partitions from their beginning."""

    def __init__(self, bootstrap: str, topic: str, *, committed: bool) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "sight", "enable.auto.commit": False, "enable.partition.eof": True}
        settings["isolation.level"] = "read_committed" if committed else "read_uncommitted"
        quiet = {"reconnect.backoff.max.ms": 200, "log_level": 0, "fetch.wait.max.ms": 250, "check.crcs": True}
        self._consumer = confluent_kafka.Consumer(settings | quiet)
        self._consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        self._at_end: set[int] = set()
        self.open_ones = not committed

    def look(self, judge: Judge, timeout: float) -> bool:
        found = self._consumer.consume(1000, timeout)
        for message in found:
            why = message.error()
            if why is None:
                self._at_end.discard(message.partition())
                judge.take(message.partition(), f"{message.partition()}@{message.offset()}", message.key(), message.value())
            elif why.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                self._at_end.add(message.partition())
        return any(message.error() is None for message in found)

    def end(self, topic: str, partition: int) -> int:
        try:
            return int(self._consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, partition), SECONDS)[1])
        except confluent_kafka.KafkaException as why:
            if why.args[0].code() == confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                return 0
            raise

    def read_all(self, judge: Judge) -> None:
        """Until the end of every partition."""
        while len(self._at_end) < PARTITIONS:
            self.look(judge, 0.2)

    def close(self) -> None:
        self._consumer.close()


def hanging(broker: Kafka | Pulsar, topic: str, patience: float) -> int:
    """Offsets of a topic of Kafka that readers of committed records cannot reach behind so many seconds: transactions are open. Of one of
    Pulsar, the open transactions."""
    deadline = time.monotonic() + patience
    if not isinstance(broker, Kafka):
        while (left := ongoing(broker, topic)) and time.monotonic() < deadline:
            pass
        return left
    with sight(broker, topic, committed=False) as whole, sight(broker, topic) as committed:
        while True:
            last, stable = (sum(one.end(topic, number) for number in range(PARTITIONS)) for one in (whole, committed))
            if last == stable or time.monotonic() > deadline:
                return last - stable


def ongoing(broker: Pulsar, topic: str) -> int:
    """Transactions that the partitions of a topic of Pulsar have open; none where there are no coordinators."""
    if not broker.transactions:
        return 0
    path = f"/admin/v3/transactions/transactionBufferStats/public/default/{topic}-partition-"
    return sum(json.loads(broker.call("GET", f"{path}{number}"))["ongoingTxnSize"] for number in range(PARTITIONS))


class PulsarSight:
    """A partitioned Pulsar topic, all partitions from their beginning."""

    open_ones = False

    def __init__(self, broker: Pulsar, topic: str) -> None:
        self._broker = broker
        self._client = pulsar.Client(
            broker.service, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull), operation_timeout_seconds=60
        )
        first = pulsar.MessageId.earliest
        self._readers = [self._client.create_reader(f"{topic}-partition-{number}", first) for number in range(PARTITIONS)]

    def look(self, judge: Judge, timeout: float) -> bool:
        came = False
        for number, reader in enumerate(self._readers):
            for _ in range(1000):
                try:
                    message = reader.read_next(max(1, int(timeout * 1000 / PARTITIONS)))
                except pulsar.Timeout:
                    break
                came = True
                judge.take(number, f"{number}@{message.message_id()}", message.partition_key().encode(), message.data())
        return came

    def end(self, topic: str, partition: int) -> int:
        """Entries since the broker has had it, which is enough to see it grow."""
        assert partition < 0
        try:
            return int(
                json.loads(self._broker.call("GET", f"/admin/v2/persistent/public/default/{topic}/internalStats"))["entriesAddedCounter"]
            )
        except OSError:  # not there yet, or just being had again
            return 0

    def read_all(self, judge: Judge) -> None:
        """Until the end of every partition."""
        while any(reader.has_message_available() for reader in self._readers):
            self.look(judge, 1.0)

    def close(self) -> None:
        self._client.close()


@contextmanager
def sight(broker: Kafka | Pulsar, topic: str, *, committed: bool = True) -> Iterator[KafkaSight | PulsarSight]:
    """A target of a broker; of Kafka its committed records, or all."""
    found = KafkaSight(broker.bootstrap, topic, committed=committed) if isinstance(broker, Kafka) else PulsarSight(broker, topic)
    try:
        yield found
    finally:
        found.close()
