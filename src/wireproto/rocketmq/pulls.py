"""Pulls: which of a queue's are out, what their answers bring, and what the broker says of the places asked for. Sans-IO.

What it is: RocketMQ's way of asking, for the floor's plan of what is read ahead (`flow.ahead`). Brokers answer a pull with at most 32
messages (their default), so reading one reply at a time is bound by round trips. Queue offsets have no holes, so the next pulls can be sent
before the first is answered:

    known end 200, step 32     out: 0 32 64 96 …      replies may come in any order: what is behind a hole waits aside
    reply to 0 ends at 20      20 … 31 are missing: pull 20 is sent, the others stay good
    at the end                 one pull with "suspend": the broker answers it when there is a message, or after a while with none

Bytes: a pull reserves what so many messages had in the replies before. One that is suspended reserves nothing, since all queues of a
consumer may lie at their ends: what it brings counts when it comes. So a queue whose end is not known is asked without "suspend" first.
Must not: know connections, clocks or bodies' contents.
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
"""Bytes of a message, as long as none is known."""
NOWHERE = 1 << 63
AGAIN = Policy(first=0.05, factor=2.0, ceiling=1.0, jitter=0.2)
RESET, REMOVING = "OFFSET_RESET", "MESSAGE_WAS_REMOVING"
"""Remarks: an administrator has set the group back or forth (told to one pull, whichever comes next); records were just deleted."""
TOLD_FROM = 4
"""Refusals in a row after which the log tells of them; then each time that they are twice as many."""
LEFT_OUT = 5.0
"""Seconds between looks at the route for a queue that is not to be read now."""
PASSING = TimedOut, TopicNotExist, NoQueue, NotReadable
"""What a fresh route, or the next try, may mend: whether a queue is to be read, the route says (`looked`)."""
FOUND, RETRY, MOVED = 0, PullRetryImmediately.code, PullOffsetMoved.code

Found: TypeAlias = "tuple[int, int, int, int, Slice]"
"""A pull's reply: code, next offset, the queue's first offset and its end, stored messages."""


class Cursor(ahead.Cursor):
    """One queue being read.

    Attributes:
        ahead: where the replies end that follow `position` without a hole. later: those behind a hole, by offset; behind: their bytes.
        sent: everything from `ahead` to here is out or behind a hole: where to look for the next pull. edge: none begins behind it.
        least: bytes of replies that are worth a batch, while more is known to be stored.
        most: how many pulls may be out at once. No more than as many may be out or waiting, once `least` bytes wait.
        step: messages asked for at a time. mean: bytes of one.
        stuck: a pull failed: what is there is handed out without waiting for more, as where there is no room for it (`short`).
        lenient: if `position` is gone, go on with what is left. look: its broker is to be looked up before it is asked again.
        unseen: the broker says that the queue ends before the place asked for; that counts once it holds all of the broker's log.
        caught_up: it does.
        left_out: the route says that it is not to be read, and the log has been told.
        lost: the log that was read is not what the queue has now. Raised again until a seek, whatever comes: a log that begins anew grows
            past any place, and what it holds before that would be left out in silence.
        heads: what a pull is written by, without and with "suspend"; None: not made for this queue yet, or commands are signed.
    """

    __slots__ = (
        "behind", "caught_up", "edge", "heads", "later", "least", "left_out", "lenient", "look", "lost", "mean", "most", "queue", "sent",
        "step", "stuck", "topic", "unseen",
    )  # fmt: skip

    def __init__(self, topic: str, queue: Queue, start: int, stop: int | None, *, most: int, least: int, lenient: bool) -> None:
        super().__init__((topic, queue.partition), start, stop)
        self.topic, self.queue, self.most, self.least, self.lenient = topic, queue, most, least, lenient
        self.sent = self.edge = start
        self.step, self.mean, self.behind = BROKER_LIMIT, GUESS, 0
        self.later: dict[int, Chunk] = {}
        self.stuck = self.look = self.unseen = self.caught_up = self.left_out = False
        self.lost: PlaceLost | None = None
        self.heads: tuple[RepeatedCommand, RepeatedCommand] | None = None

    def wanting(self, now: float) -> bool:
        out, waiting = len(self.out), len(self.chunks)
        if self.sent >= self.end and (out or waiting):
            return False  # most often: a pull at the end is out
        if out >= self.most or (out + waiting + len(self.later) >= self.most and self.held - self.behind >= self.least):
            return False
        return super().wanting(now)

    def restart(self, offset: int) -> None:
        super().restart(offset)
        self.sent = self.edge = offset
        self.later.clear()
        self.behind = 0
        self.stuck = self.unseen = self.caught_up = False

    def moved(self, chunk: Chunk, position: int) -> None:
        self.position = position
        self.stuck = False
        if chunk.size:
            mean = chunk.size // (chunk.next - chunk.start) + 1
            self.mean = max(mean, (self.mean + mean) // 2)  # up at once, down by halves

    def ripe(self, late: bool) -> bool:
        size = self.held - self.behind
        if late or size >= self.least or not size or self.stuck or self.short:
            return True
        done = self.ahead >= self.end or (self.stop is not None and self.ahead >= self.stop)
        return done or self.chunks[-1].error is not None

    def again(self) -> None:
        """A pull brought nothing of use: its place is to be asked for anew."""
        self.sent = self.ahead
        self.stuck = True

    def count(self, at: int) -> int:
        """How many messages to ask for at `at`: a step, but not what a later pull already covers, nor past the stop."""
        limit = self.step
        if at < self.edge:
            limit = min(limit, min((offset - at for offset in (*self.out, *self.later) if offset > at), default=limit))
        if self.stop is not None:
            limit = min(limit, self.stop - at)
        return max(limit, 1)


class Pulls:
    """RocketMQ's `FetchTargets`.

    Args:
        told: what the log is told by.
        on_reset: called with a queue and the place where its broker was told to set the group; reading goes on from there. None: what is
            told to the group does not matter here.

    Attributes:
        plan: the cursors, and what waits to be handed out. A ticket without bytes is a pull that the broker is to hold.
        stale: topics of which something is to be looked up before it can be asked again (`looked`).
        unseen: brokers that are to be waited for until their queues hold all of their log (`shown`).
    """

    most = 1 << 62

    def __init__(
        self, options: RocketOptions, memory: MemoryLimit, log: ClientLog, on_reset: Callable[[TopicPartition, int], object] | None = None
    ) -> None:
        self._options, self._log, self._on_reset = options, log, on_reset
        self.plan: ReadAhead[Cursor, Chunk] = ReadAhead(memory, AGAIN)
        self.stale: set[str] = set()
        self.unseen: set[str] = set()
        self._failing_since = 0.0  # nothing has worked since

    def add(self, topic: str, queue: Queue, start: int, stop: int | None = None, *, lenient: bool = False) -> Cursor:
        """Read this queue from `start` up to, not including, `stop`. lenient: if that is gone by now, from what is left."""
        options = self._options
        least = min(options.min_bytes, options.batch_bytes)
        if not self.plan.cursors:
            self._failing_since = 0.0  # of what is not read any more; nothing was asked for meanwhile
        return self.plan.add(Cursor(topic, queue, start, stop, most=options.pull_ahead, least=least, lenient=lenient))

    # asking ----------------------------------------------------------------------------------------------------------------------------

    def link(self, cursor: Cursor) -> str | None:
        address = cursor.queue.address
        if cursor.look or address is None:
            self.stale.add(cursor.topic)
            return None
        if cursor.unseen:
            self.unseen.add(address)
            return None
        return address

    def questions(self, cursor: Cursor) -> Iterator[tuple[int, int, int]]:
        at, end, out, later = cursor.sent, cursor.end, cursor.out, cursor.later
        stop = NOWHERE if cursor.stop is None else cursor.stop
        full = cursor.held >= cursor.least
        most = cursor.most - len(cursor.chunks) - len(later) if full else cursor.most
        needed = cursor.ahead if cursor.held - cursor.behind < cursor.least else -1  # the very pull that everything waits for
        while at < stop and (len(out) < most or (at == needed and len(out) < cursor.most)):
            if at in later:
                at = later[at].next
                continue
            if at in out:
                at += out[at].count
                continue
            beyond = at >= end
            if beyond and (out or cursor.chunks or (later and at > cursor.ahead)):
                return  # the end may have moved meanwhile; the replies that are out will tell
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
        """It was not sent, and may be at once."""
        self.plan.answered(ticket)
        ticket.cursor.sent = ticket.cursor.ahead

    def restart(self) -> None:
        """Forget what is out and what was fetched ahead: nobody knows how much of it was taken in when a signal came."""
        self.plan.only_out(())
        for cursor in self.plan.cursors.values():
            self.plan.seek(cursor.key, cursor.position)

    def wakeup(self, now: float) -> float:
        """When a queue that was refused may be asked again; infinity when none is."""
        return min((c.retry_at for c in self.plan.cursors.values() if c.retry_at > now and not c.paused), default=ahead.NEVER)

    # answers ---------------------------------------------------------------------------------------------------------------------------

    def answer(self, ticket: Ticket[Cursor], found: Found, remark: str | None = None) -> None:
        """Take in a reply. remark: as the broker wrote it, needed of codes 20 and 21 alone."""
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
            cursor.sent = cursor.ahead  # what it left open is to be asked for
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
        """A reply without messages, or to a pull that does not count any more."""
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
        """No messages: the end (19), or all filtered out up to `following` (20)."""
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
        """Replies that were behind a hole, now that it is filled."""
        later = cursor.later
        while (chunk := later.pop(cursor.ahead, None)) is not None:
            cursor.behind -= chunk.size
            self.plan.push(chunk, held=True)
        for offset in [offset for offset in later if offset < cursor.ahead]:
            size = later.pop(offset).size
            cursor.behind -= size
            self.plan.hold(cursor, -size)

    def _reset(self, cursor: Cursor, following: int, counts: bool) -> None:
        """An administrator has set the group: also if the pull is an old one by now, or stood at the queue's end. It is not told again."""
        if self._on_reset is None:
            if counts:
                cursor.again()
        elif self.plan.cursors.get(cursor.key) is cursor:
            self.set_to(cursor, following)
            self._on_reset(cursor.key, following)

    def set_to(self, cursor: Cursor, offset: int) -> None:
        """Go on where an administrator has set the group."""
        before = cursor.position
        tell = self._log.warning if offset > before else self._log.info  # what lies between is not read
        tell(("set", cursor.key), "%s[%d]: the group was set from %d to %d", *cursor.key, before, offset)
        self.seek(cursor, offset)

    def seek(self, cursor: Cursor, offset: int, *, lenient: bool = False) -> None:
        """Go on there, as somebody says who knows what the queue has now; `lenient` as of `add`."""
        cursor.lenient, cursor.lost = lenient, None
        self.plan.seek(cursor.key, offset)

    def _moved(self, cursor: Cursor, offset: int, following: int, low: int, high: int) -> None:
        """No such offset. At the very end (5.x says it there too) that is no news; else records are gone, or the group was reset.

        Trap: it is said of acknowledged records, too, while the queue does not show them yet (see `times.OffsetLookup`).
        """
        if offset == high:
            cursor.end = high
            self._nothing(cursor, offset, offset)
        elif offset != cursor.position:
            cursor.again()  # sent ahead, past an end that the pull before it will tell
            cursor.end = min(cursor.end, high)
        elif offset > high and not cursor.caught_up:
            cursor.again()
            cursor.unseen = True
        elif low <= offset < high:  # by a broker that does not tell a reset by its remark
            self.plan.seek(cursor.key, following)
        else:
            self._gone(cursor, low, high)

    def _removed(self, cursor: Cursor, offset: int, following: int, high: int) -> None:
        """What was asked for was deleted while the broker read it. It says so as of what a filter leaves out, and we have none."""
        if offset != cursor.position:
            cursor.again()  # sent ahead; what comes before it may be there
        else:
            self._gone(cursor, following, high)

    def _gone(self, cursor: Cursor, low: int, high: int) -> None:
        """The next record is not there any more: the queue holds what begins at `low`."""
        offset, choice = cursor.position, "earliest" if cursor.lenient else self._options.reset
        if choice == "raise":
            cursor.caught_up = False
            context: dict[str, Any] = {"position": cursor.queue.at(cursor.topic, offset), "first": low, "end": high}
            text = f"the next record is gone: the queue holds {low} up to {high}"
            if offset > high:
                self._lose(cursor, PlaceLost(f"{text}; seek to go on", **context))
            else:
                cursor.again()
                self._fail(cursor, PullOffsetMoved(text, **context))
            return
        following = high if choice == "latest" else low
        if not cursor.lenient:
            lost = ": what lay between is gone, unread" if following > offset else ""
            text = "%s[%d]: offset %d is not there, it goes on at %d%s"
            self._log.warning(("gone", cursor.key), text, *cursor.key, offset, following, lost)
        self.plan.seek(cursor.key, following)

    def _lose(self, cursor: Cursor, why: PlaceLost) -> None:
        cursor.again()
        cursor.lost, cursor.end = why, -1  # no pull is held where there is nothing to be waited for
        self._fail(cursor, copy(why))

    # troubles --------------------------------------------------------------------------------------------------------------------------

    def failed(self, ticket: Ticket[Cursor], why: WireprotoError, now: float) -> None:
        """No usable reply comes."""
        if self.plan.answered(ticket):
            ticket.cursor.again()
            self.refused(ticket.cursor, why, now)

    def unreached(self, address: str, why: WireprotoError, now: float) -> None:
        """No connection to this broker."""
        waiting = [c for c in self.plan.cursors.values() if c.queue.address == address and c.wanting(now) and not c.out]
        for cursor in waiting[:1]:
            self.refused(cursor, why, now)
        for cursor in waiting[1:]:
            self._later(cursor, why, now)

    def refused(self, cursor: Cursor, why: WireprotoError, now: float) -> None:
        """It cannot be read now: again a little later, or raise what will not pass, or what has lasted too long."""
        self._failing_since = self._failing_since or now
        cursor.look = True
        judged = verdict(why, passing=PASSING)
        if judged is Verdict.NEVER or now - self._failing_since > self._options.recovery_timeout:
            self._failing_since = 0.0
            self._fail(cursor, copy(why))
        else:
            self._later(cursor, why, now)

    def _later(self, cursor: Cursor, why: WireprotoError, now: float) -> None:
        cursor.look = True
        if now < cursor.retry_at:
            return  # several pulls of it may fail for one reason
        self.plan.refused(cursor, now)
        if cursor.failures >= TOLD_FROM and not cursor.failures & (cursor.failures - 1):
            text = "%s[%d] has not been read for %.1f s: %s"
            self._log.warning(("unread", cursor.key), text, *cursor.key, now - cursor.troubled_since, why)

    def _fail(self, cursor: Cursor, why: WireprotoError) -> None:
        """Have it raised behind what was fetched before, once."""
        if not cursor.chunks or cursor.chunks[-1].error is None:
            why.with_context(topic=cursor.topic, partition=cursor.queue.partition)
            self.plan.push(Chunk(cursor, cursor.generation, cursor.ahead, cursor.ahead, error=why))

    # where queues are ------------------------------------------------------------------------------------------------------------------

    def follow(self, cursor: Cursor, queue: Queue) -> None:
        """Another server may be the master of its broker now: what is asked from now on is asked there."""
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
        """What a look-up has come to."""
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
        """The topic has lost this queue, or may not be read there for a while: go on without it, as the Java client does, and look whether
        it is back by and by. Who reads up to a stop is told: what ends there would lack this queue's records."""
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
        """The broker's queues hold all that its log held when it was doubted, or why that is not known."""
        self.unseen.discard(address)
        for cursor in self.plan.cursors.values():
            if cursor.unseen and cursor.queue.address == address:
                if why is not None:
                    self.refused(cursor, why, now)
                else:
                    cursor.unseen, cursor.caught_up = False, True
