# The role of reading, and its hand-over.
#
#     wait(w):  ready? done.  Role taken? sit down as a follower: woken when w is ready, or promoted to reader.  Else: take the role.
#     lead(w):  turn after turn until w is ready;  a turn polls all connections, reads, completes calls, fills mailboxes.
#     leave():  promote the first follower that still waits, else the role is free; wake the I/O thread if it relies on that.
#
# A signal is seen in poll (EINTR) or while waiting for a seat's lock. Its Python handler runs after the role was given away, since it may
# call the client again.

from heapq import heapify, heappop, heappush

cdef enum:
    IO_NONE = 0           # not started
    IO_RUNS = 1           # timers and handlers
    IO_READS = 2          # has the role
    IO_PARKED = 3         # for at most IO_NAP
    IO_DEEP = 4           # until a timer or a kick: another thread reads, or there is nothing to read
    IO_GONE = 5
    IO_ADOPTED = 6        # another event loop's thread is the I/O thread

cdef double IO_NAP = 0.005

cdef double STOPPING = 1.0        # seconds that tasks have to end when the loop is closed

_loops = weakref.WeakSet()
_parents = []        # in a forked child: loops whose tasks must never end here
cdef unsigned long _main_thread = threading.main_thread().ident


def _after_fork_in_child():
    global _main_thread
    _main_thread = PyThread_get_thread_ident()
    for loop in list(_loops):
        (<Loop>loop)._forget()


os.register_at_fork(after_in_child=_after_fork_in_child)


