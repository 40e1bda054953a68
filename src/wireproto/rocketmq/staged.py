"""Transactional messages: each is stored as a half that nobody sees, and seen when its sender, or a check, says so.

What it is: `RocketTransactional`, a role of its own, since RocketMQ's transaction is one message with a verdict and no set of records:

    send      stores a half (310 with TRAN_MSG and PGROUP), waits for the broker's word, and gives a `HalfMessage`
    the end   37 to the broker that holds it, once, by a task of the client: who ceases to wait for the answer takes nothing back
    check     brokers ask members of the group about halves without an end, after a while and then again: `checks`, `presence`

    a send that is answered with              comes to
    0                                         a half
    10, 11, 12: stored less safely            rolled back, Aborted: what the work then did could be lost with the broker
    a refusal that may pass                   sent again, while there is time: a message without key and partition to another broker
    any other code                            that error, nothing is stored
    nothing                                   Aborted: it may be stored, and is not sent again; whoever asks here hears "abort"

May be shared by threads; a half is ended by one of them. A close waits for the ends that are under way, within its time.
Must not: repeat an end, or a half that may be stored.
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
from wireproto.flow.parting import PartingRole
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
"""sysFlag's bit of a half."""
GROUP = re.compile(r"[%|a-zA-Z0-9_-]{1,255}")
"""What brokers and Java's clients take for the name of a group."""


class Outgoing(NamedTuple):
    """A half before it is stored."""

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
        """Whether any queue will do."""
        return self.key is None and self.partition is None


