"""Fetches: what to ask of which leader, and what an answer brings. Sans-IO.

What it is: Kafka's way of asking, for the floor's plan of what is read ahead (`flow.ahead`). Each leader has one Fetch under way at a time,
which names every partition of it that has room, those first that were not asked for longest, for the leader fills its answer in that order;
it leaves as soon as the heads of the last answer's batches are scanned, before anything is decoded. Where they are many, only what is new
since the last one is named (`sessions`).

An answer without records proves nothing of the log: the leader may read from remote storage, which takes longer than it waits, or keeps
to a quota. A cursor with a stop that gets such answers again and again is *doubted*: whoever drives the plan finds out where the leader's
own disk begins, and tells (`settle`); only then are offsets that hold no record any more stepped over, and the log is told which.

    due() ──► request() ──► (the leader) ──► answer() ──► plan.take() ──► plan.moved()

May assume: one caller at a time. Must not: send, read a clock, decode records, or know groups.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any

from .._codec import KafkaChunk, ReadBudget, Slice, kafka_section_end
from ..errors import DataLoss, FrameTooLarge, Malformed, TransportError, WireprotoError
from ..flow import ahead
from ..flow.ahead import PlannedFetch, ReadAhead, Ticket, nobody
from ..net.retry import Policy, Verdict, verdict
from ..position import TopicPartition
from .codes import CorruptMessage, LeaderNotAvailable, OffsetOutOfRange, UnknownServerError, UnknownTopicId, UnknownTopicOrPartition, error
from .messages import FetchPartition, FetchPartitionData, FetchRequest, FetchResponse, FetchTopic
from .messages.fetch import FetchForgottenTopic
from .metadata import NO_ID, Node
from .sessions import NO_SESSION, FetchSession, Named, Want

CHECKED, BY_ID = 12, 13
"""Versions of Fetch from which on the epoch before `ahead` is looked at, and topics have ids."""
_TOLD_FROM = 4
"""Refusals in a row after which the log tells of them; then each time that they are twice as many."""
_DOUBT_TIMES = 3
_DOUBT_TIME = 2.0
"""So many answers without records, over so many seconds, before offsets are taken for empty."""
_HUNGRY = 10.0
"""Seconds of answers without records after which the log tells of them; then each time that they are twice as many."""

_MISSING = (UnknownTopicOrPartition, UnknownTopicId)  # nodes learn of a new topic one after the other
_PASSING = (UnknownServerError, TransportError)  # what a remote storage has trouble with comes as the former
_FINAL = (CorruptMessage,)  # the leader's own copy is broken, and stays so

log = logging.getLogger("wireproto.kafka")


class Cursor(ahead.Cursor):
    """One partition.

    Attributes:
        position_epoch, ahead_epoch: leader epochs of the last batches before `position` and `ahead`, -1: not known. A Fetch names the
            latter, so that the leader tells when the log was cut there since, and goes on with other records (KIP-320).
        max_bytes: how much to ask for; doubled when one batch does not fit.
        end: high watermark, or last stable offset for a reader of committed records, as of the last answer; -1: none yet.
        empties: answers without records in a row, though its end is further on; the first came at `empty_since` under `empty_epoch`.
        hungry_at: the offset that answers without records were about, since `hungry_since`; the log is told of them at `tell_at`.
        last_time: milliseconds of the last record handed out since a seek, where somebody wants to know; -1: not known.
        missing_since: when its topic was first not known, 0.0 while it is.
        topic_id: of the topic that was read so far; empty: not known.
        replica: node that the leader sent us to, being nearer to our rack (KIP-392), until `replica_until`; -1: the leader is asked.
    """

    __slots__ = (
        "ahead_epoch",
        "empties",
        "empty_epoch",
        "empty_since",
        "hungry_at",
        "hungry_since",
        "last_time",
        "max_bytes",
        "missing_since",
        "partition",
        "position_epoch",
        "replica",
        "replica_until",
        "tell_at",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, partition: int, start: int, stop: int | None, max_bytes: int, epoch: int = -1) -> None:
        super().__init__((topic, partition), start, stop)
        self.topic = topic
        self.partition = partition
        self.position_epoch = self.ahead_epoch = epoch
        self.max_bytes = max_bytes
        self.topic_id = b""
        self.replica = -1
        self.replica_until = 0.0
        self.empties = 0
        self.empty_since = 0.0
        self.empty_epoch = self.last_time = self.hungry_at = -1
        self.missing_since = self.hungry_since = self.tell_at = 0.0

    def restart(self, offset: int) -> None:
        super().restart(offset)
        self.position_epoch = self.ahead_epoch = -1
        self.topic_id = b""
        self.empties = 0
        self.last_time = self.hungry_at = -1
        self.missing_since = 0.0

    def stand(self) -> None:
        super().stand()
        self.ahead_epoch = self.position_epoch
        self.empties = 0

    def fetched(self, chunk: KafkaChunk) -> None:
        self.ahead = chunk.next
        if chunk.error is None:
            self.ahead_epoch = chunk.epoch

    def moved(self, chunk: KafkaChunk, position: int) -> None:
        self.position = position
        self.position_epoch = chunk.epoch if position == chunk.next else -1


@dataclass(frozen=True, slots=True)
class SentFetch:
    """A Fetch under way: its tickets, topic ids, the leader epochs in use, and what it named to whom."""

    tickets: tuple[Ticket[Cursor], ...]
    names: dict[bytes, str]
    epochs: dict[Cursor, int]
    node: int
    named: Named


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """Sizes in bytes, times in seconds.

    Attributes:
        unknown_topic_timeout: how long a topic may be unknown. trouble: how long a partition with a stop may be refused before that is raised.
    """

    committed: bool
    max_wait: float
    min_bytes: int
    max_bytes: int
    partition_bytes: int
    largest: int
    backoff: Policy
    unknown_topic_timeout: float
    trouble: float
    rack: str = ""
    replica_for: float = 300.0


Hint = Callable[[str, int, int, int, Iterable[Node]], bool]


def _no_hint(topic: str, partition: int, node: int, epoch: int, nodes: Iterable[Node]) -> bool:
    return False


class Fetches:
    """Kafka's `FetchTargets`.

    Args:
        leader: the node to ask for a cursor: its `replica` where that is known, else the leader; None: not known.
        room: bytes that the client's readers may hold together; None: a bound of `max_bytes` for this plan alone.
        problem: what the nodes say of a topic as a whole, None when it is fine.
        hint: told who leads a partition by now, as a refusal says (KIP-951); whether that was news.

    Attributes:
        plan: the cursors, and what waits to be handed out.
        stale: topics whose leaders must be looked up again before the next Fetch.
        sessions: what each node remembers of our Fetches.
    """

    def __init__(
        self,
        settings: FetchSettings,
        leader: Callable[[Cursor], int | None],
        room: ReadBudget | None = None,
        problem: Callable[[str], WireprotoError | None] = lambda topic: None,
        hint: Hint = _no_hint,
    ) -> None:
        self.settings = settings
        self.most = settings.max_bytes
        self.leader = leader
        self._problem = problem
        self._hint = hint
        if room is None:
            room = ReadBudget()
            room.bound(settings.max_bytes)
        self.plan: ReadAhead[Cursor, KafkaChunk] = ReadAhead(room, settings.backoff)
        self.stale: set[str] = set()
        self.sessions: dict[int, FetchSession] = {}

    def add(self, topic: str, partition: int, start: int, stop: int | None = None, *, epoch: int = -1) -> Cursor:
        """Read a partition from `start`; `epoch` is that of the last batch before it, where it is known."""
        return self.plan.add(Cursor(topic, partition, start, stop, self.settings.partition_bytes, epoch))

    # --- asking ---

    def link(self, cursor: Cursor) -> int | None:
        node = self.leader(cursor)
        if node is None:
            self.stale.add(cursor.topic)
        return node

    def questions(self, cursor: Cursor) -> Iterator[tuple[int, int, int]]:
        if not cursor.out and cursor.held < cursor.max_bytes:
            yield cursor.ahead, cursor.max_bytes, cursor.max_bytes

    def due(self, now: float, busy: Callable[[Any], bool] = nobody) -> list[PlannedFetch[Cursor]]:
        """Partitions to ask for now, by node; those without a known leader make their topic stale."""
        for cursor in self.plan.cursors.values():
            if cursor.replica >= 0 and not cursor.out and now >= cursor.replica_until:
                cursor.replica = -1
        asks = self.plan.due(self, now, busy)
        if self.stale:
            self._without_leader(now)
        return asks

    def _without_leader(self, now: float) -> None:
        """Nobody can be asked for them. Who waits for a stop is to know; who follows a topic may see it made again."""
        for cursor in self.plan.cursors.values():
            if cursor.stop is None or cursor.topic not in self.stale or cursor.out or not cursor.wanting(now):
                continue
            if self.leader(cursor) is None:
                problem = self._problem(cursor.topic)
                self._refused(cursor, problem or LeaderNotAvailable(topic=cursor.topic, partition=cursor.partition), now)

    def request(
        self,
        ask: PlannedFetch[Cursor],
        ids: Callable[[str], bytes],
        epoch: Callable[[str, int], int],
        version: int = FetchRequest.MAX_VERSION,
    ) -> tuple[FetchRequest, SentFetch]:
        """The Fetch for what is due of a node.

        Args:
            ids, epoch: topic ids (zeros: not known) and leader epochs.
            version: in which it will be sent.
        """
        settings, by_id = self.settings, version >= BY_ID
        names: dict[bytes, str] = {}
        epochs: dict[Cursor, int] = {}
        wanted: dict[TopicPartition, Want] = {}
        for ticket in ask.tickets:
            cursor = ticket.cursor
            topic_id = ids(cursor.topic) if by_id else NO_ID
            names[topic_id] = cursor.topic
            epochs[cursor] = leader_epoch = epoch(*cursor.key)
            fetched = cursor.ahead_epoch if version >= CHECKED else -1
            wanted[cursor.key] = Want(topic_id, leader_epoch, ticket.offset, fetched, ticket.count)
        named = self.sessions.setdefault(ask.link, FetchSession()).name(wanted, by_id=by_id)
        request = FetchRequest(
            max_wait_ms=20 if self._crowded(ask) else int(settings.max_wait * 1000),
            min_bytes=settings.min_bytes,
            max_bytes=max(settings.max_bytes, *(ticket.count for ticket in ask.tickets)),
            isolation_level=int(settings.committed),
            session_id=named.session_id,
            session_epoch=named.session_epoch,
            topics=_topics(named.wanted),
            forgotten_topics_data=_forgotten(named.forgotten),
            rack_id="" if any(cursor.empties for cursor in epochs) else settings.rack,  # in doubt the leader itself has to say
        )
        return request, SentFetch(tuple(ask.tickets), names, epochs, ask.link, named)

    def _crowded(self, ask: PlannedFetch[Cursor]) -> bool:
        """Whether other partitions of the node wait for room: it should answer soon rather than wait for news."""
        return any(
            not cursor.out and not cursor.paused and (cursor.stop is None or cursor.ahead < cursor.stop) and self.leader(cursor) == ask.link
            for cursor in self.plan.cursors.values()
        )

    def farewell(self, node: int) -> FetchRequest | None:
        """What ends a node's session; None when it has none."""
        session = self.sessions.pop(node, None)
        if session is None or not session.id:
            return None
        return FetchRequest(max_wait_ms=0, min_bytes=0, session_id=session.id, session_epoch=NO_SESSION)

    def dropped(self, ask: PlannedFetch[Cursor]) -> None:
        """It was not sent, and may be at once."""
        for ticket in ask.tickets:
            self.plan.answered(ticket)

    def failed(self, tickets: Iterable[Ticket[Cursor]], why: WireprotoError, now: float) -> None:
        """No answer came: ask again, of whoever leads then."""
        for ticket in tickets:
            cursor = ticket.cursor
            self.stale.add(cursor.topic)
            if self.plan.answered(ticket):
                cursor.replica = -1
                self._refused(cursor, copy(why), now)

    # --- answers ---

    def answer(self, asked: SentFetch, reply: FetchResponse, version: int, now: float) -> None:
        """Take in an answer: chunks, positions, and who has to be looked up again."""
        tickets = {ticket.cursor.key: ticket for ticket in asked.tickets if self.plan.answered(ticket)}
        session, named = self.sessions[asked.node], asked.named
        if not session.answered(named, reply.error_code, reply.session_id):
            return
        if reply.error_code:
            for ticket in tickets.values():
                self._refused(ticket.cursor, _error(ticket.cursor, reply.error_code), now)
            return
        nothing = not reply.throttle_time_ms and not any(part.records for topic in reply.responses for part in topic.partitions)
        nodes = [Node(end.node_id, end.host, end.port, end.rack) for end in reply.node_endpoints]
        for topic in reply.responses:
            name = topic.topic if version < BY_ID else asked.names.get(topic.topic_id)
            for part in topic.partitions:
                found = tickets.pop((name or "", part.partition_index), None)
                if found is None:
                    session.doubt()
                elif not (part.error_code and self._moved(found.cursor, part, nodes)):
                    topic_id = topic.topic_id if version >= BY_ID else b""
                    self._take(found, part, now, asked.epochs[found.cursor], topic_id, nothing=nothing)
        if named.some:
            for ticket in tickets.values():  # nothing new of these
                self._well(ticket.cursor)
                self._without_records(ticket, asked.epochs[ticket.cursor], now, nothing=nothing)

    def _well(self, cursor: Cursor) -> None:
        """It was answered, and without an error."""
        self.plan.well(cursor)
        cursor.missing_since = 0.0

    def _take(self, ticket: Ticket[Cursor], part: FetchPartitionData, now: float, epoch: int, topic_id: bytes, *, nothing: bool) -> None:
        """One partition's share. `epoch`: the leader's that it was asked under. `nothing`: the whole answer has no records."""
        cursor = ticket.cursor
        again = cursor.topic_id not in (b"", topic_id) and ticket.offset > 0
        if part.error_code and not (again and part.error_code == OffsetOutOfRange.code):  # the new log is not yet as long
            if cursor.replica >= 0:  # the leader knows better what is wrong, if anything is
                cursor.replica = -1
                self.plan.later(cursor, now)
            else:
                self._refused(cursor, _error(cursor, part.error_code), now)
            return
        self._well(cursor)
        if again:
            self._lost(cursor, f"the topic was deleted and made again, and was read up to {cursor.ahead}", 0)
            return
        cursor.topic_id = topic_id
        if part.diverging_epoch.end_offset >= 0:
            cut, at = part.diverging_epoch.epoch, part.diverging_epoch.end_offset
            self._lost(cursor, f"the log was cut: for leader epoch {cut} it ends at offset {at} now, and was read up to {cursor.ahead}", at)
            return
        if part.preferred_read_replica >= 0 and part.preferred_read_replica != cursor.replica:
            cursor.replica = part.preferred_read_replica
            cursor.replica_until = now + self.settings.replica_for
            if not part.records:
                return  # nothing is said of what the log holds
        stable = part.last_stable_offset
        cursor.end = stable if self.settings.committed and stable >= 0 else part.high_watermark
        if part.records:
            self._records(cursor, part, part.records)
        else:
            self._without_records(ticket, epoch, now, nothing=nothing)

    def _without_records(self, ticket: Ticket[Cursor], epoch: int, now: float, *, nothing: bool) -> None:
        """The answer, or the whole of it (`nothing`), has none: of what is not at its end there may have been no room, or no time."""
        cursor = ticket.cursor
        if cursor.ahead >= cursor.end:
            return
        if not nothing:
            self.plan.passed_over(ticket)
            return
        self._hungry(cursor, now)
        if cursor.stop is not None:
            self._empty(cursor, epoch, now)

    def _moved(self, cursor: Cursor, part: FetchPartitionData, nodes: list[Node]) -> bool:
        """Whether a refusal names a leader that was not known: it is asked at once, without a look-up."""
        leader = part.current_leader
        return cursor.replica < 0 and leader.leader_id >= 0 and self._hint(*cursor.key, leader.leader_id, leader.leader_epoch, nodes)

    def _records(self, cursor: Cursor, part: FetchPartitionData, records: Slice | bytes) -> None:
        cursor.empties = 0
        following, epoch = kafka_section_end(records)
        if following < 0:
            self._too_large(cursor)
            return
        if following <= cursor.ahead:
            problem = Malformed(f"the broker sent records up to offset {following} only when asked for {cursor.ahead}")
            self._fail(cursor, problem)
            return
        aborted = tuple((entry.producer_id, entry.first_offset) for entry in part.aborted_transactions or ())
        self.plan.push(KafkaChunk(cursor, cursor.generation, cursor.ahead, following, records, len(records), aborted=aborted, epoch=epoch))

    def _fail(self, cursor: Cursor, problem: WireprotoError) -> None:
        """Have it raised behind what was fetched before."""
        self.plan.push(KafkaChunk(cursor, cursor.generation, cursor.ahead, cursor.ahead, error=problem))

    def _lost(self, cursor: Cursor, why: str, diverges_at: int) -> None:
        """The leader's log parts from what was read: after an unclean election, with a disk that was lost, or as another topic's."""
        self._fail(cursor, DataLoss(f"{why}; seek to go on", topic=cursor.topic, partition=cursor.partition, diverges_at=diverges_at))

    def _empty(self, cursor: Cursor, epoch: int, now: float) -> None:
        """It had nothing, though there is more of the log. What a replica says of that does not count."""
        self.plan.later(cursor, now)
        if not cursor.empties or epoch != cursor.empty_epoch:
            cursor.empties, cursor.empty_since, cursor.empty_epoch = 0, now, epoch
        cursor.empties += 1
        cursor.replica = -1

    def _hungry(self, cursor: Cursor, now: float) -> None:
        """Whoever waits for records that the leader does not find is told why nothing comes: there is no error that could be."""
        if cursor.hungry_at != cursor.ahead:
            cursor.hungry_at, cursor.hungry_since, cursor.tell_at = cursor.ahead, now, now + _HUNGRY
        elif now >= cursor.tell_at:
            waited = now - cursor.hungry_since
            cursor.tell_at = now + waited
            text = "%s[%d] has not been read for %.1f s: the answers have no records from offset %d on, though the log ends at %d"
            log.warning(text, *cursor.key, waited, cursor.ahead, cursor.end)

    def doubted(self, now: float) -> Cursor | None:
        """A partition that had nothing for a while, though its end is further on: `settle` it."""
        found = (c for c in self.plan.cursors.values() if c.empties >= _DOUBT_TIMES and now - c.empty_since >= _DOUBT_TIME and not c.paused)
        return next(found, None)

    def settle(self, cursor: Cursor, generation: int, local: int, epoch: int) -> None:
        """Where the leader's own disk begins (-1: there is no other storage), under this leader epoch. What lies before is elsewhere, and
        slow; what it does not find on its own disk is not there any more."""
        if cursor.generation != generation or not cursor.empties or cursor.stop is None:
            return
        gone = local <= cursor.ahead and epoch == cursor.empty_epoch
        cursor.empties = 0
        if gone:
            end = min(cursor.end, cursor.stop)
            text = "%s[%d]: offsets %d to %d hold no record, compacted away or lost with the leader's disk: they are stepped over"
            log.warning(text, *cursor.key, cursor.ahead, end - 1)
            self.plan.push(KafkaChunk(cursor, cursor.generation, cursor.ahead, end))

    def _too_large(self, cursor: Cursor) -> None:
        """One batch does not fit into what was asked for (Fetch before v3)."""
        if cursor.max_bytes >= self.settings.largest:
            self._fail(cursor, FrameTooLarge(f"a record batch is larger than {self.settings.largest} bytes"))
            return
        cursor.max_bytes = min(cursor.max_bytes * 2, self.settings.largest)

    def _refused(self, cursor: Cursor, problem: WireprotoError, now: float) -> None:
        """It cannot be read now: again later, or the problem is raised."""
        self.plan.refused(cursor, now)
        if problem.refresh:
            self.stale.add(cursor.topic)
        trouble = now - cursor.troubled_since
        cursor.missing_since = (cursor.missing_since or now) if isinstance(problem, _MISSING) else 0.0
        gone = now - cursor.missing_since > self.settings.unknown_topic_timeout
        judged = verdict(problem, passing=_PASSING, final=_FINAL + _MISSING if gone else _FINAL)
        if judged is Verdict.NEVER or (cursor.stop is not None and trouble > self.settings.trouble):
            self._fail(cursor, problem)
        elif cursor.failures >= _TOLD_FROM and not cursor.failures & (cursor.failures - 1):
            log.warning("%s[%d] has not been read for %.1f s: %s", cursor.topic, cursor.partition, trouble, problem)


