"""The partitions that one role reads, as one stream of frames.

What it is: one mailbox for all partitions of a Reader, Consumer or QueueConsumer; sorts what arrives by partition, takes turns, and puts
partitions back to work after a loss. Belongs to one thread at a time.
A partition that is lost or moved drops what was not handed over yet; the broker sends that again after the new SUBSCRIBE.
Must not: decode entries, or know what a role does with them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from wireproto._net import Call, Connection, Mailbox, Push
from wireproto.errors import Disconnected, TimedOut, WireprotoError
from wireproto.net.retry import Verdict, Waits, verdict

from . import PulsarApi_pb2 as api
from .codes import ConsumerNotFound, PulsarError
from .frames import command_name, decode, reply_body, signed
from .partition_consumer import RETRY, Lost, PartitionConsumer, Subscription

if TYPE_CHECKING:
    from wireproto._codec import PulsarEntry

    from .cluster import PulsarCluster

Place = tuple[int, int]
MESSAGE = 9
GATHER_FRAMES = 256
GATHER_BYTES = 1 << 20
"""Most frames and bytes of one partition that are handed out together."""
TOLD = 5.0
"""Seconds that a broker may take to tell a failover consumer whether it is fed; it waits a second itself by default."""


class Feed:
    """Args:
    names: (topic as the user named it, partition, full name).
    window: bytes for all partitions together.
    patience: seconds for which a lost partition may stay lost before its error is raised.
    prepare: called with a partition before each SUBSCRIBE.
    changed: called with a partition when the broker tells who is fed from it (failover): when that changes, and first after each
        SUBSCRIBE, since another member may have had it meanwhile.
    """

    def __init__(
        self,
        cluster: PulsarCluster,
        names: Sequence[tuple[str, int, str]],
        subscription: Subscription,
        *,
        window: int,
        patience: float,
        prepare: Callable[[PartitionConsumer], None] | None = None,
        changed: Callable[[PartitionConsumer], None] | None = None,
    ) -> None:
        self._cluster = cluster
        self._box = Mailbox(cluster.loop, limit=window * 2)
        self.patience = patience
        self._prepare = prepare
        self._changed = changed
        purpose = f"consume-{cluster.next_role()}"
        share = max(1 << 16, window // len(names))
        self.parts = [
            PartitionConsumer(cluster, topic, number, name, subscription, self._box, share, purpose) for topic, number, name in names
        ]
        self._by_channel: dict[int, PartitionConsumer] = {}
        self._ready: deque[PartitionConsumer] = deque()
        self._watched: set[Connection] = set()

    def open(self, deadline: float) -> None:
        """Subscribe on every partition; retries until `deadline`."""
        for part in self.parts:
            self.attached(part, deadline)

    def attach(self, part: PartitionConsumer, deadline: float, *, flow: bool = True) -> None:
        """Subscribe on one partition; one attempt. One that was not answered until `deadline` is gone on with the next time."""
        if not part.asked:
            if self._prepare is not None:
                self._prepare(part)
            self._by_channel.pop(part.channel, None)
            conn = part.ask(deadline)
            self._by_channel[part.channel] = part
            if conn not in self._watched:
                self._watched = {known for known in self._watched if not known.closed} | {conn}
                conn.on_lost(lambda why: self._box.put(Lost(conn, why)))
        part.attach(deadline, flow=flow)

    # -- what arrives -------------------------------------------------------------------------------------------

    def next(self, deadline: float) -> tuple[PartitionConsumer, list[bytes]] | None:
        """MESSAGE frames of one partition, in order; None when none came until `deadline`."""
        while True:
            self._drain()
            taken = self._take()
            if taken is not None:
                return taken
            due = self._revive(deadline)
            now = time.monotonic()
            item = self._box.get(max(min(deadline, due), now) if now < deadline else 0.0)
            if item is not None:
                self._sort(item)
            elif time.monotonic() >= deadline:
                return None

    def _drain(self) -> None:
        for _ in range(len(self._box)):
            item = self._box.get(0.0)
            if item is None:
                return
            self._sort(item)

    def _take(self) -> tuple[PartitionConsumer, list[bytes]] | None:
        for _ in range(len(self._ready)):
            part = self._ready[0]
            self._ready.rotate(-1)
            if part.paused:
                continue
            if not part.frames:
                self._ready.remove(part)
                continue
            frames: list[bytes] = []
            size = 0
            while part.frames and len(frames) < GATHER_FRAMES and size < GATHER_BYTES:
                frame = part.frames.popleft()
                frames.append(frame)
                size += len(frame)
            if not part.frames:
                self._ready.remove(part)
            return part, frames
        return None

    def _sort(self, item: Any) -> None:
        """One item of the mailbox: a message to its partition's queue, or news about a partition."""
        if isinstance(item, Lost):
            for lost in self.parts:
                if lost.conn is item.conn:
                    lost.detach()
            return
        if not isinstance(item, Push):
            return
        found = self._by_channel.get(item.channel)
        if found is None or found.link is not item.conn:
            return
        part = found
        frame = item.frame
        if len(frame) > 5 and frame[4] == 8 and frame[5] == MESSAGE:
            if part not in self._ready:
                self._ready.append(part)
            part.frames.append(frame)
            return
        self._news(part, item)

    def _news(self, part: PartitionConsumer, item: Push) -> None:
        try:
            base = decode(item.frame, item.conn.peer)
        except WireprotoError as why:
            item.conn.close(str(why))
            return
        name = command_name(base)
        if name == "message":
            if part not in self._ready:
                self._ready.append(part)
            part.frames.append(item.frame)
        elif name in ("close_consumer", "topicMigrated"):
            self._cluster.told.info(("moved", part.name), "%s: the broker %s serves it no more", part.name, item.conn.peer)
            part.detach()
        elif name == "reachedEndOfTopic":
            part.ended = True
        elif name == "active_consumer_change":
            fed, known = base.active_consumer_change.is_active, part.told
            if known and fed == part.active:
                return
            part.told, part.active = True, fed
            if not fed:
                part.frames.clear()
            if self._changed is not None:
                self._changed(part)

    def _revive(self, deadline: float) -> float:
        """Attach what is detached and due; returns when the next attempt is due."""
        due = float("inf")
        for part in self.parts:
            if part.conn is not None or part.retired:
                continue
            now = time.monotonic()
            if now < part.retry_at:
                due = min(due, part.retry_at)
                continue
            if now >= deadline:
                return due
            try:
                self.attach(part, deadline)
            except WireprotoError as why:
                part.failed(why, self.patience)
                self._cluster.told.info(("again", type(why), part.topic), "%s[%d]: tried again: %s", part.topic, part.partition, why)
                due = min(due, part.retry_at)
        return due

    # -- requests -----------------------------------------------------------------------------------------------

    def wait(self, call: Call, deadline: float) -> bytes:
        """A reply, taking in what arrives meanwhile, so that the connection stays readable."""
        self._take_in(call, deadline)
        return call.result(deadline)

    def _take_in(self, call: Call, deadline: float, part: PartitionConsumer | None = None) -> None:
        """Until the call is done, or `deadline`; with a partition, no longer than that is attached by the call's connection."""
        while not call.done and (part is None or part.conn is call.conn):
            now = time.monotonic()
            if now >= deadline:
                break
            call.wait(min(deadline, now + 0.05))
            self._drain()

    def attached(self, part: PartitionConsumer, deadline: float, *, flow: bool = True) -> PartitionConsumer:
        """The partition, attached: waits for that until `deadline`."""
        part.retired = False
        self._drain()
        while part.conn is None:
            now = time.monotonic()
            if now >= deadline:
                if part.trouble is not None:
                    raise part.trouble
                raise TimedOut("the partition is not back yet", topic=part.topic, partition=part.partition)
            if now < part.retry_at:
                item = self._box.get(min(part.retry_at, deadline))
                if item is not None:
                    self._sort(item)
                continue
            try:
                self.attach(part, deadline, flow=flow)
            except WireprotoError as why:
                part.failed(why, self.patience)
        return part

    def ask(self, part: PartitionConsumer, command: Message, deadline: float) -> Any:
        """A request about an attached partition and its typed reply."""
        call = part.submit(command)
        return reply_body(self.wait(call, deadline), call.conn.peer, topic=part.topic, partition=part.partition)

    def ask_again(
        self, part: PartitionConsumer, command: Any, deadline: float, fit: Callable[[], bool] | None = None, *, flow: bool = True
    ) -> Any:
        """A request that may be repeated, about a partition: made again once the partition is back when its consumer is gone meanwhile.

        The broker answers "not found" then, or nothing at all (ACK), or ends the connection. When it refused for a while and then does not
        answer in time, the refusal is what is raised.

        Args:
            command: a message with a consumer_id, which is set here.
            fit: asked before each attempt whether it still makes sense; None is returned when not.
            flow: grant permits at once when it is attached again.
        """
        trouble: PulsarError | None = None
        waits = Waits(RETRY)
        while True:
            self.attached(part, deadline, flow=flow)
            if fit is not None and not fit():
                return None
            command.consumer_id = part.id
            try:
                call = part.submit(command)
                self._take_in(call, deadline, part)
                if not call.done and part.conn is not call.conn:
                    call.cancel()
                    continue
                return reply_body(call.result(deadline), call.conn.peer, topic=part.topic, partition=part.partition)
            except TimedOut:
                if trouble is None:
                    raise
                raise trouble from None
            except (ConsumerNotFound, Disconnected) as why:
                part.failed(why, self.patience)
            except PulsarError as why:  # of a consumer that is there: a topic about to go, an entry that cannot be read just now
                wait = waits.next()
                if verdict(why) is Verdict.NEVER or time.monotonic() + wait >= deadline:
                    raise
                trouble = why
                self._cluster.pause(wait)

    def place(self, part: PartitionConsumer, deadline: float, *, flow: bool = True) -> tuple[Place, Place]:
        """(place of the last message, place before which all is acknowledged), each (ledger, entry), entry -1 for none."""
        return _place(self.ask_again(part, api.CommandGetLastMessageId(), deadline, flow=flow))

    def here(self, part: PartitionConsumer, deadline: float) -> tuple[Place, Place]:
        """`place` of the consumer that is attached now; raises what becomes of it."""
        return _place(self.ask(part, api.CommandGetLastMessageId(consumer_id=part.id), deadline))

    def rewind(self, part: PartitionConsumer, target: api.CommandSeek, deadline: float) -> None:
        """SEEK, then subscribe anew: the broker closes the consumer over it. No permits are granted yet."""
        target.consumer_id = part.id
        self.ask(part, target, deadline)
        part.detach()
        self.attached(part, deadline, flow=False)

    def ahead(self, part: PartitionConsumer) -> int:
        """How many frames of a partition may have come and were not handed over: what was sent before this moment is among them."""
        return len(part.frames) + len(self._box)

    def requeue(self, part: PartitionConsumer) -> None:
        """Frames were put back to the front of a partition's queue."""
        if part not in self._ready:
            self._ready.append(part)

    def settle(self, part: PartitionConsumer, deadline: float) -> None:
        """Take in what has arrived; a failover consumer that was just attached waits a moment to learn whether it is fed."""
        self._drain()
        until = min(deadline, time.monotonic() + TOLD)
        while not part.told and part.conn is not None and time.monotonic() < until:
            item = self._box.get(until)
            if item is not None:
                self._sort(item)

    def retire(self, part: PartitionConsumer) -> None:
        """No more of this partition: its consumer is closed at the broker without waiting, and never attached again."""
        part.abandon()
        conn, part.conn = part.conn, None
        part.retired = True
        part.frames.clear()
        if conn is not None:
            conn.route(part.channel, None)
            part.send_close(conn)

    def tell_skipped(self, part: PartitionConsumer, facts: Sequence[PulsarEntry]) -> None:
        """Tell the log of entries that cannot be read."""
        for fact in facts:
            if fact.error is not None:
                self._cluster.told.skipped(part.topic, part.partition, f"{fact.ledger}:{fact.entry}", fact.error)

    def close(self, deadline: float) -> None:
        """Close every consumer at its broker."""
        for part in self.parts:
            part.close(deadline)
        self.hang_up()
        self._box.close()

    def hang_up(self) -> None:
        """Close the role's own connections; `attached` opens them again."""
        for conn in self._watched:
            self._cluster.drop(conn)
        self._watched = set()


def _place(reply: api.CommandGetLastMessageIdResponse) -> tuple[Place, Place]:
    last, mark = reply.last_message_id, reply.consumer_mark_delete_position
    done = (signed(mark.ledgerId), signed(mark.entryId))
    end = (signed(last.ledgerId), signed(last.entryId))
    return (end if end[1] >= 0 else done), done
