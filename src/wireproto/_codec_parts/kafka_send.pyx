# What a Kafka batch sent alone goes through: the plain case of kafka/sending.py and kafka/identity.py, in the core.
#
#     Sent             which reply a call under way is to have, and what it is about
#     KafkaSequence    what is kept of a partition's numbers
#     KafkaNumbers     base of ProducerState: may a batch leave, and under which numbers
#     KafkaSendCore    base of KafkaSender: where to, by a prepared request, and the plain answer to it
#
# Whatever is not as it was the last time is Python's, which shares the attributes declared here: what they mean stands there.
# May assume: a prepared form holds for its connection and for what is known of topics; both are compared before each use.
# Must not: read a clock of its own, wait, or make sense of an unusual answer.

cimport cython
from cpython.dict cimport PyDict_GetItemWithError
from cpython.ref cimport PyObject
from libc.stdint cimport int16_t, int64_t

cdef enum:
    LARGEST_SEQUENCE = 0x7FFFFFFF
    BROKERS_KNOW = 5             # a producer's last batches, by which they recognise one that comes again


@cython.final
cdef class Sent:
    """Context of a call under way: which reply to expect in which version, and the caller's own data."""

    cdef readonly object reply
    cdef readonly int16_t version
    cdef readonly object caller_data

    def __init__(self, reply, int16_t version, caller_data):
        self.reply = reply
        self.version = version
        self.caller_data = caller_data


@cython.final
cdef class KafkaSequence:
    """State of a partition: the identity that it writes under, the next sequence number, and whether a batch of it was confirmed."""

    cdef public object identity
    cdef public int64_t next
    cdef public bint confirmed, starting_over

    def __init__(self, identity):
        self.identity = identity


cdef class KafkaNumbers(SequencerCore):
    """See above; kafka/identity.py has the rules."""

    cdef public object identity
    cdef public bint at_once     # a new identity is that of all partitions from now on; else each keeps its own until it starts over
    cdef public bint strict      # brokers refuse a first number under an identity that is not 0
    cdef int64_t in_flight       # batches of a partition, at most

    def __init__(self, identity, int64_t in_flight):
        self.identity = identity
        self.in_flight = in_flight

    def window(self, QueueCore queue not None):
        """Return how many batches of the queue may be in flight now, if the next one were sent."""
        return self.room(queue)

    cdef int64_t room(self, QueueCore queue) except -1:
        cdef KafkaSequence mark = queue.mark
        if not self.strict and (mark is None or not mark.confirmed):
            return 1
        if queue.in_flight and queue.next_number() - queue.in_flight[0].number >= BROKERS_KNOW:
            return 0
        return self.in_flight

    def admit(self, QueueCore queue not None, OutBatch batch not None, double now):
        """Give the batch its numbers, once. Returns False when it cannot have any yet."""
        return self.may_leave(queue, batch, now)

    cdef bint may_leave(self, QueueCore queue, OutBatch batch, double now) except -1:
        cdef KafkaSequence mark
        if batch.sequence >= 0:
            return True
        mark = queue.mark
        if mark is None or mark.identity is None or (self.at_once and mark.identity is not self.identity):
            if self.identity is None:
                return False
            mark = queue.mark = KafkaSequence(self.identity)
        batch.identity = mark.identity
        batch.sequence = mark.next
        mark.next = (mark.next + batch.count) & LARGEST_SEQUENCE
        return True

    def acked(self, QueueCore queue not None, OutBatch batch not None):
        """Note that the batch is stored."""
        self.note_stored(queue, batch)

    cdef int note_stored(self, QueueCore queue, OutBatch batch) except -1:
        cdef KafkaSequence mark = queue.mark
        if batch.identity is mark.identity:
            mark.confirmed = True
        return 0