def _error(cursor: Cursor, code: int) -> WireprotoError:
    return error(code, message="FetchResponse", topic=cursor.topic, partition=cursor.partition)


def _topics(wanted: dict[TopicPartition, Want]) -> tuple[FetchTopic, ...]:
    """What a Fetch says of them, by topic, in their order."""
    parts: dict[tuple[str, bytes], list[FetchPartition]] = {}
    for (topic, partition), want in wanted.items():
        parts.setdefault((topic, want.topic_id), []).append(
            FetchPartition(
                partition=partition,
                current_leader_epoch=want.leader_epoch,
                fetch_offset=want.offset,
                last_fetched_epoch=want.fetched_epoch,
                partition_max_bytes=want.max_bytes,
            )
        )
    return tuple(FetchTopic(topic=topic, topic_id=topic_id, partitions=tuple(found)) for (topic, topic_id), found in parts.items())


def _forgotten(gone: dict[TopicPartition, bytes]) -> tuple[FetchForgottenTopic, ...]:
    parts: dict[tuple[str, bytes], list[int]] = {}
    for (topic, partition), topic_id in gone.items():
        parts.setdefault((topic, topic_id), []).append(partition)
    return tuple(FetchForgottenTopic(topic=topic, topic_id=topic_id, partitions=tuple(found)) for (topic, topic_id), found in parts.items())
