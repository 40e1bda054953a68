# The engine's types at a glance: which object owns which. The code lies in _net_parts/, the order of locks in DESIGN.md.
#
# All of this is guarded by the GIL: what happens between two releases of it (poll, recv, waiting for a lock, TLS) happens at once for
# every other thread. Allocating an object may run the collector and thereby other threads, so state is looked at again after it.

from cpython.pythread cimport PyThread_type_lock
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t


cdef struct input_t:        # one connection as the nogil reader sees it
    int fd
    int events              # what poll is asked for; 0: skip
    int revents             # what it answered
    int error               # errno of a failed recv, or 0
    bint eof
    bint opaque             # TLS: bytes are not ours to scan
    bint lines              # frames end with a line feed, in place of a length before them
    bint patient            # a recv without MSG_DONTWAIT waits, for PATIENCE at most
    uint32_t cap            # largest frame accepted
    uint8_t *buf            # small frames, and the beginning of big ones
    size_t start, end, room
    uint8_t *big            # payload of the bytes object that a big frame is read into, or NULL
    size_t big_have, big_room, big_size
    size_t received         # in this turn
    double heard            # when bytes came last
    size_t mark             # SO_RCVLOWAT: bytes that are worth a wake-up
    bint unmarked           # … which stays one: the event loop that waits has a clock of its own
    int watched             # poll events that the poller of an adopted loop watches
    void *owner             # borrowed Connection


cdef struct segment_t:      # bytes on their way out
    uint8_t *p
    size_t n
    size_t room             # own memory only: what still fits behind
    uint8_t *own            # malloc'ed, or NULL when `view` holds another object's buffer


cdef class Output:          # queue of segments, in order of submission
    cdef segment_t *ring
    cdef list views         # memoryviews held for the segments that are not our own, in order
    cdef Py_ssize_t head, count, room
    cdef size_t size        # bytes queued
    cdef int copy(self, const uint8_t *p, size_t n) except -1
    cdef int hold(self, object buffer, uint8_t *p, size_t n) except -1
    cdef segment_t *last(self) noexcept
    cdef segment_t *append(self) except NULL
    cdef void consume(self, size_t n) noexcept
    cdef void clear(self) noexcept


cdef class Seat:            # a thread that waits while another one reads
    cdef PyThread_type_lock lock
    cdef bint freed         # its lock was released
    cdef bint promoted      # … because the role of reading is its own now
    cdef Waitable target
    cdef void free(self) noexcept
    cdef int sleep(self, double deadline) except -1


cdef class Waitable:
    cdef readonly Loop loop
    cdef bint ready
    cdef list seats
    cdef Runnable hook      # what the I/O thread runs once it is ready
    cdef list hooks         # … and more of them
    cdef void wake(self) noexcept
    cdef void sit(self, Seat seat)
    cdef void stand(self, Seat seat)
    cdef void release_hooks(self) noexcept
    cdef void awaited(self) noexcept
    cdef void unawaited(self) noexcept


cdef class Runnable(Waitable):      # something that the I/O thread runs: a place in the loop's queue, which so needs no memory
    cdef Runnable next
    cdef readonly bint queued
    cdef bint begun
    cdef Waitable hung      # what it waits for


cdef class Call(Waitable):
    cdef readonly Connection conn
    cdef readonly object token
    cdef readonly object frame
    cdef public object context
    cdef tuple failure      # (error class, text), made into an error where it is raised
    cdef Mailbox mailbox
    cdef double deadline    # when it expires; 0: never
    cdef bint late          # given up: the reply will be dropped
    cdef bint errand        # a task waits for it, for whom the I/O thread reads
    cdef bint secret        # the wire log shows the lengths of request and reply alone
    cdef void finish(self, object frame, tuple failure)
    cdef void abandon(self)
    cdef void settle(self)
    cdef int expire(self) except -1
    cdef void want(self)
    cdef object outcome(self)
    cdef object outcome_by(self, double deadline)


cdef class Push:
    cdef readonly Connection conn
    cdef readonly object channel
    cdef readonly object frame


