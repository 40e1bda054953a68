"""Reading ahead: where each partition is, what to ask of which leader, what an answer brings.

What it is: the plan of a reader or consumer, sans-IO. A cursor per partition knows two places: `position`, behind the last record handed
out, and `ahead`, behind the last one fetched. Each leader has one Fetch under way at a time, which names every partition of it that
has room; it leaves as soon as the heads of the last answer's batches are scanned, before anything is decoded.

What is held counts, from the request on, against a room that all readers of a client share (`fetch_memory`): a Fetch leaves when its
answer fits, or names fewer partitions. A plan with nothing under way and nothing to hand out may always ask for one partition, the one
not asked for longest: nobody starves, and the bound is the room and one partition's answer for each reader more.

An answer without records proves nothing of the log: the leader may read from remote storage, which takes longer than it waits, or keeps
to a quota. A cursor with a stop that gets such answers again and again is *doubted*: whoever drives the plan finds out where the leader's
own disk begins, and tells (`settle`); only then are offsets that hold no record any more stepped over.

    due() ──► request() ──► (the leader) ──► answer() ──► chunks, in the order of arrival ──► pop() ──► moved()

May assume: one caller at a time. Must not: send, read a clock, decode records, or know groups.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from .._codec import KafkaRoom, kafka_section_end
from ..errors import DataLoss, FrameTooLarge, Malformed, WireprotoError
from ..position import TopicPartition
from .codes import error
from .messages import FetchPartition, FetchPartitionData, FetchRequest, FetchResponse, FetchTopic

_UNKNOWN_TOPIC = 3
_BY_ID = 13
_DOUBT_TIMES = 3
_DOUBT_TIME = 2.0
"""So many answers without records, over so many seconds, before offsets are taken for empty."""


class Cursor:
    """One partition.

    Attributes:
        position_epoch, ahead_epoch: leader epochs of the last batches before `position` and `ahead`, -1: not known. A Fetch names the
            latter, so that the leader tells when the log was cut there since, and goes on with other records (KIP-320).
        position: next offset to hand out. ahead: next offset to fetch. stop: first offset not wanted, None to follow.
        turn: counts seeks: what was fetched before the last one is dropped.
        fetching: a Fetch that names it is under way. asked_at: counts up, at the last one. held: bytes fetched and not handed out.
        max_bytes: how much to ask for; doubled when one batch does not fit.
        end: high watermark, or last stable offset for a reader of committed records, as of the last answer; -1: none yet.
        retry_at: not to be asked before. troubled_since: when its leader began to refuse, 0.0 while all is well.
        empties: answers without records in a row, though its end is further on; the first came at `empty_since` under `empty_epoch`.
        replica: node that the leader sent us to, being nearer to our rack (KIP-392), until `replica_until`; -1: the leader is asked.
    """

    __slots__ = (
        "ahead",
        "ahead_epoch",
        "asked_at",
        "empties",
        "empty_epoch",
        "empty_since",
        "end",
        "fetching",
        "held",
        "max_bytes",
        "partition",
        "paused",
        "position",
        "position_epoch",
        "replica",
        "replica_until",
        "retry_at",
        "stop",
        "topic",
        "troubled_since",
        "turn",
    )

    def __init__(self, topic: str, partition: int, start: int, stop: int | None, max_bytes: int, epoch: int = -1) -> None:
        self.topic = topic
        self.partition = partition
        self.position = start
        self.ahead = start
        self.position_epoch = self.ahead_epoch = epoch
        self.stop = stop
        self.turn = 0
        self.fetching = False
        self.held = 0
        self.max_bytes = max_bytes
        self.end = -1
        self.paused = False
        self.retry_at = 0.0
        self.troubled_since = 0.0
        self.replica = -1
        self.replica_until = 0.0
        self.asked_at = 0
        self.empties = 0
        self.empty_since = 0.0
        self.empty_epoch = -1

    @property
    def done(self) -> bool:
        return self.stop is not None and self.position >= self.stop


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one answer brought for one partition: records to decode, or the error to raise in their place."""

    cursor: Cursor
    turn: int
    start: int
    next: int
    records: Any = None
    aborted: tuple[tuple[int, int], ...] = ()
    size: int = 0
    error: WireprotoError | None = None
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class Asked:
    """A Fetch under way: its cursors with their turns, topic ids and leader epochs in use, and the most bytes that it should bring."""

    cursors: tuple[tuple[Cursor, int], ...]
    names: dict[bytes, str]
    epochs: dict[Cursor, int]
    size: int = 0


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """Sizes in bytes, times in seconds."""

    committed: bool
    max_wait: float
    min_bytes: int
    max_bytes: int
    partition_bytes: int
    largest: int
    backoff: float
    patience: float
    rack: str = ""
    replica_for: float = 300.0


