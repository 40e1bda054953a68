# What a RocketMQ record sent one by one goes through: the plain case of rocketmq/producer.py, outgoing.py and sending.py, in the core.
#
#     RocketOut            base of RocketBatch: one command, of a record (310) or of neighbours of one queue (320)
#     RocketSendCore       base of RocketSender: where to, the command, and the plain answer to it
#     RocketProducerCore   base of RocketProducer: `send`
#
# Whatever is unusual is Python's, which shares the attributes declared here: what they mean stands there.
# May assume: the sender's lock round all that puts records in. Must not: choose brokers, retry, wait, or read an unusual answer.

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItemWithError
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from wireproto.deadlines import seconds

cdef enum:
    SINGLE_COMMAND = 310
    BATCH_COMMAND = 320
    LARGEST_BODY = 0x7FFFFFFF
    PLAIN_ANSWER = 1024          # bytes of an answer that is worth a short look; those to large batches name every message
    RECORD_OVERHEAD = 256        # bytes of the send budget that a record is counted for beyond its own

cdef RecordBuilder NO_BUILDER = RecordBuilder()


cdef class RocketOut(OutBatch):
    """See above, and RocketBatch."""

    cdef public bint anywhere, stamped
    cdef public object body, link
    cdef public tuple single
    cdef public RocketBatchBuilder rows
    cdef public int64_t born, sys_flag, warning
    cdef public double since

    def __init__(self, queue, int64_t serial, double created, outcome, owner):
        self.set_up(queue, serial, created, NO_BUILDER, outcome, owner, None)
        self.anywhere = True
        self.since = created

    cdef bint takes(self, int64_t size, int64_t limit) noexcept:
        """Whether a record may join those that are there."""
        return not self.sys_flag and self.size + size <= limit

    cdef int begin(self, object timestamp, int64_t now_ms) except -1:
        """The first record comes."""
        self.stamped = timestamp is not None
        self.born = <int64_t>timestamp if self.stamped else now_ms
        return 0

    def join(self, body, bytes properties not None, int64_t size, bint anywhere, timestamp, int64_t now_ms):
        """Take a record; its index. size: what was taken of the send budget for it. timestamp: its own in ms, or None."""
        return self.put_in(body, properties, size, anywhere, timestamp, now_ms)

    cdef Py_ssize_t put_in(
        self, object body, bytes properties, int64_t size, bint anywhere, object timestamp, int64_t now_ms
    ) except -1:
        if self.count:
            self.batch().add(body, self.with_time(properties, timestamp, now_ms))
            self.anywhere = self.anywhere and anywhere
        else:
            self.single = (body, properties)
            self.anywhere = anywhere
        with cython.critical_section(self):
            self.count += 1
            self.size += size
        return self.count - 1

    cdef bytes with_time(self, bytes properties, object timestamp, int64_t now_ms):
        """Add the property BORN_TIMESTAMP where a record has another time than its command, which carries one."""
        cdef int64_t own
        cdef Py_ssize_t size = PyBytes_GET_SIZE(properties)
        cdef uint8_t[BORN_MOST] pair
        cdef Py_ssize_t pair_size
        if timestamp is None and not self.stamped:
            return properties
        own = now_ms if timestamp is None else <int64_t>timestamp
        if self.stamped and own == self.born:
            return properties
        pair_size = put_born(pair, own) - pair
        made = PyBytes_FromStringAndSize(NULL, size + pair_size)
        memcpy(PyBytes_AS_STRING(made), PyBytes_AS_STRING(properties), size)
        memcpy(PyBytes_AS_STRING(made) + size, pair, pair_size)
        return made

    def batch(self):
        """The records as the body of a batch."""
        if self.rows is None:
            self.rows = RocketBatchBuilder(LARGEST_BODY)
        if self.single is not None:
            self.rows.add(self.single[0], self.single[1])
            self.single = None
        return self.rows

    def grown(self, int64_t size, bint anywhere):
        """Rows were put into `batch`, which hold so much of the send budget: the last one's index."""
        self.anywhere = self.anywhere and anywhere
        return self.grow(len(self.batch()) - self.count, size)

    def content(self):
        """Code, properties and body of the command. An empty body travels as a batch of one: 5.x brokers fail on it otherwise."""
        if self.single is not None and self.single[0]:
            return SINGLE_COMMAND, self.single[1], self.single[0]
        if self.body is None:
            self.body = self.batch().finish()
            self.rows = None
        return BATCH_COMMAND, b"", self.body

    def forget(self):
        """Drop what it would need to be sent again: it is stored."""
        self.single = self.rows = self.body = None


