"""The Producer: records in, receipts out.

What it is: the accumulator's hands. Whoever fills a batch sends it; the keeper sends when a linger is over or an answer made room,
and reads the
answers; the client's worker thread finds leaders, connections and producer ids. All connections of purpose "produce" are shared by the
client's producers.
May assume: the accumulator keeps order and numbers. Must not: block in the keeper, or send two batches of a partition out of order:
sending is one thread's at a time (`_pump`).

    answer                                              the batch
    0                                                   is done
    no answer, or a retriable code                      is sent again in its place, with its numbers
    OUT_OF_ORDER_SEQUENCE_NUMBER and kin                the same; if it is the oldest, the partition begins anew in the next epoch
    any other code, or delivery_timeout                 fails, and its receipts with it

Locks: `_lock` guards the accumulator and is held for moments; nothing is called under it that could wait.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterable
from copy import copy
from typing import TYPE_CHECKING, Any

from .._codec import Columns, KafkaIntake, KafkaReceipt, KafkaRows
from .._net import Event, Mailbox
from ..errors import BrokerError, BufferFull, Closed, OptionError, TimedOut, UsageError, ValueUnsupported, WireprotoError
from ..net.closing import Closing
from ..position import LogOffset
from . import outgoing, wire
from .accumulator import Accumulator, Identity, Outgoing, Pace
from .codes import error
from .messages import InitProducerIdRequest, InitProducerIdResponse, ProduceRequest, ProduceResponse
from .metadata import NO_ID, Node, Topic
from .partitioner import Sticky, partition_for_key

if TYPE_CHECKING:
    from .._net import Call, Connection, Timer
    from .cluster import KafkaCluster
    from .options import KafkaOptions

_ACKS = {"all": -1, "1": 1, "0": 0}
_UNKNOWN_TOPIC = 3
_DUPLICATE = 46
_STARTS_OVER = frozenset((45, 47, 49, 59))
_IN_DOUBT = frozenset((7, 13, 20))
_UNSENT_LIMIT = 2 << 20
_CROWDED_PAUSE = 0.005
_PREPARE_TIME = 10.0
_PREPARE_PAUSE = 0.1


class KafkaProducer(KafkaIntake, Closing):
    """Appends records to one topic; may be shared by threads. Made by `KafkaClient.producer`.

    `send` is the core's: it puts the record into the open batch, and calls `_send_slowly` where there is more to do.
    """

    def __init__(self, cluster: KafkaCluster, topic: str, options: KafkaOptions) -> None:
        self._cluster = cluster
        self._loop = cluster.loop
        self.topic = topic
        self.options = options
        self._acks = _ACKS[options.acks]
        self._lock = threading.Lock()
        self._pumping = threading.Lock()
        self._again = False
        self._preparing = False
        self._stale = False
        self._looked_at = time.monotonic()
        self._closed = False
        self._timer: Timer | None = None
        self._failure: BaseException | None = None
        self._trouble: WireprotoError | None = None
        self._links: dict[int, Connection] = {}
        self._buffer = cluster.send_buffer
        self._box = Mailbox(cluster.loop, self._replied, prompt=self._replied_well)
        deadline = cluster.deadline()
        cluster.topic_entry(topic, deadline, create=options.auto_create)
        self._identity: Identity | None = None
        self._idempotent = self._decide_idempotence(deadline)
        self._sticky = Sticky(options.batch_size, random.choice)
        pace = Pace(
            linger=options.linger,
            delivery_timeout=options.delivery_timeout,
            backoff=0.1,
            backoff_max=1.0,
            in_flight=options.max_in_flight,
            idempotent=self._idempotent,
        )
        self._batches = Accumulator(pace, outgoing.builder_factory(options), lambda: Event(cluster.loop))
        largest = options.max_request_size - outgoing.BATCH_OVERHEAD
        direct = options.message_format == 2 and options.linger > 0 and options.partitioner is None
        self.intake(cluster.metadata, self._loop.check, self._buffer, largest, direct)
        self._look_at_topics()

    def _decide_idempotence(self, deadline: float) -> bool:
        wanted = self.options.idempotence
        if wanted is False or self._acks != -1 or self.options.message_format != 2:
            return False
        conn = self._cluster.retried(lambda: self._cluster.to_any(deadline), deadline)
        agreed: wire.Agreed = conn.context
        if not agreed.versions.has(InitProducerIdRequest):
            if wanted:
                raise OptionError("the broker has no idempotent producers (InitProducerId)", peer=conn.peer)
            return False
        self._identity = self._new_identity(deadline)
        return True

    def _new_identity(self, deadline: float) -> Identity:
        def check(reply: InitProducerIdResponse) -> BrokerError | None:
            return error(reply.error_code, "asking for a producer id") if reply.error_code else None

        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        reply = self._cluster.ask(request, deadline, check=check)
        return Identity(reply.producer_id, reply.producer_epoch)

    # --- records in ---

    def _send_slowly(
        self, value: Any, key: Any, headers: bytes | None, time_ms: int, stamped: bool, partition: int | None, size: int, timeout: float
    ) -> KafkaReceipt:
        """What `send` leaves over: a new batch, waiting for room, refusals. `headers` are encoded already."""
        outgoing.check_record(self.options, size, headers, time_ms if stamped else None, self.topic)
        if partition is None:
            partition = self._choose(key, size)
        else:
            self._check_partition(partition)
        self._room(size, timeout)
        batch, index, full = self._append(partition, value, key, headers, time_ms, size)
        if full or not self.options.linger:
            self._pump()
        elif not index:
            self._arm(batch.created + self.options.linger)
        return KafkaReceipt(batch, index)

    def _look_at_topics(self) -> None:
        """The cluster has learnt something: tell the intake."""
        topics = self._cluster.metadata.topics
        entry = topics.get(self.topic)
        stay = entry is not None and self.stuck in (entry.available or entry.partitions)
        self.know(topics, len(entry.partitions) if entry is not None else 0, stay)

    def send_batch(self, columns: Any, *, partition: int | None = None, timeout: float = 30.0) -> list[KafkaReceipt]:
        """See `wireproto.roles.Producer.send_batch`. Rows of one partition keep their order."""
        self._loop.check()
        if partition is not None:
            self._check_partition(partition)
        table = columns if isinstance(columns, Columns) else Columns.from_arrow(columns)
        outgoing.check_columns(self.options, table, self.topic)
        last: dict[int, tuple[Outgoing, int]] = {}
        deadline = time.monotonic() + timeout
        for number, rows in self._shares(table) if partition is None else [(partition, None)]:
            self._send_rows(None if number < 0 else number, table, rows, deadline, last)
        if not self.options.linger:
            self._pump()
        return [KafkaReceipt(batch, index) for _, (batch, index) in sorted(last.items())]

    def _shares(self, table: Columns) -> list[tuple[int, KafkaRows | None]]:
        """The rows by partition; -1: those that may go anywhere."""
        self._look_at_topics()
        self._known_topic()
        chosen = None
        if self.options.partitioner is not None and table.partitions() is None:
            keys = table.keys()
            chosen = [self._choose(key, 0) for key in keys]
        return self.shares(table, chosen)

    def _send_rows(
        self, partition: int | None, table: Columns, rows: KafkaRows | None, deadline: float, last: dict[int, tuple[Outgoing, int]]
    ) -> None:
        """Rows for one partition; None: whichever is sticky when a batch begins."""
        now_ms = time.time_ns() // 1_000_000
        start, stop = 0, len(table if rows is None else rows)
        share = self.options.batch_size
        while start < stop:
            self._room(share, deadline - time.monotonic())
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
                        self._batches.close(number)
            finally:
                self._buffer.give(share - used)
            start += taken
            if full:
                self._pump()
            elif index + 1 == taken:
                self._arm(batch.created + self.options.linger)

    def _open(self, partition: int) -> Outgoing:
        """The open batch of a partition, a new one if need be. Under the lock."""
        if self._closed:
            raise Closed("the producer is closed")
        batch = self._batches.current(partition, time.monotonic())
        batch.owner = self
        return batch

    def _refuse_larger(self, batch: Outgoing, used: int, index: int, partition: int) -> None:
        """A record larger than a batch has one of its own: take that back when the record is larger than allowed."""
        if index == 0 and used > self.options.max_request_size:
            self._batches.lane(partition).seal()
            raise ValueUnsupported(
                f"a record of {used} bytes is larger than max_request_size ({self.options.max_request_size})", topic=self.topic
            )

    def _append(
        self, partition: int, value: Any, key: Any, headers: bytes | None, time_ms: int, size: int
    ) -> tuple[Outgoing, int, bool]:
        """Put a record in whose room is taken: its batch, its index there, and whether the batch before is full now."""
        full = False
        try:
            with self._lock:
                batch = self._open(partition)
                index = batch.add(value, key, headers, time_ms, size)
                if index < 0:
                    self._batches.close(partition)
                    full = True
                    batch = self._open(partition)
                    index = batch.add(value, key, headers, time_ms, size)
                self.opened(partition, batch)
        except BaseException:
            self._buffer.give(size)
            raise
        return batch, index, full

    def _room(self, size: int, timeout: float) -> None:
        if self._buffer.try_take(size):
            return
        with self._lock:
            self._batches.close_all()  # nothing to linger for: the buffer is full
        self._pump()
        self._buffer.take(size, max(timeout, 0.0))

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
            number = self.stay(size)
            if number < 0:
                number = self._sticky.pick(size, entry.available or tuple(entry.partitions))
                self.stick(number, self._sticky.lend())
            return number

    def _known_topic(self) -> Topic:
        entry = self._cluster.metadata.topics.get(self.topic)
        if entry is None or not entry.partitions:
            raise error(_UNKNOWN_TOPIC, "the topic is gone", topic=self.topic)
        return entry

    def _check_partition(self, partition: int) -> None:
        entry = self._cluster.metadata.topics.get(self.topic)
        if entry is not None and partition not in entry.partitions:
            raise OptionError(f"there is no partition {partition}: the topic has {len(entry.partitions)}", topic=self.topic)

    # --- waiting ---

    def position_in(self, batch: Outgoing, index: int, timeout: float | None) -> LogOffset:
        """The place of a batch's record, as `Receipt.position`."""
        outcome = batch.outcome
        if not outcome.done:
            self.hurry(batch)
            try:
                outcome.wait(time.monotonic() + (self.options.delivery_timeout if timeout is None else timeout))
            except WireprotoError:
                if not outcome.done:
                    raise
        if outcome.error is not None:
            raise copy(outcome.error)  # a fresh one for each who asks
        if outcome.value < 0:
            raise UsageError("the broker tells no position with acks=0", topic=self.topic, partition=batch.partition)
        return LogOffset(self.topic, batch.partition, outcome.value + index)

    def hurry(self, batch: Outgoing) -> None:
        """Somebody waits for this batch: do not linger."""
        with self._lock:
            if self._batches.lane(batch.partition).open is batch:
                self._batches.close(batch.partition)
        self._pump()

    def flush(self, timeout: float = 30.0) -> None:
        """See `wireproto.roles.Producer.flush`."""
        self._loop.check()
        deadline = time.monotonic() + timeout
        with self._lock:
            self._batches.close_all()
            left = self._batches.unanswered()
        self._pump()
        for batch in left:
            try:
                batch.outcome.wait(deadline)
            except TimedOut:
                if not batch.outcome.done:
                    why = f"; last trouble: {self._trouble}" if self._trouble is not None else ""
                    raise TimedOut(f"not all records were acknowledged within {timeout:g} s{why}", topic=self.topic) from None
            except BrokerError:
                continue  # in _failure
        while not self._acks and any(conn.unsent and not conn.closed for conn in tuple(self._links.values())):
            if time.monotonic() >= deadline:
                raise TimedOut(f"not all records have left within {timeout:g} s", topic=self.topic)
            self._cluster.pause(_CROWDED_PAUSE)
        with self._lock:
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def close(self, timeout: float = 30.0) -> None:
        """Flush, then take no more; what is not acknowledged in time fails with Closed."""
        if self._closed:
            return
        try:
            self.flush(timeout)
        finally:
            with self._lock:
                self._closed = True
                left = self._batches.drain()
                if self._timer is not None:
                    self._timer.cancel()
            for batch in left:
                self._fail(batch, Closed("the producer was closed before the record was acknowledged", topic=self.topic))
            self._box.close()

    # --- sending: one thread at a time ---

    def _pump(self) -> None:
        self._again = True
        while self._again and self._pumping.acquire(blocking=False):
            try:
                while self._again:
                    self._again = False
                    while self._send_some():
                        pass
            finally:
                self._pumping.release()

    def _send_some(self) -> bool:
        now = time.monotonic()
        if now - self._looked_at > self.options.metadata_max_age:
            self._looked_at, self._stale = now, True
        missing: set[int] = set()
        crowded = False
        loads: dict[int, tuple[Connection, list[Outgoing]]] = {}
        with self._lock:
            expired = self._batches.expired(now)
            for partition in self._batches.sendable(now):
                node = self._cluster.metadata.leader(self.topic, partition)
                conn = self._links.get(node.id) if node is not None else None
                if conn is None or conn.closed:
                    missing.add(node.id if node is not None else -1)
                    continue
                if conn.unsent > _UNSENT_LIMIT:
                    crowded = True
                    continue
                batch = self._batches.take(partition, self._identity, now)
                if batch is None:
                    missing.add(-2)
                    continue
                loads.setdefault(id(conn), (conn, []))[1].append(batch)
            wakeup = self._batches.wakeup(now)
            if crowded and not self._acks:  # no answer will tell that there is room again
                wakeup = now + _CROWDED_PAUSE
            more = bool(loads) and (not self._acks or bool(self._batches.sendable(now)))  # without acks what was sent has landed
        for batch in expired:
            self._fail(batch, self._expiry(batch))
        left = [(conn, part) for conn, batches in loads.values() for part in outgoing.requests(batches, self.options.max_request_size)]
        try:
            while left:
                self._send(*left.pop(0))
        except BaseException:  # a signal handler's: what was taken and not sent goes back
            for _, part in left:
                self._retry(part, None, doubtful=True)
            raise
        if missing or self._stale:
            self._prepare_soon(missing)
        if wakeup != float("inf"):
            self._arm(wakeup)
        return more

    def _expiry(self, batch: Outgoing) -> TimedOut:
        doubt = "; it may still be in the log" if batch.doubtful else ""
        why = f"; last trouble: {self._trouble}" if self._trouble is not None else ""
        return TimedOut(
            f"the record was not acknowledged within {self.options.delivery_timeout:g} s{doubt}{why}",
            topic=self.topic,
            partition=batch.partition,
        )

    def _send(self, conn: Connection, batches: list[Outgoing]) -> None:
        entry = self._cluster.metadata.topics.get(self.topic)
        topic_id = entry.id if entry is not None else NO_ID
        try:
            version = wire.version_for(conn, ProduceRequest, outgoing.version_cap(self.options, topic_id))
            timeout_ms = int(self.options.request_timeout * 1000)
            request = outgoing.request(self.topic, topic_id, batches, self._acks, timeout_ms)
            if self._acks:
                timeout_at = time.monotonic() + self.options.request_timeout + 1.0
                wire.submit(conn, request, mailbox=self._box, timeout_at=timeout_at, version=version, matter=batches)
            else:
                agreed: wire.Agreed = conn.context
                conn.send(wire.frame(request, version, conn.next_token(), agreed.client_id))
                self._landed((batch, -1) for batch in batches)
        except WireprotoError as why:
            if not why.retriable and not isinstance(why, BufferFull):
                self._refuse(batches, why)
                return
            self._retry(batches, why, doubtful=False)
        except BaseException:
            self._retry(batches, None, doubtful=True)
            raise

    # --- answers: in the keeper, or at once in a waiting thread when all is well ---

    def _replied_well(self, call: Call) -> bool:
        """Take in an answer that all batches have landed; False leaves it to `_replied`. A signal may end this anywhere, and `_replied` do
        it all again."""
        sent: wire.Sent = call.context
        batches: list[Outgoing] = sent.matter
        try:
            reply: ProduceResponse = wire.result(call)
        except WireprotoError:
            return False
        answers = {part.index: part for topic in reply.responses for part in topic.partition_responses if not part.error_code}
        if not all(batch.partition in answers for batch in batches):
            return False
        self._landed([(batch, answers[batch.partition].base_offset) for batch in batches])
        with self._lock:
            idle = self._batches.idle
        if not idle:
            self._pump()
        return True

    def _replied(self, call: Call) -> None:
        sent: wire.Sent = call.context
        batches: list[Outgoing] = sent.matter
        try:
            reply: ProduceResponse = wire.result(call)
        except WireprotoError as why:
            if isinstance(why, TimedOut):
                call.conn.close("a Produce was not answered in time")
            self._retry(batches, why, doubtful=True)
        else:
            self._answered(batches, reply, sent.version)
        self._pump()

    def _answered(self, batches: list[Outgoing], reply: ProduceResponse, version: int) -> None:
        answers = {part.index: part for topic in reply.responses for part in topic.partition_responses}
        nodes = [Node(end.node_id, end.host, end.port, end.rack) for end in reply.node_endpoints]
        landed: list[tuple[Outgoing, int]] = []
        for batch in batches:
            answer = answers.get(batch.partition)
            if answer is None:
                self._retry([batch], error(13, "the answer leaves the partition out", topic=self.topic), doubtful=True)
                continue
            code = answer.error_code
            if not code:
                landed.append((batch, answer.base_offset))
                continue
            problem = error(code, answer.error_message or "", message="ProduceResponse", version=version, topic=self.topic)
            problem.with_context(partition=batch.partition)
            leader = answer.current_leader
            moved = version >= 10 and self._cluster.hint(self.topic, batch.partition, leader.leader_id, leader.leader_epoch, nodes)
            if code in _STARTS_OVER and self._idempotent:
                self._out_of_order(batch, problem)
            elif problem.retriable:
                self._retry([batch], problem, doubtful=code in _IN_DOUBT, at_once=moved)
            else:
                if code == _DUPLICATE:
                    problem.text = "the record was written by an earlier sending; its position is not known"
                elif answer.record_errors:
                    problem.text += "".join(f"; record {bad.batch_index}: {bad.batch_index_error_message}" for bad in answer.record_errors)
                self._refuse([batch], problem)
        self._landed(landed)

    def _landed(self, batches: Iterable[tuple[Outgoing, int]]) -> None:
        for batch, base in batches:
            with self._lock:
                self._batches.landed(batch)
            batch.outcome.set(base)
            self._buffer.release(batch)
        self._buffer.wake()

    def _retry(self, batches: list[Outgoing], why: WireprotoError | None, *, doubtful: bool, at_once: bool = False) -> None:
        now = time.monotonic()
        with self._lock:
            self._trouble = why or self._trouble
            if why is not None and why.refresh and not at_once:
                self._stale = True
            for batch in batches:
                self._batches.retry(batch, now, doubtful=doubtful, at_once=at_once)

    def _out_of_order(self, batch: Outgoing, why: BrokerError) -> None:
        with self._lock:
            self._trouble = why
            given_up = self._batches.out_of_order(batch, time.monotonic())
            if given_up is not None and self._identity == given_up:
                self._identity = given_up.raised()

    def _refuse(self, batches: list[Outgoing], why: WireprotoError) -> None:
        for batch in batches:
            with self._lock:
                self._batches.refused(batch)
            self._fail(batch, why)

    def _fail(self, batch: Outgoing, why: WireprotoError) -> None:
        if batch.outcome.done:
            return
        with self._lock:
            self._failure = self._failure or why
        batch.outcome.fail(why)
        self._buffer.release(batch)
        self._buffer.wake()

    # --- leaders, connections and identities: in the worker thread ---

    def _prepare_soon(self, missing: set[int]) -> None:
        with self._lock:
            if self._preparing or self._closed:
                return
            self._preparing = True
        self._loop.background(self._prepare, missing)

    def _prepare(self, missing: set[int]) -> None:
        deadline = time.monotonic() + min(_PREPARE_TIME, self.options.request_timeout)
        wait = False
        try:
            with self._lock:
                stale, self._stale = self._stale or -1 in missing, False
            if stale:
                self._cluster.refresh((self.topic,), deadline)
            if self._idempotent and self._identity is None:
                identity = self._new_identity(deadline)
                with self._lock:
                    self._identity = identity
            for node in missing:
                if node >= 0 and node in self._cluster.metadata.nodes:
                    self._links[node] = self._cluster.node_connection(node, "produce", deadline)
            entry = self._cluster.metadata.topics.get(self.topic)
            wait = entry is None or len(entry.available) < len(entry.partitions)
        except WireprotoError as why:
            wait = True
            with self._lock:
                self._trouble = why
                self._stale = True
                doomed = [] if why.retriable or isinstance(why, TimedOut) else self._batches.drain()
            for batch in doomed:
                self._fail(batch, why)
        finally:
            with self._lock:
                self._preparing = False
        if wait:
            self._arm(time.monotonic() + _PREPARE_PAUSE)
        else:
            self._pump()

    def _arm(self, when: float) -> None:
        with self._lock:
            if self._closed or (self._timer is not None and self._timer.when <= when):
                return
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(when, self._tick)

    def _tick(self) -> None:
        with self._lock:
            self._timer = None
        self._pump()
