# Sockets that are no connections yet: a connect or a TLS handshake under way, polled beside the connections by the thread that reads.
#
# Once: what was ready is not polled again. A descriptor may be closed while another thread is in poll with it, once `stop` was called: what
# that poll tells is dropped, since the turn under way knows whom it asked for.
# May assume: the GIL. Must not: read from them.

cdef class Descriptors(Waitable):
    """See _net.pyi."""

    def __init__(self, Loop loop not None, fds, bint writing=False):
        loop.usable()
        self.loop = loop
        self.found = -1
        self.events = POLLOUT if writing else POLLIN
        self.fds = tuple([int(fd) for fd in fds])
        loop.watched = (*loop.watched, self)
        loop.watching = len(loop.watched)
        watch_descriptors(loop, self, True)
        if loop.polling:
            loop.poke()

    @property
    def done(self):
        return self.ready

    def stop(self):
        cdef Loop loop = self.loop
        if self.stopped:
            return
        watch_descriptors(loop, self, False)
        loop.watched = tuple([other for other in loop.watched if other is not self])
        loop.watching = len(loop.watched)
        self.stopped = True                      # the turn under way tells it nothing any more

    cdef void awaited(self) noexcept:
        if not self.errand:
            self.errand = True
            self.loop.errands += 1

    cdef void unawaited(self) noexcept:
        if self.errand:
            self.errand = False
            self.loop.errands -= 1


cdef Py_ssize_t add_watched(Loop loop, Py_ssize_t count) except -1:
    """Behind the connections, what else is polled; how many."""
    cdef Py_ssize_t extra = 0
    cdef Descriptors one
    cdef pollfd *fds
    cdef int fd
    for one in loop.polled:
        extra += len(one.fds)
    if loop.slot_room < count + extra:
        loop.grow_slots(count + extra)
    fds = <pollfd *>loop.pollfds
    extra = 0
    for one in loop.polled:
        for fd in one.fds:
            extra += 1
            fds[count + extra] = pollfd(fd=fd, events=one.events, revents=0)
    return extra


cdef int deliver_watched(Loop loop, Py_ssize_t count) except -1:
    """Wake what was found ready. One that was stopped meanwhile is passed over."""
    cdef Py_ssize_t at = count
    cdef Descriptors one
    cdef int fd
    cdef pollfd *fds = <pollfd *>loop.pollfds
    for one in loop.polled:
        for fd in one.fds:
            at += 1
            if fds[at].revents and not one.stopped and not one.ready:
                one.found = fd
                one.wake()
        if one.ready:
            one.stop()
    loop.polled = ()
    return 0
