"""Sends Pulsar's batches: each is a SEND on its partition's connection, and a receipt comes for each, in order.

Has the `Wire` and the `Sequencer` of a `flow.sender.Sender`. A key is a `PartitionProducer`, which is found by the producer id in a
broker's push. Batches get their sequence ids at their first sending and keep them for every later one. After a lost connection all that
is not acknowledged is sent again, in order, before anything new; a broker that deduplicates drops what it has.

    a link      a connection on which the broker has opened the partition's producer; there is none while it is opened again
    in flight   as much as there is: what follows on one connection is stored in that order; `identity` is the opening that a batch goes to
    receipts    taken in by the thread that reads, without the I/O thread

Producers are opened by `partition_producer`, and partitions chosen by `producer`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from wireproto._codec import OutBatch, WireCore, pulsar_receipt
from wireproto._net import Connection, Event, Mailbox, Push
from wireproto.errors import Closed, Disconnected, TimedOut, ValueUnsupported, WireprotoError
from wireproto.flow.alarm import Alarm
from wireproto.flow.queue import PartitionQueue, UnnumberedSequencer
from wireproto.flow.sender import Again, Sender, SendTimes, Verdict

from .connection import FRAME_PADDING
from .frames import command_name, decode, signed

if TYPE_CHECKING:
    from .cluster import PulsarCluster
    from .options import PulsarOptions
    from .partition_producer import PartitionProducer

_UNSENT_LIMIT = 2 << 20
_UNBOUNDED = 1 << 60


class SequenceIds(UnnumberedSequencer):
    """Numbers the records of each partition in turn, from where the producer began or its name had ended."""

    def __init__(self) -> None:
        super().__init__(_UNBOUNDED)

    def admit(self, queue: PartitionQueue, batch: OutBatch, now: float) -> bool:
        """Note the opening of the producer that a batch goes to, and give it its sequence ids, once; always True.

        Args:
            queue: of the partition. batch: about to be sent. now: not used.
        """
        partition: PartitionProducer = queue.key  # type: ignore[assignment]
        batch.identity = partition.epoch
        if batch.sequence < 0:
            batch.sequence = partition.sequence
            partition.sequence += batch.count
        return True


class PulsarSender(WireCore):
    """Sends the batches of one producer, or of one `PulsarTransactions`; see the module.

    Attributes:
        core: the sender that this is the wire of.
        box: takes what brokers push to its producers.
        transactional: whether its producers send in transactions.
    """

    transactional = False

    def __init__(self, cluster: PulsarCluster, options: PulsarOptions) -> None:
        self._loop = cluster.loop
        self._options = options
        self._partitions: dict[int, PartitionProducer] = {}
        self.box = Mailbox(cluster.loop, self._pushed, prompt=self._receipt)
        alarm = Alarm(cluster.loop, lambda: self.core.tick())
        pace = SendTimes(linger=options.linger, delivery_timeout=options.delivery_timeout)
        self.core = Sender(self, SequenceIds(), pace, self._make_batch, alarm.set, time.monotonic, cluster.log)

    def join(self, partition: PartitionProducer) -> None:
        """Deliver what brokers push to this producer's id."""
        self._partitions[partition.id] = partition

    def leave(self, partition: PartitionProducer) -> None:
        """Forget a producer that is closed."""
        self._partitions.pop(partition.id, None)
        self.core.leave([partition])

    def _make_batch(self, queue: PartitionQueue, serial: int, now: float) -> OutBatch:
        partition: PartitionProducer = queue.key  # type: ignore[assignment]
        return OutBatch(queue, serial, now, partition.next_builder(), Event(self._loop), partition.owner, None)

    # -- requests: see flow.sender.Wire -------------------------------------------------------------------------

    def target(self, key: PartitionProducer) -> Connection | None:
        """Return the connection on which a partition's producer is open, or None."""
        link = key.link
        return link if link is not None and not link.closed else None

    def congested(self, link: Connection) -> bool:
        """Return whether too many bytes are unsent on a connection to send more now."""
        return link.unsent > _UNSENT_LIMIT

    def requests(self, link: Connection, batches: list[OutBatch]) -> Iterable[list[OutBatch]]:
        """Return each batch by itself: a SEND has one."""
        return ([batch] for batch in batches)

    def transmit(self, link: Connection, batches: list[OutBatch]) -> None:
        """Send one batch.

        Args:
            link: connection to the partition's broker. batches: one.

        Raises:
            ValueUnsupported: the packed batch is larger than the broker takes. UsageError: see `PartitionProducer.check_ids`.
        """
        (batch,) = batches
        partition: PartitionProducer = batch.key
        partition.check_ids(batch)
        frame = self._frame(batch)
        if sum(map(len, frame)) > partition.max_size + FRAME_PADDING:
            raise ValueUnsupported("the packed batch is larger than the broker takes", topic=partition.topic)
        # under the lock, so that it leaves before the producer is opened again or not at all: one that was opened again meanwhile on
        # this connection would store it before those that are sent again, and one that is closed costs all others the connection
        with self.core.lock, suppress(Disconnected, Closed):  # all that is in flight there is sent again when the loss is noticed
            if partition.link is link and partition.epoch == batch.identity:
                link.send(frame)

    def _frame(self, batch: OutBatch) -> list[Any]:
        """Return the SEND of a batch that has its sequence ids."""
        frame: list[Any] = batch.builder.seal(batch.key.id, batch.sequence, time.time_ns() // 1_000_000)
        return frame

    def lost(self, trouble: WireprotoError | None) -> Verdict:
        """Return the verdict on a batch whose receipt was lost with the connection: it is sent again.

        Args:
            trouble: how the connection was lost, or None.
        """
        return Again(trouble, now=True, doubtful=True)

    def drop(self, link: Connection) -> None:
        """Close a connection, since a signal handler broke into the sending of a batch."""
        link.close("a signal broke into the sending of a batch")

    def want(self, keys: set[PartitionProducer]) -> None:
        """Do nothing: partitions without a connection open their producers again by themselves."""

    def failed(self, batch: OutBatch, why: WireprotoError) -> None:
        """Report a batch that failed to its producer.

        With the option `first_sequence` all that waits for the partition fails, too: the user repeats from there with the same ids, and a
        broker would drop records under ids that it has stored others with.

        Args:
            batch: that failed. why: its error.
        """
        batch.owner.failed(batch, why)
        if self._options.first_sequence is not None:
            # what was stored behind this batch would make the broker drop it when the user repeats it under its ids
            self.core.fail([batch.key], why)

    def overdue(self, batch: OutBatch) -> WireprotoError:
        """Return the error of a batch that was not acknowledged within the delivery timeout."""
        partition: PartitionProducer = batch.key
        text = f"not acknowledged within {self._options.delivery_timeout:g} s"
        if batch.attempts:
            text += "; it may be stored"
            self._leave_silence(partition.link, batch)
        late: TimedOut = batch.queue.explain(TimedOut(text, topic=partition.topic, partition=partition.number), batch)
        return late

    @staticmethod
    def _leave_silence(link: Connection | None, batch: OutBatch) -> None:
        """Close a connection that has brought nothing since the batch was made.

        Later batches would end as this one did, until the loss is noticed.
        """
        if link is not None and batch.identity == batch.key.epoch and link.last_read < batch.created and not link.held_back:
            link.close("nothing came since a batch was sent whose time is over")

    # -- what brokers push --------------------------------------------------------------------------------------

    def _receipt(self, item: Push) -> bool:
        """Take in an ordinary receipt; False leaves it to `_pushed`.

        A signal handler may end this anywhere, and `_pushed` does it all again.
        """
        found = pulsar_receipt(item.frame)
        if found is None:
            return False
        partition = self._partitions.get(found[0])
        if partition is not None:
            partition.acknowledged(item.conn, found[1], found[2:])
        return True

    def _pushed(self, item: Any) -> None:
        """Take in what a broker pushed. I/O thread."""
        if not isinstance(item, Push) or self._receipt(item):
            return
        try:
            base = decode(item.frame, item.conn.peer)
        except WireprotoError as why:
            item.conn.close(str(why))
            return
        name = command_name(base)
        command: Any = getattr(base, name) if name is not None else None
        partition = self._partitions.get(getattr(command, "resource_id" if name == "topicMigrated" else "producer_id", 0))
        if partition is None:
            return
        if name == "send_receipt":
            place = signed(command.message_id.ledgerId), signed(command.message_id.entryId)
            partition.acknowledged(item.conn, command.sequence_id, place)
        elif name == "send_error":
            partition.refused(item.conn, command)
        elif name == "topicMigrated":
            partition.migrated(item.conn, command)
        elif name == "close_producer":
            partition.closed_by_broker(item.conn)
