"""Sends transactional messages: each is stored as a half message, and delivered when its sender, or a check-back, commits it.

`RocketTransactional` is a role of its own, since RocketMQ's transaction is one message with a commit or abort, and no set of records:

    send      stores a half (310 with TRAN_MSG and PGROUP), waits for the broker's answer, and returns a `HalfMessage`
    the end   EndTransaction (37) to the broker that holds it, once, by a task of the client: a caller that stops waiting undoes nothing
    check     brokers ask members of the group about halves without an end, after a while and then again: `checks`, `presence`

    a send that is answered with              results in
    0                                         a half
    10, 11, 12: stored less safely            a roll back, Aborted: what the work then did could be lost with the broker
    a refusal that may pass                   another send, while there is time: a message without key and partition to another broker
    any other code                            that error, nothing is stored
    nothing                                   Aborted: it may be stored, and is not sent again; a check-back here is answered "abort"

May be shared by threads; a half is ended by one of them. A close waits for the ends that are under way, within its time.
Neither an end nor a half that may be stored is ever sent twice.
"""

from __future__ import annotations

import re
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from wireproto._net import Event
from wireproto.compression import compress
from wireproto.deadlines import deadline_after
from wireproto.errors import Aborted, Closed, OptionError, OutcomeUnknown, TransportError, ValueUnsupported, WireprotoError
from wireproto.flow.closing_role import ClosingRole
from wireproto.net.retry import briefly
from wireproto.net.task import NEVER, Steps, is_async, operation

from . import codes, record
from .checks import Checks, end
from .errors import NoMaster
from .half import AFTER, HalfMessage, Place, State, Verdict
from .ids import OffsetId
from .messages import SendMessageV2Request
from .presence import Presence
from .producer import COMPRESSED
from .remoting import SEND_WARNINGS
from .route import taking

if TYPE_CHECKING:
    from wireproto._net import Connection
    from wireproto.records import Headers

    from .cluster import Reply, RocketCluster
    from .half import Check
    from .options import RocketOptions
    from .route import Queue, Route

PREPARED = 4
"""The bit of sysFlag that marks a half."""
GROUP = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")
"""Names of groups that brokers and Java's clients accept."""


class Outgoing(NamedTuple):
    """Holds a half message before it is stored. born: its timestamp, milliseconds since 1970."""

    topic: str
    key: bytes | None
    partition: int | None
    body: bytes
    properties: str
    transaction_id: str
    born: int
    sys_flag: int

    @property
    def anywhere(self) -> bool:
        """Return whether it may go to any queue."""
        return self.key is None and self.partition is None


