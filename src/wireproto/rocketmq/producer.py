"""The Producer role: records to the masters of a topic's queues.

What it is: each record is one command 310, sent at once and not waited for; with `linger`, and from `send_batch`, neighbours of one queue
and one timestamp share a command 320. Where a reply is a refusal that may pass, or the connection was lost, the send goes out again until
the delivery timeout, in the order of taking, and nothing new of this producer overtakes it.

Delivery: acknowledged means stored by the broker (see `RocketReceipt.warning`). A send whose reply was lost is repeated and may then be
stored twice: RocketMQ has no sequence numbers to tell.
Partition: the one named; by key, Java's ``hashCode``; else in turn. Only a record in turn may move to another queue when it is sent again.
Thread-safe. `_lock` is held for moments only, never while waiting.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..compression import compress
from ..errors import BrokerError, BufferFull, Closed, OptionError, TimedOut, TransportError, ValueUnsupported, WireprotoError
from ..net.retry import Policy
from . import codes, record
from .linger import Linger
from .outbox import Pending, RocketReceipt, late
from .remoting import SEND_WARNINGS
from .route import Queue

if TYPE_CHECKING:
    from .._net import Call, Connection
    from ..records import Headers
    from .client import RocketClient
    from .options import ProducerOptions

SINGLE, BATCH = 310, 320
COMPRESSED = {"zlib": 0x301, "lz4": 0x101, "zstd": 0x201}
"""sysFlag of a compressed body: bit 0 and the codec's number."""
RESEND = Policy(first=0.02, factor=2.0, ceiling=1.0, jitter=0.2)
PASSING = frozenset({1500, 14, 2, 17, 16})
"""Codes of a send that may pass (as Java's client has it): shutting down, busy, route not there (yet), broker read-only for a while."""


