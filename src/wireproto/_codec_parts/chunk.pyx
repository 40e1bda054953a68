# What an answer brought for one cursor of flow/ahead.py: a plain record whose making costs a follower of one partition more as a Python class
# than its decoding.
#
# May assume: nothing of a cursor. Must not: know what is in its records.

from libc.stdint cimport int64_t


cdef class Chunk:
    """See the stub."""

    cdef public object cursor, generation, records, error
    cdef public int64_t start, next
    cdef public Py_ssize_t size

    def __init__(self, cursor, generation, int64_t start, int64_t following, records=None, Py_ssize_t size=0, error=None):
        self.cursor, self.generation, self.start, self.next = cursor, generation, start, following
        self.records, self.size, self.error = records, size, error


cdef class KafkaChunk(Chunk):
    """See the stub."""

    cdef public tuple aborted
    cdef public int64_t epoch

    def __init__(self, cursor, generation, int64_t start, int64_t following, records=None, Py_ssize_t size=0, error=None,
                 tuple aborted=(), int64_t epoch=-1):
        Chunk.__init__(self, cursor, generation, start, following, records, size, error)
        self.aborted, self.epoch = aborted, epoch

    def rest(self, int64_t start):
        """What of it begins there, in a chunk of its own."""
        cdef KafkaChunk made = new_chunk(self.cursor, start, self.next, self.records, self.epoch)
        made.generation, made.size, made.error, made.aborted = self.generation, self.size, self.error, self.aborted
        return made


cdef KafkaChunk new_chunk(object cursor, int64_t start, int64_t following, object records, int64_t epoch):
    """One without aborted transactions."""
    cdef KafkaChunk made = KafkaChunk.__new__(KafkaChunk)
    made.cursor, made.generation, made.start, made.next = cursor, cursor.generation, start, following
    made.records, made.size, made.aborted, made.epoch = records, 0 if records is None else len(records), (), epoch
    return made
