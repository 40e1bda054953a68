# A lock for a few lines of Python. A thread that already holds it does not wait for itself: it gets an error, or enters again.
#
# The thread that holds it can come to it again in two ways only: a signal handler, or an object that is collected, runs between two of the
# lines and calls into the same client. A plain lock waits for ever there, a reentrant one lets it see what is half done: that is for lines
# that may be left anywhere.
# May assume: the GIL. Must not: be held while its holder waits for anything.

cimport cython
from cpython.pythread cimport PyThread_acquire_lock, PyThread_allocate_lock, PyThread_free_lock, PyThread_get_thread_ident
from cpython.pythread cimport PyThread_release_lock, PyThread_type_lock

from wireproto.errors import UsageError


@cython.final
cdef class BriefLock:
    """See _codec.pyi."""

    cdef PyThread_type_lock lock
    cdef unsigned long owner
    cdef int depth
    cdef bint again

    def __cinit__(self, bint again=False):
        self.again = again
        self.lock = PyThread_allocate_lock()
        if self.lock == NULL:
            raise MemoryError()

    def __dealloc__(self):
        if self.lock != NULL:
            PyThread_free_lock(self.lock)

    cdef inline int take(self) except -1:
        if self.depth and self.owner == PyThread_get_thread_ident():
            if not self.again:
                raise_entered_twice()
        else:
            if not PyThread_acquire_lock(self.lock, 0):
                with nogil:
                    PyThread_acquire_lock(self.lock, 1)
            self.owner = PyThread_get_thread_ident()
        self.depth += 1
        return 0

    cdef inline void leave(self) noexcept:
        self.depth -= 1
        if not self.depth:
            PyThread_release_lock(self.lock)

    def __enter__(self):
        self.take()
        return self

    def __exit__(self, kind, error, trace):
        self.leave()


cdef object raise_entered_twice():
    raise UsageError("a signal handler interrupted this client's own work on what it asks for now; note it in the handler, call later")
