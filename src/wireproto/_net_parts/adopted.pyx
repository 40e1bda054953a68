# A loop that another event loop drives: one descriptor says that there is something to do, `run_ready` does it, without waiting.
#
#     descriptor   of a poller over all connections, sockets under way, and the wake pipe; itself pollable, so that any event loop takes it
#     run_ready    reads, runs timers, mailboxes' handlers and runnables, sends what is corked: what the I/O thread does elsewhere, in the thread
#                  that adopted, which is the I/O thread's from then on
#     schedule     given by the adopter: have `run_ready(False)` called soon. Asked for in its thread; others write to the wake pipe
#
# Between two runs `polling` is set, as while a thread is in poll: what changes then what is to be waited for, or leaves something to run,
# pokes. The poller's set is brought up to date at the end of each run, for the same reason.
# May assume: level-triggered readiness. Must not: wait, or let anybody else wait: where a synchronous call is left over, it raises.

cdef extern from * nogil:
    """
    #include <errno.h>
    #include <poll.h>
    #ifdef __linux__
    #include <sys/epoll.h>
    static int poller_make(void) { return epoll_create1(EPOLL_CLOEXEC); }
    static int poller_change(int poller, int fd, int had, int want) {
        struct epoll_event event = {0};
        event.events = (want & POLLIN ? EPOLLIN : 0) | (want & POLLOUT ? EPOLLOUT : 0);
        event.data.fd = fd;
        return epoll_ctl(poller, !want ? EPOLL_CTL_DEL : had ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event);
    }
    #else
    static int poller_make(void) { errno = ENOSYS; return -1; }
    static int poller_change(int poller, int fd, int had, int want) { errno = ENOSYS; return -1; }
    #endif
    """
    int poller_make()
    int poller_change(int poller, int fd, int had, int want)

from libc.math cimport INFINITY

cdef enum:
    ROUNDS = 4                # of timers, mailboxes and runnables in one run; what is left then comes in the next


cdef int adopt(Loop loop, object schedule) except -1:
    cdef int poller
    loop.usable()
    if loop.io_state != IO_NONE:
        raise errors.UsageError("a loop is adopted before it is used")
    poller = poller_make()
    if poller < 0:
        raise errors.UsageError(f"no other event loop can wait for this system's sockets: {strerror(errno)}")
    loop.poller = poller
    loop.schedule = schedule
    loop.io_state = IO_ADOPTED
    loop.io_thread_id = PyThread_get_thread_ident()
    loop.io_until = FOREVER
    loop.polling = True
    return poller_change(poller, loop.wake_r, 0, POLLIN)


cdef void ask_for_run(Loop loop) noexcept:
    """In the adopter's thread. What a signal handler raises in `schedule` is raised by the next run."""
    if loop.scheduled:
        return
    loop.scheduled = True
    try:
        loop.schedule()
    except BaseException as why:
        loop.scheduled = False
        loop.interrupted = why
        loop.write_wake()


cdef double run_adopted(Loop loop, bint look) except? -1:
    """One run; when the next timer is due."""
    cdef int rounds = 0
    cdef bint more = False
    if PyThread_get_thread_ident() != loop.io_thread_id or loop.poller < 0:
        raise RuntimeError("run_ready belongs to the thread that adopted the loop")
    loop.scheduled = False
    loop.polling = False
    try:
        if loop.interrupted is not None:
            error, loop.interrupted = loop.interrupted, None
            raise error
        loop.flush_corked()
        if look or loop.look:
            loop.look = False
            loop.turn(0.0)
        while not loop.closed:
            loop.run_timers()
            loop.run_tasks()
            if loop.first is not None:
                run_runnable(loop)
            loop.flush_corked()
            more = loop.tasks or loop.first is not None
            rounds += 1
            if not more or rounds == ROUNDS:
                break
    finally:
        if not (loop.closed or loop.forked):
            loop.io_until = loop.next_timer()
            loop.polling = True
            watch_connections(loop)
            if more or loop.look:
                ask_for_run(loop)
    return INFINITY if loop.closed or loop.io_until >= FOREVER else loop.io_until


cdef int watch_connections(Loop loop) except -1:
    """Have the poller watch what is to be waited for now."""
    cdef Connection conn
    cdef int want
    for conn in loop.conns:
        want = (POLLIN if conn.want_read() else 0) | (POLLOUT if conn.blocked else 0)
        if want != conn.input.watched:
            if poller_change(loop.poller, conn.input.fd, conn.input.watched, want) != 0:
                raise OSError(f"a socket cannot be watched: {strerror(errno)}")
            conn.input.watched = want
    return 0


cdef void unwatch(Loop loop, input_t *c) noexcept:
    """Before its descriptor is closed: a forked child may hold another one of the same socket, so that closing alone ends nothing."""
    if loop.poller >= 0 and c.watched:
        poller_change(loop.poller, c.fd, c.watched, 0)
        c.watched = 0


cdef void watch_descriptors(Loop loop, Descriptors one, bint on) noexcept:
    cdef int fd
    if loop.poller >= 0:
        for fd in one.fds:
            poller_change(loop.poller, fd, 0 if on else one.events, one.events if on else 0)


cdef int close_adopted(Loop loop) except -1:
    """The rest of `Loop.close`: what the I/O thread does at its end."""
    if loop.io_thread_id == PyThread_get_thread_ident():
        stop_living(loop)
        loop.run_tasks()
    loop.io_state = IO_GONE
    loop.schedule = None
    loop.io_thread_id = 0
    close_poller(loop)
    return 0


cdef void close_poller(Loop loop) noexcept:
    if loop.poller >= 0:
        close(loop.poller)
        loop.poller = -1


cdef int refuse_wait(Loop loop, double deadline) except -1:
    """Refuse to wait in the event loop's thread: 0 if it was only a look, else an error that names the remedy."""
    if deadline == 0.0:
        return 0
    if loop.io_state != IO_ADOPTED:
        raise RuntimeError("a handler or timer of the I/O thread must not wait")
    if deadline <= now():
        return 0
    loop.usable()
    raise errors.UsageError(f"this call waits, and client {loop.name!r} belongs to an event loop: await it by wireproto.aio")
