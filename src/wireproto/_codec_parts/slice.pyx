# Slice: a view on part of a frame, as light as an int; what blobs and records decode into.
#
# Keeps the frame alive. `bytes(s)`, `len(s)`, `memoryview(s)`, comparison with anything that has bytes, `s[i:j]` (another Slice).
# The owner is exact bytes, or a memoryview of our own that no other code can release, so the pointer stays good.

from cpython.buffer cimport PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer, PyBUF_SIMPLE, Py_buffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromObject, PyMemoryView_GET_BUFFER
from libc.stdint cimport uint8_t
from libc.string cimport memcmp
cimport cython


cdef object frame_owner(object frame):
    """What keeps the bytes of `frame` alive and unmoved: exact bytes, else a contiguous memoryview made here."""
    if PyBytes_CheckExact(frame):
        return frame
    cdef object view = PyMemoryView_FromObject(frame)
    if not view.c_contiguous:
        raise BufferError("a frame must be contiguous")
    return view


cdef inline const uint8_t *owner_data(object owner) noexcept:
    if PyBytes_CheckExact(owner):
        return <const uint8_t *> PyBytes_AS_STRING(owner)
    return <const uint8_t *> PyMemoryView_GET_BUFFER(owner).buf


cdef inline Py_ssize_t owner_size(object owner) noexcept:
    if PyBytes_CheckExact(owner):
        return PyBytes_GET_SIZE(owner)
    return PyMemoryView_GET_BUFFER(owner).len


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class Slice:
    """A read-only view on `owner[start:stop]`. Made by decoding; `Slice(data, start, stop)` makes one by hand."""

    cdef object owner
    cdef Py_ssize_t begin
    cdef Py_ssize_t end

    def __init__(self, data, Py_ssize_t start=0, stop=None):
        self.owner = frame_owner(data)
        cdef Py_ssize_t size = owner_size(self.owner)
        cdef Py_ssize_t last = size if stop is None else stop
        if not 0 <= start <= last <= size:
            raise ValueError(f"no slice {start}:{last} in {size} bytes")
        self.begin = start
        self.end = last

    @property
    def start(self):
        """Where in its frame the view begins."""
        return self.begin

    @property
    def stop(self):
        """Where in its frame the view ends."""
        return self.end

    def __len__(self):
        return self.end - self.begin

    def __bytes__(self):
        return PyBytes_FromStringAndSize(<const char *> slice_data(self), self.end - self.begin)

    def tobytes(self):
        """A copy."""
        return PyBytes_FromStringAndSize(<const char *> slice_data(self), self.end - self.begin)

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, <void *> slice_data(self), self.end - self.begin, 1, flags)

    def __getitem__(self, key):
        cdef Py_ssize_t begin, end, step
        if isinstance(key, slice):
            begin, end, step = key.indices(self.end - self.begin)
            if step != 1:
                raise ValueError("a Slice has no steps")
            return new_slice(self.owner, self.begin + begin, self.begin + max(begin, end))
        cdef Py_ssize_t index = key
        if index < 0:
            index += self.end - self.begin
        if not 0 <= index < self.end - self.begin:
            raise IndexError("index out of range")
        return slice_data(self)[index]

    def __eq__(self, other):
        cdef Py_buffer view
        if other is self:
            return True
        try:
            PyObject_GetBuffer(other, &view, PyBUF_SIMPLE)
        except (TypeError, BufferError):
            return NotImplemented
        cdef bint same = view.len == self.end - self.begin and memcmp(view.buf, slice_data(self), view.len) == 0
        PyBuffer_Release(&view)
        return same

    def __hash__(self):
        return hash(bytes(self))

    def __reduce__(self):
        return Slice, (bytes(self),)

    def __repr__(self):
        return f"<Slice of {self.end - self.begin} bytes>"


cdef inline const uint8_t *slice_data(Slice s) noexcept:
    return owner_data(s.owner) + s.begin


cdef inline Slice new_slice(object owner, Py_ssize_t begin, Py_ssize_t end):
    cdef Slice s = Slice.__new__(Slice)
    s.owner = owner
    s.begin = begin
    s.end = end
    return s
