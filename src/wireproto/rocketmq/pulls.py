"""Decides which pulls of each queue to send, and takes in their answers: messages, ends of queues, offsets that are gone. Sans-IO.

RocketMQ's part of reading ahead (`flow.ahead`, which plans the fetches of all protocols). Brokers answer a pull with at most 32 messages
(their default), so reading one reply at a time is bound by round trips. Queue offsets have no holes, so the next pulls can be sent before
the first is answered:

    known end 200, step 32     out: 0 32 64 96 …      replies may come in any order: those behind a hole are kept aside
    reply to 0 ends at 20      20 … 31 are missing: pull 20 is sent, the others stay valid
    at the end                 one pull with "suspend" (long polling): the broker answers when there is a message, or after a while

Bytes: a pull reserves as many as that number of messages had in the replies before. One that is suspended reserves nothing, since all
queues of a consumer may be read up to their ends: its reply counts when it comes. So the first pull of a queue whose end is not known has
no "suspend".
It knows no connections and no clock, and does not look into bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from typing import TYPE_CHECKING, Any, TypeAlias

from wireproto._codec import Chunk, RepeatedCommand, Slice
from wireproto.errors import TimedOut, TransportError, WireprotoError
from wireproto.flow import ahead
from wireproto.flow.ahead import MemoryLimit, ReadAhead, Ticket
from wireproto.net.retry import Policy, Verdict, verdict

from .codes import PullOffsetMoved, PullRetryImmediately, TopicNotExist
from .errors import NoQueue, NotReadable, PlaceLost

if TYPE_CHECKING:
    from wireproto.net.client_log import ClientLog
    from wireproto.position import TopicPartition

    from .options import RocketOptions
    from .route import Queue, Route

BROKER_LIMIT = 32
"""Messages a broker puts in one reply, unless it is configured otherwise."""
LARGEST = 1 << 18
"""Bytes that a broker puts in one reply, by default, but for a single message that is larger."""
GUESS = 1 << 10
"""Bytes assumed for a message while none was read."""
NO_STOP = 1 << 63
AGAIN = Policy(first=0.05, factor=2.0, ceiling=1.0, jitter=0.2)
RESET, REMOVING = "OFFSET_RESET", "MESSAGE_WAS_REMOVING"
"""Remarks. RESET: an administrator has set the group to another offset, said in the reply to one pull only. REMOVING: records were just
deleted."""
LOGGED_FROM = 4
"""Refusals in a row after which they are logged; then each time that their number has doubled."""
LEFT_OUT = 5.0
"""Seconds between looks at the route for a queue that is not to be read now."""
TRANSIENT = TimedOut, TopicNotExist, NoQueue, NotReadable
"""Errors that a fresh route, or the next try, may resolve: whether a queue is to be read, the route says (`looked`)."""
FOUND, RETRY, MOVED = 0, PullRetryImmediately.code, PullOffsetMoved.code

Found: TypeAlias = "tuple[int, int, int, int, Slice]"
"""A pull's reply: code, next offset, the queue's first offset, its end offset, stored messages."""


class Cursor(ahead.Cursor):
    """Keeps the state of one queue being read.

    Attributes:
        topic, queue: which queue. ahead: the offset where the replies end that follow `position` without a hole.
        later: replies behind a hole, by offset. behind: their bytes.
        sent: everything from `ahead` to here is out or behind a hole; the next pull begins here or later. edge: no pull begins behind it.
        least: bytes of replies from which on a batch is made, while more is known to be stored.
        most: number of pulls that may be out at once; once `least` bytes wait, that many may be out or waiting together.
        step: messages asked for by one pull. mean: bytes of a message.
        deliver_now: a pull failed, so what was fetched is delivered without waiting for more, as where memory has no room (`short`).
        lenient: if `position` is gone, continue at the first offset left. look: look its broker up before the next pull.
        unseen: the broker says that the queue ends before the offset asked for; that counts once the queue holds all of the broker's log.
        caught_up: the queue holds all of it.
        left_out: the route says that the queue is not to be read, and that was logged.
        lost: the error of a queue whose log is another one than the one that was read, or None. It is raised by each poll until a seek: a
            log that begins again grows past any offset, and what it holds before that offset would be skipped in silence.
        heads: templates of a pull, without and with "suspend"; None: not made for this queue yet, or commands are signed.
    """

    __slots__ = (
        "behind",
        "caught_up",
        "deliver_now",
        "edge",
        "heads",
        "later",
        "least",
        "left_out",
        "lenient",
        "look",
        "lost",
        "mean",
        "most",
        "queue",
        "sent",
        "step",
        "topic",
        "unseen",
    )  # fmt: skip

    def __init__(self, topic: str, queue: Queue, start: int, stop: int | None, *, most: int, least: int, lenient: bool) -> None:
        super().__init__((topic, queue.partition), start, stop)
        self.topic, self.queue, self.most, self.least, self.lenient = topic, queue, most, least, lenient
        self.sent = self.edge = start
        self.step, self.mean, self.behind = BROKER_LIMIT, GUESS, 0
        self.later: dict[int, Chunk] = {}
        self.deliver_now = self.look = self.unseen = self.caught_up = self.left_out = False
        self.lost: PlaceLost | None = None
        self.heads: tuple[RepeatedCommand, RepeatedCommand] | None = None

    def wanting(self, now: float) -> bool:
        """Return whether another pull may be sent now."""
        out, waiting = len(self.out), len(self.chunks)
        if self.sent >= self.end and (out or waiting):
            return False  # most often: a pull at the end is out
        if out >= self.most or (out + waiting + len(self.later) >= self.most and self.held - self.behind >= self.least):
            return False
        return super().wanting(now)

    def restart(self, offset: int) -> None:
        """Forget all pulls and replies, and begin at this offset."""
        super().restart(offset)
        self.sent = self.edge = offset
        self.later.clear()
        self.behind = 0
        self.deliver_now = self.unseen = self.caught_up = False

    def moved(self, chunk: Chunk, position: int) -> None:
        """Set the position behind a delivered reply, and take in the mean size of its messages."""
        self.position = position
        self.deliver_now = False
        if chunk.size:
            mean = chunk.size // (chunk.next - chunk.start) + 1
            self.mean = max(mean, (self.mean + mean) // 2)  # grows at once, shrinks by half of the difference

    def ready_to_deliver(self, late: bool) -> bool:
        """Return whether the replies that wait are to be delivered now. late: without waiting for more."""
        size = self.held - self.behind
        if late or size >= self.least or not size or self.deliver_now or self.short:
            return True
        done = self.ahead >= self.end or (self.stop is not None and self.ahead >= self.stop)
        return done or self.chunks[-1].error is not None

    def again(self) -> None:
        """Ask for the first missing offset again, since a pull brought no usable reply."""
        self.sent = self.ahead
        self.deliver_now = True

    def count(self, at: int) -> int:
        """Return how many messages to ask for at `at`: a step, but not what a later pull covers already, nor past the stop."""
        limit = self.step
        if at < self.edge:
            limit = min(limit, min((offset - at for offset in (*self.out, *self.later) if offset > at), default=limit))
        if self.stop is not None:
            limit = min(limit, self.stop - at)
        return max(limit, 1)


class Pulls:
    """Implements `flow.ahead.FetchTargets` for RocketMQ.

    Args:
        memory: limit of what is read ahead. log: the client's log.
        on_reset: called with a queue and the offset to which an administrator has set the group there; reading continues from that offset.
            None: such resets are ignored.

    Attributes:
        plan: the cursors, and the replies that wait to be delivered. A ticket without bytes is a pull that the broker is to hold.
        stale: topics whose route has to be looked up before some of their queues are asked again (`looked`).
        unseen: addresses of brokers to wait for until their queues hold all of their log (`shown`).
    """

    most = 1 << 62

    def __init__(
        self, options: RocketOptions, memory: MemoryLimit, log: ClientLog, on_reset: Callable[[TopicPartition, int], object] | None = None
    ) -> None:
        self._options, self._log, self._on_reset = options, log, on_reset
        self.plan: ReadAhead[Cursor, Chunk] = ReadAhead(memory, AGAIN)
        self.stale: set[str] = set()
        self.unseen: set[str] = set()
        self._failing_since = 0.0  # time since when no pull has worked; 0: they work

    def add(self, topic: str, queue: Queue, start: int, stop: int | None = None, *, lenient: bool = False) -> Cursor:
        """Read this queue from `start` up to, not including, `stop`. lenient: if `start` is gone, begin at the first offset left."""
        options = self._options
        least = min(options.min_bytes, options.batch_bytes)
        if not self.plan.cursors:
            self._failing_since = 0.0  # it was about queues that are not read any more
        return self.plan.add(Cursor(topic, queue, start, stop, most=options.pull_ahead, least=least, lenient=lenient))

    # asking ----------------------------------------------------------------------------------------------------------------------------

    def link(self, cursor: Cursor) -> str | None:
        """Return the address of the broker to ask for this queue; None: something has to be looked up first (`stale`, `unseen`)."""
        address = cursor.queue.address
        if cursor.look or address is None:
            self.stale.add(cursor.topic)
            return None
        if cursor.unseen:
            self.unseen.add(address)
            return None
        return address

    def next_requests(self, cursor: Cursor) -> Iterator[tuple[int, int, int]]:
        """Yield the pulls to send for this queue: offset, number of messages, bytes to reserve (0: with "suspend")."""
        at, end, out, later = cursor.sent, cursor.end, cursor.out, cursor.later
        stop = NO_STOP if cursor.stop is None else cursor.stop
        full = cursor.held >= cursor.least
        most = cursor.most - len(cursor.chunks) - len(later) if full else cursor.most
        needed = cursor.ahead if cursor.held - cursor.behind < cursor.least else -1  # the pull that everything else waits for
        while at < stop and (len(out) < most or (at == needed and len(out) < cursor.most)):
            if at in later:
                at = later[at].next
                continue
            if at in out:
                at += out[at].count
                continue
            beyond = at >= end
            if beyond and (out or cursor.chunks or (later and at > cursor.ahead)):
                return  # the end may have moved meanwhile; the pending replies will show it
            count = cursor.step
            if at < cursor.edge or at + count > stop:
                count = cursor.count(at)
            size = 0 if beyond and end >= 0 else count * cursor.mean
            yield at, count, size if size < LARGEST else LARGEST
            at += count
            cursor.sent = at
            if at > cursor.edge:
                cursor.edge = at
            if beyond:
                return

    def dropped(self, ticket: Ticket[Cursor]) -> None:
        """Take back a pull that was not sent; it may be sent at once."""
        self.plan.answered(ticket)
        ticket.cursor.sent = ticket.cursor.ahead

    def restart(self) -> None:
        """Forget what is out and what was fetched ahead: it is not known how much of it was taken in when a signal came."""
        self.plan.only_out(())
        for cursor in self.plan.cursors.values():
            self.plan.seek(cursor.key, cursor.position)

    def wakeup(self, now: float) -> float:
        """Return when the first of the refused queues may be asked again; infinity when none was refused."""
        return min((c.retry_at for c in self.plan.cursors.values() if c.retry_at > now and not c.paused), default=ahead.NEVER)

    # answers ---------------------------------------------------------------------------------------------------------------------------

    def answer(self, ticket: Ticket[Cursor], found: Found, remark: str | None = None) -> None:
        """Take in a reply. remark: as the broker wrote it; needed for codes 20 and 21 only."""
        cursor = ticket.cursor
        counts = self.plan.answered(ticket)
        code, following, _, high, body = found
        if code != FOUND or not counts or cursor.lost is not None:
            self._otherwise(ticket, found, remark, counts)
            return
        if cursor.failures or self._failing_since:
            self._works(cursor)
        cursor.lenient = cursor.caught_up = False
        cursor.end = high
        offset, asked = ticket.offset, ticket.count
        taken = following - offset
        if taken != asked:
            cursor.sent = cursor.ahead  # what the reply left open has to be asked for
        if taken <= 0 or offset < cursor.ahead:
            return  # nothing in it, or overtaken
        if taken < asked and following < high:
            cursor.step = taken  # large messages: the broker's byte limit cut the reply
        elif taken >= cursor.step < BROKER_LIMIT:
            cursor.step = min(BROKER_LIMIT, cursor.step * 2)
        self._keep(cursor, Chunk(cursor, cursor.generation, offset, following, body, len(body)))

    def _works(self, cursor: Cursor) -> None:
        self.plan.well(cursor)
        self._failing_since = 0.0

    def _otherwise(self, ticket: Ticket[Cursor], found: Found, remark: str | None, counts: bool) -> None:
        """Take in a reply without messages, or one to a pull that does not count any more."""
        cursor, offset = ticket.cursor, ticket.offset
        code, following, low, high, _ = found
        if code == MOVED and remark == RESET:
            self._reset(cursor, following, counts)
            return
        if not counts:
            return
        self._works(cursor)
        if cursor.lost is not None:
            self._lose(cursor, cursor.lost)
        elif code == MOVED:
            self._moved(cursor, offset, following, low, high)
        elif code == RETRY and remark == REMOVING:
            self._removed(cursor, offset, following, high)
        else:
            cursor.lenient = cursor.caught_up = False
            cursor.end = high
            self._nothing(cursor, offset, following)

    def _nothing(self, cursor: Cursor, offset: int, following: int) -> None:
        """Take in a reply without messages: the end (19), or all filtered out up to `following` (20)."""
        cursor.sent = cursor.ahead
        if following > offset >= cursor.ahead:
            self._keep(cursor, Chunk(cursor, cursor.generation, offset, following))

    def _keep(self, cursor: Cursor, chunk: Chunk) -> None:
        if chunk.start != cursor.ahead:
            cursor.later[chunk.start] = chunk
            cursor.behind += chunk.size
            self.plan.hold(cursor, chunk.size)
            return
        self.plan.push(chunk)
        if cursor.later:
            self._join(cursor)
        if cursor.sent < cursor.ahead:
            cursor.sent = cursor.ahead

    def _join(self, cursor: Cursor) -> None:
        """Take in replies that were behind a hole, now that it is filled."""
        later = cursor.later
        while (chunk := later.pop(cursor.ahead, None)) is not None:
            cursor.behind -= chunk.size
            self.plan.push(chunk, held=True)
        for offset in [offset for offset in later if offset < cursor.ahead]:
            size = later.pop(offset).size
            cursor.behind -= size
            self.plan.hold(cursor, -size)

    def _reset(self, cursor: Cursor, following: int, counts: bool) -> None:
        """Take in that an administrator has set the group, also by the reply to an old pull, since the broker does not say it again."""
        if self._on_reset is None:
            if counts:
                cursor.again()
        elif self.plan.cursors.get(cursor.key) is cursor:
            self.set_to(cursor, following)
            self._on_reset(cursor.key, following)

    def set_to(self, cursor: Cursor, offset: int) -> None:
        """Continue at the offset to which an administrator has set the group."""
        before = cursor.position
        log = self._log.warning if offset > before else self._log.info  # what lies between is not read
        log(("set", cursor.key), "%s[%d]: the group was set from %d to %d", *cursor.key, before, offset)
        self.seek(cursor, offset)

    def seek(self, cursor: Cursor, offset: int, *, lenient: bool = False) -> None:
        """Continue at this offset, which the caller knows to fit the queue as it is now; `lenient` as of `add`."""
        cursor.lenient, cursor.lost = lenient, None
        self.plan.seek(cursor.key, offset)

    def _moved(self, cursor: Cursor, offset: int, following: int, low: int, high: int) -> None:
        """Take in that there is no such offset (21). At the end of the queue (5.x) it means no messages; else records are gone, or a reset.

        Trap: brokers say it of acknowledged records, too, while the queue does not show them yet (see `offset_lookup.OffsetLookup`).
        """
        if offset == high:
            cursor.end = high
            self._nothing(cursor, offset, offset)
        elif offset != cursor.position:
            cursor.again()  # sent ahead, past an end that the reply to the pull before it will name
            cursor.end = min(cursor.end, high)
        elif offset > high and not cursor.caught_up:
            cursor.again()
            cursor.unseen = True
        elif low <= offset < high:  # from a broker that does not mark a reset by its remark
            self.plan.seek(cursor.key, following)
        else:
            self._gone(cursor, low, high)

    def _removed(self, cursor: Cursor, offset: int, following: int, high: int) -> None:
        """Take in that messages were deleted while the broker read them: it answers as if a filter left them out, and we have none."""
        if offset != cursor.position:
            cursor.again()  # sent ahead; the records before it may still be there
        else:
            self._gone(cursor, following, high)

    def _gone(self, cursor: Cursor, low: int, high: int) -> None:
        """Continue by the option `reset`, or raise: the next record is gone, the queue begins at `low`."""
        offset, choice = cursor.position, "earliest" if cursor.lenient else self._options.reset
        if choice == "raise":
            cursor.caught_up = False
            context: dict[str, Any] = {"position": cursor.queue.at(cursor.topic, offset), "first": low, "end": high}
            text = f"the next record is gone: the queue holds {low} up to {high}"
            if offset > high:
                self._lose(cursor, PlaceLost(f"{text}; seek to continue", **context))
            else:
                cursor.again()
                self._fail(cursor, PullOffsetMoved(text, **context))
            return
        following = high if choice == "latest" else low
        if not cursor.lenient:
            lost = ": what lay between is gone, unread" if following > offset else ""
            text = "%s[%d]: offset %d does not exist, reading continues at %d%s"
            self._log.warning(("gone", cursor.key), text, *cursor.key, offset, following, lost)
        self.plan.seek(cursor.key, following)

    def _lose(self, cursor: Cursor, why: PlaceLost) -> None:
        cursor.again()
        cursor.lost, cursor.end = why, -1  # no pull is suspended where there is nothing to wait for
        self._fail(cursor, copy(why))

    # troubles --------------------------------------------------------------------------------------------------------------------------

    def failed(self, ticket: Ticket[Cursor], why: WireprotoError, now: float) -> None:
        """Take in that a pull failed."""
        if self.plan.answered(ticket):
            ticket.cursor.again()
            self.refused(ticket.cursor, why, now)

    def unreached(self, address: str, why: WireprotoError, now: float) -> None:
        """Take in that there is no connection to this broker."""
        waiting = [c for c in self.plan.cursors.values() if c.queue.address == address and c.wanting(now) and not c.out]
        for cursor in waiting[:1]:
            self.refused(cursor, why, now)
        for cursor in waiting[1:]:
            self._later(cursor, why, now)

    def refused(self, cursor: Cursor, why: WireprotoError, now: float) -> None:
        """Try a queue again a little later, or have the error raised: it does not pass, or nothing has worked for `recovery_timeout`."""
        self._failing_since = self._failing_since or now
        cursor.look = True
        judged = verdict(why, transient=TRANSIENT)
        if judged is Verdict.NEVER or now - self._failing_since > self._options.recovery_timeout:
            self._failing_since = 0.0
            self._fail(cursor, copy(why))
        else:
            self._later(cursor, why, now)

    def _later(self, cursor: Cursor, why: WireprotoError, now: float) -> None:
        cursor.look = True
        if now < cursor.retry_at:
            return  # several pulls of one queue may fail for one reason
        self.plan.refused(cursor, now)
        if cursor.failures >= LOGGED_FROM and not cursor.failures & (cursor.failures - 1):
            text = "%s[%d] has not been read for %.1f s: %s"
            self._log.warning(("unread", cursor.key), text, *cursor.key, now - cursor.failing_since, why)

    def _fail(self, cursor: Cursor, why: WireprotoError) -> None:
        """Have the error raised once, after what was fetched before is delivered."""
        if not cursor.chunks or cursor.chunks[-1].error is None:
            why.with_context(topic=cursor.topic, partition=cursor.queue.partition)
            self.plan.push(Chunk(cursor, cursor.generation, cursor.ahead, cursor.ahead, error=why))

    # where queues are ------------------------------------------------------------------------------------------------------------------

    def follow(self, cursor: Cursor, queue: Queue) -> None:
        """Take a queue's new address, to which its pulls are sent from now on: another server may be the master of its broker."""
        before, cursor.queue = cursor.queue.address, queue
        cursor.look = False
        if cursor.left_out and queue.readable:
            cursor.left_out = False
            self._log.info(("left out", cursor.key), "%s[%d] is read again", *cursor.key)
        if queue.address is not None and queue.address != before:
            if before is not None:
                text = "broker %s: its master is %s now, not %s"
                self._log.info(("master", queue.broker), text, queue.broker, queue.address, before)
            self.plan.seek(cursor.key, cursor.position)

    def looked(self, topic: str, route: Route | WireprotoError, now: float) -> None:
        """Take in the result of a look-up of a topic's route."""
        self.stale.discard(topic)
        for cursor in self.plan.cursors.values():
            if cursor.topic == topic and (cursor.look or cursor.queue.address is None):
                if isinstance(route, WireprotoError):
                    self.refused(cursor, route, now)
                    continue
                current = route.find(*cursor.queue.home)
                self.follow(cursor, current or cursor.queue)
                if cursor.queue.address is None:
                    self.refused(cursor, TransportError(f"broker {cursor.queue.broker} has no master now"), now)
                elif not cursor.queue.readable:
                    self._leave_out(cursor, now)

    def _leave_out(self, cursor: Cursor, now: float) -> None:
        """Continue without a queue that its topic has lost, or that may not be read for a while, as the Java client does.

        Whether it is back is looked at each `LEFT_OUT` seconds. Where there is a stop NoQueue is raised: what ends there would lack the
        records of this queue.
        """
        cursor.look, cursor.retry_at = True, now + LEFT_OUT
        self.plan.well(cursor)
        if not any(other.failures for other in self.plan.cursors.values()):
            self._failing_since = 0.0
        if cursor.stop is not None:
            broker, queue_id = cursor.queue.home
            self._fail(cursor, NoQueue(f"by its route the topic has no queue {queue_id} at {broker} that may be read"))
        elif not cursor.left_out:
            cursor.left_out = True
            text = "%s[%d] is left out at offset %d: the topic's route says that it is not to be read"
            self._log.warning(("left out", cursor.key), text, *cursor.key, cursor.position)

    def shown(self, address: str, why: WireprotoError | None, now: float) -> None:
        """Take in that a broker's queues have caught up with its log, or the error why that is not known."""
        self.unseen.discard(address)
        for cursor in self.plan.cursors.values():
            if cursor.unseen and cursor.queue.address == address:
                if why is not None:
                    self.refused(cursor, why, now)
                else:
                    cursor.unseen, cursor.caught_up = False, True