cdef class Descriptors(Waitable):       # readiness of sockets that are no connections yet
    cdef tuple fds
    cdef short events
    cdef readonly int found     # the descriptor that was ready, or -1
    cdef bint stopped
    cdef bint errand        # a task waits for it, for whom the I/O thread reads


cdef class Event(Waitable):
    cdef readonly object value
    cdef object failure


cdef class Mailbox(Waitable):
    cdef object handler
    cdef object prompt      # what a waiting thread that reads may do with an item, or None
    cdef object items       # deque of (item, size)
    cdef bint queued        # on the I/O thread's list
    cdef bint serving       # a thread is at the items of this mailbox
    cdef bint shut
    cdef size_t bytes, limit
    cdef list paused        # connections not read because of this mailbox
    cdef list starving      # … that found fetch_memory exceeded
    cdef int feed_on(self) except -1
    cdef int serve_promptly(self) except -1
    cdef int put_back(self, object item, size_t size) except -1
    cdef int deliver(self, object item, size_t size, Connection source) except -1


cdef class Timer:
    cdef readonly double when
    cdef object fn
    cdef tuple args
    cdef Loop loop


cdef class Connection:
    cdef readonly Loop loop
    cdef readonly str peer
    cdef readonly long frames_read
    cdef readonly bytes first_bytes
    cdef readonly int64_t seen_zxid
    cdef public object context
    cdef input_t *input
    cdef int framing
    cdef int64_t answered   # replies so far, where they come in order of the requests
    cdef input_t *plain     # where frames are scanned: `input`, or behind TLS its own
    cdef PyObject *big      # the bytes object being filled: owned, not shared yet
    cdef Output out         # plain bytes
    cdef object tls_read, tls_write, tls_pending, bio_in, bio_out     # its C methods and buffers
    cdef unsigned long tls_owner    # the thread that holds tls_lock
    cdef Output cipher      # TLS: encrypted bytes, else None
    cdef PyThread_type_lock tls_lock
    cdef dict calls         # token -> Call
    cdef dict routes        # channel -> Mailbox
    cdef double sweep_time  # when the sweeper comes; FOREVER: no call can expire
    cdef Timer sweeper
    cdef Py_ssize_t expected    # calls whose reply is still wanted
    cdef int wanted         # threads that wait for a call of this connection
    cdef int held           # mailboxes that want it paused
    cdef double heard       # `input.heard` of a connection whose input is gone
    cdef bint corked, blocked, writing, registered, fresh
    cdef tuple failure      # why it is closed, or None
    cdef list lost_callbacks
    cdef Waitable space     # ready while there is room to send
    cdef int32_t tokens
    cdef bint want_read(self) noexcept
    cdef int sweep_at(self, double when) except -1
    cdef void stop_sweeper(self)
    cdef int put(self, object buffers, bint secret) except -1
    cdef int push_out(self) except -1
    cdef int cork(self) except -1
    cdef int drain(self, Output out) except -1
    cdef int make_room(self, object timeout_at) except -1
    cdef int take(self) except -1
    cdef int turned(self, int revents) except -1
    cdef int begin_big(self, size_t length) except -1
    cdef int grow_big(self) except -1
    cdef int arrived(self, object frame, const uint8_t *p, size_t n) except -1
    cdef bint is_secret(self, int64_t token)
    cdef void note_zxid(self, int64_t xid, const uint8_t *p, size_t n) noexcept
    cdef int answer(self, object frame, int64_t token, const uint8_t *p, size_t n) except -1
    cdef int pushed(self, object frame, int64_t channel, size_t n) except -1
    cdef void fail(self, object kind, str text, int code=*)
    cdef void release(self) noexcept
    cdef Call start(self, object token, object buffers, Mailbox mailbox, object timeout_at, object context, bint secret)
    cdef int expect(self, Call call, object timeout_at) except -1
    cdef int32_t next_number(self) noexcept


