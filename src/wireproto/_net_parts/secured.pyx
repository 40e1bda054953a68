# What a connection does behind TLS: plain bytes to encrypted ones and back, by OpenSSL's objects in memory.
#
#     out --encrypt--> cipher --kernel-->          --kernel--> input --decrypt--> plain --frames-->
#
# May assume: the GIL, which OpenSSL's methods let go of. Must not: wait, or read a socket.

cdef object _SSLError = ssl.SSLError
cdef object _SSLWantReadError = ssl.SSLWantReadError
cdef object _SSLEOFError = ssl.SSLEOFError
cdef object _SSLZeroReturnError = ssl.SSLZeroReturnError

# tls_lock is held round each call of OpenSSL's objects. Python's methods run signal handlers *after* OpenSSL did its work, and then lose
# its result; only such calls are made here whose result is known beforehand or can be found out afterwards. See Loop.raise_interrupted.
cdef int take_tls(Connection conn, object stream) except -1:
    cdef input_t *plain = <input_t *>malloc(sizeof(input_t))
    if plain == NULL:
        raise MemoryError
    memset(plain, 0, sizeof(input_t))
    plain.fd = -1
    plain.room = BUFFER
    plain.buf = <uint8_t *>malloc(BUFFER)
    if plain.buf == NULL:
        free(plain)
        raise MemoryError
    conn.plain = plain
    conn.cipher = Output()
    raw = stream.raw
    conn.tls_read = raw.read
    conn.tls_write = raw.write
    conn.tls_pending = raw.pending
    conn.bio_in = stream.bio_in
    conn.bio_out = stream.bio_out
    conn.input.opaque = True
    conn.fresh = True                            # bytes may have come with the end of the handshake
    stream.sock.setblocking(False)
    conn.input.fd = stream.sock.detach()
    return 0


cdef bint own_tls(Connection conn) noexcept:
    """False: this thread has it already, so we are in a signal handler inside one of the calls below."""
    cdef unsigned long me = PyThread_get_thread_ident()
    if conn.tls_owner == me:
        return False
    if not PyThread_acquire_lock(conn.tls_lock, 0):
        with nogil:
            PyThread_acquire_lock(conn.tls_lock, 1)
    conn.tls_owner = me
    return True


cdef void disown_tls(Connection conn) noexcept:
    conn.tls_owner = 0
    PyThread_release_lock(conn.tls_lock)


cdef int encrypt(Connection conn) except -1:
    """From `out` to `cipher`, some way ahead of the kernel."""
    cdef segment_t *s
    cdef size_t n
    cdef object data, before
    if not own_tls(conn):
        return 0
    try:
        while conn.out.size and conn.cipher.size < CIPHER_STEP and conn.failure is None:
            s = &conn.out.ring[conn.out.head]
            n = s.n if s.n < RECORD else RECORD
            before = conn.bio_out.pending
            try:
                conn.tls_write(peek_view(s.p, n, False))
            except _SSLWantReadError:
                break
            except _SSLError as error:
                conn.fail(errors.TlsError, f"TLS: {error}")
                break
            except BaseException as error:       # a signal handler's
                conn.loop.interrupted = error
                if conn.bio_out.pending == before:
                    break
            conn.out.consume(n)                  # the ring may have moved while the GIL was free: `s` is not valid any more
            if conn.bio_out.pending > 4 * RECORD:
                data = conn.bio_out.read()
                conn.cipher.hold(data, <uint8_t *>PyBytes_AS_STRING(data), len(<bytes>data))
        if conn.bio_out.pending:
            data = conn.bio_out.read()
            conn.cipher.hold(data, <uint8_t *>PyBytes_AS_STRING(data), len(<bytes>data))
    finally:
        disown_tls(conn)
    return 0


cdef int decrypt(Connection conn) except -1:
    """The reading thread: what was received, through OpenSSL, to the framer."""
    cdef input_t *c = conn.input
    cdef input_t *p = conn.plain
    cdef Py_ssize_t got
    conn.fresh = False
    if c.end > c.start:
        if not own_tls(conn):
            return 0
        try:
            conn.bio_in.write(peek_view(c.buf + c.start, c.end - c.start, False))
        finally:
            disown_tls(conn)
        c.start = c.end = 0
    while conn.failure is None and not p.eof:
        if p.big != NULL:
            got = read_plain(conn, p.big + p.big_have, p.big_room - p.big_have)
        else:
            if p.start:
                memmove(p.buf, p.buf + p.start, p.end - p.start)
                p.end -= p.start
                p.start = 0
            got = read_plain(conn, p.buf + p.end, p.room - p.end)
        if got <= 0:
            p.eof = got == 0
            break
        if p.big != NULL:
            p.big_have += got
        else:
            p.end += got
        if attention(p):
            conn.take()
    conn.push_out()                              # reading may want to write: key updates
    return 0


cdef Py_ssize_t read_plain(Connection conn, uint8_t *p, size_t room) except -2:
    """Decrypted bytes: how many; 0 at the end; -1 when more must be received first."""
    cdef Py_ssize_t known, got, before
    if not own_tls(conn):
        return -1
    try:
        known = conn.tls_pending()
        before = conn.bio_in.pending
        if not known and not before:
            return 0 if conn.input.eof else -1
        if known > <Py_ssize_t>room:
            known = room
        p[0] = SENTINEL
        try:
            got = conn.tls_read(known if known else 1, peek_view(p, known if known else 1, True))
            return got
        except _SSLWantReadError:
            return -1
        except (_SSLEOFError, _SSLZeroReturnError):
            return 0
        except _SSLError as error:
            conn.fail(errors.TlsError, f"TLS: {error}")
            return -1
        except BaseException as error:           # a signal handler's
            conn.loop.interrupted = error
            if known:
                return known                     # those were decrypted before: read for certain
            if conn.tls_pending() or p[0] != SENTINEL:
                return 1                         # the first byte of a record
            if before - conn.bio_in.pending < 80:
                conn.fail(errors.Disconnected, "a signal handler raised while TLS was read")     # nothing, or one byte: unknown
            return -1
    finally:
        disown_tls(conn)
