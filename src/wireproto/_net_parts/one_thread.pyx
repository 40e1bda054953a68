# One thread at a time: the guard that a role holds for one call.
#
#     with guard: ── a thread is inside: ConcurrentUse ── the role was closed: Closed
#
# In C, for a signal handler raises between two lines of Python: never between taking the guard and the `with` that gives it back, so that no
# call that was interrupted leaves a role in use for good.

cdef class OneThread:
    """See _net.pyi."""

    def __init__(self, role not None, Loop loop not None):
        self.role = role
        self.loop = loop
        self.inside = threading.Lock()

    def __enter__(self):
        self.loop.usable()
        if self.inside.acquire(False):
            if not self.closed:
                self.owner = PyThread_get_thread_ident()
                return
            self.inside.release()
        self.refuse()

    def __exit__(self, kind, error, trace):
        self.owner = 0
        self.inside.release()

    cdef int refuse(self) except -1:
        if self.closed:
            raise errors.Closed(f"the {self.role} was closed")
        if self.owner == PyThread_get_thread_ident():
            raise errors.ConcurrentUse(f"this {self.role} is in use by the call that a signal handler has interrupted here")
        raise errors.ConcurrentUse(f"this {self.role} is in use by another thread: it belongs to one at a time")

    def outside(self):
        return Outside.__new__(Outside, self)

    def wait(self, double deadline):
        if self.owner == PyThread_get_thread_ident():
            raise errors.ConcurrentUse(
                f"a signal handler cannot wait for the call of this {self.role} that it has interrupted: raise there, and close behind that")
        if not self.inside.acquire(True, min(max(0.0, deadline - now()), threading.TIMEOUT_MAX)):
            raise errors.TimedOut(f"another thread is still inside a call of this {self.role}")
        self.inside.release()


cdef class Outside:
    """See OneThread.outside."""

    def __cinit__(self, OneThread guard not None):
        self.guard = guard

    def __enter__(self):
        self.owner, self.guard.owner = self.guard.owner, 0
        self.guard.inside.release()

    def __exit__(self, kind, error, trace):
        self.guard.inside.acquire()
        self.guard.owner = self.owner
