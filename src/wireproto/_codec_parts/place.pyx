# Positions, made in C: objects of frozen dataclasses with an `offset`.
#
# Their own `__init__`, which may not set the fields plainly, costs more than all else at such a place.
# May assume: every field is given. Must not: know what the fields mean.

from cpython.object cimport PyObject_GenericSetAttr
from libc.stdint cimport int64_t


cdef object new_place(type cls, tuple others, tuple fixed, int64_t offset):
    """others, fixed: names and values of the fields beside the offset."""
    cdef Py_ssize_t n
    place = cls.__new__(cls)
    PyObject_GenericSetAttr(place, "offset", offset)
    for n in range(len(others)):
        PyObject_GenericSetAttr(place, others[n], fixed[n])
    return place
