# Framer: a stream of bytes in any pieces to whole frames.
#
# Keeps what is incomplete, and no more of it than was fed: nothing is allocated by an announced length. A frame is handed out without its
# length. After a bad length the stream has no meaning any more: every further call raises the same error.

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer, Py_buffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove
cimport cython

from wireproto._codec_parts.framer cimport FRAME_BAD, FRAME_WHOLE, frame_state

from wireproto.errors import FrameTooLarge

cdef enum:
    FRAMER_KEPT = 65536            # an empty framer gives back more than this


@cython.final
cdef class Framer:
    """Cuts a stream into frames. One thread at a time.

    Args:
        cap: largest frame taken, in bytes, its 4-byte length not counted.
    """

    cdef uint8_t *data
    cdef Py_ssize_t begin
    cdef Py_ssize_t end
    cdef Py_ssize_t room
    cdef int64_t consumed          # bytes of the stream before `begin`
    cdef readonly int64_t cap

    def __init__(self, int64_t cap):
        if cap < 0:
            raise ValueError(f"cap {cap}")
        self.cap = cap

    def __dealloc__(self):
        free(self.data)

    def feed(self, data):
        """Take the next bytes of the stream."""
        cdef Py_buffer view
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            self.make_room(view.len)
            memcpy(self.data + self.end, view.buf, view.len)
            self.end += view.len
        finally:
            PyBuffer_Release(&view)

    def next(self):
        """The next whole frame, or None if it is not all there.

        Raises:
            FrameTooLarge: its length is negative or above the cap.
        """
        cdef int64_t length
        cdef int state = frame_state(self.data + self.begin, self.end - self.begin, self.cap, &length)
        if state == FRAME_BAD:
            raise bad_frame(self, length)
        if state != FRAME_WHOLE:
            return None
        frame = PyBytes_FromStringAndSize(<const char *> self.data + self.begin + 4, length)
        self.begin += 4 + length
        self.consumed += 4 + length
        if self.begin == self.end:
            self.begin = self.end = 0
            if self.room > FRAMER_KEPT:
                free(self.data)
                self.data = NULL
                self.room = 0
        return frame

    def __iter__(self):
        return self

    def __next__(self):
        frame = self.next()
        if frame is None:
            raise StopIteration
        return frame

    @property
    def pending(self):
        """Bytes that were fed and belong to no frame yet handed out."""
        return self.end - self.begin

    cdef int make_room(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t room
        cdef uint8_t *data
        if self.room - self.end >= more and self.data is not NULL:
            return 0
        if self.begin:
            memmove(self.data, self.data + self.begin, self.end - self.begin)
            self.end -= self.begin
            self.begin = 0
        if self.room - self.end < more or self.data is NULL:
            room = max(self.end + more, min(2 * self.room, self.end + more + (16 << 20)), 4096)
            data = <uint8_t *> realloc(self.data, room)
            if data is NULL:
                raise MemoryError()
            self.data = data
            self.room = room
        return 0


cdef object bad_frame(Framer framer, int64_t length):
    why = "negative" if length < 0 else f"above the cap of {framer.cap}"
    return FrameTooLarge(f"frame length {length} is {why}", offset=framer.consumed)