cdef class Loop:
    cdef readonly str name
    cdef public Mailbox tap
    cdef readonly bint closed, forked
    cdef size_t fetch_memory, bytes
    cdef list conns         # open
    cdef list dying         # closed, their descriptors not yet
    cdef list corked
    cdef Py_ssize_t corks       # … how many, for the I/O thread to see without the GIL
    cdef list starved       # connections paused because of fetch_memory
    cdef tuple watched      # Descriptors to be polled; another tuple whenever that changes
    cdef Py_ssize_t watching    # … how many
    cdef tuple polled       # … as the turn under way has them
    cdef bint led           # a thread has the role of reading
    cdef bint turning       # … and is between building the poll set and having dispatched
    cdef bint polling       # … and is in poll or recv, or about to be
    cdef bint poked
    cdef Waitable target    # what the reading thread waits for
    cdef unsigned long leader_id    # its thread
    cdef object interrupted     # what a signal handler raised inside OpenSSL, to be raised when the role is given away
    cdef bint served        # a reply had a waiting owner
    cdef object followers   # deque of Seats
    cdef long leads
    cdef int wake_r, wake_w
    cdef void *pollfds
    cdef input_t **slots
    cdef Py_ssize_t slot_room
    # the I/O thread
    cdef object tasks       # deque of Mailbox or (fn, args)
    cdef Runnable first, last   # what is to be run, in order
    cdef set living         # Runnables begun and not done
    cdef list prompts       # mailboxes that the thread which has just read serves itself
    cdef list timers        # heap of (when, number, Timer)
    cdef long timer_count, timers_dead
    cdef int io_state         # its state
    cdef unsigned long io_thread_id
    cdef long io_seen       # `leads` when it lay down
    cdef double io_until   # when it wakes by itself
    cdef object io_thread
    cdef bint urgent        # replies are on their way that no thread waits for
    cdef long errands       # how many
    cdef double clock       # of the last turn
    cdef PyThread_type_lock park
    cdef bint park_freed
    # adopted by another event loop
    cdef int poller             # the descriptor that it waits for, or -1
    cdef object schedule        # what has `run_ready` called soon
    cdef bint scheduled         # … was called
    cdef bint look              # the next run is to read, whatever the poller says
    cdef object __weakref__
    cdef int start_io_thread(self) except -1
    cdef int usable(self) except -1
    cdef int raise_interrupted(self) except -1
    cdef int wait(self, Waitable w, double deadline) except -1
    cdef int lead(self, Waitable w, double deadline) except -1
    cdef int turn(self, double until) except -1
    cdef int serve_prompts(self, Waitable w) except -1
    cdef void leave(self, bint comes_back=*) noexcept
    cdef void nudge(self) noexcept
    cdef void poke(self) noexcept
    cdef void write_wake(self) noexcept
    cdef void kick(self) noexcept
    cdef void close_wake(self) noexcept
    cdef void reap(self)
    cdef int flush_corked(self) except -1
    cdef int task(self, object job) except -1
    cdef Timer add_timer(self, double when, object fn, tuple args)
    cdef double next_timer(self) noexcept
    cdef int run_timers(self) except -1
    cdef int run_tasks(self) except -1
    cdef int relieve(self) except -1
    cdef int sit_out(self, Waitable w, double deadline) except -1
    cdef int io_reads(self) except -1
    cdef bint io_parks(self, double until) noexcept
    cdef bint only_a_reply(self) noexcept
    cdef int grow_slots(self, Py_ssize_t count) except -1
    cdef int deliver_turn(self, int rc, Py_ssize_t count) except -1


cdef class OneThread:       # the guard that a role holds for one call
    cdef readonly str role
    cdef Loop loop
    cdef object inside
    cdef unsigned long owner    # the thread that is inside; 0: none
    cdef public bint closed
    cdef int refuse(self) except -1


cdef class Outside:         # … and let go of while user code runs that may call the role
    cdef OneThread guard
    cdef unsigned long owner


cdef class OneAfterAnother:  # the turns of threads that close something
    cdef str what
    cdef object turn
    cdef unsigned long owner    # the thread whose turn it is; 0: none


cdef class Turn:            # … one of them
    cdef OneAfterAnother turns
    cdef double deadline
    cdef bint mine
