"""Puts messages into a queue, with many requests in flight (the Producer role over the queue's layout, see `layout`).

A message is one sequential node, so the servers number and order messages. What a node cannot carry (key, headers, a timestamp of the
producer) is refused before anything is sent; null and empty data are kept apart.

Delivery: a message whose connection was lost before its reply came is sent again, in order, when the session has a connection again. No
acknowledged message is lost; one that was in flight at that moment may be in the queue twice. ``repeat=False`` reports `ConnectionLoss`
instead. A server that answers "not now" (throttled, session moved) has not stored the message, which fails: sent again, it would come
behind those that were sent after it.

A server closes the connection, without a reply, at a request that is larger than its jute.maxbuffer. So among the messages that a lost
connection left unanswered, one that is larger than any that was answered is sent alone, when all before it are answered; and so is each
message that was left unanswered a second time. One that is larger than any answered, and was alone on `ALONE` connections in a row that
ended so, fails.

A signal handler may raise between any two bytecodes of `send` or `flush`. So each step for a message can be repeated without harm, and the
deque of unanswered receipts is the only record of what is left to do: a receipt is put there first, and removed when all else is done.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Self, TypeVar

from .._codec import BriefLock
from ..deadlines import deadline_after
from ..errors import BrokerError, BufferFull, Closed, Disconnected, TimedOut, ValueUnsupported, WireprotoError
from ..flow.taken_rows import add_taken
from ..flow.unacked_warning import Sends
from ..flow.unreported_errors import UnreportedErrors
from ..net.task import NEVER, Steps, after, operation, steps
from ..position import LogOffset
from ..records import Headers
from . import operations as op
from .errors import UNKNOWN, ConnectionLoss, connection_loss, lost_answer
from .layout import ENTRIES, TAKEN, entry_prefix, parse, position, queue_path
from .link import Link
from .paths import join

if TYPE_CHECKING:
    from .._net import Call as Sent
    from .._net import Connection
    from ..flow.budget import Budget
    from ..flow.lost_answer import LostAnswer
    from .messages import ACL
    from .tree import Tree


E = TypeVar("E", bound=WireprotoError)
ROOM = 0.01
"""Seconds between checks whether a connection that had no room for more bytes has room again."""
ALONE = 3
"""Connections in a row that may end at one message before it fails."""
SMALL = 1024
"""Bytes of a request that every server accepts."""
ROOM_POLL = 0.001
"""Seconds between checks for replies while a thread waits for room in the send budget."""


_serials = itertools.count()


class QueueReceipt:
    """The receipt of one message; `position` waits for the server's reply.

    `_on` is the connection that the message was put on, or was about to be; `_sent` is the engine's call for it.
    """

    __slots__ = ("_at", "_lost", "_on", "_producer", "_request", "_sent", "error", "serial", "size", "where")

    def __init__(self, producer: QueueProducer, request: op.Request[str]) -> None:
        self._producer = producer
        self._request = request
        self._on: Connection | None = None
        self._sent: Sent | None = None
        self._at = 0.0  # when that was sent
        self._lost: LostAnswer | None = None  # what an earlier connection left unanswered
        self.size = len(request.body)
        self.serial = next(_serials)
        self.where: LogOffset | None = None
        self.error: WireprotoError | None = None

    @property
    def done(self) -> bool:
        """Return whether the outcome is known."""
        return self.where is not None or self.error is not None

    @property
    def begun(self) -> bool:
        """Return whether the message was sent, or may have been."""
        return self._on is not None or self._sent is not None

    @property
    def _doubtful(self) -> bool:
        """Return whether a signal handler raised in the middle of sending it: inside the engine, where OpenSSL runs handlers."""
        return self._on is not None and (self._sent is None or self._sent.conn is not self._on)

    @property
    def lost(self) -> LostAnswer | None:
        """Return the note of the last answer that was lost with its connection, or None."""
        sent = self._sent
        why = sent.error if sent is not None and sent.done else None
        return self._lost if why is None else lost_answer(self._request.what, self._at, why)

    def _explain(self, error: E) -> E:
        """Add to an error that leaves the outcome open what is known of the message, if it was sent; returns the error."""
        if not self.begun:
            return error
        error.doubtful = True
        sent, before = self._sent, ""
        if sent is not None and not sent.done:
            now = time.monotonic()
            error.text += f": {self._request.what}, sent {now - self._at:.1f} s ago, is not answered"
            error.text += f"; the server has sent nothing for {now - sent.conn.last_read:.1f} s; {UNKNOWN}"
            error.with_context(peer=sent.conn.peer)
            before = "it was sent before"
        if (lost := self.lost) is not None:
            lost.explain(error, before or UNKNOWN)
        return error

    def position(self, timeout: float | None = None) -> LogOffset:
        """Wait until the message is in the queue; returns its position, whose offset is the servers' counter.

        Args:
            timeout: seconds; None: the producer's `delivery_timeout`.

        Raises:
            TimedOut: not acknowledged in time; the message may still be stored. ConnectionLoss: it may or may not be stored.
            BrokerError, SessionExpired, Closed: why it was not stored.
        """
        deadline = deadline_after(self._producer.delivery_timeout if timeout is None else timeout)
        if not self.done:
            self._producer._tasks.drive(self._producer.settling(deadline, self), NEVER)
        if self.error is not None:
            self._producer._unreported.reported(self.serial)
            raise copy(self.error)
        assert self.where is not None
        return self.where


_note_sent = QueueReceipt.__dict__["_sent"].__set__
"""Sets a receipt's `_sent` from C."""


