# The way into a producer: one record into the open batch of its partition, in one call.
#
#     Changes      how often something was learnt of topics
#     KeyRouter    which partition: the one named, the key's, or the one that records without a key stick to
#     Appender     `send`: chooses the partition, takes room, appends, and hands out the receipt. A producer has one, and is none
#
# The fast way needs an open batch with room for the record, room in the send budget, and the topic's partitions as last seen; whatever
# else is to be done (a new batch, waiting, errors) is left to `slow`, the producer's, in Python and under its lock. The budget is not
# looked at for each record: bytes are taken ahead, a few KiB at a time (`credit`), and what is left of them is given back on `recall`.
# May assume: between looking at a batch and counting the record no Python code runs. A sealed or busy batch is left to the slow way.
# Must not: wait, send, or open a batch.

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint8_t
from libc.string cimport memset
from libc.time cimport time_t

from wireproto.deadlines import seconds
from wireproto.errors import ValueUnsupported

cdef object ROOM_TIMEOUT = 30.0          # seconds that a record waits for room

cdef extern from "<time.h>" nogil:
    struct timespec:
        time_t tv_sec
        long tv_nsec
    int CLOCK_REALTIME
    int clock_gettime(int clock, timespec *t)

cdef enum:
    RECORD_ROUND = 36        # bytes around key, value and headers as the budget counts them: 5 length, 1, 10 time, 5 offset, 3 x 5


cdef inline int64_t now_ms() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_REALTIME, &t)
    return <int64_t>t.tv_sec * 1000 + t.tv_nsec // 1000000


cdef bytes encoded_headers(headers):
    """Headers as they stand in a v2 record: their number, then names and values."""
    cdef Building b
    cdef Blob v
    cdef Py_ssize_t name_size
    cdef const char *name_at
    cdef int code
    pairs = list(headers.items() if hasattr(headers, "items") else headers)
    if not pairs:
        return None
    memset(&b, 0, sizeof(Building))
    try:
        check(headers_begin(&b, len(pairs)))
        for name, value in pairs:
            name_at = header_name(name, &name_size)
            blob_open(&v, value)
            code = headers_add(&b, <const uint8_t *>name_at, name_size, v.data, v.size)
            blob_close(&v)
            if code == TABLE_FULL:
                raise ValueUnsupported("a header of 2 GiB does not fit a record")
            check(code)
        return PyBytes_FromStringAndSize(<char *>b.headers.data, b.headers.used)
    finally:
        mem_give(b.headers.data)


@cython.final
cdef class Changes:
    """A count that goes up whenever something is learnt; one that keeps what it knows of it compares the count."""

    cdef readonly int64_t count

    def note(self):
        """Something is known now that was not."""
        self.count += 1


