# The way into a Kafka producer: one record into the open batch of its partition, in one call.
#
#     KafkaRoom        bytes that may be held for records on their way: a count with a bound, shared by a client's producers
#     KafkaOpenBatch   what the fast way needs of a batch: its builder, counts, and whether it still takes records
#     KafkaReceipt     a batch and an index in it: nothing is made for a record but this
#     KafkaIntake      the producer's base: `send` chooses the partition, takes room, appends, and hands out the receipt
#
# The fast way needs an open batch with room for the record, room in the buffer and the topic's partitions as last seen; whatever else is
# to be done (a new batch, waiting, errors) is `_send_slowly`, the producer's, in Python and under its lock.
# May assume: between looking at a batch and counting the record no Python code runs: values are laid open and headers encoded before.
# The producer seals a batch under its own lock; a sealed or busy batch is left to the slow way.
# Must not: wait, send, or open a batch.

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset
from libc.time cimport time_t

cdef extern from "<time.h>" nogil:
    struct timespec:
        time_t tv_sec
        long tv_nsec
    int CLOCK_REALTIME
    int clock_gettime(int clock, timespec *t)

cdef enum:
    RECORD_ROUND = 36        # bytes around key, value and headers as the buffer counts them: 5 length, 1, 10 time, 5 offset, 3 x 5


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
            name_at = PyUnicode_AsUTF8AndSize(name, &name_size)
            blob_open(&v, value)
            code = headers_add(&b, <const uint8_t *>name_at, name_size, v.data, v.size)
            blob_close(&v)
            if code == TABLE_FULL:
                raise ValueUnsupported("a header of 2 GiB does not fit a record")
            check(code)
        return PyBytes_FromStringAndSize(<char *>b.headers.data, b.headers.used)
    finally:
        mem_give(b.headers.data)


cdef class KafkaRoom:
    """At most `limit` bytes are held; one record larger than that is let in alone."""

    cdef readonly int64_t limit
    cdef readonly int64_t held

    def __cinit__(self, *args, **kwargs):
        self.limit = INT64_MAX

    cdef inline bint take(self, int64_t size) noexcept:
        if self.held and self.held + size > self.limit:
            return False
        self.held += size
        return True

    def bound(self, int64_t limit):
        """Set the limit, in bytes."""
        self.limit = limit

    def try_take(self, int64_t size):
        """Take room if there is some now."""
        cdef bint taken
        with cython.critical_section(self):
            taken = self.take(size)
        return taken

    def add(self, int64_t size):
        """Count bytes, room or not."""
        with cython.critical_section(self):
            self.held += size

    def release(self, KafkaOpenBatch batch not None):
        """Take what a batch holds off the count, once."""
        with cython.critical_section(self, batch):
            self.held -= batch.size
            batch.size = 0

    def put_back(self, int64_t size):
        """Take bytes off the count; wakes nobody."""
        with cython.critical_section(self):
            self.held -= size


