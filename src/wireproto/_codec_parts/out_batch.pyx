# OutBatch: one batch on its way out, for every protocol; what the fast way of `send` puts records into.
#
#     open ── put (any thread, no lock) ──▶ seal (under the sender's lock) ──▶ sent, answered: see flow/queue.py, which sets the rest
#
# May assume: between looking at a batch and counting the record no Python code runs: values are laid open and headers encoded before.
# Must not: know a protocol but by its builder, wait, or send.

cimport cython
from libc.stdint cimport int64_t


cdef class OutBatch:
    """See above.

    Attributes:
        queue: what it stands in. serial: order of creation over all queues of a sender. created: when the first record came.
        number: order of the first sending in its queue, from 1; 0: not sent yet. attempts: sendings so far. count: records.
        attempts_sent: the sending that the wire has taken whole; one below `attempts` while that is under way.
        doubtful: an earlier sending got no answer, so that it may be stored. over: its outcome is known, be it still in flight.
        builder: the batch builder. outcome: the event that waiting threads wait for. owner: the producer, which its receipts refer to.
        key: the queue's. size: bytes of the send budget that its records hold. sealed: it takes no more.
        identity, sequence: numbers of the protocol; sequence is -1 while there are none.
    """

    cdef object _queue
    cdef readonly object key
    cdef readonly RecordBuilder builder
    cdef public object outcome
    cdef public object owner
    cdef public list waiters         # SendFutures that are awaited
    cdef public object identity
    cdef public object sequence  # may have 64 bits
    cdef readonly Py_ssize_t count
    cdef readonly int64_t size
    cdef public int64_t serial
    cdef public int64_t number
    cdef public int64_t attempts
    cdef public int64_t attempts_sent
    cdef unsigned long taker     # the thread that sends it, or sent it last
    cdef public double created
    cdef readonly bint sealed
    cdef public bint doubtful
    cdef public bint over
    cdef bint busy               # rows of columns are being encoded without the GIL

    def __init__(self, queue, int64_t serial, double created, RecordBuilder builder not None, outcome, owner, identity):
        self.set_up(queue, serial, created, builder, outcome, owner, identity)

    cdef int set_up(
        self, object queue, int64_t serial, double created, RecordBuilder builder, object outcome, object owner, object identity
    ) except -1:
        self._queue = queue
        self.key = queue.key
        self.serial = serial
        self.created = created
        self.builder = builder
        self.outcome = outcome
        self.owner = owner
        self.identity = identity
        self.sequence = -1
        return 0

    @property
    def queue(self):
        return self._queue

    @queue.setter
    def queue(self, queue):
        """It goes by another one from now on."""
        self._queue = queue
        self.key = queue.key

    @property
    def done(self):
        """Whether the outcome is known."""
        return self.outcome.done

    def position(self, index, timeout):
        """A record's place, as its receipt asks for it."""
        return self.owner.position_in(self, index, timeout)

    def describe(self, index):
        """For a receipt's repr."""
        return f"{index} of a batch of {self.key}: {'done' if self.outcome.done else 'under way'}"

    def seal(self):
        """Take no more records."""
        with cython.critical_section(self):
            self.sealed = True

    def free(self):
        """The bytes of the send budget that it held; it holds none any more."""
        cdef int64_t size
        with cython.critical_section(self):
            size = self.size
            self.size = 0
        return size

    def grow(self, Py_ssize_t count, int64_t size):
        """So many records have been put in besides the builder, under the sender's lock, for which so many bytes of the send budget were
        taken: the index of the last one."""
        with cython.critical_section(self):
            self.count += count
            self.size += size
        return self.count - 1

    cdef inline int put(self, int64_t time, const Blob *key, const Blob *value, bytes headers, int64_t size, bint last) noexcept:
        """As `RecordBuilder.put`, and counted. No Python code runs in here."""
        cdef int code = self.builder.put(time, key, value, headers, last)
        if code == TAKEN:
            self.count += 1
            self.size += size
        return code

    def add(self, value, key, bytes headers, int64_t timestamp, int64_t size):
        """Put a record in, under the sender's lock: its index, or -1 when there is no room.

        Args:
            headers: as `Appender` encoded them. size: bytes of the send budget that were taken for it.
        """
        cdef Blob k, v
        cdef int code
        cdef Py_ssize_t index
        blob_open(&v, value)
        try:
            blob_open(&k, key)
            with cython.critical_section(self):
                code = self.put(timestamp, &k, &v, headers, size, True)
                index = self.count - 1
            blob_close(&k)
        finally:
            blob_close(&v)
        if code < 0:
            self.builder.refuse(code)
        return index if code == TAKEN else -1

    @property
    def full(self):
        """Whether it has room for no more records."""
        return self.builder.is_full()

    def add_rows(self, Columns columns not None, rows, Py_ssize_t start, Py_ssize_t stop, int64_t now):
        """Put rows in until there is no room, under the sender's lock.

        Args:
            rows: the rows' numbers (KafkaRows), `start` and `stop` being places among them; None: start and stop are the rows' own numbers.
            now: timestamp of rows that have none, for protocols where each record has one.
        Returns:
            how many were taken, the bytes that they hold, and the index of the last one.
        """
        cdef Py_ssize_t last
        cdef int64_t used = 0
        cdef Py_ssize_t taken = 0
        cdef int64_t before = self.builder.held() if self.count else 0
        with cython.critical_section(self):
            self.busy = True
        try:
            taken = self.builder.put_rows(columns, rows, start, stop, now)
            if taken:
                used = self.builder.held() - before
            self.size += used
            self.count += taken
            last = self.count - 1
        finally:
            with cython.critical_section(self):
                self.busy = False
        return taken, used, last
