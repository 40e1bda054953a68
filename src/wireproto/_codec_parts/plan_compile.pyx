# Rows to Specs and Plans: runs once per class, and once per (class, version), on first use.
#
# A row is (name, type, since, until, null_since, null_until, default, vendor, flags, tag, tag_since, tag_until); trailing columns that
# have their usual value are left out. `default` is Ellipsis for the type's own, None for null. Rows of one name are one attribute.

from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyTypeObject
from cpython.ref cimport PyObject
from libc.stdlib cimport calloc
import sys
import threading

cdef extern from "Python.h":
    """
    /* What ends a message. Nothing but slots stands behind its header (checked when this is put into its type), so they are let go one after
       the other, without the walk through the class's ancestors that a Python class's own tp_dealloc makes. A user's subclass has that one,
       which calls this for what it inherits. */
    static void wp_end_message(PyObject *o) {
        PyTypeObject *type = Py_TYPE(o), *own = type;
        PyObject **p, **end, *value;
        PyObject_GC_UnTrack(o);
        Py_TRASHCAN_BEGIN(o, wp_end_message)
        while (own->tp_dealloc != wp_end_message) own = own->tp_base;
        p = (PyObject **)((char *)o + sizeof(PyObject));
        end = (PyObject **)((char *)o + own->tp_basicsize);
        for (; p < end; p++) {
            value = *p;
            *p = NULL;
            Py_XDECREF(value);
        }
        type->tp_free(o);
        Py_DECREF(type);
        Py_TRASHCAN_END
    }
    """
    ctypedef struct PyMemberDef:
        Py_ssize_t offset
    ctypedef struct PyMemberDescrObject:
        PyMemberDef *d_member
    ctypedef struct TypeStruct "PyTypeObject":
        PyObject *tp_dict
        void *tp_vectorcall
        void *tp_dealloc
        Py_ssize_t tp_basicsize
    void end_message "wp_end_message"(PyObject *o)
    bint type_is_gc "PyType_IS_GC"(PyTypeObject *cls)

cdef enum:
    LAST_VERSION = 32767

cdef tuple ROW = ("", "", 0, LAST_VERSION, 1, 0, ..., "", 0, -1, 0, -1)
cdef object compile_lock = threading.RLock()
cdef str SPEC_KEY = sys.intern("_spec")
cdef object SLOT_TYPE = None


class _SlotProbe:
    __slots__ = ("x",)


SLOT_TYPE = type(_SlotProbe.x)


# The Specs asked for last, by their class's address: a look-up without hashing. A Spec lives as long as this module (`all_specs`), so what
# stands here can be looked into; whether it is the class's is asked each time.
cdef enum:
    NEAR_SPECS = 256

cdef PyObject *near_specs[NEAR_SPECS]
cdef list all_specs = []


cdef inline Spec spec_of(object cls):
    """The class's Spec, made on first use."""
    cdef size_t address = <size_t> <PyObject *> cls
    cdef PyObject *near = near_specs[((address >> 4) ^ (address >> 11)) % NEAR_SPECS]
    if near is not NULL and <PyObject *> (<Spec> near).cls is <PyObject *> cls:
        return <Spec> near
    return known_spec(cls)


cdef Spec known_spec(object cls):
    cdef PyObject *found = PyDict_GetItemWithError(<object> (<TypeStruct *> cls).tp_dict, SPEC_KEY)
    cdef size_t address = <size_t> <PyObject *> cls
    if found is NULL:
        return find_spec(cls)
    near_specs[((address >> 4) ^ (address >> 11)) % NEAR_SPECS] = found
    return <Spec> found


cdef Spec find_spec(object cls):
    for base in cls.__mro__:               # a user's subclass shares its parent's
        if "_spec" in base.__dict__:
            return base.__dict__["_spec"]
        if "__slots__" in base.__dict__ and getattr(base, "_plans", None) is not None and base.__name__ in plan_rows(base):
            return make_spec(base)
    raise TypeError(f"{cls.__name__} is not a message")


cdef dict plan_rows(object cls):
    return getattr(plan_module(cls), "STRUCTS", {})


cdef object plan_module(object cls):
    """Where the rows are: beside the class, or in the module that it names."""
    module = cls._plans or cls.__module__
    __import__(module)                     # also where it is listed: another thread may be in the middle of importing it
    return sys.modules[module]


