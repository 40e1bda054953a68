"""Fetches on the wire: the hands of the fetch plan, for readers and consumers.

What it is: connections of its own to each leader (bulk never shares one with calls that must answer), one Fetch under way on each, sent
ahead; answers wait in the kernel's buffer until the owner's thread comes for the next batch. Decoding happens in that thread, one chunk
at a time, when it is handed out.
May assume: one thread at a time. Must not: know groups, or what to start and stop at.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .._codec import decode_kafka
from .._net import Mailbox
from ..errors import AuthError, BrokerError, ProtocolError, TimedOut, TlsError, TransportError, WireprotoError
from ..net.errand import Errand
from ..position import LogOffset
from ..records import Batch
from . import positions, wire
from .fetch import Asked, Chunk, Cursor, FetchPlan, FetchSettings
from .messages import FetchRequest
from .metadata import NO_ID

if TYPE_CHECKING:
    from .._net import Call
    from .cluster import KafkaCluster
    from .options import KafkaOptions

_BY_ID, _CHECKED = 13, 12
_LOOK = 5.0
_LOOK_AGAIN = 0.1
WAKE = "wake"
"""Put into the box by `wake`: the poll returns though nothing came."""


class Fetcher:
    """Batches of the plan's partitions, in the order in which they arrive.

    Attributes:
        plan: cursors may be added, removed and sought at any time between polls.
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
        self._failing_since = 0.0
        self._problem: WireprotoError | None = None
        self.plan = FetchPlan(
            FetchSettings(
                committed=options.isolation == "committed",
                max_wait=options.max_wait,
                min_bytes=options.min_bytes,
                max_bytes=options.max_bytes,
                partition_bytes=options.partition_bytes,
                largest=min(cluster.frame_cap - (1 << 16), 0x7FFFFFFF),
                backoff=0.1,
                patience=options.topic_patience,
                rack=options.rack,
                replica_for=options.metadata_max_age,
            ),
            cluster.fetch_room,
        )

    def poll(self, deadline: float) -> Batch | None:
        """The next batch that has records; None when none came until `deadline`, or the plan is done.

        Raises:
            what the partition's leader answered; what cannot be decoded, with topic, partition and position; TransportError when no
            leader could be reached for `request_timeout` seconds.
        """
        while True:
            chunk = self.plan.pop()
            if chunk is not None:
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
        return min(self.plan.wakeup(now), now + _LOOK_AGAIN if self.plan.stale else float("inf"), *pauses)

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
        if patient and self.plan.stale:
            self._look_up(deadline)
        now = time.monotonic()
        doubted = self.plan.doubted(now) if patient else None
        if doubted is not None:
            self._settle(doubted, deadline)
            now = time.monotonic()
        due = self.plan.due(self._leader, self._calls, now)
        for node, cursors in due.items():
            if self._down.get(node, 0.0) <= now:
                self._send(node, cursors, deadline, patient=patient)

    def _leader(self, topic: str, partition: int) -> int | None:
        """The node to ask: a replica that the leader sent us to, or the leader."""
        cursor = self.plan.cursors.get((topic, partition))
        if cursor is not None and cursor.replica in self._cluster.metadata.nodes:
            return cursor.replica
        node = self._cluster.metadata.leader(topic, partition)
        return None if node is None else node.id

    def _look_up(self, deadline: float) -> None:
        topics = set(self.plan.stale)
        try:
            until = min(deadline, time.monotonic() + _LOOK)
            self.plan.stale -= self._errand.ask("look", lambda late: self._refreshed(topics, late), until)
        except (TransportError, TimedOut) as why:
            self._failed(why)

    def _settle(self, cursor: Cursor, deadline: float) -> None:
        """Nothing comes of it: find out whether its records are gone, or only slow to come."""
        key, turn = (cursor.topic, cursor.partition), cursor.turn

        def look(late: float) -> tuple[int, int]:
            local = positions.earliest_local(self._cluster, key, late)
            return local, self._cluster.metadata.epoch(*key)

        try:
            local, epoch = self._doubt.ask((key, turn), look, min(deadline, time.monotonic() + _LOOK))
        except (TransportError, TimedOut) as why:
            self._failed(why)
        except BrokerError as why:
            if not why.retriable:
                raise
            self.plan.stale.add(cursor.topic)
        else:
            self.plan.settle(cursor, turn, local, epoch)

    def _refreshed(self, topics: set[str], deadline: float) -> set[str]:
        self._cluster.refresh(topics, deadline)
        return topics

    def _send(self, node: int, cursors: list[Cursor], deadline: float, *, patient: bool) -> None:
        cluster = self._cluster
        known = cluster.metadata.nodes.get(node)
        if known is None:  # somebody else's metadata came meanwhile
            self.plan.stale.update(cursor.topic for cursor in cursors)
            return
        try:
            conn = cluster.pool.peek(known.address, self._purpose)
            if conn is None:
                if not patient:
                    return
                until = min(deadline, time.monotonic() + _LOOK)
                conn = cluster.node_connection(node, self._purpose, until, self._options.connect_timeout)
            topics = cluster.metadata.topics
            by_id = all(cursor.topic in topics and topics[cursor.topic].id != NO_ID for cursor in cursors)
            version = wire.version_for(conn, FetchRequest, None if by_id else _BY_ID - 1)
            theirs = sum(1 for key in self.plan.cursors if self._leader(*key) == node)
            request, asked = self.plan.request(
                cursors,
                lambda name: topics[name].id if name in topics else NO_ID,
                cluster.metadata.epoch,
                crowded=len(cursors) < theirs,
                checked=version >= _CHECKED,
            )
        except (TransportError, TimedOut) as why:
            if isinstance(why, TimedOut) and cluster.pool.dialling(known.address, self._purpose):
                return  # it goes on: a later poll finds the connection open
            self._down[node] = time.monotonic() + 0.2
            self.plan.stale.update(cursor.topic for cursor in cursors)
            self._failed(why)
            return
        try:
            timeout_at = time.monotonic() + self._options.request_timeout + self._options.max_wait
            self._calls[node] = wire.submit(conn, request, mailbox=self._box, timeout_at=timeout_at, version=version, matter=(node, asked))
        except TransportError as why:
            self.plan.failed(asked, time.monotonic())
            self._failed(why)

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
            del self._calls[node]
        now = time.monotonic()
        asked_for: Asked = asked
        try:
            reply = wire.result(call)
        except TransportError as why:
            if isinstance(why, TimedOut):
                call.conn.close("a Fetch was not answered in time")
            self.plan.failed(asked_for, now)
            self._problem = why
            return
        except ProtocolError:
            self.plan.failed(asked_for, now)
            raise
        self._failing_since = 0.0
        self._down.pop(node, None)
        self.plan.answer(asked_for, reply, call.context.version, now)

    def close(self) -> None:
        """Give up what is under way."""
        for call in self._calls.values():
            call.cancel()
        self._calls.clear()
        self.plan.close()
        self._box.close()
