# What a RocketMQ producer writes for each record: its hash, its unique id, its properties, its place in a batch, the head of its command.
#
#     unique id    32 hex digits: 4 address · 2 process · 4 instance (the prefix) · 4 milliseconds since `epoch_ms` · 2 counter
#     properties   KEYS 01 key 02 · { name 01 value 02 }* · UNIQ_KEY 01 id 02 · WAIT 01 true 02 (· BORN_TIMESTAMP 01 ms 02: of its own)
#     head         word 0 · {"code":c,"extFields":{"a":group,"b":topic,"c":"TBW102","d":"4","e":queue,"f":sysFlag,"g":born,"h":"0","i":properties,
#                  "j":"0","k":"false","m":batch},"flag":0,"language":"PYTHON","opaque":n,"serializeTypeCurrentRPC":"JSON","version":v}
#
# Batch: rocketmq_message.pyx. The short ways are for what needs no look: keys and names of printable ASCII. Anything else is looked at by
# `rocket_properties`, which refuses what a broker would not bring back unchanged.
# May assume: one caller at a time for an id maker and a builder. Must not: know a connection or read a clock.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memchr, memcmp, memcpy, memset

cdef enum:
    ID_SIZE = 32
    ID_PREFIX = 20
    TAIL_SIZE = 52               # UNIQ_KEY 01 id 02 WAIT 01 true 02
    BORN_MOST = 36               # BORN_TIMESTAMP 01 ms 02, of 20 characters
    HEADERS_HERE = 16            # a row with more is looked at by Python
    ROW_LOOK = -20               # … and one with anything out of the ordinary


cdef const uint8_t *HEX_DIGITS = b"0123456789ABCDEF"


cdef uint32_t java_hash_of(const uint8_t *p, Py_ssize_t size) noexcept nogil:
    """Java's String.hashCode of UTF-8 text (also of lone surrogates as three bytes): 31 h + unit, over UTF-16 units."""
    cdef const uint8_t *end = p + size
    cdef uint32_t value = 0
    cdef uint32_t point
    while p < end:
        if p[0] < 0x80 or end - p < 2:
            value = value * 31 + p[0]
            p += 1
        elif p[0] < 0xE0 or end - p < 3:
            value = value * 31 + ((<uint32_t>p[0] & 31) << 6 | (<uint32_t>p[1] & 63))
            p += 2
        elif p[0] < 0xF0 or end - p < 4:
            value = value * 31 + ((<uint32_t>p[0] & 15) << 12 | (<uint32_t>p[1] & 63) << 6 | (<uint32_t>p[2] & 63))
            p += 3
        else:
            point = ((<uint32_t>p[0] & 7) << 18 | (<uint32_t>p[1] & 63) << 12 | (<uint32_t>p[2] & 63) << 6 | (<uint32_t>p[3] & 63)) - 0x10000
            value = (value * 31 + (0xD800 + (point >> 10))) * 31 + (0xDC00 + (point & 0x3FF))
            p += 4
    return value


def java_hash(bytes text not None):
    """Java's ``String.hashCode`` (int32) of UTF-8 text."""
    return <int32_t>java_hash_of(<const uint8_t *>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))


