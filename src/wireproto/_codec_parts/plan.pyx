# Message plans: what the core knows of a struct at one version.
#
#   Op    one field: kind of value, kind of length, slot offset, child plan        (C, 80 bytes)
#   Plan  one struct at one version: ops in wire order, tagged ops, absent fields   (C, made on first use, never freed while its Spec lives)
#   Spec  one message class: its rows, its slots, its plans by version              (Python object, one per class)
#
# A plan is immutable once published. Rows are generated (from proto/), so they are trusted;
# recursion and depth are refused here all the same, since decoding recurses as deep as the schema.

from cpython.object cimport PyTypeObject
from cpython.ref cimport PyObject
from libc.stdint cimport int16_t, int32_t, uint8_t
from libc.stdlib cimport free

cdef enum Code:
    # fixed size first, so that one bounds check serves them
    C_BOOL, C_INT8, C_INT16, C_INT32, C_INT64, C_UINT8, C_UINT16, C_UINT32, C_FLOAT64, C_UUID
    C_VARINT, C_VARLONG, C_UVARINT, C_STRING, C_BYTES, C_BLOB, C_STRUCT
    LAST_FIXED = C_UUID

cdef enum Length:
    L_INT16, L_INT32, L_COMPACT            # compact: uvarint of length + 1, 0 is null

cdef enum Limits:
    MAX_DEPTH = 16
    MAX_PLANS = 64                         # versions of one message
    ROW_IGNORABLE = 1
    ROW_KEY = 2
    ROW_INFLEXIBLE = 4
    ROW_SECRET = 8

cdef struct Op:
    uint8_t code
    uint8_t array
    uint8_t nullable                       # None may be written
    uint8_t reads_null                     # None may be read (jute: always)
    uint8_t item_null                      # an array's item may be null (jute)
    uint8_t length
    uint8_t count
    uint8_t ignorable
    int32_t tag
    int32_t row
    Py_ssize_t offset
    Py_ssize_t item_size                   # smallest encoding of an array's item, at least 1
    Plan *child
    PyObject *default                      # borrowed from the Spec
    PyObject *name                         # borrowed from the Spec

cdef struct Plan:
    PyTypeObject *type
    Op *ops
    Op *tags                               # ascending by tag
    Op *absent
    int32_t count
    int32_t tag_count
    int32_t absent_count
    int32_t flexible
    Py_ssize_t size                        # smallest encoding
    Py_ssize_t unknown                     # offset of unknown_tags, -1 if the class has none
    int32_t depth
    PyObject *spec                         # borrowed

cdef struct Slot:
    PyObject *name                         # interned, borrowed from the Spec
    PyObject *default                      # borrowed from the Spec
    Py_ssize_t offset

cdef uint8_t[10] FIXED_SIZE
FIXED_SIZE[:] = [1, 1, 2, 4, 8, 1, 2, 4, 8, 16]

cdef dict CODES = {
    "bool": C_BOOL, "int8": C_INT8, "int16": C_INT16, "int32": C_INT32, "int64": C_INT64, "uint8": C_UINT8, "uint16": C_UINT16,
    "uint32": C_UINT32, "float64": C_FLOAT64, "uuid": C_UUID, "varint": C_VARINT, "varlong": C_VARLONG, "uvarint": C_UVARINT,
    "string": C_STRING, "bytes": C_BYTES, "blob": C_BLOB, "records": C_BLOB,
}
cdef dict ZEROS = {
    "bool": False, "float64": 0.0, "uuid": bytes(16), "string": "", "bytes": b"", "blob": b"", "records": b"",
}


cdef class Spec:
    """All that is known of one message class; kept in the class as `_spec`."""

    cdef readonly object cls
    cdef readonly str name
    cdef readonly str dialect
    cdef readonly tuple rows               # normalised: every row has all its columns
    cdef readonly tuple names              # attribute names in slot order
    cdef readonly tuple defaults           # beside `names`
    cdef readonly int first                # versions that can be coded, -1 for a struct that is only part of others
    cdef readonly int last
    cdef readonly int flexible_from        # -1: never
    cdef readonly object empty             # frozen instance with all defaults, made on first need
    cdef Slot *slots
    cdef Py_ssize_t slot_count
    cdef Py_ssize_t unknown
    cdef Plan **plans                      # [version * 2 + flexible]
    cdef list keep                         # specs of child structs

    def __dealloc__(self):
        cdef Py_ssize_t i
        if self.plans is not NULL:
            for i in range(2 * MAX_PLANS):
                if self.plans[i] is not NULL:
                    free_plan(self.plans[i])
            free(self.plans)
        free(self.slots)


cdef void free_plan(Plan *plan) noexcept:
    free(plan.ops)
    free(plan.tags)
    free(plan.absent)
    free(plan)
