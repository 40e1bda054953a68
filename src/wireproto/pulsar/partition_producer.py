"""Keeps a producer open on one partition, and takes in what the broker says of its batches.

    PRODUCER ──▶ link ── batches leave in order (sending.py) ──▶ SEND_RECEIPT: the oldest is stored
       ▲           │
       └── pause ──┴── connection lost, CLOSE_PRODUCER, SEND_ERROR: all in flight goes back, in order, to be sent again under the same
                       producer name and sequence ids, before anything new

A `PartitionProducer` is a key of the sender, and the state of one producer id. It is called by the thread that reads (receipts) and by the
I/O thread (all else that a broker says, opening again); the sender's lock guards it and is never held over a wait. It neither chooses
partitions nor looks into what a user sends.

A receipt names the oldest batch that is not acknowledged; one for an older batch is a repeat and ignored; one for a newer one means that
the connection lost track, and it is closed. So a batch is reported stored only after every one before it was.

    SEND_ERROR          any batch in flight, by its highest id; it overtakes the receipts of those before
    NotAllowedError     the batch fails, and nothing is sent again
    ChecksumError       the same where our own copy is broken, or when it happens twice; else as below
    terminated, fenced  the producer has ended
    others              the producer is opened again after a pause, which grows until something is acknowledged, and all is sent again
"""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from wireproto._codec import OutBatch, PulsarBatchBuilder, crc32c
from wireproto._net import Call, Connection, Event, producer_channel
from wireproto.errors import Closed, Disconnected, Forked, TimedOut, UsageError, WireprotoError
from wireproto.flow.sender import Refused
from wireproto.net.retry import Policy, Verdict, Waits, briefly, verdict
from wireproto.net.task import Steps, retrying

from . import PulsarApi_pb2 as api
from .codes import (
    ChecksumError,
    NotAllowedError,
    ProducerBlockedQuotaExceededException,
    ProducerFenced,
    ServiceNotReady,
    TopicNotFound,
    TopicTerminatedError,
    error_of,
)
from .connection import BrokerInfo, asking
from .frames import encode
from .lookup import PRODUCER
from .options import SEQUENCES

if TYPE_CHECKING:
    from wireproto._net import Mailbox
    from wireproto.flow.producer import BatchProducer
    from wireproto.flow.sender import Sender
    from wireproto.flow.sender import Verdict as Outcome

    from .cluster import PulsarCluster
    from .options import PulsarOptions

RETRY = Policy(first=0.1, factor=2.0, ceiling=5.0, jitter=0.2)
"""Seconds between attempts to open the producer again."""
MODES = {"shared": api.Shared, "exclusive": api.Exclusive, "exclusive-with-fencing": api.ExclusiveWithFencing}
MOST_PACKED = 1 << 30
"""Bytes of a record before it is compressed; metadata counts them in 32 bits."""
FINAL = (TopicTerminatedError, TopicNotFound, Closed, Forked)
"""Errors that end a producer that was open; after others it is opened again."""


class Sending(Protocol):
    """The sender of a topic's partitions, as they use it; see `sending.PulsarSender`."""

    @property
    def core(self) -> Sender:
        """The shared sender: queues, timers and lock."""
        ...

    @property
    def box(self) -> Mailbox:
        """The mailbox of what brokers push to the producers."""
        ...

    @property
    def transactional(self) -> bool:
        """Whether the producers send in transactions."""
        ...

    def lost(self, trouble: WireprotoError | None) -> Outcome:
        """Return the verdict on a batch whose receipt was lost with the connection."""
        ...

    def join(self, partition: PartitionProducer) -> None:
        """Deliver what brokers push to this producer's id."""
        ...

    def leave(self, partition: PartitionProducer) -> None:
        """Forget a producer that is closed."""
        ...


