# ScratchBuffer: memory of the pool that a decompressor unpacks into and a decoder reads, without a copy between, and without fresh pages: they cost
# several times what LZ4 or Snappy needs to fill them.
#
# May assume: one thread at a time. Must not: be read before it is filled, written afterwards, or given back while its buffer is exported.

from cpython.buffer cimport Py_buffer, PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport uint8_t
cimport cython


@cython.final
@cython.no_gc
cdef class ScratchBuffer:
    """A buffer of `size` bytes that holds nothing yet; writable until `filled`.

    Args:
        size: bytes.
    """

    cdef uint8_t *data
    cdef Py_ssize_t size
    cdef Py_ssize_t lent
    cdef bint done

    def __cinit__(self, Py_ssize_t size):
        if size < 0:
            raise ValueError(f"room for {size} bytes")
        self.data = <uint8_t *>mem_take(size)
        if self.data == NULL:
            raise MemoryError(f"no room for {size} bytes")
        self.size = size

    def __dealloc__(self):
        mem_give(self.data)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, self.done, flags)
        self.lent += 1

    def __releasebuffer__(self, Py_buffer *view):
        self.lent -= 1

    def filled(self, Py_ssize_t size):
        """Return itself, once: from now on it consists of the first `size` bytes, which were written, and is read-only.

        Raises:
            BufferError: a writable buffer is still exported, or it was filled before.
            ValueError: so much was not there.
        """
        if self.lent or self.done:
            raise BufferError("a buffer of this memory is still exported")
        if not 0 <= size <= self.size:
            raise ValueError(f"{size} bytes of a room for {self.size}")
        self.size, self.done = size, True
        return self


cdef const uint8_t *plain_at(object plain, Py_ssize_t *size) except NULL:
    """Where the bytes of exact bytes or of a ScratchBuffer that was filled are, and how many."""
    if PyBytes_CheckExact(plain):
        size[0] = PyBytes_GET_SIZE(plain)
        return <const uint8_t *>PyBytes_AS_STRING(plain)
    cdef ScratchBuffer room = plain
    if room is None or not room.done:
        raise BufferError("this room was not filled")
    size[0] = room.size
    return room.data
