"""Plans fetches: what to ask of which leader, and what a response brings. Sans-IO.

Kafka's `FetchTargets` for the plan of what is read ahead (`flow.ahead`). Each leader has one Fetch in flight at a time, which names every
partition of it that has room, those first that were not asked for longest, for the leader fills its response in that order; it leaves as
soon as the heads of the last response's batches are scanned, before anything is decoded. Where partitions are many, only what is new since
the last Fetch is named (`sessions`).

A response without records proves nothing about the log: the leader may read from remote storage, which takes longer than it waits, or keep
to a quota. A cursor with a stop that gets such responses again and again is *doubted*: the driver of the plan finds out where the leader's
own disk begins, and calls `settle`; only then are offsets that hold no record any more stepped over, and logged.

    due() ──► request() ──► (the leader) ──► answer() ──► plan.take() ──► plan.moved()

One caller at a time. Sends nothing, reads no clock, decodes no records, and knows no groups.
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
from ..flow.ahead import PlannedFetch, ReadAhead, Ticket, no_link_busy
from ..net.retry import Policy, Verdict, verdict
from ..position import TopicPartition
from .codes import CorruptMessage, LeaderNotAvailable, OffsetOutOfRange, UnknownServerError, UnknownTopicId, UnknownTopicOrPartition, error
from .messages import FetchPartition, FetchPartitionData, FetchRequest, FetchResponse, FetchTopic
from .messages.fetch import FetchForgottenTopic
from .metadata import NO_ID, Node
from .sessions import NO_SESSION, FetchSession, Named, Want

CHECKED, BY_ID = 12, 13
"""Versions of Fetch from which on the epoch before `ahead` is looked at, and topics have ids."""
_LOGGED_FROM = 4
"""Refusals in a row from which on they are logged; then each time that their number has doubled."""
_DOUBT_TIMES = 3
_DOUBT_TIME = 2.0
"""Responses without records (_DOUBT_TIMES), and seconds over which they came, before offsets are taken for empty."""
_NO_RECORDS_LOGGED_AFTER = 10.0
"""Seconds of responses without records after which they are logged; then each time that the seconds have doubled."""

_MISSING = (UnknownTopicOrPartition, UnknownTopicId)  # nodes learn of a new topic one after the other
_TRANSIENT = (UnknownServerError, TransportError)  # brokers report trouble with remote storage as the former
_FINAL = (CorruptMessage,)  # the leader's own copy is corrupt, and stays so

log = logging.getLogger("wireproto.kafka")


class Cursor(ahead.Cursor):
    """One partition.

    Attributes:
        topic, partition: which one.
        position_epoch, ahead_epoch: leader epochs of the last batches before `position` and `ahead`, -1: not known. A Fetch names the
            latter, so that the leader reports when the log was cut there since, and continues with other records (KIP-320).
        max_bytes: how many bytes to ask for; doubled when one batch does not fit.
        end: high watermark, or last stable offset for a reader of committed records, as of the last response; -1: none yet.
        empty_responses: responses without records in a row, though its end is further on.
        empty_since, empty_epoch: when the first of these came, and under which leader epoch.
        no_records_at: the offset that responses without records were about, since `no_records_since`; they are logged at `log_at`.
        last_time: timestamp in milliseconds of the last record returned since a seek, where `reset` needs it; -1: not known.
        missing_since: when its topic was first unknown to a node, 0.0 while it is known.
        topic_id: of the topic that was read so far; empty: not known.
        replica: node that the leader sent us to, being nearer to our rack (KIP-392), until `replica_until`; -1: the leader is asked.
    """

    __slots__ = (
        "ahead_epoch",
        "empty_epoch",
        "empty_responses",
        "empty_since",
        "last_time",
        "log_at",
        "max_bytes",
        "missing_since",
        "no_records_at",
        "no_records_since",
        "partition",
        "position_epoch",
        "replica",
        "replica_until",
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
        self.empty_responses = 0
        self.empty_since = 0.0
        self.empty_epoch = self.last_time = self.no_records_at = -1
        self.missing_since = self.no_records_since = self.log_at = 0.0

    def restart(self, offset: int) -> None:
        """Continue at another offset: forget what belongs to the former place."""
        super().restart(offset)
        self.position_epoch = self.ahead_epoch = -1
        self.topic_id = b""
        self.empty_responses = 0
        self.last_time = self.no_records_at = -1
        self.missing_since = 0.0

    def drop_fetched_ahead(self) -> None:
        """Continue at the position: what was fetched ahead is forgotten."""
        super().drop_fetched_ahead()
        self.ahead_epoch = self.position_epoch
        self.empty_responses = 0

    def fetched(self, chunk: KafkaChunk) -> None:
        """Take in that a chunk was put behind the others: the next fetch begins behind it."""
        self.ahead = chunk.next
        if chunk.error is None:
            self.ahead_epoch = chunk.epoch

    def moved(self, chunk: KafkaChunk, position: int) -> None:
        """Take in that a chunk was returned up to `position`."""
        self.position = position
        self.position_epoch = chunk.epoch if position == chunk.next else -1


@dataclass(frozen=True, slots=True)
class SentFetch:
    """A Fetch in flight.

    Attributes:
        tickets: one for each partition.
        names: topic names by id.
        epochs: the leader epochs that the Fetch names.
        node: number of the node.
        named: what the session named.
    """

    tickets: tuple[Ticket[Cursor], ...]
    names: dict[bytes, str]
    epochs: dict[Cursor, int]
    node: int
    named: Named


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """What readers set for their fetches. Sizes in bytes, times in seconds.

    Attributes:
        committed: whether records of open and aborted transactions are left out.
        max_wait: how long the broker waits for `min_bytes`.
        min_bytes: see above.
        max_bytes, partition_bytes: how much to ask for, of a leader and of a partition.
        largest: how far a partition's share grows for a batch that does not fit.
        backoff: pauses before a refused partition is asked for again.
        unknown_topic_timeout: how long a topic may be unknown.
        trouble: how long a partition with a stop may be refused before that is raised.
        rack: ours; "": none.
        replica_for: how long a replica is asked in place of the leader.
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
    """Take no hint."""
    return False


