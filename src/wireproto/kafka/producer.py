"""Implements the Producer of one topic.

Chooses partitions and refuses what brokers would; the rest is in `flow.producer`, and sending in `sending.KafkaSender`, which the client's
producers share. May be shared by threads. Knows nothing of requests or sequences.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any, Self

from .._codec import Columns, KafkaRows, KeyRouter, OutBatch, Receipt, kafka_shares
from ..errors import OptionError, UsageError
from ..flow.producer import BatchProducer
from ..net.task import Steps
from ..position import LogOffset
from . import outgoing
from .codes import DuplicateSequenceNumber, UnknownTopicOrPartition
from .metadata import Topic
from .outgoing import Key
from .partitioner import Sticky, partition_for_key
from .sending import ACKS, UNKNOWN_PLACE

if TYPE_CHECKING:
    from .cluster import KafkaCluster
    from .options import KafkaOptions
    from .sending import KafkaSender, KafkaSenders


class KafkaProducer(BatchProducer):
    """Appends records to one topic; may be shared by threads. Made by `KafkaClient.producer`."""

    def __init__(self, cluster: KafkaCluster, topic: str, options: KafkaOptions, sending: KafkaSender) -> None:
        super().__init__(cluster, cluster.budget, topic, sending.core, linger=options.linger, delivery_timeout=options.delivery_timeout)
        self._cluster = cluster
        self._sending = sending
        self.options = options
        self._sticky = Sticky(options.batch_size, random.choice)
        self._router = KeyRouter()
        self._keys = {}
        self._positions(LogOffset)
        self._take_by(
            self._router,
            cluster.metadata.changes,
            self._look_at_topics,
            largest=options.max_request_size - outgoing.BATCH_OVERHEAD,
            direct=options.message_format == 2 and options.partitioner is None,
            begin=self._begin,
            begun=self._sender.opened if options.linger > 0 else self._sender.set_off,
        )

    @classmethod
    def opening(cls, senders: KafkaSenders, topic: str, options: KafkaOptions, timeout: float | None = None) -> Steps[Self]:
        """Look the topic up, and make a producer that has joined a sender.

        Args:
            senders: the client's. topic: its name. options: the producer's. timeout: seconds for this; None: those of the options.
        """
        deadline = senders.cluster.deadline(options.timeout if timeout is None else timeout)
        yield from senders.cluster.looking_up(topic, deadline, create=options.auto_create)
        while True:
            sending = yield from senders.finding(topic, options, deadline)
            made = cls(senders.cluster, topic, options, sending)
            if sending.join(made):
                made._look_at_topics()
                return made

    # --- records in ---

    def _send_slowly(
        self, value: Any, key: Any, headers: bytes | None, time_ms: int, stamped: bool, partition: int | None, size: int, timeout: float
    ) -> Receipt:
        """Check a record, choose its partition, and put it into a batch."""
        outgoing.check_record(self.options, size, headers, time_ms if stamped else None, self.topic)
        if partition is None:
            partition = self._choose(key, size)
        else:
            self._check_partition(partition)
        return self._put(partition, value, key, headers, time_ms, size, timeout)

    def _key(self, number: int) -> Key:
        """Return the sender's key of a partition."""
        return self.topic, number

    def _look_at_topics(self) -> None:
        """Tell the router the number of partitions, and whether records without a key may stay with their partition."""
        topics = self._cluster.metadata.topics
        entry = topics.get(self.topic)
        keep_sticky = entry is not None and self._router.sticky in self._sending.answering(entry)
        self._router.know(len(entry.partitions) if entry is not None else 0, keep_sticky)

    def _portions(self, table: Columns, partition: int | None) -> list[tuple[int, Columns, KafkaRows | None]]:
        """Check rows, and group them by partition: (partition, table, which rows; None: all)."""
        if partition is not None:
            self._check_partition(partition)
        outgoing.check_columns(self.options, table, self.topic)
        if partition is not None:
            return [(partition, table, None)]
        self._look_at_topics()
        self._known_topic()
        chosen = None
        if self.options.partitioner is not None and table.partitions() is None:
            keys = table.keys()
            chosen = [self._choose(key, 0) for key in keys]
        return [(number, table, rows) for number, rows in kafka_shares(table, self._router.partitions, chosen)]

    def _chosen(self, number: int, size: int) -> int:
        """Return the partition of the next batch of rows that name none (-1)."""
        return self._choose(None, size) if number < 0 else number

    def _share(self, rows: Columns, start: int, stop: int) -> tuple[int, int]:
        return stop, self.options.batch_size

    def _row_time(self) -> int:
        """Return now in milliseconds since 1970, for rows without a timestamp."""
        return time.time_ns() // 1_000_000

    def _fit(self, where: Key, batch: OutBatch, size: int, index: int) -> None:
        """Refuse a record that is larger than max_request_size in its batch."""
        if index == 0 and size > self.options.max_request_size:  # it has a batch of its own: most often a record with many headers
            self._sender.discard(where)
            outgoing.check_size(self.options, size, self.topic)

    def _choose(self, key: bytes | None, size: int) -> int:
        """Return the partition for a record of `size` bytes with this key."""
        entry = self._known_topic()
        count = len(entry.partitions)
        if self.options.partitioner is not None:
            number = int(self.options.partitioner(key, count))
            self._check_partition(number)
            return number
        if key is not None:
            return partition_for_key(key, count)
        self._look_at_topics()  # the Appender does so when metadata changes, but not all records come by it
        with self._lock:
            number = self._router.sticky_for(size)
            if number < 0:
                number = self._sticky.pick(size, self._sending.answering(entry))
                self._router.stick(number, self._sticky.lend())
            return number

    def _known_topic(self) -> Topic:
        """Return the topic as it is known; raises UnknownTopicOrPartition where it is gone."""
        entry = self._cluster.metadata.topics.get(self.topic)
        if entry is None or not entry.partitions:
            raise UnknownTopicOrPartition("the topic was deleted", topic=self.topic)
        return entry

    def _check_partition(self, partition: int) -> None:
        """Raise OptionError where the topic has no such partition."""
        entry = self._cluster.metadata.topics.get(self.topic)
        if entry is not None and partition not in entry.partitions:
            raise OptionError(f"there is no partition {partition}: the topic has {len(entry.partitions)}", topic=self.topic)

    # --- waiting ---

    def _place(self, batch: OutBatch, index: int) -> LogOffset:
        """Return the position of a stored record.

        Raises:
            DuplicateSequenceNumber: an earlier sending wrote it, and the broker does not say where. UsageError: acks=0.
        """
        base = batch.outcome.value
        if base == UNKNOWN_PLACE:
            raise DuplicateSequenceNumber(
                "the record was stored by an earlier attempt, whose offset the broker does not report", topic=self.topic
            )
        if base < 0:
            raise UsageError("with acks=0 the broker reports no position: set acks to 1 or all", topic=self.topic, partition=batch.key[1])
        return LogOffset(*self._about(batch.key), base + index)

    def _about(self, key: Key) -> Key:
        """Return the topic and partition of a position."""
        return key

    def _leaving(self) -> bool:
        """Return whether records that need no response (acks=0) have not left yet."""
        return not ACKS[self.options.acks] and self._sending.unsent()

    def _leave(self) -> None:
        """Leave the sender."""
        self._sending.leave(self)
