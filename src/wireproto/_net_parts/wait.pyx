# What threads wait for, and where they sit while another one reads.
#
# A Seat is one waiting thread's lock. A new one is made for each wait, because its owner may give up at the moment when it is freed.
# May assume: the GIL. Must not: run Python code in `wake` or `finish`: the reading thread calls them with replies in its hands.

cdef class Seat:
    def __cinit__(self):
        self.lock = PyThread_allocate_lock()
        if self.lock == NULL:
            raise MemoryError
        PyThread_acquire_lock(self.lock, 0)

    def __dealloc__(self):
        if self.lock != NULL:
            PyThread_free_lock(self.lock)

    cdef void free(self) noexcept:
        if not self.freed:
            self.freed = True
            PyThread_release_lock(self.lock)

    cdef int sleep(self, double deadline) except -1:
        """1: freed. 0: late. -2: a signal came; its handler has not run yet."""
        cdef int status
        cdef double left
        while not self.freed:
            left = deadline - now()
            with nogil:
                status = PyThread_acquire_lock_timed(self.lock, microseconds(left), 1)
            if status == LOCK_INTR:
                return 1 if self.freed else -2
            if status == LOCK_FAILURE and left <= LONGEST:
                return self.freed
        return 1


cdef class Waitable:
    cdef void wake(self) noexcept:
        """It is ready now: free the threads that wait for it, queue the runnables that do."""
        cdef Seat seat
        self.ready = True
        if self.hook is not None:
            self.release_hooks()
        if self.seats is not None and self.seats:
            self.loop.served = True
            for seat in self.seats:
                seat.free()
        if self.loop.target is self:
            self.loop.served = True
            if self.loop.polling:
                self.loop.poke()

    cdef void sit(self, Seat seat):
        if self.seats is None:
            self.seats = []
        self.seats.append(seat)

    cdef void stand(self, Seat seat):
        if self.seats is not None:
            self.seats.remove(seat)

    cdef void release_hooks(self) noexcept:
        cdef Runnable one = self.hook
        self.hook = None
        one.hung = None
        enqueue(one.loop, one)
        if self.hooks is not None:
            for one in self.hooks:
                one.hung = None
                enqueue(one.loop, one)
            self.hooks = None
        self.unawaited()

    cdef void awaited(self) noexcept:
        """Something hangs on it now."""

    cdef void unawaited(self) noexcept:
        """Nothing hangs on it any more."""

    def ready_by(self, double deadline):
        return bool(self.ready or self.loop.wait(self, deadline))


cdef object build_error(tuple failure, str peer):
    """A fresh error for each raise: two threads must not share a traceback."""
    return failure[0](failure[1], peer=peer)


cdef Call new_call(Connection conn, object token, Mailbox mailbox, object context):
    cdef Call call = Call.__new__(Call)
    call.loop = conn.loop
    call.conn = conn
    call.token = token
    call.context = context
    call.mailbox = mailbox
    return call


cdef class Call(Waitable):
    """One request on its way; see _net.pyi."""

    def __init__(self):
        raise TypeError("calls are made by Connection.submit")

    @property
    def done(self):
        return self.ready

    @property
    def error(self):
        return None if self.failure is None else self.conn.describe(self.failure)

    cdef void finish(self, object frame, tuple failure):
        """The first outcome stays. Out of `conn.calls` already."""
        cdef Mailbox box
        if self.late or self.ready:
            return
        self.frame = frame
        self.failure = failure
        self.settle()
        self.wake()
        box = self.mailbox
        if box is not None:
            self.mailbox = None
            box.deliver(self, 0 if frame is None else len(<bytes>frame), self.conn)

    cdef void abandon(self):
        if not self.ready and not self.late:
            self.late = True
            self.settle()
            self.mailbox = None
            if self.hook is not None:
                self.release_hooks()

    cdef void settle(self):
        """No longer expected: an outcome came, or it was given up."""
        self.conn.expected -= 1
        if self.mailbox is not None and self.mailbox.handler is not None:
            self.loop.errands -= 1

    cdef int expire(self) except -1:
        """In the I/O thread: the reply did not come in time, whether or not a thread waits."""
        cdef Mailbox box
        self.failure = (errors.TimedOut, "no reply in time")
        self.late = True                  # stays in conn.calls, so that a reply is known and dropped
        self.settle()
        self.wake()
        box = self.mailbox
        if box is not None:
            self.mailbox = None
            box.deliver(self, 0, self.conn)
        return 0

    def cancel(self):
        self.abandon()

    cdef void want(self):
        """A thread waits for this call: its connection is read even when mailboxes hold it back."""
        self.conn.wanted += 1
        if self.conn.held > 0 and self.loop.polling:
            self.loop.poke()

    cdef void awaited(self) noexcept:
        if not self.errand:
            self.errand = True
            self.loop.errands += 1
            self.want()

    cdef void unawaited(self) noexcept:
        if self.errand:
            self.errand = False
            self.loop.errands -= 1
            self.conn.wanted -= 1

    def ready_by(self, double deadline):
        return self.ready or self.late or self.wait(deadline)

    cdef object outcome(self):
        if self.failure is not None:
            raise self.conn.describe(self.failure)
        return self.frame

    def wait(self, double deadline):
        if not self.ready:
            self.want()
            try:
                self.loop.wait(self, deadline)
            finally:
                self.conn.wanted -= 1
        return bool(self.ready)

    def result(self, double deadline):
        return self.outcome_by(deadline)

    cdef object outcome_by(self, double deadline):
        cdef int done = self.ready
        if not done:
            if self.late:
                raise errors.TimedOut("the call was given up", peer=self.conn.peer)
            self.want()
            try:
                done = self.loop.wait(self, deadline)
            except BaseException:
                self.abandon()
                raise
            finally:
                self.conn.wanted -= 1
        if not done:
            self.abandon()
            raise errors.TimedOut("no reply in time", peer=self.conn.peer)
        return self.outcome()

    def __repr__(self):
        state = "late" if self.late else "pending" if not self.ready else "failed" if self.failure is not None else "done"
        return f"<Call {self.token} to {self.conn.peer}: {state}>"


cdef class Event(Waitable):
    """An outcome that comes once; see _net.pyi."""

    def __init__(self, Loop loop not None):
        self.loop = loop

    @property
    def done(self):
        return self.ready

    @property
    def error(self):
        return self.failure

    def set(self, value=None):
        if not self.ready:
            self.value = value
            self.wake()

    def fail(self, error not None):
        if not self.ready:
            self.failure = error
            self.wake()

    def wait(self, double deadline):
        if not self.ready and not self.loop.wait(self, deadline):
            raise errors.TimedOut("no outcome in time")
        if self.failure is not None:
            raise self.failure
        return self.value


cdef refuse_nan():
    raise errors.OptionError("a timeout is a number of seconds, not nan: no clock ever reaches that")