cdef class KeyRouter:
    """Chooses partitions.

    Args:
        hashing: of keys (key_hash.pyx). share: so many records without a key go to each partition in turn; 0: they stick to one that is
            set by `stick`, for that number of bytes.
    Attributes:
        partitions: how many; 0: none are known. sticky: the partition that records without a key stick to, -1: none yet.
    """

    cdef readonly Py_ssize_t partitions
    cdef readonly Py_ssize_t sticky
    cdef int64_t sticky_room      # bytes, or records, until it moves on
    cdef int64_t share
    cdef int hashing

    def __cinit__(self, str hashing="murmur2", int64_t share=0):
        self.hashing = KEY_HASHES.index(hashing)
        self.share = share
        self.sticky = -1

    def know(self, Py_ssize_t partitions, bint keep_sticky):
        """Set the number of partitions. keep_sticky: whether `sticky` may still be used."""
        self.partitions = partitions
        if not keep_sticky:
            self.sticky_room = 0

    def stick(self, Py_ssize_t partition, int64_t room):
        """Send records without a key to this partition for the next `room` bytes."""
        self.sticky = partition
        self.sticky_room = room

    def sticky_for(self, int64_t size):
        """Return the sticky partition for a record of `size` bytes without a key; -1: none is chosen, or its bytes are used up."""
        if self.sticky_room <= 0:
            return -1
        self.sticky_room -= size
        return self.sticky

    def of(self, key):
        """Where a record of this key goes; None: one without a key, whose turn it is. The partitions are known."""
        cdef Blob k
        cdef Py_ssize_t found
        blob_open(&k, key)
        found = self.choose(&k)
        blob_close(&k)
        if key is None:
            self.spend(0)
        return found

    def in_turn(self, Py_ssize_t wanted):
        """The partition whose turn it is, and how many of the records without a key it takes, of so many. For routers with a `share`."""
        cdef Blob none
        cdef Py_ssize_t found
        cdef int64_t count
        none.size = -1
        found = self.choose(&none)
        count = min(self.sticky_room, wanted)
        self.sticky_room -= count
        return found, count

    cdef inline Py_ssize_t choose(self, const Blob *key) noexcept:
        """Where a record goes that names no partition; -1: that is to be found out."""
        if self.partitions == 0:
            return -1
        if key.size >= 0:
            if self.hashing == HASH_MURMUR2:
                return (murmur2(key.data, key.size) & 0x7FFFFFFF) % <uint32_t>self.partitions
            return 0 if self.partitions == 1 else (key_hash_of(self.hashing, key.data, key.size) & 0x7FFFFFFF) % <uint32_t>self.partitions
        if self.sticky_room <= 0 and self.share:
            self.sticky = self.sticky + 1 if self.sticky + 1 < self.partitions else 0
            self.sticky_room = self.share
        return self.sticky if self.sticky_room > 0 and self.sticky < self.partitions else -1

    cdef inline void spend(self, int64_t size) noexcept:
        """A record without a key went where it sticks."""
        self.sticky_room -= 1 if self.share else size


