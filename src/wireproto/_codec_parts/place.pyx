# Positions and batches, made in C: objects of frozen dataclasses with an `offset`, and of records.Batch.
#
# Their own `__init__`, which of the former may not set the fields plainly, costs more than all else at such a place.
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


cdef object new_batch(type cls, object topic, object partition, object columns, object place):
    """As `Batch(topic, partition, columns, place)`."""
    batch = cls.__new__(cls)
    PyObject_GenericSetAttr(batch, "topic", topic)
    PyObject_GenericSetAttr(batch, "partition", partition)
    PyObject_GenericSetAttr(batch, "columns", columns)
    PyObject_GenericSetAttr(batch, "next_positions", {(topic, partition): place})
    return batch