cdef class RocketSendCore(QuickWireCore):
    """See above."""

    cdef public SenderCore core
    cdef public object routing, _box, _loop, _event, _producer, _batch_type
    cdef public dict _links, _problems
    cdef public RocketSendHeader _header
    cdef public double _lifetime, _reply_timeout      # the delivery timeout, the request's
    cdef public int64_t _unsent_limit

    def _make_batch(self, queue, int64_t serial, double now):
        """An open batch."""
        return self._batch_type(queue, serial, now, self._event(self._loop), self._producer())

    cdef object aim(self, object key):
        """The connection to a queue's master, if it is known and there."""
        cdef PyObject *found = PyDict_GetItemWithError(self._links, key)
        return <object>found if found != NULL and not (<object>found).closed else self._target(key)

    cdef bint is_congested(self, object link) except -1:
        return link.unsent > self._unsent_limit

    cdef int send(self, object link, list batches) except -1:
        cdef RocketOut batch = batches[0]
        cdef QueueCore queue = batch._queue
        cdef double late
        if batch.attempts == 1 and queue.mark is not None:
            batch.since = max(batch.since, <double>queue.mark)
        late = min(batch.since + self._lifetime, self.core._clock() + self._reply_timeout)
        if self._header is None or batch.born < 0:
            self._transmit(link, batch, late)
            return 0
        queue_id = self.routing.queues[batch.key].queue_id
        code, properties, body = batch.content()
        batch.link = link
        token = link.next_token()
        head = self._header.encode(code, token, queue_id, <int32_t>batch.sys_flag, batch.born, properties)
        link.submit(token, [head, body], self._box, late, batch)
        return 0

    def _replied_well(self, call):
        """Take in a plain answer that the batch is stored; False leaves it to `_replied`. A signal may end this anywhere, and `_replied` do
        it all again."""
        cdef RocketOut batch = call.context
        cdef int64_t place
        frame = call.frame
        if frame is None or len(frame) > PLAIN_ANSWER:
            return False
        place = rocket_send_reply(frame)
        if place < 0:
            return False
        if self._problems:
            self._problems.pop(batch.key, None)
        (<QueueCore>batch._queue).mark = self.core._clock()
        self.core.store(batch, place)
        batch.single = batch.rows = batch.body = None      # as `forget`
        return True

    def settled(self, list batches not None):
        """Their outcomes are known: what they hold is free, and keys may follow a coming route."""
        WireCore.settled(self, batches)
        if self.routing.coming is not None:
            self._moved_on()


cdef class RocketProducerCore(ProducerCore):
    """See above.

    Attributes:
        _needs_keys: whether the topic is compacted; None: not known yet. _largest: bytes of a value that may be sent plainly: one
            above is refused, or compressed.
    """

    cdef public object _needs_keys, _receipt, _check, _routing, _sending, _budget
    cdef public RocketIds _ids
    cdef public int64_t _ids_end, _largest, _batch_size
    cdef public bint _lingers

    def send(self, value, *, key=None, headers=None, timestamp=None, partition=None, timeout=ROOM_TIMEOUT):
        """See `wireproto.roles.Producer.send`."""
        cdef int64_t now, size
        cdef bytes properties
        cdef object own = timestamp
        if timeout is not ROOM_TIMEOUT:
            seconds(timeout)
        self._check()
        if (PyBytes_CheckExact(value) and PyBytes_GET_SIZE(value) <= self._largest and not headers
                and (key is not None or self._needs_keys is False)):
            now = now_ms()
            if now < self._ids_end:
                properties = rocket_plain_properties(key, self._ids, now)
                if properties is not None:
                    if own is not None:
                        own = given_time(own)
                    size = PyBytes_GET_SIZE(value) + PyBytes_GET_SIZE(properties) + RECORD_OVERHEAD
                    if self._account.takes(size):
                        return self.put_in(value, key, properties, own, now, 0, partition, size)
        return self._take_slowly(value, key, headers, timestamp, partition, timeout)

    def _put_in(self, body, key, bytes properties not None, timestamp, int64_t now, int64_t sys_flag, partition, int64_t size):
        """Take a record whose room is taken; its receipt."""
        return self.put_in(body, key, properties, timestamp, now, sys_flag, partition, size)

    cdef object put_in(
        self, object body, object key, bytes properties, object timestamp, int64_t now, int64_t sys_flag, object partition, int64_t size
    ):
        cdef RocketOut batch
        cdef Py_ssize_t index = 0
        cdef bint alone, anywhere = False
        try:
            self._lock.take()
            try:
                if partition is not None:
                    number = self._checked_place(partition)
                elif key is not None:
                    number = self.place(key)
                else:
                    number = self._sending.able()
                    anywhere = True
                alone = sys_flag != 0 or (anywhere and self._needs_keys is None)
                batch = self.batch_for(
                    number, timestamp, now, size, self._batch_size, alone or PyBytes_GET_SIZE(properties) > PROPERTIES_MOST - BORN_MOST)
                batch.sys_flag = sys_flag
                index = batch.put_in(body, properties, size, anywhere, timestamp, now)
                if alone or batch.size >= self._batch_size:
                    self._sender.seal(number)
            finally:
                self._lock.leave()
        except BaseException:
            self._account.free(size)
            raise
        self._set_off(batch, index)
        return self._receipt(batch, index)

    cdef object place(self, object key):
        """As `Routing.place`."""
        cdef object routing = self._routing
        return java_place_of(key, routing.route.keyed) if routing.coming is None else routing.place(key)

    def _batch(self, number, timestamp, int64_t now, int64_t size, int64_t limit, bint alone):
        """The open batch of a queue that takes a record, a new one if need be, or if it is to be the first. Under the lock."""
        return self.batch_for(number, timestamp, now, size, limit, alone)

    cdef RocketOut batch_for(self, object number, object timestamp, int64_t now, int64_t size, int64_t limit, bint alone):
        cdef RocketOut batch
        if self._closed:
            self._usable()
        batch = self._sender.opening(number)
        if batch.count and (alone or not batch.takes(size, limit)):
            self._sender.seal(number)
            batch = self._sender.opening(number)
        if not batch.count:
            batch.begin(timestamp, now)
        return batch

    def _set_off(self, RocketOut batch not None, Py_ssize_t index):
        """A record is in: send what may go."""
        if index == 0 and not batch.sealed and not self._lingers:
            self._sender.set_off(batch)
            if batch.attempts:
                return
        else:
            if index == 0:
                self._sender.opened(batch)
            if self._sender._due:
                self._sender.drain()
        if self._budget.waiting:
            self._sender.hurry_all()
