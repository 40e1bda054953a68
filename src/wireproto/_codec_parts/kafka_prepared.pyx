# A Produce that is encoded but for token and records, and its plain answer: see kafka/prepared.py, which makes both from messages.
#
#     request   key · version · token │ front │ uvarint of size + 1
#     answer    token │ before │ base offset int64, append time, log start │ after
#
# Must not: know what stands in front, before and after.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from wireproto._codec_parts.endian cimport get_i64, put_u16, put_u32
from wireproto._codec_parts.varint cimport uvarint_size, write_uvarint64

cdef enum:
    PRODUCE_HEAD = 8             # key, version, token
    ANSWER_PLACES = 24           # what differs from batch to batch


cdef class KafkaProduceForm:
    """See above."""

    cdef bytes front, before, after
    cdef readonly int16_t version
    cdef int16_t api

    def __init__(self, int16_t api, int16_t version, bytes front not None, bytes before not None, bytes after not None):
        self.api = api
        self.version = version
        self.front = front
        self.before = before
        self.after = after

    def head(self, int32_t token, uint32_t size):
        """The request up to its records, of so many bytes, without the frame's length."""
        cdef Py_ssize_t front = PyBytes_GET_SIZE(self.front)
        cdef bytes made = PyBytes_FromStringAndSize(NULL, PRODUCE_HEAD + front + uvarint_size(<uint64_t>size + 1))
        cdef uint8_t *to = <uint8_t *>PyBytes_AS_STRING(made)
        put_u16(to, <uint16_t>self.api)
        put_u16(to + 2, <uint16_t>self.version)
        put_u32(to + 4, <uint32_t>token)
        memcpy(to + PRODUCE_HEAD, PyBytes_AS_STRING(self.front), front)
        write_uvarint64(to + PRODUCE_HEAD + front, <uint64_t>size + 1)
        return made

    def base(self, bytes frame not None):
        """The offset of a stored batch's first record; -1: the answer is another one."""
        cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(frame)
        cdef Py_ssize_t before = PyBytes_GET_SIZE(self.before)
        cdef Py_ssize_t after = PyBytes_GET_SIZE(self.after)
        cdef int64_t offset
        if PyBytes_GET_SIZE(frame) != 4 + before + ANSWER_PLACES + after:
            return -1
        if memcmp(p + 4, PyBytes_AS_STRING(self.before), before) != 0:
            return -1
        if memcmp(p + 4 + before + ANSWER_PLACES, PyBytes_AS_STRING(self.after), after) != 0:
            return -1
        offset = get_i64(p + 4 + before)
        return offset if offset >= 0 else -1