cdef class KafkaOpenBatch:
    """What records are put into. A class of the producer's derives from it.

    Attributes:
        builder: the batch builder. count: records. size: bytes of the buffer that they hold.
        sealed: no more records.
    """

    cdef public object builder
    cdef public Py_ssize_t count
    cdef public int64_t size
    cdef readonly bint sealed
    cdef bint busy               # rows of columns are being encoded without the GIL

    def seal(self):
        """Take no more records."""
        with cython.critical_section(self):
            self.sealed = True

    cdef inline int put(self, int64_t time, const Blob *key, const Blob *value, bytes headers, int64_t size) noexcept:
        """TAKEN, NO_ROOM or a table code. No Python code runs in here."""
        cdef KafkaBatchBuilder builder = <KafkaBatchBuilder>self.builder
        cdef int code
        if headers is not None:
            builder.b.headers.used = 0
            if growing_reserve(&builder.b.headers, PyBytes_GET_SIZE(headers)) != TABLE_OK:
                return TABLE_MEMORY
            memcpy(builder.b.headers.data, PyBytes_AS_STRING(headers), PyBytes_GET_SIZE(headers))
            builder.b.headers.used = PyBytes_GET_SIZE(headers)
        code = put_row(&builder.b, time, key.data, key.size, value.data, value.size)
        if headers is not None:
            no_headers(&builder.b)
        if code == TAKEN:
            self.count += 1
            self.size += size
        return code

    def add(self, value, key, bytes headers, int64_t timestamp, int64_t size):
        """Put a record in, under the producer's lock: its index, or -1 when there is no room.

        Args:
            headers: as `KafkaIntake` encoded them. size: bytes of the buffer that were taken for it.
        """
        cdef Blob k, v
        cdef int code
        cdef Py_ssize_t index
        if type(self.builder) is not KafkaBatchBuilder:
            raise TypeError("not a KafkaBatchBuilder")
        blob_open(&v, value)
        try:
            blob_open(&k, key)
            with cython.critical_section(self):
                code = self.put(timestamp, &k, &v, headers, size)
                index = self.count - 1
            blob_close(&k)
        finally:
            blob_close(&v)
        if code < 0:
            (<KafkaBatchBuilder>self.builder).refuse(code)
        return index if code == TAKEN else -1

    def add_rows(self, Columns columns not None, KafkaRows rows, Py_ssize_t start, Py_ssize_t stop, int64_t now):
        """Put rows in until there is no room, under the producer's lock.

        Args:
            rows: the rows' numbers, `start` and `stop` being places among them; None: start and stop are the rows' own numbers.
            now: timestamp of rows that have none.
        Returns:
            how many were taken, the bytes that they hold, and the index of the last one.
        """
        cdef Py_ssize_t last
        cdef int64_t used = 0
        cdef KafkaBatchBuilder builder = <KafkaBatchBuilder?>self.builder
        cdef Py_ssize_t taken = 0
        cdef int64_t before = builder.b.body.used if self.count else 0
        with cython.critical_section(self):
            self.busy = True
        try:
            if rows is None:
                taken = builder.append_columns(columns, start, stop, now)
            else:
                taken = rows.put(builder, columns, start, stop, now)
            if taken:
                used = builder.b.body.used - before
            self.size += used
            self.count += taken
            last = self.count - 1
        finally:
            with cython.critical_section(self):
                self.busy = False
        return taken, used, last


@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class KafkaReceipt:
    """One record's outcome. See `wireproto.records.Receipt`."""

    cdef readonly object batch
    cdef readonly Py_ssize_t index

    def __init__(self, batch, Py_ssize_t index):
        self.batch = batch
        self.index = index

    @property
    def done(self):
        return self.batch.outcome.done

    def position(self, timeout=None):
        """Wait for the broker's answer and return the record's place; raises what the record failed with, TimedOut, or UsageError
        with acks=0, which tells no position."""
        return self.batch.position(self.index, timeout)

    def __repr__(self):
        return f"<KafkaReceipt of partition {self.batch.partition}: {'done' if self.batch.outcome.done else 'under way'}>"


@cython.final
cdef class KafkaRows:
    """Numbers of the rows of one partition, in their order. Made by `KafkaIntake.shares`."""

    cdef int32_t *numbers
    cdef Py_ssize_t count

    def __dealloc__(self):
        free(self.numbers)

    def __len__(self):
        return self.count

    cdef Py_ssize_t put(self, KafkaBatchBuilder builder, Columns columns, Py_ssize_t start, Py_ssize_t stop, int64_t now) except -1:
        """Rows at places start to stop into the builder until there is no room; neighbours go together."""
        cdef Py_ssize_t at = start
        cdef Py_ssize_t taken = 0
        cdef Py_ssize_t run, before
        cdef int code = TAKEN
        if not 0 <= start <= stop <= self.count:
            raise IndexError(f"places {start} to {stop} of {self.count}")
        with nogil:
            while at < stop and code == TAKEN:
                run = 1
                while at + run < stop and self.numbers[at + run] == self.numbers[at] + run:
                    run += 1
                before = taken
                code = rows_put(&builder.b, columns.table, columns.start + self.numbers[at], columns.start + self.numbers[at] + run, now, &taken)
                at += taken - before
        no_headers(&builder.b)
        builder.packed = None
        if code < 0:
            builder.refuse(code)
        return taken


