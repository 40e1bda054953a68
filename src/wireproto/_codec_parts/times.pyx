# Timestamps that users give.
#
# Milliseconds since 1970 UTC as a whole number. C would cut a float to one in silence: time.time() would be stored as a day of January 1970,
# and a broker that keeps records by time would delete them at once.
# Must not: guess a unit.

from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact

from wireproto.errors import ValueUnsupported


cdef inline int64_t given_time(object timestamp) except? -1:
    cdef int beyond = 0
    cdef int64_t found
    if PyLong_CheckExact(timestamp):
        found = PyLong_AsLongLongAndOverflow(timestamp, &beyond)
        if not beyond:
            return found
    return other_time(timestamp)


cdef int64_t other_time(object timestamp) except? -1:
    """What has a whole number in it (numpy's int64), but for True and False; refuse the rest."""
    if type(timestamp) is not int and not isinstance(timestamp, bool) and hasattr(timestamp, "__index__"):
        return given_time(int(timestamp.__index__()))
    raise ValueUnsupported(
        f"a timestamp is milliseconds since 1970 as a whole number, not {timestamp!r}: int(time.time() * 1000), int(when.timestamp() * 1000)"
    )


def timestamp_ms(timestamp):
    """A timestamp as it is sent; raises ValueUnsupported for what is no int64 of milliseconds."""
    return given_time(timestamp)
