"""One partition's producer: batches, what is on its way, receipts, and coming back after a loss.

    send ── open batch ──(full, linger, flush)── pending ── SEND ──▶ broker ── SEND_RECEIPT ──▶ entry done, popped
                                                   ▲ after a reconnect all of it is sent again, in order, under the same
                                                   │ producer name and sequence ids, before anything new

What it is: the state of one producer id. Entered by callers (send, hurry, flush), the keeper (receipts, linger, time-outs) and the client's
worker (opening again); one lock guards it all and is never held over a wait.
A receipt names the oldest pending entry; one for an older entry is a repeat and ignored; one for a newer one means that the connection
lost track, and it is dropped. So an entry is reported stored only after every entry before it was.

    SEND_ERROR          any pending entry, a batch by its highest id; it overtakes the receipts of those before
    NotAllowedError     the entry fails, and nothing is sent again
    ChecksumError       the same where our own copy is broken, or when it happens twice; else as below
    terminated, fenced  the producer has ended
    others              the producer is opened again after a pause, which grows until something is acknowledged, and all is sent again
Must not: choose partitions, or look into what a user sends.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import suppress
from copy import copy
from threading import Lock
from typing import TYPE_CHECKING, Any

from wireproto._codec import Columns, PulsarBatchBuilder, Receipt, crc32c
from wireproto._net import Connection, Event, Mailbox, Push, Timer, producer_channel
from wireproto.errors import BufferFull, Closed, Disconnected, Forked, TimedOut, ValueUnsupported, WireprotoError
from wireproto.net.retry import Policy, Verdict, Waits, verdict

from . import PulsarApi_pb2 as api
from .codes import (
    ChecksumError,
    NotAllowedError,
    ProducerBlockedQuotaExceededException,
    ServiceNotReady,
    TopicNotFound,
    TopicTerminatedError,
    error_of,
)
from .connection import FRAME_PADDING, BrokerInfo, ask
from .frames import command_name, decode, encode, signed
from .receipts import Entry

if TYPE_CHECKING:
    from wireproto.flow.budget import Account

    from .cluster import PulsarCluster
    from .options import PulsarOptions

RETRY = Policy(first=0.1, factor=2.0, ceiling=10.0, jitter=0.2)
"""Seconds between attempts to open the producer again."""
FINAL = (TopicTerminatedError, TopicNotFound, Closed, Forked)
"""What ends a producer that was open; other refusals are met with another attempt."""
RECORD_OVERHEAD = 64
"""Bytes that a record is counted with in the send budget beside its key, value and headers."""
ROOM_RETRY = 0.005
"""Seconds until what the kernel had no room for is tried again."""


class PartitionProducer:
    """A producer on one partition (-1: a topic without partitions).

    Args:
        topic: as the user named it; for positions and errors.
        name: full name of the partition.
        account: of the send budget: what the producer's records are counted for.
    """

    def __init__(
        self, cluster: PulsarCluster, topic: str, partition: int, name: str, options: PulsarOptions, account: Account
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.name = name
        self._cluster = cluster
        self._loop = cluster.loop
        self._options = options
        self._account = account
        self._id = cluster.next_producer_id()
        self._lock = Lock()
        self._box = Mailbox(self._loop, handler=self._receive)
        self._pending: deque[Entry] = deque()
        self._unsent: deque[Entry] = deque()
        self._open: Entry | None = None
        self._builder: PulsarBatchBuilder | None = None
        self._conn: Connection | None = None
        self._latest: Connection | None = None
        self._opening: Connection | None = None
        self._ready = False
        self._failed: WireprotoError | None = None
        self._unreported: WireprotoError | None = None
        self._producer_name = options.producer_name
        self._epoch = 0
        self._sequence = 0
        self._max_size = 0
        self._waits = Waits(RETRY)
        self._opened_at = 0.0
        self._fruitful = True  # whether anything was acknowledged since the producer was opened
        self._trouble: Exception | None = None  # what was met last on the way to an acknowledgement
        self._linger: Timer | None = None
        self._expiry: Timer | None = None

    # -- opening ------------------------------------------------------------------------------------------------

    def open(self, deadline: float) -> None:
        """Look the partition up and register the producer there; retries what may be retried until `deadline`."""
        self._cluster.retry(lambda: self._attach(deadline), deadline)

    def _attach(self, deadline: float) -> None:
        broker = self._cluster.lookup.broker(self.name, deadline)
        conn = self._cluster.connection(broker, deadline, "produce")
        info: BrokerInfo = conn.context
        command = api.CommandProducer(topic=self.name, producer_id=self._id, epoch=self._epoch)
        command.user_provided_producer_name = self._options.producer_name is not None
        if self._producer_name is not None:
            command.producer_name = self._producer_name
        with self._lock:
            self._opening = conn
        conn.route(producer_channel(self._id), self._box)
        try:
            reply = ask(conn, command, deadline, topic=self.topic, partition=self.partition)
        except TimedOut:
            # the broker may still make it: take it back, or the next attempt finds the name in use
            self._close_at_broker(conn)
            raise
        if not isinstance(reply, api.CommandProducerSuccess):
            raise error_of(0, f"PRODUCER was answered with {reply.DESCRIPTOR.name}", peer=conn.peer)
        with self._lock:
            if self._failed is not None:
                raise copy(self._failed)
            if self._opening is not conn:
                raise ServiceNotReady("the broker closed the producer while it was opened", peer=conn.peer)
            self._opening = None
            self._producer_name = reply.producer_name
            if self._builder is None:
                # a name that has produced before goes on after its last sequence id
                first = self._options.first_sequence
                self._sequence = reply.last_sequence_id + 1 if first is None else first
            self._max_size = info.max_message_size
            self._epoch += 1
            self._conn = self._latest = conn
            self._ready = True
            self._opened_at = time.monotonic()
            self._fruitful = False
            if self._builder is None:
                self._builder = self._new_builder()
            for entry in self._pending:
                entry.sent = False
            self._unsent = deque(self._pending)
            self._pump()
        conn.on_lost(lambda why: self._lost(conn, why))

    def _new_builder(self) -> PulsarBatchBuilder:
        options = self._options
        return PulsarBatchBuilder(
            self._producer_name or "",
            compression=options.compression,
            batched=options.batching,
            max_size=self._max_size,
            max_records=options.batch_records if options.batching else 1,
        )

    def _lost(self, conn: Connection, why: Exception) -> None:
        """The connection is gone, or the broker closed the producer: open it again in the worker. Keeper thread.

        At once, unless it was opened a moment ago and nothing came of that.
        """
        with self._lock:
            if self._conn is not conn or self._failed is not None:
                return
            self._conn = None
            self._ready = False
            steady = self._fruitful or time.monotonic() - self._opened_at > RETRY.ceiling
            if steady:
                self._waits.over()
            pause = 0.0 if steady else self._waits.next()
        self._reopen_in(pause)

    def _reopen_in(self, pause: float) -> None:
        if pause:
            self._loop.call_at(time.monotonic() + pause, self._loop.background, self._reopen)
        else:
            self._loop.background(self._reopen)

    def _reopen(self) -> None:
        """One attempt to come back; the next follows after a pause, whatever stood in its way: what is refused now may be taken later, and
        what waits has its delivery timeout. Worker thread.

        Final are the end of the topic, of this producer's name and of the client. A full quota that refuses producers fails what waits.
        """
        with self._lock:
            if self._ready or self._failed is not None:
                return
        try:
            self._attach(time.monotonic() + self._options.operation_timeout)
        except Exception as why:  # looking up, dialling and registering; credentials are the user's code
            if isinstance(why, WireprotoError) and verdict(why, passing=(WireprotoError,), final=FINAL) is Verdict.NEVER:
                self._fail(why)
                return
            with self._lock:
                self._trouble = why
                if isinstance(why, ProducerBlockedQuotaExceededException):
                    self._fail_pending(why)
                pause = self._waits.next()
            self._reopen_in(pause)

    # -- taking records -----------------------------------------------------------------------------------------

    def take(self, value: bytes | None, key: bytes | None) -> Receipt | None:
        """The short way in, without a lock: a plain record into the batch that is open already. None: it must go by `append`."""
        return self._builder.take(value, key) if self._builder is not None else None

    def check_columns(self, rows: Columns) -> None:
        """Raise ValueUnsupported for rows that cannot be sent."""
        with self._lock:
            self._usable().check_columns(rows)

    def append(
        self, value: bytes | None, key: bytes | None, properties: tuple[tuple[str, bytes], ...], event_time: int, size: int
    ) -> Receipt:
        """Take one record whose `size` bytes were taken from the send budget; on an error they are the caller's again."""
        with self._lock:
            builder = self._usable()
            self._recall()
            if size > self._max_size:
                raise ValueUnsupported(
                    f"the record has {size} bytes, the broker takes {self._max_size}", topic=self.topic, partition=self.partition
                )
            if self._open is not None and builder.size + size > self._options.batch_size:
                self._finish()
            if not builder.append(value, key, properties, event_time):
                self._finish()
                builder.append(value, key, properties, event_time)
            return self._taken(builder, size)

    def append_columns(self, rows: Columns, share: int) -> tuple[int, Receipt]:
        """Take rows into one batch, as many as fit it: how many, and the receipt of the last.

        `share` bytes were taken from the send budget; what the rows do not need goes back. On an error all of it is the caller's again.
        """
        stop, size = len(rows), self._options.batch_size
        with self._lock:
            builder = self._usable()
            self._recall()
            taken = builder.append_columns(rows, 0, stop, size)
            if not taken:
                self._finish()
                taken = builder.append_columns(rows, 0, stop, size)
            used = min(rows[:taken].nbytes + RECORD_OVERHEAD * taken, share)
            receipt = self._taken(builder, used, full=taken < stop)
        self._account.give(share - used)
        return taken, receipt

    def _taken(self, builder: PulsarBatchBuilder, size: int, *, full: bool = False) -> Receipt:
        """Records were added: count them, send the batch if it is full, else let more in. Lock held."""
        entry = self._open
        count = len(builder)
        if entry is None:
            now = time.monotonic()
            entry = self._open = Entry(self, Event(self._loop), now + self._options.delivery_timeout, self._options.batching)
            self._linger = self._loop.call_at(now + self._options.linger, self._linger_over, entry) if self._options.batching else None
        receipt = Receipt(entry, count - 1)
        entry.size += size
        full = full or count >= self._options.batch_records or builder.size >= self._options.batch_size
        if full or not self._options.batching or self._cluster.budget.waiting:
            self._finish()
        else:
            credit = self._cluster.send_credit
            if credit and self._account.try_take(credit):
                entry.size += credit
                builder.lend(entry, credit, self._options.batch_size, RECORD_OVERHEAD)
        return receipt

    def _recall(self) -> None:
        """No record comes in by the short way any more; what it was lent and did not use goes back. Lock held."""
        if self._builder is None:
            return
        unused = self._builder.recall()
        if unused and self._open is not None:
            self._open.size -= unused
            self._account.give(unused)

    def _usable(self) -> PulsarBatchBuilder:
        if self._failed is not None:
            raise copy(self._failed)
        if self._builder is None:
            raise Closed("the producer is not open", topic=self.topic, partition=self.partition)
        return self._builder

    def hurry(self, entry: Entry | None = None) -> None:
        """Send the open batch now, if it is `entry` or none is named."""
        with self._lock:
            if self._open is not None and (entry is None or entry is self._open):
                self._finish()

    def _linger_over(self, entry: Entry) -> None:
        self.hurry(entry)

    def _finish(self) -> None:
        """Close the open batch and send it. Lock held."""
        self._recall()
        entry, builder = self._open, self._builder
        if entry is None or builder is None:
            return
        self._open = None
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        entry.sequence_id = self._sequence
        self._sequence += len(builder)
        entry.last = self._sequence - 1
        entry.buffers = builder.finish(self._id, entry.sequence_id, int(time.time() * 1000))
        if sum(map(len, entry.buffers)) > self._max_size + FRAME_PADDING:
            self._settle(entry, None, ValueUnsupported("the packed batch is larger than the broker takes", topic=self.topic))
            return
        self._pending.append(entry)
        self._unsent.append(entry)
        if self._expiry is None:
            self._expiry = self._loop.call_at(self._pending[0].deadline, self._expire)
        self._pump()

    def _pump(self) -> None:
        """Hand what is not yet sent to the connection. Lock held."""
        conn = self._conn
        if conn is None or not self._ready:
            return
        while self._unsent:
            entry = self._unsent[0]
            if not entry.event.done:
                try:
                    conn.send(entry.buffers)
                except BufferFull:
                    self._loop.call_at(time.monotonic() + ROOM_RETRY, self._pump_later)
                    return
                except (Disconnected, Closed):
                    return
                entry.sent = True
            self._unsent.popleft()

    def _pump_later(self) -> None:
        with self._lock:
            self._pump()

    # -- outcomes -----------------------------------------------------------------------------------------------

    def _receive(self, item: Any) -> None:
        """A frame on the producer's channel. Keeper thread."""
        if not isinstance(item, Push):
            return
        conn = item.conn
        try:
            base = decode(item.frame, conn.peer)
        except WireprotoError as why:
            conn.close(str(why))
            return
        name = command_name(base)
        if name == "send_receipt":
            self._receipt(conn, base.send_receipt)
        elif name == "send_error":
            self._send_error(conn, base.send_error)
        elif name in ("close_producer", "topicMigrated"):
            with self._lock:
                if self._opening is conn:
                    self._opening = None  # a topic that is unloaded meanwhile: the broker may yet say that it is open
            self._lost(conn, Disconnected("the broker closed the producer", peer=conn.peer))

    def _receipt(self, conn: Connection, receipt: api.CommandSendReceipt) -> None:
        with self._lock:
            # receipts of what was stored still come after the broker closed the producer
            if conn is not self._latest or not self._pending:
                return
            head = self._pending[0]
            if receipt.sequence_id < head.sequence_id:
                return
            if receipt.sequence_id > head.sequence_id or not head.sent:
                if conn is not self._conn:
                    return  # given up because of the head: both are sent again
                astray = True
            else:
                astray = False
                self._fruitful, self._trouble = True, None
                self._waits.over()
                self._pending.popleft()
                place = (signed(receipt.message_id.ledgerId), signed(receipt.message_id.entryId))
                self._settle(head, place, None)
        if astray:
            conn.close(f"receipt for sequence id {receipt.sequence_id} while {head.sequence_id} is the oldest on its way")

    def _send_error(self, conn: Connection, refused: api.CommandSendError) -> None:
        """A refused entry fails now when it cannot succeed later; else all comes back by a producer opened anew, in order."""
        error = error_of(refused.error, refused.message, peer=conn.peer, topic=self.topic, partition=self.partition)
        if error.fenced or isinstance(error, TopicTerminatedError):
            self._fail(error)
            return
        with self._lock:
            if conn is not self._latest:
                return  # of a flight that is sent again anyway
            if isinstance(error, (NotAllowedError, ChecksumError)):
                entry = next((one for one in self._pending if one.sent and one.sequence_id <= refused.sequence_id <= one.last), None)
                if entry is None:
                    return  # its time was over
                if entry.doubted or isinstance(error, NotAllowedError) or not intact(entry.buffers):
                    self._pending.remove(entry)
                    self._settle(entry, None, error)
                    return
                entry.doubted = True
        self._drop(conn, error)

    def _drop(self, conn: Connection, why: Exception) -> None:
        """Give the producer up at this broker and open it again after a while; the connection stays, others use it."""
        with self._lock:
            if self._conn is not conn or self._failed is not None:
                return
            self._conn = None
            self._ready = False
            self._trouble = why
            pause = self._waits.next()
        self._close_at_broker(conn)
        self._reopen_in(pause)

    def _close_at_broker(self, conn: Connection) -> None:
        """Tell the broker, without waiting for its answer."""
        with suppress(WireprotoError):  # a lost connection has closed it already
            conn.send(encode(api.CommandCloseProducer(producer_id=self._id, request_id=conn.next_token())))

    def _settle(self, entry: Entry, place: tuple[int, int] | None, error: WireprotoError | None) -> None:
        """The entry's outcome is known. Lock held."""
        entry.buffers = []
        self._account.give(entry.size)
        if error is None:
            entry.event.set(place)
        else:
            if self._unreported is None:
                self._unreported = error
            entry.event.fail(error)

    def _expire(self) -> None:
        """Entries whose delivery timeout is over fail, oldest first. Keeper thread."""
        with self._lock:
            self._expiry = None
            now = time.monotonic()
            while self._pending and self._pending[0].deadline <= now:
                entry = self._pending.popleft()
                text = f"not acknowledged within {self._options.delivery_timeout:g} s; it may be stored"
                if self._trouble is not None:
                    text += f"; met last: {self._trouble}"
                self._settle(entry, None, TimedOut(text, topic=self.topic, partition=self.partition))
            if self._pending:
                self._expiry = self._loop.call_at(self._pending[0].deadline, self._expire)

    def _fail(self, error: WireprotoError) -> None:
        """The producer cannot go on: everything on its way fails, and so does every later send."""
        with self._lock:
            if self._failed is not None:
                return
            self._failed = error
            self._ready = False
            self._recall()
            if self._open is not None:
                entry, self._open = self._open, None
                self._settle(entry, None, error)
            self._fail_pending(error)
            for timer in (self._linger, self._expiry):
                if timer is not None:
                    timer.cancel()

    def _fail_pending(self, error: WireprotoError) -> None:
        """Everything that is closed and not acknowledged fails. Lock held."""
        while self._pending:
            self._settle(self._pending.popleft(), None, error)
        self._unsent.clear()

    # -- ends ---------------------------------------------------------------------------------------------------

    def outstanding(self) -> list[Entry]:
        """Everything taken and not yet decided, after sending the open batch."""
        with self._lock:
            self._finish()
            return list(self._pending)

    def unsettled(self) -> int:
        """Records whose outcome is not known."""
        with self._lock:
            opened = len(self._builder) if self._builder is not None and self._open is not None else 0
            return opened + sum(entry.last - entry.sequence_id + 1 for entry in self._pending)

    def failure(self) -> WireprotoError | None:
        """The first failure that flush has not told yet."""
        with self._lock:
            error, self._unreported = self._unreported, None
            return error

    def close(self, deadline: float) -> None:
        """Deregister at the broker; what is still on its way fails with Closed."""
        with self._lock:
            conn, ready = self._conn, self._ready
        self._fail(Closed("the producer was closed", topic=self.topic, partition=self.partition))
        if conn is None:
            return
        try:
            if ready and not conn.closed:
                ask(conn, api.CommandCloseProducer(producer_id=self._id), deadline)
        except (WireprotoError, TimeoutError):
            pass  # the connection's end closes it as well
        finally:
            conn.route(producer_channel(self._id), None)
            self._box.close()


def intact(buffers: list[Any]) -> bool:
    """Whether the checksum of a SEND is right: what the broker found wrong was changed on its way then."""
    data = b"".join(buffers)
    at = 4 + int.from_bytes(data[:4], "big") + 6
    return crc32c(memoryview(data)[at:]) == int.from_bytes(data[at - 4 : at], "big")
