"""Reads partitions from a start to a stop, without a durable subscription: the Reader role.

Opens an exclusive, non-durable subscription per partition. What poll returned is known here, so that after a loss reading resumes behind
it: nothing is skipped and nothing repeated.

    AtTime as a start    the place of the first entry published then or later is found first
    LATEST as a stop     GET_LAST_MESSAGE_ID when the reader opens, inclusive
    behind the end       a start that the topic has not reached yet, in a ledger of another topic, say, is the topic's end, with a warning
    gone                 a start in a ledger that is deleted is an error of each poll until `seek`, or as the option `reset` says
    not kept             a non-persistent topic is read from now on, whatever the start; LATEST as a stop ends that at once
    the end              the entry at the stop was seen, or the broker has no more before it: the last ones may be gone, or markers;
                         or the topic is terminated and read through

Belongs to one thread at a time. It acknowledges for no other subscription than its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Self

from wireproto._codec import decode_pulsar
from wireproto.errors import Closed, DataLoss, TimedOut, TransportError, WireprotoError
from wireproto.flow.closing_role import ClosingRole
from wireproto.flow.resolve import Request
from wireproto.net.retry import Verdict, verdict
from wireproto.net.task import NEVER, Steps, Task, fresh, operation
from wireproto.position import LATEST, AtTime, Earliest, Latest, MessageId, TopicPartition, Where
from wireproto.records import Batch

from ..deadlines import deadline_after
from . import PulsarApi_pb2 as api
from .frames import message_id
from .message_stream import ENOUGH, MOST, MessageStream, answer_of
from .partition_consumer import PartitionConsumer
from .places import FROM_NOW, Cursor, resolver, unread
from .positions import finding
from .reset import going_on, is_behind, is_gone, passed_over
from .subscriber import Place
from .subscriber import places as entries
from .subscription import EXCLUSIVE, Subscription

if TYPE_CHECKING:
    from wireproto._net import Call

    from .cluster import PulsarCluster
    from .options import PulsarOptions

NO_POSITION = (-1, -1)
IDLE_CHECK = 1.0
"""Seconds without a message after which the broker is asked whether there is one before the stop."""
ENDS = 0.8
"""Seconds that this question may take, even if a poll has less left."""
LOOK = 0.1
"""Seconds between two checks of partitions that could not be opened when the others were."""


class Late:
    """A partition that could not be opened when the others were.

    Attributes:
        start, stop: as they were asked for.
        since: when the others were opened without it, as `time.monotonic()`.
        place: the position at a start that is a time, once it is known.
        task: asks for that position.
        trouble: why the last question about it failed.
        again: when to ask next where the partition begins, as `time.monotonic()`.
        call: GET_LAST_MESSAGE_ID in flight, once the partition is open; it is given up at `until`, and repeated with more `patience`.
    """

    def __init__(self, start: Request, stop: Request | None) -> None:
        self.start, self.stop, self.since = start, stop, time.monotonic()
        self.place: MessageId | None = None
        self.task: Task[dict[TopicPartition, MessageId]] | None = None
        self.trouble: WireprotoError | None = None
        self.again = 0.0
        self.call: Call | None = None
        self.until = 0.0
        self.patience = IDLE_CHECK

    @property
    def known(self) -> bool:
        """Whether it is known where the partition begins."""
        return self.place is not None or isinstance(self.start, MessageId | Earliest)


class PulsarReader(ClosingRole):
    """Reads one topic; made by `client.reader`.

    Each call raises Closed when the reader or its client was closed, and ConcurrentUse when another thread is in a call.
    """

    def __init__(self, cluster: PulsarCluster, topic: str, names: list[tuple[str, int, str]], options: PulsarOptions) -> None:
        super().__init__("reader", cluster.loop)
        self.topic = topic
        self._cluster = cluster
        self._tasks = cluster.tasks
        self._options = options
        subscription = Subscription(
            "reader",
            EXCLUSIVE,
            durable=False,
            renamed=True,
            consumer_name=options.consumer_name,
            read_compacted=options.read_compacted,
            create_topic=options.create_topic,
        )
        window, recovery_timeout = options.receive_memory, options.timeout
        self._stream = MessageStream(
            cluster, names, subscription, window=window, recovery_timeout=recovery_timeout, flow=False, opened=self._opened
        )
        self._checked = time.monotonic()
        self._late: dict[PartitionConsumer, Late] = {}

    @classmethod
    def opening(
        cls, cluster: PulsarCluster, topic: str, start: Where, stop: Where | None, options: PulsarOptions, deadline: float
    ) -> Steps[Self]:
        """Subscribe at the starts, and return the reader. Steps.

        Args:
            cluster: of the client. topic: any form of its name. start, stop: see `PulsarClient.reader`. options: of the role.
            deadline: as `time.monotonic()`.

        Raises:
            OptionError: `start` or `stop` is wrong. PulsarError: a broker refuses. TransportError: no partition could be opened in time.
        """
        names = dict((yield from cluster.naming(topic, deadline, create=options.create_topic)))
        keys = [(topic, number) for number in names]
        starts, stops = resolver(keys).ranges(start, stop, keys)
        chosen = [(*key, names[key[1]]) for key in keys if key in starts]
        made = cls(cluster, topic, chosen, options)
        try:
            yield from made._open({part: starts[part.owner] for part in made._stream.parts}, stops, deadline)
            if stop is None and len(chosen) == len(names):
                made._stream.grow()
        except Exception:
            yield from made._stream.closing(min(deadline, time.monotonic() + 1.0))
            raise
        except BaseException:
            made._stream.end()
            raise
        return made

    # -- opening ------------------------------------------------------------------------------------------------

    def _open(self, starts: Mapping[PartitionConsumer, Request], stops: Mapping[TopicPartition, Request], deadline: float) -> Steps[None]:
        """Subscribe at the starts and fix the stops; permits come last."""
        stream = self._stream
        late = self._late
        for part, start in starts.items():
            old = self._forget(part)  # of which a stop may be left to be fixed
            late[part] = Late(start if part.kept else LATEST, stops.get(part.owner, old.stop if old is not None else None))
        found = yield from self._found({part: late[part].start for part in starts}, deadline)
        sought = [part for part in starts if part.owner in found or not isinstance(late[part].start, AtTime)]
        for part in sought:
            late[part].place = found.get(part.owner)
            self._set_begin(part, late[part])
        left = set((yield from stream.opening(deadline, sought)))
        for part in starts:
            if part not in sought:
                self._find(part, late[part])
        ends = yield from self._ends([part for part in sought if part not in left], deadline)
        for part, (end, mark) in ends.items():
            yield from self._begin(part, late[part], end, mark, deadline)
            del late[part]
        for part in starts:
            if part in late:
                late[part].since = time.monotonic()

    def _ends(self, parts: list[PartitionConsumer], deadline: float) -> Steps[dict[PartitionConsumer, tuple[Place, Place]]]:
        """Return the last entry of each of these open partitions and the place before the first one read (GET_LAST_MESSAGE_ID).

        Left out are those whose broker is silent to that, while there are others to read: they are asked again in the background.
        """
        ends = {part: (NO_POSITION, NO_POSITION) for part in parts if not part.kept}
        asked = [part for part in parts if part.kept]
        others = bool(ends) or any(part.cursor.done or part not in self._late for part in self._stream.parts)
        now = time.monotonic()
        most = min(now + (deadline - now) * MOST, now + ENOUGH)

        def enough(answered: bool) -> bool:
            return (answered or others) and time.monotonic() >= most

        replies, failed = yield from self._stream.ask_each(asked, lambda _: api.CommandGetLastMessageId(), deadline, enough)
        ends |= {part: entries(reply) for part, reply in replies.items()}
        for part, why in failed.items():
            if not isinstance(why, WireprotoError) or _lasts(why) or not (ends or others):
                raise why
            self._late[part].trouble = why
            self._stream.leave_behind(part, why)
        return ends

    def _found(self, starts: Mapping[PartitionConsumer, Request], deadline: float) -> Steps[dict[TopicPartition, MessageId]]:
        """Return the positions of the starts that are times; without the partitions that could not be asked, while others could."""
        times = {part.owner: start for part, start in starts.items() if isinstance(start, AtTime)}
        if not times:
            return {}
        names = {part.partition: part.name for part in starts}
        now = time.monotonic()
        if len(starts) > 1:
            until = min(now + (deadline - now) / 2, now + 2 * ENOUGH)
            try:
                return (yield from finding(self._cluster, self.topic, names, times, until))
            except WireprotoError as why:
                if _lasts(why):
                    raise
                found = dict(why.known or {})
            if found or len(times) < len(starts):
                return found
        return (yield from finding(self._cluster, self.topic, names, times, deadline))

    def _find(self, part: PartitionConsumer, late: Late) -> None:
        """Ask in the background for the position at which a partition begins that could not be asked."""
        if late.trouble is None:
            self._stream.leave_behind(part, "where it begins is not answered")
        until = time.monotonic() + self._options.operation_timeout
        question = finding(self._cluster, self.topic, {part.partition: part.name}, {part.owner: late.start}, until)
        late.task = self._tasks.spawn(question, f"where {part.owner[0]}[{part.owner[1]}] begins")

    def _set_begin(self, part: PartitionConsumer, late: Late) -> None:
        """Set where SUBSCRIBE begins."""
        place = late.start if late.place is None else late.place
        if isinstance(place, MessageId):
            part.cursor.start_at(place)
        elif isinstance(place, Latest):
            part.cursor.begin = FROM_NOW

    def _begin(self, part: PartitionConsumer, late: Late, end: Place, mark: Place, deadline: float) -> Steps[None]:
        """Fix where an open partition begins and stops; permits come last."""
        start, stop = late.start, late.stop
        cursor = part.cursor
        if not part.kept:
            pass  # it begins now, wherever that is
        elif isinstance(start, Latest):
            cursor.start_at(MessageId(self.topic, part.partition, *end, after=True))
        elif late.place is None and not isinstance(start, MessageId):
            cursor.start_at(MessageId(self.topic, part.partition, *mark, after=True))
        elif isinstance(start, MessageId) and is_gone(start, mark[0], self._options):
            yield from self._go_on(part, start, end, mark, deadline)
        elif isinstance(start, MessageId) and is_behind(start, end, mark):
            self._cluster.log.warning(
                ("behind", part.name, start),
                "%s[%d]: %s is beyond the topic's end, %d:%d, where reading begins instead",
                *part.owner,
                start,
                *end,
            )
            yield from self._go_to_end(part, end, deadline)
        if stop is not None:
            self._set_stop(cursor, stop, end, mark)
        if cursor.done or cursor.starts_beyond_stop():
            cursor.error = None  # nothing was to be read
            self._retire(part)
        elif cursor.error is None:
            part.flowing = True
            part.flow()

    def _begin_late(self) -> Steps[None]:
        """Begin with partitions that could not be opened before, and are open now."""
        for part, late in list(self._late.items()):
            if part.cursor.done:
                self._forget(part)
            if part.cursor.done or time.monotonic() < late.again:
                continue
            if late.task is not None and late.task.done:
                task, late.task = late.task, None
                try:
                    late.place = task.result()[part.owner]
                except WireprotoError as why:
                    late.trouble = why
                    if _lasts(why):
                        raise
                else:
                    late.trouble = None
            if late.task is None and part.subscription_task is None:
                if isinstance(late.start, AtTime) and late.place is None:
                    self._find(part, late)
                else:
                    self._set_begin(part, late)
                    self._stream.keep_subscribed(part)
            if not part.open:
                continue
            try:
                ends = self._late_ends(part, late) if part.kept else (NO_POSITION, NO_POSITION)
                if ends is None:
                    continue
                yield from self._begin(part, late, *ends, time.monotonic() + ENDS)
            except WireprotoError as why:
                late.again, late.trouble = time.monotonic() + IDLE_CHECK, why
                if _lasts(why):
                    raise
            else:
                del self._late[part]
                self._cluster.log.info(("begun", part.name), "%s[%d]: it is open, and is read now", *part.owner)

    def _late_ends(self, part: PartitionConsumer, late: Late) -> tuple[Place, Place] | None:
        """Return what `_ends` does for a partition that is open now, or None: it is asked in the background, and not answered yet."""
        call, now, command = late.call, time.monotonic(), api.CommandGetLastMessageId(consumer_id=part.id)
        if call is not None and (call.done or now >= late.until):
            late.call = None
            if not call.done:
                late.patience = min(2 * late.patience, self._options.operation_timeout)
            return entries(answer_of(part, call, command))
        if call is None or call.conn is not part.conn:
            if call is not None:
                call.cancel()
            late.call, late.until = part.submit(command), now + late.patience
        return None

    def _go_on(
        self, part: PartitionConsumer, start: MessageId, end: tuple[int, int], mark: tuple[int, int], deadline: float
    ) -> Steps[None]:
        """Begin elsewhere, as the option `reset` says, because the start is gone.

        The consumer is at `mark`, before the first entry that is left.
        """
        cursor = part.cursor
        try:
            where = going_on(start, mark[0], self._options, self._cluster.log)
        except DataLoss as why:
            cursor.error = why
            return
        if isinstance(where, Latest):
            yield from self._go_to_end(part, end, deadline)
        else:
            cursor.start_at(MessageId(self.topic, part.partition, *mark, after=True))

    def _go_to_end(self, part: PartitionConsumer, end: tuple[int, int], deadline: float) -> Steps[None]:
        """Subscribe again, at the end."""
        part.cursor.start_at(MessageId(self.topic, part.partition, *end, after=True))
        self._stream.stop(part)
        yield from self._stream.attached(part, deadline)

    def _opened(self, part: PartitionConsumer, mark: tuple[int, int], closed: bool) -> None:
        """Warn when the ledger of the next position was deleted during a loss of the connection: all of it may have been read."""
        place = part.cursor.next
        if is_gone(place, mark[0], self._options):
            passed_over(place, mark[0], self._cluster.log)

    def _set_stop(self, cursor: Cursor, stop: Request, end: tuple[int, int], mark: tuple[int, int]) -> None:
        if isinstance(stop, MessageId):
            cursor.stop_at(stop)
            cursor.bounded_by_end = cursor.last is not None and cursor.last <= end
            cursor.done = stop.ledger < 0 or cursor.starts_beyond_stop()
            return
        if isinstance(stop, AtTime):
            cursor.until = stop.ms
        elif not isinstance(stop, Latest):
            cursor.done = True  # EARLIEST: nothing lies before it
            return
        cursor.stop_at(MessageId(cursor.next.topic, cursor.next.partition, *end, after=True))
        cursor.bounded_by_end = True
        cursor.done = mark >= end or cursor.starts_beyond_stop()

    def _retire(self, part: PartitionConsumer) -> None:
        """Close the consumer of a partition that is read to its stop."""
        part.cursor.done = True
        self._stream.stop(part)
        if self.done:
            self._stream.hang_up()

    # -- reading ------------------------------------------------------------------------------------------------

    def poll(self, timeout: float = 1.0) -> Batch | None:
        """Return the next batch, or None when none came within `timeout` or every partition is read to its stop.

        Args:
            timeout: seconds to wait. A check whether there is anything before the stop may take up to a second more.

        Raises:
            DataLoss: the start lies in a deleted ledger; again at each poll until `seek` (with the option `reset`, reading begins
                elsewhere).
            ChecksumMismatch, DecompressionError, Malformed: an entry cannot be read; the error has its position, and is raised at each poll
                until `seek`, unless the option `on_corrupt` is ``"skip"``.
            PulsarError: a topic is gone, or a broker has refused to open a partition again for the option `timeout`.
            TransportError: all else is read to its stop, and a partition could not be opened for the option `timeout`.
            Closed: the reader was closed. ConcurrentUse: another thread is in a call.
        """
        self._stream.poll = None
        try:
            batch = self._tasks.drive(self.polling(timeout), NEVER)
        except WireprotoError:
            raise
        except BaseException:  # a signal handler's
            self._stream.take_back()
            raise
        self._stream.poll = None
        return batch

    def polling(self, timeout: float = 1.0) -> Steps[Batch | None]:
        """Run `poll` as steps."""
        with self._only:
            return (yield from self._poll(deadline_after(timeout)))

    def _poll(self, deadline: float) -> Steps[Batch | None]:
        while not self.done:
            for part in self._stream.parts:
                if part.cursor.error is not None:
                    raise part.cursor.error
            if self._late:
                yield from self._begin_late()
            until = min(deadline, self._checked + IDLE_CHECK)
            if self._late:
                until = min(until, time.monotonic() + LOOK)
            got = yield from self._stream.next(until)
            now = time.monotonic()
            if got is None:
                for part in self._stream.parts:
                    if part.ended and not part.frames and not part.cursor.done and part not in self._late:
                        self._retire(part)  # the topic is terminated: there will be no more
                if now >= self._checked + IDLE_CHECK:
                    self._acknowledge()
                    if any(part.cursor.bounded_by_end and not part.cursor.done for part in self._stream.parts):
                        yield from self._check_ends(min(max(deadline, now + ENDS), now + ENOUGH))
                    self._checked = time.monotonic()
                self._raise_late()
                if time.monotonic() >= deadline:
                    return None
                continue
            self._checked = now
            batch = self._decode(*got)
            if batch is not None:
                return batch
        return None

    def _raise_late(self) -> None:
        """Raise why the rest is not read, once all else is read to its stop and the option `timeout` is over."""
        now = time.monotonic()
        if all(part.cursor.done or part in self._late for part in self._stream.parts):
            for part, late in self._late.items():
                lasts = late.trouble is not None or not part.open
                if now - late.since >= self._options.timeout and lasts and not part.cursor.done:
                    raise self._stream.unopened(part) if late.trouble is None else fresh(late.trouble)

    def _decode(self, part: PartitionConsumer, frames: list[bytes]) -> Batch | None:
        cursor = part.cursor
        columns, facts = decode_pulsar(
            frames,
            topic=self.topic,
            partition=part.partition,
            check_crc=self._options.check_crc,
            after=cursor.after,
            before=cursor.before,
            columns=self._options.columns,
        )
        part.handed(sum([fact.permits for fact in facts]), sum(map(len, frames)), new=len(columns) > 0)
        if self._options.on_corrupt == "skip":
            self._stream.tell_skipped(part, facts)
        kept = len(columns)
        passed = None
        for fact in facts:
            if fact.error is not None and self._options.on_corrupt == "raise":
                cursor.error = part.unreadable(fact)
                kept = fact.start
                break
            if cursor.until is not None and fact.publish_time >= cursor.until:
                kept = fact.start
                if passed is not None:
                    part.passed(passed.ledger, passed.entry)
                    passed = None
                cursor.stop_at(part.place(fact.ledger, fact.entry))
                cursor.done = True
                break
            passed = fact
            if cursor.reached(fact.ledger, fact.entry):
                cursor.done = True
                break
        if passed is not None:
            part.passed(passed.ledger, passed.entry)
        if cursor.done:
            self._retire(part)
        if kept != len(columns):
            columns = columns[:kept]
        return Batch(self.topic, part.partition, columns, cursor.next) if kept else None

    def _acknowledge(self) -> None:
        """Acknowledge what poll returned while nothing comes; without that the broker does not announce the end of a terminated topic."""
        for part in self._stream.parts:
            cursor = part.cursor
            if cursor.moved and not cursor.done and cursor.acknowledged != cursor.begin:
                cursor.acknowledged = cursor.begin
                ack = api.CommandAck(consumer_id=part.id, ack_type=api.CommandAck.Cumulative)
                ack.message_id.append(message_id(cursor.begin[0], cursor.begin[1]))
                part.tell(ack)

    def _check_ends(self, deadline: float) -> Steps[None]:
        """Find the partitions whose stop lies behind all that the broker still has, when nothing came for a while: they are done.

        Those whose broker does not answer are asked again the next time; it is not waited for any longer when messages have come.
        """
        stream = self._stream
        idle = [part for part in stream.parts if part.cursor.bounded_by_end and not part.cursor.done and part.open and not part.frames]

        def came(_: bool) -> bool:
            return any(part.frames for part in stream.parts)

        def ack(part: PartitionConsumer) -> api.CommandAck:
            made = api.CommandAck(ack_type=api.CommandAck.Cumulative)
            made.message_id.append(message_id(*part.cursor.begin[:2]))
            return made

        now = time.monotonic()
        moved = [part for part in idle if part.cursor.moved]
        _, unacked = yield from stream.ask_each(moved, ack, now + (deadline - now) / 2, came)
        asked = [part for part in idle if part not in unacked]
        replies, failed = yield from stream.ask_each(asked, lambda _: api.CommandConsumerStats(), deadline, came)
        for part, stats in replies.items():
            if stats.msgBacklog == 0 and not part.frames:
                self._retire(part)
        for why in (*unacked.values(), *failed.values()):
            if not isinstance(why, TransportError):  # `next` raises what lasts of the others
                raise why

    def __iter__(self) -> Iterator[Batch]:
        while not self.done:
            batch = self.poll(60.0)
            if batch is not None:
                yield batch

    @operation
    def seek(self, where: Where, *, timeout: float = 30.0) -> Steps[None]:
        """Read from another place; drop what was fetched ahead. The stop stays. A partition that cannot be opened now holds up no others.

        Args:
            where: EARLIEST, LATEST or AtTime for all partitions; or a position, or a mapping of places by (topic, partition), for those
                alone.
            timeout: seconds for the call.

        Raises:
            OptionError: `where` is no place, or names a partition that is not read here.
            PulsarError: a broker refuses. TransportError: none of these partitions could be opened in time, nor is another one open.
        """
        with self._only:
            deadline = deadline_after(timeout)
            parts = {part.owner: part for part in self._stream.parts}
            starts = {parts[key]: place for key, place in resolver(parts).requests(where, parts, "seek").items()}
            for part in starts:
                old = part.cursor
                new = part.cursor = Cursor(unread(*part.owner))
                new.before, new.last, new.until, new.bounded_by_end = old.before, old.last, old.until, old.bounded_by_end
                self._stream.stop(part)
                part.flowing = False
            yield from self._open(starts, {}, deadline)

    def _forget(self, part: PartitionConsumer) -> Late | None:
        """Stop waiting for a partition that could not be opened; return what was known of it."""
        late = self._late.pop(part, None)
        if late is not None and late.call is not None:
            late.call.cancel()
        if late is not None and late.task is not None:
            late.task.cancel(Closed("the partition is not read any more", topic=part.topic, partition=part.partition))
        return late

    @property
    def positions(self) -> Mapping[TopicPartition, MessageId]:
        """Where each partition is read next; without those that could not be opened yet and whose start is not known."""
        return {part.owner: part.cursor.next for part in self._stream.parts if part not in self._late or self._late[part].known}

    @property
    def done(self) -> bool:
        """Whether every partition has reached its stop."""
        return all(part.cursor.done for part in self._stream.parts)

    # -- ends ---------------------------------------------------------------------------------------------------

    def _closing_steps(self, deadline: float) -> Steps[None]:
        """Close the consumers at their brokers."""
        for part in list(self._late):
            self._forget(part)
        yield from self._stream.closing(deadline)
        self._cluster.roles.forget(self)


def _lasts(why: WireprotoError) -> bool:
    return verdict(why, transient=(TimedOut,)) is Verdict.NEVER