class QueueProducer(Sends):
    """Puts messages into one queue. Thread-safe.

    While there is no connection, messages wait in the send buffer; they are sent in order on the next connection.

    Args:
        topic: the queue's path below the chroot; created when it is not there.
        priority: 0 … 999; workers take the lowest number first.
        budget: the client's send budget.
        delivery_timeout: seconds that `Receipt.position` waits by default.
        repeat: send again what a lost connection left unanswered.
        acl: access list of the nodes; None is the client's default.
    """

    def __init__(
        self,
        tree: Tree,
        link: Link,
        budget: Budget,
        topic: str,
        *,
        priority: int = 100,
        delivery_timeout: float = 120.0,
        repeat: bool = True,
        acl: Sequence[ACL] | None = None,
    ) -> None:
        self.topic = topic
        self.delivery_timeout = delivery_timeout
        self._tree = tree
        self._tasks = tree.tasks
        self._link = link
        self._path = queue_path(topic)
        self._prefix = join(join(self._path, ENTRIES), entry_prefix(priority))
        self._server_prefix = link.root.out(self._prefix, sequence=True)
        self._budget = budget
        self._account = budget.account(self)
        self._repeat = repeat
        self._acl = link.acl if acl is None else acl
        self._lock = BriefLock()
        self._unanswered: deque[QueueReceipt] = deque()
        self._unsent: deque[QueueReceipt] = deque()  # the newest of them, for which `_conn` had no room yet; some may have been sent
        self._queued = -1  # serial of the last one that was put there
        self._again = False  # a timer is set that looks for room and for replies
        self._loop = tree.loop
        self._conn: Connection | None = None
        self._last: QueueReceipt | None = None  # the last one that was put on `_conn`
        self._awaited: Sent | None = None  # the call after whose reply the next message may be sent
        self._proved = SMALL  # bytes of the largest request that was answered
        self._doubted = self._twice = -1  # highest serials that a lost connection left unanswered once, and for a second time
        self._lone = (-1, 0)  # serial of the message that was alone on connections that ended, and their number in a row
        self._unreported = UnreportedErrors()
        self._closed = False

    def opening(self, acl: Sequence[ACL] | None, timeout: float) -> Steps[Self]:
        """Create the queue where it is missing, and return the producer. Steps.

        Args:
            acl: access list of the queue's nodes; None: the client's default. timeout: seconds for all requests.

        Raises:
            NoAuth: a missing node may not be created. TimedOut, SessionExpired, Closed.
        """
        deadline = deadline_after(timeout)
        for part in (ENTRIES, TAKEN):
            yield from steps(self._tree.ensure)(join(self._path, part), acl=acl, timeout=deadline - time.monotonic())
        self._link.on_ready(self._pump)
        return self

    def send(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = None,
        timestamp: int | None = None,
        partition: int | None = None,
        timeout: float = 30.0,
    ) -> QueueReceipt:
        """Take one message and return its receipt; returns at once unless the send buffer is full.

        Args:
            value: bytes of the record, or None. key, headers, timestamp: None: a node cannot carry them. partition: None or 0.
            timeout: seconds to wait for room in the send buffer.

        Raises:
            ValueUnsupported: a key, headers, a timestamp or another partition, or a value that is larger than servers accept.
            BufferFull: no room in time; the message was not taken. Closed: the producer or the client is closed.
        """
        deadline = deadline_after(timeout)
        receipt = self._record(value, key, headers, timestamp, partition)
        if not self._taken(receipt):
            self._account.take(receipt.size, deadline)
            self._put(receipt)
        return receipt

    def sending(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = None,
        timestamp: int | None = None,
        partition: int | None = None,
        timeout: float = 30.0,
    ) -> Steps[QueueReceipt]:
        """Run `send` as steps."""
        deadline = deadline_after(timeout)
        receipt = self._record(value, key, headers, timestamp, partition)
        if not self._taken(receipt):
            yield from self._account.taking(receipt.size, deadline)
            self._put(receipt)
        return receipt

    @operation
    def send_batch(self, columns: Any, *, partition: int | None = None, timeout: float = 30.0) -> Steps[list[QueueReceipt]]:
        """Take many messages; returns one receipt, that of the last message, or none for an empty batch.

        Args:
            columns: anything with ``__arrow_c_array__`` or ``__arrow_c_stream__`` that has a column ``value``, or a Columns.
            partition: None or 0. timeout: seconds to wait for room in the send buffer.

        Raises:
            ValueUnsupported: a row cannot be sent; none was taken. BufferFull: no room in time for the rest; its `taken` has the number of
                the first rows that were taken, and are sent. Closed.
        """
        from .._codec import Columns

        deadline = deadline_after(timeout)
        batch = columns if isinstance(columns, Columns) else Columns.from_arrow(columns)
        keys, headers = batch.keys(), batch.headers()
        partitions: Sequence[int | None] = batch.partitions() or [partition] * len(batch)
        for index, key in enumerate(keys):
            self._refuse(key, headers[index], None, partitions[index])
        receipts = [self._record(value, None, None, None, partition) for value in batch.values()]
        count = 0
        try:
            for receipt in receipts:
                if not self._taken(receipt):
                    yield from self._account.taking(receipt.size, deadline)
                    self._put(receipt)
                count += 1
        except WireprotoError as why:
            add_taken(why, {-1 if partition is None else partition: count} if count else {}, len(batch))
            raise
        return receipts[-1:]

    @operation
    def flush(self, timeout: float = 30.0) -> Steps[None]:
        """Wait until every message taken so far is acknowledged or has failed.

        Args:
            timeout: seconds to wait.

        Raises:
            TimedOut: not all are acknowledged in time. Otherwise the first failure that no receipt has raised: ConnectionLoss, BrokerError,
                Closed.
        """
        deadline = deadline_after(timeout)
        with self._lock:
            last = self._unanswered[-1] if self._unanswered else None
        if last is not None:
            try:
                yield from self._settling(deadline, last)
            except WireprotoError as why:
                if self._link.failure is None:
                    with self._lock:
                        if isinstance(why, TimedOut) and self._unanswered:
                            self._unanswered[0]._explain(why)  # they are sent in order: if it was not, none was
                    raise
                with self._lock:
                    self._give_up(self._link.failure)  # raised below, unless an earlier failure is
        failed = self._unreported.take()
        if failed is not None:
            raise copy(failed)

    @operation
    def close(self, timeout: float = 30.0) -> Steps[None]:
        """Take no more messages, and flush.

        Messages that are not acknowledged by then fail with Closed, and may be in the queue all the same.

        Args:
            timeout: seconds for the flush.

        Raises:
            what `flush` raises; the producer is closed all the same.
        """
        deadline_after(timeout)
        with self._lock:
            if self._closed:
                return
            self._closed = True
        closed = Closed("the producer was closed", topic=self.topic)
        self._account.refuse(closed)
        try:
            yield from steps(self.flush)(timeout)
        finally:
            with self._lock:
                self._give_up(closed)
            self._account.close()

    # -- inside -----------------------------------------------------------------------------------------------------------

    def _record(
        self, value: bytes | None, key: bytes | None, headers: Headers, timestamp: int | None, partition: int | None
    ) -> QueueReceipt:
        """Make the receipt of a message that a node can carry and servers accept."""
        self._refuse(key, headers, timestamp, partition)
        receipt = QueueReceipt(self, op.create(self._server_prefix, self._prefix, value, sequence=True, acl=self._acl))
        self._link.check(receipt._request)
        return receipt

    def _taken(self, receipt: QueueReceipt) -> bool:
        """Return whether there was room for the message at once."""
        with self._lock:
            self._collect()
            if not self._account.try_take(receipt.size):
                return False
            self._take(receipt)
            return True

    def _put(self, receipt: QueueReceipt) -> None:
        """Take a message for which there is room now."""
        with self._lock:
            self._account.check()
            self._take(receipt)

    def _refuse(self, key: bytes | None, headers: Any, timestamp: int | None, partition: int | None) -> None:
        if key is not None:
            raise ValueUnsupported("a ZooKeeper queue's message has no key", topic=self.topic)
        if headers:
            raise ValueUnsupported("a ZooKeeper queue's message has no headers", topic=self.topic)
        if timestamp is not None:
            raise ValueUnsupported("a ZooKeeper queue's message has the servers' time of arrival and no other", topic=self.topic)
        if partition not in (None, 0):
            raise ValueUnsupported(f"a ZooKeeper queue has one partition, 0, not {partition}", topic=self.topic)

    def _take(self, receipt: QueueReceipt) -> None:
        self._unanswered.append(receipt)
        self._submit()
        if self._budget.waiting:
            self._look_later()

    def relieve(self) -> None:
        """Take in the replies that have come, since a thread waits for room in the send budget; see `wireproto.flow.budget.Holder`."""
        with self._lock:
            self._collect()
            if self._unanswered and self._budget.waiting:
                self._look_later()

    def unsettled(self) -> int:
        """Return the number of messages whose outcome is not known."""
        with self._lock:
            self._collect()
            return len(self._unanswered)

    def _give_up(self, why: WireprotoError) -> None:
        """Fail all unanswered messages with `why`. Under the lock."""
        self._unsent.clear()
        while self._unanswered:
            receipt = self._unanswered[0]
            if not receipt.done:
                self._failed(receipt, receipt._explain(copy(why)))
            self._let_go(receipt)

    def _pump(self) -> None:
        """Send what can be sent; also called after a reconnect."""
        with self._lock:
            self._submit()

    def _submit(self) -> None:
        """Send, in order, what was not sent yet and what an earlier connection left unanswered. Under the lock."""
        conn = self._link.current
        if conn is None:
            if self._link.failure is not None:
                self._account.refuse(self._link.failure)
                self._give_up(self._link.failure)
            return
        if conn is not self._conn:
            if self._repeat and self._conn is not None:
                self._collect()
                self._doubt(self._conn)
            self._unsent.clear()
            self._queued = -1
            self._conn = conn
        self._line_up()
        again: list[Sent] = []
        try:
            while self._unsent:
                receipt = self._unsent[0]
                if self._waits(receipt, conn):
                    break
                if self._to_send(receipt, conn):
                    before = receipt._sent
                    self._post(receipt, conn)
                    if before is not None:
                        again.append(before)
                self._unsent.popleft()
        except Disconnected as why:
            self._link.lost(conn, why)
        except BufferFull:  # the engine holds enough for this connection: the rest follows as it is sent
            self._look_later()
        if again:
            cause = again[0].error
            self._link.log.info(("sent again", self.topic), "%s: %d records are sent again: %s", self.topic, len(again), cause)

    def _doubt(self, lost: Connection) -> None:
        """Note what this connection left unanswered: one of the messages may be what ended it. Under the lock."""
        left = [receipt for receipt in self._unanswered if receipt._on is lost and not receipt.done]
        if not left:
            return
        if left[0].serial <= self._doubted:
            self._twice = max(self._twice, left[-1].serial)
        self._doubted = max(self._doubted, left[-1].serial)
        first = left[0]
        if len(left) > 1 or first.size <= self._proved:
            self._lone = (-1, 0)
            return
        self._lone = first.serial, (self._lone[1] if self._lone[0] == first.serial else 0) + 1
        if self._lone[1] >= ALONE:
            why = self._lost(first)
            why.text += f"; {ALONE} connections in a row ended at this request of {first.size + 8} bytes"
            why.text += ": is it more than the servers' jute.maxbuffer?"
            self._not_stored(first, why)

    def _waits(self, receipt: QueueReceipt, conn: Connection) -> bool:
        """Return whether the message must not be in flight together with the last one that was sent. Under the lock."""
        last = self._last
        if last is None or last is receipt or last._on is not conn or last._sent is None:
            return False
        if last._sent.done or not (self._suspect(receipt) or self._suspect(last)):
            return False
        if self._awaited is not last._sent:
            self._awaited = last._sent
            after(last._sent, self._pump)
        return True

    def _suspect(self, receipt: QueueReceipt) -> bool:
        """Return whether the message may be what ended a connection."""
        return receipt.serial <= self._twice or (receipt.serial <= self._doubted and receipt.size > self._proved)

    def _line_up(self) -> None:
        """Queue for sending the messages that were taken since the last time."""
        new: list[QueueReceipt] = []
        for receipt in reversed(self._unanswered):
            if receipt.serial == self._queued:
                break
            new.append(receipt)
        if new:
            self._unsent.extend(reversed(new))
            self._queued = new[0].serial

    def _to_send(self, receipt: QueueReceipt, conn: Connection) -> bool:
        if receipt.done:
            return False
        if receipt._doubtful:
            return self._repeat
        sent = receipt._sent
        return sent is None or (self._repeat and sent.conn is not conn and sent.done and sent.frame is None)

    def _post(self, receipt: QueueReceipt, conn: Connection) -> None:
        """Send the message, and note its call: both in C, where no signal handler comes between. Raises Disconnected, BufferFull."""
        self._link.writes += 1
        again = receipt._sent is not None
        if again:
            receipt._lost = receipt.lost
        else:
            receipt._at = time.monotonic()
        sending = map(_note_sent, (receipt,), map(conn.post, (receipt._request.code,), (receipt._request.body,)))
        receipt._on = conn
        try:
            any(sending)
            self._last = receipt
            if again:
                receipt._at = time.monotonic()
        except WireprotoError:  # nothing was sent
            receipt._on = None
            raise

    def _look_later(self) -> None:
        """Set the timer that looks for room and replies. Under the lock."""
        if not self._again:
            self._loop.call_at(time.monotonic() + (ROOM_POLL if self._budget.waiting else ROOM), self._look)
            self._again = True

    def _look(self) -> None:
        """Run the I/O thread's timer: send what fits, and take in replies."""
        with self._lock:
            self._again = False
        self._pump()
        self.relieve()

    def _collect(self) -> None:
        """Take in the replies that have come; without `repeat` a lost connection is one."""
        while self._unanswered and self._decided(self._unanswered[0]):
            receipt = self._unanswered[0]
            if not receipt.done:
                self._read(receipt)
            self._let_go(receipt)

    def _decided(self, receipt: QueueReceipt) -> bool:
        sent = receipt._sent
        if receipt.done or (sent is not None and sent.frame is not None):
            return True
        return not self._repeat and (receipt._doubtful or (sent is not None and sent.done))

    def settling(self, deadline: float, until: QueueReceipt) -> Steps[None]:
        """Wait for replies, oldest first, up to and including this one. The lock is free meanwhile. Steps.

        Args:
            deadline: `time.monotonic()` value. until: the receipt to wait for.

        Raises:
            TimedOut: `until` is not acknowledged by then; doubtful when it was sent. Closed, SessionExpired, AuthError: no connection will
                come.
        """
        try:
            yield from self._settling(deadline, until)
        except TimedOut as why:
            until._explain(why)
            raise

    def _settling(self, deadline: float, until: QueueReceipt) -> Steps[None]:
        while True:
            with self._lock:
                self._collect()
                if until.done:
                    return
                head = self._unanswered[0]
                sent = head._sent
            if sent is not None and not sent.done:
                if not (yield sent, deadline):
                    raise TimedOut("the message is not acknowledged yet", topic=self.topic)
                continue
            if sent is not None:
                self._link.lost(sent.conn, sent.error)  # perhaps the link has not noticed it yet
            yield from self._link.connecting(deadline)
            self._pump()
            if head._sent is sent:  # other requests fill the connection
                if time.monotonic() >= deadline:
                    raise TimedOut("the message is not sent yet", topic=self.topic)
                yield min(time.monotonic() + ROOM, deadline)

    def _read(self, receipt: QueueReceipt) -> None:
        """Read the outcome of a message whose call has ended."""
        sent = receipt._sent
        try:
            if sent is None or sent.frame is None:
                raise self._lost(receipt)
            self._proved = max(self._proved, receipt.size)
            made = self._link.read(receipt._request, sent.frame, sent.conn)
            entry = parse(made.rpartition("/")[2])
            assert entry is not None
            receipt.where = position(self.topic, entry.sequence)
        except BrokerError as why:
            self._not_stored(receipt, why)
        except WireprotoError as why:
            self._failed(receipt, why.with_context(topic=self.topic))

    def _lost(self, receipt: QueueReceipt) -> ConnectionLoss:
        """Return the error of a message whose answer was lost."""
        if (answer := receipt.lost) is not None:
            return connection_loss(answer)
        return ConnectionLoss(f"{UNKNOWN}: a signal handler raised while {receipt._request.what} was sent")

    def _not_stored(self, receipt: QueueReceipt, why: WireprotoError) -> None:
        self._failed(receipt, why.with_context(topic=self.topic))
        self._link.log.warning(("not stored", self.topic, type(why)), "%d records were not stored: %s", 1, why)

    def _failed(self, receipt: QueueReceipt, why: WireprotoError) -> None:
        if receipt.serial not in self._unreported:
            self._unreported.note(receipt.serial, why)
        receipt.error = why

    def _let_go(self, receipt: QueueReceipt) -> None:
        """Drop the oldest receipt, and give back its bytes.

        If a signal handler causes bytes to be given back twice, the sum is right again when nothing is held.
        """
        self._account.give(receipt.size)
        self._unanswered.popleft()
