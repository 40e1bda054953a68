"""Takes records for one topic and returns receipts: the Producer role.

A record is sent at once as command 310 when its queue has nothing in flight. What is sent meanwhile gathers: neighbours of one queue share
a command 320, which is sent when the one before is answered (or, with `linger`, when it is full or old). A command carries one timestamp: a
record with another one has its own in a property (see `record`). Which commands are sent, and when they are repeated, is decided by
`sending.RocketSender`; the producer knows no requests, brokers or connections.

Delivery: acknowledged means stored by the broker (see `RocketReceipt.warning`). A command whose reply was lost is repeated and may then be
stored twice: RocketMQ has no sequence numbers by which a broker could notice.
A compacted topic takes records with a key only, and its brokers lose others in a command 320 (see `compaction`): they are refused here, and
while it is not known whether the topic is compacted, each record without a key has a command of its own.
Partition: the one named; by key, Java's ``hashCode``; else in turn over the queues whose brokers answer.
Queues that a topic gets later: see `queue_selector`.
May be shared by threads.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from wireproto._codec import Columns, RocketProducerCore, check_rocket_columns, rocket_plain_properties, timestamp_ms
from wireproto.compression import compress
from wireproto.errors import OptionError, TimedOut, ValueUnsupported, WireprotoError
from wireproto.flow.async_hooks import AsyncHooks
from wireproto.flow.producer import BatchProducer
from wireproto.flow.taken_rows import add_taken
from wireproto.net.task import operation
from wireproto.position import QueueOffset

from ..deadlines import deadline_after
from . import codes, record
from .compaction import needing_keys
from .intake import Intake
from .outgoing import OVERHEAD, RocketBatch, RocketReceipt
from .sending import RocketSender

if TYPE_CHECKING:
    from wireproto._codec import RocketIds
    from wireproto.net.task import Steps
    from wireproto.records import Headers

    from .cluster import RocketCluster
    from .options import RocketOptions
    from .route import Route

COMPRESSED = {"zlib": 0x301, "lz4": 0x101, "zstd": 0x201}
"""sysFlag of a compressed body: bit 0 and the codec's number."""
WANTS_KEYS = "the topic is compacted: its brokers keep the newest record of each key, and none without one"


