# KafkaBatchBuilder: records to one batch (v2) or message set (v0, v1), for one partition.
#
# Layouts: kafka_section.pyx, kafka_legacy.pyx. A builder writes offsets from 0 as a producer must, and compresses once; producer id, epoch
# and sequence stand in the head, so that a batch is sent again under another identity without encoding its records again.
# May assume: one thread at a time. Must not: compress in append, or take a record that would make the batch larger than its limit
# (unless it is the first: a record of any size can be sent alone, the broker decides).

cimport cython
from cpython.buffer cimport Py_buffer, PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.bytes cimport PyBytes_CheckExact
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.ref cimport PyObject
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from wireproto._codec_parts.crc cimport crc32_update, crc32c_update
from wireproto._codec_parts.endian cimport get_u32le, put_u16, put_u32, put_u64
from wireproto._codec_parts.varint cimport varint_size, write_varint32, write_varint64

from wireproto.errors import OptionError, ValueUnsupported


cdef int64_t list_guess(list values, list keys, Py_ssize_t start, int64_t most):
    """About how many bytes the records from `start` on will take, by the first ones; at most `most`."""
    cdef Py_ssize_t n, looked = 0
    cdef int64_t size = 0
    for n in range(start, min(start + 16, len(values))):
        size += 16
        looked += 1
        if isinstance(values[n], bytes):
            size += PyBytes_GET_SIZE(values[n])
        if keys is not None and n < len(keys) and isinstance(keys[n], bytes):
            size += PyBytes_GET_SIZE(keys[n])
    size = (size // looked) * (len(values) - start) if looked else 0
    return size if size < most else most if most > 0 else 0


@cython.final
cdef class KafkaBatchBuilder(RecordBuilder):
    """Builds one record batch.

    Args:
        magic: 2, or 0 or 1 for the message sets of Produce v0 to v2.
        compression: "none", "gzip", "snappy", "lz4" or "zstd" (magic 2 only).
        limit: the most bytes before compression; the first record is taken whatever its size.
        level: the codec's level, or None.
    """

    cdef Building b
    cdef str compression
    cdef object level
    cdef int codec
    cdef bytes packed            # what was compressed, once it was: a v2 batch under whichever identity came first; a message set alone
    cdef Slice sealed            # the batch as it was handed out, and as what
    cdef int64_t sealed_id
    cdef int sealed_epoch, sealed_sequence
    cdef bint sealed_transactional
    cdef bint lent               # the body's memory is the sealed batch's (`sealed` does not tell: the collector clears it first)

    def __cinit__(self, *, int magic=2, str compression="none", int64_t limit=16384, level=None):
        if not 0 <= magic <= 2:
            raise OptionError(f"there is no magic {magic}")
        if compression not in KAFKA_CODECS or (compression == "zstd" and magic < 2):
            raise OptionError(f"compression {compression!r} is not one of {', '.join(KAFKA_CODECS)} in message format {magic}")
        self.b.magic = magic
        self.b.limit = limit if limit < INT32_MAX - 1024 else INT32_MAX - 1024
        self.b.head = self.b.body.used = V2_HEAD if magic == 2 else 0
        check(growing_reserve(&self.b.body, 256))
        self.compression = compression
        self.codec = KAFKA_CODECS.index(compression)
        self.level = level
        check(no_headers(&self.b))

    def __dealloc__(self):
        if not self.lent:
            mem_give(self.b.body.data)
        mem_give(self.b.headers.data)

    def __len__(self):
        return self.b.count

    @property
    def size(self):
        """Bytes so far, before compression."""
        return self.b.body.used

    @property
    def max_timestamp(self):
        """The latest timestamp so far; -1 without records."""
        return self.b.max_time if self.b.count else -1

    def append(self, value, key=None, headers=None, timestamp=None):
        """Add a record; False when there is no room for it.

        Args:
            value, key: bytes (any buffer) or None.
            headers: a mapping or pairs of (name, value or None); magic 2 only.
            timestamp: milliseconds since 1970 UTC; None writes "no timestamp".
        Raises:
            ValueUnsupported: headers in an old format; a record of 2 GiB.
        """
        cdef Blob k, v
        cdef int code
        cdef int64_t time = -1 if timestamp is None else given_time(timestamp)
        if headers:
            self.encode_headers(headers)
        blob_open(&v, value)
        try:
            blob_open(&k, key)
            code = put_row(&self.b, time, k.data, k.size, v.data, v.size)
            blob_close(&k)
        finally:
            blob_close(&v)
            if headers:
                no_headers(&self.b)
        if code < 0:
            self.refuse(code)
        self.packed = None
        return code == TAKEN

    def append_columns(self, Columns columns not None, Py_ssize_t start, Py_ssize_t stop, int64_t now):
        """Add rows start to stop of `columns` until there is no room.

        Args:
            now: timestamp of rows that have none (ms; -1 for "no timestamp").
        Returns:
            the number of rows taken.
        """
        cdef Py_ssize_t taken = 0
        cdef int code
        cdef Table *t = columns.table
        if not 0 <= start <= stop <= columns.stop - columns.start:
            raise IndexError(f"rows {start} to {stop} of {columns.stop - columns.start}")
        if self.b.magic < 2 and t.header_at != NULL and t.header_at[columns.start + start] != t.header_at[columns.start + stop]:
            raise ValueUnsupported(f"message format {self.b.magic} has no headers")
        if self.b.limit >= RELEASE_GIL_FROM:
            with nogil:
                code = rows_put(&self.b, t, columns.start + start, columns.start + stop, now, &taken)
        else:
            code = rows_put(&self.b, t, columns.start + start, columns.start + stop, now, &taken)
        no_headers(&self.b)
        if code < 0:
            self.refuse(code)
        self.packed = None
        return taken

    def append_lists(self, list values not None, list keys=None, *, Py_ssize_t start=0, list timestamps=None, int64_t now=-1):
        """Add records from lists, values[start] on, until there is no room.

        Args:
            values: bytes (any buffer) or None each. keys: the same, as many, or None: no keys.
            timestamps: ms since 1970 UTC or None each, or None. now: timestamp of records that have none (-1: "no timestamp").
        Returns:
            the number of records taken.
        """
        cdef Blob k, v
        cdef Py_ssize_t n = start
        cdef int64_t time = now
        cdef int code = TAKEN
        for name, other in (("keys", keys), ("timestamps", timestamps)):
            if other is not None and len(other) != len(values):
                raise ValueError(f"{len(other)} {name} for {len(values)} values")
        if not 0 <= start <= len(values):
            raise IndexError(f"values from {start} of {len(values)}")
        if self.sealed is not None:
            return 0
        if start < len(values):                          # room for as much as the first ones let expect
            check(growing_reserve(&self.b.body, list_guess(values, keys, start, self.b.limit - self.b.body.used)))
        k.data, k.size, k.held = NULL, -1, False
        if timestamps is None:
            n = self.append_plain(values, keys, start, now, &code)
        while n < len(values) and code == TAKEN:         # a list may shrink while a buffer of its own kind is opened
            if timestamps is not None:
                stamp = timestamps[n] if n < len(timestamps) else None
                time = now if stamp is None else given_time(stamp)
            if n >= len(values):                         # what is no int may run code of its own
                break
            blob_open(&v, values[n])
            try:
                if keys is not None:
                    blob_open(&k, keys[n] if n < len(keys) else None)
                code = put_row(&self.b, time, k.data, k.size, v.data, v.size)
                blob_close(&k)
            finally:
                blob_close(&v)
            n += code == TAKEN
        if code < 0:
            self.refuse(code)
        self.packed = None
        return n - start

    cdef Py_ssize_t append_plain(self, list values, list keys, Py_ssize_t n, int64_t time, int *code):
        """The beginning of the lists, as long as there is room and all are bytes or None: no Python code can run meanwhile."""
        cdef Py_ssize_t count = PyList_GET_SIZE(values)
        cdef const uint8_t *key = NULL
        cdef int64_t key_size = -1, value_size
        cdef const uint8_t *value
        cdef PyObject *item
        with cython.critical_section(values, values if keys is None else keys):
            while n < count:
                item = <PyObject *>PyList_GET_ITEM(values, n)
                if PyBytes_CheckExact(<object>item):
                    value, value_size = <const uint8_t *>PyBytes_AS_STRING(<object>item), PyBytes_GET_SIZE(<object>item)
                elif item == <PyObject *>None:
                    value, value_size = NULL, -1
                else:
                    break
                if keys is not None:
                    item = <PyObject *>PyList_GET_ITEM(keys, n)
                    if PyBytes_CheckExact(<object>item):
                        key, key_size = <const uint8_t *>PyBytes_AS_STRING(<object>item), PyBytes_GET_SIZE(<object>item)
                    elif item == <PyObject *>None:
                        key, key_size = NULL, -1
                    else:
                        break
                code[0] = put_row(&self.b, time, key, key_size, value, value_size)
                if code[0] != TAKEN:
                    break
                n += 1
        return n

    cdef int put(self, int64_t time, const Blob *key, const Blob *value, bytes headers, bint last) noexcept:
        cdef int code
        if headers is not None:
            self.b.headers.used = 0
            if growing_reserve(&self.b.headers, PyBytes_GET_SIZE(headers)) != TABLE_OK:
                return TABLE_MEMORY
            memcpy(self.b.headers.data, PyBytes_AS_STRING(headers), PyBytes_GET_SIZE(headers))
            self.b.headers.used = PyBytes_GET_SIZE(headers)
        code = put_row(&self.b, time, key.data, key.size, value.data, value.size)
        if headers is not None:
            no_headers(&self.b)
        return code

    cdef Py_ssize_t put_rows(self, Columns columns, object rows, Py_ssize_t start, Py_ssize_t stop, int64_t now) except -1:
        if rows is None:
            return self.append_columns(columns, start, stop, now)
        return (<KafkaRows?>rows).put(self, columns, start, stop, now)

    cdef int64_t held(self) noexcept:
        return self.b.body.used

    cdef void refuse(self, int code) except *:
        if code == TABLE_FULL:
            raise ValueUnsupported("a record of 2 GiB does not fit a batch")
        raise MemoryError("no memory for the batch")

    cdef void encode_headers(self, headers) except *:
        cdef Py_ssize_t name_size
        cdef const char *name_at
        cdef Blob v
        cdef int code
        if self.b.magic < 2:
            raise ValueUnsupported(f"message format {self.b.magic} has no headers")
        pairs = list(headers.items() if hasattr(headers, "items") else headers)
        try:
            check(headers_begin(&self.b, len(pairs)))
            for name, value in pairs:
                name_at = header_name(name, &name_size)
                blob_open(&v, value)
                code = headers_add(&self.b, <const uint8_t *>name_at, name_size, v.data, v.size)
                blob_close(&v)
                if code != TABLE_OK:
                    self.refuse(code)
        except BaseException:
            no_headers(&self.b)
            raise

    def finish(self, int64_t producer_id=-1, int producer_epoch=-1, int base_sequence=-1, *, bint transactional=False):
        """The batch as it goes into a Produce request. May be asked again with another identity; compresses once.

        Raises:
            ValueUnsupported: there is no record.
        """
        if self.b.count == 0:
            raise ValueUnsupported("a batch without records cannot be sent")
        if self.b.magic < 2:
            return self.finish_legacy()
        cdef const uint8_t *body = self.b.body.data + V2_HEAD
        cdef Py_ssize_t size = self.b.body.used - V2_HEAD
        cdef bytes out, packed = None
        cdef uint8_t *p
        if self.codec == LZ4_CODEC and self.packed is None:
            out = packed = lz4_framed(body, size, V2_HEAD, False)    # the batch but for its head
            body, size = NULL, PyBytes_GET_SIZE(out) - V2_HEAD
        else:
            if self.packed is not None:
                body, size = <const uint8_t *>PyBytes_AS_STRING(self.packed) + V2_HEAD, PyBytes_GET_SIZE(self.packed) - V2_HEAD
            elif self.codec:
                packed = self.pack(self.compression)
                body, size = <const uint8_t *>PyBytes_AS_STRING(packed), PyBytes_GET_SIZE(packed)
            out = PyBytes_FromStringAndSize(NULL, V2_HEAD + size)
        p = <uint8_t *>PyBytes_AS_STRING(out)
        self.put_head(p, size, producer_id, producer_epoch, base_sequence, transactional)
        if size >= RELEASE_GIL_FROM:
            with nogil:
                put_u32(p + 17, body_summed(p, body, size))
        else:
            put_u32(p + 17, body_summed(p, body, size))
        if packed is not None:
            self.packed = out
        return out

    cdef void put_head(self, uint8_t *p, int64_t size, int64_t producer_id, int epoch, int sequence, bint transactional) noexcept:
        """The head of a v2 batch with a body of `size` bytes, but for its CRC."""
        put_u64(p, 0)
        put_u32(p + 8, <uint32_t>(V2_LEAST + size))
        put_u32(p + 12, <uint32_t>-1)
        p[MAGIC_AT] = 2
        put_u16(p + 21, self.codec | (TRANSACTIONAL if transactional else 0))
        put_u32(p + 23, self.b.count - 1)
        put_u64(p + 27, self.b.base_time)
        put_u64(p + 35, self.b.max_time)
        put_u64(p + 43, producer_id)
        put_u16(p + 51, <int16_t>epoch)
        put_u32(p + 53, sequence)
        put_u32(p + 57, self.b.count)

    def seal(self, int64_t producer_id=-1, int producer_epoch=-1, int base_sequence=-1, *, bint transactional=False):
        """As `finish`, as a Slice and without a copy of what was not compressed. The batch has no room for more from then on."""
        cdef Block block
        cdef uint8_t *p = self.b.body.data
        cdef int64_t size = self.b.body.used
        if self.b.count == 0 or self.b.magic < 2 or self.codec:
            return Slice(self.finish(producer_id, producer_epoch, base_sequence, transactional=transactional))
        if self.sealed is not None:
            if (producer_id == self.sealed_id and producer_epoch == self.sealed_epoch and base_sequence == self.sealed_sequence
                    and transactional == self.sealed_transactional):
                return self.sealed
            return Slice(self.finish(producer_id, producer_epoch, base_sequence, transactional=transactional))
        self.put_head(p, size - V2_HEAD, producer_id, producer_epoch, base_sequence, transactional)
        if size >= RELEASE_GIL_FROM:
            with nogil:
                put_u32(p + 17, crc32c_update(0, p + 21, size - 21))
        else:
            put_u32(p + 17, crc32c_update(0, p + 21, size - 21))
        block = Block.__new__(Block)
        block.data, block.size = p, size
        try:
            sealed = Slice(block)
        except BaseException:
            block.data = NULL
            raise
        self.lent = True
        self.sealed_id, self.sealed_epoch, self.sealed_sequence, self.sealed_transactional = producer_id, producer_epoch, base_sequence, transactional
        self.b.limit = 0                                 # nothing is written any more: the memory is the block's
        self.sealed = sealed
        return sealed

    cdef bytes pack(self, str name):
        from wireproto.compression import compress
        return compress(name, PyMemoryView_FromMemory(<char *>self.b.body.data + self.b.head, self.b.body.used - self.b.head, PyBUF_READ), self.level)

    cdef bytes finish_legacy(self):
        """The messages as they are, or a wrapper with the last one's offset and the latest timestamp."""
        cdef uint8_t *p
        if self.codec == 0:
            return PyBytes_FromStringAndSize(<char *>self.b.body.data, self.b.body.used)
        if self.packed is None:
            self.packed = self.pack("lz4-v0" if self.compression == "lz4" and self.b.magic == 0 else self.compression)
        out = PyBytes_FromStringAndSize(NULL, message_size(self.b.magic, -1, PyBytes_GET_SIZE(self.packed)))
        p = <uint8_t *>PyBytes_AS_STRING(out)
        put_message(p, self.b.magic, self.codec, self.b.count - 1, self.b.max_time, NULL, -1,
                    <const uint8_t *>PyBytes_AS_STRING(self.packed), PyBytes_GET_SIZE(self.packed))
        return out


def kafka_partition(key, int partitions):
    """The partition that Java's producer picks for a key: murmur2 (seed 0x9747b28c), made positive, modulo.

    Args:
        key: bytes (any buffer).
        partitions: number of the topic's partitions, at least 1.
    """
    cdef Blob k
    cdef uint32_t value
    if partitions < 1 or key is None:
        raise ValueError("a key and at least one partition are needed")
    blob_open(&k, key)
    value = murmur2(k.data, k.size)
    blob_close(&k)
    return (value & 0x7FFFFFFF) % <uint32_t>partitions


cdef uint32_t murmur2(const uint8_t *p, Py_ssize_t size) noexcept nogil:
    cdef uint32_t m = 0x5BD1E995
    cdef uint32_t h = <uint32_t>0x9747B28C ^ <uint32_t>size
    cdef uint32_t k
    cdef Py_ssize_t n
    for n in range(size // 4):
        k = get_u32le(p + 4 * n) * m
        h = (h * m) ^ ((k ^ (k >> 24)) * m)
    p += size & ~<Py_ssize_t>3
    if size & 3:
        if size & 3 == 3:
            h ^= <uint32_t>p[2] << 16
        if size & 3 >= 2:
            h ^= <uint32_t>p[1] << 8
        h = (h ^ p[0]) * m
    h = (h ^ (h >> 13)) * m
    return h ^ (h >> 15)
