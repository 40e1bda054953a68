"""One partition's consumer: SUBSCRIBE, permits, and what the broker says about it.

    permits   FLOW grants messages, not entries, and grants add up; a batch that is larger than what is left comes whole. What arrived is
              counted when it is handed over; when less than half of what the window holds (by average size) is left, more is granted.

What it is: the state of one consumer id. Belongs to its role's thread. Must not: wait for messages (`feed` does), or decode them.
"""

from __future__ import annotations

import math
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from google.protobuf.message import Message

from wireproto._net import Call, Connection, Mailbox, consumer_channel
from wireproto.errors import Disconnected, TimedOut, WireprotoError
from wireproto.net.errand import Errand
from wireproto.net.retry import Policy, Verdict, Waits, verdict

from . import PulsarApi_pb2 as api
from .codes import ConsumerBusy
from .connection import Broker, ask
from .frames import encode, message_id, reply_body

if TYPE_CHECKING:
    from .cluster import PulsarCluster

FIRST_PERMITS = 1000
MOST_PERMITS = 200_000
RETRY = Policy(first=0.1, factor=2.0, ceiling=5.0, jitter=0.2)
LOOKED_UP = 5.0
"""Seconds for which a look-up holds good, among attempts to attach that run out of time."""

EXCLUSIVE = api.CommandSubscribe.Exclusive
SHARED = api.CommandSubscribe.Shared
FAILOVER = api.CommandSubscribe.Failover
KEY_SHARED = api.CommandSubscribe.Key_Shared


@dataclass(frozen=True, slots=True)
class Subscription:
    """What SUBSCRIBE says, the same for every partition of a role.

    Attributes:
        name: of the subscription.
        kind: CommandSubscribe.SubType.
        durable: whether the broker keeps its position.
        initial: CommandSubscribe.InitialPosition of a new durable subscription.
        since: milliseconds at which a new durable subscription begins, None: at `initial`.
    """

    name: str
    kind: int
    durable: bool = True
    initial: int = 1
    since: int | None = None
    consumer_name: str | None = None
    priority: int | None = None
    read_compacted: bool = False
    create_topic: bool = True
    properties: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Lost:
    """Put into a role's mailbox when one of its connections is gone."""

    conn: Connection
    why: Exception