cdef class Appender:
    """See above.

    Args:
        router: of the topic. account: of the send budget; has `try_take`.
        slow: called with (value, key, headers as encoded, time in ms, whether the caller gave it, partition, size, timeout) for what is
            left over; returns the receipt. usable: called for each record, raises when there is nothing to send with.
        changes: goes up whenever something is learnt of topics: then `learn` is called.
        largest: bytes of a record as `send` counts them. step: bytes to take ahead. direct: False sends all the slow way.
        begin: called with a partition: the batch that is open there, a new one if need be, which is `opened` here; begun: called with it when
            the record is in. None: a new batch is left to `slow`.
        headers: called with what the caller gave, returns them encoded, or None; None: as Kafka's. dated: a record without a timestamp has
            the clock's; else it has none, 0, and 0 cannot be given.
    """

    cdef KeyRouter router
    cdef object account, slow, usable, learn, begin, begun
    cdef Changes changes
    cdef int64_t seen            # … that were given to `learn`
    cdef list open               # OutBatch or None, by partition
    cdef int64_t largest, step
    cdef readonly int64_t credit
    cdef object encode
    cdef bint direct, dated
    cdef object intake           # of the asyncio face, or None
    cdef bint held               # records wait for room there, so that none may overtake them

    def __init__(self, KeyRouter router not None, account, slow, usable, Changes changes not None, learn, *, int64_t largest, int64_t step,
                 bint direct, headers=None, bint dated=True, begin=None, begun=None):
        self.router = router
        self.account = account
        self.slow = slow
        self.usable = usable
        self.changes = changes
        self.learn = learn
        self.seen = -1
        self.step = step
        self.open = []
        self.largest = largest
        self.direct = direct
        self.begin = begin
        self.begun = begun
        self.encode = headers
        self.dated = dated

    def await_by(self, intake):
        """Return SendFutures from `send`, and leave all other records to `intake.slow`. Returns the former `slow`."""
        slow = self.slow
        self.intake = intake
        self.slow = intake.slow
        return slow

    def hold(self, bint on):
        """Leave every record to `slow` while `on`."""
        self.held = on

    def lend(self, int64_t size):
        """Add bytes of the send budget that were taken for a record."""
        with cython.critical_section(self):
            self.credit += size

    def receipt(self, OutBatch batch not None, Py_ssize_t index):
        """What `send` hands out for a record of a batch."""
        return new_receipt(batch, index) if self.intake is None else new_future(self.intake, batch, index)

    def close(self):
        """Leave every record to `slow` from now on, which refuses it."""
        self.direct = False

    def opened(self, Py_ssize_t partition, OutBatch batch not None):
        """Put records of this partition into this batch from now on, until it is sealed."""
        if partition < 0:
            raise IndexError(partition)
        while len(self.open) <= partition:
            self.open.append(None)
        self.open[partition] = batch

    def recall(self):
        """The bytes that were taken ahead and hold no record; the caller gives them back."""
        cdef int64_t left
        with cython.critical_section(self):
            left = self.credit
            self.credit = 0
        return left

    def charge(self, int64_t size):
        """Take bytes for a record out of what was taken ahead, or take more ahead; False: there is no room now."""
        cdef bint enough
        if size > self.credit and not self.fetch(size):
            return False
        with cython.critical_section(self):
            enough = size <= self.credit
            if enough:
                self.credit -= size
        return enough

    cdef bint fetch(self, int64_t size) except -1:
        """Take a step ahead. Runs Python code."""
        cdef int64_t step = self.step if size < self.step else size
        if not self.account.try_take(step):
            return False
        with cython.critical_section(self):
            self.credit += step
        return True

    def send(self, value, *, key=None, headers=None, timestamp=None, partition=None, timeout=ROOM_TIMEOUT):
        """See `wireproto.roles.Producer.send`."""
        cdef Blob k, v
        cdef bytes pairs = None
        cdef int64_t time, size, seen
        cdef object receipt = None
        self.usable()
        if timeout is not ROOM_TIMEOUT:
            seconds(timeout)
        if headers is not None and headers:
            pairs = encoded_headers(headers) if self.encode is None else self.encode(headers)
        if timestamp is None:
            time = now_ms() if self.dated else 0
        else:
            time = given_time(timestamp)
        blob_open(&v, value)
        try:
            blob_open(&k, key)
        except BaseException:
            blob_close(&v)
            raise
        try:
            size = RECORD_ROUND + (v.size if v.size > 0 else 0) + (k.size if k.size > 0 else 0)
            if pairs is not None:
                size += PyBytes_GET_SIZE(pairs)
            if self.direct and not self.held and size <= self.largest and (time > 0 or (time == 0 and (self.dated or timestamp is None))):
                if self.changes.count != self.seen:
                    seen = self.changes.count
                    self.learn()
                    self.seen = seen
                receipt = self.put(partition, &k, &v, pairs, time, size)
        finally:
            blob_close(&k)
            blob_close(&v)
        if receipt is not None:
            return receipt
        return self.slow(value, key, pairs, time, timestamp is not None, partition, size, timeout)

    cdef object put(self, object partition, const Blob *key, const Blob *value, bytes headers, int64_t time, int64_t size):
        """A receipt, or None when there is more to do than to put the record in."""
        cdef Py_ssize_t number
        cdef OutBatch batch = None
        cdef int code = NO_ROOM
        cdef Py_ssize_t index = 0
        cdef bint fresh = False
        if partition is not None:
            number = partition
            if number >= self.router.partitions:
                return None
        else:
            number = self.router.choose(key)
        if number < 0:
            return None
        if number < len(self.open):
            batch = <OutBatch>self.open[number]
        if batch is None or batch.sealed:
            if self.begin is None:
                return None
            fresh = True
        if size > self.credit and not self.fetch(size):
            return None
        if fresh:
            batch = self.begin(number)
        with cython.critical_section(batch, self):
            if not (batch.sealed or batch.busy) and size <= self.credit:
                code = batch.put(time, key, value, headers, size, False)
                index = batch.count - 1
                if code == TAKEN:
                    self.credit -= size
        if fresh:
            self.begun(batch)            # though it be empty: then its linger ends it
        if code != TAKEN:
            return None                  # the slow way meets the error, or opens the next batch
        if partition is None and key.size < 0:
            self.router.spend(size)
        return new_receipt(batch, index) if self.intake is None else new_future(self.intake, batch, index)
