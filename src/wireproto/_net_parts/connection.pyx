# One connection: what is submitted, delivered, routed, and how it fails.
#
# Closing: shutdown(2) first, which wakes the thread that polls it; the descriptor itself is closed when no thread can be reading (Loop.reap).
# Failures are kept as (class, text) and made into errors by the threads that raise them: constructing one runs Python code.

# Sends keep the order of submission: bytes are queued and pushed under the GIL; while a big push runs without it, `writing` makes the
# others only queue. A peer that does not read leaves the connection `blocked`: the reading thread then polls it for writing as well.

cdef enum:
    UNSENT_CAP = 8 << 20          # bytes queued above which a submitter waits until some were sent, or gets an error
    KEEP_GIL_BELOW = 32768        # bytes: a push this small is quicker than giving the GIL away
    CIPHER_STEP = 262144          # encrypted bytes made ahead of the kernel
    RECORD = 16384                # bytes in one TLS record
    SENTINEL = 0xa7

cdef object strerror = os.strerror


cdef class WritableWaiter(Waitable):
    """Ready while a connection has room for bytes to send."""


cdef class Connection:
    """See _net.pyi."""

    def __init__(self):
        raise TypeError("connections are made by Loop.open")

    def __cinit__(self):
        self.input = <input_t *>malloc(sizeof(input_t))
        if self.input == NULL:
            raise MemoryError
        memset(self.input, 0, sizeof(input_t))
        self.input.fd = -1
        self.input.room = BUFFER
        self.input.buf = <uint8_t *>malloc(BUFFER)
        self.tls_lock = PyThread_allocate_lock()
        if self.input.buf == NULL or self.tls_lock == NULL:
            raise MemoryError
        self.input.owner = <void *>self
        self.plain = self.input
        self.out = Output()
        self.calls = {}
        self.routes = {}
        self.lost_callbacks = []
        self.first_bytes = b""
        self.sweep_time = FOREVER

    def __dealloc__(self):
        self.release()
        if self.tls_lock != NULL:
            PyThread_free_lock(self.tls_lock)

    cdef void release(self) noexcept:
        """Close the descriptor and free the buffers: no thread reads any more."""
        if self.input != NULL:
            if self.input.fd >= 0:
                close(self.input.fd)
            if self.plain != self.input:
                free(self.plain.buf)
                free(self.plain)
            self.heard = self.input.heard
            free(self.input.buf)
            free(self.input)
            self.input = self.plain = NULL
            Py_XDECREF(self.big)
            self.big = NULL

    @property
    def closed(self):
        return self.failure is not None

    @property
    def lost(self):
        return None if self.failure is None else self.describe(self.failure)

    @property
    def last_read(self):
        return self.input.heard if self.input != NULL else self.heard

    @property
    def held_back(self):
        return not self.want_read()

    @property
    def pending(self):
        return self.expected

    @property
    def unsent(self):
        return self.out.size + (self.cipher.size if self.cipher is not None else 0)

    @property
    def cap(self):
        return self.plain.cap if self.plain != NULL else 0

    @cap.setter
    def cap(self, uint32_t value):
        if self.input != NULL:
            self.plain.cap = value if value < 0x7fffffff else 0x7fffffff
            self.plain.lines = self.framing == LINES

    def describe(self, tuple failure):
        """A fresh error of a failure; names another protocol where the very first bytes were not ours."""
        text = failure[1]
        if failure[0] is errors.FrameTooLarge and self.frames_read == 0:
            from .net.debug import describe_first_bytes
            other = describe_first_bytes(self.first_bytes)
            if other:
                text = f"{text}: {other}"
        error = failure[0](text, peer=self.peer)
        if len(failure) > 2:
            error.errno = failure[2]
        return error

    def next_token(self):
        return self.next_number()

    cdef int32_t next_number(self) noexcept:
        self.tokens = self.tokens + 1 if self.tokens < 0x7fffffff else 1
        return self.tokens

    def submit(self, token, buffers, Mailbox mailbox=None, timeout_at=None, context=None, bint secret=False):
        return self.start(token, buffers, mailbox, timeout_at, context, secret)

    def call(self, token, buffers, double deadline, bint secret=False):
        cdef Call call
        self.make_room(deadline)
        call = self.start(token, buffers, None, None, None, secret)     # we wait ourselves: no timer
        return call.outcome_by(deadline)

    def post(self, int32_t word, bytes body not None, Mailbox mailbox=None, timeout_at=None, context=None, bint lasting=False):
        self.make_room(timeout_at)
        return start_numbered(self, word, body, mailbox, None if mailbox is None or lasting else timeout_at, context)

    def ask(self, int32_t word, bytes body not None, double deadline):
        if self.failure is not None or self.loop.forked or self.out.size > UNSENT_CAP:
            return None
        return start_numbered(self, word, body, None, None, None).outcome_by(deadline)

    def take_stream(self, stream):
        """A connected socket, detached from its Python object, or a TLS stream after its handshake."""
        if hasattr(stream, "bio_in"):
            take_tls(self, stream)
        else:
            stream.setblocking(False)
            self.input.fd = stream.detach()
            self.input.patient = be_patient(self.input.fd, PATIENCE)

    cdef Call start(self, object token, object buffers, Mailbox mailbox, object timeout_at, object context, bint secret):
        cdef Call call
        self.make_room(timeout_at if mailbox is None else None)     # a caller with a mailbox never waits: it has other things to do
        call = new_call(self, token, mailbox, context)
        call.secret = secret
        if token in self.calls:
            raise ValueError(f"token {token} is already pending on the connection to {self.peer}")
        self.put(buffers, secret)
        if self.failure is not None:
            raise self.describe(self.failure)
        self.expect(call, timeout_at)
        return call

    cdef int expect(self, Call call, object timeout_at) except -1:
        """Its frame is queued: have it sent, its reply known."""
        self.calls[call.token] = call
        self.expected += 1
        if call.mailbox is not None and call.mailbox.handler is not None:
            self.loop.errands += 1
        if timeout_at is not None:
            call.deadline = timeout_at
            if call.deadline < self.sweep_time:
                self.sweep_at(call.deadline)
        if self.expected == 1 or self.out.size >= OWN_SEGMENT:
            self.push_out()
        else:
            self.cork()
        if self.loop.interrupted is not None:
            self.loop.raise_interrupted()
        return 0

    cdef int sweep_at(self, double when) except -1:
        """Look for calls that are too late then. One timer serves all calls of a connection, since most are answered long before their time."""
        self.stop_sweeper()
        self.sweeper = self.loop.add_timer(when, self._sweep, ())
        self.sweep_time = when
        return 0

    cdef void stop_sweeper(self):
        """As Timer.cancel; runs no Python code."""
        if self.sweeper is not None and self.sweeper.fn is not None:
            self.sweeper.fn = None
            self.loop.timers_dead += 1
        self.sweeper = None
        self.sweep_time = FOREVER

    def _sweep(self):
        """The I/O thread's timer: fail what has not been answered in time."""
        cdef Call call
        cdef double first = FOREVER
        cdef double clock = now()
        self.sweeper = None
        self.sweep_time = FOREVER
        for call in list(self.calls.values()):
            if call.deadline == 0 or call.ready or call.late:
                continue
            if call.deadline <= clock:
                call.expire()
            elif call.deadline < first:
                first = call.deadline
        if first < self.sweep_time and self.failure is None:
            self.sweep_at(first)

    def send(self, buffers, timeout_at=None, bint more=False, bint secret=False):
        self.make_room(timeout_at)
        self.put(buffers, secret)
        if not more or self.out.size >= OWN_SEGMENT:
            self.push_out()
        else:
            self.cork()
        if self.loop.interrupted is not None:
            self.loop.raise_interrupted()

    def flush(self):
        if self.failure is None:
            self.push_out()

    def route(self, int64_t channel, Mailbox mailbox):
        if mailbox is None:
            self.routes.pop(channel, None)
        else:
            self.routes[channel] = mailbox

    def on_lost(self, callback):
        if self.failure is None:
            self.lost_callbacks.append(callback)
        else:
            self.loop.task((self._tell_lost, (callback,)))

    def _tell_lost(self, callback):
        callback(self.describe(self.failure))

    def close(self, reason=None):
        if self.failure is None:
            if not self.loop.forked:
                self.push_out()
            self.fail(errors.Disconnected, "the connection was closed" if reason is None else str(reason))

    cdef bint want_read(self) noexcept:
        return self.held <= 0 or self.wanted > 0

    # ---- sending ------------------------------------------------------------------------------------------------------------

    cdef int make_room(self, object timeout_at) except -1:
        """Wait until less than UNSENT_CAP is queued; raises when the connection cannot be used."""
        while True:
            if self.loop.forked:
                self.loop.usable()
            if self.failure is not None:
                raise self.describe(self.failure)
            if self.out.size <= UNSENT_CAP:
                return 0
            if timeout_at is None or PyThread_get_thread_ident() == self.loop.io_thread_id:
                raise errors.BufferFull(f"{self.out.size} bytes wait for the peer to read", peer=self.peer)
            self.space.ready = False
            if not self.loop.wait(self.space, timeout_at):
                raise errors.TimedOut("the peer does not read what we send", peer=self.peer)

    cdef int put(self, object buffers, bint secret) except -1:
        """Queue one frame: its length, then the buffers. All or nothing."""
        cdef size_t total = 0
        cdef tuple parts = contiguous(buffers, &total)
        if self.failure is not None:                # a memoryview's exporter may have run anything
            raise self.describe(self.failure)
        try:
            queue_frame(self.out, parts, total, self.framing == LINES)
        except BaseException:
            self.fail(errors.Disconnected, "no memory to send")
            raise
        if self.loop.tap is not None:
            self.loop.tap.deliver((">", self.peer, total if secret else b"".join(parts)), total, None)
        return 0

    cdef int cork(self) except -1:
        """Leave it queued: the next wait, the reader's next turn or the I/O thread's next tick sends it."""
        if not self.corked:
            self.corked = True
            self.loop.corked.append(self)
            self.loop.corks = len(self.loop.corked)
            if self.loop.polling:
                self.loop.poke()
        return 0

    cdef int push_out(self) except -1:
        """Give the kernel what is queued."""
        if self.failure is not None or self.writing or self.blocked:
            return 0
        if self.cipher is None:
            return self.drain(self.out)
        while True:
            encrypt(self)
            if not self.cipher.size or self.failure is not None or self.writing:
                break
            self.drain(self.cipher)
            if self.blocked:
                break
        return 0

    cdef int drain(self, Output out) except -1:
        cdef iovec vector[GATHER]
        cdef msghdr message
        cdef Py_ssize_t i, used
        cdef size_t total
        cdef ssize_t sent
        cdef int problem = 0
        cdef int fd
        cdef segment_t *s
        while out.size and self.failure is None:
            used = total = 0
            for i in range(out.count):
                if used == GATHER:
                    break
                s = &out.ring[(out.head + i) % out.room]
                vector[used].iov_base = s.p
                vector[used].iov_len = s.n
                total += s.n
                used += 1
            memset(&message, 0, sizeof(message))
            message.msg_iov = vector
            message.msg_iovlen = used
            fd = self.input.fd
            if total < KEEP_GIL_BELOW:
                sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL)
                problem = errno
            else:
                self.writing = True
                with nogil:
                    sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL)
                    problem = errno
                self.writing = False
                if self.failure is not None:
                    self.loop.reap()
                    if self.loop.polling:         # the reading thread dropped it while we used it, and would not look again
                        self.loop.poke()
                    return 0
            if sent >= 0:
                out.consume(sent)
                continue
            if problem == EINTR:
                continue
            if problem == EAGAIN:
                self.blocked = True
                if self.loop.polling:
                    self.loop.poke()
                return 0
            self.fail(errors.Disconnected, strerror(problem), problem)
        if not self.space.ready and self.out.size <= UNSENT_CAP // 2:
            self.space.wake()
        return 0

    # ---- receiving ----------------------------------------------------------------------------------------------------------

    cdef int turned(self, int revents) except -1:
        """The reading thread, after poll and recv."""
        cdef input_t *c = self.input
        if revents & POLLOUT:
            self.blocked = False
            self.push_out()
        if self.cipher is not None:
            decrypt(self)
        else:
            self.take()
        if self.failure is not None:
            return 0
        if c.error:
            self.fail(errors.Disconnected, strerror(c.error), c.error)
        elif c.eof or self.plain.eof:
            if self.big != NULL:
                self.fail(errors.Disconnected, f"closed by the peer after {self.plain.big_have} of a frame's {self.plain.big_size} bytes")
            elif self.plain.end > self.plain.start:
                self.fail(errors.Disconnected, f"closed by the peer, {self.plain.end - self.plain.start} bytes into a frame")
            else:
                self.fail(errors.Disconnected, "closed by the peer")
        return 0

    cdef int take(self) except -1:
        """Hand out the frames that are complete."""
        cdef input_t *c = self.plain
        cdef int64_t length = 0
        cdef int state, skip
        cdef object frame
        if self.frames_read == 0 and len(self.first_bytes) < 16:
            self.first_bytes = (<char *>c.buf)[c.start:min(c.end, c.start + 16)]
        while self.failure is None:
            if self.big != NULL:
                if c.big_have < c.big_room:
                    return 0
                if c.big_room < c.big_size:
                    self.grow_big()
                    continue
                frame = <object>self.big
                Py_XDECREF(self.big)
                self.big = NULL
                c.big = NULL
                self.arrived(frame, <const uint8_t *>PyBytes_AS_STRING(frame), c.big_size)
                continue
            state = next_frame(c, &length)
            if state == FRAME_BAD:
                self.fail(errors.FrameTooLarge, f"a frame of {length} bytes is announced, the most accepted is {c.cap}")
            elif state == FRAME_WHOLE:
                skip = 0 if c.lines else 4
                frame = PyBytes_FromStringAndSize(<char *>c.buf + c.start + skip, <Py_ssize_t>length)
                c.start += <size_t>length + (1 if c.lines else 4)
                self.arrived(frame, <const uint8_t *>PyBytes_AS_STRING(frame), <size_t>length)
            elif length >= BIG:
                self.begin_big(<size_t>length)
            else:
                return 0
        return 0

    cdef int begin_big(self, size_t length) except -1:
        cdef input_t *c = self.plain
        cdef size_t have = c.end - c.start - 4
        cdef size_t step = length if length < FIRST_STEP else FIRST_STEP
        self.big = new_bytes(NULL, step)
        c.big = <uint8_t *>PyBytes_AS_STRING(<object>self.big)
        memcpy(c.big, c.buf + c.start + 4, have)
        c.start = c.end = 0
        c.big_have = have
        c.big_room = step
        c.big_size = length
        return 0

    cdef int grow_big(self) except -1:
        cdef input_t *c = self.plain
        cdef size_t step = c.big_size if c.big_size < 2 * c.big_room else 2 * c.big_room
        c.big = NULL
        _PyBytes_Resize(&self.big, step)          # sets it to NULL when it fails
        c.big = <uint8_t *>PyBytes_AS_STRING(<object>self.big)
        c.big_room = step
        return 0

    # ---- replies and pushes -------------------------------------------------------------------------------------------------

    cdef int arrived(self, object frame, const uint8_t *p, size_t n) except -1:
        """A whole frame: to its call, its channel, or nowhere."""
        cdef int64_t number = 0
        cdef int kind = match(self.framing, p, n, &number)
        if self.framing == LINES:
            self.answered += 1
            number = self.answered
        self.frames_read += 1
        if self.loop.tap is not None:
            self.loop.tap.deliver(("<", self.peer, n if kind == REPLY and self.is_secret(number) else frame), n, None)
        if kind == REPLY:
            return self.answer(frame, number, p, n)
        if kind == PUSH:
            return self.pushed(frame, number, n)
        if kind == PONG:
            self.out.copy(<const uint8_t *>PONG_BYTES, 13)
            self.push_out()
        elif kind == UNREADABLE:
            self.fail(errors.Malformed, "a frame that is no message of this protocol")
        return 0

    cdef bint is_secret(self, int64_t token):
        """Whether what was asked under this token is."""
        cdef Call call = self.calls.get(token)
        return call is not None and call.secret

    cdef int answer(self, object frame, int64_t token, const uint8_t *p, size_t n) except -1:
        cdef Call call = self.calls.pop(token, None)
        if self.framing == ZOOKEEPER:
            self.note_zxid(token, p, n)
        if call is not None:
            call.finish(frame, None)
        elif self.framing == PULSAR:
            self.pushed(frame, SERVICE, len(<bytes>frame))    # PRODUCER_SUCCESS may come twice: queued, then ready
        elif self.framing != ROCKETMQ:                        # a RocketMQ broker may answer a one-way request
            self.fail(errors.Malformed, f"a reply to request {token}, which was never made")
        return 0

    cdef void note_zxid(self, int64_t xid, const uint8_t *p, size_t n) noexcept:
        """A reply was received, be it looked at or not. Those of the handshake (xid 0) and to identities and watches (below) tell nothing."""
        cdef int64_t zxid
        if xid > 0 and n >= 12:
            zxid = get_i64(p + 4)
            if zxid > self.seen_zxid:
                self.seen_zxid = zxid

    cdef int pushed(self, object frame, int64_t channel, size_t n) except -1:
        cdef Mailbox box = self.routes.get(channel)
        cdef Push push
        if box is not None:
            push = Push.__new__(Push)
            push.conn = self
            push.channel = channel
            push.frame = frame
            box.deliver(push, n, self)
        return 0

    cdef void fail(self, object kind, str text, int code=0):
        """Close it: everything pending fails, once, with the system's number where it gave one. May be called by the reading thread: no
        Python code runs here."""
        cdef Call call
        if self.failure is not None:
            return
        self.failure = (kind, text, code) if code else (kind, text)
        if self.loop.forked:
            return
        shutdown(self.input.fd, SHUT_RDWR)
        self.stop_sweeper()
        calls, self.calls = self.calls, {}
        for call in calls.values():
            call.finish(None, self.failure)
        self.space.wake()
        callbacks, self.lost_callbacks = self.lost_callbacks, []
        for callback in callbacks:
            self.loop.task((self._tell_lost, (callback,)))
        if self.registered:
            self.registered = False
            unwatch(self.loop, self.input)
            self.loop.conns.remove(self)
            self.loop.dying.append(self)
            if self.held > 0 and self in self.loop.starved:
                self.loop.starved.remove(self)
        self.loop.reap()

    def __repr__(self):
        return f"<Connection to {self.peer}: {'closed' if self.failure is not None else 'open'}, {self.expected} pending>"
