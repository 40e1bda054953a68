"""Sends batches in Produce requests, turns responses into verdicts, and finds leaders, connections and producer ids.

The `Wire` of a `flow.sender.Sender`, and what belongs to it. One `KafkaSender` serves all producers of a client that have the same
options: one producer id, one Produce a broker with batches of many topics and partitions. A second producer of the same topic is another
producer to the brokers, so `KafkaSenders` gives it another one. Connections of purpose "produce" are shared by all.

    response                                            verdict
    0                                                   Stored
    no response, or a retriable code                    Again; at once when the response names a leader that we did not know of
    OUT_OF_ORDER_SEQUENCE_NUMBER and kin                StartOver, with idempotence
    DUPLICATE_SEQUENCE_NUMBER                           Stored, at an unknown position
    MESSAGE_TOO_LARGE and kin, of several records       Split in halves, as Java's client does; Refused where its sending is in doubt
    any other code that names some of the records       Split in those, which fail, and the others; Refused where its sending is in doubt
    any other code                                      Refused

The thread that fills a batch sends it; the I/O thread sends when a linger is over or a response made room, and reads the responses for
which no thread waits; tasks of the client look for what is missing. Nothing blocks in the I/O thread, and the order of batches is that of
the queues.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, Any

from .._codec import BriefLock, KafkaSendCore, OutBatch, Sent
from .._net import Event, Mailbox
from ..errors import BrokerError, Closed, OptionError, TimedOut, TransportError, WireprotoError
from ..flow.alarm import Alarm
from ..flow.queue import Sequencer, UnnumberedSequencer
from ..flow.sender import FOREVER, Again, Refused, Sender, SendTimes, Split, StartOver, Stored, Verdict
from ..net import retry
from ..net.task import Steps, Task, after
from . import outgoing, wire
from .codes import DuplicateSequenceNumber, MessageTooLarge, NetworkError, RecordListTooLarge, error
from .identity import NO_IDENTITY, Identity, ProducerState
from .messages import ApiVersionsRequest, InitProducerIdRequest, InitProducerIdResponse, ProduceRequest, ProduceResponse
from .metadata import NO_ID, Node
from .outgoing import Key
from .produce_template import FIRST as PREPARED_FROM
from .produce_template import ProduceTemplate
from .unresponsive import LOOK_EVERY, UnresponsiveLeaders

if TYPE_CHECKING:
    from .._net import Call, Connection
    from ..flow.parts import Parts
    from ..flow.producer import BatchProducer
    from .cluster import KafkaCluster
    from .metadata import Topic
    from .options import KafkaOptions

ACKS = {"all": -1, "1": 1, "0": 0}
UNKNOWN_PLACE = -2
"""Base offset of a batch that an earlier sending wrote, when the broker does not say where."""
_UNSENT_LIMIT = 2 << 20
_MAY_THROTTLE = 5.0
"""Seconds after the end of a quota's pause for which a connection has one request in flight at a time."""
_STRAGGLING = 0.01
"""Seconds for a thread that was about to send by a connection when that was retired."""
_TOO_LARGE = (MessageTooLarge, RecordListTooLarge)  # larger than the topic allows, or than a segment
_UNREACHED = 3.0
"""Seconds for which a node that could not be dialled counts as unreachable. It is dialled more often while records wait for it."""
_NAMED = 3
"""Refused records that are named, at most, in an error about many."""
_AGAIN = retry.Policy(first=0.1, factor=2.0, ceiling=1.0, jitter=0.2)
_PROFILE = (
    "acks",
    "idempotence",
    "linger",
    "batch_size",
    "compression",
    "max_in_flight",
    "delivery_timeout",
    "max_request_size",
    "message_format",
    "request_timeout",
    "metadata_max_age",
)
"""The options that must be the same for producers to share a sender."""


