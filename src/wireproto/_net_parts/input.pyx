# poll, recv and frame scan, without the GIL.
#
#     frame   [int32 BE length][length bytes]          the same for all four protocols
#             [bytes]\n                                 of a protocol of lines: of BUFFER - 1 bytes at most
#
# Small frames are collected in the connection's buffer. A frame of BIG bytes or more that is not there yet is read straight into the bytes
# object that will be handed out; that object grows in steps as bytes arrive, so a lying length allocates nothing to speak of.
# While much of a big frame is still to come, the socket is set to wake us for as much as MARK at once (SO_RCVLOWAT), never for more than
# the frame still needs: a wake-up a segment costs more than the copying. Should a kernel hold more than it wakes us for (fat segments
# can fill its buffer before), MARK_PATIENCE ends the wait.
# May assume: one thread at a time (the one that has the role). Must not: touch a Python object.

cdef enum:
    BUFFER = 65536
    BIG = 16384
    FIRST_STEP = 1 << 22      # first allocation for a big frame, of which no page is touched before its time; doubled when it is full
    MARK = 1 << 17
    PATIENCE = 5000           # microseconds that a recv waits by itself


cdef double MARK_PATIENCE = 0.02


cdef inline int next_frame(const input_t *c, int64_t *length) noexcept nogil:
    """What stands first in the buffer (FrameState); `length` is that of the frame, or -1 while that is not known."""
    cdef const uint8_t *feed
    if not c.lines:
        return frame_state(c.buf + c.start, c.end - c.start, c.cap, length)
    feed = <const uint8_t *>memchr(c.buf + c.start, c'\n', c.end - c.start)
    length[0] = feed - (c.buf + c.start) if feed != NULL else c.end - c.start
    if length[0] > c.cap or (feed == NULL and c.end - c.start >= c.room):
        return FRAME_BAD
    if feed != NULL:
        return FRAME_WHOLE
    length[0] = -1
    return FRAME_PARTIAL


cdef inline bint attention(input_t *c) noexcept nogil:
    """Whether the GIL is needed: a whole frame, a bad length, a big frame that starts or is full, an end, an error."""
    cdef int64_t length = 0
    if c.eof or c.error or (c.opaque and c.received):
        return True
    if c.big != NULL:
        return c.big_have == c.big_room
    return next_frame(c, &length) != FRAME_PARTIAL or length >= BIG


cdef inline int receive(input_t *c, int flags) noexcept nogil:
    """One recv; whether it brought something, be it an end or an error."""
    cdef ssize_t got
    cdef uint8_t *p
    cdef size_t room
    if c.big != NULL:
        p = c.big + c.big_have
        room = c.big_room - c.big_have
    else:
        if c.start:
            memmove(c.buf, c.buf + c.start, c.end - c.start)
            c.end -= c.start
            c.start = 0
        p = c.buf + c.end
        room = c.room - c.end
    got = recv(c.fd, p, room, flags)
    if got > 0:
        c.received += got
        c.heard = now()
        if c.big != NULL:
            c.big_have += got
        else:
            c.end += got
    elif got == 0:
        c.eof = True
    elif errno == EAGAIN or errno == EINTR:
        return False
    else:
        c.error = errno
    return True


cdef bint set_mark(input_t *c) noexcept nogil:
    """Tell the socket how many bytes are worth a wake-up; whether that is more than one."""
    cdef size_t wanted = 1
    cdef int value
    if c.big != NULL and not c.opaque and not c.unmarked and c.big_have < c.big_size:
        wanted = min(c.big_size - c.big_have, <size_t>MARK)
    if wanted != c.mark:
        value = <int>wanted
        if setsockopt(c.fd, SOL_SOCKET, SO_RCVLOWAT, &value, sizeof(int)) == 0:
            c.mark = wanted
        else:
            c.mark = wanted = 1                   # a system without it: each byte wakes us
    return wanted > 1


cdef int receive_patiently(input_t *c) noexcept nogil:
    """A recv that waits by itself, for PATIENCE at most: what a call costs is the kernel's part most of all, and this spares it a poll.

    A thread that waits here is woken by nothing but the end of the connection, so it is for waiting for a reply on the only connection.
    Returns 1: look at the connection; 0: wait by poll (nothing came, or not all of a frame); -1: a signal.
    """
    set_mark(c)
    if not receive(c, 0):
        return -1 if errno == EINTR else 0
    return attention(c)


cdef bint look_again(pollfd *fds, input_t **slots, Py_ssize_t count) noexcept nogil:
    """After MARK_PATIENCE: read below the marks. Whether a slot needs the GIL."""
    cdef bint wanted = False
    cdef Py_ssize_t i
    for i in range(count):
        slots[i].revents = 0
        if slots[i].mark > 1 and fds[i + 1].events & POLLIN:
            receive(slots[i], MSG_DONTWAIT)
            if attention(slots[i]):
                wanted = True
    return wanted


cdef int poll_and_receive(pollfd *fds, input_t **slots, Py_ssize_t count, Py_ssize_t extra, double until) noexcept nogil:
    """One turn: wait, read what is there, go on until something needs the GIL. fds[0] is the wake-up pipe, fds[i + 1] slots[i]; behind them
    come `extra` descriptors that are only reported.

    Returns 1: look at the slots; 0: `until` is past; -1: a signal; -2: poll failed.
    """
    cdef int n
    cdef Py_ssize_t i
    cdef bint wanted, marked
    cdef double left
    while True:
        marked = False
        for i in range(count):
            if set_mark(slots[i]):
                marked = True
        left = until - now()
        n = poll(fds, count + extra + 1, milliseconds(MARK_PATIENCE if marked and left > MARK_PATIENCE else left))
        if n < 0:
            return -1 if errno == EINTR else -2
        if n == 0:
            if marked and look_again(fds, slots, count):
                return 1
            if until - now() > 0:
                continue
            return 0
        wanted = fds[0].revents != 0
        for i in range(count):
            slots[i].revents = fds[i + 1].revents
            if not fds[i + 1].revents:
                continue
            if fds[i + 1].revents & POLLIN:
                receive(slots[i], MSG_DONTWAIT)
            elif fds[i + 1].revents & (POLLERR | POLLHUP | POLLNVAL):
                receive(slots[i], MSG_DONTWAIT)                 # tells the error by its errno, or an end
            if fds[i + 1].revents & POLLOUT or attention(slots[i]):
                wanted = True
        for i in range(count + 1, count + extra + 1):
            if fds[i].revents:
                wanted = True
        if wanted:
            return 1