cdef inline object java_place_of(bytes key, tuple keyed):
    cdef int64_t value = <int32_t>java_hash_of(<const uint8_t *>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
    if value == -0x80000000:                         # whose Math.abs is itself
        value = 0
    return keyed[(value if value >= 0 else -value) % len(keyed)]


def java_place(bytes key not None, tuple keyed not None):
    """Java's ``Math.abs(key.hashCode()) % keyed.length``-th of these."""
    return java_place_of(key, keyed)


def java_hashes(Columns columns not None):
    """`java_hash` of each key, None for null ones."""
    cdef Py_ssize_t row
    cdef const uint8_t *key
    cdef int64_t size
    cdef list found = []
    for row in range(columns.start, columns.stop):
        size = bytes_get(columns.table, &columns.table.key, row, &key)
        found.append(None if size < 0 else <int32_t>java_hash_of(key, size))
    return found


cdef inline void put_hex(uint8_t *to, uint32_t value, int digits) noexcept nogil:
    while digits > 0:
        digits -= 1
        to[digits] = HEX_DIGITS[value & 15]
        value >>= 4


cdef class RocketIds:
    """Makes unique message ids in the form that RocketMQ's tools take apart: 32 hex digits.

    Args:
        prefix: ten bytes: address, process and instance, which tell this client from all others.
        epoch_ms: start of the current month, in ms.
    """

    cdef uint8_t[ID_PREFIX] prefix
    cdef int64_t epoch_ms
    cdef uint16_t count

    def __init__(self, bytes prefix not None, int64_t epoch_ms):
        cdef int n
        if len(prefix) != ID_PREFIX // 2:
            raise ValueError(f"a prefix of {len(prefix)} bytes, not {ID_PREFIX // 2}")
        for n in range(ID_PREFIX // 2):
            put_hex(self.prefix + 2 * n, prefix[n], 2)
        self.epoch_ms = epoch_ms

    cdef inline void put(self, uint8_t *to, int64_t now_ms) noexcept:
        self.count += 1
        memcpy(to, self.prefix, ID_PREFIX)
        put_hex(to + ID_PREFIX, <uint32_t>(now_ms - self.epoch_ms), 8)
        put_hex(to + ID_PREFIX + 8, self.count, 4)

    def next(self, int64_t now_ms):
        """A new id; `now_ms` is the clock in milliseconds."""
        cdef uint8_t[ID_SIZE] made
        self.put(made, now_ms)
        return (<char *>made)[:ID_SIZE].decode("ascii")


cdef inline bint plain_text(const uint8_t *p, int64_t size) noexcept nogil:
    """Printable ASCII without a space, at least one."""
    cdef int64_t n
    for n in range(size):
        if <uint8_t>(p[n] - 0x21) > 0x5D:
            return False
    return size > 0


cdef inline uint8_t *put_pair(uint8_t *to, const uint8_t *name, int64_t name_size, const uint8_t *value, int64_t size) noexcept nogil:
    memcpy(to, name, name_size)
    to[name_size] = 1
    memcpy(to + name_size + 1, value, size)
    to[name_size + 1 + size] = 2
    return to + name_size + size + 2


cdef inline uint8_t *put_tail(uint8_t *to, RocketIds ids, int64_t now_ms) noexcept:
    memcpy(to, b"UNIQ_KEY\x01", 9)
    ids.put(to + 9, now_ms)
    memcpy(to + 9 + ID_SIZE, b"\x02WAIT\x01true\x02", 11)
    return to + TAIL_SIZE


cdef uint8_t *put_born(uint8_t *to, int64_t ms) noexcept nogil:
    """Write a time of a message's own, in at most BORN_MOST bytes."""
    cdef uint8_t[20] digits
    cdef uint64_t left = <uint64_t>ms if ms >= 0 else 0 - <uint64_t>ms
    cdef int n = 20
    while True:
        n -= 1
        digits[n] = <uint8_t>(c'0' + left % 10)
        left //= 10
        if not left:
            break
    if ms < 0:
        n -= 1
        digits[n] = c'-'
    return put_pair(to, b"BORN_TIMESTAMP", 14, digits + n, 20 - n)


def rocket_plain_properties(key, RocketIds ids not None, int64_t now_ms):
    """Properties of a record without headers whose key is None or printable ASCII without spaces; None for any other key."""
    cdef const uint8_t *p = NULL
    cdef Py_ssize_t size = 0
    cdef uint8_t *to
    if key is not None:
        if not PyBytes_CheckExact(key):
            return None
        p, size = <const uint8_t *>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key)
        if size > 8192 or not plain_text(p, size):
            return None
    out = PyBytes_FromStringAndSize(NULL, TAIL_SIZE + (size + 6 if size else 0))
    to = <uint8_t *>PyBytes_AS_STRING(out)
    if size:
        to = put_pair(to, b"KEYS", 4, p, size)
    put_tail(to, ids, now_ms)
    return out


cdef int64_t rocket_row(Table *t, Py_ssize_t row) noexcept nogil:
    """Bytes of a row's properties but for their tail; ROW_LOOK when it wants a look."""
    cdef const uint8_t *p
    cdef int64_t size, name_size
    cdef int64_t total = 0
    cdef Py_ssize_t n, m
    if bytes_size(&t.value, row) < 0 or bytes_get(t, &t.value, row, &p) < 0:
        return ROW_LOOK
    size = bytes_get(t, &t.key, row, &p)
    if size >= 0:
        if not plain_text(p, size):
            return ROW_LOOK
        total = size + 6
    if t.header_at != NULL and t.header_at[row] != t.header_at[row + 1]:
        if t.header_at[row + 1] - t.header_at[row] > HEADERS_HERE:
            return ROW_LOOK
        for n in range(t.header_at[row], t.header_at[row + 1]):
            name_size = bytes_get(t, &t.name, n, &p)
            if not plain_text(p, name_size) or is_reserved(p, name_size):
                return ROW_LOOK
            for m in range(t.header_at[row], n):
                if same_name(t, m, n):
                    return ROW_LOOK
            size = bytes_get(t, &t.header_value, n, &p)
            if not header_text(p, size):
                return ROW_LOOK
            total += name_size + size + 2
    return total if total + TAIL_SIZE <= PROPERTIES_MOST else ROW_LOOK


cdef inline bint header_text(const uint8_t *p, int64_t size) noexcept nogil:
    """Text that no separator stands in, at least one byte."""
    return size > 0 and memchr(p, 1, size) == NULL and memchr(p, 2, size) == NULL and is_utf8(p, size)


cdef void look_at_row(Columns columns, Py_ssize_t row, int64_t most) except *:
    """Raise ValueUnsupported for a row (its own number) that cannot be sent."""
    cdef Table *t = columns.table
    cdef Py_ssize_t at = columns.start + row
    cdef const uint8_t *value
    cdef int64_t size = bytes_get(t, &t.value, at, &value)
    if size < 0:
        raise ValueUnsupported(f"row {row}: RocketMQ cannot carry a null value")
    if size > most:
        raise ValueUnsupported(f"row {row}: a value of {size} bytes is larger than the broker takes ({most})")
    if rocket_row(t, at) == ROW_LOOK:
        try:
            rocket_properties(bytes_at(t, &t.key, at), headers_at(t, at), "0" * ID_SIZE)
        except ValueUnsupported as why:
            raise ValueUnsupported(f"row {row}: {why.text}") from None


def check_rocket_columns(Columns columns not None, int64_t most):
    """See that each row can be sent; values have at most `most` bytes.

    Raises:
        ValueUnsupported: a row whose value is null or too large, or whose key or headers RocketMQ would not bring back unchanged.
    """
    cdef Py_ssize_t row
    cdef Table *t = columns.table
    for row in range(columns.start, columns.stop):
        if bytes_size(&t.value, row) > most or rocket_row(t, row) == ROW_LOOK:
            look_at_row(columns, row - columns.start, most)


@cython.final
cdef class RocketSendHeader:
    """Heads of the send commands (310, 320) of one producer: JSON, unsigned.

    Args:
        group, topic: as the broker is to see them.
    """

    cdef bytes before            # what stands between the code and the queue's number

    def __init__(self, str group not None, str topic not None):
        self.before = b',"extFields":{"a":%b,"b":%b,"c":"TBW102","d":"4","e":"' % (json.dumps(group).encode(), json.dumps(topic).encode())

    def encode(self, int32_t code, int32_t opaque, int32_t queue_id, int32_t sys_flag, int64_t born, bytes properties not None):
        """The head of one command, without the frame's length. `properties` are UTF-8 text."""
        cdef Writer w
        cdef Py_ssize_t size
        writer_init(&w)
        try:
            writer_need(&w, 4)
            write_plain(&w, b'{"code":')
            write_decimal(&w, code)
            writer_bytes(&w, PyBytes_AS_STRING(self.before), PyBytes_GET_SIZE(self.before))
            write_decimal(&w, queue_id)
            write_plain(&w, b'","f":"')
            write_decimal(&w, sys_flag)
            write_plain(&w, b'","g":"')
            write_decimal(&w, born)
            write_plain(&w, b'","h":"0","i":"')
            write_json_inside(&w, <const uint8_t *>PyBytes_AS_STRING(properties), PyBytes_GET_SIZE(properties))
            write_plain(&w, b'","j":"0","k":"false","m":"true"},"flag":0,"language":"PYTHON","opaque":' if code == 320 else
                        b'","j":"0","k":"false","m":"false"},"flag":0,"language":"PYTHON","opaque":')
            write_decimal(&w, opaque)
            write_plain(&w, b',"serializeTypeCurrentRPC":"JSON","version":')
            write_decimal(&w, OUR_VERSION)
            write_plain(&w, b'}')
            size = w.size - 4
            if size > 0xFFFFFF:
                raise ValueUnsupported(f"a header of {size} bytes, {0xFFFFFF} fit", message=f"code {code}")
            put_u32(w.data, <uint32_t>size)
            return writer_take(&w)
        finally:
            writer_free(&w)


cdef int write_json_inside(Writer *w, const uint8_t *p, Py_ssize_t size) except -1:
    """The inside of a JSON text."""
    cdef Py_ssize_t n
    cdef uint8_t *to = writer_need(w, 6 * size)
    cdef uint8_t *begin = to
    for n in range(size):
        if p[n] < 0x20:
            memcpy(to, b"\\u00", 4)
            put_hex(to + 4, p[n], 2)
            to += 6
        else:
            if p[n] == c'"' or p[n] == c'\\':
                to[0] = c'\\'
                to += 1
            to[0] = p[n]
            to += 1
    w.size -= 6 * size - (to - begin)
    return 0