class PartitionConsumer:
    """A consumer on one partition.

    Args:
        topic, partition: as the user names them.
        name: full name of the partition.
        window: bytes of messages that may be on their way or unread.
    """

    def __init__(
        self,
        cluster: PulsarCluster,
        topic: str,
        partition: int,
        name: str,
        subscription: Subscription,
        box: Mailbox,
        window: int,
        purpose: str,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.name = name
        self.subscription = subscription
        self.id = 0
        self.conn: Connection | None = None
        self.frames: deque[bytes] = deque()
        self.start: tuple[int, int, int] | None = None
        """Of a subscription that is not durable: begins after (ledger, entry) with index -1, at the entry with another index."""
        self.active = True
        self.told = True
        self.ended = False
        self.paused = False
        self.retired = False
        self.retry_at = 0.0
        self._cluster = cluster
        self._box = box
        self._window = window
        self._purpose = purpose
        self._permits = 0
        self._size = 0.0
        self._waits = Waits(RETRY)
        self._failing_since: float | None = None
        self._known = False
        self._where: tuple[Broker, float] | None = None
        self._errand = Errand(cluster.loop, cluster.options.connect_timeout)
        self._asked: tuple[Call, float] | None = None
        self.trouble: WireprotoError | None = None
        """Why the last attempt to attach failed."""

    # -- attaching ----------------------------------------------------------------------------------------------

    @property
    def channel(self) -> int:
        """Where the engine routes this consumer's frames."""
        return consumer_channel(self.id)

    @property
    def link(self) -> Connection | None:
        """The connection of the consumer that is attached, or asked for."""
        return self._asked[0].conn if self._asked is not None else self.conn

    @property
    def asked(self) -> bool:
        """Whether a SUBSCRIBE is on its way: `attach` goes on with it."""
        return self._asked is not None

    def ask(self, deadline: float) -> Connection:
        """Look the partition up and send SUBSCRIBE there. Each has a consumer id of its own, so that nothing old is taken for new."""
        self.id = self._cluster.next_consumer_id()
        cluster = self._cluster
        conn = cluster.connection(self._broker(deadline), deadline, self._purpose)
        conn.route(self.channel, self._box)
        self.frames.clear()
        self.ended = False
        self.active = self.told = self.subscription.kind != FAILOVER
        command = self._subscribe()
        command.request_id = conn.next_token()
        try:
            call = conn.submit(command.request_id, encode(command))  # `attach` minds the time: the answer may come in a later call
        except BaseException as why:
            conn.route(self.channel, None)
            if not isinstance(why, TimedOut):
                self._where = None
            raise
        self._asked = call, time.monotonic() + cluster.options.operation_timeout
        return conn

    def attach(self, deadline: float, *, flow: bool = True) -> None:
        """Have the answer to the SUBSCRIBE that was sent. When it has not come until `deadline`, it is waited for the next time.

        Args:
            flow: grant permits at once.
        """
        assert self._asked is not None
        call, patience = self._asked
        if not call.wait(deadline):
            if time.monotonic() >= patience:
                self.abandon()
            raise TimedOut("no answer to SUBSCRIBE in time", peer=call.conn.peer, topic=self.topic, partition=self.partition)
        self._asked = self._where = None
        try:
            reply_body(call.result(deadline), call.conn.peer, topic=self.topic, partition=self.partition)
        except BaseException as why:
            call.conn.route(self.channel, None)
            if isinstance(why, Disconnected):
                self._known = True  # it may have been done all the same, and stand in the next attempt's way for a while
            raise
        self.conn = call.conn
        self._waits.over()
        self._failing_since = None
        self._known = True
        self._permits = 0
        if flow:
            self.grant()

    def abandon(self) -> None:
        """Wait no more for the answer to a SUBSCRIBE: the broker is told to close what may come of it."""
        if self._asked is None:
            return
        call, self._asked = self._asked[0], None
        call.cancel()
        call.conn.route(self.channel, None)
        self._known = True
        self.send_close(call.conn)

    def _broker(self, deadline: float) -> Broker:
        """Who serves the partition. Attempts that ran out of time go on from what the look-up found, for a while."""
        if self._where is None or time.monotonic() > self._where[1]:
            found = self._errand.ask(self.name, self._look_up, deadline)
            self._where = found, time.monotonic() + LOOKED_UP
        return self._where[0]

    def _look_up(self, deadline: float) -> Broker:
        return self._cluster.lookup.broker(self.name, deadline)

    def _subscribe(self) -> api.CommandSubscribe:
        given = self.subscription
        command = api.CommandSubscribe(
            topic=self.name,
            subscription=given.name,
            subType=given.kind,  # type: ignore[arg-type]
            consumer_id=self.id,
            durable=given.durable,
            read_compacted=given.read_compacted,
            initialPosition=given.initial,  # type: ignore[arg-type]
            force_topic_creation=given.create_topic,
        )
        if given.consumer_name is not None:
            command.consumer_name = given.consumer_name
        if given.priority is not None:
            command.priority_level = given.priority
        if given.since is not None:
            # whole seconds back from when the broker comes to it, which may be as long after this as an answer is waited for: rather too
            # much than too little
            late = self._cluster.options.operation_timeout
            command.start_message_rollback_duration_sec = max(1, math.ceil(time.time() + late - given.since / 1000))
        for key, value in given.properties:
            command.subscription_properties.add(key=key, value=value)
        if given.kind == KEY_SHARED:
            command.keySharedMeta.keySharedMode = api.AUTO_SPLIT
        if not given.durable and self.start is not None:
            ledger, entry, index = self.start
            command.start_message_id.CopyFrom(message_id(ledger, entry, index))
        return command

    def detach(self, pause: bool = False) -> None:
        """The consumer is gone at the broker: drop what was not handed over, it comes again; attach at the next turn."""
        self.abandon()
        if self.conn is not None:
            self.conn.route(self.channel, None)
        self.conn = None
        self.frames.clear()
        now = time.monotonic()
        self.retry_at = now
        if pause:
            self.retry_at = now + self._waits.next()

    def failed(self, why: WireprotoError, patience: float) -> None:
        """An attempt to attach failed: raise it when it cannot get better, or has not for `patience` seconds; else try again later."""
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        self.trouble = why
        # somebody else has the subscription; once it was ours, that may be this very consumer, not yet gone at the broker
        if verdict(why, passing=(TimedOut, ConsumerBusy) if self._known else (TimedOut,)) is Verdict.NEVER:
            raise why
        if now - self._failing_since > patience:
            self._failing_since = None
            raise why
        if not self.asked:
            self.detach(pause=not isinstance(why, TimedOut))  # the caller's time was over: the next call has all of its own

    # -- permits ------------------------------------------------------------------------------------------------

    def grant(self) -> None:
        """Give the broker permits for what the window has room for."""
        if self.conn is None or self.paused:
            return
        want = FIRST_PERMITS if not self._size else max(1, min(MOST_PERMITS, int(self._window / self._size)))
        if self._permits * 2 > want:
            return
        try:
            self.conn.send(encode(api.CommandFlow(consumer_id=self.id, messagePermits=want - self._permits)))
        except Disconnected:
            return  # its mailbox is told
        self._permits = want

    def handed(self, messages: int, size: int) -> None:
        """`messages` of `size` bytes left the queue: count them and grant anew."""
        self._permits -= messages
        if messages:
            self._size = size / messages if not self._size else (self._size * 3 + size / messages) / 4
        self.grant()

    # -- requests -----------------------------------------------------------------------------------------------

    def submit(self, command: Message) -> Call:
        """Send a request about this consumer; raises Disconnected while it is detached."""
        if self.conn is None:
            raise Disconnected("the consumer is not attached", topic=self.topic, partition=self.partition)
        token = self.conn.next_token()
        command.request_id = token  # type: ignore[attr-defined]
        return self.conn.submit(token, encode(command))

    def tell(self, command: Message) -> None:
        """Send a command that is not answered; lost with the connection."""
        if self.conn is not None:
            with suppress(Disconnected):
                self.conn.send(encode(command))

    def close(self, deadline: float) -> None:
        """Tell the broker and forget."""
        self.abandon()
        conn, self.conn = self.conn, None
        self.frames.clear()
        if conn is None or conn.closed:
            return
        with suppress(WireprotoError):  # the connection's end closes it as well
            ask(conn, api.CommandCloseConsumer(consumer_id=self.id), deadline)
        conn.route(self.channel, None)

    def send_close(self, conn: Connection) -> None:
        """CLOSE_CONSUMER without waiting for the answer."""
        with suppress(WireprotoError):
            conn.send(encode(api.CommandCloseConsumer(consumer_id=self.id, request_id=conn.next_token())))
