# What a RocketMQ reader writes and reads for each pull: a command whose fields differ in two numbers, and the head of its reply; and the
# head of the reply to a send, whose one field of interest is "queueOffset".
#
#     command    word · {"code":c,"extFields":{ … ,"a":"n","b":"m"},"flag":0,"language":"PYTHON","opaque":o,
#                "serializeTypeCurrentRPC":"JSON","version":v}                or the ROCKETMQ header, the two fields last
#     reply      {"code":c,"extFields":{"nextBeginOffset":"n","minOffset":"n","maxOffset":"n","suggestWhichBrokerId":"n", … },
#                "flag":1, … }                                              or the ROCKETMQ header with these fields, in any order
#
# Only replies are read here that need no look: ASCII without escapes, no white space, every known field a number, a code that is an answer.
# Of any other nothing is said, and the general codec (rocketmq_header.pyx, rocketmq_json.pyx) tells what is the matter.
# May assume: nothing of the bytes. Must not: know connections.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp
cimport cython

from wireproto._codec_parts.endian cimport get_i16, get_i32, get_u16, get_u32, put_u16, put_u32
from wireproto._codec_parts.json_text cimport plain_end

cdef enum:
    PULL_NEXT = 1                # fields of a reply, a bit each
    PULL_MIN = 2
    PULL_MAX = 4
    PULL_BROKER = 8
    PULL_ALL = 15
    PULL_OTHER = 0
    PULL_CODE = 16
    SEND_PLACE = 32

cdef struct PullHead:
    int64_t code
    int64_t following
    int64_t least
    int64_t end
    int64_t place                # of a send's reply
    int seen


# ---- writing ------------------------------------------------------------------------------------------------------------------

@cython.final
cdef class RepeatedCommand:
    """See _codec.pyi."""

    cdef bytes before            # what stands in front of the first number (JSON) or field (binary)
    cdef bytes first
    cdef bytes second
    cdef int32_t code
    cdef int serializer

    def __init__(self, int32_t code, dict ext not None, str first not None, str second not None, int32_t serializer=HEADER_JSON):
        cdef dict fixed = {name: value for name, value in ext.items() if name != first and name != second}
        cdef list parts = RemotingCommand(code, ext=fixed, serializer=serializer).encode()
        cdef bytes head = parts[0]
        if not fixed:
            raise ValueError("a command without other fields")
        self.code, self.serializer = code, head[0]
        self.first, self.second = first.encode("ascii"), second.encode("ascii")
        if head[0] == HEADER_JSON:
            self.before = head[4:head.rindex(b'},"flag":0,')] + b',"%b":"' % self.first
            self.second = b'","%b":"' % self.second
        else:
            self.before = head[4:]

    def encode(self, int32_t opaque, int64_t first, int64_t second):
        cdef Writer w
        cdef Py_ssize_t size
        writer_init(&w)
        try:
            writer_need(&w, 4)
            writer_bytes(&w, PyBytes_AS_STRING(self.before), PyBytes_GET_SIZE(self.before))
            if self.serializer == HEADER_JSON:
                write_decimal(&w, first)
                writer_bytes(&w, PyBytes_AS_STRING(self.second), PyBytes_GET_SIZE(self.second))
                write_decimal(&w, second)
                write_plain(&w, b'"},"flag":0,"language":"PYTHON","opaque":')
                write_decimal(&w, opaque)
                write_plain(&w, b',"serializeTypeCurrentRPC":"JSON","version":')
                write_decimal(&w, OUR_VERSION)
                write_plain(&w, b'}')
            else:
                write_number_field(&w, self.first, first)
                write_number_field(&w, self.second, second)
                put_u32(w.data + 4 + 5, <uint32_t> opaque)
                put_u32(w.data + 4 + 17, <uint32_t> (w.size - 4 - 21))
            size = w.size - 4
            if size > 0xffffff:
                raise ValueUnsupported(f"a header of {size} bytes, {0xffffff} fit", message=f"code {self.code}")
            put_u32(w.data, (<uint32_t> self.serializer << 24) | <uint32_t> size)
            return writer_take(&w)
        finally:
            writer_free(&w)


