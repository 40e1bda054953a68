"""Kafka's way of sending: batches into Produce requests, answers into verdicts, and leaders, connections and producer ids found meanwhile.

What it is: the `Wire` of a `flow.sender.Sender`, and what belongs to it. One `KafkaSender` serves all producers of a client that have the
same options: one producer id, one Produce a broker with batches of many topics and partitions. A second producer of the same topic is
another producer to the brokers, so `KafkaSenders` gives it another one. Connections of purpose "produce" are shared by all.

    answer                                              verdict
    0                                                   Stored
    no answer, or a retriable code                      Again; at once when the answer names a leader that we did not know of
    OUT_OF_ORDER_SEQUENCE_NUMBER and kin                StartOver, with idempotence
    DUPLICATE_SEQUENCE_NUMBER                           Stored, at a position that nobody knows
    MESSAGE_TOO_LARGE and kin, of several records       Split in halves, as Java's client does; Refused where its sending is in doubt
    any other code that names some of the records       Split in those, which fail, and the others; Refused where its sending is in doubt
    any other code                                      Refused

Whoever fills a batch sends it; the I/O thread sends when a linger is over or an answer made room, and reads the answers that nobody waits for;
tasks of the client look for what is missing.
Must not: block in the I/O thread, or keep an order of its own: that is the queues'.
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
from ..flow.queue import FreeStamp, Stamp
from ..flow.sender import FOREVER, Again, Refused, Sender, SendTimes, Split, StartOver, Stored, Verdict
from ..net import retry
from ..net.task import Steps, Task, after
from . import outgoing, wire
from .codes import DuplicateSequenceNumber, MessageTooLarge, NetworkError, RecordListTooLarge, error
from .identity import NOBODY, Identity, ProducerState
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
"""Where a record is that an earlier sending wrote, when the broker does not say."""
_UNSENT_LIMIT = 2 << 20
_WARY = 5.0
"""Seconds behind the time that a quota took for which a connection has one request under way at a time."""
_STRAGGLING = 0.01
"""Seconds for a thread that was about to send by a connection when that was left."""
_TOO_LARGE = (MessageTooLarge, RecordListTooLarge)  # than the topic allows, or than one of its segments
_UNREACHED = 3.0
"""Seconds for which a node that could not be dialled counts as one that cannot be. It is dialled more often while records wait for it."""
_NAMED = 3
"""So many refused records are named in an error of many."""
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
    """All senders of a client. Thread-safe."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster
        self._lock = BriefLock()
        self._made: dict[tuple[Any, ...], list[KafkaSender]] = {}

    def finding(self, topic: str, options: KafkaOptions, deadline: float) -> Steps[KafkaSender]:
        """A sender for these options in which the topic is nobody's, now."""
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
    """Who a new sender is; None: batches go without numbers."""
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
    """A producer id that nobody has."""

    def check(reply: InitProducerIdResponse) -> BrokerError | None:
        return error(reply.error_code, "asking for a producer id") if reply.error_code else None

    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
    reply = yield from cluster.asking(request, until, check=check)
    return Identity(reply.producer_id, reply.producer_epoch)