class FetchPlan:
    """Cursors, and the chunks that wait to be handed out.

    Args:
        room: bytes that the client's readers may hold together; None: a bound of `max_bytes` for this plan alone.

    Attributes:
        stale: topics whose leaders must be looked up again before the next Fetch.
    """

    def __init__(self, settings: FetchSettings, room: KafkaRoom | None = None) -> None:
        self.settings = settings
        if room is None:
            room = KafkaRoom()
            room.bound(settings.max_bytes)
        self.room = room
        self._asked_at: dict[int, int] = {}
        self._turns = 0
        self.cursors: dict[TopicPartition, Cursor] = {}
        self.stale: set[str] = set()
        self._chunks: deque[Chunk] = deque()
        self._held = 0

    def add(self, topic: str, partition: int, start: int, stop: int | None = None, *, epoch: int = -1) -> Cursor:
        """Read a partition from `start`; `epoch` is that of the last batch before it, where it is known."""
        cursor = self.cursors[topic, partition] = Cursor(topic, partition, start, stop, self.settings.partition_bytes, epoch)
        return cursor

    def remove(self, key: TopicPartition) -> None:
        """Stop reading a partition; what was fetched of it is dropped."""
        cursor = self.cursors.pop(key, None)
        if cursor is not None:
            cursor.turn += 1
            self._drop_stale()

    def seek(self, key: TopicPartition, offset: int) -> None:
        """Go on from there; what was fetched of this partition is dropped."""
        cursor = self.cursors[key]
        cursor.turn += 1
        cursor.position = cursor.ahead = offset
        cursor.position_epoch = cursor.ahead_epoch = -1
        cursor.retry_at = cursor.troubled_since = 0.0
        cursor.empties = 0
        self._drop_stale()

    def _drop_stale(self) -> None:
        kept = [chunk for chunk in self._chunks if chunk.turn == chunk.cursor.turn]
        for chunk in self._chunks:
            if chunk.turn != chunk.cursor.turn:
                self._give_back(chunk)
        self._chunks = deque(kept)

    def _give_back(self, chunk: Chunk) -> None:
        chunk.cursor.held -= chunk.size
        self._count(-chunk.size)

    def _count(self, size: int) -> None:
        self._held += size
        self.room.add(size)

    def close(self) -> None:
        """Drop everything."""
        self._chunks.clear()
        self._count(-self._held)

    def __del__(self) -> None:
        self.close()

    @property
    def done(self) -> bool:
        return all(cursor.done for cursor in self.cursors.values())

    def due(self, leader: Callable[[str, int], int | None], busy: Iterable[int], now: float) -> dict[int, list[Cursor]]:
        """Partitions to ask for now, by node; those without a known leader make their topic stale.

        Args:
            leader: the node to ask for a topic's partition: its cursor's `replica` where that is known, else the leader.
        """
        asked: dict[int, list[Cursor]] = {}
        occupied = set(busy)
        for cursor in self.cursors.values():
            if cursor.fetching or cursor.paused or now < cursor.retry_at or cursor.held >= cursor.max_bytes:
                continue
            if cursor.stop is not None and cursor.ahead >= cursor.stop:
                continue
            if cursor.replica >= 0 and now >= cursor.replica_until:
                cursor.replica = -1
            node = leader(cursor.topic, cursor.partition)
            if node is None:
                self.stale.add(cursor.topic)
            elif node not in occupied:
                asked.setdefault(node, []).append(cursor)
        spare = self.room.limit - self.room.held
        free = not occupied and all(chunk.cursor.paused for chunk in self._chunks)
        for node in sorted(asked, key=lambda node: self._asked_at.get(node, 0)):
            if self._most(asked[node]) > spare:
                asked[node] = self._fitting(asked[node], spare, free)
            if not asked[node]:
                del asked[node]
                continue
            self._turns += 1
            self._asked_at[node] = self._turns
            spare, free = spare - self._most(asked[node]), False
        return asked

    def _fitting(self, cursors: list[Cursor], spare: int, free: bool) -> list[Cursor]:
        """As many as fit, those first that were not asked for longest; one in any case where `free`."""
        order = sorted(cursors, key=lambda cursor: cursor.asked_at)
        while order and self._most(order) > spare and not (free and len(order) == 1):
            order.pop()
        return order

    def _most(self, cursors: Sequence[Cursor]) -> int:
        """Bytes that a Fetch of these should bring at most; a single batch may be larger."""
        return min(self.settings.max_bytes, sum(cursor.max_bytes for cursor in cursors))

    def wakeup(self, now: float) -> float:
        """When a refused partition may be asked for again; infinity when none is."""
        return min(
            (c.retry_at for c in self.cursors.values() if not c.fetching and not c.paused and c.retry_at > now), default=float("inf")
        )

    def request(
        self,
        cursors: Sequence[Cursor],
        ids: Callable[[str], bytes],
        epoch: Callable[[str, int], int],
        *,
        crowded: bool,
        checked: bool = True,
    ) -> tuple[FetchRequest, Asked]:
        """The Fetch for these partitions, which count as under way from now on.

        Args:
            ids, epoch: topic ids (zeros: not known) and leader epochs.
            crowded: other partitions of the leader wait for room: come back soon rather than wait for news.
            checked: whether the leader can be asked to look at the epoch before `ahead` (Fetch v12).
        """
        settings = self.settings
        topics: dict[str, list[FetchPartition]] = {}
        for cursor in cursors:
            cursor.fetching = True
            cursor.asked_at = self._turns
            topics.setdefault(cursor.topic, []).append(
                FetchPartition(
                    partition=cursor.partition,
                    current_leader_epoch=epoch(cursor.topic, cursor.partition),
                    fetch_offset=cursor.ahead,
                    last_fetched_epoch=cursor.ahead_epoch if checked else -1,
                    partition_max_bytes=cursor.max_bytes,
                )
            )
        request = FetchRequest(
            max_wait_ms=20 if crowded else int(settings.max_wait * 1000),
            min_bytes=settings.min_bytes,
            max_bytes=max(settings.max_bytes, *(cursor.max_bytes for cursor in cursors)),
            isolation_level=int(settings.committed),
            session_id=0,
            session_epoch=-1,
            topics=tuple(FetchTopic(topic=name, topic_id=ids(name), partitions=tuple(parts)) for name, parts in topics.items()),
            rack_id="" if any(cursor.empties for cursor in cursors) else settings.rack,  # in doubt the leader itself has to say
        )
        names = {topic.topic_id: topic.topic for topic in request.topics}
        size = self._most(cursors)
        self._count(size)
        epochs = {cursor: epoch(cursor.topic, cursor.partition) for cursor in cursors}
        return request, Asked(tuple((cursor, cursor.turn) for cursor in cursors), names, epochs, size)

    def failed(self, asked: Asked, now: float) -> None:
        """No answer came: ask again, of whoever leads then."""
        self._count(-asked.size)
        for cursor, _ in asked.cursors:
            cursor.fetching = False
            cursor.replica = -1
            cursor.retry_at = now + self.settings.backoff
            self.stale.add(cursor.topic)

    def answer(self, asked: Asked, reply: FetchResponse, version: int, now: float) -> None:
        """Take in an answer: chunks, positions, and who has to be looked up again."""
        self._count(-asked.size)
        turns = {(cursor.topic, cursor.partition): (cursor, turn) for cursor, turn in asked.cursors}
        for cursor, _ in asked.cursors:
            cursor.fetching = False
        if reply.error_code:
            self._refused_all(asked, reply.error_code, now)
            return
        nothing = not reply.throttle_time_ms and not any(part.records for topic in reply.responses for part in topic.partitions)
        for topic in reply.responses:
            name = topic.topic if version < _BY_ID else asked.names.get(topic.topic_id)
            for part in topic.partitions:
                entry = turns.get((name or "", part.partition_index))
                if entry is not None and entry[0].turn == entry[1]:
                    self._take(entry[0], part, now, asked.epochs[entry[0]], nothing=nothing)

    def _refused_all(self, asked: Asked, code: int, now: float) -> None:
        for cursor, turn in asked.cursors:
            if cursor.turn == turn:
                self._refused(cursor, code, now)

    def _take(self, cursor: Cursor, part: FetchPartitionData, now: float, leader_epoch: int, *, nothing: bool) -> None:
        """One partition's share. `leader_epoch`: that it was asked under. `nothing`: the whole answer has no records."""
        if part.error_code:
            if cursor.replica >= 0:  # the leader knows better what is wrong, if anything is
                cursor.replica = -1
                cursor.retry_at = now + self.settings.backoff
            else:
                self._refused(cursor, part.error_code, now)
            return
        cursor.troubled_since = 0.0
        if part.diverging_epoch.end_offset >= 0:
            self._cut(cursor, part.diverging_epoch.epoch, part.diverging_epoch.end_offset)
            return
        if part.preferred_read_replica >= 0 and part.preferred_read_replica != cursor.replica:
            cursor.replica = part.preferred_read_replica
            cursor.replica_until = now + self.settings.replica_for
            if not part.records:
                return  # nothing is said of what the log holds
        stable = part.last_stable_offset
        cursor.end = stable if self.settings.committed and stable >= 0 else part.high_watermark
        size = len(part.records) if part.records is not None else 0
        if not size:
            if nothing and cursor.stop is not None and cursor.ahead < cursor.end:
                self._empty(cursor, leader_epoch, now)
            return
        cursor.empties = 0
        following, epoch = kafka_section_end(part.records)
        if following < 0:
            self._too_large(cursor)
            return
        if following <= cursor.ahead:
            problem = Malformed(f"the broker sent records up to offset {following} only when asked for {cursor.ahead}")
            self._push(Chunk(cursor, cursor.turn, cursor.ahead, cursor.ahead, error=problem))
            return
        aborted = tuple((entry.producer_id, entry.first_offset) for entry in part.aborted_transactions or ())
        self._push(Chunk(cursor, cursor.turn, cursor.ahead, following, part.records, aborted, size, epoch=epoch))

    def _cut(self, cursor: Cursor, epoch: int, end: int) -> None:
        """The leader's log parts from what was read: after an unclean election, or with a disk that was lost."""
        problem = DataLoss(
            f"the log was cut: for leader epoch {epoch} it ends at offset {end} now, and was read up to {cursor.ahead}; seek to go on",
            topic=cursor.topic,
            partition=cursor.partition,
            diverges_at=end,
        )
        self._push(Chunk(cursor, cursor.turn, cursor.ahead, cursor.ahead, error=problem))

    def _empty(self, cursor: Cursor, epoch: int, now: float) -> None:
        """It had nothing, though there is more of the log. What a replica says of that does not count."""
        cursor.retry_at = now + self.settings.backoff
        if not cursor.empties or epoch != cursor.empty_epoch:
            cursor.empties, cursor.empty_since, cursor.empty_epoch = 0, now, epoch
        cursor.empties += 1
        cursor.replica = -1

    def doubted(self, now: float) -> Cursor | None:
        """A partition that had nothing for a while, though its end is further on: `settle` it."""
        found = (c for c in self.cursors.values() if c.empties >= _DOUBT_TIMES and now - c.empty_since >= _DOUBT_TIME and not c.paused)
        return next(found, None)

    def settle(self, cursor: Cursor, turn: int, local: int, epoch: int) -> None:
        """Where the leader's own disk begins (-1: there is no other storage), under this leader epoch. What lies before is elsewhere, and
        slow; what it does not find on its own disk is not there any more."""
        if cursor.turn != turn or not cursor.empties or cursor.stop is None:
            return
        gone = local <= cursor.ahead and epoch == cursor.empty_epoch
        cursor.empties = 0
        if gone:
            self._push(Chunk(cursor, cursor.turn, cursor.ahead, min(cursor.end, cursor.stop)))

    def _push(self, chunk: Chunk) -> None:
        chunk.cursor.ahead = chunk.next
        if chunk.error is None:
            chunk.cursor.ahead_epoch = chunk.epoch
        chunk.cursor.held += chunk.size
        self._count(chunk.size)
        self._chunks.append(chunk)
        if chunk.error is not None:
            chunk.cursor.retry_at = float("inf")  # until it was raised

    def _too_large(self, cursor: Cursor) -> None:
        """One batch does not fit into what was asked for (Fetch before v3)."""
        if cursor.max_bytes >= self.settings.largest:
            problem = FrameTooLarge(f"a record batch is larger than {self.settings.largest} bytes")
            self._push(Chunk(cursor, cursor.turn, cursor.ahead, cursor.ahead, error=problem))
            return
        cursor.max_bytes = min(cursor.max_bytes * 2, self.settings.largest)

    def _refused(self, cursor: Cursor, code: int, now: float) -> None:
        problem = error(code, message="FetchResponse", topic=cursor.topic, partition=cursor.partition)
        cursor.retry_at = now + self.settings.backoff
        if problem.refresh:
            self.stale.add(cursor.topic)
        if not cursor.troubled_since:
            cursor.troubled_since = now
        if problem.retriable and not (code == _UNKNOWN_TOPIC and now - cursor.troubled_since > self.settings.patience):
            return
        self._push(Chunk(cursor, cursor.turn, cursor.ahead, cursor.ahead, error=problem))

    def pop(self) -> Chunk | None:
        """The next chunk to hand out, of a partition that is not paused."""
        for index, chunk in enumerate(self._chunks):
            if not chunk.cursor.paused:
                del self._chunks[index]
                self._give_back(chunk)
                if chunk.error is not None:
                    chunk.cursor.retry_at = 0.0
                return chunk
        return None

    def put_back(self, chunk: Chunk) -> None:
        """It could not be handed out after all."""
        chunk.cursor.held += chunk.size
        self._count(chunk.size)
        self._chunks.appendleft(chunk)

    def moved(self, chunk: Chunk, position: int) -> None:
        """Its records were handed out, up to `position`."""
        if chunk.turn == chunk.cursor.turn:
            chunk.cursor.position = position
            chunk.cursor.position_epoch = chunk.epoch if position == chunk.next else -1

    def leader_changed(self, topics: Iterable[str]) -> None:
        """Leaders of these topics are known anew: no need to wait before asking them."""
        self.stale.difference_update(topics)