cdef class Loop:
    """See _net.pyi."""

    def __cinit__(self):
        self.wake_r = self.wake_w = self.poller = -1
        self.park = PyThread_allocate_lock()
        if self.park == NULL:
            raise MemoryError

    def __init__(self, str name="", size_t fetch_memory=64 << 20):
        self.name = name
        self.fetch_memory = fetch_memory
        self.conns = []
        self.dying = []
        self.corked = []
        self.starved = []
        self.watched = self.polled = ()
        self.timers = []
        self.followers = deque()
        self.tasks = deque()
        self.living = set()
        self.prompts = []
        self.wake_r, self.wake_w = os.pipe()
        os.set_blocking(self.wake_r, False)
        os.set_blocking(self.wake_w, False)
        PyThread_acquire_lock(self.park, 0)
        _loops.add(self)

    def __dealloc__(self):
        self.close_wake()
        close_poller(self)
        if self.park != NULL:
            PyThread_free_lock(self.park)
        free(self.pollfds)
        free(self.slots)

    def _forget(self):
        """In a forked child: the sockets are the parent's. Close our copies of the descriptors, nothing else."""
        cdef Connection conn
        self.forked = True
        if self.living or self.first is not None:
            _parents.append(self)                # else their `finally` would run in the collector, for what is the parent's
        for conn in self.conns + self.dying:
            if conn.input != NULL and conn.input.fd >= 0:
                close(conn.input.fd)
                conn.input.fd = -1
        self.close_wake()
        close_poller(self)                       # never changed here: the parent's set is the same one

    @property
    def unread(self):
        return self.bytes

    @property
    def connections(self):
        return list(self.conns)

    def check(self):
        self.usable()

    cdef int usable(self) except -1:
        if self.forked:
            raise errors.Forked(f"client {self.name!r} was opened in the parent process; open a new one in process {os.getpid()}")
        if self.closed:
            raise errors.Closed(f"client {self.name!r} is closed")
        return 0

    cdef int raise_interrupted(self) except -1:
        """What a signal handler raised inside OpenSSL goes on in the thread where signals are handled."""
        if PyThread_get_thread_ident() == _main_thread:
            error, self.interrupted = self.interrupted, None
            raise error
        return 0

    def open(self, stream, str peer, str framing, uint32_t cap):
        cdef Connection conn = Connection.__new__(Connection)
        cdef WritableWaiter room = WritableWaiter.__new__(WritableWaiter)
        self.usable()
        conn.loop = self
        conn.peer = peer
        conn.framing = FRAMINGS[framing]
        room.loop = self
        room.ready = True
        conn.space = room
        conn.input.heard = now()
        conn.take_stream(stream)
        conn.cap = cap
        conn.input.unmarked = self.io_state == IO_ADOPTED
        conn.registered = True
        self.look = True
        self.conns.append(conn)
        if self.polling:
            self.poke()
        self.start_io_thread()
        return conn

    def close(self):
        cdef Connection conn
        cdef Seat seat
        if self.closed:
            return
        self.closed = True
        if self.forked:
            return
        for conn in list(self.conns):
            conn.push_out()
            conn.fail(errors.Closed, "the client was closed")
        for seat in self.followers:
            seat.free()
        if self.polling:
            self.poke()
        self.kick()
        self.reap()
        if self.io_state == IO_ADOPTED:
            close_adopted(self)
        if self.io_thread is not None and self.io_thread_id != PyThread_get_thread_ident():
            self.io_thread.join(1.0)

    # ---- waiting ------------------------------------------------------------------------------------------------------------

    cdef int wait(self, Waitable w, double deadline) except -1:
        """1: ready. 0: `deadline` is past. Raises Closed, Forked, or what a signal handler raises."""
        cdef int rc
        if not w.ready and (PyThread_get_thread_ident() == self.io_thread_id or self.io_state == IO_ADOPTED):
            return refuse_wait(self, deadline)
        while not w.ready:
            self.usable()
            self.flush_corked()
            if w.ready:
                break
            if deadline != deadline:
                refuse_nan()
            if self.led:
                if self.leader_id == PyThread_get_thread_ident():
                    raise RuntimeError("a signal handler called the client inside one of its own reads")
                rc = self.sit_out(w, deadline)
                if rc != 3:                      # 3: promoted
                    if rc == 1 or w.ready:
                        continue
                    if rc == 0:
                        return 0
                    PyErr_CheckSignals()
                    continue
            else:
                self.led = True
            self.leads += 1
            self.leader_id = PyThread_get_thread_ident()
            rc = 0
            try:
                rc = self.lead(w, deadline)
            finally:
                self.leave(rc == 4)
            if self.prompts:
                self.serve_prompts(w)
            if self.interrupted is not None:
                self.raise_interrupted()
            if rc == 0 and not w.ready:
                return 0
            if rc == -2:
                PyErr_CheckSignals()
        return 1

    cdef int sit_out(self, Waitable w, double deadline) except -1:
        """Wait while another thread reads. 1: look again; 0: late; -2: a signal; 3: the role of reading is ours now."""
        cdef Seat seat = Seat.__new__(Seat)
        cdef int rc
        w.sit(seat)
        seat.target = w
        self.followers.append(seat)
        if not self.led or w.ready:              # making the seat may have let others run
            rc = 1
        else:
            rc = seat.sleep(deadline)
        self.followers.remove(seat)
        w.stand(seat)
        if seat.promoted:
            if rc == 1 and not w.ready:
                return 3
            self.leave()
        return rc

    cdef int lead(self, Waitable w, double deadline) except -1:
        """Read until `w` is ready. 1: ready, closed or forked; 0: late; -2: a signal; 4: `prompts` are to be served, then go on. The role is
        ours and stays so."""
        cdef int rc
        self.target = w
        try:
            while not (w.ready or self.closed or self.forked):
                self.flush_corked()
                if w.ready or self.closed:  # by another thread, while that sent
                    break
                rc = self.turn(deadline)
                if w.ready:
                    break
                if rc == -2 or self.interrupted is not None:
                    return -2
                if self.prompts:
                    return 4
                if rc == 0 or self.clock >= deadline:
                    return 0
            return 1
        finally:
            self.target = None

    cdef int serve_prompts(self, Waitable w) except -1:
        """What the last turn brought for mailboxes that need not wait for the I/O thread. The role is not ours meanwhile."""
        cdef Mailbox box
        cdef bint leads_on = False
        prompts, self.prompts = self.prompts, []
        try:
            while prompts:
                box = prompts.pop(0)
                box.serve_promptly()
            leads_on = not w.ready
        finally:
            for box in prompts:                  # a signal handler raised
                if not box.queued:
                    box.queued = True
                    self.task(box)
            if not leads_on and not self.led:
                self.nudge()
        return 0

    cdef void leave(self, bint comes_back=False) noexcept:
        """Give the role away: to the first follower that still waits, else to none."""
        cdef Seat seat
        self.leader_id = 0
        for seat in self.followers:
            if not seat.freed:
                seat.promoted = True
                seat.free()
                return
        self.led = False
        if not comes_back:
            self.nudge()

    cdef void nudge(self) noexcept:
        """Wake the I/O thread if it relies on another thread to read: none reads now."""
        if self.errands > 0:
            self.urgent = True
            self.kick()
        elif self.io_state == IO_DEEP:
            self.kick()

    # ---- one turn -----------------------------------------------------------------------------------------------------------

    cdef int turn(self, double until) except -1:
        """Poll all connections, read, dispatch. 1: something came; 0: `until` is past; -2: a signal."""
        cdef Py_ssize_t count = 0
        cdef Py_ssize_t extra = 0
        cdef Connection conn
        cdef pollfd *fds
        cdef input_t **slots
        cdef int rc
        cdef short events
        cdef bint fresh = False
        cdef bint patient
        if self.slot_room < len(self.conns):
            self.grow_slots(len(self.conns))
        fds = <pollfd *>self.pollfds
        slots = self.slots
        if fds == NULL:
            self.grow_slots(4)
            fds = <pollfd *>self.pollfds
            slots = self.slots
        fds[0] = pollfd(fd=self.wake_r, events=POLLIN, revents=0)
        for conn in self.conns:
            if conn.fresh:
                until = 0
                fresh = True
            events = (POLLIN if conn.want_read() else 0) | (POLLOUT if conn.blocked else 0)
            fds[count + 1] = pollfd(fd=conn.input.fd if events else -1, events=events, revents=0)
            conn.input.received = 0
            slots[count] = conn.input
            count += 1
        if self.watching:
            self.polled = self.watched
            extra = add_watched(self, count)
            fds = <pollfd *>self.pollfds
            slots = self.slots
        patient = count == 1 and extra == 0 and until > 0 and self.only_a_reply() and until - now() > 4e-6 * PATIENCE
        self.turning = True
        self.polling = True
        with nogil:
            rc = 0
            if patient:
                rc = receive_patiently(slots[0])
                if rc == 1:
                    fds[1].revents = POLLIN
            if rc == 0:
                rc = poll_and_receive(fds, slots, count, extra, until)
        self.polling = False
        self.clock = now()
        if self.forked:
            self.turning = False
            return 1
        try:
            if rc == -2:
                raise OSError("poll failed")
            self.deliver_turn(rc, count)
            if extra:
                deliver_watched(self, count)
        finally:
            self.turning = False
            if self.dying or self.closed:
                self.reap()
        return -2 if rc == -1 else rc != 0 or fresh

    cdef bint only_a_reply(self) noexcept:
        """Whether this thread waits for a reply on the one connection there is, and this one can be waited for without poll."""
        cdef Connection conn
        if self.target is None or type(self.target) is not Call:
            return False
        conn = (<Call>self.target).conn
        return conn.input != NULL and conn.input.patient and not conn.blocked and self.slots[0] == conn.input

    cdef int deliver_turn(self, int rc, Py_ssize_t count) except -1:
        cdef Py_ssize_t i
        cdef Connection conn
        cdef pollfd *fds = <pollfd *>self.pollfds
        cdef char scrap[64]
        if rc == 1 and fds[0].revents:
            while read(self.wake_r, scrap, 64) == 64:
                pass
            self.poked = False
        for i in range(count):
            conn = <Connection>self.slots[i].owner
            if conn.failure is not None or not (self.slots[i].received or fds[i + 1].revents or conn.fresh):
                continue
            try:
                conn.turned(fds[i + 1].revents)
            except BaseException as error:
                conn.fail(errors.Disconnected, f"reading failed: {type(error).__name__}")
                raise
        return 0

    cdef int grow_slots(self, Py_ssize_t count) except -1:
        cdef void *fds = realloc(self.pollfds, (2 * count + 1) * sizeof(pollfd))
        cdef void *slots
        if fds == NULL:
            raise MemoryError
        self.pollfds = fds
        slots = realloc(self.slots, 2 * count * sizeof(input_t *))
        if slots == NULL:
            raise MemoryError
        self.slots = <input_t **>slots
        self.slot_room = 2 * count
        return 0

    cdef void poke(self) noexcept:
        """Wake the thread that polls: the set of connections, or what it waits for, has changed."""
        if self.io_state == IO_ADOPTED and self.io_thread_id == PyThread_get_thread_ident():
            ask_for_run(self)
        elif not self.poked:
            self.write_wake()

    cdef void write_wake(self) noexcept:
        if self.wake_w >= 0:
            self.poked = True
            write(self.wake_w, b"!", 1)

    cdef void close_wake(self) noexcept:
        if self.wake_r >= 0:
            close(self.wake_r)
            close(self.wake_w)
            self.wake_r = self.wake_w = -1

    cdef void reap(self):
        """Close the descriptors of dead connections, and at the end our own, unless a thread may be using them."""
        cdef Connection conn
        if self.turning or self.forked:
            return
        dying, self.dying = self.dying, []
        for conn in dying:
            if conn.writing:
                self.dying.append(conn)
            else:
                conn.release()
        if self.closed:
            self.close_wake()

    cdef int flush_corked(self) except -1:
        cdef Connection conn
        while self.corked:
            conn = self.corked.pop()
            self.corks = len(self.corked)
            conn.corked = False
            conn.push_out()
        return 0

    cdef int relieve(self) except -1:
        """Enough was taken from the mailboxes: read the connections again that fetch_memory had stopped."""
        cdef Connection conn
        if self.starved and self.bytes <= self.fetch_memory // 2:
            starved, self.starved = self.starved, []
            for conn in starved:
                conn.held -= 1
            if self.polling:
                self.poke()
        return 0

    # ---- the I/O thread: timers, handlers, and reading when no caller waits -------------------------------------------------------

    cdef int start_io_thread(self) except -1:
        if self.io_state == IO_NONE and not self.closed:
            self.io_state = IO_RUNS
            self.io_thread = threading.Thread(target=self._keep, name=f"wireproto-io {self.name}", daemon=True)
            self.io_thread.start()
        return 0

    def call_at(self, double when, fn, *args):
        self.usable()
        return self.add_timer(when, fn, args)

    def call_soon(self, fn, *args):
        self.usable()
        self.task((fn, args))

    cdef Timer add_timer(self, double when, object fn, tuple args):
        cdef Timer timer = Timer.__new__(Timer)
        timer.loop = self
        timer.when = when
        timer.fn = fn
        timer.args = args
        self.timer_count += 1
        heappush(self.timers, (when, self.timer_count, timer))
        if self.timers_dead > 256 and self.timers_dead * 2 > len(self.timers):
            self.timers[:] = [entry for entry in self.timers if (<Timer>entry[2]).fn is not None]
            heapify(self.timers)
            self.timers_dead = 0
        if when < self.io_until:
            self.kick()
        self.start_io_thread()
        return timer

    cdef double next_timer(self) noexcept:
        return (<tuple>self.timers[0])[0] if self.timers else FOREVER

    cdef int task(self, object job) except -1:
        self.tasks.append(job)
        self.kick()
        if self.io_state == IO_NONE:
            self.start_io_thread()
        return 0

    cdef void kick(self) noexcept:
        """Wake the I/O thread."""
        if self.io_state == IO_PARKED or self.io_state == IO_DEEP:
            if not self.park_freed:
                self.park_freed = True
                PyThread_release_lock(self.park)
        elif self.polling and (self.io_state == IO_READS or self.io_state == IO_ADOPTED):
            self.poke()

    cdef int run_timers(self) except -1:
        cdef Timer timer
        while self.timers and not self.closed:
            if self.next_timer() > now():
                return 0
            timer = heappop(self.timers)[2]
            if timer.fn is None:
                self.timers_dead -= 1
                continue
            fn, timer.fn = timer.fn, None
            try:
                fn(*timer.args)
            except BaseException as why:
                tell_unraisable(why, fn)
        return 0

    cdef int run_tasks(self) except -1:
        while self.tasks:
            job = self.tasks.popleft()
            if isinstance(job, Mailbox):
                (<Mailbox>job)._serve()
                continue
            try:
                job[0](*job[1])
            except BaseException as why:
                tell_unraisable(why, job[0])
        return 0

    def _keep(self):
        """The I/O thread."""
        cdef double until
        cdef bint quiet = False                   # no thread has read for a whole IO_NAP
        self.io_thread_id = PyThread_get_thread_ident()
        self.io_seen = -1
        while not self.forked:
            self.io_state = IO_RUNS
            self.run_timers()
            self.run_tasks()
            if self.closed:
                break
            if self.first is not None:
                run_runnable(self)
            self.flush_corked()
            if not self.led and (self.conns or self.watching) and (quiet or self.urgent or self.first is not None):
                quiet = self.io_reads()
                continue
            if self.tasks or self.first is not None:
                continue
            until = FOREVER
            if self.conns and not (self.led and self.io_seen == self.leads):
                until = now() + IO_NAP
            quiet = not self.io_parks(until) and not self.led and self.io_seen == self.leads and until < FOREVER
        if self.closed and not self.forked:
            stop_living(self)
            self.run_tasks()
        self.io_state = IO_GONE

    cdef bint io_parks(self, double until) noexcept:
        """Sleep until then, the next timer, or a kick; whether it was a kick. While threads go on reading it sleeps again without the GIL."""
        cdef double timer = self.next_timer()
        cdef int rc
        self.io_state = IO_DEEP if until == FOREVER else IO_PARKED
        self.io_until = timer                 # before the GIL goes: a thread that sets a sooner timer from here on kicks
        with nogil:
            while True:
                self.io_seen = self.leads
                rc = PyThread_acquire_lock_timed(self.park, microseconds((timer if timer < until else until) - now()), 0)
                if rc == LOCK_ACQUIRED or until == FOREVER or timer <= until or self.io_seen == self.leads or self.corks:
                    break
                until = now() + IO_NAP
        self.io_state = IO_RUNS
        self.io_until = 0
        if rc == LOCK_ACQUIRED:
            self.park_freed = False
            return True
        return False

    cdef int io_reads(self) except -1:
        """Take the role until there is something else to do. 1: it may take it again at once; 0: a caller was served, let callers lead."""
        cdef int rc
        self.led = True
        self.urgent = False
        self.served = False
        self.io_state = IO_READS
        try:
            while True:
                self.flush_corked()              # others may run meanwhile: what they want of the I/O thread is looked at after it
                if self.served or self.tasks or self.closed or self.forked:
                    break
                self.io_until = 0 if self.first is not None else self.next_timer()
                rc = self.turn(self.io_until)
                if rc == 0 or self.first is not None:
                    break
        except BaseException as why:
            tell_unraisable(why, self)
        finally:
            self.io_state = IO_RUNS
            self.io_until = 0
            self.leave()
        return not self.served

    def adopt(self, schedule):
        adopt(self, schedule)
        return self.poller

    @property
    def adopted(self):
        return self.io_state == IO_ADOPTED

    def run_ready(self, bint look=True):
        return run_adopted(self, look)

    def __repr__(self):
        state = "forked" if self.forked else "closed" if self.closed else f"{len(self.conns)} connections"
        return f"<Loop {self.name}: {state}>"