class KafkaSender(KafkaSendCore):
    """See the module. Where a batch goes (`target`, `crowded`), that it is sent (`transmit`), and that it is stored, is the core's where
    nothing has changed since the one before.

    Attributes:
        core: the sender that this is the wire of. idempotent: whether batches are numbered.
        transaction: the transactional id that requests carry; None: they are in none.
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
        self._blind: set[Key] = set()  # whose leader is looked up
        self._dialling: dict[int, set[Key]] = {}  # by node: who waits for its connection
        self._unreached: dict[int, float] = {}  # nodes whose last dialling went wrong: until when that counts
        self._unnumbered: set[Key] = set()  # who waits for a producer id
        self._waits = retry.Waits(_AGAIN)
        self._looked_at = time.monotonic()
        self._owners: dict[str, weakref.ref[BatchProducer]] = {}
        self._nobody, self._event = NOBODY, Event
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
        stamp: Stamp = self._state if self._state is not None else FreeStamp()
        pace = SendTimes(linger=options.linger, delivery_timeout=options.delivery_timeout)
        self._alarm = Alarm(cluster.loop, lambda: self.core.tick())
        self.core = Sender(self, stamp, pace, self._make_batch, self._alarm.set, time.monotonic, cluster.log)

    def join(self, producer: BatchProducer) -> bool:
        """Serve this producer too, unless its topic has one here."""
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
        """Whether a producer of this topic is here."""
        return self.owner(topic) is not None

    def owner(self, topic: str) -> BatchProducer | None:
        """The producer of this topic here, if there is one."""
        ref = self._owners.get(topic)
        return None if ref is None else ref()

    def leave(self, producer: BatchProducer) -> None:
        """It was closed."""
        if self.owner(producer.topic) is producer:
            del self._owners[producer.topic]
            for key in [key for key in self._template if key[0] == producer.topic]:
                self._template.pop(key, None)

    def _served(self) -> set[str]:
        """Topics with a producer."""
        return {topic for topic in tuple(self._owners) if self.serves(topic)}

    def unsent(self) -> bool:
        """Whether connections hold what has not left yet."""
        return any(conn.unsent and not conn.closed for conn in tuple(self._links.values()))

    def answering(self, topic: Topic) -> Sequence[int]:
        """The partitions that a record without a key may go to: those with a leader, without leaders that keep silent, cannot be reached
        again or hold us to a quota. What they were given would gather here, until there is room for nothing else (KIP-794)."""
        led = topic.available or tuple(topic.partitions)
        away = {number for number, link in tuple(self._links.items()) if self._stands_still(number, link)}
        if self._unreached:
            now = time.monotonic()
            away |= {number for number, until in tuple(self._unreached.items()) if until > now}
        return [number for number in led if topic.partitions[number].node not in away] or led if away else led

    def _stands_still(self, number: int, link: Connection) -> bool:
        if link.closed:
            return number in self._dialling
        muted: float = link.context.muted_until
        return link in self._unresponsive.silent or (muted > 0.0 and muted > time.monotonic())

    # --- requests: see flow.sender.Wire ---

    def _target(self, key: Key) -> Connection | None:
        node = self._metadata.leader(*key)
        conn = self._links.get(node.id) if node is not None else None
        if conn is None or conn.closed:
            return None
        muted: float = conn.context.muted_until
        return None if muted and muted > time.monotonic() else conn

    def _wary(self, link: Connection) -> bool:
        """Whether the awaited answer may say that the node reads no more: what is behind it would wait there, and its time run out."""
        muted: float = link.context.muted_until
        return bool(link.pending) and time.monotonic() < muted + _WARY

    def requests(self, link: Connection, batches: list[OutBatch]) -> Iterable[list[OutBatch]]:
        return outgoing.requests(batches, self._options.max_request_size)

    def _look_after(self, now: float) -> None:
        """See to it that silent leaders are noticed, and that metadata is not too old."""
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
        """The newest version of Produce to speak; `nameless`: a topic has no id."""
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
            matter = batches, names, None, [batch.attempts for batch in batches]
            wire.submit(link, request, mailbox=self._box, timeout_at=timeout_at, version=version, matter=matter)
            for batch in batches:
                self._unresponsive.sent(link, batch.key)
        else:
            agreed: wire.Agreed = link.context
            link.send(wire.frame(request, version, link.next_token(), agreed.client_id))
            self.core.settle([(batch, Stored(-1)) for batch in batches])

    def drop(self, link: Connection) -> None:
        link.close("a signal broke into the sending of a Produce")

    def failed(self, batch: OutBatch, why: WireprotoError) -> None:
        if batch.owner is not None:
            batch.owner.failed(batch, why)

    def overdue(self, batch: OutBatch, trouble: str) -> WireprotoError:
        doubt = "; it may still be in the log" if batch.doubtful or batch in batch.queue.in_flight else ""
        text = f"the record was not acknowledged within {self._options.delivery_timeout:g} s{doubt}{trouble}"
        return TimedOut(text, topic=batch.key[0], partition=batch.key[1])

    # --- answers: in the I/O thread, or at once in a waiting thread when all is well ---

    def _read_well(self, call: Call) -> bool:
        """As `_replied_well`, where the answer is not the usual one."""
        sent: Sent = call.context
        batches, names, _, _ = sent.matter
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
        sent: Sent = call.context
        batches, names, _, sendings = sent.matter
        # one whose sending a signal broke into has gone out again, perhaps: then that is what counts
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
        self._cluster.throttled(reply, link)
        if reply.throttle_time_ms:
            self._stalled()

    def _stalled(self) -> None:
        """A leader has begun to stand still: producers look again whether their records without a key may go on to it (`answering`)."""
        self._metadata.changes.note()

    def _verdict(self, batch: OutBatch, answer: Any, nodes: list[Node], version: int) -> Verdict:
        if answer is None:
            return Again(NetworkError("the answer leaves the partition out", topic=batch.key[0]), doubtful=True)
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
        if isinstance(problem, _TOO_LARGE) and self._options.message_format == 2:  # of the older ones each message counts by itself
            parts = outgoing.halves(batch, self._make_builder)
            if parts is not None:
                return Split(problem, parts)
        if answer.record_errors:
            parts = self._others(batch, {bad.batch_index: bad.batch_index_error_message for bad in answer.record_errors}, problem)
            if parts is not None:
                return Split(problem, parts)
        return Refused(problem)

    def _others(self, batch: OutBatch, reasons: dict[int, str | None], problem: BrokerError) -> Parts | None:
        """What goes on without the records that the broker refuses (KIP-467), which fail. None: nothing does."""
        where = sorted(reasons)
        self._name(problem, [f"record {index}: {reasons[index] or ''}" for index in where])
        if self.transaction is not None or batch.outcome.done or not 0 <= where[0] <= where[-1] < batch.count:
            return None  # of a transaction all is stored or nothing
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
        more = len(reasons) - _NAMED
        problem.text = "; ".join([problem.text, *reasons[:_NAMED], *([f"and {more} more"] if more > 0 else [])])

    # --- who keeps silent: in the I/O thread ---

    def _watch(self) -> None:
        """Once a second while an answer is owed: of what a silent leader was sent, another node may be the leader by now. Then the
        connection is closed before anything goes there, as if it had been lost: what it holds is in doubt, and goes out again in order."""
        self._watching = False  # first: who sends meanwhile sees to the next look, or is seen here
        now = time.monotonic()
        before = self._unresponsive.silent
        waiting = self._unresponsive.look(now)
        if self._unresponsive.silent.keys() - before.keys():
            self._stalled()
        for link, keys in self._unresponsive.silent.items():
            flying: set[Key] = self.core.flying(keys)
            moved = next((key for key in flying if self._led_elsewhere(key, link)), None)
            if moved is not None:
                link.close(f"it keeps silent, and another node leads {moved[0]}[{moved[1]}]")
            else:
                self._look(topic for topic, _ in flying)
        if waiting and not self._watching:
            self._watching = True
            self._watcher.set(now + LOOK_EVERY)

    def _led_elsewhere(self, key: Key, link: Connection) -> bool:
        node = self._metadata.leader(*key)
        return node is not None and self._links.get(node.id) is not link

    # --- what is left before a session's end (KIP-368): in the I/O thread ---

    def _leave_link(self, link: Connection) -> None:
        """Nothing more goes out by it. It is closed when all that did has been served, so that nothing is lost of what nobody acknowledges
        and nothing repeated of what has no numbers."""
        agreed: wire.Agreed = link.context
        agreed.leaving = True
        self._soon(self._ask_last, link, pause=_STRAGGLING)

    def _ask_last(self, link: Connection) -> None:
        """Brokers serve the requests of a connection in order: the answer to this one tells that the others were."""
        with suppress(TransportError):
            timeout_at = time.monotonic() + self._options.request_timeout
            after(wire.submit(link, ApiVersionsRequest(), version=0, timeout_at=timeout_at), link.close, "its session is about to end")

    # --- leaders, connections and identities: tasks look for them, and the I/O thread alone keeps what follows ---

    def want(self, keys: set[Key]) -> None:
        self._soon(self._find, keys)

    def _refresh(self, topics: Iterable[str]) -> None:
        """Look up these topics' leaders again."""
        self._soon(self._look, tuple(topics))

    def _soon(self, fn: Callable[..., None], *args: Any, pause: float = 0.0) -> None:
        with suppress(Closed):
            self._loop.call_at(time.monotonic() + pause, fn, *args)

    def _find(self, keys: Iterable[Key]) -> None:
        """What each of these lacks; `core.ready` is told when it is there, or when it is to be asked for again."""
        for key in keys:
            node = self._metadata.leader(*key)
            if node is None:
                self._blind.add(key)
            else:
                self._reach(node, key)
        self._look(topic for topic, _ in self._blind)

    def _look(self, topics: Iterable[str]) -> None:
        """One look-up at a time: what is wanted meanwhile is asked for together."""
        self._stale.update(topics)
        if self._stale and not self._looking:
            asked, self._stale, self._looking = self._stale, set(), True
            task = self._cluster.look(asked)
            after(task, self._looked, task, asked)

    def _looked(self, task: Task[None], asked: set[str]) -> None:
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
        """The node's connection: those who want it meanwhile share its dialling, and it keeps no other node's waiting."""
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
        keys = self._dialling.pop(node)
        try:
            link = self._links[node] = task.result()
        except Exception as why:  # credentials are the user's code
            self._unreached[node] = time.monotonic() + _UNREACHED
            self._stalled()
            self._trouble(why, keys)
        else:
            self._unreached.pop(node, None)
            agreed: wire.Agreed = link.context
            if agreed.until < FOREVER:
                self._soon(self._leave_link, link, pause=agreed.until - time.monotonic())
            if old is not None:  # another connection is no way round a quota
                agreed.muted_until = max(agreed.muted_until, old.context.muted_until)
            self._found(keys)
        if old is not None:
            self._template.clear()
            self.core.link_lost(old)

    def _found(self, keys: set[Key]) -> None:
        """They have a leader's connection, and may need a producer id, too."""
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
        keys, self._unnumbered = self._unnumbered, set()
        try:
            state.identity = task.result()
        except Exception as why:
            self._trouble(why, keys)
        else:
            self.core.ready(keys)

    def _trouble(self, why: Exception, keys: set[Key]) -> None:
        """They wait a little, and where the leader cannot be reached another one may be by then."""
        if isinstance(why, WireprotoError):
            self.core.met(keys, why)
            if retry.verdict(why, passing=(TimedOut,)) is retry.Verdict.NEVER:
                self.core.abandon(lambda batch: batch.key in keys, why)
        self._soon(self._again, keys, pause=self._waits.next())

    def _again(self, keys: set[Key]) -> None:
        self._look({topic for topic, _ in keys} & self._served())
        self.core.ready(keys)


def _answers(reply: ProduceResponse, names: dict[Hashable, str], version: int) -> dict[Key, Any]:
    """The answer of each partition, by topic and number."""
    return {
        (names.get(topic.topic_id if version >= outgoing.BY_ID else topic.name, ""), part.index): part
        for topic in reply.responses
        for part in topic.partition_responses
    }
