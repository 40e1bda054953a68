"""The Producer role: records to the masters of a topic's queues.

What it is: a record goes out at once as command 310 when its queue has nothing on the wire. What is sent meanwhile gathers: neighbours of
one queue and one timestamp share a command 320, which goes out when the one before is answered (or, with `linger`, when it is full or
old). One command a queue at a time keeps the records of a queue in order, since brokers handle commands on several threads; the option
`in_flight` trades that order for more of them.
Where a reply is a refusal that may pass, or the connection was lost, the command goes out again until the delivery timeout, and nothing
overtakes it in its queue. What may go to any queue goes to another broker at once, and the one that refused or was silent is left alone for
a while.

Delivery: acknowledged means stored by the broker (see `RocketReceipt.warning`). A command whose reply was lost is repeated and may then be
stored twice: RocketMQ has no sequence numbers to tell.
A compacted topic takes records with a key only, and its brokers lose others in a command 320 (see `keyed.py`): they are refused here, and
while nobody has told what the topic is, each record without a key has a command of its own.
Partition: the one named; by key, Java's ``hashCode``; else in turn over the queues whose brokers answer.
Queues that a topic gets later: see `lanes.py`.
Thread-safe. `_lock` is held for moments only, never while waiting. Nobody's thread is needed: callers that send, wait or flush take the
replies, and while none does, a timer in the keeper.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from wireproto._codec import (
    Columns,
    RocketSendHeader,
    check_rocket_columns,
    rocket_plain_properties,
    timestamp_ms,
)
from wireproto._net import Event, Mailbox
from wireproto.compression import compress
from wireproto.errors import BufferFull, Closed, OptionError, TimedOut, TransportError, ValueUnsupported, WireprotoError
from wireproto.flow.unflushed import Sends
from wireproto.net.retry import Policy, Verdict, verdict

from . import codes, record
from .keyed import needs_keys
from .lanes import Lanes
from .outbox import OVERHEAD, SINGLE, Pending, RocketReceipt
from .remoting import SEND_WARNINGS, NoMaster

if TYPE_CHECKING:
    from wireproto._net import Call, Connection
    from wireproto.records import Headers

    from .cluster import RocketCluster
    from .options import RocketOptions
    from .outbox import Lane

COMPRESSED = {"zlib": 0x301, "lz4": 0x101, "zstd": 0x201}
"""sysFlag of a compressed body: bit 0 and the codec's number."""
RESEND = Policy(first=0.02, factor=2.0, ceiling=1.0, jitter=0.2)
BRIEFLY = 3
"""Refusals in a row for want of a route or a permission before a send fails of them: routes come, brokers are read-only for a while."""
WANTS_KEYS = "the topic is compacted: its brokers keep the newest record of each key, and none without one"
GLANCE = 0.0002
"""Seconds between a sender's looks at the socket while its records wait for replies."""
TICK, HURRIED = 0.005, 0.001
"""Seconds between the keeper's looks at replies something waits for and no caller; while somebody waits for room in the send budget."""
UNSENT = 4 << 20
"""Bytes that a connection may hold unsent when it is given another command: beyond twice that the engine waits, and we hold a lock."""


