# RecordBuilder: what an OutBatch fills; each protocol's batch builder is one.
#
# May assume: one caller at a time; between looking at a batch and counting the record no Python code runs, so `put` must run none.

from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t

from wireproto.errors import NotBytes


cdef struct Blob:                # a bytes-like argument
    const uint8_t *data
    Py_ssize_t size              # -1: None
    Py_buffer view
    bint held


cdef inline int blob_open(Blob *blob, object value) except -1:
    blob.held = False
    if value is None:
        blob.data = NULL
        blob.size = -1
    elif isinstance(value, bytes):
        blob.data = <const uint8_t *>PyBytes_AS_STRING(value)
        blob.size = PyBytes_GET_SIZE(value)
    else:
        if isinstance(value, str):
            raise NotBytes("keys, values and header values are bytes, not str: encode it")
        try:
            PyObject_GetBuffer(value, &blob.view, PyBUF_SIMPLE)
        except TypeError:
            raise NotBytes(f"keys, values and header values are bytes, not {type(value).__name__}") from None
        blob.held = True
        blob.data = <const uint8_t *>blob.view.buf
        blob.size = blob.view.len
    return 0


cdef inline void blob_close(Blob *blob) noexcept:
    if blob.held:
        PyBuffer_Release(&blob.view)
        blob.held = False


cdef class RecordBuilder:
    """The base of KafkaBatchBuilder and its like."""

    cdef int put(self, int64_t time, const Blob *key, const Blob *value, bytes headers, bint last) noexcept:
        """Add a record: TAKEN, NO_ROOM or a code for `refuse`.

        headers: as the protocol encodes them, or None. last: it may be the one that makes the batch full; else that one is left to the slow way.
        """
        return NO_ROOM

    cdef Py_ssize_t put_rows(self, Columns columns, object rows, Py_ssize_t start, Py_ssize_t stop, int64_t now) except -1:
        """Add rows until there is no room: how many."""
        return 0

    cdef int64_t held(self) noexcept:
        """Bytes of its records."""
        return 0

    cdef bint is_full(self) noexcept:
        """Whether no record fits any more, however small. False where that shows with the next one."""
        return False

    cdef void refuse(self, int code) except *:
        """Raise what a code of `put` means."""
        raise MemoryError("no memory for the batch")
