# A lock for a few lines of Python: who already holds it does not wait for himself, but is told.
#
# The thread that holds it can come to it again in two ways only: a signal handler, or an object that is collected, runs between two of the
# lines and calls into the same client. A plain lock waits for ever there, a reentrant one lets it see what is half done.
# May assume: the GIL. Must not: be held while its holder waits for anything.

cdef class Section:
    """See _net.pyi."""

    def __cinit__(self):
        self.lock = PyThread_allocate_lock()
        if self.lock == NULL:
            raise MemoryError()

    def __dealloc__(self):
        if self.lock != NULL:
            PyThread_free_lock(self.lock)

    def __enter__(self):
        if self.taken and self.owner == PyThread_get_thread_ident():
            raise_entered_twice()
        if not PyThread_acquire_lock(self.lock, 0):
            with nogil:
                PyThread_acquire_lock(self.lock, 1)
        self.owner = PyThread_get_thread_ident()
        self.taken = True
        return self

    def __exit__(self, kind, error, trace):
        self.taken = False
        PyThread_release_lock(self.lock)


cdef raise_entered_twice():
    raise errors.UsageError("a signal handler interrupted this client's own work on what it asks for now; note it in the handler, call later")