cdef int write_number_field(Writer *w, bytes name, int64_t value) except -1:
    """One of the binary header's fields: int16 size · name · int32 size · decimal digits."""
    cdef Py_ssize_t at
    put_u16(writer_need(w, 2), <unsigned short> PyBytes_GET_SIZE(name))
    writer_bytes(w, PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name))
    writer_need(w, 4)
    at = w.size
    write_decimal(w, value)
    put_u32(w.data + at - 4, <uint32_t> (w.size - at))
    return 0


# ---- reading ------------------------------------------------------------------------------------------------------------------

cdef Py_ssize_t plain_reply(bytes frame, PullHead *found) noexcept:
    """Size of the header, which is as most are; -1 for any other."""
    cdef const uint8_t *p = <const uint8_t *> PyBytes_AS_STRING(frame)
    cdef Py_ssize_t size = PyBytes_GET_SIZE(frame)
    cdef Py_ssize_t header
    if size < 4:
        return -1
    header = get_u32(p) & 0xffffff
    if header > size - 4:
        return -1
    found.seen = 0
    if p[0] == HEADER_JSON:
        return header if plain_json_reply(p + 4, p + 4 + header, found) else -1
    return header if p[0] == HEADER_BINARY and plain_binary_reply(p + 4, p + 4 + header, found) else -1


def rocket_pull_reply(bytes frame not None):
    """See _codec.pyi."""
    cdef PullHead found
    cdef Py_ssize_t header = plain_reply(frame, &found)
    if header < 0 or (found.seen & (PULL_ALL | PULL_CODE)) != PULL_ALL | PULL_CODE:
        return None
    return <int32_t> found.code, found.following, found.least, found.end, new_slice(frame, 4 + header, PyBytes_GET_SIZE(frame))


def rocket_send_reply(frame):
    """See _codec.pyi."""
    cdef PullHead found
    if not PyBytes_CheckExact(frame) or plain_reply(<bytes> frame, &found) < 0:
        return -1
    if (found.seen & (SEND_PLACE | PULL_CODE)) != SEND_PLACE | PULL_CODE or found.code != 0:
        return -1
    return found.place


cdef inline bint is_pull_answer(int64_t code) noexcept nogil:
    return code == 0 or 19 <= code <= 21


cdef bint ascii_digits(const uint8_t *p, const uint8_t *end, int64_t *value) noexcept nogil:
    """Whether all of it is a number of at most 18 digits, perhaps behind a minus."""
    cdef bint minus = p < end and p[0] == c'-'
    cdef int64_t n = 0
    if minus:
        p += 1
    if p >= end or end - p > 18:
        return False
    while p < end:
        if not c'0' <= p[0] <= c'9':
            return False
        n = n * 10 + (p[0] - c'0')
        p += 1
    value[0] = -n if minus else n
    return True


cdef bint note_field(PullHead *found, const uint8_t *name, Py_ssize_t name_size, const uint8_t *p, const uint8_t *end) noexcept nogil:
    """A field of extFields; False: one of ours that is no number."""
    cdef int64_t value = 0
    cdef int bit = PULL_OTHER
    if name_size == 15 and memcmp(name, b"nextBeginOffset", 15) == 0:
        bit = PULL_NEXT
    elif name_size == 9 and memcmp(name, b"minOffset", 9) == 0:
        bit = PULL_MIN
    elif name_size == 9 and memcmp(name, b"maxOffset", 9) == 0:
        bit = PULL_MAX
    elif name_size == 20 and memcmp(name, b"suggestWhichBrokerId", 20) == 0:
        bit = PULL_BROKER
    elif name_size == 11 and memcmp(name, b"queueOffset", 11) == 0:
        bit = SEND_PLACE
    elif not (name_size == 11 and memcmp(name, b"offsetDelta", 11) == 0 or name_size == 12 and memcmp(name, b"topicSysFlag", 12) == 0
              or name_size == 12 and memcmp(name, b"groupSysFlag", 12) == 0 or name_size == 13 and memcmp(name, b"forbiddenType", 13) == 0):
        return True
    if not ascii_digits(p, end, &value) or (bit == PULL_OTHER and end - p > 9):
        return False
    found.seen |= bit
    if bit == PULL_NEXT:
        found.following = value
    elif bit == PULL_MIN:
        found.least = value
    elif bit == PULL_MAX:
        found.end = value
    elif bit == SEND_PLACE:
        found.place = value
    return True


