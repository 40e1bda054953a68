# RocketBatchBuilder: messages to the body of a batch send (command 320), one by one or in columns.
#
# Layout: rocketmq_message.pyx. May assume: its owner's lock. Must not: choose where a message goes.

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memcpy, memset

from wireproto._codec_parts.endian cimport put_u16, put_u32

from wireproto.errors import ValueUnsupported


@cython.final
cdef class RocketBatchBuilder:
    """Builds the body of a batch send (command 320).

    Args:
        limit: the most bytes of the body.
    """

    cdef Growing body
    cdef int64_t limit
    cdef Py_ssize_t count

    def __cinit__(self, int64_t limit=4 << 20):
        self.limit = limit
        check(growing_reserve(&self.body, 256))

    def __dealloc__(self):
        mem_give(self.body.data)

    def __len__(self):
        return self.count

    @property
    def size(self):
        """Bytes of the body so far."""
        return self.body.used

    def append(self, value, key=None, headers=None, str unique_id=None, int flag=0):
        """Add a message; False when there is no room for it.

        Args:
            value: bytes (any buffer), not None.
            key: UTF-8 without white space, or None.
            headers: a mapping or pairs of (name, UTF-8 bytes), names unique.
            unique_id: becomes UNIQ_KEY.
        Raises:
            ValueUnsupported: RocketMQ cannot carry it, or it alone is larger than `limit`.
        """
        return self.add(value, rocket_properties(key, headers, unique_id), flag)

    def add(self, value, bytes properties not None, int flag=0):
        """The same with properties that were written before (`rocket_plain_properties`)."""
        cdef Blob v
        cdef int64_t size
        cdef uint8_t *p
        if value is None:
            raise ValueUnsupported("RocketMQ cannot carry a null value")
        blob_open(&v, value)
        try:
            size = ROCKET_BATCH_LEAST + <int64_t>v.size + PyBytes_GET_SIZE(properties)
            if size > self.limit or size > INT32_MAX:
                raise ValueUnsupported(f"a message of {size} bytes; at most {self.limit} fit a batch")
            if self.body.used + size > self.limit:
                return False
            check(growing_reserve(&self.body, size))
            p = batch_head(self.body.data + self.body.used, size, flag, v.data, v.size, PyBytes_GET_SIZE(properties))
            memcpy(p, PyBytes_AS_STRING(properties), PyBytes_GET_SIZE(properties))
        finally:
            blob_close(&v)
        self.body.used += size
        self.count += 1
        return True

    def append_columns(
        self, Columns columns not None, Py_ssize_t start, Py_ssize_t stop, RocketIds ids not None, int64_t now_ms, int64_t most, born=None,
    ):
        """Add rows start to stop. A row of another time than the command's has it in its property BORN_TIMESTAMP, unless that makes its
        properties too large: such a row is taken by an empty builder alone, whose command is to be of its time.

        Args:
            ids, now_ms: where the rows' unique ids come from.
            most: bytes that the body is to stay below; a first message is taken all the same, up to the builder's limit.
            born: the command's time in ms, where a record has given it, for that is not the time of rows without one; None: it is such
                rows' time.
        Returns:
            the number of rows taken.
        Raises:
            ValueUnsupported: a row cannot be sent (see `check_rocket_columns`). Those before it are in the batch.
        """
        cdef Table *t = columns.table
        cdef Py_ssize_t row, at, n
        cdef int64_t size, rest, value_size, name_size
        cdef bint timed, own
        cdef bint given = born is not None
        cdef int64_t command = <int64_t>born if given else 0
        cdef int64_t when = now_ms
        cdef uint8_t[BORN_MOST] pair
        cdef Py_ssize_t pair_size
        cdef const uint8_t *value
        cdef const uint8_t *name
        cdef uint8_t *p
        most = min(most, self.limit)
        if not 0 <= start <= stop <= columns.stop - columns.start:
            raise IndexError(f"rows {start} to {stop} of {columns.stop - columns.start}")
        for row in range(start, stop):
            at = columns.start + row
            timed = is_timed(t, at)
            own = timed or given
            if own:
                when = t.timestamp[at] if timed else now_ms
                own = not given or when != command
            pair_size = put_born(pair, when) - pair if own else 0
            value_size = bytes_get(t, &t.value, at, &value)
            rest = rocket_row(t, at)
            if rest == ROW_LOOK:
                if self.count and self.body.used + value_size > most:
                    return row - start
                looked = rocket_properties(bytes_at(t, &t.key, at), headers_at(t, at), ids.next(now_ms))
                if pair_size and PyBytes_GET_SIZE(looked) + pair_size > PROPERTIES_MOST:
                    return row - start
                if pair_size:
                    looked += (<char *>pair)[:pair_size]
                if not self.add(bytes_at(t, &t.value, at), looked):
                    return row - start
                continue
            rest += pair_size
            size = ROCKET_BATCH_LEAST + value_size + rest + TAIL_SIZE
            if self.count and (self.body.used + size > most) or (pair_size and rest + TAIL_SIZE > PROPERTIES_MOST):
                return row - start
            if size > self.limit:
                raise ValueUnsupported(f"row {row}: a message of {size} bytes; at most {self.limit} fit a batch")
            check(growing_reserve(&self.body, size))
            p = batch_head(self.body.data + self.body.used, size, 0, value, value_size, rest + TAIL_SIZE)
            value_size = bytes_get(t, &t.key, at, &value)
            if value_size >= 0:
                p = put_pair(p, b"KEYS", 4, value, value_size)
            if t.header_at != NULL:
                for n in range(t.header_at[at], t.header_at[at + 1]):
                    name_size = bytes_get(t, &t.name, n, &name)
                    value_size = bytes_get(t, &t.header_value, n, &value)
                    p = put_pair(p, name, name_size, value, value_size)
            p = put_tail(p, ids, now_ms)
            memcpy(p, pair, pair_size)
            self.body.used += size
            self.count += 1
        return stop - start

    def finish(self):
        """The body; the builder is empty afterwards."""
        out = PyBytes_FromStringAndSize(<char *>self.body.data, self.body.used)
        self.body.used = 0
        self.count = 0
        return out