class PartitionProducer:
    """Producer on one partition.

    Args:
        cluster: of the client. sender: sends the batches.
        owner: the producer whose records it sends.
        number: of the partition; -1: a topic without partitions. name: full name of the partition. options: of the role.

    Attributes:
        id: producer id, on any connection.
        link: the connection on which it is open now, or None.
        epoch: number of times that it was opened.
        sequence: sequence id of the next record.
        topic_epoch: with an exclusive access mode, the number of exclusive producers before it; it is opened again under that, or not at
            all.
        max_size: bytes that the broker takes as one entry.
        largest: bytes of a record; one alone may be compressed to less.
    """

    def __init__(
        self, cluster: PulsarCluster, sender: Sending, owner: BatchProducer, number: int, name: str, options: PulsarOptions
    ) -> None:
        self.owner = owner
        self.topic = owner.topic
        self.number = number
        self.name = name
        self.id = cluster.next_producer_id()
        self.link: Connection | None = None
        self.sequence = 0
        self.max_size = self.largest = 0
        self._cluster = cluster
        self._options = options
        self._sender = sender
        self._core = sender.core
        self._lock = sender.core.lock
        with self._lock:
            self._queue = sender.core.queue(self)
        self._latest: Connection | None = None
        self._opening: Connection | None = None
        self._elsewhere = Event(cluster.loop)  # set where PRODUCER is answered with TOPIC_MIGRATED
        self._settling: OutBatch | None = None  # acknowledged; a signal handler may have broken in before it was settled
        self._stored = -1  # with `first_sequence`: the last id that the broker had under the name when the producer was opened
        self._doubted: set[int] = set()  # sequence ids of batches whose checksum the broker found wrong, once
        self._producer_name = options.producer_name
        self.epoch = 0
        self.topic_epoch = options.topic_epoch
        self._waits = Waits(RETRY)
        self._opened_at = 0.0
        self._made_progress = True  # whether anything was acknowledged since the producer was opened

    def __repr__(self) -> str:
        return f"{self.topic}[{self.number}]"

    @property
    def made(self) -> bool:
        """Whether it was open once: then it is opened again by itself."""
        return self.epoch > 0

    @property
    def taking(self) -> bool:
        """Whether a batch is open that a record may join."""
        batch = self._queue.open
        return batch is not None and not batch.sealed

    def builder(self) -> PulsarBatchBuilder:
        """Return a new builder like that of an open batch."""
        return self._make_builder()

    def next_builder(self) -> PulsarBatchBuilder:
        """Return the builder of a new batch. Lock held.

        A broker drops a whole batch when it has its first record. So the batch ends with the last id that the broker has, if it would hold
        that.
        """
        if self.sequence > self._stored:
            return self._make_builder()
        unnumbered = [batch.count for batch in (*self._queue.ready, *self._queue.taking()) if batch.sequence < 0]
        left = self._stored + 1 - self.sequence - sum(unnumbered)
        if left <= 0:
            return self._make_builder()
        several = self._options.batching == "key"  # which of them leaves first is not known
        return self._make_builder(max_records=1 if several else min(left, self._options.batch_records))

    def check_ids(self, batch: OutBatch) -> None:
        """Check the sequence ids of a batch before it is sent.

        Raises:
            UsageError: the ids end before the batch does; or the broker has some of the batch's ids and not all, as it may have said after
                the batch was begun: it would drop records that it does not have.
        """
        if batch.sequence + batch.count > SEQUENCES:
            text = f"sequence ids end at 2**63 - 1, and a batch of {batch.count} begins at {batch.sequence}"
            raise UsageError(text, topic=self.topic, partition=self.number)
        if batch.sequence <= self._stored < batch.sequence + batch.count - 1:
            text = f"the broker has ids up to {self._stored} of producer {self._producer_name!r}, and a batch begins at {batch.sequence}"
            raise UsageError(f"{text} with more than those: send again with a new producer", topic=self.topic, partition=self.number)

    # -- opening ------------------------------------------------------------------------------------------------

    def opening(self, until: float) -> Steps[None]:
        """Look the partition up and register the producer there; retry what may be retried. Steps.

        Args:
            until: deadline, as `time.monotonic()`.

        Raises:
            PulsarError: the broker refuses. TransportError: not open in time.
        """
        self._sender.join(self)
        yield from retrying(lambda: self._attaching(until), until, judge=self._cluster.log.judging(briefly()))

    def _attaching(self, until: float) -> Steps[None]:
        broker = yield from self._cluster.lookup.finding(self.name, until, PRODUCER)
        conn = yield from self._cluster.connecting(broker, "produce", until)
        command = api.CommandProducer(topic=self.name, producer_id=self.id, epoch=self.epoch)
        command.user_provided_producer_name = self._options.producer_name is not None
        if self._producer_name is not None:
            command.producer_name = self._producer_name
        command.producer_access_mode = MODES[self._options.access_mode]
        if self.topic_epoch is not None:
            command.topic_epoch = self.topic_epoch
        if self._sender.transactional:
            command.txn_enabled = True
        elsewhere = Event(self._cluster.loop)
        with self._lock:
            self._opening, self._elsewhere = conn, elsewhere
        conn.route(producer_channel(self.id), self._sender.box)
        try:
            reply = yield from asking(conn, command, until, elsewhere, topic=self.topic, partition=self.number)
            if not isinstance(reply, api.CommandProducerSuccess):
                raise error_of(0, f"PRODUCER was answered with {reply.DESCRIPTOR.name}", peer=conn.peer)
            with self._lock:
                self._opened(conn, reply)
        except (TimedOut, Closed):
            # the broker may still make it: take it back, or the next attempt finds the name in use
            self._close_at_broker(conn)
            raise
        finally:
            if self._latest is not conn:
                conn.route(producer_channel(self.id), None)
        with self._lock:
            if self.link is conn:  # else it was closed meanwhile, or is to be opened again
                self._cluster.links.join(conn, self)
        self._core.ready([self])

    def _opened(self, conn: Connection, reply: api.CommandProducerSuccess) -> None:
        """Take in PRODUCER_SUCCESS. Lock held."""
        if self._queue.error is not None:
            raise Closed("the producer has ended", topic=self.topic)
        if self._opening is not conn:
            raise ServiceNotReady("the broker closed the producer while it was opened", peer=conn.peer)
        info: BrokerInfo = conn.context
        options = self._options
        if not self.epoch:
            # a name that has produced before goes on after its last sequence id
            self.sequence = reply.last_sequence_id + 1 if options.first_sequence is None else options.first_sequence
        if options.first_sequence is not None:
            self._stored = reply.last_sequence_id
            self._core.seal(self)  # new batches are cut by that
        self._opening = None
        self._producer_name = reply.producer_name
        if options.access_mode != "shared":
            self.topic_epoch = reply.topic_epoch
        self.epoch += 1
        self.max_size = info.max_message_size
        self.largest = self.max_size if options.batching or options.compression == "none" else MOST_PACKED
        self._make_builder = partial(
            PulsarBatchBuilder,
            reply.producer_name,
            compression=options.compression,
            batched=bool(options.batching),
            max_size=self.largest,
            max_records=options.batch_records,
            limit=options.batch_size,
        )
        before, self.link, self._latest = self._latest, conn, conn
        if before is not None and before is not conn:
            self._let_go(before)
        self._opened_at = time.monotonic()
        self._made_progress = False

    def lost(self, conn: Connection, why: Exception) -> None:
        """Take all batches in flight back, and open the producer again: the connection is gone, or the broker closed the producer.

        At once, unless it was opened a moment ago and nothing was acknowledged since.

        Args:
            conn: the connection. why: how it ended.
        """
        with self._lock:
            if self.link is not conn or self._queue.error is not None:
                return
            self.link = None
            steady = self._made_progress or time.monotonic() - self._opened_at > RETRY.ceiling
            if steady:
                self._waits.over()
            pause = 0.0 if steady else self._waits.next()
        self._lose_in_flight(why)
        self._reopen(pause)

    def _lose_in_flight(self, why: Exception) -> None:
        """Return all batches in flight to the queue, to be sent on the next link; in a transaction they fail."""
        trouble = why if isinstance(why, WireprotoError) else None
        with self._lock:
            flying = list(self._queue.in_flight)
        self._core.settle([(batch, self._sender.lost(trouble)) for batch in flying])

    def _reopen(self, pause: float) -> None:
        with suppress(Closed):  # the client is closed meanwhile
            self._cluster.tasks.spawn(self._reopening(pause), f"open {self} again")

    def _reopening(self, pause: float) -> Steps[None]:
        """Try to open the producer again, with a pause after each attempt, whatever its error: what is refused now may be accepted later.

        What waits has its delivery timeout. Final are the end of the topic, of this producer's name and of the client. A full quota that
        refuses producers fails what waits.
        """
        while True:
            if pause:
                yield time.monotonic() + pause
            if self._queue.error is not None:
                return
            try:
                yield from self._attaching(time.monotonic() + self._options.operation_timeout)
            except Exception as why:  # looking up, dialling and registering; credentials are the user's code
                if isinstance(why, WireprotoError) and self._ends(why):
                    self._core.fail([self], why)
                    return
                self._meets(why)
                self._cluster.log.info(("again", type(why), self.topic), "%s[%d]: tried again: %s", self.topic, self.number, why)
                if isinstance(why, ProducerBlockedQuotaExceededException):
                    self._core.abandon(lambda batch: batch.key is self, why)
                pause = self._waits.next()
            else:
                return

    def _ends(self, why: WireprotoError) -> bool:
        """Return whether a refusal is final.

        A broker that has not noticed yet that the last connection is lost may name ourselves as the exclusive producer of the topic.
        """
        if isinstance(why, ProducerFenced) and self._producer_name and why.text.endswith(f"exclusive producer: {self._producer_name}"):
            return False
        return verdict(why, transient=(WireprotoError,), final=FINAL) is Verdict.NEVER

    def _meets(self, trouble: Exception) -> None:
        """Note the error that keeps what waits here from being sent."""
        with self._lock:
            self._queue.note_error(trouble, time.monotonic())

    # -- what the broker says: see PulsarSender -----------------------------------------------------------------

    def acknowledged(self, conn: Connection, sequence: int, place: tuple[int, ...]) -> None:
        """Take in a receipt; may be repeated where a signal handler broke in.

        Args:
            conn: that it came by. sequence: sequence id that it names. place: ledger and entry.
        """
        with self._lock:
            # receipts of what was stored still come after the broker closed the producer
            if conn is not self._latest:
                return
            head = self._settling
            if head is None or head.sequence != sequence:
                head = self._queue.oldest()
                if head is None or sequence < (head.sequence if head.attempts else self.sequence):
                    return
                if not head.attempts or sequence > head.sequence:
                    # the producer was closed because of the oldest batch, and both are sent again; else the connection lost track
                    if conn is self.link:
                        conn.close(f"receipt for sequence id {sequence} while {head.sequence} is the oldest on its way")
                    return
            self._settling = head
            self._made_progress = True
            self._waits.over()
        self._core.stored(head, place)
        self._settling = None
        head.builder.drop()

    def refused(self, conn: Connection, refusal: api.CommandSendError) -> None:
        """Take in SEND_ERROR: the batch fails when it cannot succeed later; else the producer is opened again, and all is sent again.

        Args:
            conn: that it came by. refusal: the command.
        """
        error = error_of(refusal.error, refusal.message, peer=conn.peer, topic=self.topic, partition=self.number)
        if error.fenced or isinstance(error, TopicTerminatedError):
            self._core.fail([self], error)
            return
        if isinstance(error, (NotAllowedError, ChecksumError)):
            batch = self._sent(conn, refusal.sequence_id)
            if batch is None:
                return  # it is sent again anyway, or its time was over
            frame = batch.builder.seal(self.id, batch.sequence, 0)
            if isinstance(error, NotAllowedError) or batch.sequence in self._doubted or not intact(frame):
                self._doubted.discard(batch.sequence)
                self._core.answered(((batch, Refused(error)),))
                return
            self._doubted.add(batch.sequence)
        self._drop(conn, error)

    def _sent(self, conn: Connection, sequence: int) -> OutBatch | None:
        """Return the batch that holds this id, if it was sent on the newest connection and is not settled."""
        with self._lock:
            sent = [*self._queue.in_flight, *self._queue.ready] if conn is self._latest else []
        return next((one for one in sent if one.attempts and one.sequence <= sequence < one.sequence + one.count), None)

    def _drop(self, conn: Connection, why: WireprotoError) -> None:
        """Close the producer at this broker and open it again after a pause; the connection stays, others use it."""
        with self._lock:
            if self.link is not conn or self._queue.error is not None:
                return
            self.link = None
            self._queue.note_error(why, time.monotonic())
            pause = self._waits.next()
        self._close_at_broker(conn)
        self._lose_in_flight(why)
        self._reopen(pause)

    def closed_by_broker(self, conn: Connection) -> None:
        """Take in CLOSE_PRODUCER: open the producer again."""
        with self._lock:
            if self._opening is conn:
                self._opening = None  # a topic that is unloaded meanwhile: PRODUCER_SUCCESS may come all the same
        self.lost(conn, Disconnected("the broker closed the producer", peer=conn.peer))

    def migrated(self, conn: Connection, command: api.CommandTopicMigrated) -> None:
        """Take in TOPIC_MIGRATED: the partition is looked up in another cluster from now on."""
        try:
            self._cluster.lookup.migrated(self.name, command, conn.peer)
        except WireprotoError as why:
            self._meets(why)
        with self._lock:
            elsewhere = self._elsewhere if self._opening is conn else None
        self.closed_by_broker(conn)
        if elsewhere is not None:
            elsewhere.set()

    # -- ends ---------------------------------------------------------------------------------------------------

    def _close_at_broker(self, conn: Connection) -> None:
        """Send CLOSE_PRODUCER, without waiting for the answer."""
        with suppress(WireprotoError):  # a lost connection has closed it already
            conn.send(encode(api.CommandCloseProducer(producer_id=self.id, request_id=conn.next_token())))

    def part(self) -> Call | None:
        """Send CLOSE_PRODUCER, if the producer is open, and return the call; `leave` is to follow after the answer.

        What is in flight fails with Closed.
        """
        conn = self._ended()
        if conn is None:
            return None
        command = api.CommandCloseProducer(producer_id=self.id, request_id=conn.next_token())
        with suppress(WireprotoError):  # the connection's end closes it as well
            return conn.submit(command.request_id, encode(command))
        return None

    def _ended(self) -> Connection | None:
        """End the queue, and return the connection on which the producer was open."""
        self._core.fail([self], Closed("the producer was closed", topic=self.topic, partition=self.number))
        conn, self.link = self.link, None
        return None if conn is None or conn.closed else conn

    def leave(self) -> None:
        """Close the producer without waiting for the broker's answer, and forget it."""
        conn = self._ended()
        if conn is not None:
            self._close_at_broker(conn)
        with self._lock:
            if self._latest is not None:
                self._let_go(self._latest)
        self._sender.leave(self)

    def _let_go(self, conn: Connection) -> None:
        """Remove the producer from a connection that others go on using. Lock held."""
        conn.route(producer_channel(self.id), None)
        self._cluster.links.leave(conn, self)


def intact(buffers: list[Any]) -> bool:
    """Return whether the checksum of a SEND is right: if so, what the broker found wrong was changed in transit."""
    data = b"".join(buffers)
    at = 4 + int.from_bytes(data[:4], "big") + 6
    return crc32c(memoryview(data)[at:]) == int.from_bytes(data[at - 4 : at], "big")
