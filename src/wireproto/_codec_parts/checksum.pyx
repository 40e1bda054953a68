# CRC-32C and CRC-32 for Python callers, and the choice of kernel at import.

from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint32_t

from wireproto._codec_parts.crc cimport crc32_update, crc32c_update, crc_init, crc_kernel, crc_select

crc_init()

cdef enum:
    RELEASE_GIL_FROM = 65536    # below this a release costs more than it frees


def crc32c(data, uint32_t value=0):
    """CRC-32C (Castagnoli) of a buffer, going on from `value`."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if view.len < RELEASE_GIL_FROM:
            value = crc32c_update(value, view.buf, view.len)
        else:
            with nogil:
                value = crc32c_update(value, view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return value


def crc32(data, uint32_t value=0):
    """CRC-32 (IEEE, as zlib's) of a buffer, going on from `value`."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if view.len < RELEASE_GIL_FROM:
            value = crc32_update(value, view.buf, view.len)
        else:
            with nogil:
                value = crc32_update(value, view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return value


def _crc_kernel(name=None):
    """Name of the CRC kernel in use; with an argument, switch to that one first (tests only; ValueError if this machine lacks it)."""
    if name is not None and not crc_select(name.encode()):
        raise ValueError(f"no CRC kernel {name!r} on this machine")
    return crc_kernel().decode()
