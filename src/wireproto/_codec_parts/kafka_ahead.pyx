# The packed batches of a section, unpacked by several threads: those behind the one that is being read.
#
# May assume: what read_head found. Must not: decide anything about a batch. What is not there when its turn comes (too small to be worth
# it, broken, or larger than a share) the reader unpacks itself; so order, CRC, filters, limits and errors are its own.

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.memoryview cimport PyMemoryView_FromObject

cdef tuple KAFKA_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
cdef enum:
    LZ4_CODEC = 3
cdef object unpack_threads = None        # wireproto.compression.ahead, imported at first use

cdef enum:
    AHEAD_FROM = 65536        # bytes of a section that may be worth other threads
    AHEAD_BATCH = 4096        # each batch needs the interpreter for some microseconds: smaller ones gain nothing
    AHEAD_MOST = 1024


@cython.final
@cython.no_gc
cdef class PackedAhead:
    """What is unpacked ahead of one section's reader."""

    cdef bint looked
    cdef dict places             # of a batch in the section: its number among the blocks
    cdef object blocks           # wireproto.compression.ahead.Ahead

    cdef object take(self, Section *s, int64_t limit, object owner):
        """What the batch in hand unpacked to, or None. `owner`: exact bytes that hold the section, which threads may go on reading."""
        if not self.looked:
            self.looked = True
            if owner is not None and s.end - s.at >= AHEAD_FROM:
                self.look(s, limit, owner)
        if self.blocks is None:
            return None
        index = self.places.get(s.at - s.start)
        return None if index is None else self.blocks.take(index)

    cdef void look(self, Section *s, int64_t limit, object owner) except *:
        """Find the batches from the one in hand on that will be unpacked; of transactions only where none was aborted."""
        global unpack_threads
        cdef Section scan = s[0]
        cdef BatchHead *h = &scan.head
        cdef Py_ssize_t start
        cdef list blocks = []
        cdef int codec
        whole = PyMemoryView_FromObject(owner)
        scan.table = NULL                                # no facts are filled in
        self.places = {}
        while len(blocks) < AHEAD_MOST and read_head(&scan) == BATCH_NEXT:
            codec = h.attributes & CODEC_MASK
            if (h.magic == 2 and 1 <= codec <= 4 and h.size >= AHEAD_BATCH and h.last >= s.fetch_offset and h.base < s.stop
                    and not (s.aborted_count and h.attributes & TRANSACTIONAL)):
                self.places[scan.at - scan.start] = len(blocks)
                start = scan.at + V2_HEAD - <const uint8_t *>PyBytes_AS_STRING(owner)
                blocks.append((KAFKA_CODECS[codec], whole[start:start + h.size - V2_HEAD]))
            pass_batch(&scan)
        if len(blocks) < 2:
            return
        if unpack_threads is None:
            from wireproto.compression import ahead
            unpack_threads = ahead
        found = unpack_threads.Ahead(blocks, limit)
        if found.worth:
            self.blocks = found

    cdef void close(self) except *:
        if self.blocks is not None:
            self.blocks.close()
            self.blocks = None