cdef const uint8_t *ascii_string_end(const uint8_t *p, const uint8_t *end) noexcept nogil:
    """The closing quote of a string whose inside begins at p: printable ASCII without escapes; NULL for any other."""
    p = plain_end(p, end)
    return p if p < end and p[0] == c'"' else NULL


cdef bint plain_json_reply(const uint8_t *p, const uint8_t *end, PullHead *found) noexcept nogil:
    p = plain_json_object(p, end, found, False)
    return p == end


cdef const uint8_t *plain_json_object(const uint8_t *p, const uint8_t *end, PullHead *found, bint inner) noexcept nogil:
    """Take an object at p; where it ends, or NULL when it wants a look. inner: it is extFields."""
    cdef const uint8_t *name
    cdef Py_ssize_t size
    if end - p < 2 or p[0] != c'{':
        return NULL
    if p[1] == c'}':
        return p + 2
    while True:
        p += 1                                       # over the brace or comma
        if p >= end or p[0] != c'"':
            return NULL
        name = p + 1
        p = ascii_string_end(name, end)
        if p == NULL or end - p < 3 or p[1] != c':':
            return NULL
        size = p - name
        p += 2
        if not inner and size == 9 and memcmp(name, b"extFields", 9) == 0:
            p = plain_json_object(p, end, found, True)
        else:
            p = plain_json_member(p, end, name, size, found, inner)
        if p == NULL or p >= end:
            return NULL
        if p[0] == c'}':
            return p + 1
        if p[0] != c',':
            return NULL


cdef const uint8_t *plain_json_member(
    const uint8_t *p, const uint8_t *end, const uint8_t *name, Py_ssize_t size, PullHead *found, bint inner
) noexcept nogil:
    """Take a string or number at p."""
    cdef const uint8_t *begin = p
    cdef bint text = p[0] == c'"'
    cdef int64_t value = 0
    if text:
        begin = p + 1
        p = ascii_string_end(begin, end)
        if p == NULL:
            return NULL
    else:
        while p < end and (c'0' <= p[0] <= c'9' or p[0] == c'-'):
            p += 1
        if not ascii_digits(begin, p, &value):
            return NULL
    if inner:
        return (p + 1 if text else p) if note_field(found, name, size, begin, p) else NULL
    if (size == 4 and (memcmp(name, b"code", 4) == 0 or memcmp(name, b"flag", 4) == 0)
            or size == 6 and memcmp(name, b"opaque", 6) == 0 or size == 7 and memcmp(name, b"version", 7) == 0):
        if text or p - begin > 9:
            return NULL
        if name[0] == c'c':
            if not is_pull_answer(value):
                return NULL
            found.code = value
            found.seen |= PULL_CODE
    return p + 1 if text else p


cdef bint all_ascii(const uint8_t *p, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        if p[i] >= 0x80:
            return False
    return True


cdef bint plain_binary_reply(const uint8_t *p, const uint8_t *end, PullHead *found) noexcept nogil:
    cdef const uint8_t *name
    cdef int64_t n
    cdef Py_ssize_t size
    if end - p < 21:
        return False
    found.code = get_i16(p)
    found.seen = PULL_CODE
    n = get_i32(p + 13)
    if not is_pull_answer(found.code) or n < 0 or n > end - p - 21 or not all_ascii(p + 17, n):
        return False
    p += 17 + n
    if get_i32(p) != end - p - 4:
        return False
    p += 4
    while p < end:
        size = get_u16(p) if end - p >= 2 else 0x8000
        if size > 0x7fff or size > end - p - 6:
            return False
        name = p + 2
        p = name + size
        n = get_i32(p)
        p += 4
        if n < 0 or n > end - p or not all_ascii(name, size) or not all_ascii(p, n):
            return False
        if n and not note_field(found, name, size, p, p + n):
            return False
        p += n
    return True
