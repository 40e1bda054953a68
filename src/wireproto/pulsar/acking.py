"""Gathers a worker's acknowledgements and sends them in groups that are answered.

One ACK names many entries, of a batch the set of those messages that are still wanted. Only `settling` waits for the answers.

    ack ── unconfirmed (`unacked`), and in the next group ── `interval` is over, the group has `MOST` entries, or `send` is called: ACK
        ── answered: done ── refused for a passing reason: sent again, for `retry_timeout` seconds ── refused: an error, and redelivered
        ── its consumer is gone: what is unconfirmed goes to the next one, before that is granted permits

An acknowledgement is unconfirmed from `ack` until the broker has answered it. What is unconfirmed when a consumer is lost may be
redelivered: the worker passes it over, wherever its entry comes from.

Belongs to the worker's thread, except `send`, which the timer of the I/O thread calls, too; it never waits. Where a signal handler raises
in `send`, what was taken for a group and not sent is unconfirmed all the same; `doubt` makes the next `send` send all of that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wireproto._net import Call
from wireproto.errors import BufferFull, TimedOut, WireprotoError
from wireproto.flow.ack_groups import PAUSE, AckGroups
from wireproto.net.retry import Verdict, verdict
from wireproto.net.task import Steps

from . import PulsarApi_pb2 as api
from .acks import words
from .codes import ConsumerNotFound
from .frames import encode, message_id, reply_body
from .unacked import HeldEntry, Unacked

if TYPE_CHECKING:
    from wireproto._net import Loop
    from wireproto.net.client_log import ClientLog

    from .message_stream import MessageStream
    from .partition_consumer import PartitionConsumer

MOST = 1000
"""Entries of a group."""
SHOWN = 10
"""Message ids that an error names of each group."""
LOOKS = 0.02
"""Seconds between checks whether another thread has left its call."""


@dataclass(frozen=True, slots=True)
class Group:
    """The content of one ACK: entries of a partition with the indexes that are done, and the consumer that it was sent for."""

    part: PartitionConsumer
    consumer: int
    entries: list[tuple[HeldEntry, set[int]]]


class Acking:
    """The acknowledgements of one worker.

    Args:
        loop: of the client. log: of the client. stream: the worker's.
        hands: what the worker has, by partition.
        interval: seconds until an acknowledgement is sent.
        retry_timeout: seconds for which a broker may refuse one for a passing reason.

    Attributes:
        waiting: entries with messages that are done, for the next group.
        doubt: whether a signal handler broke into something here.
        groups: when the next group is sent, and why earlier ones were refused.
    """

    def __init__(
        self, loop: Loop, log: ClientLog, stream: MessageStream, hands: Mapping[int, Unacked], interval: float, retry_timeout: float
    ) -> None:
        self._loop = loop
        self._log = log
        self._stream = stream
        self._hands = hands
        self.groups = AckGroups(loop, interval, self.send)
        self._retry_timeout = retry_timeout
        self.waiting: dict[HeldEntry, None] = {}
        self.doubt = False
        self._asked: dict[Call, None] = {}
        self._refused: dict[int, tuple[float, int]] = {}  # by partition: since when, and how often

    def more(self) -> None:
        """Arm the timer for one more entry that waits, or send at once where the group is full."""
        if len(self.waiting) >= MOST or self.doubt:
            self.send()
        else:
            self.groups.more()

    def pauses(self) -> None:
        """Raise an earlier failure, and see that what waits is sent in time. Called when the worker is about to wait."""
        self.groups.raise_failure()
        if self.waiting or self.doubt:
            self.more()

    def send(self) -> None:
        """Send what waits, for partitions that are open; for others it is sent to the next consumer."""
        try:
            if self.doubt:
                self.waiting.update(dict.fromkeys(self._unconfirmed()))
                self.doubt = False
            self._send()
        except BaseException:
            self.doubt = True
            raise

    def _send(self) -> None:
        groups: dict[PartitionConsumer, list[tuple[HeldEntry, set[int]]]] = {}
        while self.waiting:
            try:
                entry, _ = self.waiting.popitem()  # what is done from here on waits for the next group
            except KeyError:  # the other thread was quicker
                break
            unconfirmed = entry.unconfirmed.copy()
            if unconfirmed:
                groups.setdefault(entry.part, []).append((entry, unconfirmed))
        for part, entries in groups.items():
            entries.reverse()  # oldest first
            for at in range(0, len(entries), MOST):
                self._submit(part, entries[at : at + MOST])

    def _submit(self, part: PartitionConsumer, entries: list[tuple[HeldEntry, set[int]]]) -> None:
        conn, consumer = part.conn, part.id
        if conn is None:
            return
        command = api.CommandAck(consumer_id=consumer, ack_type=api.CommandAck.Individual, request_id=conn.next_token())
        for entry, _ in entries:
            wanted = entry.wanted.copy()  # what was done since `unconfirmed` was copied is acknowledged twice
            data = command.message_id.add(ledgerId=entry.key[0], entryId=entry.key[1])
            if wanted:
                data.batch_size = entry.size
                data.ack_set.extend(words(wanted, entry.size))
        try:
            call = conn.submit(command.request_id, encode(command), mailbox=self._stream.box, context=Group(part, consumer, entries))
            self._asked[call] = None
            if call.done:  # the other thread may have taken its answer in already
                self._asked.pop(call, None)
        except BufferFull:
            self.waiting.update(dict.fromkeys(entry for entry, _ in entries))
            self.groups.again(1)
        except WireprotoError:
            pass  # the connection is lost

    def ready(self, part: PartitionConsumer) -> None:
        """Send what is unconfirmed to the new consumer of a partition: the one before may not have received it.

        Args:
            part: the partition, open and not granted permits yet.
        """
        for call in [call for call in list(self._asked) if call.context.part is part]:
            call.cancel()
            self._asked.pop(call, None)
        hand = self._hands.get(part.partition)
        if hand is not None and hand.unconfirmed:
            self.waiting.update(dict.fromkeys(hand.unconfirmed.values()))
            self.send()

    def answered(self, call: Call) -> None:
        """Take in a broker's answer to a group.

        Args:
            call: of the ACK, done; its context is the `Group`.
        """
        self._take_in(call.context, call)
        self._asked.pop(call, None)  # last: where a signal handler raises before, the answer is taken in again

    def _take_in(self, group: Group, call: Call) -> None:
        part, frame = group.part, call.frame
        if group.consumer != part.id or frame is None:  # sent again to the consumer that followed, or follows
            return
        try:
            reply_body(frame, call.conn.peer, topic=part.topic, partition=part.partition)
        except ConsumerNotFound:
            self._stream.lost(part)
        except WireprotoError as why:
            self._refuse(group, why)
        else:
            self._refused.pop(part.partition, None)
            hand, ahead = self._hands[part.partition], self._stream.ahead(part)
            for entry, indexes in group.entries:
                hand.settled(entry, indexes, ahead)

    def _refuse(self, group: Group, why: WireprotoError) -> None:
        """Send a refused group again after a pause; where that cannot help, give it up and have its messages redelivered."""
        part, now = group.part, time.monotonic()
        since, times = self._refused.get(part.partition, (now, 0))
        pause = PAUSE.delay(times + 1)
        if verdict(why) is not Verdict.NEVER and now + pause - since < self._retry_timeout:
            self._refused[part.partition] = since, times + 1
            self._loop.call_at(now + pause, self._again, group)
            return
        self._refused.pop(part.partition, None)
        names = _names(part, group.entries)
        self._log.warning(("ack", part.name), "%s[%d]: acks were refused, these messages come again: %s: %s", *part.owner, names, why)
        why.text += f"; not acknowledged, so that they come again: {names}"
        self.groups.refused(part.partition, why)
        hand = self._hands[part.partition]
        for entry, indexes in group.entries:
            hand.refused(entry, indexes)
        places = [message_id(*entry.key) for entry, _ in group.entries]
        part.tell(api.CommandRedeliverUnacknowledgedMessages(consumer_id=part.id, message_ids=places))

    def _again(self, group: Group) -> None:
        """Send a group again that was refused for a passing reason. In the I/O thread."""
        self.waiting.update(dict.fromkeys(entry for entry, _ in group.entries))
        self.send()

    def _unconfirmed(self) -> list[HeldEntry]:
        return [entry for hand in list(self._hands.values()) for entry in list(hand.unconfirmed.values())]

    def settling(self, deadline: float, alone: Callable[[], bool]) -> Steps[None]:
        """Send what is unconfirmed until all of it is answered. Steps.

        Args:
            deadline: as `time.monotonic()`.
            alone: returns whether no other thread is in a call of the worker, which would take in the answers.

        Raises:
            TimedOut: names the messages that may be redelivered. Else why one was refused, or why a partition is not open.
        """
        while unconfirmed := self._unconfirmed():
            if not alone():
                self.send()
                if all(call.done for call in list(self._asked)):
                    if unsent := [entry for entry in unconfirmed if not entry.part.open]:
                        raise self._late(unsent)
                    return
                yield min(deadline, time.monotonic() + LOOKS)
                if time.monotonic() >= deadline:
                    raise self._late(unconfirmed)
                continue
            part = next((entry.part for entry in unconfirmed if not entry.part.open), None)
            if part is not None:
                try:
                    yield from self._stream.attached(part, deadline)
                except WireprotoError as why:
                    why.text += f"; acks not sent: {_names(part, [(entry, entry.unconfirmed) for entry in unconfirmed])}"
                    raise
            self.send()
            if not (yield from self._stream.more(deadline)):
                raise self._late(unconfirmed)
        self.groups.raise_failure()

    def _late(self, unconfirmed: Collection[HeldEntry]) -> TimedOut:
        first = next(iter(unconfirmed)).part
        names = _names(first, [(entry, entry.unconfirmed) for entry in unconfirmed])
        return TimedOut(f"no answer to acks, so that these may come again: {names}", topic=first.topic)


def _names(part: PartitionConsumer, entries: Collection[tuple[HeldEntry, set[int]]]) -> str:
    """Format the ids of messages, ledger:entry:index."""
    found = [f"{entry.key[0]}:{entry.key[1]}:{index}" for entry, indexes in entries for index in sorted(indexes)]
    return ", ".join(found[:SHOWN]) + (f" and {len(found) - SHOWN} more" if len(found) > SHOWN else "")