cdef class KafkaSendCore(QuickWireCore):
    """See above.

    Attributes:
        core: the sender that this is the wire of. _looked_at: when metadata was asked for by age.
        _transactional: batches say that they are part of a transaction. started: something was sent since a broker refused.
    """

    cdef public SenderCore core
    cdef public object _metadata, _unresponsive, _box, _reply, _loop, _make_builder, _no_identity, _event
    cdef public dict _template, _unanswered, _owners
    cdef public bint _watching, _answered
    cdef public bint _transactional, started
    cdef public double _looked_at, _reply_timeout, _max_age
    cdef public int64_t _unsent_limit
    cdef ProduceTemplateCore latest         # most often the next one wanted

    cdef bint holds(self, ProduceTemplateCore form) except -1:
        return form.topics is self._metadata.topics and not form.link.closed

    cdef ProduceTemplateCore form_of(self, object key):
        """Return the template of a partition, or None when there is none or it does not hold any more."""
        cdef ProduceTemplateCore form
        cdef PyObject *found
        with cython.critical_section(self):
            form = self.latest
        if form is None or form.key is not key or not self.holds(form):
            found = PyDict_GetItemWithError(self._template, key)
            if found == NULL:
                return None
            form = <object>found
            if not self.holds(form):
                return None
            with cython.critical_section(self):
                self.latest = form
        return form

    def _make_batch(self, QueueCore queue not None, int64_t serial, double now):
        """Make an open batch, owned by the topic's present producer."""
        cdef PyObject *found = PyDict_GetItemWithError(self._owners, queue.key[0])
        owner = None if found == NULL else (<object>found)()
        return OutBatch(queue, serial, now, self._make_builder(), self._event(self._loop), owner, self._no_identity)

    cdef object aim(self, object key):
        """Return the connection to a partition's leader; None while nothing may be sent on it."""
        cdef ProduceTemplateCore form = self.form_of(key)
        if form is not None:
            agreed = form.link.context
            if not agreed.leaving and not agreed.muted_until:
                return form.link
        return self._target(key)

    cdef bint is_congested(self, object link) except -1:
        agreed = link.context
        if agreed.muted_until and self._may_throttle(link):
            return 1
        return link.unsent > self._unsent_limit or agreed.leaving

    cdef int send(self, object link, list batches) except -1:
        cdef ProduceTemplateCore form = None
        cdef OutBatch batch
        cdef double now = self.core._clock()
        self.started = True
        if self._answered and len(batches) == 1:
            batch = batches[0]
            form = self.form_of(batch.key)
            if form is None or form.link is not link:
                form = self._prepare(link, batch.key)
                with cython.critical_section(self):
                    self.latest = form
        if form is None:
            self._transmit(link, batches, now)
        else:
            identity = batch.identity
            if self._transactional:
                records = batch.builder.seal(identity.producer_id, identity.epoch, batch.sequence, transactional=True)
            else:
                records = batch.builder.seal(identity.producer_id, identity.epoch, batch.sequence)
            token = link.next_token()
            sent = Sent(self._reply, form.version, (batches, form.names, form, (batch.attempts,)))
            link.submit(token, form.buffers(token, records), self._box, now + self._reply_timeout, sent)
            self.note_unanswered(link, batch.key)
        if (self._answered and not self._watching) or now - self._looked_at > self._max_age:
            try:
                self._look_after(now)
            except BaseException:                # a signal handler's: the next one looks after it
                self._watching = False
                raise
        return 0

    cdef int note_unanswered(self, object link, object key) except -1:
        """Note that a request for this key was sent on this connection."""
        cdef PyObject *found = PyDict_GetItemWithError(self._unanswered, link)
        if found == NULL:
            self._unresponsive.sent(link, key)
        else:
            (<set>(<object>found).keys).add(key)
        return 0

    def _replied_well(self, call):
        """Handle a response that stored all batches; False leaves it to `_replied`. After a signal anywhere in here `_replied` may do all
        of it again."""
        cdef Sent sent = call.context
        cdef ProduceTemplateCore form = sent.caller_data[2]
        cdef int64_t base
        frame = call.frame
        if form is not None and frame is not None:
            base = form.base(frame)
            if base >= 0:
                self.core.store(sent.caller_data[0][0], base)
                return True
        return self._read_well(call)