class RocketProducer:
    """Appends records to one topic. Made by `RocketClient.producer`."""

    def __init__(self, client: RocketClient, topic: str, options: ProducerOptions) -> None:
        record.check_topic(topic)
        self.topic = topic
        self.options = options
        self._client = client
        self._loop = client.loop
        self._lock = threading.RLock()
        self._sequence = itertools.count()
        self._turn = itertools.count()
        self._ids = record.UniqueIds.of_this_process()
        self._flying: dict[Connection, deque[Pending]] = {}
        self._parked: list[Pending] = []
        self._draining = False
        self._held = 0
        self._failure: WireprotoError | None = None
        self._closed = False
        self._route = client.route(topic, time.monotonic() + options.timeout)
        self._linger = Linger(self, options.linger, options.batch_size)
        self._connect()

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
            ValueUnsupported: null value; empty key; header that is null, empty, repeated, reserved or not text; too large.
            BufferFull, Closed.
        """
        if value is None:
            raise ValueUnsupported("RocketMQ cannot carry a null value", topic=self.topic)
        now_ms = int(time.time() * 1000)
        properties = record.properties(key, headers, self._ids.next(now_ms))
        body = self._checked(bytes(value), properties)
        queue, free = self._choose(partition, key)
        sys_flag = 0
        if self.options.compression != "none" and len(body) >= self.options.compress_above:
            packed = compress(self.options.compression, body)
            if len(packed) < len(body):
                body, sys_flag = packed, COMPRESSED[self.options.compression]
        self._admit(len(body) + len(properties), timeout)
        with self._lock:
            if self._closed:
                raise Closed("the producer was closed")
            if self._linger.on and not sys_flag:
                return self._linger.add(queue, body, properties, timestamp, now_ms)
            self._linger.close_batch(queue.partition)
            born = now_ms if timestamp is None else timestamp
            if body:
                pending = self.make(queue, SINGLE, sys_flag, born, properties, body, 1)
            else:  # 5.x brokers fail on an empty body; a batch of one carries it on both lines
                pending = self.make(queue, BATCH, 0, born, "", record.batch_entry(b"", properties), 1)
            pending.free = free
            self.dispatch(pending)
            return RocketReceipt(self, pending, 0)

    def send_batch(self, columns: Any, *, partition: int | None = None, timeout: float = 30.0) -> Sequence[RocketReceipt]:
        """Take many records: one command 320 for neighbours of one queue and one timestamp; see `wireproto.roles.Producer.send_batch`."""
        from .columns import rows_of

        deadline = time.monotonic() + timeout
        groups = Linger(self, float("inf"), self.options.batch_size)
        rows = rows_of(columns)
        for row in rows:  # everything is checked before anything is taken
            if row.value is None:
                raise ValueUnsupported("RocketMQ cannot carry a null value", topic=self.topic)
            self._checked(row.value, record.properties(row.key, row.headers, "0" * 32))
        turn = next(self._turn)
        for row in rows:
            now_ms = int(time.time() * 1000)
            properties = record.properties(row.key, row.headers, self._ids.next(now_ms))
            queue, _ = self._choose(row.partition if partition is None else partition, row.key, turn)
            self._admit(len(row.value) + len(properties), max(0.0, deadline - time.monotonic()))
            with self._lock:
                if self._closed:
                    raise Closed("the producer was closed")
                self._linger.close_batch(queue.partition)
                groups.add(queue, row.value, properties, row.timestamp, now_ms)
        with self._lock:
            groups.close_all()
        return [RocketReceipt(self, pending, pending.count - 1) for pending in groups.sent]

    def _checked(self, body: bytes, properties: str) -> bytes:
        size = len(body)
        if size > self.options.max_message_size:
            raise ValueUnsupported(
                f"a value of {size} bytes is larger than the broker takes ({self.options.max_message_size})", topic=self.topic
            )
        return body

    def _choose(self, partition: int | None, key: bytes | None, turn: int | None = None) -> tuple[Queue, bool]:
        """The queue of a record, and whether another one would do as well."""
        queues = self._route.queues
        if partition is not None:
            if not 0 <= partition < len(queues):
                raise OptionError(f"{self.topic} has no partition {partition}: it has {len(queues)}", topic=self.topic)
            return queues[partition], False
        if key is not None:
            return queues[self._route.by_key(key)], False
        able = self._route.writable() or queues
        return able[(next(self._turn) if turn is None else turn) % len(able)], True

    # sending ---------------------------------------------------------------------------------------------------------------------

    def make(self, queue: Queue, code: int, sys_flag: int, born: int, properties: str, body: bytes, count: int) -> Pending:
        """A new pending send, last in order. Under the lock."""
        deadline = time.monotonic() + self.options.delivery_timeout
        return Pending(next(self._sequence), queue, code, sys_flag, born, properties, body, count, deadline)

    def dispatch(self, pending: Pending) -> None:
        """Put it on the wire, or behind what waits to be sent again. Under the lock; never blocks."""
        self._held += pending.size
        conn = self._peek(pending.queue)
        if conn is not None and not self._parked:
            self._sweep(conn)
        if conn is None or conn.closed or self._parked or not self._launch(pending, conn):
            self._park(pending)

    def _peek(self, queue: Queue) -> Connection | None:
        return self._client.peek(queue.address) if queue.address else None

    def _launch(self, pending: Pending, conn: Connection) -> bool:
        timeout_at = min(pending.deadline, time.monotonic() + self.options.request_timeout)
        try:
            call = self._client.submit_raw(conn, pending.code, self._fields(pending), pending.body, timeout_at=timeout_at)
        except (TransportError, BufferFull):
            return False
        self._flying.setdefault(conn, deque()).append(pending)
        pending.launch(call)
        return True

    def _fields(self, pending: Pending) -> dict[str, str]:
        """extFields of 310 and 320, which have the same."""
        return {
            "a": self.options.group,
            "b": self.topic,
            "c": "TBW102",
            "d": "4",
            "e": str(pending.queue.queue_id),
            "f": str(pending.sys_flag),
            "g": str(pending.born),
            "h": "0",
            "i": pending.properties,
            "j": "0",
            "k": "false",
            "m": "true" if pending.code == BATCH else "false",
        }

    def _park(self, pending: Pending) -> None:
        pending.park(self._loop)
        heapq.heappush(self._parked, pending)
        if not self._draining:
            self._draining = True
            self._loop.background(self._drain)

    def _drain(self) -> None:
        """In the client's worker thread: send what is parked, in order, as far as its brokers can be reached."""
        while True:
            with self._lock:
                if not self._parked:
                    self._draining = False
                    return
                pending = self._parked[0]
                now = time.monotonic()
                if pending.not_before > now and not self._closed:
                    self._loop.call_at(min(pending.not_before, pending.deadline), self._loop.background, self._drain)
                    return
            error: WireprotoError | None = None
            try:
                conn = self._connection(pending)
            except (TransportError, BrokerError) as problem:
                error = problem
            except WireprotoError as problem:
                self._abandon(pending, problem)
                continue
            with self._lock:
                if error is None and self._launch(pending, conn):
                    heapq.heappop(self._parked)
                    continue
            if time.monotonic() >= pending.deadline:
                self._abandon(pending, error or late(self.topic, pending))
            else:
                self._delay(pending)

    def _connection(self, pending: Pending) -> Connection:
        deadline = min(pending.deadline, time.monotonic() + self.options.connect_timeout)
        route = self._client.route(self.topic, deadline)
        with self._lock:
            self._route = route
            queue = route.queues[pending.queue.partition] if pending.queue.partition < len(route.queues) else pending.queue
            able = route.writable()
            if pending.free and pending.attempts and len(route.masters) > 1 and able:
                queue = able[(queue.partition + 1) % len(able)]
            pending.queue = queue
        if queue.address is None:
            self._client.routes.stale(self.topic)
            raise codes.BrokerNotExist(f"broker {queue.broker} has no master now", topic=self.topic, partition=queue.partition)
        return self._client.connection(queue.address, deadline)

    def _abandon(self, pending: Pending, error: WireprotoError) -> None:
        with self._lock:
            if self._parked and self._parked[0] is pending:
                heapq.heappop(self._parked)
            self._failed(pending, error)

    def _delay(self, pending: Pending) -> None:
        pending.attempts += 1
        pending.not_before = time.monotonic() + RESEND.delay(pending.attempts)

    def _connect(self) -> None:
        """Dial the masters now, so that the first sends go straight out; one that is down is left to the retries."""
        deadline = time.monotonic() + min(self.options.timeout, self.options.connect_timeout)
        problem: WireprotoError | None = None
        masters = self._route.masters
        for address in masters:
            try:
                conn = self._client.connection(address, deadline)
            except TransportError as error:
                problem = error
            else:
                self._client.watch(conn, self)
        if problem is not None and len(masters) == 1 and not isinstance(problem, TransportError):
            raise problem

    # outcomes --------------------------------------------------------------------------------------------------------------------

    def look(self, pending: Pending) -> None:
        """Settle it if its reply is there."""
        call = pending.call
        if call is not None and call.done:
            self._settle(pending, call)

    def wait(self, pending: Pending, deadline: float) -> None:
        """Wait until it is settled; TimedOut leaves it on its way."""
        self._linger.close_holding(pending)
        while not pending.settled:
            call, moved = pending.call, pending.moved
            if call is not None:
                if not call.wait(deadline):
                    raise late(self.topic, pending)
                self._settle(pending, call)
            elif moved is not None:
                try:
                    moved.wait(deadline)
                except TimedOut:
                    raise late(self.topic, pending) from None
            else:
                raise Closed("the producer was closed before this record was sent", topic=self.topic)

    def lost(self, conn: Connection) -> None:
        """In the worker, after a connection was lost: send again what was on it."""
        with self._lock:
            self._sweep(conn)

    def _sweep(self, conn: Connection) -> None:
        """Settle what has been answered on a connection, oldest first. Under the lock."""
        flying = self._flying.get(conn)
        while flying:
            pending = flying[0]
            call = pending.call
            if call is None or pending.settled:
                flying.popleft()
            elif call.done:
                flying.popleft()
                self._settle(pending, call)
            else:
                return
        if flying is not None and conn.closed:
            del self._flying[conn]

    def _settle(self, pending: Pending, call: Call) -> None:
        """Take a finished call's outcome."""
        with self._lock:
            if pending.call is not call or pending.settled:
                return
            try:
                offset, warning = self._outcome(pending, call)
            except WireprotoError as error:
                self._refused(pending, error)
                return
            self._held -= pending.size
            pending.succeed(offset, warning)

    def _outcome(self, pending: Pending, call: Call) -> tuple[int, int]:
        if call.error is not None:
            raise call.error
        frame = call.frame
        assert frame is not None
        reply = self._client.read(call.conn, frame, SEND_WARNINGS, topic=self.topic, partition=pending.queue.partition)
        text = reply.ext.get("queueOffset", "")
        if not text.isdecimal():
            raise codes.error(reply.code, f"the reply has no queue offset but {text!r}", peer=call.conn.peer)
        return int(text), reply.code

    def _refused(self, pending: Pending, error: WireprotoError) -> None:
        """Send it again later, if that can help and there is time."""
        code = getattr(error, "code", None)
        passing = error.retriable or code in PASSING or isinstance(error, TimedOut)
        if error.refresh or code in PASSING:
            self._client.routes.stale(self.topic)
        hopeless = code in (16, 17) and pending.attempts > 5
        if not passing or hopeless or self._closed or time.monotonic() >= pending.deadline:
            self._failed(pending, error)
            return
        pending.not_before = time.monotonic() + (0.0 if pending.attempts <= 1 else RESEND.delay(pending.attempts))
        self._park(pending)

    def _failed(self, pending: Pending, error: WireprotoError) -> None:
        self._held -= pending.size
        pending.fail(error.with_context(topic=self.topic, partition=pending.queue.partition))
        if self._failure is None:
            self._failure = error

    def _admit(self, size: int, timeout: float) -> None:
        """Wait for room in the send buffer."""
        if self._held + size <= self.options.buffer_memory:
            return
        deadline = time.monotonic() + timeout
        while self._held and self._held + size > self.options.buffer_memory:
            with self._lock:
                self._linger.close_all()
                oldest = min(self._waiting(), default=None)
            if oldest is None:
                return
            try:
                self.wait(oldest, deadline)
            except TimedOut:
                raise BufferFull(f"{self._held} bytes wait for acknowledgement", topic=self.topic) from None

    def _waiting(self) -> list[Pending]:
        """Everything unsettled. Under the lock."""
        flying = [pending for sends in self._flying.values() for pending in sends if not pending.settled]
        return flying + [pending for pending in self._parked if not pending.settled]

    # ends ------------------------------------------------------------------------------------------------------------------------

    def flush(self, timeout: float = 30.0) -> None:
        """Wait until every record taken so far is acknowledged; raises the first failure, or TimedOut."""
        deadline = time.monotonic() + timeout
        with self._lock:
            self._linger.close_all()
            waiting = sorted(self._waiting())
        for pending in waiting:
            self.wait(pending, deadline)
        with self._lock:
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def close(self, timeout: float = 30.0) -> None:
        """Flush, then take no more."""
        if self._closed:
            return
        try:
            self.flush(timeout)
        finally:
            with self._lock:
                self._closed = True
                for pending in self._waiting():
                    pending.fail(Closed("the producer was closed", topic=self.topic))
                self._parked.clear()
                self._flying.clear()
            self._client.unwatch(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
            return
        try:
            self.close(min(5.0, self.options.timeout))
        except WireprotoError:
            return  # the error that ends the block is the one to see
