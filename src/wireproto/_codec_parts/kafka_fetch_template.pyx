# Following one partition, where each answer is small and the next Fetch is the last one's like: the plain case of kafka/fetcher.py and
# kafka/fetch_template.py, in the core.
#
#     FetchTemplateCore       base of FetchTemplate: whether all that there is to do is to wait, and what a plain answer brings
#     KafkaFetcherCore    base of Fetcher: `poll`, and a chunk's records as a batch
#
# Every other case is handled in Python, which shares the attributes declared here and documents them.
# May assume: a template holds for its connection, and for the topics that metadata had. Must not: decide what to fetch.

from cpython.dict cimport PyDict_GetItemWithError
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t

from time import monotonic

from wireproto.errors import ProtocolError, TransportError


cdef tuple KAFKA_PLACE = ("topic", "partition")


cdef class FetchTemplateCore(FetchTemplateBytes):
    """See FetchTemplate."""

    cdef public object link, topics, asked, ticket, cursor, call, sent
    cdef public double until

    cdef bint waits(self, object plan, object topics) except -1:
        """Return whether the poll has only to wait for the response to this Fetch."""
        cdef object cursor = self.cursor
        cdef object ticket = self.ticket
        cdef PyObject *out
        if self.call is None or topics is not self.topics or plan.delivering is not None:
            return False
        out = PyDict_GetItemWithError(cursor.out, ticket.offset)
        return (out != NULL and <object>out is ticket and not cursor.chunks and not cursor.paused
                and len(<dict>plan.cursors) == 1)

    def chunk(self, call, bint committed):
        """Return the chunk of a response after which the same Fetch may follow; None: the general code handles the response."""
        return self.chunk_of(call, committed)

    cdef KafkaChunk chunk_of(self, object call, bint committed):
        cdef object cursor = self.cursor
        cdef tuple found
        frame = call.frame
        if frame is None:
            return None
        found = self.read(frame)
        if found is None:
            return None
        end, stable, records, following, epoch = found
        start, stop = cursor.ahead, cursor.stop
        if following <= start or (stop is not None and following >= stop):
            return None
        cursor.end = stable if committed and stable >= 0 else end
        return new_chunk(cursor, start, following, records, epoch)


cdef class KafkaFetcherCore:
    """See Fetcher.

    Attributes:
        plan: cursors and what waits to be handed out. _template: the Fetch under way that has a form; None: there is none.
        _silent: seconds beyond `max_wait` after which a node is doubted.
    """

    cdef public object plan, asking, _cluster, _metadata, _box, _looking, _columns
    cdef public type _offsets, _batches          # the classes of positions and of batches
    cdef public double _max_wait, _request_timeout, _silent
    cdef public FetchTemplateCore _template
    cdef public dict _calls, _overdue
    cdef public double _follow_at, _failing_since
    cdef public bint _committed, _check_crc, _skip, _facts, _nearest

    def poll(self, double deadline):
        """The next batch that has records; None when none came until `deadline`, or the plan is done.

        Raises:
            what the partition's leader answered; what cannot be decoded, with topic, partition and position; TransportError when no
            leader could be reached for `request_timeout` seconds.
        """
        cdef object item = None
        cdef double until = self.only_waits()
        if until:
            item = self._box.get(min(deadline, until))
            batch = self.next_alone(item)
            if batch is not None:
                item = None
        else:
            batch = self._handed_out()
        if batch is not None and len(batch):     # most often so, and it cost no steps
            return batch
        return self._cluster.drive(self.polling(deadline, item), deadline)

    def _only_waits(self):
        """Until when there is nothing to do but wait for one partition's Fetch, the last one's like; 0.0: there is more."""
        return self.only_waits()

    cdef double only_waits(self) except -1.0:
        cdef FetchTemplateCore template = self._template
        cdef double until
        if template is None or not template.waits(self.plan, self._metadata.topics) or self.asking.stale or self._looking is not None:
            return 0.0
        until = min(template.until, self._follow_at)
        return until if <double>monotonic() < until else 0.0

    def _next_alone(self, call):
        """The short way from a plain answer to the next Fetch, and what it brought; None: the long way has to take it."""
        return self.next_alone(call)

    cdef object next_alone(self, object call):
        cdef FetchTemplateCore template = self._template
        cdef KafkaChunk chunk
        cdef double now
        if template is None or call is not template.call or not template.waits(self.plan, self._metadata.topics):
            return None
        now = monotonic()
        if <double>template.link.context.until <= now:
            return None                          # its session is about to end
        chunk = template.chunk_of(call, self._committed)
        if chunk is None:
            return None
        self._failing_since = 0.0
        node = template.asked.node
        try:
            del self._calls[node]
            self.plan.renew(template.ticket, chunk)
            token = template.link.next_token()
            now += self._max_wait
            template.until = now + self._silent
            self._overdue[node] = template.until
            request = template.request(token, chunk.next, chunk.epoch)
            template.call = template.link.submit(token, (request,), self._box, now + self._request_timeout, template.sent)
            self._calls[node] = template.call
        except TransportError:
            self.plan.answered(template.ticket)      # the long way asks again
        except BaseException:
            chunk.cursor.fetched(chunk)
            self.plan.put_back(chunk)
            raise
        return self._decode(chunk)

    def _decode(self, KafkaChunk chunk not None):
        """The chunk's records from the cursor on. What the core leaves for a later call (behind it something cannot be read, or its
        bound on unpacking was reached) goes back to be handed out next."""
        cdef object cursor = chunk.cursor
        cdef object records = chunk.records
        cdef object topic = cursor.topic, partition = cursor.partition, stop = cursor.stop    # each costs a look-up
        cdef int64_t begin = max(chunk.start, <int64_t>cursor.position)
        cdef int64_t behind = chunk.next
        cdef int64_t following, end, position
        cdef Columns columns
        cdef bint rest
        try:
            columns, following = decode_section(
                records, topic, partition, begin, chunk.aborted, self._committed, self._check_crc, stop, self._skip, UNPACKED_AT_ONCE,
                self._facts, self._columns,
            )
        except ProtocolError as why:
            self.plan.seek(cursor.key, cursor.position)      # the next poll meets it again, unless the caller seeks on
            why.with_context(topic=topic, partition=partition, position=cursor.position)
            raise
        end = behind if stop is None else min(behind, <int64_t>stop)
        position = following if records is not None else behind
        rest = begin < position < end
        if not rest:
            position = end
        place = new_place(self._offsets, KAFKA_PLACE, cursor.key, position)
        batch = new_batch(self._batches, topic, partition, columns, place)
        if self._nearest or columns.skipped:
            self._note(cursor, columns)
        if rest:
            self._put_rest(chunk, position)
        self.plan.moved(chunk, position)
        return batch
