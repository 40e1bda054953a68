"""Sends the Fetches of a fetch plan and takes in the responses, for readers and consumers.

Has connections of its own to each leader (bulk never shares one with calls that must answer), with one Fetch in flight on each, sent
ahead; responses wait in the kernel's buffer until the owner's thread comes for the next batch. That thread decodes, one chunk at a time,
when the chunk is returned. Connections and leaders are found by tasks of the client, whose ends are put into the mailbox, too, so that a
poll waits for nothing else. One thread at a time. Knows no groups, nor what to start and stop at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from .._codec import Columns, KafkaChunk, KafkaFetcherCore
from .._net import Mailbox
from ..errors import AuthError, BrokerError, ProtocolError, TimedOut, TlsError, TransportError, WireprotoError
from ..flow.ahead import PlannedFetch, ReadAhead, Ticket
from ..net.retry import Policy, Verdict, Waits, verdict
from ..net.task import Steps, Task, after
from ..position import LogOffset, TopicPartition
from ..records import Batch
from . import positions, wire
from .fetch import BY_ID, Cursor, Fetches, FetchSettings, SentFetch
from .fetch_template import FetchTemplate, plain
from .messages import FetchRequest
from .metadata import NO_ID
from .placing import Finding, Placing
from .reset import Resets

if TYPE_CHECKING:
    from .._net import Call, Connection
    from ..flow.resolve import Request
    from ..url import Address
    from .cluster import KafkaCluster
    from .metadata import Metadata
    from .options import KafkaOptions

_LOOK_EVERY = 1.0
"""Seconds between two metadata refreshes for partitions of a node that does not answer, or cannot be reached yet."""
_SILENT = 2.0
"""Seconds beyond `max_wait` after which a node that owes a response counts as silent."""
_FULL = 0.01
"""Seconds for which planning is skipped while there are records to return and every node had a Fetch in flight."""
_DOWN = 0.2
"""Seconds for which a node that could not be reached is left alone; for a throttled one the quota's own time holds."""
_AGAIN = Policy(first=0.1, factor=2.0, ceiling=1.0, jitter=0.2)
WAKE = "wake"
"""Put into the mailbox by `wake`: the poll returns though nothing came."""
TASK_ENDED = "news"
"""Put into the mailbox when a task has ended: the poll looks at it."""