class RocketProducer(Sends):
    """Appends records to one topic. Made by `RocketClient.producer`."""

    def __init__(self, cluster: RocketCluster, topic: str, options: RocketOptions) -> None:
        record.check_topic(topic)
        self.topic = topic
        self.options = replace(options, batch_size=min(options.batch_size, cluster.budget.limit - OVERHEAD))
        self._cluster = cluster
        self._loop = cluster.loop
        self._lock = threading.RLock()
        self._sequence = itertools.count()
        self._turn = itertools.count(random.getrandbits(16))  # programs that send one record each must not all begin with one queue
        self._ids = record.ids_of_this_process()
        self._header = RocketSendHeader(options.group or "wireproto", topic) if cluster.writes_bare_json else None
        self._glance = Mailbox(cluster.loop)
        self._next_glance = 0.0
        self._account = cluster.budget.account(self)
        self._failure: WireprotoError | None = None
        self._ticking = False
        self._closed = False
        route = cluster.route(topic, cluster.deadline(options.timeout))
        if not route.queues:
            raise codes.NoPermission("the topic has no queue", topic=topic)
        self._lanes = Lanes(self, cluster, route, self._lock)
        cluster.watch(self)
        self._lanes.refresh_later()
        deadline = cluster.deadline(min(options.timeout, options.connect_timeout))
        for address in route.masters:
            with contextlib.suppress(TransportError):  # one that is down is left to the retries
                cluster.connection(address, deadline)
        self._needs_keys = needs_keys(cluster, topic, route.masters, deadline)

    # taking records --------------------------------------------------------------------------------------------------------------

    def send(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = None,
        timestamp: int | None = None,
        partition: int | None = None,
        timeout: float = 30.0,
    ) -> RocketReceipt:
        """Take one record; see `wireproto.roles.Producer.send`.

        Raises:
            ValueUnsupported: null value; empty key; header that is null, empty, repeated, reserved or not text; too large; no key, and the
                topic is compacted.
            BufferFull, Closed.
        """
        now_ms = int(time.time() * 1000)
        if key is None and self._needs_keys:
            raise ValueUnsupported(WANTS_KEYS, topic=self.topic)
        body = value if type(value) is bytes and len(value) <= self.options.max_message_size else self._checked(value)
        properties = None if headers else rocket_plain_properties(key, self._ids, now_ms)
        if properties is None:
            properties = record.properties(key, headers, self._ids.next(now_ms)).encode()
        if timestamp is not None:
            timestamp = timestamp_ms(timestamp)
        sys_flag = 0
        if self.options.compression != "none" and len(body) >= self.options.compress_above:
            packed = compress(self.options.compression, body)
            if len(packed) < len(body):
                body, sys_flag = packed, COMPRESSED[self.options.compression]
        size = len(body) + len(properties) + OVERHEAD
        if not self._account.try_take(size):
            self._account.take(size, time.monotonic() + timeout)
        try:
            if self._lanes.coming is not None and key is not None and partition is None:
                self._lanes.move_keys(timeout, (key,))
            with self._lock:
                lane, free = self._choose(partition, key)
                return self._take(lane, free, body, properties, timestamp, now_ms, sys_flag, alone=key is None and self._needs_keys is None)
        except BaseException:
            self._account.give(size)
            raise

    def send_batch(self, columns: Any, *, partition: int | None = None, timeout: float = 30.0) -> Sequence[RocketReceipt]:
        """Take many records; see `wireproto.roles.Producer.send_batch`. Everything is checked before anything is taken."""
        deadline = time.monotonic() + timeout
        table = columns if isinstance(columns, Columns) else Columns.from_arrow(columns)
        check_rocket_columns(table, self.options.max_message_size)
        if self._needs_keys and any(key is None for key in (table.keys() if "key" in table.columns else [None])):
            raise ValueUnsupported(WANTS_KEYS, topic=self.topic)
        if self._lanes.coming is not None and partition is None and "key" in table.columns:
            self._lanes.move_keys(timeout, table.keys())
        last: dict[int, RocketReceipt] = {}
        for number, rows in self._lanes.route.shares(table, partition, len(self._lanes.all)):
            start = 0
            while start < len(rows):
                share = self._share(rows, start)
                self._account.take(share, deadline)
                try:
                    with self._lock:
                        lane, free = self._choose(number, None)
                        taken, used, receipt = self._take_rows(lane, free, rows, start, share)
                except BaseException:
                    self._account.give(share)
                    raise
                self._account.give(share - used)
                start += taken
                last[receipt.sequence] = receipt
        return list(last.values())

    def _share(self, rows: Columns, start: int) -> int:
        """Bytes that the rows which fit one command may need of the send budget."""
        ahead = rows[start : start + self.options.batch_size // OVERHEAD + 1]
        return min(ahead.nbytes + OVERHEAD * len(ahead), max(self.options.batch_size, ahead[:1].nbytes)) + OVERHEAD

    def _take_rows(self, lane: Lane, free: bool, rows: Columns, start: int, share: int) -> tuple[int, int, RocketReceipt]:
        """Queue neighbours that fit one command: how many, bytes held of their share, and the receipt of the last. Under the lock."""
        self._usable()
        if lane.flying:
            self._sweep(lane)
        now_ms = int(time.time() * 1000)
        limit = min(self.options.batch_size, self.options.max_message_size)
        first = rows[start : start + 1]
        timestamp = first.timestamps()[0] if "timestamp" in first.columns else None
        if first.nbytes > limit // 2 or self._needs_keys is None:
            used, receipt = self._take_large(lane, free, first, timestamp, now_ms, share)
            return 1, used, receipt
        pending = lane.joinable(timestamp, first.nbytes + OVERHEAD, limit)
        fresh = pending is None
        if pending is None:
            pending = self._new_pending(lane, timestamp, now_ms)
        batch = pending.batch()
        before = batch.size
        taken = batch.append_columns(rows, start, len(rows), self._ids, now_ms, limit)
        if fresh:
            self._queue(lane, pending)
        used = min(batch.size - before + OVERHEAD, share)
        pending.size += used
        pending.count = len(batch)
        pending.free = pending.free and free
        self._set_off(lane, pending, full=start + taken < len(rows))
        return taken, used, RocketReceipt(pending, pending.count - 1)

    def _checked(self, value: bytes | None) -> bytes:
        if value is None:
            raise ValueUnsupported("RocketMQ cannot carry a null value", topic=self.topic)
        body = bytes(value)
        limit = self.options.max_message_size
        if len(body) > limit:
            raise ValueUnsupported(f"a value of {len(body)} bytes is larger than the broker takes ({limit})", topic=self.topic)
        return body

    def _choose(self, partition: int | None, key: bytes | None) -> tuple[Lane, bool]:
        """The lane of a record, and whether another one would do as well."""
        lanes = self._lanes.all
        if partition is not None:
            if not 0 <= partition < len(lanes):
                raise OptionError(f"{self.topic} has no partition {partition}: it has {len(lanes)}", topic=self.topic)
            return lanes[partition], False
        if key is not None:
            return lanes[self._lanes.route.by_key(key)], False
        now = time.monotonic()
        able = [lane for lane in lanes if lane.queue.writable and lane.healthy(now)] or lanes
        return able[next(self._turn) % len(able)], True

    def _take(
        self, lane: Lane, free: bool, body: bytes, properties: bytes, timestamp: int | None, now_ms: int, sys_flag: int, *, alone: bool
    ) -> RocketReceipt:
        """Queue a record and send what can be sent. Under the lock. alone: in a command of its own."""
        self._usable()
        size = len(body) + len(properties) + OVERHEAD
        if lane.flying:
            self._sweep(lane)
        if body and not lane.flying and not lane.waiting:
            sent = self._send_alone(lane, free, body, properties, timestamp, now_ms, sys_flag)
            if sent is not None:
                return sent
        pending = None if sys_flag or alone else lane.joinable(timestamp, size, self.options.batch_size)
        if pending is None:
            pending = self._new_pending(lane, timestamp, now_ms)
            pending.sys_flag = sys_flag
            self._queue(lane, pending)
        index = pending.add(body, properties, free)
        self._set_off(lane, pending, full=alone)
        return RocketReceipt(pending, index)

    def _send_alone(
        self, lane: Lane, free: bool, body: bytes, properties: bytes, timestamp: int | None, now_ms: int, sys_flag: int
    ) -> RocketReceipt | None:
        """The short way of a record whose lane is idle and in order; None: it must go the long one. Under the lock."""
        options, queue = self.options, lane.queue
        born = now_ms if timestamp is None else timestamp
        if self._header is None or born < 0 or options.linger or lane.reviving or lane.retry_at or queue.address is None:
            return None
        conn = self._cluster.peek(queue.address)
        if conn is None or conn.unsent > UNSENT:
            return None
        token, now = conn.next_token(), time.monotonic()
        head = self._header.encode(SINGLE, token, queue.queue_id, sys_flag, born, properties)
        try:
            call = conn.submit(token, [head, body], None, now + min(options.delivery_timeout, options.request_timeout))
        except (TransportError, BufferFull):
            return None
        pending = Pending(lane, next(self._sequence), born, timestamp is not None, now + options.delivery_timeout)
        pending.add(body, properties, free)
        pending.sys_flag, pending.sealed, pending.call = sys_flag, True, call
        lane.flying.append(pending)
        if self._cluster.budget.waiting:
            self._tick_later()
        return RocketReceipt(pending, 0)

    def _take_large(
        self, lane: Lane, free: bool, row: Columns, timestamp: int | None, now_ms: int, share: int
    ) -> tuple[int, RocketReceipt]:
        """A row that fills a command: alone it may be as large as brokers take."""
        (value,) = row.values()
        assert value is not None
        key = row.keys()[0] if "key" in row.columns else None
        headers = row.headers()[0] if "headers" in row.columns else None
        properties = record.properties(key, headers, self._ids.next(now_ms)).encode()
        receipt = self._take(lane, free, value, properties, timestamp, now_ms, 0, alone=key is None and self._needs_keys is None)
        return min(len(value) + len(properties) + OVERHEAD, share), receipt

    def _usable(self) -> None:
        if self._closed:
            raise Closed("the producer was closed", topic=self.topic)

    def _new_pending(self, lane: Lane, timestamp: int | None, now_ms: int) -> Pending:
        born = now_ms if timestamp is None else timestamp
        deadline = time.monotonic() + self.options.delivery_timeout
        return Pending(lane, next(self._sequence), born, timestamp is not None, deadline)

    def _queue(self, lane: Lane, pending: Pending) -> None:
        if lane.waiting:
            lane.waiting[-1].sealed = True
        lane.waiting.append(pending)

    def _set_off(self, lane: Lane, pending: Pending, *, full: bool = False) -> None:
        """Something was added to a lane's newest command: send what may go. Under the lock."""
        full = full or bool(pending.sys_flag) or pending.size >= self.options.batch_size or self._cluster.budget.waiting
        pending.sealed = full or not self.options.linger
        if pending.sealed or len(lane.waiting) > 1:
            self._pump(lane)
            if pending.call is None:
                pending.sealed = full  # others may still join while it waits
        elif lane.timer is None:
            lane.timer = self._loop.call_at(time.monotonic() + self.options.linger, self._due, lane)
        if len(lane.waiting) > 1 and lane.flying and (now := time.monotonic()) >= self._next_glance:
            self._next_glance = now + GLANCE
            self._glance.get(0.0)  # timestamps differ, so that nothing can join: see whether replies have come
            self.look()

    # sending, under the lock -------------------------------------------------------------------------------------------------------

    def _pump(self, lane: Lane) -> None:
        """Send what may be sent of a lane."""
        now = time.monotonic()
        while lane.waiting and len(lane.flying) < self.options.max_in_flight:
            head = lane.waiting[0]
            if head.deadline <= now:
                lane.waiting.popleft()
                self._failed(head, lane.problem or TimedOut("no acknowledgement in time", topic=self.topic))
                continue
            if lane.retry_at > now or lane.reviving:
                return
            address = lane.queue.address
            conn = self._cluster.peek(address) if address is not None else None
            if conn is not None and conn.unsent > UNSENT:
                break  # its peer does not read now
            if conn is None or not self._launch(head, conn):
                self._revive_later(lane, now)
                return
            lane.waiting.popleft()
            lane.flying.append(head)
        if lane.waiting or self._cluster.budget.waiting:
            self._tick_later()

    def _launch(self, pending: Pending, conn: Connection) -> bool:
        timeout_at = min(pending.deadline, time.monotonic() + self.options.request_timeout)
        code, properties, body = pending.content()
        try:
            pending.launch(self._submit(conn, pending, code, properties, body, timeout_at))
        except (TransportError, BufferFull):
            return False
        return True

    def _submit(self, conn: Connection, pending: Pending, code: int, properties: bytes, body: bytes, timeout_at: float) -> Call:
        queue_id = pending.lane.queue.queue_id
        if self._header is not None and pending.born >= 0:
            token = conn.next_token()
            head = self._header.encode(code, token, queue_id, pending.sys_flag, pending.born, properties)
            return conn.submit(token, [head, body], None, timeout_at)
        ext = {
            "a": self.options.group or "wireproto",
            "b": self.topic,
            "c": "TBW102",
            "d": "4",
            "e": str(queue_id),
            "f": str(pending.sys_flag),
            "g": str(pending.born),
            "h": "0",
            "i": properties.decode(),
            "j": "0",
            "k": "false",
            "m": "false" if code == SINGLE else "true",
        }
        return self._cluster.submit_raw(conn, code, ext, body, timeout_at=timeout_at)

    def _revive_later(self, lane: Lane, now: float) -> None:
        """Have the worker find the broker again."""
        if not lane.reviving:
            lane.reviving = True
            self._loop.call_at(max(now, lane.retry_at), self._loop.background, self._revive, lane)

    def _revive(self, lane: Lane) -> None:
        """In the client's worker: route and connection anew, then go on. The only part of sending that blocks."""
        problem: WireprotoError | None = None
        try:
            deadline = self._cluster.deadline(self.options.connect_timeout)
            self._lanes.look_up()
            if lane.queue.address is None:
                self._cluster.routes.stale(self.topic)
                raise NoMaster(f"broker {lane.queue.broker} has no master now", topic=self.topic)
            self._cluster.connection(lane.queue.address, deadline)
        except WireprotoError as error:
            problem = error
        with self._lock:
            lane.reviving = False
            if problem is None:
                lane.retry_at = 0.0
            else:
                self._stumble(lane, problem)
                self._rehome(lane)
                if lane.waiting:
                    self._revive_later(lane, time.monotonic())
            self._expire(lane)
            self._pump(lane)

    def _stumble(self, lane: Lane, error: WireprotoError) -> None:
        lane.problem = error
        lane.failures += 1
        lane.retry_at = time.monotonic() + RESEND.delay(lane.failures)

    def learn_keys(self) -> None:
        """In the worker, now and then: ask whether the topic is compacted, if nobody has told yet."""
        if self._needs_keys is None:
            deadline = self._cluster.deadline(self.options.connect_timeout)
            self._needs_keys = needs_keys(self._cluster, self.topic, self._lanes.route.masters, deadline)

    def _rehome(self, lane: Lane) -> None:
        """Records that may go anywhere go where a broker answers."""
        now = time.monotonic()
        healthy = [other for other in self._lanes.all if other is not lane and other.queue.writable and other.healthy(now)]
        if lane.failures < 2 or not healthy:
            return
        for pending in [pending for pending in lane.waiting if pending.free]:
            lane.waiting.remove(pending)
            pending.lane = healthy[next(self._turn) % len(healthy)]
            pending.lane.give_back(pending)
            self._pump(pending.lane)

    def _expire(self, lane: Lane) -> None:
        now = time.monotonic()
        for pending in [pending for pending in lane.waiting if pending.deadline <= now]:
            lane.waiting.remove(pending)
            self._failed(pending, lane.problem or TimedOut("no acknowledgement in time", topic=self.topic))

    def _due(self, lane: Lane) -> None:
        """The linger of a lane is over. In the keeper."""
        with self._lock:
            lane.timer = None
            self._pump(lane)

    def _tick_later(self) -> None:
        """Have the keeper look for replies, since nobody else may do so in time. Under the lock."""
        if not self._ticking and not self._closed:
            self._ticking = True
            self._loop.call_at(time.monotonic() + (HURRIED if self._cluster.budget.waiting else TICK), self._tick)

    def _tick(self) -> None:
        """In the keeper, while commands wait for others to be answered, or somebody for room in the send budget."""
        hurried = self._cluster.budget.waiting
        with self._lock:
            self._ticking = False
            self.look()
            for lane in self._lanes.all:
                if lane.waiting and (hurried or lane.timer is None):
                    self._expire(lane)
                    self._pump(lane)
            if any((lane.waiting and lane.flying) or (hurried and (lane.waiting or lane.flying)) for lane in self._lanes.all):
                self._tick_later()

    def relieve(self) -> None:
        """Somebody waits for room in the send budget; see `wireproto.flow.budget.Holder`."""
        self._tick()

    # outcomes --------------------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Take the replies that are there."""
        with self._lock:
            for lane in self._lanes.all:
                if lane.flying:
                    self._sweep(lane)

    def lost(self, conn: Connection) -> None:
        """In the worker, after a connection was lost: what was on it has failed and goes out again."""
        self.look()

    def wait(self, pending: Pending, deadline: float) -> None:
        """Wait until it is settled; TimedOut leaves it on its way."""
        sent = pending.call
        if sent is not None and not pending.settled and not sent.wait(deadline):
            raise self._late(pending)
        while True:
            with self._lock:
                self.look()
                if pending.settled:
                    return
                lane = pending.lane
                if pending.call is None and not lane.flying:
                    if lane.waiting:
                        lane.waiting[-1].sealed = True
                    self._pump(lane)
                call = pending.call or (lane.flying[0].call if lane.flying else None)
                moved = None
                if call is None and not pending.settled:
                    moved = pending.moved = pending.moved or Event(self._loop)
            if call is not None:
                if not call.wait(deadline):
                    raise self._late(pending)
            elif moved is not None:
                try:
                    moved.wait(deadline)
                except TimedOut:
                    raise self._late(pending) from None

    def _late(self, pending: Pending) -> TimedOut:
        return TimedOut("no acknowledgement in time; the record may still arrive", topic=self.topic, partition=pending.lane.queue.partition)

    def _sweep(self, lane: Lane) -> None:
        """Settle what has been answered in a lane, and send what waited for that. Under the lock."""
        done = [(pending, call) for pending in lane.flying if (call := pending.call) is not None and call.done]
        for pending, call in done:
            lane.flying.remove(pending)
            try:
                offset, warning = self._outcome(pending, call)
            except WireprotoError as error:
                self._refused(lane, pending, error)
            else:
                lane.failures = 0
                self._account.give(pending.size)
                pending.succeed(offset, warning)
        if done and lane.waiting:
            self._pump(lane)

    def _outcome(self, pending: Pending, call: Call) -> tuple[int, int]:
        """Queue offset of the first record, and the warning code or 0."""
        if call.error is not None:
            raise call.error
        frame = call.frame
        assert frame is not None
        reply = self._cluster.read(call.conn, frame, SEND_WARNINGS, topic=self.topic, partition=pending.lane.queue.partition)
        text = reply.ext.get("queueOffset", "")
        if not text.isdecimal():
            raise codes.error(reply.code, f"the reply has no queue offset but {text!r}", peer=call.conn.peer)
        return int(text), reply.code

    def _refused(self, lane: Lane, pending: Pending, error: WireprotoError) -> None:
        """Have it sent again later, if that can help and there is time."""
        over = self._closed or time.monotonic() >= pending.deadline
        if error.refresh:
            self._cluster.routes.stale(self.topic)
        may_leave = error.elsewhere or verdict(error, brief=True, passing=(TimedOut,)) is not Verdict.NEVER
        if may_leave and not over and self._leave(lane, pending, error):
            return
        if over or verdict(error, brief=lane.failures <= BRIEFLY, passing=(TimedOut,)) is Verdict.NEVER:
            self._failed(pending, error)
            return
        self._stumble(lane, error)
        lane.give_back(pending)
        self._revive_later(lane, time.monotonic())

    def _leave(self, lane: Lane, pending: Pending, error: WireprotoError) -> bool:
        """Have it, and what waits behind it, sent by another broker; False where it must go by this one, or no other is known to answer."""
        now, broker = time.monotonic(), lane.queue.broker
        others = [other for other in self._lanes.all if other.queue.broker != broker and other.queue.writable and other.healthy(now)]
        if not pending.free or not others:
            return False
        self._stumble(lane, error)
        leaving = [pending, *(waiting for waiting in lane.waiting if waiting.free)]
        for one in leaving:
            if one is not pending:
                lane.waiting.remove(one)
            one.lane = others[next(self._turn) % len(others)]
            one.lane.give_back(one)
        for other in others:
            self._pump(other)
        if lane.waiting:
            self._revive_later(lane, now)
        return True

    def _failed(self, pending: Pending, error: WireprotoError) -> None:
        self._account.give(pending.size)
        pending.fail(error.with_context(topic=self.topic, partition=pending.lane.queue.partition))
        self._cluster.told.warning(("refused", type(error)), "%d records were not stored: %s", pending.count, error)
        if self._failure is None:
            self._failure = error

    # ends ------------------------------------------------------------------------------------------------------------------------

    def flush(self, timeout: float = 30.0) -> None:
        """Wait until every record taken so far is acknowledged; raises the first failure, or TimedOut."""
        deadline = time.monotonic() + timeout
        with self._lock:
            waiting = sorted(self._lanes.unsettled(), key=lambda pending: pending.sequence)
            for pending in waiting:
                pending.sealed = True
        for pending in waiting:
            self.wait(pending, deadline)
        with self._lock:
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def unsettled(self) -> int:
        """Records whose outcome is not known."""
        with self._lock:
            for lane in self._lanes.all:
                self._sweep(lane)
            return sum(pending.count for pending in self._lanes.unsettled())

    def close(self, timeout: float = 30.0) -> None:
        """Take no more, and flush."""
        if self._closed:
            return
        self._account.refuse(Closed("the producer was closed", topic=self.topic))
        try:
            self.flush(timeout)
        finally:
            with self._lock:
                self._closed = self._lanes.closed = True
                self._account.close()
                for pending in self._lanes.unsettled():
                    pending.fail(Closed("the producer was closed", topic=self.topic))
                for lane in self._lanes.all:
                    lane.waiting.clear()
                    lane.flying.clear()
            self._cluster.unwatch(self)
