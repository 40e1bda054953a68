"""The Producer of one topic: records in, receipts out.

What it is: a face of the sender that its client's producers share. It chooses partitions, sees to room in the send buffer, puts records
into the open batches of its topic, and waits for outcomes; sending them is `sending.KafkaSender`'s.
May be shared by threads. Must not: know requests or numbers.
"""

from __future__ import annotations

import random
import time
from copy import copy
from typing import TYPE_CHECKING, Any, Self

from .._codec import Appender, Columns, KafkaRows, KeyRouter, OutBatch, Receipt, kafka_shares
from ..errors import Closed, OptionError, TimedOut, UsageError, ValueUnsupported, WireprotoError
from ..flow.flushing import flushing
from ..flow.unflushed import Sends
from ..flow.way_in import WayIn
from ..net.task import Steps, operation
from ..position import LogOffset
from . import outgoing
from .codes import DuplicateSequenceNumber, UnknownTopicOrPartition
from .metadata import Topic
from .partitioner import Sticky, partition_for_key
from .sending import ACKS, UNKNOWN_PLACE

if TYPE_CHECKING:
    from ..records import Headers
    from .cluster import KafkaCluster
    from .options import KafkaOptions
    from .sending import KafkaSender, KafkaSenders

_LEAVING_PAUSE = 0.005
_STEP = 1 << 16
"""Most bytes of the send budget that a producer takes ahead."""


