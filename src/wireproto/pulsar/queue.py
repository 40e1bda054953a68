"""Works on a shared or key-shared subscription, message by message: the QueueConsumer role. Each message is acked or given back.

Keeps the entries in hand, message by message. Within a batch one message is acknowledged by the set of those still wanted; when the last
of an entry is done the entry itself is acknowledged, so that a broker that keeps no such sets acknowledges whole batches only.

A release asks for the entry again (REDELIVER_UNACKNOWLEDGED_MESSAGES). What of it is still in this worker's hands is passed over when it
is redelivered, and stays in hand; so is what was acknowledged since the consumer was attached, since an entry may have been fetched before
that. Of a redelivered entry, those messages are handed out first that were handed out least often: one that is always given back holds up
no other of its batch.

    release(after=)     the message is kept here, out of sight; the I/O thread's timer asks for its entry again, also while the user works
    cannot be read      raised once each time it is handed out, and given back after a pause that grows with that; with on_corrupt="skip"
                        acknowledged, with the reason (validation_error), as Java's client does

Acks go to the broker in groups (`acking`); one that is waited for goes alone.

Belongs to one thread at a time; the timers touch connections and `_over` alone. It acknowledges nothing by itself that can be read.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from wireproto._codec import decode_pulsar
from wireproto.errors import (
    BufferFull,
    ChecksumMismatch,
    ConcurrentUse,
    DecompressionError,
    Disconnected,
    OptionError,
    Revoked,
    RoleUnsupported,
    TimedOut,
    WireprotoError,
)
from wireproto.flow.closing_role import ClosingRole
from wireproto.flow.ended import ended_before, note_ended, refuse_ended, taken_away
from wireproto.net.retry import Policy
from wireproto.net.task import NEVER, Steps, operation, quick
from wireproto.position import MessageId
from wireproto.records import Delivery

from ..deadlines import deadline_after
from . import PulsarApi_pb2 as api
from .acking import Acking
from .acks import words
from .codes import PulsarError
from .frames import encode, encrypted, message_id
from .message_stream import MessageStream
from .partition_consumer import PartitionConsumer
from .subscription import KEY_SHARED, SHARED, Subscription
from .unacked import HeldEntry, Key, Unacked

if TYPE_CHECKING:
    from .acking_transaction import AckingTransaction
    from .cluster import PulsarCluster
    from .options import PulsarOptions

Item = tuple[Any, int, HeldEntry, int]
"""A message that waits to be handed out, or was: record, attempt, entry and index."""

UNREADABLE = Policy(first=1.0, factor=2.0, ceiling=60.0, jitter=0.2)
"""After how long an entry that cannot be read is given back."""
FULL = Policy(first=0.1, factor=1.0, ceiling=0.1, jitter=0.2)
"""How long until a command that a connection had no room for is sent again; several deliveries may wait for it at a time."""


class PulsarQueue(ClosingRole):
    """Worker on a subscription; made by `client.queue`.

    Each call, and each `ack` and `release` of a delivery, raises Closed when the queue or its client was closed, and ConcurrentUse when
    another thread is in a call.
    """

    def __init__(self, cluster: PulsarCluster, topic: str, names: list[tuple[str, int, str]], group: str, options: PulsarOptions) -> None:
        super().__init__("queue consumer", cluster.loop)
        self._tasks = cluster.tasks
        self.topic = topic
        self.group = group
        self._cluster = cluster
        self._options = options
        subscription = Subscription(
            group,
            KEY_SHARED if options.mode == "key-shared" else SHARED,
            initial=1,
            consumer_name=options.consumer_name,
            priority=options.priority,
            create_topic=options.create_topic,
        )
        window, most = options.receive_memory, options.receive_messages
        self._stream = MessageStream(
            cluster,
            names,
            subscription,
            window=window,
            most=most,
            recovery_timeout=options.timeout,
            begun=self._begun,
            ready=lambda part: self._acking.ready(part),
            answered=lambda call: self._acking.answered(call),
        )
        self._hands: dict[int, Unacked] = {}
        interval, retry_timeout = options.ack_group_time, options.operation_timeout
        self._acking = Acking(cluster.loop, cluster.log, self._stream, self._hands, interval, retry_timeout)
        self._alone = interval <= 0  # each ack goes by itself
        self._over: deque[tuple[int, Key, int, bool]] = (
            deque()
        )  # delayed until now, by partition, and whether done with; from the I/O thread
        self._next: deque[Item] = deque()
        self._out: Item | None = None  # on its way to the user
        self._seen = 0  # messages of its partition that had left the queue before

    @classmethod
    def opening(cls, cluster: PulsarCluster, topic: str, group: str, options: PulsarOptions, deadline: float) -> Steps[Self]:
        """Join the subscription on all partitions of the topic, and return the worker. Steps.

        Args:
            cluster: of the client. topic: any form of its name. group: name of the subscription. options: of the role.
            deadline: as `time.monotonic()`.

        Raises:
            OptionError: the mode is neither shared nor key-shared. RoleUnsupported: the topic is non-persistent.
            PulsarError: a broker refuses. TransportError: no partition could be opened in time.
        """
        if options.mode not in (None, "shared", "key-shared"):
            raise OptionError(f"a QueueConsumer's mode is shared or key-shared, not {options.mode}; those are Consumers")
        found = yield from cluster.naming(topic, deadline, create=options.create_topic)
        if any(full.startswith("non-persistent:") for _, full in found):
            text = "a non-persistent topic keeps no message that could be acknowledged or come again"
            raise RoleUnsupported(text, nearest="consumer", topic=topic)
        made = cls(cluster, topic, [(topic, number, full) for number, full in found], group, options)
        try:
            yield from made._stream.opening(deadline)
            made._stream.grow()
        except Exception:
            yield from made._stream.closing(min(deadline, time.monotonic() + 1.0))
            raise
        except BaseException:
            made._stream.end()
            raise
        return made

    def _hand(self, part: PartitionConsumer) -> Unacked:
        found = self._hands.get(part.partition)
        if found is None:
            found = self._hands[part.partition] = Unacked(part)
        return found

    def _begun(self, part: PartitionConsumer) -> None:
        """Forget the messages of a partition that were not handed out: it is subscribed again, and they are redelivered."""
        self._next = deque(item for item in self._next if item[2].part is not part)
        self._hand(part).begins()

    # -- receiving ----------------------------------------------------------------------------------------------

    def receive(self, timeout: float = 1.0) -> Delivery | None:
        """Return the next message, or None when none came within `timeout`.

        Args:
            timeout: seconds to wait.

        Raises:
            ChecksumMismatch, DecompressionError, Malformed: an entry cannot be read; the error has its position. It is given back after a
                pause, unless the option `on_corrupt` is ``"skip"``.
            PulsarError: an earlier ack was refused (raised once a partition; those messages are redelivered), the topic is gone, or a
                broker has refused to open a partition again for the option `timeout`.
            Closed: the queue was closed. ConcurrentUse: another thread is in a call.
        """
        deadline_after(timeout)
        self._out = self._stream.poll = None
        try:
            with self._only:
                if self._next and not self._acking.groups.failed:
                    return self._handed()
            return self._tasks.drive(self.receiving(timeout), NEVER)
        except WireprotoError:
            raise
        except BaseException:  # a signal handler's
            self._take_back()
            raise

    def receiving(self, timeout: float = 1.0) -> Steps[Delivery | None]:
        """Run `receive` as steps."""
        with self._only:
            deadline = deadline_after(timeout)
            self._acking.groups.raise_failure()
            while not self._next:
                got = yield from self._stream.next(deadline, self._acking.pauses)
                if got is None:
                    return None
                self._decode(*got)
            return self._handed()

    def _handed(self) -> Delivery:
        self._out = item = self._next[0]
        record, attempt, entry, index = item
        self._seen = entry.part.permits.seen
        delivery = Delivery(record, attempt, partial(self._end, item), self._end_later)
        entry.waiting.discard(index)
        entry.held.add(index)
        self._next.popleft()
        entry.part.left(1)
        return delivery

    def _take_back(self) -> None:
        """Undo a `receive` that a signal handler broke into: its message waits again, and what was not decoded fully is decoded again."""
        if self._out is not None:
            _, _, entry, index = self._out
            entry.held.discard(index)
            entry.waiting.add(index)
            if not self._next or self._next[0] is not self._out:
                self._next.appendleft(self._out)
            entry.part.permits.back(self._seen)
        self._stream.take_back()

    def _decode(self, part: PartitionConsumer, frames: list[bytes]) -> None:
        keys: set[Key] = set()
        try:
            self._unpack(part, frames, keys)
            self._stream.poll = None
        except WireprotoError:
            self._stream.poll = None  # what cannot be read is given back after a pause
            raise
        except BaseException:  # a signal handler's: the frames are met again
            entries = self._hand(part).entries
            self._next = deque(item for item in self._next if item[2].part is not part or item[2].key not in keys)
            for key in keys & entries.keys():
                entries[key].waiting.clear()
            raise

    def _unpack(self, part: PartitionConsumer, frames: list[bytes], keys: set[Key]) -> None:
        """Decode frames into messages that wait to be handed out.

        Args:
            part: their partition. frames: its MESSAGE frames, in order. keys: gets the entries that were decoded.
        """
        while self._over:
            self._let_out(*self._over.popleft())
        columns, facts = decode_pulsar(frames, topic=self.topic, partition=part.partition, check_crc=self._options.check_crc)
        if self._options.on_corrupt == "skip":
            self._stream.tell_skipped(part, facts)
        records, places = list(columns.records(self.topic, part.partition)), columns.positions()
        hand = self._hand(part)
        for number, (fact, frame) in enumerate(zip(facts, frames, strict=True)):
            key = (fact.ledger, fact.entry)
            keys.add(key)
            if fact.error is not None and self._options.on_corrupt == "raise":
                part.frames.extendleft(reversed(frames[number + 1 :]))
                part.handed(fact.permits, len(frame))
                self._give_back_in(UNREADABLE.delay(fact.redelivery_count + 1), part, key, -1)
                raise part.unreadable(fact, way="")
            if fact.error is not None:
                part.handed(fact.permits, len(frame))
                hand.looked_at += 1
                self._discard(part, key, fact.error, frame)
                continue
            entry = hand.looks_at(key, fact.batch_size)
            if entry is None:
                part.handed(fact.permits, len(frame))
                continue
            part.arrived(fact.permits, len(frame))
            entry.consumer = part.id
            indexes = [index for _, _, index in places[fact.start : fact.stop]]
            came: list[Item] = []
            if not fact.redelivery_count and entry.arrives_first(indexes):
                came = [(record, 1, entry, index) for record, index in zip(records[fact.start : fact.stop], indexes, strict=True)]
            else:
                for record, index in zip(records[fact.start : fact.stop], indexes, strict=True):
                    attempt = hand.attempt(key, index, fact.redelivery_count)
                    if attempt is not None:
                        came.append((record, attempt, entry, index))
            self._next.extend(sorted(came, key=_attempt) if fact.redelivery_count else came)
            if fact.permits > len(came):
                part.left(fact.permits - len(came))
            entry.sent = fact.redelivery_count
            if hand.exhausted(key) and fact.start == fact.stop:  # compacted, or all acknowledged
                part.tell(_acknowledgement(part, key))
        hand.forget()

    def _let_out(self, partition: int, key: Key, index: int, done: bool) -> None:
        """End the delay of a message that was kept out of sight: it is acknowledged, or in no worker's hands until it is redelivered."""
        part = self._stream.part(partition)
        hand = self._hand(part)
        if not done:
            hand.back(key, index)
        elif key in hand.entries:
            hand.acknowledged(key, index, self._stream.ahead(part))

    # -- ends of a delivery -------------------------------------------------------------------------------------

    def _held(self, delivery: Delivery) -> tuple[PartitionConsumer, Key, int]:
        """Return the partition, entry and index of a delivery's message; raises UsageError or Revoked when it is not in hand."""
        refuse_ended(delivery)
        position = delivery.position
        if not isinstance(position, MessageId):
            raise OptionError(f"not a delivery of this queue: {delivery!r}")
        part, key = self._stream.part(position.partition), (position.ledger, position.entry)
        entry = self._hand(part).entries.get(key)
        if entry is None or position.index not in entry.held:
            raise ended_before(delivery)
        return part, key, position.index

    def _ending(self, item: Item, delivery: Delivery, done: bool, timeout: float, wait: bool = False) -> Steps[None]:
        """Run `_end` as steps."""
        with self._only:
            deadline = deadline_after(timeout)
            _, _, entry, index = item
            refuse_ended(delivery)
            if index not in entry.held:
                raise ended_before(delivery)
            if index in entry.unconfirmed:
                self._hand(entry.part).ack_undone(entry, index)
            elif entry.key not in self._hand(entry.part).entries:  # a signal handler raised when the broker had just confirmed it
                raise ended_before(delivery)
            if not done:
                yield from self._release(entry.part, entry.key, index, deadline)
            elif wait or self._alone:
                yield from self._ack(entry.part, entry.key, index, deadline)
            else:
                self._ack_later(entry, index)
            note_ended(delivery, done)

    @quick(_ending)
    def _end(self, item: Item, delivery: Delivery, done: bool, timeout: float, wait: bool = False) -> None:
        if not done or wait or self._alone:
            self._tasks.drive(self._ending(item, delivery, done, timeout, wait), NEVER)
            return
        deadline_after(timeout)
        _, _, entry, index = item
        with self._only:
            refuse_ended(delivery)
            if index not in entry.held:
                raise ended_before(delivery)
            self._ack_later(entry, index)
            note_ended(delivery, done)

    def _ack_later(self, entry: HeldEntry, index: int) -> None:
        acking = self._acking
        try:
            self._hands[entry.part.partition].ack_begun(entry, index, acking.waiting)
            acking.more()
        except BaseException:  # a signal handler's: it may be unconfirmed, and not be among those that wait
            acking.doubt = True
            raise

    @operation
    def flush(self, timeout: float = 30.0) -> Steps[None]:
        """Send the acks that wait, and wait until the broker has confirmed all of them.

        Args:
            timeout: seconds for the call.

        Raises:
            PulsarError: the broker refused some, which the text names; those messages are redelivered.
            TimedOut: those named in the text are not confirmed, and may be redelivered.
        """
        with self._only:
            yield from self._acking.settling(deadline_after(timeout), lambda: True)

    def _end_later(self, delivery: Delivery, seconds: float) -> None:
        with self._only:
            part, key, index = self._held(delivery)
            entry = self._hand(part).entries[key]
            # in hand to the last: where a signal breaks in, it may be released again
            self._give_back_in(seconds, part, key, index)
            entry.delayed.add(index)
            entry.held.discard(index)
            note_ended(delivery, False)

    def _ack(self, part: PartitionConsumer, key: Key, index: int, deadline: float) -> Steps[None]:
        hand = self._hand(part)
        entry = hand.entries[key]
        yield from self._stream.ask_again(part, _acknowledgement(part, key, entry.wanted - {index}, index, entry.size), deadline)
        hand.acknowledged(key, index, self._stream.ahead(part))

    def _release(self, part: PartitionConsumer, key: Key, index: int, deadline: float) -> Steps[None]:
        """Give a message back once its broker is connected; until then it stays in hand, and may be released again."""
        yield from self._stream.attached(part, deadline)
        try:
            self._give_up(part, key, index)
        except BaseException:  # a signal handler's: what is half given back would be neither in hand nor come again
            self._give_up(part, key, index)
            raise

    def _give_up(self, part: PartitionConsumer, key: Key, index: int) -> None:
        """Have the broker redeliver the entry; may be repeated."""
        hand = self._hand(part)
        entry = hand.entries.get(key)
        if self._acking.waiting:
            self._acking.send()  # before another worker is handed what of the entry is done
        part.tell(_redeliver(part, key))
        part.left(sum(item[2] is entry for item in self._next))
        self._next = deque(item for item in self._next if item[2] is not entry)
        hand.released(key, index)

    def _give_back_in(self, seconds: float, part: PartitionConsumer, key: Key, index: int) -> None:
        self._cluster.loop.call_at(time.monotonic() + seconds, self._give_back, part, key, index)

    def _give_back(self, part: PartitionConsumer, key: Key, index: int) -> None:
        """Ask for an entry again because its delay is over; without a connection it comes with the next one. I/O thread."""
        conn = part.conn
        if self._only.closed:
            return
        self._over.append((part.partition, key, index, False))
        if conn is not None:
            try:
                conn.send(encode(_redeliver(part, key)))
            except BufferFull:
                self._give_back_in(FULL.delay(1), part, key, index)
            except WireprotoError:
                pass  # the connection is lost

    # -- in a transaction: see transactions.PulsarTransactions --------------------------------------------------

    def of(self, cluster: PulsarCluster) -> bool:
        """Return whether the queue is of this client.

        Args:
            cluster: of the client.
        """
        return cluster is self._cluster

    def acking_within(self, turn: AckingTransaction, delivery: Delivery, deadline: float) -> Steps[None]:
        """Have a transaction acknowledge a delivery, which is kept here, out of sight, until the transaction has ended. Steps.

        A broker takes an ACK of a message that none of the group's consumers has for done and does nothing; and that is what a message is
        whose consumer was lost since it came. So the ACK is sent only for the consumer that the message came to.

        Args:
            turn: the transaction. delivery: of this queue. deadline: as `time.monotonic()`.

        Raises:
            UsageError: it was acknowledged or released before. Revoked: it was passed to a transaction.
            Disconnected: it came by a connection that was lost since, or the consumer was closed
                before the answer. PulsarError: the broker or the coordinator refuses. TimedOut: no answer in time.
        """
        with self._only:
            part, key, index = self._held(delivery)
            entry = self._hand(part).entries[key]
            passed = Revoked("the message was passed to a transaction", partitions=((self.topic, part.partition),))
            attached = False
            try:
                turn.holds(partial(self._settled, part, key, index))
                entry.delayed.add(index)
                entry.held.discard(index)
                taken_away(delivery, passed)
                yield from turn.registering(part.name, self.group, deadline)
                yield from self._stream.attached(part, deadline)
                attached = True  # from here on an error of the broker's is about this message
                if entry.consumer != part.id:
                    raise Disconnected(
                        "the connection that delivered the message was lost since: the broker may have redelivered it to another consumer",
                        topic=self.topic,
                    )
                command = _acknowledgement(part, key, set(range(entry.size)) - {index}, index, entry.size)
                command.txnid_most_bits, command.txnid_least_bits = turn.id
                yield from self._stream.ask_once(part, command, turn.asked, deadline)
            except BaseException as why:
                if index not in entry.held:  # also where a signal handler raised just before it was noted
                    taken_away(delivery, passed)
                if not (attached and isinstance(why, (Disconnected, PulsarError))):  # else it is redelivered, here or elsewhere
                    turn.holds(partial(self._unasked, part, key, index))
                raise

    def _settled(self, part: PartitionConsumer, key: Key, index: int, committed: bool) -> None:
        """Note that the transaction has ended. After a rollback the broker redelivers what it had acknowledged. I/O thread."""
        self._over.append((part.partition, key, index, committed))

    def _unasked(self, part: PartitionConsumer, key: Key, index: int, committed: bool) -> None:
        """Give a message back because the transaction has ended, and the broker perhaps has no acknowledgement that it would take back."""
        self._give_back(part, key, index)

    def _discard(self, part: PartitionConsumer, key: Key, why: Exception, frame: bytes) -> None:
        """Acknowledge what cannot be read, with the reason: else it would block the subscription for ever."""
        command = _acknowledgement(part, key)
        if isinstance(why, ChecksumMismatch):
            command.validation_error = api.CommandAck.ChecksumMismatch
        elif isinstance(why, DecompressionError):
            command.validation_error = api.CommandAck.DecompressionError
        elif encrypted(frame):
            command.validation_error = api.CommandAck.DecryptionError
        else:
            command.validation_error = api.CommandAck.BatchDeSerializeError
        part.tell(command)

    # -- the end ------------------------------------------------------------------------------------------------

    def _closing_steps(self, deadline: float) -> Steps[None]:
        """Leave the subscription: what is in hand and not acked is redelivered to other workers."""
        problem: WireprotoError | None = None
        try:
            yield from self._acking.settling(deadline, self._nobody_inside)
        except WireprotoError as why:
            problem = why
        yield from self._stream.closing(deadline)
        self._cluster.roles.forget(self)
        if problem is not None:
            raise problem

    def _nobody_inside(self) -> bool:
        try:
            self._only.wait(time.monotonic())
        except (TimedOut, ConcurrentUse):
            return False
        return True


def _attempt(item: Item) -> int:
    """Return which time a waiting message is handed out next."""
    return item[1]


def _redeliver(part: PartitionConsumer, key: Key) -> api.CommandRedeliverUnacknowledgedMessages:
    return api.CommandRedeliverUnacknowledgedMessages(consumer_id=part.id, message_ids=[message_id(*key)])


def _acknowledgement(part: PartitionConsumer, key: Key, left: Collection[int] = (), index: int = -1, size: int = 0) -> api.CommandAck:
    """Make an individual ACK: of the entry, or of one message, with the set of those that are `left`."""
    data = message_id(*key, index if left else -1, ack_set=words(left, size) if left else ())
    if left:
        data.batch_size = size
    return api.CommandAck(consumer_id=part.id, ack_type=api.CommandAck.Individual, message_id=[data])