cdef Spec make_spec(object cls):
    cdef Spec spec
    cdef Py_ssize_t i
    with compile_lock:
        if "_spec" in cls.__dict__:
            return cls.__dict__["_spec"]
        first, last, flexible_from, rows = plan_rows(cls)[cls.__name__]
        spec = Spec.__new__(Spec)
        spec.cls = cls
        spec.name = cls.__name__
        spec.dialect = plan_module(cls).DIALECT
        spec.first, spec.last, spec.flexible_from = first, last, flexible_from
        spec.keep = []
        spec.rows = tuple([tuple([sys.intern(row[0]), *row[1:], *ROW[len(row):]]) for row in rows])
        spec.names = tuple(dict.fromkeys([row[0] for row in spec.rows]))
        spec.defaults = tuple([default_of(spec, name) for name in spec.names])
        slots = slot_offsets(cls)
        spec.slots = <Slot *> calloc(len(spec.names) + 1, sizeof(Slot))
        spec.plans = <Plan **> calloc(2 * MAX_PLANS, sizeof(Plan *))
        if spec.slots is NULL or spec.plans is NULL:
            raise MemoryError()
        for i, name in enumerate(spec.names):
            spec.slots[i].name = <PyObject *> name
            spec.slots[i].default = <PyObject *> spec.defaults[i]
            spec.slots[i].offset = slots[name]
        spec.slot_count = len(spec.names)
        spec.unknown = -1
        if "unknown_tags" in slots:
            spec.unknown = slots["unknown_tags"]
        all_specs.append(spec)
        type.__setattr__(cls, "_spec", spec)
        (<TypeStruct *> cls).tp_vectorcall = <void *> construct       # from now on, Cls(name=…) does not pass by __init__
        if type_is_gc(<PyTypeObject *> cls) and (<TypeStruct *> cls).tp_basicsize == <Py_ssize_t> sizeof(PyObject) + len(slots) * <Py_ssize_t> sizeof(PyObject *):
            (<TypeStruct *> cls).tp_dealloc = <void *> end_message
        return spec


cdef dict slot_offsets(object cls):
    found = {}
    for name in cls.__slots__:
        member = cls.__dict__[name]
        if type(member) is not SLOT_TYPE:
            raise TypeError(f"{cls.__name__}.{name} is not a slot")
        found[name] = (<PyMemberDescrObject *> member).d_member.offset
    return found


cdef object default_of(Spec spec, str name):
    """An attribute's default: that of its last row (a field that changed its type has the newest one's)."""
    for candidate in spec.rows:
        if candidate[0] == name:
            row = candidate
    kind, default = row[1], row[6]
    if default is not ...:
        return default
    if row[4] <= row[5] and spec.dialect != "kafka":
        return None
    if kind[0] == "[":
        return ()
    if kind in CODES:
        return ZEROS.get(kind, 0)
    return empty_of(struct_spec(spec, kind))


cdef Spec struct_spec(Spec spec, str name):
    return spec_of(getattr(sys.modules[spec.cls.__module__], name))


cdef object empty_of(Spec spec):
    if spec.empty is None:
        spec.empty = freeze(spec.cls())
    return spec.empty


cdef inline Plan *message_plan(Spec spec, int version) except NULL:
    """The plan of a whole message in a version. Raises UnsupportedVersion."""
    cdef Plan *plan
    cdef int flexible
    if spec.first < 0 or not spec.first <= version <= spec.last:
        refuse_version(spec, version)
    flexible = spec.flexible_from >= 0 and version >= spec.flexible_from
    plan = spec.plans[version * 2 + flexible]
    return plan if plan is not NULL else plan_of(spec, version, flexible, 0)


cdef int refuse_version(Spec spec, int version) except -1:
    if spec.first < 0:
        raise UnsupportedVersion(f"{spec.name} is only ever part of other messages", message=spec.name)
    raise UnsupportedVersion(f"version {version} of {spec.name}, which has {spec.first} to {spec.last}", message=spec.name, version=version)


cdef Plan *plan_of(Spec spec, int version, int flexible, int depth) except NULL:
    """The plan for a version, compiled on first use. The caller has checked 0 <= version < MAX_PLANS."""
    cdef Plan *plan
    with compile_lock:
        plan = spec.plans[version * 2 + flexible]
        if plan is NULL:
            plan = compile_plan(spec, version, flexible, depth)
            spec.plans[version * 2 + flexible] = plan
    if depth + plan.depth > MAX_DEPTH:
        raise TypeError(f"{spec.name}: schema deeper than {MAX_DEPTH}")
    return plan