cdef inline uint8_t *batch_head(uint8_t *p, int64_t size, int flag, const uint8_t *value, int64_t value_size, int64_t properties) noexcept nogil:
    """A message of a batch up to its properties, which go where this returns."""
    memset(p, 0, 12)
    put_u32(p, <uint32_t>size)
    put_u32(p + 12, <uint32_t>flag)
    put_u32(p + 16, <uint32_t>value_size)
    memcpy(p + 20, value, value_size)
    put_u16(p + 20 + value_size, <uint16_t>properties)
    return p + 22 + value_size


cdef bytes rocket_properties(key, headers, str unique_id):
    """Key, headers and id as properties; refuses what would not come back unchanged."""
    cdef list parts = []
    cdef set seen = set()
    if key is not None:
        text = rocket_text(bytes(key), "the key")
        if any([char.isspace() for char in text.decode()]):
            raise ValueUnsupported("RocketMQ splits keys at white space: this key has some")
        parts.append(b"KEYS\x01" + text)
    if headers:
        for name, value in headers.items() if hasattr(headers, "items") else headers:
            if name in ROCKETMQ_RESERVED or name in seen:
                raise ValueUnsupported(f"the header name {name!r} is there twice, or belongs to RocketMQ itself")
            if value is None:
                raise ValueUnsupported(f"header {name!r} is null, which RocketMQ cannot carry")
            seen.add(name)
            parts.append(rocket_text(name.encode("utf-8"), "a header's name") + b"\x01" + rocket_text(bytes(value), f"header {name!r}"))
    if unique_id is not None:
        parts.append(b"UNIQ_KEY\x01" + unique_id.encode())
    parts.append(b"WAIT\x01true")
    found = b"\x02".join(parts) + b"\x02"
    if len(found) > PROPERTIES_MOST:
        raise ValueUnsupported(f"key and headers take {len(found)} bytes; RocketMQ carries {PROPERTIES_MOST}")
    return found


cdef bytes rocket_text(bytes text, what):
    if not text or b"\x01" in text or b"\x02" in text or not is_utf8(<const uint8_t *>PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text)):
        raise ValueUnsupported(f"{what} is empty, no UTF-8, or has \\x01 or \\x02, which RocketMQ cannot carry")
    return text