class Fetcher(KafkaFetcherCore):
    """Returns the batches of the plan's partitions, in turn. Decoding is in the core, and `poll` where one partition is followed.

    Attributes:
        asking: adds cursors.
        plan: those may be removed and sought at any time between polls.
        placing: partitions that join them once they have a leader.
        placed: the offsets at which those began that have joined.
    """

    asking: Fetches
    plan: ReadAhead[Cursor, KafkaChunk]

    def __init__(self, cluster: KafkaCluster, options: KafkaOptions, purpose: str) -> None:
        self._cluster, self._metadata = cluster, cluster.metadata
        self._options = options
        self._offsets, self._batches, self._columns = LogOffset, Batch, options.columns
        self._committed, self._nearest = options.isolation == "committed", options.reset == "nearest"
        self._check_crc, self._skip, self._facts = options.check_crc, options.on_corrupt == "skip", options.facts
        self._max_wait, self._request_timeout, self._silent = options.max_wait, options.request_timeout, _SILENT
        self._purpose = purpose
        self._box = Mailbox(cluster.loop)
        self._calls: dict[int, Call] = {}
        self._down: dict[int, float] = {}
        self._dialling: dict[Address, tuple[Task[Connection], PlannedFetch[Cursor]]] = {}
        self._overdue: dict[int | Address, float] = {}  # when to doubt that a node will answer, or an address be reached
        self._looking: tuple[Task[None], set[str]] | None = None
        self._settling: tuple[Task[int], Cursor, int] | None = None
        self._template: FetchTemplate | None = None
        self._look_at = 0.0
        self._waits = Waits(_AGAIN)
        self._failing_since = 0.0
        self._problem: WireprotoError | None = None
        self._followed = ""
        self._follow_at = float("inf")
        self._topics = cluster.metadata.topics  # the metadata's: another object after any change
        self._idle = False  # planning found a node that could be asked
        self._full: tuple[set[int], float] = set(), 0.0  # the nodes with a Fetch in flight when none was idle, and until when that holds
        self.asking = Fetches(
            FetchSettings(
                committed=options.isolation == "committed",
                max_wait=options.max_wait,
                min_bytes=options.min_bytes,
                max_bytes=options.max_bytes,
                partition_bytes=options.partition_bytes,
                largest=min(cluster.frame_cap - (1 << 16), 0x7FFFFFFF),
                backoff=_AGAIN,
                unknown_topic_timeout=options.unknown_topic_timeout,
                trouble=options.request_timeout,
                rack=options.rack,
                replica_for=options.metadata_max_age,
            ),
            leaders(cluster.metadata),
            cluster.fetch_budget,
            cluster.metadata.problem,
            cluster.hint,
        )
        self.plan = self.asking.plan
        self.placed: dict[TopicPartition, int] = {}
        self.placing = Placing(cluster, options, partial(self._box.put, TASK_ENDED))
        self._resets = Resets(cluster, options, self.plan, partial(self._box.put, TASK_ENDED))

    def place(self, key: TopicPartition, offset: int) -> None:
        """Begin to read, at this offset, a partition that had no leader before."""
        self.asking.add(*key, offset).paused = key in self.placing.paused
        self.placing.forget(key)

    def place_later(
        self, requests: Mapping[TopicPartition, Request], reasons: Mapping[TopicPartition, WireprotoError], finding: Finding
    ) -> None:
        """Read these partitions from these places once their leaders answer; what was fetched of them is dropped. See `Placing.add`."""
        for key in requests:
            if key in self.plan.cursors and self.plan.cursors[key].paused:
                self.placing.paused.add(key)
        self.placing.add(requests, reasons, finding)
        for key in requests:
            self.plan.remove(key)

    def follow(self, topic: str) -> None:
        """Read the partitions that a topic gets later on, too, from their beginning."""
        self._followed, self._follow_at = topic, time.monotonic() + self._options.metadata_max_age

    def _handed_out(self) -> Batch | None:
        """Return the next batch with records of those that have come; None: there is none."""
        while taken := self.plan.take():
            chunk = taken[0]
            if chunk.error is not None:
                if self._resets.take(chunk.cursor, chunk.error):
                    continue
                raise chunk.error.with_context(position=chunk.cursor.position)
            try:
                self._send_ahead(patient=False)
            except BaseException:
                self.plan.put_back(chunk)
                raise
            batch = self._decode(chunk)
            if len(batch):
                return batch
        return None

    def polling(self, deadline: float, item: Any = None) -> Steps[Batch | None]:
        """Run `poll` as steps; `item` was taken from the mailbox before."""
        while True:
            if item is None:
                until = self._only_waits()
                if not until:
                    batch = self._handed_out()
                    if batch is not None:
                        return batch
                    if self.plan.done:
                        return None
                    self._send_ahead(patient=True)
                    until = self._due()
                yield self._box, min(deadline, until)
                item = self._box.get()
            if item is WAKE or (item is None and time.monotonic() >= deadline):
                return None
            if item is TASK_ENDED:
                self._template = None
            elif item is not None:
                batch = self._next_alone(item)
                if batch is None:
                    self._take(item)
                elif len(batch):
                    return batch
            item = None

    def _due(self) -> float:
        """Return the time of the next check if nothing arrives: the end of a pause, or when a node counts as silent."""
        now = time.monotonic()
        pauses = (until for until in self._down.values() if until > now)
        look = self._look_at if self.asking.stale and self._looking is None else float("inf")
        return min(self.plan.wakeup(now), look, self._follow_at, *self._overdue.values(), *pauses)

    def undo_poll(self, delivered: tuple[Cursor, int] | None) -> None:
        """Restore what a poll had taken, was about to ask for, or would have returned when a signal handler interrupted it.

        It comes with the next poll.

        Args:
            delivered: the plan's `delivered` when that poll began.
        """
        self._template = None
        under_way = list(self._calls.values())
        for call in under_way:
            if call.done:
                self._box.put(call)
        for session in self.asking.sessions.values():
            session.doubt()
        self.plan.only_out(ticket for call in under_way for ticket in call.context.caller_data[1].tickets)
        self.plan.renew_all()
        self.plan.take_back(delivered)

    def wake(self) -> None:
        """Make a poll in another thread return now (called in the I/O thread)."""
        self._box.put(WAKE)

    def _note(self, cursor: Cursor, columns: Columns) -> None:
        """Record the last timestamp of a batch that is returned, where a reset may need it, and log what was skipped."""
        if self._nearest and len(columns) and "timestamp" in columns.columns:
            cursor.last_time = columns[-1:].timestamps()[0] or -1
        for problem in columns.skipped:
            self._cluster.log.skipped(cursor.topic, cursor.partition, problem.position, problem)

    def _put_rest(self, chunk: KafkaChunk, position: int) -> None:
        """Put back what was not decoded, to be returned next."""
        self.plan.put_back(chunk.rest(position))

    # --- sending ---

    def _send_ahead(self, *, patient: bool) -> None:
        """Send what is due, and begin to look up what that lacks; look at doubts only when there is nothing to return (`patient`)."""
        asking = self.asking
        now = time.monotonic()
        self._collect()
        if patient:
            self._doubt_silent(now)
        if self._cluster.metadata.topics is not self._topics:
            self._topics = self._cluster.metadata.topics
            self._full = set(), 0.0
            self.plan.relink(asking)
            self._grow()
        if now >= self._follow_at:
            self._follow_at = now + self._options.metadata_max_age
            asking.stale.add(self._followed)
        if patient:
            doubted = asking.doubted(now) if self._settling is None else None
            if doubted is not None:
                self._settle(doubted)
        if not patient and not asking.stale and now < self._full[1] and self._full[0] == self._calls.keys():
            return
        self._idle = False
        asks = asking.due(now, self._busy(now))
        if not self._idle:
            self._full = set(self._calls), now + _FULL
        unsent = asks[:]
        try:
            for ask in asks:
                if self._send(ask):
                    unsent.remove(ask)
        finally:
            for ask in unsent:
                asking.dropped(ask)
        if asking.stale:
            self._look_up(now)

    def _grow(self) -> None:
        """Begin to read partitions that were added to the followed topic."""
        topic = self._topics.get(self._followed)
        for number in topic.partitions if topic is not None else ():
            key = self._followed, number
            if key not in self.plan.cursors and key not in self.placing.waiting:
                self.asking.add(self._followed, number, 0)

    def _busy(self, now: float) -> Callable[[int], bool]:
        """Return a function that says whether a node cannot be asked now."""
        nodes = self._cluster.metadata.nodes

        def busy(node: int) -> bool:
            if node in self._calls or self._down.get(node, 0.0) > now:
                return True
            if self._dialling and node in nodes and nodes[node].address in self._dialling:
                return True
            self._idle = True
            return False

        return busy

    def _doubt_silent(self, now: float) -> None:
        """Look up the leaders of what a node was asked for that is silent, or cannot be reached: another may lead by now."""
        for waiting, when in self._overdue.items():
            if when <= now:
                self._overdue[waiting] = now + _LOOK_EVERY
                if isinstance(waiting, tuple):
                    self._look_for(self._dialling[waiting][1].tickets)
                elif waiting in self._calls:
                    self._look_for(self._calls[waiting].context.caller_data[1].tickets)

    def _wake_after(self, task: Task[Any]) -> None:
        """Have the poll wake when the task ends."""
        after(task, self._box.put, TASK_ENDED)

    def _collect(self) -> None:
        """Take in the tasks that have ended. The mailbox only says that there are any, so that a signal handler may interrupt anywhere."""
        for address, (dialling, ask) in [*self._dialling.items()] if self._dialling else ():
            if dialling.done:
                self._dialled(dialling, address, ask)
        if self._looking is not None and self._looking[0].done:
            self._looked(*self._looking)
        if self._settling is not None and self._settling[0].done:
            self._settled(*self._settling)
        for key, offset in self.placing.collect():
            self.place(key, offset)
            self.placed[key] = offset
        self._resets.collect()

    def _look_up(self, now: float) -> None:
        """Begin to look up the leaders of stale topics, unless that is under way or too soon."""
        if self._looking is None and now >= self._look_at:
            topics = set(self.asking.stale)
            task = self._cluster.look(topics)
            self._wake_after(task)
            self._looking = task, topics

    def _looked(self, task: Task[None], topics: set[str]) -> None:
        """Take in the end of that look-up."""
        self._looking = None
        self._look_at = time.monotonic() + self._waits.next()  # of the next look-up: the nodes may not know the leader yet
        try:
            task.result()
        except TransportError as why:
            self._failed(why)
        else:
            self.asking.stale -= topics

    def _settle(self, cursor: Cursor) -> None:
        """Begin to find out whether a doubted partition's records are gone, or only slow to come."""
        until = time.monotonic() + self._options.request_timeout
        task = self._cluster.tasks.spawn(positions.earliest_local(self._cluster, cursor.key, until), f"settling {cursor.topic}")
        self._wake_after(task)
        self._settling = task, cursor, cursor.generation

    def _settled(self, task: Task[int], cursor: Cursor, generation: int) -> None:
        """Take in where the leader's own disk begins."""
        self._settling = None
        try:
            local = task.result()
        except TransportError as why:
            self._failed(why)
        except BrokerError as why:
            if verdict(why) is Verdict.NEVER:
                raise
            self.asking.stale.add(cursor.topic)
        else:
            self.asking.settle(cursor, generation, local, self._cluster.metadata.epoch(*cursor.key))

    def _send(self, ask: PlannedFetch[Cursor]) -> bool:
        """Send a Fetch; return whether it was sent."""
        cluster, node = self._cluster, ask.link
        known = cluster.metadata.nodes.get(node)
        if known is None:  # the node left the metadata meanwhile
            self._look_for(ask.tickets)
            return False
        conn = cluster.pool.peek(known.address, self._purpose)
        if conn is None:
            self._dial(known.address, ask)
            return False
        try:
            topics = cluster.metadata.topics
            by_id = all(name in topics and topics[name].id != NO_ID for name in {ticket.cursor.topic for ticket in ask.tickets})
            version = wire.version_for(conn, FetchRequest, None if by_id else BY_ID - 1)
            request, asked = self.asking.request(
                ask, lambda name: topics[name].id if name in topics else NO_ID, cluster.metadata.epoch, version
            )
            late = self._late(node)
            call = self._calls[node] = wire.submit(
                conn, request, mailbox=self._box, timeout_at=late, version=version, caller_data=(node, asked)
            )
        except TransportError as why:
            self._unreached(ask, why)
            return False
        if plain(request, asked, version):
            self._template = FetchTemplate.of(self._template, conn, topics, request, asked, version)
            self._template.call, self._template.until = call, self._overdue[node]
        return True

    def _late(self, node: int) -> float:
        """Note that a node is asked now, and when it will be doubted; return until when it has to answer."""
        soon = time.monotonic() + self._options.max_wait
        self._overdue[node] = soon + _SILENT
        return soon + self._options.request_timeout

    def _dial(self, address: Address, ask: PlannedFetch[Cursor]) -> None:
        """Begin to connect to a node."""
        task = self._cluster.pool.dial(address, self._purpose)
        self._wake_after(task)  # before it is noted: a signal handler may interrupt anywhere, and a noted task must wake the poll
        self._dialling[address] = task, ask
        self._overdue[address] = time.monotonic() + _LOOK_EVERY

    def _dialled(self, task: Task[Connection], address: Address, ask: PlannedFetch[Cursor]) -> None:
        """Take in how connecting ended."""
        self._overdue.pop(address, None)
        del self._dialling[address]
        try:
            task.result()
        except TransportError as why:
            self._unreached(ask, why)

    def _unreached(self, ask: PlannedFetch[Cursor], why: TransportError) -> None:
        """Leave a node alone for a while, and look up the leaders of what was to be asked: another may lead by now."""
        self._down[ask.link] = time.monotonic() + _DOWN
        self._look_for(ask.tickets)
        self._failed(why)

    def _look_for(self, tickets: Iterable[Ticket[Cursor]]) -> None:
        """Have the leaders of these partitions looked up."""
        self.asking.stale.update(ticket.cursor.topic for ticket in tickets)

    def _failed(self, why: WireprotoError) -> None:
        """Note that no leader was reached; raises the error once that has lasted for `request_timeout`, or cannot pass."""
        now = time.monotonic()
        self._problem = why
        self._failing_since = self._failing_since or now
        if isinstance(why, AuthError | TlsError) or now - self._failing_since > self._options.request_timeout:
            self._failing_since = 0.0
            raise why

    # --- answers ---

    def _take(self, call: Call) -> None:
        """Take in a finished Fetch."""
        node, asked = call.context.caller_data
        if self._template is not None and call is self._template.call:
            self._template.call = None
        if self._calls.get(node) is call:
            self._overdue.pop(node, None)
            del self._calls[node]
        now = time.monotonic()
        asked_for: SentFetch = asked
        try:
            reply = wire.result(call)
        except TransportError as why:
            if isinstance(why, TimedOut):
                call.conn.close("a Fetch was not answered in time")
            self.asking.failed(asked_for.tickets, why, now)
            self._problem = why
            return
        except ProtocolError:
            for ticket in asked_for.tickets:
                self.plan.failed(ticket, now)
            raise
        self._failing_since = 0.0
        self._waits.over()
        self._down.pop(node, None)
        self._cluster.throttled(reply, call.conn)
        if reply.throttle_time_ms:
            self._down[node] = call.conn.context.muted_until
        self.asking.answer(asked_for, reply, call.context.version, now)

    def close(self) -> None:
        """Give up the Fetches in flight, with the connections where others would wait behind them, and the sessions on the nodes."""
        waiting = [call for call in self._calls.values() if not call.done]
        for call in waiting:
            call.cancel()
        for node in [*self.asking.sessions]:
            self._leave(node)
        for call in waiting:
            self._cluster.pool.drop(call.conn, "the role was closed")
        self._calls.clear()
        self._overdue.clear()
        self.placing.drop()
        self.plan.close()
        self._box.close()

    def reset_failing(self) -> None:
        """Restart the time for which no leader was reached: the former partitions are not read any more."""
        self._failing_since = 0.0

    def rest(self) -> None:
        """Give up connections, and the sessions on the nodes: there is nothing left to read. They are made again if there is."""
        self.reset_failing()
        for node in [*self.asking.sessions]:
            self._leave(node)
        self._cluster.drop_purpose(self._purpose)

    def _leave(self, node: int) -> None:
        """End the node's session; the response is dropped."""
        end_session, known = self.asking.end_session(node), self._cluster.metadata.nodes.get(node)
        conn = self._cluster.pool.peek(known.address, self._purpose) if known is not None else None
        if end_session is not None and conn is not None:
            with suppress(WireprotoError):
                wire.submit(conn, end_session).cancel()


def leaders(metadata: Metadata) -> Callable[[Cursor], int | None]:
    """Return the function that finds the node to ask: a replica that the leader sent us to, or the leader."""

    def leader(cursor: Cursor) -> int | None:
        if cursor.replica in metadata.nodes:
            return cursor.replica
        node = metadata.leader(*cursor.key)
        return None if node is None else node.id

    return leader