class KafkaSenders:
    """Keeps all senders of a client. Thread-safe."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster
        self._lock = BriefLock()
        self._made: dict[tuple[Any, ...], list[KafkaSender]] = {}

    def finding(self, topic: str, options: KafkaOptions, deadline: float) -> Steps[KafkaSender]:
        """Return a sender for these options that has no producer of the topic now."""
        profile = tuple(getattr(options, name) for name in _PROFILE)
        with self._lock:
            for sender in self._made.get(profile, ()):
                if not sender.serves(topic):
                    return sender
        sender = KafkaSender(self.cluster, options, (yield from identifying(self.cluster, options, deadline)))
        with self._lock:
            self._made.setdefault(profile, []).append(sender)
        return sender


def identifying(cluster: KafkaCluster, options: KafkaOptions, deadline: float) -> Steps[ProducerState | None]:
    """Get the identity of a new sender; None: its batches have no sequences (idempotence is off, or the broker has none).

    Raises:
        OptionError: idempotence=True, and the broker has none. TimedOut.
    """
    wanted = options.idempotence
    if wanted is False or ACKS[options.acks] != -1 or options.message_format != 2:
        return None
    conn = yield from cluster.retrying(lambda: cluster.to_any(deadline), deadline)
    agreed: wire.Agreed = conn.context
    if not agreed.versions.has(InitProducerIdRequest):
        if wanted:
            raise OptionError("the broker has no idempotent producers (InitProducerId)", peer=conn.peer)
        return None
    return ProducerState((yield from numbering(cluster, deadline)), options.max_in_flight)


def numbering(cluster: KafkaCluster, until: float) -> Steps[Identity]:
    """Request a new producer id (InitProducerId)."""

    def check(reply: InitProducerIdResponse) -> BrokerError | None:
        return error(reply.error_code, "asking for a producer id") if reply.error_code else None

    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    reply = yield from cluster.asking(request, until, check=check)
    return Identity(reply.producer_id, reply.producer_epoch)


class KafkaSender(KafkaSendCore):
    """Sends the batches of all producers with the same options; see the module.

    The core has `target`, `congested` and `transmit`, and notes what is stored, where nothing has changed
    since the batch before.

    Attributes:
        core: the sender whose `Wire` this is.
        idempotent: whether batches have sequences.
        transaction: the transactional id that requests carry; None: they are in no transaction.
    """

    transaction: str | None = None

    def __init__(self, cluster: KafkaCluster, options: KafkaOptions, state: ProducerState | None) -> None:
        self._cluster = cluster
        self._loop = cluster.loop
        self._metadata = cluster.metadata
        self._options = options
        self._acks = ACKS[options.acks]
        self._lock = BriefLock()
        self._links: dict[int, Connection] = {}
        self._stale: set[str] = set()
        self._looking = False
        self._blind: set[Key] = set()  # partitions whose leader is looked up
        self._dialling: dict[int, set[Key]] = {}  # by node: the partitions that wait for its connection
        self._unreached: dict[int, float] = {}  # nodes whose last dialling failed: until when that counts
        self._unnumbered: set[Key] = set()  # partitions that wait for a producer id
        self._waits = retry.Waits(_AGAIN)
        self._looked_at = time.monotonic()
        self._owners: dict[str, weakref.ref[BatchProducer]] = {}
        self._no_identity, self._event = NO_IDENTITY, Event
        self._template: dict[Key, ProduceTemplate] = {}
        self._unresponsive = UnresponsiveLeaders()
        self._unanswered = self._unresponsive.unanswered
        self._watching = False
        self._answered = bool(self._acks)
        self._reply = ProduceResponse
        self._reply_timeout = options.request_timeout + 1.0
        self._max_age = options.metadata_max_age
        self._unsent_limit = _UNSENT_LIMIT
        self._watcher = Alarm(cluster.loop, self._watch)
        self._make_builder = outgoing.builder_factory(options)
        self._box = Mailbox(cluster.loop, self._replied, prompt=self._replied_well)
        self._state = state
        self.idempotent = self._state is not None
        sequencer: Sequencer = self._state if self._state is not None else UnnumberedSequencer()
        pace = SendTimes(linger=options.linger, delivery_timeout=options.delivery_timeout)
        self._alarm = Alarm(cluster.loop, lambda: self.core.tick())
        self.core = Sender(self, sequencer, pace, self._make_batch, self._alarm.set, time.monotonic, cluster.log)

    def join(self, producer: BatchProducer) -> bool:
        """Serve this producer too; False: there is a producer of its topic here already."""
        topic, owners = producer.topic, self._owners

        def collected(ref: weakref.ref[BatchProducer]) -> None:
            if owners.get(topic) is ref:
                del owners[topic]

        with self._lock:
            if self.serves(topic):
                return False
            owners[topic] = weakref.ref(producer, collected)
        return True

    def serves(self, topic: str) -> bool:
        """Return whether there is a producer of this topic here."""
        return self.owner(topic) is not None

    def owner(self, topic: str) -> BatchProducer | None:
        """Return the producer of this topic here; None: there is none."""
        ref = self._owners.get(topic)
        return None if ref is None else ref()

    def leave(self, producer: BatchProducer) -> None:
        """Forget a producer that was closed."""
        if self.owner(producer.topic) is producer:
            del self._owners[producer.topic]
            for key in [key for key in self._template if key[0] == producer.topic]:
                self._template.pop(key, None)

    def _served(self) -> set[str]:
        """Return the topics with a producer."""
        return {topic for topic in tuple(self._owners) if self.serves(topic)}

    def unsent(self) -> bool:
        """Return whether connections hold bytes that have not left yet."""
        return any(conn.unsent and not conn.closed for conn in tuple(self._links.values()))

    def answering(self, topic: Topic) -> Sequence[int]:
        """Return the partitions that a record without a key may go to: those with a leader that takes records now.

        Left out, unless that leaves none, are leaders that keep silent, cannot be reached again or throttle us: records for them would
        gather here until there is room for nothing else (KIP-794).
        """
        led = topic.available or tuple(topic.partitions)
        away = {number for number, link in tuple(self._links.items()) if self._takes_nothing(number, link)}
        if self._unreached:
            now = time.monotonic()
            away |= {number for number, until in tuple(self._unreached.items()) if until > now}
        return [number for number in led if topic.partitions[number].node not in away] or led if away else led

    def _takes_nothing(self, number: int, link: Connection) -> bool:
        """Return whether a node takes no records now by this connection."""
        if link.closed:
            return number in self._dialling
        muted: float = link.context.muted_until
        return link in self._unresponsive.silent or (muted > 0.0 and muted > time.monotonic())

    # --- requests: see flow.sender.Wire ---

    def _target(self, key: Key) -> Connection | None:
        """Return the connection to a partition's leader; None: not known, not open, or throttled."""
        node = self._metadata.leader(*key)
        conn = self._links.get(node.id) if node is not None else None
        if conn is None or conn.closed:
            return None
        muted: float = conn.context.muted_until
        return None if muted and muted > time.monotonic() else conn

    def _may_throttle(self, link: Connection) -> bool:
        """Return whether the response in flight may throttle the connection: what is sent behind it would wait there, and time out."""
        muted: float = link.context.muted_until
        return bool(link.pending) and time.monotonic() < muted + _MAY_THROTTLE

    def requests(self, link: Connection, batches: list[OutBatch]) -> Iterable[list[OutBatch]]:
        """Split the batches for one node into requests."""
        return outgoing.requests(batches, self._options.max_request_size)

    def _look_after(self, now: float) -> None:
        """Make sure that silent leaders are noticed, and that metadata does not get too old."""
        if not self._watching and self._answered:
            self._watching = True
            self._watcher.set(now + LOOK_EVERY)
        if now - self._looked_at > self._max_age:
            self._looked_at = now
            self._refresh(self._served())

    def _prepare(self, link: Connection, key: Key) -> ProduceTemplate | None:
        """Prepare requests with one batch of this partition by this connection; None: each is encoded."""
        topics = self._metadata.topics
        entry = topics.get(key[0])
        if entry is None:
            return None
        version = wire.version_for(link, ProduceRequest, self._version_cap(entry.id == NO_ID))
        if version < PREPARED_FROM:
            return None
        timeout_ms = int(self._options.request_timeout * 1000)
        prepared = self._template[key] = ProduceTemplate(link, topics, key, version, self._acks, timeout_ms, self.transaction)
        return prepared

    def _version_cap(self, nameless: bool) -> int | None:
        """Return the newest version of Produce to speak; None: any.

        Args:
            nameless: whether a topic has no id.
        """
        return outgoing.version_cap(self._options, nameless)

    def _transmit(self, link: Connection, batches: list[OutBatch], now: float) -> None:
        """Encode a request, and send it."""
        topics = self._metadata.topics
        ids: dict[str, bytes] = {}
        for batch in batches:
            topic = batch.key[0]
            if topic not in ids:
                entry = topics.get(topic)
                ids[topic] = entry.id if entry is not None else NO_ID
        version = wire.version_for(link, ProduceRequest, self._version_cap(NO_ID in ids.values()))
        request = outgoing.request(batches, ids, self._acks, int(self._options.request_timeout * 1000), self.transaction)
        if self._acks:
            names = {topic_id if version >= outgoing.BY_ID else topic: topic for topic, topic_id in ids.items()}
            timeout_at = now + self._reply_timeout
            caller_data = batches, names, None, [batch.attempts for batch in batches]
            wire.submit(link, request, mailbox=self._box, timeout_at=timeout_at, version=version, caller_data=caller_data)
            for batch in batches:
                self._unresponsive.sent(link, batch.key)
        else:
            agreed: wire.Agreed = link.context
            link.send(wire.frame(request, version, link.next_token(), agreed.client_id))
            self.core.settle([(batch, Stored(-1)) for batch in batches])

    def drop(self, link: Connection) -> None:
        """Close a connection: it is not known whether the last request was sent."""
        link.close("a signal broke into the sending of a Produce")

    def failed(self, batch: OutBatch, why: WireprotoError) -> None:
        """Pass a batch's error on to its producer."""
        if batch.owner is not None:
            batch.owner.failed(batch, why)

    def overdue(self, batch: OutBatch) -> WireprotoError:
        """Return the error of a batch whose delivery timeout is over."""
        doubt = "; it may still be in the log" if batch.doubtful or batch in batch.queue.in_flight else ""
        text = f"the record was not acknowledged within {self._options.delivery_timeout:g} s{doubt}"
        late: TimedOut = batch.queue.explain(TimedOut(text, topic=batch.key[0], partition=batch.key[1]), batch)
        return late

    # --- responses: in the I/O thread, or at once in a waiting thread when all is well ---

    def _read_well(self, call: Call) -> bool:
        """Do as `_replied_well` does, where the response is not the usual one; False: it is left to `_replied`."""
        sent: Sent = call.context
        batches, names, _, _ = sent.caller_data
        try:
            reply: ProduceResponse = wire.result(call)
        except WireprotoError:
            return False
        self._throttled(reply, call.conn)
        answers = _answers(reply, names, sent.version)
        outcomes: list[tuple[OutBatch, Verdict]] = []
        for batch in batches:
            answer = answers.get(batch.key)
            if answer is None or answer.error_code:
                return False
            outcomes.append((batch, Stored(answer.base_offset)))
        self.core.answered(outcomes)
        return True

    def _replied(self, call: Call) -> None:
        """Settle the batches of a finished Produce."""
        sent: Sent = call.context
        batches, names, _, sendings = sent.caller_data
        # a batch whose sending was interrupted by a signal may have been sent again: then only that sending counts
        ours = [batch for batch, sending in zip(batches, sendings, strict=True) if batch.attempts == sending]
        try:
            reply: ProduceResponse = wire.result(call)
        except WireprotoError as why:
            if isinstance(why, TimedOut):
                call.conn.close("a Produce was not answered in time")
            self.core.answered([(batch, Again(why, doubtful=True)) for batch in ours])
            return
        self._throttled(reply, call.conn)
        answers = _answers(reply, names, sent.version)
        nodes = [Node(end.node_id, end.host, end.port, end.rack) for end in reply.node_endpoints]
        self.core.answered([(batch, self._verdict(batch, answers.get(batch.key), nodes, sent.version)) for batch in ours])

    def _throttled(self, reply: ProduceResponse, link: Connection) -> None:
        """Note that a response throttles the connection."""
        self._cluster.throttled(reply, link)
        if reply.throttle_time_ms:
            self._stalled()

    def _stalled(self) -> None:
        """Have producers check again whether records without a key may stay with their partition: a leader takes no more (`answering`)."""
        self._metadata.changes.note()

    def _verdict(self, batch: OutBatch, answer: Any, nodes: list[Node], version: int) -> Verdict:
        """Return the verdict on a batch by its partition's response."""
        if answer is None:
            return Again(NetworkError("the Produce response has no entry for the partition", topic=batch.key[0]), doubtful=True)
        code = answer.error_code
        if not code:
            return Stored(answer.base_offset)
        problem = error(code, answer.error_message or "", message="ProduceResponse", version=version, topic=batch.key[0])
        problem.with_context(partition=batch.key[1])
        leader = answer.current_leader
        problem.moved = version >= 10 and self._cluster.hint(batch.key[0], batch.key[1], leader.leader_id, leader.leader_epoch, nodes)
        if self.idempotent and isinstance(problem, DuplicateSequenceNumber):
            return Stored(UNKNOWN_PLACE)
        if problem.starts_over and self.idempotent:
            return StartOver(problem)
        judged = retry.verdict(problem)
        if judged is retry.Verdict.REFRESH:
            self._refresh((batch.key[0],))
        if judged is not retry.Verdict.NEVER:
            return Again(problem, now=judged is retry.Verdict.NOW, doubtful=problem.in_doubt)
        if isinstance(problem, _TOO_LARGE) and self._options.message_format == 2:  # in older formats the limit is of each message
            parts = outgoing.halves(batch, self._make_builder)
            if parts is not None:
                return Split(problem, parts)
        if answer.record_errors:
            parts = self._others(batch, {bad.batch_index: bad.batch_index_error_message for bad in answer.record_errors}, problem)
            if parts is not None:
                return Split(problem, parts)
        return Refused(problem)

    def _others(self, batch: OutBatch, reasons: dict[int, str | None], problem: BrokerError) -> Parts | None:
        """Return the batch without the records that the broker refuses (KIP-467), and fail those; None: the batch is refused as a whole."""
        where = sorted(reasons)
        self._name(problem, [f"record {index}: {reasons[index] or ''}" for index in where])
        if self.transaction is not None or batch.outcome.done or not 0 <= where[0] <= where[-1] < batch.count:
            return None  # a transaction is stored as a whole or not at all
        parts = outgoing.others(batch, where, self._make_builder)
        if parts is not None:
            for index in where:
                why = copy(problem)
                why.text = reasons[index] or problem.text
                parts.refuse(index, why)
            self._cluster.log.warning(("refused", type(problem)), "%d records were not stored: %s", len(where), problem)
        return parts

    @staticmethod
    def _name(problem: BrokerError, reasons: list[str]) -> None:
        """Add to an error why single records were refused."""
        more = len(reasons) - _NAMED
        problem.text = "; ".join([problem.text, *reasons[:_NAMED], *([f"and {more} more"] if more > 0 else [])])

    # --- silent leaders: in the I/O thread ---

    def _watch(self) -> None:
        """Check once a second, while responses are outstanding, whether another node leads what was sent to a silent one.

        Its connection is closed then, before anything is sent to the other node, as if it had been lost: what was sent by it is in doubt,
        and is sent again in order.
        """
        self._watching = False  # first: a thread that sends meanwhile sets the next check, or is covered by this one
        now = time.monotonic()
        before = self._unresponsive.silent
        waiting = self._unresponsive.look(now)
        if self._unresponsive.silent.keys() - before.keys():
            self._stalled()
        for link, keys in self._unresponsive.silent.items():
            moving: set[Key] = self.core.keys_in_flight(keys)
            moved = next((key for key in moving if self._led_elsewhere(key, link)), None)
            if moved is not None:
                link.close(f"it does not answer, and another node leads {moved[0]}[{moved[1]}]")
            else:
                self._look(topic for topic, _ in moving)
        if waiting and not self._watching:
            self._watching = True
            self._watcher.set(now + LOOK_EVERY)

    def _led_elsewhere(self, key: Key, link: Connection) -> bool:
        """Return whether a partition has a leader that is not at the end of this connection."""
        node = self._metadata.leader(*key)
        return node is not None and self._links.get(node.id) is not link

    # --- connections whose session ends (KIP-368): in the I/O thread ---

    def _leave_link(self, link: Connection) -> None:
        """Send nothing more by a connection whose session ends soon (KIP-368).

        It is closed when all that was sent by it has been served, so that nothing is lost without acknowledgements (acks=0), and nothing
        duplicated without sequences.
        """
        agreed: wire.Agreed = link.context
        agreed.leaving = True
        self._soon(self._ask_last, link, pause=_STRAGGLING)

    def _ask_last(self, link: Connection) -> None:
        """Send a last request: brokers serve the requests of a connection in order, so its response says that the others were served."""
        with suppress(TransportError):
            timeout_at = time.monotonic() + self._options.request_timeout
            after(wire.submit(link, ApiVersionsRequest(), version=0, timeout_at=timeout_at), link.close, "its session is about to end")

    # --- leaders, connections and producer ids: tasks find them, and only the I/O thread stores them ---

    def want(self, keys: set[Key]) -> None:
        """Have connections and producer ids found for these partitions, without waiting."""
        self._soon(self._find, keys)

    def _refresh(self, topics: Iterable[str]) -> None:
        """Look up these topics' leaders again."""
        self._soon(self._look, tuple(topics))

    def _soon(self, fn: Callable[..., None], *args: Any, pause: float = 0.0) -> None:
        """Call a function in the I/O thread, `pause` seconds from now."""
        with suppress(Closed):
            self._loop.call_at(time.monotonic() + pause, fn, *args)

    def _find(self, keys: Iterable[Key]) -> None:
        """Find what each of these partitions lacks; `core.ready` is called when it is there, or to be asked for again."""
        for key in keys:
            node = self._metadata.leader(*key)
            if node is None:
                self._blind.add(key)
            else:
                self._reach(node, key)
        self._look(topic for topic, _ in self._blind)

    def _look(self, topics: Iterable[str]) -> None:
        """Look up leaders with one request at a time; topics that are requested during it share the next one."""
        self._stale.update(topics)
        if self._stale and not self._looking:
            asked, self._stale, self._looking = self._stale, set(), True
            task = self._cluster.look(asked)
            after(task, self._looked, task, asked)

    def _looked(self, task: Task[None], asked: set[str]) -> None:
        """Take in the end of a look-up."""
        self._looking = False
        keys = {key for key in self._blind if key[0] in asked}
        self._blind -= keys
        try:
            task.result()
        except Exception as why:
            self._trouble(why, keys)
        else:
            lacking = {key for key in keys if self._metadata.leader(*key) is None}
            if lacking:
                self._soon(self.core.ready, lacking, pause=self._waits.next())
            self._find(keys - lacking)
        self._look(())

    def _reach(self, node: Node, key: Key) -> None:
        """Connect to a partition's leader: partitions of the same node share its dialling, and do not delay those of others."""
        if node.id in self._dialling:
            self._dialling[node.id].add(key)
            return
        conn = self._links.get(node.id)
        if conn is not None and not conn.closed:
            muted: float = conn.context.muted_until - time.monotonic()
            if muted > 0:
                self._soon(self.core.ready, {key}, pause=muted)
            else:
                self._found({key})
            return
        self._dialling[node.id] = {key}
        if conn is not None:
            self._stalled()
        task = self._cluster.pool.dial(node.address, "produce")
        after(task, self._dialled, task, node.id, conn)

    def _dialled(self, task: Task[Connection], node: int, old: Connection | None) -> None:
        """Take in how connecting ended."""
        keys = self._dialling.pop(node)
        try:
            link = self._links[node] = task.result()
        except Exception as why:  # any: the user's code may make the credentials
            self._unreached[node] = time.monotonic() + _UNREACHED
            self._stalled()
            self._trouble(why, keys)
        else:
            self._unreached.pop(node, None)
            agreed: wire.Agreed = link.context
            if agreed.until < FOREVER:
                self._soon(self._leave_link, link, pause=agreed.until - time.monotonic())
            if old is not None:  # a quota holds for the new connection, too
                agreed.muted_until = max(agreed.muted_until, old.context.muted_until)
            self._found(keys)
        if old is not None:
            self._template.clear()
            self.core.link_lost(old)

    def _found(self, keys: set[Key]) -> None:
        """Have these partitions sent, which have a connection now, once there is a producer id."""
        self._waits.over()
        if self._state is None or self._state.identity is not None:
            self.core.ready(keys)
            return
        first = not self._unnumbered
        self._unnumbered |= keys
        if first:
            until = time.monotonic() + self._options.request_timeout
            task = self._cluster.tasks.spawn(numbering(self._cluster, until), "asking for a producer id")
            after(task, self._numbered, self._state, task)

    def _numbered(self, state: ProducerState, task: Task[Identity]) -> None:
        """Take in the producer id."""
        keys, self._unnumbered = self._unnumbered, set()
        try:
            state.identity = task.result()
        except Exception as why:
            self._trouble(why, keys)
        else:
            self.core.ready(keys)

    def _trouble(self, why: Exception, keys: set[Key]) -> None:
        """Try again after a pause, or fail the records of these partitions; another node may lead by then."""
        if isinstance(why, WireprotoError):
            self.core.note_error(keys, why)
            if retry.verdict(why, transient=(TimedOut,)) is retry.Verdict.NEVER:
                self.core.abandon(lambda batch: batch.key in keys, why)
        self._soon(self._again, keys, pause=self._waits.next())

    def _again(self, keys: set[Key]) -> None:
        """Look the leaders up, and have the partitions asked for again."""
        self._look({topic for topic, _ in keys} & self._served())
        self.core.ready(keys)


def _answers(reply: ProduceResponse, names: dict[Hashable, str], version: int) -> dict[Key, Any]:
    """Return the response of each partition, by topic and number."""
    return {
        (names.get(topic.topic_id if version >= outgoing.BY_ID else topic.name, ""), part.index): part
        for topic in reply.responses
        for part in topic.partition_responses
    }