class KafkaProducer(Sends):
    """Appends records to one topic; may be shared by threads. Made by `KafkaClient.producer`.

    `send` is the core's (`Appender`): it puts the record into the open batch, and calls `_send_slowly` where there is more to do.
    """

    def __init__(self, cluster: KafkaCluster, topic: str, options: KafkaOptions, sending: KafkaSender) -> None:
        self._cluster = cluster
        self._sending = sending
        self._sender = sending.core
        self._lock = self._sender.lock
        self._tasks = cluster.tasks
        self._loop = cluster.loop
        self.topic = topic
        self.options = options
        self._closed = False
        self._failure: BaseException | None = None
        self._account = cluster.budget.account(self)
        self._sticky = Sticky(options.batch_size, random.choice)
        largest = options.max_request_size - outgoing.BATCH_OVERHEAD
        direct = options.message_format == 2 and options.linger > 0 and options.partitioner is None
        self._router = KeyRouter()
        self._appender = Appender(
            self._router,
            self._account,
            self._send_slowly,
            self._loop.check,
            cluster.metadata.changes,
            self._look_at_topics,
            largest=largest,
            step=max(min(cluster.budget.limit // 64, _STEP) & ~0xFFF, 0x1000),
            direct=direct,
        )
        self.send = self._appender.send  # type: ignore[method-assign]

    @classmethod
    def opening(cls, senders: KafkaSenders, topic: str, options: KafkaOptions) -> Steps[Self]:
        """Look the topic up, and make a producer that has joined a sender."""
        deadline = senders.cluster.deadline(options.timeout)
        yield from senders.cluster.looking_up(topic, deadline, create=options.auto_create)
        while True:
            sending = yield from senders.finding(topic, options, deadline)
            made = cls(senders.cluster, topic, options, sending)
            if sending.join(made):
                made._look_at_topics()
                return made

    # --- records in ---

    def send(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = None,
        timestamp: int | None = None,
        partition: int | None = None,
        timeout: float = 30.0,
    ) -> Receipt:
        """See `wireproto.roles.Producer.send`. Each producer has the core's in its place, so that nothing stands between."""
        return self._appender.send(value, key=key, headers=headers, timestamp=timestamp, partition=partition, timeout=timeout)

    def _send_slowly(
        self, value: Any, key: Any, headers: bytes | None, time_ms: int, stamped: bool, partition: int | None, size: int, timeout: float
    ) -> Receipt:
        """What `send` leaves over: a new batch, waiting for room, refusals. `headers` are encoded already."""
        outgoing.check_record(self.options, size, headers, time_ms if stamped else None, self.topic)
        if partition is None:
            partition = self._choose(key, size)
        else:
            self._check_partition(partition)
        self._room(size, timeout)
        batch, index, full = self._append(partition, value, key, headers, time_ms, size)
        if not self.options.linger:
            self._sender.release([batch])
        elif full:
            self._sender.drain()
        if not index:
            self._sender.opened(batch)
        if self._cluster.budget.waiting:
            self._sender.hurry_all()
        return self._appender.receipt(batch, index)

    def _look_at_topics(self) -> None:
        """The cluster has learnt something: tell the router."""
        topics = self._cluster.metadata.topics
        entry = topics.get(self.topic)
        stay = entry is not None and self._router.stuck in (entry.available or entry.partitions)
        self._router.know(len(entry.partitions) if entry is not None else 0, stay)

    @operation
    def send_batch(self, columns: Any, *, partition: int | None = None, timeout: float = 30.0) -> Steps[list[Receipt]]:
        """See `wireproto.roles.Producer.send_batch`. Rows of one partition keep their order."""
        self._loop.check()
        if partition is not None:
            self._check_partition(partition)
        table = columns if isinstance(columns, Columns) else Columns.from_arrow(columns)
        outgoing.check_columns(self.options, table, self.topic)
        last: dict[int, tuple[OutBatch, int]] = {}
        deadline = time.monotonic() + timeout
        for number, rows in self._shares(table) if partition is None else [(partition, None)]:
            yield from self._send_rows(None if number < 0 else number, table, rows, deadline, last)
        if not self.options.linger:
            self._sender.release([batch for batch, _ in last.values()])
        return [self._appender.receipt(batch, index) for _, (batch, index) in sorted(last.items())]

    def _shares(self, table: Columns) -> list[tuple[int, KafkaRows | None]]:
        """The rows by partition; -1: those that may go anywhere."""
        self._look_at_topics()
        self._known_topic()
        chosen = None
        if self.options.partitioner is not None and table.partitions() is None:
            keys = table.keys()
            chosen = [self._choose(key, 0) for key in keys]
        return kafka_shares(table, self._router.partitions, chosen)

    def _send_rows(
        self, partition: int | None, table: Columns, rows: KafkaRows | None, deadline: float, last: dict[int, tuple[OutBatch, int]]
    ) -> Steps[None]:
        """Rows for one partition; None: whichever is sticky when a batch begins."""
        now_ms = time.time_ns() // 1_000_000
        start, stop = 0, len(table if rows is None else rows)
        share = self.options.batch_size
        while start < stop:
            if not self._appender.charge(share):
                yield from self._account.taking(share, deadline)
            number = self._choose(None, share) if partition is None else partition
            used = 0
            try:
                with self._lock:
                    batch = self._open(number)
                    taken, size, index = batch.add_rows(table, rows, start, stop, now_ms)
                    if taken:
                        self._refuse_larger(batch, size, index, number)
                        used = size
                        last[batch.serial] = batch, index
                    full = start + taken < stop
                    if full:
                        self._sender.seal((self.topic, number))
            finally:
                self._account.give(share - used)
            start += taken
            if full:
                self._sender.drain()
            if index + 1 == taken:
                self._sender.opened(batch)

    def _open(self, partition: int) -> OutBatch:
        """The open batch of a partition, a new one if need be. Under the lock."""
        if self._closed:
            raise Closed("the producer is closed")
        batch: OutBatch = self._sender.current((self.topic, partition))
        return batch

    def _refuse_larger(self, batch: OutBatch, used: int, index: int, partition: int) -> None:
        """A record larger than a batch has one of its own: take that back when the record is larger than allowed."""
        if index == 0 and used > self.options.max_request_size:
            self._sender.discard((self.topic, partition))
            raise ValueUnsupported(
                f"a record of {used} bytes is larger than max_request_size ({self.options.max_request_size})", topic=self.topic
            )

    def _append(
        self, partition: int, value: Any, key: Any, headers: bytes | None, time_ms: int, size: int
    ) -> tuple[OutBatch, int, bool]:
        """Put a record in whose room is taken: its batch, its index there, and whether the batch before is full now."""
        full = False
        try:
            with self._lock:
                batch = self._open(partition)
                index = batch.add(value, key, headers, time_ms, size)
                if index < 0:
                    self._sender.seal((self.topic, partition))
                    full = True
                    batch = self._open(partition)
                    index = batch.add(value, key, headers, time_ms, size)
                self._appender.opened(partition, batch)
        except BaseException:
            self._account.give(size)
            raise
        return batch, index, full

    def _room(self, size: int, timeout: float) -> None:
        if not self._appender.charge(size):
            self._account.take(size, time.monotonic() + max(timeout, 0.0))

    def relieve(self) -> None:
        """Somebody waits for room in the send budget; see `wireproto.flow.budget.Holder`."""
        self._account.give(self._appender.recall())
        self._sender.hurry_all()

    def settled(self, size: int) -> None:
        """A batch that held so many bytes has its outcome."""
        self._account.give(size)

    def _choose(self, key: bytes | None, size: int) -> int:
        entry = self._known_topic()
        count = len(entry.partitions)
        if self.options.partitioner is not None:
            number = int(self.options.partitioner(key, count))
            self._check_partition(number)
            return number
        if key is not None:
            return partition_for_key(key, count)
        with self._lock:
            number = self._router.stay(size)
            if number < 0:
                number = self._sticky.pick(size, entry.available or tuple(entry.partitions))
                self._router.stick(number, self._sticky.lend())
            return number

    def _known_topic(self) -> Topic:
        entry = self._cluster.metadata.topics.get(self.topic)
        if entry is None or not entry.partitions:
            raise UnknownTopicOrPartition("the topic is gone", topic=self.topic)
        return entry

    def _check_partition(self, partition: int) -> None:
        entry = self._cluster.metadata.topics.get(self.topic)
        if entry is not None and partition not in entry.partitions:
            raise OptionError(f"there is no partition {partition}: the topic has {len(entry.partitions)}", topic=self.topic)

    # --- waiting ---

    def way_in(self) -> WayIn:
        """What another event loop's face of it is made of."""
        return WayIn(self._appender, self._account, self._sender.hurry, self._place)

    def position_in(self, batch: OutBatch, index: int, timeout: float | None) -> LogOffset:
        """The place of a batch's record, as `Receipt.position`."""
        outcome = batch.outcome
        if not outcome.done:
            self._sender.hurry(batch)
            try:
                outcome.wait(time.monotonic() + (self.options.delivery_timeout if timeout is None else timeout))
            except WireprotoError:
                if not outcome.done:
                    raise
        return self._place(batch, index)

    def _place(self, batch: OutBatch, index: int) -> LogOffset:
        """The place of a record whose outcome is known."""
        outcome = batch.outcome
        if outcome.error is not None:
            raise copy(outcome.error)  # a fresh one for each who asks
        if outcome.value == UNKNOWN_PLACE:
            raise DuplicateSequenceNumber("the record was written by an earlier sending; its position is not known", topic=self.topic)
        if outcome.value < 0:
            raise UsageError("the broker tells no position with acks=0", topic=self.topic, partition=batch.key[1])
        return LogOffset(self.topic, batch.key[1], outcome.value + index)

    @operation
    def flush(self, timeout: float = 30.0) -> Steps[None]:
        """See `wireproto.roles.Producer.flush`."""
        return self._flushing(timeout)

    def _flushing(self, timeout: float) -> Steps[None]:
        self._loop.check()
        deadline = time.monotonic() + timeout
        yield from flushing(self._sender, deadline, self._mine, topic=self.topic)
        while not ACKS[self.options.acks] and self._sending.unsent():
            if time.monotonic() >= deadline:
                raise TimedOut(f"not all records have left within {timeout:g} s", topic=self.topic)
            yield time.monotonic() + _LEAVING_PAUSE
        self._account.give(self._appender.recall())
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def unsettled(self) -> int:
        """Records whose outcome is not known."""
        return sum(batch.count for batch in self._sender.unsettled(self._mine))

    def _mine(self, batch: OutBatch) -> bool:
        return batch.owner is self

    def failed(self, why: WireprotoError) -> None:
        """A batch failed: the next flush tells of the first."""
        self._failure = self._failure or why

    @operation
    def close(self, timeout: float = 30.0) -> Steps[None]:
        """Flush, then take no more; what is not acknowledged in time fails with Closed."""
        if self._closed:
            return
        self._account.refuse(Closed("the producer is closed", topic=self.topic))
        self._appender.close()
        with self._lock:
            self._closed = True
        try:
            yield from self._flushing(timeout)
        finally:
            self._sender.abandon(self._mine, Closed("the producer was closed before the record was acknowledged", topic=self.topic))
            self._sending.leave(self)
            self._account.close()