cdef class KafkaIntake:
    """The way in of a producer of one topic, which derives from this class."""

    cdef object cluster          # its `topics` is replaced whenever something is learnt
    cdef object topics           # … and this is the one that `partitions` comes from
    cdef object usable           # raises when the client cannot be used
    cdef KafkaRoom room
    cdef list open               # KafkaOpenBatch or None, by partition
    cdef Py_ssize_t partitions   # how many; 0: the topic is gone
    cdef int64_t largest         # bytes of a record
    cdef bint direct             # the fast way may be gone at all
    cdef readonly Py_ssize_t stuck       # partition that records without a key stick to
    cdef int64_t stuck_room      # bytes until it moves on

    def __cinit__(self, *args, **kwargs):
        self.open = []
        self.stuck = -1

    def intake(self, cluster, usable, KafkaRoom room not None, int64_t largest, bint direct):
        """Begin.

        Args:
            cluster: has `topics`, replaced and never changed. usable: called for each record.
            room: of the client. largest: bytes of a record as `send` counts them. direct: False sends all the slow way.
        """
        self.cluster = cluster
        self.usable = usable
        self.room = room
        self.largest = largest
        self.direct = direct

    def know(self, topics, Py_ssize_t partitions, bint stay):
        """The partitions as told by `topics`: their count, 0 when the topic is gone; whether `stuck` may stay."""
        self.topics = topics
        while len(self.open) < partitions:
            self.open.append(None)
        self.partitions = partitions
        if not stay:
            self.stuck_room = 0

    def stick(self, Py_ssize_t partition, int64_t room):
        """Records without a key go there for so many bytes."""
        self.stuck = partition
        self.stuck_room = room

    def stay(self, int64_t size):
        """Where a record of this size without a key goes if it sticks to a partition already, else -1."""
        if self.stuck_room <= 0:
            return -1
        self.stuck_room -= size
        return self.stuck

    def opened(self, Py_ssize_t partition, KafkaOpenBatch batch not None):
        """A batch of this partition takes records from now on, until it is sealed."""
        if type(batch.builder) is not KafkaBatchBuilder:
            raise TypeError("not a KafkaBatchBuilder")
        if 0 <= partition < len(self.open):
            self.open[partition] = batch

    def send(self, value, *, key=None, headers=None, timestamp=None, partition=None, timeout=30.0):
        """See `wireproto.roles.Producer.send`."""
        cdef Blob k, v
        cdef bytes pairs = None
        cdef int64_t time, size
        cdef object receipt = None
        self.usable()
        if headers is not None and headers:
            pairs = encoded_headers(headers)
        time = now_ms() if timestamp is None else timestamp
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
            if self.direct and size <= self.largest and time >= 0:
                if self.cluster.topics is not self.topics:
                    self._look_at_topics()
                receipt = self.put(partition, &k, &v, pairs, time, size)
        finally:
            blob_close(&k)
            blob_close(&v)
        if receipt is not None:
            return receipt
        return self._send_slowly(value, key, pairs, time, timestamp is not None, partition, size, timeout)

    cdef object put(self, object partition, const Blob *key, const Blob *value, bytes headers, int64_t time, int64_t size):
        """A receipt, or None when there is more to do than to put the record in."""
        cdef Py_ssize_t number
        cdef KafkaOpenBatch batch
        cdef KafkaReceipt receipt
        cdef int code = NO_ROOM
        cdef Py_ssize_t index = 0
        if partition is not None:
            number = partition
            if not 0 <= number < self.partitions:
                return None
        elif self.partitions == 0:
            return None
        elif key.size >= 0:
            number = (murmur2(key.data, key.size) & 0x7FFFFFFF) % <uint32_t>self.partitions
        else:
            number = self.stuck
            if self.stuck_room <= 0 or number >= self.partitions:
                return None
        item = self.open[number]
        if item is None:
            return None
        batch = <KafkaOpenBatch>item
        with cython.critical_section(batch, self.room):
            if not (batch.sealed or batch.busy) and self.room.take(size):
                code = batch.put(time, key, value, headers, size)
                index = batch.count - 1
                if code != TAKEN:
                    self.room.held -= size
        if code != TAKEN:
            return None                  # the slow way meets the error, or opens the next batch
        if partition is None and key.size < 0:
            self.stuck_room -= size
        receipt = KafkaReceipt.__new__(KafkaReceipt)
        receipt.batch = batch
        receipt.index = index
        return receipt

    def shares(self, Columns columns not None, chosen=None):
        """The rows by partition, in their order within each.

        Args:
            chosen: the partition of each row; None: the rows' own, or what their keys pick.
        Returns:
            [(partition, KafkaRows)]; partition -1: rows that may go anywhere; rows None: all of them.
        """
        cdef Table *t = columns.table
        cdef Py_ssize_t rows = columns.stop - columns.start
        cdef int32_t groups = <int32_t>self.partitions + 1
        cdef Py_ssize_t n
        cdef int32_t g
        cdef Py_ssize_t *counts
        cdef int32_t *places
        cdef KafkaRows part
        cdef list found = []
        if self.partitions < 1:
            raise ValueError("the partitions are not known")
        if chosen is None and t.partition == NULL and (self.partitions == 1 or t.key.nulls == t.rows):
            return [(0 if self.partitions == 1 else -1, None)]
        counts = <Py_ssize_t *>calloc(groups, sizeof(Py_ssize_t))
        places = <int32_t *>malloc((rows + 1) * sizeof(int32_t))
        try:
            if counts == NULL or places == NULL:
                raise MemoryError
            if chosen is not None:
                for n in range(rows):
                    places[n] = chosen[n]
            else:
                with nogil:
                    places_of(t, columns.start, rows, groups - 1, places)
            for n in range(rows):
                if not 0 <= places[n] < groups:
                    raise OptionError(f"there is no partition {places[n]}: the topic has {groups - 1}")
                counts[places[n]] += 1
            parts = [None] * groups
            for g in range(groups):
                if counts[g]:
                    part = KafkaRows.__new__(KafkaRows)
                    part.numbers = <int32_t *>malloc(counts[g] * sizeof(int32_t))
                    if part.numbers == NULL:
                        raise MemoryError
                    parts[g] = part
                    found.append((g if g < groups - 1 else -1, part if counts[g] < rows else None))
            for n in range(rows):
                part = <KafkaRows>parts[places[n]]
                part.numbers[part.count] = <int32_t>n
                part.count += 1
            return found
        finally:
            free(counts)
            free(places)


cdef void places_of(Table *t, Py_ssize_t start, Py_ssize_t rows, int32_t partitions, int32_t *places) noexcept nogil:
    """Where each row goes: its own partition, its key's, or `partitions` for anywhere."""
    cdef Py_ssize_t n, row
    cdef const uint8_t *key
    cdef int64_t size
    for n in range(rows):
        row = start + n
        if t.partition != NULL:
            places[n] = t.partition[row] if t.partition[row] != partitions else -1
            continue
        size = bytes_get(t, &t.key, row, &key)
        places[n] = partitions if size < 0 else <int32_t>((murmur2(key, size) & 0x7FFFFFFF) % <uint32_t>partitions)


def kafka_earliest(Columns columns not None):
    """The earliest timestamp among the rows, in ms; None when no row has one."""
    cdef Table *t = columns.table
    cdef Py_ssize_t row
    cdef int64_t least = INT64_MAX
    cdef bint found = False
    for row in range(columns.start, columns.stop):
        if is_timed(t, row):
            found = True
            if t.timestamp[row] < least:
                least = t.timestamp[row]
    return least if found else None