class RocketTransactional(PartingRole):
    """Made by `RocketClient.transactional`.

    Attributes:
        group: its producer group. timeout: seconds for what the end of a `with` block waits for.
    """

    def __init__(self, cluster: RocketCluster, group: str, check: Check, options: RocketOptions) -> None:
        if not isinstance(group, str) or GROUP.fullmatch(group) is None:
            raise OptionError(f"a producer group has 1 to 255 letters, digits, %, |, _ and - only, not {group!r}")
        if not callable(check):
            raise OptionError(f"check is a function that says what became of a message, not {check!r}")
        if is_async(check) and cluster.awaiting is None:
            raise OptionError("check is a coroutine function, which nobody awaits here: take wireproto.aio, or a plain function")
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
        self._ending: set[HalfMessage] = set()  # the I/O thread's: whose ends are under way
        self._answered: Event | None = None  # the I/O thread's: that none is any more, where somebody waits for that

    @classmethod
    def opening(cls, cluster: RocketCluster, group: str, check: Check, options: RocketOptions) -> Steps[Self]:
        """Be known to the brokers, so that they can ask."""
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
        """Store a half message, as `wireproto.roles.Producer.send` takes a record; returns when the broker has it. Its timestamp is now:
        brokers count by it when to ask, and never ask about an old one.

        Raises:
            Aborted: it was stored less safely than the broker is set to, and rolled back; or its answer was lost, and it will be. In both
                cases there is nothing to do for it but to send another one. Whatever else is raised: nothing was stored.
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
        """What brokers know a half by, as Java's producer writes it."""
        text = f"{plain}TRAN_MSG\x01true\x02PGROUP\x01{self.group}\x02"
        if self._options.check_after is not None:
            text += f"CHECK_IMMUNITY_TIME_IN_SECONDS\x01{self._options.check_after}\x02"
        if len(text) * 3 > record.MAX_PROPERTIES and len(text.encode()) > record.MAX_PROPERTIES:
            raise ValueUnsupported(f"key and headers take more than {record.MAX_PROPERTIES} bytes, with what makes it a half message")
        return text

    def _place(self, route: Route, message: Outgoing, avoided: set[str]) -> Queue:
        """Its queue; what may go anywhere goes to one of a broker that has not failed, in turn."""
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
        """One attempt at one broker."""
        if queue.address is None:
            raise NoMaster(f"broker {queue.broker} has no master now")
        yield from self._presence.reaching(queue.address, until)
        conn = yield from self._cluster.connecting(queue.address, until)
        self._check_open()
        self._checks.note(message.transaction_id, "abort")  # until it is known to be stored
        late = min(until, time.monotonic() + self._options.request_timeout)
        try:
            return (yield from self._cluster.asking(conn, self._command(queue, message), message.body, until=late, accept=SEND_WARNINGS))
        except (TransportError, Closed) as why:  # the command may have left before that
            raise Aborted(f"nobody knows whether the half message is stored; its check says abort: {why}", peer=conn.peer) from why

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
        """Roll back what is stored, but not as it is to be; the error that tells."""
        why = codes.error(reply.code, reply.remark or "", peer=reply.peer)
        made = Aborted("the half message was stored less safely than the broker is set to, and rolled back", topic=half.topic)
        made.__cause__ = why
        try:
            yield from self.deciding(half, "abort", until)
        except WireprotoError as later:
            made.add_note(f"its end was not answered, its check says abort: {type(later).__name__}: {later}")
        return made

    # --- their ends ---

    def deciding(self, half: HalfMessage, verdict: Verdict, until: float) -> Steps[None]:
        """See `half.Ending`."""
        make, waits = partial(self._telling, half, verdict), until
        if half.state is State.OPEN:
            self._check_open()
            make = partial(make, *(yield from self._cluster.retrying(lambda: self._reaching(half, until), until)), until)
            self._check_open()
            waits = NEVER  # it keeps its time, and then says more
        ending = self._tasks.shared(("end", half.transaction_id, verdict), make, f"the end of {half.transaction_id}")
        try:
            if not (yield ending, waits):
                raise OutcomeUnknown(f"the end {verdict!r} is under way, and no answer was heard of it yet", topic=half.topic)
            ending.result()
        except (TransportError, Closed) as why:  # of the client, or of who waits: not the end's own
            if half.state is State.OPEN:
                raise
            raise _unheard(half, verdict, why) from why

    def _telling(
        self, half: HalfMessage, verdict: Verdict, address: str = "", conn: Connection | None = None, until: float = 0.0
    ) -> Steps[None]:
        """An end, in the I/O thread: so it leaves once, whoever asks for it and is broken off from that."""
        half.begin(verdict)
        assert conn is not None  # who knows none has seen it begin
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
            raise _unheard(half, verdict, why) from why
        finally:
            self._checks.note(half.transaction_id, verdict, by)
            half.state = found
            self._ending.discard(half)
            if self._answered is not None and not self._ending:
                self._answered.set()

    def _reaching(self, half: HalfMessage, until: float) -> Steps[tuple[str, Connection]]:
        """The broker that holds it, and a connection to that."""
        self._check_open()
        queue = (yield from self._cluster.routing(half.topic, until)).find(half.broker, half.queue_id)
        try:
            if queue is None or queue.address is None:
                raise NoMaster(f"broker {half.broker} has no master now", topic=half.topic)
            return queue.address, (yield from self._cluster.connecting(queue.address, until))
        except WireprotoError:
            self._cluster.routes.stale(half.topic)  # another one may be its master by now
            raise

    def left(self, half: HalfMessage, why: BaseException) -> None:
        """See `half.Ending`."""
        text = "group %s: %s is left to the check: %s: %s"
        self._cluster.log.info(("left", self.group), text, self.group, half.transaction_id, type(why).__name__, why)

    # --- the end of the role ---

    def _check_open(self) -> None:
        self._cluster.loop.check()
        if self._only.closed:
            raise Closed("the role was closed: what it has left open is asked of another member of its group")

    def _wake(self) -> None:
        """Nobody is asked any more. Halves that are open stay so: other processes of the group are asked about them."""
        if not self._checks.closed:
            self._checks.closed = True
            for half in self._checks.still_open():
                self.left(half, Closed("the role was closed"))

    def _parting(self, deadline: float) -> Steps[None]:
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
        """It was not opened."""
        self._only.closed = self._checks.closed = True
        self._presence.end()


def _unheard(half: HalfMessage, verdict: Verdict, why: WireprotoError) -> OutcomeUnknown:
    """What is told of an end that has left."""
    said = f"the end {verdict!r} was sent, and no success was heard of it: it is not sent again, the check decides"
    return OutcomeUnknown(f"{said}: {type(why).__name__}: {why}", topic=half.topic)


def _place_of(reply: Any) -> Place:
    """Where a half was stored, by the answer."""
    return Place(reply.queue_offset, OffsetId.parse(reply.msg_id).offset)
