# Receipt: what `send` hands out, one record's share in a batch on its way.
#
# What it is: a reference and a number, so that a producer can make a million of them; the batch knows the rest. Must not: know a protocol.

cimport cython


@cython.no_gc
@cython.freelist(256)
cdef class Receipt:
    """The outcome of one record; see `wireproto.records.Receipt`.

    Args:
        batch: what carries the record. It has ``done``, ``position(index, timeout)`` and ``describe(index)``.
        index: the record's place in the batch, from 0.
    """

    cdef readonly object batch
    cdef readonly Py_ssize_t index

    def __init__(self, batch, Py_ssize_t index):
        self.batch = batch
        self.index = index

    @property
    def done(self):
        """Whether the outcome is known (either way)."""
        return self.batch.done

    def position(self, timeout=None):
        """Wait until the broker has acknowledged the record; its place. See `wireproto.records.Receipt.position`."""
        return self.batch.position(self.index, timeout)

    def __repr__(self):
        return f"<Receipt {self.batch.describe(self.index)}>"


cdef inline Receipt new_receipt(object batch, Py_ssize_t index):
    cdef Receipt receipt = Receipt.__new__(Receipt)
    receipt.batch = batch
    receipt.index = index
    return receipt