class RocketTransactional(ClosingRole):
    """Sends half messages and ends them. Made by `RocketClient.transactional`.

    Attributes:
        group: its producer group. timeout: seconds that the commit at the end of a `with` block may take.
    """

    def __init__(self, cluster: RocketCluster, group: str, check: Check, options: RocketOptions) -> None:
        if not isinstance(group, str) or GROUP.fullmatch(group) is None:
            raise OptionError(f"a producer group has 1 to 255 letters, digits, %, |, _ and - only, not {group!r}")
        if not callable(check):
            raise OptionError(f"check is a function that says what became of a message, not {check!r}")
        if is_async(check) and cluster.awaiting is None:
            raise OptionError("check is a coroutine function, which needs wireproto.aio: use that, or a plain function")
        super().__init__("transactional producer", cluster.loop)
        self._cluster = cluster
        self._tasks = cluster.tasks
        self._options = options
        self.group = group
        self.timeout = options.timeout
        self._checks = Checks(cluster, options, group, check)
        self._presence = Presence(cluster, options, group, self._checks.pushed)
        self._ids, self._ids_end = record.ids_of_month(int(time.time() * 1000))
        self._turn = 0
        self._ending: set[HalfMessage] = set()  # with an end under way; used in the I/O thread only
        self._answered: Event | None = None  # set when no end is under way any more; used in the I/O thread only

    @classmethod
    def opening(cls, cluster: RocketCluster, group: str, check: Check, options: RocketOptions) -> Steps[Self]:
        """Make the role, and announce it to the brokers by heartbeats, so that they can ask it."""
        made = cls(cluster, group, check, options)
        try:
            yield from made._presence.joining(cluster.deadline(options.timeout))
        except BaseException:
            made._end()
            raise
        return made

    # --- halves ---

    @operation
    def send(
        self,
        value: bytes | None,
        *,
        topic: str,
        key: bytes | None = None,
        headers: Headers = None,
        partition: int | None = None,
        timeout: float = 30.0,
    ) -> Steps[HalfMessage]:
        """Store a half message; returns when the broker has it.

        Its timestamp is now: brokers compute from it when to ask, and never ask about an old one.

        Args:
            value: bytes of the record, not empty. topic: name of the topic. key: bytes or None.
            headers: pairs of name and bytes, or a mapping. partition: number, None: by the key, or any queue in turn without a key.
            timeout: seconds.
        Raises:
            Aborted: it was stored less safely than the broker is configured to, and rolled back; or its answer was lost, and it will be
                rolled back. In both cases send another one. After any other error nothing was stored.
            ValueUnsupported: the broker cannot carry this message. OptionError: there is no such partition.
            TopicNotExist: no name server knows the topic. BrokerError: a broker refuses.
            TransportError, TimedOut: no broker can be reached. Closed: the role or the client was closed.
        """
        return self._sending(value, topic, key, headers, partition, deadline_after(timeout))

    def _sending(self, value: Any, topic: str, key: Any, headers: Headers, partition: int | None, until: float) -> Steps[HalfMessage]:
        self._check_open()
        record.check_topic(topic)
        message = self._outgoing(value, topic, key, headers, partition)
        avoided: set[str] = set()

        def attempt() -> Steps[tuple[Queue, Reply]]:
            route = yield from self._cluster.routing(topic, until)
            queue = self._place(route, message, avoided)
            try:
                return queue, (yield from self._store(queue, message, until))
            except WireprotoError as why:
                avoided.add(queue.broker)
                self._cluster.routes.stale(topic)  # its master may be another one by now
                raise why.with_context(topic=topic, partition=queue.partition) from why.__cause__

        queue, reply = yield from self._cluster.retrying(attempt, until, judge=briefly())
        half = HalfMessage(self, topic, (queue.partition, queue.broker, queue.queue_id), message.transaction_id, _place_of(reply.message))
        if reply.code:
            raise (yield from self._less_safe(half, reply, until))
        self._checks.opened(half)
        return half

    def _outgoing(self, value: Any, topic: str, key: Any, headers: Headers, partition: int | None) -> Outgoing:
        options, now_ms = self._options, int(time.time() * 1000)
        if value is None:
            raise ValueUnsupported("RocketMQ cannot carry a null value", topic=topic)
        body = record.octets(value)
        if not body:  # elsewhere it travels as a batch of one, which no half can be
            raise ValueUnsupported("RocketMQ cannot carry an empty value in a half message: 5.x brokers fail on it", topic=topic)
        if len(body) > options.max_message_size:
            text = f"a value of {len(body)} bytes is larger than the broker takes ({options.max_message_size})"
            raise ValueUnsupported(text, topic=topic)
        if partition is not None and (not isinstance(partition, int) or isinstance(partition, bool)):
            raise OptionError(f"a partition is an int, not {type(partition).__name__}", topic=topic)
        key = None if key is None else record.octets(key)
        if now_ms >= self._ids_end:
            self._ids, self._ids_end = record.ids_of_month(now_ms)
        transaction_id = self._ids.next(now_ms)
        properties = self._properties(record.properties(key, headers, transaction_id))
        sys_flag = PREPARED
        if options.compression != "none" and len(body) >= options.compress_above:
            packed = compress(options.compression, body)
            if len(packed) < len(body):
                body, sys_flag = packed, sys_flag | COMPRESSED[options.compression]
        return Outgoing(topic, key, partition, body, properties, transaction_id, now_ms, sys_flag)

    def _properties(self, plain: str) -> str:
        """Return the properties of a half: those of the message, and the ones that mark it as a half, as Java's producer writes them."""
        text = f"{plain}TRAN_MSG\x01true\x02PGROUP\x01{self.group}\x02"
        if self._options.check_after is not None:
            text += f"CHECK_IMMUNITY_TIME_IN_SECONDS\x01{self._options.check_after}\x02"
        if len(text) * 3 > record.MAX_PROPERTIES and len(text.encode()) > record.MAX_PROPERTIES:
            raise ValueUnsupported(f"key and headers take more than {record.MAX_PROPERTIES} bytes, with what makes it a half message")
        return text

    def _place(self, route: Route, message: Outgoing, avoided: set[str]) -> Queue:
        """Choose its queue; a message that may go to any queue goes to those of brokers that have not failed, in turn."""
        if not route.queues:
            raise codes.NoPermission("the topic has no queue", topic=message.topic)
        if message.partition is not None:
            if not 0 <= message.partition < len(route.queues):
                raise OptionError(f"{message.topic} has no partition {message.partition}: it has {len(route.queues)}", topic=message.topic)
            return route.queues[message.partition]
        if message.key is not None:
            return route.queues[route.by_key(message.key)]
        able = [queue for queue in route.writable() if queue.broker not in avoided]
        if not able:
            avoided.clear()
            able = list(route.writable()) or taking(route.queues)
        self._turn += 1
        return able[self._turn % len(able)]

    def _store(self, queue: Queue, message: Outgoing, until: float) -> Steps[Reply]:
        """Send it to one broker, once."""
        if queue.address is None:
            raise NoMaster(f"broker {queue.broker} has no master now")
        yield from self._presence.reaching(queue.address, until)
        conn = yield from self._cluster.connecting(queue.address, until)
        self._check_open()
        self._checks.note(message.transaction_id, "abort")  # the answer to check-backs until it is known to be stored
        late = min(until, time.monotonic() + self._options.request_timeout)
        try:
            return (yield from self._cluster.asking(conn, self._command(queue, message), message.body, until=late, accept=SEND_WARNINGS))
        except (TransportError, Closed) as why:  # the command may have left before that
            raise Aborted(
                f"whether the half message is stored is not known; if the broker checks back, the answer is abort: {why}", peer=conn.peer
            ) from why

    def _command(self, queue: Queue, message: Outgoing) -> SendMessageV2Request:
        return SendMessageV2Request(
            producer_group=self.group,
            topic=message.topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=queue.queue_id,
            sys_flag=message.sys_flag,
            born_timestamp=message.born,
            flag=0,
            properties=message.properties,
            reconsume_times=0,
            unit_mode=False,
            batch=False,
        )

    def _less_safe(self, half: HalfMessage, reply: Reply, until: float) -> Steps[Aborted]:
        """Roll back a half that was stored less safely than configured; returns the error to raise."""
        why = codes.error(reply.code, reply.remark or "", peer=reply.peer)
        made = Aborted(
            "the broker stored the half message without the configured flush or replication, so it was rolled back", topic=half.topic
        )
        made.__cause__ = why
        try:
            yield from self.deciding(half, "abort", until)
        except WireprotoError as later:
            made.add_note(
                f"the roll-back was not confirmed; if the broker checks back, the answer is abort: {type(later).__name__}: {later}"
            )
        return made

    # --- their ends ---

    def deciding(self, half: HalfMessage, verdict: Verdict, until: float) -> Steps[None]:
        """Send the end, once, and set the half's state; or wait for the end that is under way: see `half.Ending`.

        Args:
            half: the message. verdict: "commit" or "abort". until: deadline, a `time.monotonic()` value.
        Raises:
            OutcomeUnknown: it was sent, and no success was received. After any other error it was not sent, and the state is unchanged.
        """
        make, waits = partial(self._sending_end, half, verdict), until
        if half.state is State.OPEN:
            self._check_open()
            make = partial(make, *(yield from self._cluster.retrying(lambda: self._reaching(half, until), until)), until)
            self._check_open()
            waits = NEVER  # the end keeps `until` itself, and raises an error that says more
        ending = self._tasks.shared(("end", half.transaction_id, verdict), make, f"the end of {half.transaction_id}")
        try:
            if not (yield ending, waits):
                raise OutcomeUnknown(f"the {verdict} was requested, and its outcome is not known yet", topic=half.topic)
            ending.result()
        except (TransportError, Closed) as why:  # raised by the client or by this wait, not by the end itself
            if half.state is State.OPEN:
                raise
            raise _unconfirmed(half, verdict, why) from why

    def _sending_end(
        self, half: HalfMessage, verdict: Verdict, address: str = "", conn: Connection | None = None, until: float = 0.0
    ) -> Steps[None]:
        """Send an end and wait for its answer. Runs in the I/O thread, so that it is sent once, also where its caller is interrupted."""
        half.begin(verdict)
        assert conn is not None  # a caller without a connection has seen that the end is under way, and gets that task
        calling, by, found = self._presence.calling(address), None, State.UNKNOWN
        message = end(self.group, verdict, half.topic, half.transaction_id, half.place)
        try:
            call = self._cluster.submit(conn, message, timeout_at=until)
        except WireprotoError:
            half.not_begun()
            raise
        self._ending.add(half)
        try:
            yield from self._cluster.hearing(conn, message, call, until)
            found, by = AFTER[verdict], calling
        except WireprotoError as why:
            raise _unconfirmed(half, verdict, why) from why
        finally:
            self._checks.note(half.transaction_id, verdict, by)
            half.state = found
            self._ending.discard(half)
            if self._answered is not None and not self._ending:
                self._answered.set()

    def _reaching(self, half: HalfMessage, until: float) -> Steps[tuple[str, Connection]]:
        """Return the address of the broker that holds a half, and a connection to it."""
        self._check_open()
        queue = (yield from self._cluster.routing(half.topic, until)).find(half.broker, half.queue_id)
        try:
            if queue is None or queue.address is None:
                raise NoMaster(f"broker {half.broker} has no master now", topic=half.topic)
            return queue.address, (yield from self._cluster.connecting(queue.address, until))
        except WireprotoError:
            self._cluster.routes.stale(half.topic)  # another server may be the master of this broker by now
            raise

    def left(self, half: HalfMessage, why: BaseException) -> None:
        """Log that a half is left to the check-back.

        Args:
            half: the message. why: the exception because of which it was not ended.
        """
        text = "group %s: %s is left to the check: %s: %s"
        self._cluster.log.info(("left", self.group), text, self.group, half.transaction_id, type(why).__name__, why)

    # --- the end of the role ---

    def _check_open(self) -> None:
        self._cluster.loop.check()
        if self._only.closed:
            raise Closed(
                "the transactional producer was closed: the broker checks back its open half messages with other producers of its group"
            )

    def _wake(self) -> None:
        """Stop answering check-backs. Halves that are open stay so: brokers ask other processes of the group about them."""
        if not self._checks.closed:
            self._checks.closed = True
            for half in self._checks.still_open():
                self.left(half, Closed("the role was closed"))

    def _closing_steps(self, deadline: float) -> Steps[None]:
        """Leave the group, when the ends that are under way are answered."""
        try:
            with suppress(WireprotoError):  # the client is closed: there is no answer any more
                while self._ending and time.monotonic() < deadline:
                    self._answered = Event(self._cluster.loop)
                    yield self._answered, deadline
            yield from self._presence.closing(deadline)
        finally:
            self._cluster.roles.forget(self)

    def _end(self) -> None:
        """End a role whose `opening` failed."""
        self._only.closed = self._checks.closed = True
        self._presence.end()


def _unconfirmed(half: HalfMessage, verdict: Verdict, why: WireprotoError) -> OutcomeUnknown:
    """Return the error of an end that was sent, and of which no success was received."""
    said = f"the end {verdict!r} was sent, and its success was not confirmed; it is not sent again, the broker checks back"
    return OutcomeUnknown(f"{said}: {type(why).__name__}: {why}", topic=half.topic)


def _place_of(reply: Any) -> Place:
    """Return where a half was stored, by the answer."""
    return Place(reply.queue_offset, OffsetId.parse(reply.msg_id).offset)
