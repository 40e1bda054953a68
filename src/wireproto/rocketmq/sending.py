"""Sends each batch as one command to the master of its queue, turns answers into verdicts, and looks for masters that are lost.

`RocketSender` is the `Wire` of a producer's `flow.sender.Sender`, whose keys are partitions. One command in flight for each queue keeps its
records in order, since brokers handle the commands of a connection on several threads; with the option `max_in_flight` there are more, and
that order is lost.

    answer                                              verdict
    0, 10, 11, 12                                       Stored
    a refusal that may pass, no answer, connection lost Again: a batch for any queue at once by another broker's queue, if one is known to
                                                        answer; a batch for this queue after a pause
    a missing route or permission, SYSTEM_ERROR         the same, but only a few times in a row (`retry.BRIEFLY`)
    no such queue                                       as a missing route; a batch for any queue by another one, also of that broker
    any other code                                      Refused; a batch for any queue tries another broker's before, where the code is
                                                        about the broker only

Records that may go to any queue avoid a queue whose broker failed for a while (`able`).
The I/O thread reads the answers for which no caller waits, and never blocks; a task for each broker looks for its master and dials it.
The order of batches is kept by the queues (`flow.queue`).
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING

from wireproto._codec import BriefLock, RocketSendCore, RocketSendHeader
from wireproto._net import Event, Mailbox
from wireproto.errors import Closed, TimedOut, TransportError, WireprotoError
from wireproto.flow.alarm import Alarm
from wireproto.flow.queue import UnnumberedSequencer
from wireproto.flow.sender import Again, Refused, SendTimes, Split, Stored, Verdict
from wireproto.net import retry
from wireproto.net.task import Steps
from wireproto.url import parse_address

from . import codes
from .errors import NoMaster, NoQueue
from .outgoing import BATCH, RocketBatch, halves
from .progress import ProgressSender
from .queue_selector import QueueSelector
from .remoting import SEND_WARNINGS
from .route import taking

if TYPE_CHECKING:
    from wireproto._net import Call, Connection
    from wireproto.flow.producer import BatchProducer

    from .cluster import RocketCluster
    from .options import RocketOptions
    from .route import Route

RESEND = retry.Policy(first=0.02, factor=2.0, ceiling=1.0, jitter=0.2)
RETRY_IDLE_AFTER = 5.0
"""Seconds after which a queue that failed, and that holds nothing now, is tried again by records that may go to any queue."""
LOOK_AGAIN = 0.1
"""Seconds between looks at queues that failed."""
UNSENT = 4 << 20
"""Bytes that a connection may hold unsent when it gets another command; beyond twice that the engine waits."""


class RocketSender(RocketSendCore):
    """Sends the batches of one producer; see the module.

    The core has the common cases: the connection of a batch (`target`, `congested`), its command (`transmit`), and the plain answer to it.

    Attributes:
        core: the sender that this is the wire of. routing: the topic's queues, and where keys go.
    """

    def __init__(
        self,
        cluster: RocketCluster,
        topic: str,
        options: RocketOptions,
        route: Route,
        producer: Callable[[], BatchProducer | None],
        beside: Callable[[], Steps[None]],
    ) -> None:
        self._cluster = cluster
        self._loop = cluster.loop
        self._options = options
        self._topic = topic
        self._producer, self._batch_type, self._event = producer, RocketBatch, Event
        self._header = RocketSendHeader(self._options.group or "wireproto", self._topic) if cluster.writes_bare_json else None
        self._lock = BriefLock()
        self._alarm = Alarm(cluster.loop, lambda: self.core.tick())
        self._links: dict[int, Connection] = {}
        self._problems: dict[int, WireprotoError] = {}
        self._lifetime, self._reply_timeout, self._unsent_limit = options.delivery_timeout, options.request_timeout, UNSENT
        self._wanted: dict[str, set[int]] = {}
        self._turn = itertools.count(random.getrandbits(16))  # so that programs that send one record each do not all send it to one queue
        self._able: list[int] = []
        self._able_until = 0.0
        self._box = Mailbox(cluster.loop, self._replied, prompt=self._replied_well)
        pace = SendTimes(linger=self._options.linger, delivery_timeout=self._options.delivery_timeout, backoff=RESEND)
        sequencer = UnnumberedSequencer(self._options.max_in_flight)
        self.core: ProgressSender = ProgressSender(self, sequencer, pace, self._make_batch, self._alarm.set, time.monotonic, cluster.log)
        self.routing = QueueSelector(cluster, route, self._options.route_age, self.core, self._learnt, beside)

    def close(self) -> None:
        """Stop the look-ups and the timer, since the producer is closed."""
        self.routing.closed = True
        self._alarm.stop()

    # --- which queue: under the sender's lock ---

    def able(self) -> int:
        """Return a partition for a record that may go to any queue: in turn those whose brokers answer. Lock held."""
        if not self._able or (self._able_until and time.monotonic() > self._able_until):
            now = time.monotonic()
            queues = self.routing.queues
            self._able = [queue.partition for queue in queues if queue.writable and self._healthy(queue.partition, now)]
            self._able = self._able or [queue.partition for queue in taking(queues)]
            self._able_until = 0.0 if len(self._able) == len(queues) else now + LOOK_AGAIN
        return self._able[next(self._turn) % len(self._able)]

    def _healthy(self, partition: int, now: float) -> bool:
        """Return whether records may be sent to this queue: its broker answers, or its pause after failures is over."""
        queue, home = self.core.queue(partition), self.routing.queues[partition]
        if queue.failures:
            idle = not queue.ready and queue.open is None and not queue.in_flight
            return idle and home.broker not in self._wanted and now > queue.held_until + RETRY_IDLE_AFTER
        return home.address is not None

    def _elsewhere(self, broker: str, gone: int | None = None) -> Callable[[RocketBatch], int | None] | None:
        """Return a function that gives the partition to which a batch of this broker may go instead; None: no other queue is known to work.

        Args:
            gone: the partition that does not exist, where the broker said only that: its other queues may take the batch.
        """
        now = time.monotonic()
        with self.core.lock:
            self._able = []
            left = [home for home in taking(self.routing.queues) if (home.broker != broker if gone is None else home.partition != gone)]
            others = [home.partition for home in left if self._healthy(home.partition, now)]
        return (lambda batch: others[next(self._turn) % len(others)] if batch.anywhere else None) if others else None

    def _learnt(self) -> None:
        """Forget what was computed from the former queues and masters; called with the lock held when these have changed."""
        self._able = []
        producer = self._producer()
        if producer is not None:
            producer.forget_places()
        for key, link in list(self._links.items()):
            address = self.routing.queues[key].address
            if address is None or self._cluster.peek(address) is not link:
                del self._links[key]

    # --- requests: see flow.sender.Wire ---

    def _target(self, key: int) -> Connection | None:
        if key < 0:
            return None  # a lane
        address = self.routing.queues[key].address
        link = self._cluster.peek(address) if address is not None else None
        if link is not None:
            self._links[key] = link
        return link

    def requests(self, link: Connection, batches: list[RocketBatch]) -> Iterable[list[RocketBatch]]:
        """Put each batch into a request of its own."""
        return [[batch] for batch in batches]

    def _transmit(self, link: Connection, batch: RocketBatch, timeout_at: float) -> None:
        """Send a command that is signed, or has a binary header, or an unusual timestamp."""
        code, properties, body = batch.content()
        batch.link = link
        ext = {
            "a": self._options.group or "wireproto",
            "b": self._topic,
            "c": "TBW102",
            "d": "4",
            "e": str(self.routing.queues[batch.key].queue_id),
            "f": str(batch.sys_flag),
            "g": str(batch.born),
            "h": "0",
            "i": properties.decode(),
            "j": "0",
            "k": "false",
            "m": "true" if code == BATCH else "false",
        }
        self._cluster.submit_raw(link, code, ext, body, timeout_at=timeout_at, mailbox=self._box, context=batch)

    def drop(self, link: Connection) -> None:
        """Close a connection, since a signal handler's exception has interrupted the sending of a command."""
        self._cluster.pool.drop(link, "a signal broke into the sending of a message")

    def _moved_on(self) -> None:
        """Let keys that wait for batches to be settled follow the new route."""
        self._loop.call_soon(self.routing.settled)

    def failed(self, batch: RocketBatch, why: WireprotoError) -> None:
        """Report the error of a batch to its producer."""
        batch.owner.failed(batch, why)

    def overdue(self, batch: RocketBatch) -> WireprotoError:
        """Make the error of a batch whose delivery timeout is over: its queue's last one, if there is one."""
        problem = self._problems.get(batch.home)
        return copy(problem) if problem is not None else self.late(batch)

    def late(self, batch: RocketBatch) -> TimedOut:
        """Make the error of a batch that was not acknowledged in time."""
        why = TimedOut("no acknowledgement in time; the record may still arrive", topic=self._topic, partition=batch.home)
        batch.queue.explain(why, batch)
        return why

    # --- answers: in the I/O thread; a plain success also in a thread that waits ---

    def _replied(self, call: Call) -> None:
        if self._replied_well(call):
            return
        batch: RocketBatch = call.context
        self._cluster.give_up(call.conn, call.error)
        if batch.link is call.conn:  # else a signal handler's exception interrupted its sending, and it was sent again
            self.core.answered([(batch, self._verdict(batch, call))])
        if call.conn.closed:
            self.core.link_lost(call.conn)

    def _verdict(self, batch: RocketBatch, call: Call) -> Verdict:
        try:
            if call.error is not None:
                raise call.error
            assert call.frame is not None
            reply = self._cluster.read(call.conn, call.frame, SEND_WARNINGS, topic=self._topic, partition=batch.key)
            text = reply.ext.get("queueOffset", "")
            if not text.isdecimal():
                raise codes.error(reply.code, f"the reply has no queue offset but {text!r}", peer=call.conn.peer)
        except WireprotoError as why:
            return self._judge(batch, why.with_context(topic=self._topic, partition=batch.key))
        self._problems.pop(batch.key, None)
        batch.warning = reply.code
        batch.queue.mark = time.monotonic()
        batch.forget()
        return Stored(int(text))

    def _judge(self, batch: RocketBatch, why: WireprotoError) -> Verdict:
        """Return the verdict on a batch that was not stored, or of which that is not known."""
        self._problems[batch.key] = why
        if why.refresh:
            self._cluster.routes.stale(self._topic)
            with suppress(Closed):  # the client is closed; its connections' errors say so
                self._cluster.tasks.shared(("route", id(self)), self._look_again, f"looking for {self._topic}")
        elsewhere = self._elsewhere(self.routing.queues[batch.key].broker, batch.key if isinstance(why, NoQueue) else None)
        again = batch.queue.failures < retry.BRIEFLY  # a route may still come, and SYSTEM_ERROR may mean a full disk
        transient = (TimedOut, codes.ServerError) if again else (TimedOut,)
        if time.monotonic() >= self.core.ends(batch):
            return Refused(why)
        if _too_large(why) and (parts := halves(batch)) is not None:
            return Split(why, parts)
        doubtful = isinstance(why, TransportError)
        may_leave = why.elsewhere or retry.verdict(why, brief=True, transient=transient) is not retry.Verdict.NEVER
        if may_leave and batch.anywhere and elsewhere is not None:
            return Again(why, doubtful=doubtful, to=elsewhere)
        if retry.verdict(why, brief=again, transient=transient) is retry.Verdict.NEVER:
            return Refused(why)
        return Again(why, doubtful=doubtful)

    # --- masters and their connections: tasks ---

    def want(self, keys: set[int]) -> None:
        """Look for the masters of these partitions' brokers, by a task for each broker."""
        begin = []
        with self._lock:
            for key in keys:
                if key < 0:
                    continue  # a lane, from which batches are moved, not sent
                broker = self.routing.queues[key].broker
                if broker not in self._wanted:
                    self._wanted[broker] = set()
                    begin.append(broker)
                self._wanted[broker].add(key)
        with suppress(Closed):  # the client is closed meanwhile, and so are its producers
            for broker in begin:
                self._cluster.tasks.spawn(self._find(broker), f"looking for broker {broker}")

    def _find(self, broker: str) -> Steps[None]:
        """Look up the route and dial the master of a broker; then its queues are sent again, or their batches go elsewhere."""
        problem: WireprotoError | None = None
        try:
            yield from self.routing.looking_up()
            yield from self._dial(broker)
        except WireprotoError as why:
            problem = why
        with self._lock:
            keys = self._wanted.pop(broker)
        if problem is None:
            self.core.ready(keys)
            return
        elsewhere = self._elsewhere(broker)
        for key in keys:
            self._problems[key] = problem
            self.core.unreached(key, problem, elsewhere)

    def _look_again(self) -> Steps[None]:
        with suppress(WireprotoError):  # what is known is used on
            yield from self.routing.looking_up()

    def _dial(self, broker: str) -> Steps[None]:
        address = next((home.address for home in self.routing.queues if home.broker == broker), None)
        if address is None:
            self._cluster.routes.stale(self._topic)
            raise NoMaster(f"broker {broker} has no master now", topic=self._topic)
        until = self._cluster.deadline(self._options.connect_timeout)
        task = self._cluster.pool.dial(parse_address(address, 0), until=until)
        if not (yield task, until):
            raise TimedOut(f"no connection to broker {broker} yet", topic=self._topic, peer=address)
        task.result()


def _too_large(why: WireprotoError) -> bool:
    """Return whether a broker refused a batch that it may take in parts: 4.9 says so by its code, 5.x by a text only."""
    return isinstance(why, codes.MessageIllegal) or (isinstance(why, codes.ServerError) and "size exceeded" in why.text)
