# A Produce of one batch and a Fetch of one partition, encoded but for what changes from one to the next, and their plain answers: see
# kafka/produce_template.py and kafka/fetch_template.py, which make them from messages.
#
#     Produce   key · version · token │ front │ uvarint of size + 1
#     answer    token │ before │ base offset int64, append time, log start │ after
#     Fetch     key · version · token │ front │ fetch offset int64 · last fetched epoch int32 │ back
#     answer    token │ before │ high watermark int64, last stable offset, log start │ aborted (none: 0, or an array of 0 items: 1) ·
#               preferred replica int32 (-1: none) │ uvarint of size + 1 · records │ no tagged fields, three times
#
# Must not: know what stands in front, before and after.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from wireproto._codec_parts.endian cimport get_i32, get_i64, put_u16, put_u32, put_u64
from wireproto._codec_parts.varint cimport read_uvarint64, uvarint_size, write_uvarint64

cdef bytes NO_TAGS = bytes(3)    # how a Produce ends behind its records

cdef enum:
    REQUEST_HEAD = 8             # key, version, token
    ANSWER_PLACES = 24           # what differs from batch to batch
    FETCH_PLACES = 12            # fetch offset, last fetched epoch
    PARTITION_PLACES = 29        # watermarks and log start, aborted transactions, preferred replica
    TAGS = 3                     # of the partition, the topic and the answer: none


cdef class ProduceTemplateCore:
    """See above.

    Attributes:
        link, topics, key: what it holds for: a connection, what was known of topics, and a partition. version: of Produce.
        names: the topic's name by what answers call it.
    """

    cdef readonly object link, topics, key, names
    cdef bytes front, before, after
    cdef readonly int16_t version
    cdef int16_t api

    def __init__(
        self, link, topics, key, names, int16_t api, int16_t version, bytes front not None, bytes before not None, bytes after not None
    ):
        self.link = link
        self.topics = topics
        self.key = key
        self.names = names
        self.api = api
        self.version = version
        self.front = front
        self.before = before
        self.after = after

    def request(self, int32_t token, records):
        """The buffers of a request, without the frame's length."""
        return self.buffers(token, records)

    cdef list buffers(self, int32_t token, object records):
        return [self.head(token, <uint32_t>len(records)), records, NO_TAGS]

    cdef bytes head(self, int32_t token, uint32_t size):
        """The request up to its records, of so many bytes."""
        cdef Py_ssize_t front = PyBytes_GET_SIZE(self.front)
        cdef bytes made = PyBytes_FromStringAndSize(NULL, REQUEST_HEAD + front + uvarint_size(<uint64_t>size + 1))
        cdef uint8_t *to = <uint8_t *>PyBytes_AS_STRING(made)
        put_u16(to, <uint16_t>self.api)
        put_u16(to + 2, <uint16_t>self.version)
        put_u32(to + 4, <uint32_t>token)
        memcpy(to + REQUEST_HEAD, PyBytes_AS_STRING(self.front), front)
        write_uvarint64(to + REQUEST_HEAD + front, <uint64_t>size + 1)
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


cdef class FetchTemplateBytes:
    """See above."""

    cdef bytes front, back, before
    cdef readonly int16_t version
    cdef int16_t api

    def __init__(self, int16_t api, int16_t version, bytes front not None, bytes back not None, bytes before not None):
        self.api = api
        self.version = version
        self.front = front
        self.back = back
        self.before = before

    def request(self, int32_t token, int64_t offset, int32_t epoch):
        """The request, without the frame's length."""
        cdef Py_ssize_t front = PyBytes_GET_SIZE(self.front)
        cdef Py_ssize_t back = PyBytes_GET_SIZE(self.back)
        cdef bytes made = PyBytes_FromStringAndSize(NULL, REQUEST_HEAD + front + FETCH_PLACES + back)
        cdef uint8_t *to = <uint8_t *>PyBytes_AS_STRING(made)
        put_u16(to, <uint16_t>self.api)
        put_u16(to + 2, <uint16_t>self.version)
        put_u32(to + 4, <uint32_t>token)
        to += REQUEST_HEAD
        memcpy(to, PyBytes_AS_STRING(self.front), front)
        put_u64(to + front, <uint64_t>offset)
        put_u32(to + front + 8, <uint32_t>epoch)
        memcpy(to + front + FETCH_PLACES, PyBytes_AS_STRING(self.back), back)
        return made

    def read(self, bytes frame not None):
        """What a plain answer with records says.

        Returns:
            (high watermark, last stable offset, records, the offset behind their last whole batch, its leader epoch); None: the answer
            is another one, or has no whole batch.
        """
        cdef const uint8_t *p = <const uint8_t *>PyBytes_AS_STRING(frame)
        cdef const uint8_t *end = p + PyBytes_GET_SIZE(frame)
        cdef const uint8_t *at
        cdef Py_ssize_t before = PyBytes_GET_SIZE(self.before)
        cdef uint64_t size = 0
        cdef int64_t following
        cdef int32_t epoch = -1
        if end - p < 4 + before + PARTITION_PLACES + 1:
            return None
        if memcmp(p + 4, PyBytes_AS_STRING(self.before), before) != 0:
            return None
        p += 4 + before
        at = p + PARTITION_PLACES
        if (at - 5)[0] > 1 or get_i32(at - 4) != -1:
            return None
        if read_uvarint64(&at, end, &size) <= 0 or size < 2:
            return None
        end -= TAGS
        if end < at or <uint64_t>(end - at) != size - 1 or end[0] or end[1] or end[2]:
            return None
        following = section_end(at, end, &epoch)
        if following < 0:
            return None
        records = new_slice(frame, at - <const uint8_t *>PyBytes_AS_STRING(frame), PyBytes_GET_SIZE(frame) - TAGS)
        return get_i64(p), get_i64(p + 8), records, following, epoch