class Fetches:
    """Implements Kafka's `FetchTargets`.

    Args:
        leader: returns the node to ask for a cursor: its `replica` where that is known, else the leader; None: not known.
        room: bytes that the client's readers may hold together; None: a bound of `max_bytes` for this plan alone.
        problem: returns what the nodes say of a topic as a whole, None when it is fine.
        hint: takes in the leader of a partition that a refusal names (KIP-951); returns whether that was new.

    Attributes:
        plan: the cursors, and what waits to be returned.
        stale: topics whose leaders must be looked up again before the next Fetch.
        sessions: what each node remembers of our Fetches, by node number.
        most: bytes of one response.
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
        """Read a partition.

        Args:
            topic, partition: which one. start: the first offset. stop: the first offset not wanted; None: follow the log.
            epoch: leader epoch of the last batch before `start`, where it is known; else -1.
        """
        return self.plan.add(Cursor(topic, partition, start, stop, self.settings.partition_bytes, epoch))

    # --- asking ---

    def link(self, cursor: Cursor) -> int | None:
        """Return the node to ask for a cursor; None: not known, and the topic is stale."""
        node = self.leader(cursor)
        if node is None:
            self.stale.add(cursor.topic)
        return node

    def next_requests(self, cursor: Cursor) -> Iterator[tuple[int, int, int]]:
        """Yield what to ask for: (offset, bytes asked for, bytes reserved); nothing while a Fetch is in flight or enough is held."""
        if not cursor.out and cursor.held < cursor.max_bytes:
            yield cursor.ahead, cursor.max_bytes, cursor.max_bytes

    def due(self, now: float, busy: Callable[[Any], bool] = no_link_busy) -> list[PlannedFetch[Cursor]]:
        """Return the partitions to ask for now, by node; those without a known leader make their topic stale."""
        for cursor in self.plan.cursors.values():
            if cursor.replica >= 0 and not cursor.out and now >= cursor.replica_until:
                cursor.replica = -1
        asks = self.plan.due(self, now, busy)
        if self.stale:
            self._without_leader(now)
        return asks

    def _without_leader(self, now: float) -> None:
        """Refuse partitions with a stop that have no leader to ask. One that follows a topic waits: it may be created again."""
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
        """Make the Fetch for what is due of a node.

        Args:
            ask: what is due.
            ids, epoch: return topic ids (zeros: not known) and leader epochs.
            version: in which it will be sent.
        Returns:
            the request, and what `answer` needs of it.
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
            max_wait_ms=20 if self._congested(ask) else int(settings.max_wait * 1000),
            min_bytes=settings.min_bytes,
            max_bytes=max(settings.max_bytes, *(ticket.count for ticket in ask.tickets)),
            isolation_level=int(settings.committed),
            session_id=named.session_id,
            session_epoch=named.session_epoch,
            topics=_topics(named.wanted),
            forgotten_topics_data=_forgotten(named.forgotten),
            # a partition without records is read from the leader itself
            rack_id="" if any(cursor.empty_responses for cursor in epochs) else settings.rack,
        )
        return request, SentFetch(tuple(ask.tickets), names, epochs, ask.link, named)

    def _congested(self, ask: PlannedFetch[Cursor]) -> bool:
        """Return whether other partitions of the node wait for room: it should answer soon rather than wait for new records."""
        return any(
            not cursor.out and not cursor.paused and (cursor.stop is None or cursor.ahead < cursor.stop) and self.leader(cursor) == ask.link
            for cursor in self.plan.cursors.values()
        )

    def end_session(self, node: int) -> FetchRequest | None:
        """Return the request that ends a node's session; None when it has none."""
        session = self.sessions.pop(node, None)
        if session is None or not session.id:
            return None
        return FetchRequest(max_wait_ms=0, min_bytes=0, session_id=session.id, session_epoch=NO_SESSION)

    def dropped(self, ask: PlannedFetch[Cursor]) -> None:
        """Take back what is due: it was not sent, and may be at once."""
        for ticket in ask.tickets:
            self.plan.answered(ticket)

    def failed(self, tickets: Iterable[Ticket[Cursor]], why: WireprotoError, now: float) -> None:
        """Note that no response came: look the leaders up, and ask again."""
        for ticket in tickets:
            cursor = ticket.cursor
            self.stale.add(cursor.topic)
            if self.plan.answered(ticket):
                cursor.replica = -1
                self._refused(cursor, copy(why), now)

    # --- answers ---

    def answer(self, asked: SentFetch, reply: FetchResponse, version: int, now: float) -> None:
        """Take in a response: chunks, positions, and topics whose leaders have to be looked up again.

        Args:
            asked: the Fetch. reply: its response. version: of both. now: a time.monotonic() value.
        """
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
            for ticket in tickets.values():  # left out of the response: no news
                self._well(ticket.cursor)
                self._without_records(ticket, asked.epochs[ticket.cursor], now, nothing=nothing)

    def _well(self, cursor: Cursor) -> None:
        """Note that a partition was answered without an error."""
        self.plan.well(cursor)
        cursor.missing_since = 0.0

    def _take(self, ticket: Ticket[Cursor], part: FetchPartitionData, now: float, epoch: int, topic_id: bytes, *, nothing: bool) -> None:
        """Take in the response for one partition.

        Args:
            epoch: the leader epoch that the Fetch named. nothing: whether the whole response has no records.
        """
        cursor = ticket.cursor
        again = cursor.topic_id not in (b"", topic_id) and ticket.offset > 0
        if part.error_code and not (again and part.error_code == OffsetOutOfRange.code):  # the new topic's log is not yet as long
            if cursor.replica >= 0:  # ask the leader, which knows what is wrong
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
                return  # the response says nothing about the log
        stable = part.last_stable_offset
        cursor.end = stable if self.settings.committed and stable >= 0 else part.high_watermark
        if part.records:
            self._records(cursor, part, part.records)
        else:
            self._without_records(ticket, epoch, now, nothing=nothing)

    def _without_records(self, ticket: Ticket[Cursor], epoch: int, now: float, *, nothing: bool) -> None:
        """Take in a response without records for a partition; where it is not at its end there may have been no room, or no time.

        Args:
            epoch: the leader epoch that the Fetch named. nothing: whether the whole response has no records.
        """
        cursor = ticket.cursor
        if cursor.ahead >= cursor.end:
            return
        if not nothing:
            self.plan.passed_over(ticket)
            return
        self._log_no_records(cursor, now)
        if cursor.stop is not None:
            self._empty(cursor, epoch, now)

    def _moved(self, cursor: Cursor, part: FetchPartitionData, nodes: list[Node]) -> bool:
        """Return whether a refusal names a leader that was not known: it is asked at once, without a look-up."""
        leader = part.current_leader
        return cursor.replica < 0 and leader.leader_id >= 0 and self._hint(*cursor.key, leader.leader_id, leader.leader_epoch, nodes)

    def _records(self, cursor: Cursor, part: FetchPartitionData, records: Slice | bytes) -> None:
        """Put the records of a partition into the plan, if they get further than what was fetched."""
        cursor.empty_responses = 0
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
        """Have an error raised once all that was fetched before is returned."""
        self.plan.push(KafkaChunk(cursor, cursor.generation, cursor.ahead, cursor.ahead, error=problem))

    def _lost(self, cursor: Cursor, why: str, diverges_at: int) -> None:
        """Have DataLoss raised: the leader's log diverges from what was read. Causes: an unclean election, a lost disk, another topic."""
        self._fail(cursor, DataLoss(f"{why}; seek to continue", topic=cursor.topic, partition=cursor.partition, diverges_at=diverges_at))

    def _empty(self, cursor: Cursor, epoch: int, now: float) -> None:
        """Note that a leader sent no records, though the log's end is further on. What a replica answers does not count."""
        self.plan.later(cursor, now)
        if not cursor.empty_responses or epoch != cursor.empty_epoch:
            cursor.empty_responses, cursor.empty_since, cursor.empty_epoch = 0, now, epoch
        cursor.empty_responses += 1
        cursor.replica = -1

    def _log_no_records(self, cursor: Cursor, now: float) -> None:
        """Log that a leader sends no records for a long time, though the log's end is further on: no error says so."""
        if cursor.no_records_at != cursor.ahead:
            cursor.no_records_at, cursor.no_records_since, cursor.log_at = cursor.ahead, now, now + _NO_RECORDS_LOGGED_AFTER
        elif now >= cursor.log_at:
            waited = now - cursor.no_records_since
            cursor.log_at = now + waited
            text = "%s[%d] has not been read for %.1f s: the answers have no records from offset %d on, though the log ends at %d"
            log.warning(text, *cursor.key, waited, cursor.ahead, cursor.end)

    def doubted(self, now: float) -> Cursor | None:
        """Return a partition that got no records for a while, though its end is further on, for `settle`; None: there is none."""
        reading = (cursor for cursor in self.plan.cursors.values() if not cursor.paused)
        found = (cursor for cursor in reading if cursor.empty_responses >= _DOUBT_TIMES and now - cursor.empty_since >= _DOUBT_TIME)
        return next(found, None)

    def settle(self, cursor: Cursor, generation: int, local: int, epoch: int) -> None:
        """Step over the rest of a doubted partition, if its records are gone. Those before `local` are in remote storage, and slow to read.

        What the leader does not find on its own disk is not there any more.

        Args:
            cursor: the partition. generation: its one when the leader was asked.
            local: the offset at which the leader's own disk begins; -1: there is no other storage. epoch: the leader epoch of that answer.
        """
        if cursor.generation != generation or not cursor.empty_responses or cursor.stop is None:
            return
        gone = local <= cursor.ahead and epoch == cursor.empty_epoch
        cursor.empty_responses = 0
        if gone:
            end = min(cursor.end, cursor.stop)
            text = "%s[%d]: offsets %d to %d hold no record, compacted away or lost with the leader's disk: they are stepped over"
            log.warning(text, *cursor.key, cursor.ahead, end - 1)
            self.plan.push(KafkaChunk(cursor, cursor.generation, cursor.ahead, end))

    def _too_large(self, cursor: Cursor) -> None:
        """Ask for more the next time: one batch does not fit into what was asked for (Fetch before v3)."""
        if cursor.max_bytes >= self.settings.largest:
            self._fail(cursor, FrameTooLarge(f"a record batch is larger than {self.settings.largest} bytes"))
            return
        cursor.max_bytes = min(cursor.max_bytes * 2, self.settings.largest)

    def _refused(self, cursor: Cursor, problem: WireprotoError, now: float) -> None:
        """Note that a partition cannot be read now: it is asked for again later, or the problem is raised."""
        self.plan.refused(cursor, now)
        if problem.refresh:
            self.stale.add(cursor.topic)
        trouble = now - cursor.failing_since
        cursor.missing_since = (cursor.missing_since or now) if isinstance(problem, _MISSING) else 0.0
        gone = now - cursor.missing_since > self.settings.unknown_topic_timeout
        judged = verdict(problem, transient=_TRANSIENT, final=_FINAL + _MISSING if gone else _FINAL)
        if judged is Verdict.NEVER or (cursor.stop is not None and trouble > self.settings.trouble):
            self._fail(cursor, problem)
        elif cursor.failures >= _LOGGED_FROM and not cursor.failures & (cursor.failures - 1):
            log.warning("%s[%d] has not been read for %.1f s: %s", cursor.topic, cursor.partition, trouble, problem)


def _error(cursor: Cursor, code: int) -> WireprotoError:
    """Make the error of a code in a response."""
    return error(code, message="FetchResponse", topic=cursor.topic, partition=cursor.partition)


def _topics(wanted: dict[TopicPartition, Want]) -> tuple[FetchTopic, ...]:
    """Return the topics of a Fetch, with their partitions in the given order."""
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
    """Return the partitions that a session is to forget, by topic."""
    parts: dict[tuple[str, bytes], list[int]] = {}
    for (topic, partition), topic_id in gone.items():
        parts.setdefault((topic, topic_id), []).append(partition)
    return tuple(FetchForgottenTopic(topic=topic, topic_id=topic_id, partitions=tuple(found)) for (topic, topic_id), found in parts.items())
