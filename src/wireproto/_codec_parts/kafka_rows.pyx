# Rows of columns by the partition that they go to, and into a Kafka batch.
#
#     kafka_shares     which rows go where: their own partition, their key's, or anywhere
#     KafkaRows        the numbers of one partition's rows, in order
#
# Must not: choose a partition for what may go anywhere.

cimport cython
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t, uint8_t
from libc.stdlib cimport calloc, free, malloc

from wireproto.errors import OptionError


@cython.final
cdef class KafkaRows:
    """Numbers of the rows of one partition, in their order. Made by `kafka_shares`."""

    cdef int32_t *numbers
    cdef Py_ssize_t count

    def __dealloc__(self):
        free(self.numbers)

    def __len__(self):
        return self.count

    cdef Py_ssize_t put(self, KafkaBatchBuilder builder, Columns columns, Py_ssize_t start, Py_ssize_t stop, int64_t now) except -1:
        """Rows at places start to stop into the builder until there is no room; neighbours go together."""
        cdef Py_ssize_t at = start
        cdef Py_ssize_t taken = 0
        cdef Py_ssize_t run, before
        cdef int code = TAKEN
        if not 0 <= start <= stop <= self.count:
            raise IndexError(f"places {start} to {stop} of {self.count}")
        with nogil:
            while at < stop and code == TAKEN:
                run = 1
                while at + run < stop and self.numbers[at + run] == self.numbers[at] + run:
                    run += 1
                before = taken
                code = rows_put(&builder.b, columns.table, columns.start + self.numbers[at], columns.start + self.numbers[at] + run, now, &taken)
                at += taken - before
        no_headers(&builder.b)
        builder.packed = None
        if code < 0:
            builder.refuse(code)
        return taken


def kafka_shares(Columns columns not None, Py_ssize_t partitions, chosen=None):
    """The rows by partition, in their order within each.

    Args:
        partitions: of the topic. chosen: the partition of each row; None: the rows' own, or what their keys pick.
    Returns:
        [(partition, KafkaRows)]; partition -1: rows that may go anywhere; rows None: all of them.
    """
    cdef Table *t = columns.table
    cdef Py_ssize_t rows = columns.stop - columns.start
    cdef int32_t groups = <int32_t>partitions + 1
    cdef Py_ssize_t n
    cdef int32_t g
    cdef Py_ssize_t *counts
    cdef int32_t *places
    cdef KafkaRows part
    cdef list found = []
    if partitions < 1:
        raise ValueError("the partitions are not known")
    if chosen is None and t.partition == NULL and (partitions == 1 or t.key.nulls == t.rows):
        return [(0 if partitions == 1 else -1, None)]
    counts = <Py_ssize_t *>calloc(groups, sizeof(Py_ssize_t))
    places = <int32_t *>malloc((rows + 1) * sizeof(int32_t))
    try:
        if counts == NULL or places == NULL:
            raise MemoryError
        if chosen is not None:
            for n in range(rows):
                places[n] = chosen[n]
        else:
            with nogil:
                places_of(t, columns.start, rows, groups - 1, places)
        for n in range(rows):
            if not 0 <= places[n] < groups:
                raise OptionError(f"there is no partition {places[n]}: the topic has {groups - 1}")
            counts[places[n]] += 1
        parts = [None] * groups
        for g in range(groups):
            if counts[g]:
                part = KafkaRows.__new__(KafkaRows)
                part.numbers = <int32_t *>malloc(counts[g] * sizeof(int32_t))
                if part.numbers == NULL:
                    raise MemoryError
                parts[g] = part
                found.append((g if g < groups - 1 else -1, part if counts[g] < rows else None))
        for n in range(rows):
            part = <KafkaRows>parts[places[n]]
            part.numbers[part.count] = <int32_t>n
            part.count += 1
        return found
    finally:
        free(counts)
        free(places)


cdef void places_of(Table *t, Py_ssize_t start, Py_ssize_t rows, int32_t partitions, int32_t *places) noexcept nogil:
    """Where each row goes: its own partition, its key's, or `partitions` for anywhere."""
    cdef Py_ssize_t n, row
    cdef const uint8_t *key
    cdef int64_t size
    for n in range(rows):
        row = start + n
        if t.partition != NULL:
            places[n] = t.partition[row] if t.partition[row] != partitions else -1
            continue
        size = bytes_get(t, &t.key, row, &key)
        places[n] = partitions if size < 0 else <int32_t>((murmur2(key, size) & 0x7FFFFFFF) % <uint32_t>partitions)


def kafka_earliest(Columns columns not None):
    """The earliest timestamp among the rows, in ms; None when no row has one."""
    cdef Table *t = columns.table
    cdef Py_ssize_t row
    cdef int64_t least = INT64_MAX
    cdef bint found = False
    for row in range(columns.start, columns.stop):
        if is_timed(t, row):
            found = True
            if t.timestamp[row] < least:
                least = t.timestamp[row]
    return least if found else None
