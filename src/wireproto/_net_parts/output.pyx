# Bytes on their way out: a ring of segments in order of submission.
#
# Small buffers are copied into one growing segment, so that many requests leave in one system call; big ones are held as they are and
# gathered by sendmsg. May assume: a held buffer does not change until it is sent. Must not: touch a socket.

cdef enum:
    COPY_BELOW = 4096         # bytes: copying is cheaper than another iovec and a held buffer
    OWN_SEGMENT = 16384
    GATHER = 64               # segments in one sendmsg


cdef class Output:
    def __cinit__(self):
        self.room = 8
        self.ring = <segment_t *>malloc(self.room * sizeof(segment_t))
        if self.ring == NULL:
            raise MemoryError
        self.views = []

    def __dealloc__(self):
        if self.ring != NULL:
            self.clear()
            free(self.ring)

    cdef segment_t *last(self) noexcept:
        return &self.ring[(self.head + self.count - 1) % self.room] if self.count else NULL

    cdef segment_t *append(self) except NULL:
        cdef segment_t *wider
        cdef Py_ssize_t i
        if self.count == self.room:
            wider = <segment_t *>malloc(2 * self.room * sizeof(segment_t))
            if wider == NULL:
                raise MemoryError
            for i in range(self.count):
                wider[i] = self.ring[(self.head + i) % self.room]
            free(self.ring)
            self.ring = wider
            self.head = 0
            self.room *= 2
        self.count += 1
        return self.last()

    cdef int copy(self, const uint8_t *p, size_t n) except -1:
        """Fewer than COPY_BELOW bytes."""
        cdef segment_t *s = self.last()
        cdef uint8_t *own
        if n == 0:
            return 0
        if s == NULL or s.own == NULL or s.room < n:
            own = <uint8_t *>malloc(OWN_SEGMENT)
            if own == NULL:
                raise MemoryError
            try:
                s = self.append()
            except BaseException:
                free(own)
                raise
            s.own = s.p = own
            s.n = 0
            s.room = OWN_SEGMENT
        memcpy(s.p + s.n, p, n)
        s.n += n
        s.room -= n
        self.size += n
        return 0

    cdef int hold(self, object buffer, uint8_t *p, size_t n) except -1:
        """`buffer` is a memoryview over p[:n]."""
        cdef segment_t *s
        if n == 0:
            return 0
        self.views.append(buffer)
        try:
            s = self.append()
        except BaseException:
            self.views.pop()
            raise
        s.own = NULL
        s.p = p
        s.n = n
        s.room = 0
        self.size += n
        return 0

    cdef void consume(self, size_t n) noexcept:
        cdef segment_t *s
        cdef size_t step
        self.size -= n
        while self.count:
            s = &self.ring[self.head]
            step = n if n < s.n else s.n
            s.p += step
            s.n -= step
            n -= step
            if s.n:
                return
            if s.own != NULL and self.count == 1:      # keep the last one for the next request: no malloc in a steady state
                s.room += s.p - s.own
                s.p = s.own
                return
            if s.own != NULL:
                free(s.own)
            else:
                self.views.pop(0)
            self.head = (self.head + 1) % self.room
            self.count -= 1

    cdef void clear(self) noexcept:
        cdef Py_ssize_t i
        cdef segment_t *s
        for i in range(self.count):
            s = &self.ring[(self.head + i) % self.room]
            if s.own != NULL:
                free(s.own)
        self.count = 0
        self.head = 0
        self.size = 0
        if self.views is not None:
            self.views.clear()


cdef tuple contiguous(object buffers, size_t *total):
    """The buffers as bytes objects and flat memoryviews, and their bytes together."""
    cdef list parts = []
    cdef object view
    if type(buffers) is bytes:
        total[0] = len(<bytes>buffers)
        return (buffers,)
    if not isinstance(buffers, (list, tuple)):
        buffers = (buffers,)
    total[0] = 0
    for part in buffers:
        if type(part) is bytes:
            total[0] += len(<bytes>part)
            parts.append(part)
            continue
        view = memoryview(part)
        if not PyBuffer_IsContiguous(PyMemoryView_GET_BUFFER(<PyObject *>view), b"C"):
            raise ValueError("buffers to send must be contiguous")
        total[0] += PyMemoryView_GET_BUFFER(<PyObject *>view).len
        parts.append(view)
    if total[0] > 0x7fffffff:
        raise errors.ValueUnsupported(f"a message of {total[0]} bytes: a frame holds at most {0x7fffffff}")
    return tuple(parts)


cdef int queue_frame(Output out, tuple parts, size_t total, bint lines) except -1:
    cdef uint8_t head[4]
    cdef uint8_t *p
    cdef size_t n
    if not lines:
        put_u32(head, <uint32_t>total)
        out.copy(head, 4)
    for part in parts:
        if type(part) is bytes:
            p = <uint8_t *>PyBytes_AS_STRING(part)
            n = len(<bytes>part)
        else:
            p = <uint8_t *>PyMemoryView_GET_BUFFER(<PyObject *>part).buf
            n = PyMemoryView_GET_BUFFER(<PyObject *>part).len
        if n < COPY_BELOW:
            out.copy(p, n)
        else:
            out.hold(part, p, n)
    if lines:
        out.copy(b"\n", 1)
    return 0
