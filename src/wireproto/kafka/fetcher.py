"""Fetches on the wire: the hands of the fetch plan, for readers and consumers.

What it is: connections of its own to each leader (bulk never shares one with calls that must answer), one Fetch under way on each, sent
ahead; answers wait in the kernel's buffer until the owner's thread comes for the next batch. Decoding happens in that thread, one chunk
at a time, when it is handed out.
May assume: one thread at a time. Must not: know groups, or what to start and stop at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .._codec import decode_kafka
from .._net import Mailbox
from ..errors import AuthError, BrokerError, ProtocolError, TimedOut, TlsError, TransportError, WireprotoError
from ..flow.ahead import Ask, Ticket
from ..net.errand import Errand
from ..net.retry import Policy, Verdict, verdict
from ..position import LogOffset
from ..records import Batch
from . import positions, wire
from .fetch import Asked, Chunk, Cursor, Fetches, FetchSettings
from .messages import FetchRequest
from .metadata import NO_ID

if TYPE_CHECKING:
    from .._net import Call
    from ..url import Address
    from .cluster import KafkaCluster
    from .metadata import Metadata
    from .options import KafkaOptions

_BY_ID, _CHECKED = 13, 12
_LOOK = 5.0
_LOOK_AGAIN = 0.1
_LOOK_EVERY = 1.0
"""Seconds between two looks at who leads what is asked of a node that keeps silent, or cannot be reached yet."""
_SILENT = 2.0
"""Seconds beyond `max_wait` after which a node that owes an answer counts as silent."""
_GLANCE = 0.02
"""Seconds that a poll waits for a connection while Fetches to other nodes are under way; dialling goes on behind."""
_AGAIN = Policy(first=0.1, factor=2.0, ceiling=1.0, jitter=0.2)
WAKE = "wake"
"""Put into the box by `wake`: the poll returns though nothing came."""


class Fetcher:
    """Batches of the plan's partitions, which are handed out in turn.

    Attributes:
        asking: adds cursors. plan: those may be removed and sought at any time between polls.
    """

    def __init__(self, cluster: KafkaCluster, options: KafkaOptions, purpose: str) -> None:
        self._cluster = cluster
        self._options = options
        self._purpose = purpose
        self._box = Mailbox(cluster.loop)
        self._errand = Errand(cluster.loop, options.request_timeout)
        self._doubt = Errand(cluster.loop, options.request_timeout)
        self._calls: dict[int, Call] = {}
        self._down: dict[int, float] = {}
        self._dialling: dict[Address, float] = {}
        self._overdue: dict[int, float] = {}  # when to doubt that a node will answer
        self._failing_since = 0.0
        self._problem: WireprotoError | None = None
        self._topics = cluster.metadata.topics  # replaced when anything of them is news
        self.asking = Fetches(
            FetchSettings(
                committed=options.isolation == "committed",
                max_wait=options.max_wait,
                min_bytes=options.min_bytes,
                max_bytes=options.max_bytes,
                partition_bytes=options.partition_bytes,
                largest=min(cluster.frame_cap - (1 << 16), 0x7FFFFFFF),
                backoff=_AGAIN,
                patience=options.topic_patience,
                trouble=options.request_timeout,
                rack=options.rack,
                replica_for=options.metadata_max_age,
            ),
            leaders(cluster.metadata),
            cluster.fetch_room,
            cluster.metadata.problem,
        )
        self.plan = self.asking.plan

    def poll(self, deadline: float) -> Batch | None:
        """The next batch that has records; None when none came until `deadline`, or the plan is done.

        Raises:
            what the partition's leader answered; what cannot be decoded, with topic, partition and position; TransportError when no
            leader could be reached for `request_timeout` seconds.
        """
        while True:
            taken = self.plan.take()
            if taken:
                chunk = taken[0]
                if chunk.error is not None:
                    raise chunk.error.with_context(position=chunk.cursor.position)
                self._send_ahead(deadline, patient=False)
                batch = self._decode(chunk)
                if len(batch):
                    return batch
                continue
            if self.plan.done:
                return None
            self._send_ahead(deadline, patient=True)
            item: Any = self._box.get(min(deadline, self._due()))
            if item is WAKE:
                return None
            if item is not None:
                self._take(item)
            elif time.monotonic() >= deadline:
                return None

    def _due(self) -> float:
        """When there may be something to send though no answer came: after a pause, and while leaders have to be looked up."""
        now = time.monotonic()
        pauses = (until for until in self._down.values() if until > now)
        self._dialling = {to: since for to, since in self._dialling.items() if self._cluster.pool.dialling(to, self._purpose)}
        again = now + _LOOK_AGAIN if self.asking.stale or self._dialling else float("inf")
        return min(self.plan.wakeup(now), again, *self._overdue.values(), *pauses)

    def wake(self) -> None:
        """Make a poll in another thread return now (from the keeper)."""
        self._box.put(WAKE)

    def _decode(self, chunk: Chunk) -> Batch:
        """The chunk's records from the cursor on. What the core leaves for a later call (behind it something cannot be read, or its
        bound on unpacking was reached) goes back to be handed out next."""
        cursor, options = chunk.cursor, self._options
        start = max(chunk.start, cursor.position)
        try:
            columns, following = decode_kafka(
                chunk.records,
                topic=cursor.topic,
                partition=cursor.partition,
                fetch_offset=start,
                aborted=chunk.aborted,
                isolation_committed=options.isolation == "committed",
                check_crc=options.check_crc,
                stop=cursor.stop,
                on_corrupt=options.on_bad,
                facts=options.facts,
                columns=options.columns,
            )
        except ProtocolError as why:
            self.plan.seek((cursor.topic, cursor.partition), cursor.position)  # the next poll meets it again, unless the caller seeks on
            why.with_context(topic=cursor.topic, partition=cursor.partition, position=cursor.position)
            raise
        for problem in columns.skipped:
            self._cluster.told.skipped(cursor.topic, cursor.partition, problem.position, problem)
        position = following if chunk.records is not None else chunk.next
        end = chunk.next if cursor.stop is None else min(chunk.next, cursor.stop)
        if start < position < end:
            self.plan.put_back(replace(chunk, start=position))
        else:
            position = end
        self.plan.moved(chunk, position)
        return Batch(cursor.topic, cursor.partition, columns, LogOffset(cursor.topic, cursor.partition, position))

    # --- sending ---

    def _send_ahead(self, deadline: float, *, patient: bool) -> None:
        """Send what is due; look leaders up and connect only when there is nothing to hand out meanwhile (`patient`)."""
        asking = self.asking
        if patient:
            self._doubt_silent(time.monotonic())
            if asking.stale:
                self._look_up(deadline)
        if self._cluster.metadata.topics is not self._topics:
            self._topics = self._cluster.metadata.topics
            self.plan.relink(asking)
        if patient:
            if not self._calls:
                self.plan.nothing_out()  # a signal handler may have come between the asking and the sending
            doubted = asking.doubted(time.monotonic())
            if doubted is not None:
                self._settle(doubted, deadline)
        now = time.monotonic()
        self._send_all(asking.due(now, lambda node: node in self._calls or self._closed(node)), deadline)
        if patient:
            self._send_all(asking.due(now, lambda node: node in self._calls or self._down.get(node, 0.0) > now), deadline)

    def _doubt_silent(self, now: float) -> None:
        """Of what a silent node was asked, another may be the leader by now."""
        for node, when in self._overdue.items():
            if when <= now:
                self._overdue[node] = now + _LOOK_EVERY
                if node in self._calls:
                    self._look_for(self._calls[node].context.matter[1].tickets)

    def _send_all(self, asks: list[Ask[Cursor]], deadline: float) -> None:
        """Send these; what could not be sent may be asked for again."""
        unsent = asks[:]
        try:
            for ask in asks:
                if self._send(ask, deadline):
                    unsent.remove(ask)
        finally:
            for ask in unsent:
                self.asking.dropped(ask)

    def _closed(self, node: int) -> bool:
        """Whether there is no connection to this node."""
        known = self._cluster.metadata.nodes.get(node)
        return known is None or self._cluster.pool.peek(known.address, self._purpose) is None

    def _look_up(self, deadline: float) -> None:
        topics = set(self.asking.stale)
        try:
            until = min(deadline, time.monotonic() + _LOOK)
            self.asking.stale -= self._errand.ask("look", lambda late: self._refreshed(topics, late), until)
        except (TransportError, TimedOut) as why:
            self._failed(why)

    def _settle(self, cursor: Cursor, deadline: float) -> None:
        """Nothing comes of it: find out whether its records are gone, or only slow to come."""
        key, generation = cursor.key, cursor.generation

        def look(late: float) -> tuple[int, int]:
            local = self._cluster.drive(positions.earliest_local(self._cluster, key, late), late)
            return local, self._cluster.metadata.epoch(*key)

        try:
            local, epoch = self._doubt.ask((key, generation), look, min(deadline, time.monotonic() + _LOOK))
        except (TransportError, TimedOut) as why:
            self._failed(why)
        except BrokerError as why:
            if verdict(why) is Verdict.NEVER:
                raise
            self.asking.stale.add(cursor.topic)
        else:
            self.asking.settle(cursor, generation, local, epoch)

    def _refreshed(self, topics: set[str], deadline: float) -> set[str]:
        self._cluster.refresh(topics, deadline)
        return topics

    def _send(self, ask: Ask[Cursor], deadline: float) -> bool:
        """Send a Fetch; whether it was."""
        cluster, node = self._cluster, ask.link
        known = cluster.metadata.nodes.get(node)
        if known is None:  # somebody else's metadata came meanwhile
            self._look_for(ask.tickets)
            return False
        try:
            conn = cluster.pool.peek(known.address, self._purpose)
            if conn is None:
                until = min(deadline, time.monotonic() + (_GLANCE if self._calls else _LOOK))
                conn = cluster.node_connection(node, self._purpose, until)
            topics = cluster.metadata.topics
            by_id = all(name in topics and topics[name].id != NO_ID for name in {ticket.cursor.topic for ticket in ask.tickets})
            version = wire.version_for(conn, FetchRequest, None if by_id else _BY_ID - 1)
            request, asked = self.asking.request(
                ask, lambda name: topics[name].id if name in topics else NO_ID, cluster.metadata.epoch, checked=version >= _CHECKED
            )
            self._dialling.pop(known.address, None)
            soon = time.monotonic() + self._options.max_wait
            self._overdue[node] = soon + _SILENT
            late = soon + self._options.request_timeout
            self._calls[node] = wire.submit(conn, request, mailbox=self._box, timeout_at=late, version=version, matter=(node, asked))
        except (TransportError, TimedOut) as why:
            if isinstance(why, TimedOut) and cluster.pool.dialling(known.address, self._purpose):
                self._wait_for(known.address, ask)
                return False  # it goes on: a later poll finds the connection open
            self._down[node] = time.monotonic() + 0.2
            self._look_for(ask.tickets)
            self._failed(why)
            return False
        return True

    def _wait_for(self, address: Address, ask: Ask[Cursor]) -> None:
        """A connection is long in coming; its failure may pass unseen. Somebody else may lead by now."""
        now = time.monotonic()
        if now - self._dialling.setdefault(address, now) > _LOOK_EVERY:
            self._dialling[address] = now
            self._look_for(ask.tickets)

    def _look_for(self, tickets: Iterable[Ticket[Cursor]]) -> None:
        """Look up who leads these by now."""
        self.asking.stale.update(ticket.cursor.topic for ticket in tickets)

    def _failed(self, why: WireprotoError) -> None:
        """No leader within reach: go on trying for a while."""
        now = time.monotonic()
        self._problem = why
        self._failing_since = self._failing_since or now
        if isinstance(why, AuthError | TlsError) or now - self._failing_since > self._options.request_timeout:
            self._failing_since = 0.0
            raise why
        self._cluster.pause(0.02)

    # --- answers ---

    def _take(self, call: Call) -> None:
        node, asked = call.context.matter
        if self._calls.get(node) is call:
            self._overdue.pop(node, None)
            del self._calls[node]
        now = time.monotonic()
        asked_for: Asked = asked
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
        self._down.pop(node, None)
        self._cluster.throttled(reply, call.conn)
        self.asking.answer(asked_for, reply, call.context.version, now)

    def close(self) -> None:
        """Give up what is under way."""
        for call in self._calls.values():
            call.cancel()
        self._calls.clear()
        self._overdue.clear()
        self.plan.close()
        self._box.close()


def leaders(metadata: Metadata) -> Callable[[Cursor], int | None]:
    """The node to ask: a replica that the leader sent us to, or the leader."""

    def leader(cursor: Cursor) -> int | None:
        if cursor.replica in metadata.nodes:
            return cursor.replica
        node = metadata.leader(*cursor.key)
        return None if node is None else node.id

    return leader
