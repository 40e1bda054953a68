# ZooKeeper's replies: the header, and those fields behind it that a caller asked for, without a message object in between.
#
#     [int32 xid][int64 zxid][int32 err]       with an error nothing follows
#
# May assume: plans. Must not: know which operation has which reply; that is the adapter's.

from wireproto._codec_parts.endian cimport get_i32

cdef enum:
    REPLY_HEADER = 16


def reply_error(bytes frame not None):
    """See _codec.pyi."""
    if len(frame) < REPLY_HEADER:
        raise Truncated(f"{REPLY_HEADER} bytes needed, {len(frame)} there", message="ReplyHeader", offset=len(frame))
    return get_i32(<const uint8_t *> PyBytes_AS_STRING(frame) + 12)


cdef class ReplyFields:
    """See _codec.pyi."""

    cdef readonly object cls
    cdef readonly tuple names
    cdef Py_ssize_t[4] offsets

    def __init__(self, cls, *names):
        cdef Spec spec = spec_of(cls)
        cdef Py_ssize_t i
        if not 1 <= len(names) <= 4:
            raise ValueError("one to four fields")
        for i in range(len(names)):
            self.offsets[i] = spec.slots[spec.names.index(names[i])].offset
        self.cls, self.names = cls, names

    def read(self, frame):
        cdef Py_ssize_t stop, i, n = len(self.names)
        cdef object message = decode_message(self.cls, frame, 0, REPLY_HEADER, &stop)
        if stop != len(frame):
            raise Malformed(f"{len(frame) - stop} bytes left over", message=self.cls.__name__, version=0, offset=stop)
        if n == 1:
            return <object> slot(<PyObject *> message, self.offsets[0])
        cdef object values = new_tuple(n)
        for i in range(n):
            set_item(<PyObject *> values, i, ref(slot(<PyObject *> message, self.offsets[i])))
        return values