class RocketProducer(RocketProducerCore, BatchProducer):
    """Appends records to one topic. Made by `RocketClient.producer`. `send` is the core's, and calls `_take_slowly` for the rest."""

    def __init__(self, cluster: RocketCluster, topic: str, options: RocketOptions, route: Route) -> None:
        limit = min(options.batch_size, options.max_message_size, cluster.budget.limit - OVERHEAD)
        self.options = options = replace(options, batch_size=limit)
        self._cluster = cluster
        self._ids, self._ids_end = record.ids_of_month(int(time.time() * 1000))
        self._needs_keys: bool | None = None
        self._sending = RocketSender(cluster, topic, options, route, weakref.ref(self), _calling(self))
        self._routing = self._sending.routing
        super().__init__(
            cluster, cluster.budget, topic, self._sending.core, linger=options.linger, delivery_timeout=options.delivery_timeout
        )
        self._check, self._lingers, self._batch_size = self._loop.check, options.linger > 0, limit
        packed = options.compress_above if options.compression != "none" else options.max_message_size + 1
        self._largest = min(options.max_message_size, packed - 1)
        self._positions(QueueOffset)
        self._room: Callable[[int, float], None] = self._account.take
        self._receipt: Callable[[RocketBatch, int], RocketReceipt] = RocketReceipt

    @classmethod
    def opening(cls, cluster: RocketCluster, topic: str, options: RocketOptions, timeout: float | None = None) -> Steps[Self]:
        """Look the topic up, and make a producer with connections to the masters that answer. timeout: seconds; None: the option's."""
        record.check_topic(topic)
        until = cluster.deadline(options.timeout if timeout is None else timeout)
        route = yield from cluster.routing(topic, until)
        if not route.queues:
            raise codes.NoPermission("the topic has no queue", topic=topic)
        made = cls(cluster, topic, options, route)
        until = min(until, cluster.deadline(options.connect_timeout))
        yield from cluster.connecting_all(route.masters, until)  # one that is down is left to the retries
        made._needs_keys = yield from needing_keys(cluster, topic, route.masters, until)
        made._routing.refresh_later()  # asks again whether keys are needed, where that is not known here
        return made

    # taking records --------------------------------------------------------------------------------------------------------------

    def _take_slowly(
        self, value: Any, key: bytes | None, headers: Headers, timestamp: int | None, partition: int | None, timeout: float
    ) -> RocketReceipt:
        """Take one record that has headers or a timestamp, is compressed, has no room, or may be refused.

        Raises:
            NotBytes: a key, value or header's value is not bytes-like.
            ValueUnsupported: null value; empty key; header that is null, empty, repeated, reserved or not text; too large; no key, and the
                topic is compacted.
            BufferFull, Closed.
        """
        until = deadline_after(timeout)
        now_ms = int(time.time() * 1000)
        if key is None and self._needs_keys:
            raise ValueUnsupported(WANTS_KEYS, topic=self.topic)
        key = key if key is None else record.octets(key)
        body = value if type(value) is bytes and len(value) <= self.options.max_message_size else self._checked(value)
        ids = self._ids if now_ms < self._ids_end else self._ids_anew(now_ms)
        properties = None if headers else rocket_plain_properties(key, ids, now_ms)
        if properties is None:
            properties = record.properties(key, headers, ids.next(now_ms)).encode()
        if timestamp is not None:
            timestamp = timestamp_ms(timestamp)
        sys_flag = 0
        if self.options.compression != "none" and len(body) >= self.options.compress_above:
            packed = compress(self.options.compression, body)
            if len(packed) < len(body):
                body, sys_flag = packed, COMPRESSED[self.options.compression]
        size = len(body) + len(properties) + OVERHEAD
        if not self._account.try_take(size):
            self._room(size, until)
        receipt: RocketReceipt = self._put_in(body, key, properties, timestamp, now_ms, sys_flag, partition, size)
        return receipt

    def _ids_anew(self, now_ms: int) -> RocketIds:
        """Make new ids, since another month has begun."""
        self._ids, self._ids_end = record.ids_of_month(now_ms)
        return self._ids

    @operation
    def send_batch(self, columns: Any, *, partition: int | None = None, timeout: float = 30.0) -> Steps[Sequence[RocketReceipt]]:
        """Take many records at once. Everything is checked before anything is taken.

        Args:
            columns: anything with ``__arrow_c_array__`` or ``__arrow_c_stream__`` with the columns ``value`` and any of ``key``,
                ``headers``, ``timestamp`` (milliseconds since 1970), ``partition``; or a Columns.
            partition: number, for all rows; None: by the column ``partition``, else by the key. timeout: seconds to wait for room in the
                send budget.
        Returns:
            a receipt for the last record of each command that they are sent in, in order.
        Raises:
            ValueUnsupported: a row cannot be sent; none was taken. OptionError: there is no such partition.
            BufferFull: no room within `timeout` for the rest. Its `taken` maps each partition to the number of its first rows that were
                taken (-1: rows for any queue); those are sent all the same.
            Closed: the producer or the client was closed.
        """
        deadline = deadline_after(timeout)
        table = columns if isinstance(columns, Columns) else Columns.from_arrow(columns)
        check_rocket_columns(table, self.options.max_message_size)
        if self._needs_keys and any(key is None for key in (table.keys() if "key" in table.columns else [None])):
            raise ValueUnsupported(WANTS_KEYS, topic=self.topic)
        by_key = partition is None and table.partitions() is None and "key" in table.columns
        route = self._routing.route
        last: dict[int, tuple[RocketBatch, int]] = {}
        counts: dict[int, int] = {}
        try:
            for number, rows in route.shares(table, partition, len(self._routing.queues)):
                key = -1 if number is None else number
                start = 0
                while start < len(rows):
                    share = self._charged(rows, start)
                    yield from self._account.taking(share, deadline)
                    used = 0
                    try:
                        with self._lock:
                            taken, used, batch, index = self._take_rows(number, rows, start, share, route if by_key else None)
                    finally:
                        self._account.give(share - used)
                    start += taken
                    counts[key] = start
                    last[batch.serial] = batch, index
                    self._set_off(batch, index + 1 - taken)
        except WireprotoError as why:
            add_taken(why, counts, len(table))
            raise
        return [self._receipt(batch, index) for batch, index in last.values()]

    def _charged(self, rows: Columns, start: int) -> int:
        """Return the bytes of the send budget that the rows which fit one command may need."""
        ahead = rows[start : start + self.options.batch_size // OVERHEAD + 1]
        return min(ahead.nbytes + OVERHEAD * len(ahead), max(self.options.batch_size, ahead[:1].nbytes)) + OVERHEAD

    def _take_rows(
        self, number: int | None, rows: Columns, start: int, share: int, route: Route | None
    ) -> tuple[int, int, RocketBatch, int]:
        """Put neighbouring rows that fit one command into a batch. Lock held.

        Args:
            number: partition, or None: any queue. rows, start: the rows from this index on. share: bytes taken from the send budget.
            route: the route by which `number` was computed from keys, or None. Where keys do not go by it any more, one row is taken.
        Returns:
            how many rows were taken, bytes used of `share`, their batch, and the index of the last one.
        """
        now_ms = int(time.time() * 1000)
        ids = self._ids if now_ms < self._ids_end else self._ids_anew(now_ms)
        anywhere = number is None
        moving = route is not None and not anywhere and self._routing.moving(route)
        if moving:
            number = self._routing.place(rows[start : start + 1].keys()[0] or b"")
        else:
            number = self._sending.able() if number is None else self._checked_place(number)
        limit = min(self.options.batch_size, self.options.max_message_size)
        first = rows[start : start + 1]
        timestamp = first.timestamps()[0] if "timestamp" in first.columns else None
        large = first.nbytes > limit // 2  # alone it may be as large as brokers take
        alone = large or self._needs_keys is None
        if alone or moving:
            (value,) = first.values()
            assert value is not None
            key = first.keys()[0] if "key" in first.columns else None
            headers = first.headers()[0] if "headers" in first.columns else None
            properties = record.properties(key, headers, ids.next(now_ms)).encode()
            opens = alone or len(properties) > record.MAX_PROPERTIES - record.BORN_MOST
            batch = self._batch(number, timestamp, now_ms, first.nbytes + OVERHEAD, limit, opens)
            taken, used = 1, min(len(value) + len(properties) + OVERHEAD, share)
            index = batch.join(value, properties, used, anywhere, timestamp, now_ms)
        else:
            batch = self._batch(number, timestamp, now_ms, first.nbytes + OVERHEAD, limit, False)
            builder = batch.batch()
            before = builder.size
            taken = builder.append_columns(rows, start, len(rows), ids, now_ms, limit, batch.born if batch.stamped else None)
            used = min(builder.size - before + OVERHEAD, share)
            index = batch.grown(used, anywhere)
        if alone or (start + taken < len(rows) and not moving) or batch.size >= self.options.batch_size:
            self._sender.seal(number)
        return taken, used, batch, index

    def _checked(self, value: bytes | None) -> bytes:
        if value is None:
            raise ValueUnsupported("RocketMQ cannot carry a null value", topic=self.topic)
        body = record.octets(value)
        limit = self.options.max_message_size
        if len(body) > limit:
            raise ValueUnsupported(f"a value of {len(body)} bytes is larger than the broker takes ({limit})", topic=self.topic)
        return body

    def _checked_place(self, partition: int) -> int:
        """Return the partition, or raise OptionError where there is none such. Lock held."""
        if not isinstance(partition, int) or isinstance(partition, bool):
            raise OptionError(f"a partition is an int, not {type(partition).__name__}", topic=self.topic)
        if not 0 <= partition < len(self._routing.queues):
            raise OptionError(f"{self.topic} has no partition {partition}: it has {len(self._routing.queues)}", topic=self.topic)
        return partition

    def learning_keys(self) -> Steps[None]:
        """Ask whether the topic is compacted, if that is not known yet; called at each look at the route."""
        if self._needs_keys is None:
            until = self._cluster.deadline(self.options.connect_timeout)
            self._needs_keys = yield from needing_keys(self._cluster, self.topic, self._routing.route.masters, until)

    # waiting ---------------------------------------------------------------------------------------------------------------------

    def async_hooks(self) -> AsyncHooks:
        """Return the parts of the producer that the asyncio wrapper uses."""
        return AsyncHooks(Intake(self, self._account), self._account, self._sender.hurry, self._known_place)

    def give(self, receipt: Callable[[RocketBatch, int], Any], room: Callable[[int, float], None]) -> None:
        """Return other receipts, and make room for records in another way than waiting for it.

        Args:
            receipt: makes the receipt of a record from its batch and index.
            room: called with bytes and a deadline (`time.monotonic()`) for a record that has no room yet; returns when it has, or raises.
        """
        self._receipt, self._room = receipt, room

    def _late(self, batch: RocketBatch, why: WireprotoError) -> WireprotoError:
        return self._sending.late(batch) if isinstance(why, TimedOut) else why

    def _about(self, key: int) -> tuple[Any, ...]:
        home = self._routing.queues[key]
        return self.topic, home.partition, home.broker, home.queue_id

    def _leave(self) -> None:
        self._sending.close()


def _calling(producer: RocketProducer) -> Any:
    """Return `learning_keys` as a function that does not keep the producer alive, and does nothing once it is gone."""
    held = weakref.ref(producer)

    def learn() -> Steps[None]:
        there = held()
        if there is not None:
            yield from there.learning_keys()

    return learn
