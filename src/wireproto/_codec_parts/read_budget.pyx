# ReadBudget: bytes that a client's readers may hold, counted with a bound.

cimport cython
from libc.stdint cimport INT64_MAX, int64_t


cdef class ReadBudget:
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

    def put_back(self, int64_t size):
        """Take bytes off the count. Wakes no thread."""
        with cython.critical_section(self):
            self.held -= size
