"""Finds where EARLIEST, LATEST and points in time lie in a topic now.

Opens an exclusive, non-durable subscription of its own for each question, and reads nothing: no permits are granted, and no subscription is
left behind.

    EARLIEST    GET_LAST_MESSAGE_ID of a consumer that began at the first entry says how far it is: before that entry
    LATEST      the same answer's last message
    AtTime      SEEK to the time, SUBSCRIBE again, and the same question

A broker closes the consumer over a SEEK and, where the subscription is not durable, drops the subscription as well, in a thread of its own
(PersistentSubscription.removeConsumer): the consumer that comes next may be closed over that, and what comes after it begins where it says
itself, as if there had been no SEEK. So one consumer only may follow a SEEK, and its place is believed only where it differs from the one
that it would have without; else the question is put again from another beginning, each time under a new name.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from wireproto._net import Connection
from wireproto.errors import Closed, TimedOut, WireprotoError
from wireproto.flow.resolve import Request
from wireproto.net.retry import Verdict, Waits, verdict
from wireproto.net.task import Steps
from wireproto.position import AtTime, Latest, MessageId, TopicPartition

from . import PulsarApi_pb2 as api
from .codes import ConsumerBusy
from .connection import asking
from .frames import encode
from .lookup import CONSUMER
from .places import FIRST
from .places import Place as Start
from .subscriber import RETRY, Place, places
from .subscription import EXCLUSIVE, Subscription

if TYPE_CHECKING:
    from .cluster import PulsarCluster


def finding(
    cluster: PulsarCluster, topic: str, names: Mapping[int, str], chosen: Mapping[TopicPartition, Request], deadline: float
) -> Steps[dict[TopicPartition, MessageId]]:
    """Return positions in partitions, asked for at the same time. Steps.

    Where a partition has no record at or behind the place asked for, its position is the place after the last record.

    Args:
        cluster: of the client. topic: as the user names it.
        names: full name of each partition. chosen: what is asked of each partition.
        deadline: as `time.monotonic()`.

    Raises:
        the error of the first partition that could not be asked; `known` has the positions that the others answered.
    """
    found = {key: where for key, where in chosen.items() if isinstance(where, MessageId)}
    asked = {}
    conns: set[Connection] = set()
    problem: WireprotoError | None = None
    purpose = f"positions-{cluster.next_role()}"
    try:
        for key in sorted(chosen.keys() - found.keys()):
            question = Question(cluster, names[key[1]], purpose, conns)
            task = cluster.tasks.spawn(question.put(chosen[key], deadline), f"where {key[0]}[{key[1]}] begins and ends")
            asked[key] = question, task
        for key, (question, task) in asked.items():
            try:
                if not task.done and not (yield task, deadline):
                    raise TimedOut(f"{task.name}: not done in time", peer=question.peer, message=question.message)
                place, after = task.result()
            except WireprotoError as why:
                problem = problem or why.with_context(topic=topic, partition=key[1])
            else:
                found[key] = MessageId(topic, key[1], *place, after=after)
    finally:
        for _, task in asked.values():
            task.cancel(Closed("the call that waited for it has ended"))
        for conn in conns:
            cluster.drop(conn)
    if problem is not None:
        problem.known = found
        raise problem
    return found


class Question:
    """Asks for the place in one partition; `put` may be called once.

    Attributes:
        peer, message: broker and name of the request that is in flight, or was last; None: there was none.
    """

    def __init__(self, cluster: PulsarCluster, name: str, purpose: str, conns: set[Connection]) -> None:
        self._cluster = cluster
        self._conns = conns
        self._name = name
        self._purpose = purpose
        self._conn: Connection | None = None
        self._consumer = 0
        self._first: Place | None = None
        self.peer: str | None = None
        self.message: str | None = None

    def put(self, where: Request, until: float) -> Steps[tuple[Place, bool]]:
        """Ask until there is an answer, or `until`. Steps.

        Returns:
            a place (ledger, entry), and whether the position is the one after it.

        Raises:
            PulsarError: the broker refuses. TransportError: no answer in time.
        """
        waits = Waits(RETRY)
        while True:
            try:
                end, mark = yield from (self._at(where.ms, until) if isinstance(where, AtTime) else self._ask(FIRST, until))
            except WireprotoError as why:
                pause = waits.next()
                # the consumer of an earlier attempt of ours may still be open
                if verdict(why, transient=(TimedOut, ConsumerBusy)) is Verdict.NEVER or time.monotonic() + pause >= until:
                    raise
                yield time.monotonic() + pause
            else:
                return (end, True) if isinstance(where, Latest) or mark >= end else ((mark[0], mark[1] + 1), False)
            finally:
                self._close()

    def _at(self, ms: int, until: float) -> Steps[tuple[Place, Place]]:
        """Return the place of the last message, and the place before the first one published at `ms` (milliseconds since 1970) or later."""
        while True:
            # SUBSCRIBE goes one entry back, for the case that the one named was read in part
            start = FIRST if self._first is None else (self._first[0], self._first[1] + 2, -1)
            given = _subscription()
            end, unsought = yield from self._ask(start, until, given)
            if self._first is None and unsought >= end:
                return end, unsought  # the topic is empty
            conn = self._conn
            assert conn is not None
            yield from self._send(conn, api.CommandSeek(consumer_id=self._consumer, message_publish_time=ms), until)
            self._conn = None  # the broker closes it
            end, mark = yield from self._ask(start, until, given)
            self._close()
            if mark != unsought:
                return end, mark
            # the consumer's own beginning: the place asked for, or the SEEK is forgotten; another beginning shows which
            self._first = unsought if self._first is None else None

    def _ask(self, start: Start, until: float, given: Subscription | None = None) -> Steps[tuple[Place, Place]]:
        """Subscribe at `start`, and ask how far that is."""
        cluster = self._cluster
        until = min(until, time.monotonic() + cluster.options.operation_timeout)
        broker = yield from cluster.lookup.finding(self._name, until, CONSUMER)
        conn = yield from cluster.connecting(broker, self._purpose, until)
        self._conns.add(conn)
        self._conn, self._consumer = conn, cluster.next_consumer_id()
        yield from self._send(conn, (given or _subscription()).command(self._name, self._consumer, start, 0.0), until)
        return places((yield from self._send(conn, api.CommandGetLastMessageId(consumer_id=self._consumer), until)))

    def _send(self, conn: Connection, command: Message, until: float) -> Steps[Any]:
        self.peer, self.message = conn.peer, command.DESCRIPTOR.name
        return asking(conn, command, until)

    def _close(self) -> None:
        """Close the consumer without waiting for the answer."""
        conn, self._conn = self._conn, None
        if conn is not None:
            with suppress(WireprotoError):
                conn.send(encode(api.CommandCloseConsumer(consumer_id=self._consumer, request_id=conn.next_token())))


def _subscription() -> Subscription:
    """Make a subscription with a new name, which two consumers may use one after the other."""
    return Subscription(f"positions-{uuid.uuid4().hex[:12]}", EXCLUSIVE, durable=False, create_topic=False)