cdef Plan *compile_plan(Spec spec, int version, int flexible, int depth) except NULL:
    cdef Plan *plan
    if depth >= MAX_DEPTH:
        raise TypeError(f"{spec.name}: schema deeper than {MAX_DEPTH}, or recursive")
    plan = <Plan *> calloc(1, sizeof(Plan))
    if plan is NULL:
        raise MemoryError()
    try:
        plan.ops = <Op *> calloc(len(spec.rows) + 1, sizeof(Op))
        plan.tags = <Op *> calloc(len(spec.rows) + 1, sizeof(Op))
        plan.absent = <Op *> calloc(len(spec.rows) + 1, sizeof(Op))
        if plan.ops is NULL or plan.tags is NULL or plan.absent is NULL:
            raise MemoryError()
        plan.type = <PyTypeObject *> spec.cls
        plan.spec = <PyObject *> spec
        plan.flexible = flexible
        plan.unknown = spec.unknown
        plan.depth = 1
        seen = set()
        in_line, tags = [], []
        for number, row in enumerate(spec.rows):
            if row[2] <= version <= row[3]:
                seen.add(row[0])
                if flexible and row[9] >= 0 and row[10] <= version <= (row[11] if row[11] >= 0 else LAST_VERSION):
                    tags.append((row[9], number))
                else:
                    in_line.append(number)
        for number in in_line:
            fill_op(&plan.ops[plan.count], plan, spec, number, version, flexible, depth)
            plan.size += op_size(&plan.ops[plan.count])
            plan.count += 1
        for tag, number in sorted(tags):
            fill_op(&plan.tags[plan.tag_count], plan, spec, number, version, flexible, depth)
            plan.tags[plan.tag_count].tag = tag
            plan.tag_count += 1
        for number, row in enumerate(spec.rows):
            if row[0] not in seen:
                seen.add(row[0])
                fill_absent(&plan.absent[plan.absent_count], spec, number)
                plan.absent_count += 1
        plan.size += flexible                              # the section of tagged fields is at least one byte
    except BaseException:
        free_plan(plan)
        raise
    return plan


cdef int fill_absent(Op *op, Spec spec, int number) except -1:
    cdef Py_ssize_t i = spec.names.index(spec.rows[number][0])
    op.row = number
    op.offset = spec.slots[i].offset
    op.default = spec.slots[i].default
    op.name = spec.slots[i].name
    op.ignorable = (spec.rows[number][8] & ROW_IGNORABLE) != 0
    op.tag = -1
    return 0


cdef int fill_op(Op *op, Plan *plan, Spec spec, int number, int version, int flexible, int depth) except -1:
    row = spec.rows[number]
    cdef str kind = row[1]
    cdef bint jute = spec.dialect == "zookeeper"
    cdef bint compact = flexible and not row[8] & ROW_INFLEXIBLE
    cdef Spec child
    fill_absent(op, spec, number)
    op.nullable = row[4] <= version <= row[5]
    if kind[0] == "[":
        op.array = 1
        kind = kind[1:len(kind) - 1]
    op.count = L_COMPACT if compact else L_INT32
    if kind in CODES:
        op.code = CODES[kind]
        op.length = L_INT32
        if compact:
            op.length = L_COMPACT
        elif op.code == C_STRING and not jute:
            op.length = L_INT16
    else:
        op.code = C_STRUCT
        child = struct_spec(spec, kind)
        spec.keep.append(child)
        op.child = plan_of(child, version, flexible, depth + 1)
        plan.depth = max(plan.depth, op.child.depth + 1)
    op.reads_null = op.nullable
    if jute:
        op.item_null = C_STRING <= op.code <= C_BLOB
        op.reads_null |= op.array or op.item_null
    if op.array:
        op.item_size = max(1, item_size(op))
    return 0


cdef Py_ssize_t item_size(Op *op) noexcept:
    """Smallest encoding of one value of the op's code."""
    if op.code <= LAST_FIXED:
        return FIXED_SIZE[op.code]
    if op.code <= C_UVARINT:
        return 1
    if op.code == C_STRUCT:
        return op.child.size
    return 2 if op.length == L_INT16 else 4 if op.length == L_INT32 else 1


cdef Py_ssize_t op_size(Op *op) noexcept:
    if op.array:
        return 4 if op.count == L_INT32 else 1
    if op.code == C_STRUCT and op.nullable:
        return 1
    return item_size(op)
