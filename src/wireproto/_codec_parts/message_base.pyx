# Message: the base of every generated class.
#
# Generated classes are plain Python classes with __slots__ and nothing else; this base gives them keyword construction (by vectorcall),
# encode and decode, equality, repr, copying, pickling, and the freezing of decoded ones. Frozen means: the collector does not track it.

from cpython.ref cimport PyObject
from cpython.tuple cimport PyTuple_GET_SIZE
cimport cython

cdef extern from "Python.h":
    """
    static inline Py_ssize_t wp_nargs(size_t n) { return (Py_ssize_t)PyVectorcall_NARGS(n); }
    """
    int is_tracked "PyObject_GC_IsTracked"(PyObject *o)
    int is_gc "PyObject_IS_GC"(PyObject *o)
    void track "PyObject_GC_Track"(PyObject *o)
    Py_ssize_t wp_nargs(size_t n)
    int generic_setattr "PyObject_GenericSetAttr"(PyObject *o, PyObject *name, PyObject *value) except -1

cdef int fill_defaults(Spec spec, PyObject *o) except -1:
    cdef Py_ssize_t i
    for i in range(spec.slot_count):
        if slot(o, spec.slots[i].offset) is NULL:
            set_slot(o, spec.slots[i].offset, ref(spec.slots[i].default))
    if spec.unknown >= 0 and slot(o, spec.unknown) is NULL:
        set_slot(o, spec.unknown, ref(<PyObject *> EMPTY))
    return 0


cdef int set_field(Spec spec, PyObject *o, PyObject *name, PyObject *value, Py_ssize_t *near) except -1:
    """Sets a slot of a fresh object by name; `value` is borrowed. `near` gets the place behind it."""
    cdef Py_ssize_t i
    cdef Py_ssize_t offset = -1
    for i in range(spec.slot_count):
        if spec.slots[i].name is name:
            offset = spec.slots[i].offset
            near[0] = i + 1
            break
    else:
        text = <object> name
        if text in spec.names:
            offset = spec.slots[spec.names.index(text)].offset
        elif text == "unknown_tags" and spec.unknown >= 0:
            offset = spec.unknown
        else:
            raise TypeError(f"{spec.name} has no field {text!r}")
    set_slot(o, offset, ref(value))
    return 0


cdef PyObject *construct(PyObject *cls, PyObject **args, size_t nargsf, PyObject *keywords) except NULL:
    """tp_vectorcall of the generated classes: Cls(name=value, …)."""
    cdef Spec spec = spec_of(<object> cls)
    cdef Py_ssize_t i, n = 0, near = 0
    if wp_nargs(nargsf):
        raise TypeError(f"{spec.name} takes keyword arguments only")
    cdef object message = bare_object(<PyTypeObject *> cls)
    if keywords is not NULL:
        n = PyTuple_GET_SIZE(<object> keywords)
        for i in range(n):
            if near < spec.slot_count and spec.slots[near].name is get_item(keywords, i):       # in the order of the fields, as is usual
                set_slot(<PyObject *> message, spec.slots[near].offset, ref(args[i]))
                near += 1
            else:
                set_field(spec, <PyObject *> message, get_item(keywords, i), args[i], &near)
    if n != spec.slot_count or spec.unknown >= 0:           # else every field was given
        fill_defaults(spec, <PyObject *> message)
    if is_gc(<PyObject *> message):
        track(<PyObject *> message)
    return ref(<PyObject *> message)


cdef object freeze(object message):
    untrack(<PyObject *> message)
    return message


cdef inline bint is_frozen(object message) noexcept:
    return is_gc(<PyObject *> message) and not is_tracked(<PyObject *> message)


class _Fields:
    """`Class.FIELDS`: one `wireproto.message.Field` a line of the schema."""

    def __get__(self, message, cls):
        from wireproto.message import fields_of

        return fields_of(cls)


cdef class Message:
    """One struct of the wire. Built by keyword (`Cls(name=value)`; what is absent has its default), or decoded.

    A built message is mutable. A decoded one is frozen, holds tuples, and `replace` makes a changed, mutable one of it.
    """

    FIELDS = _Fields()

    def __init__(self, **fields):
        cdef Spec spec = spec_of(type(self))
        cdef Py_ssize_t near = 0
        for name, value in fields.items():
            set_field(spec, <PyObject *> self, <PyObject *> name, <PyObject *> value, &near)
        fill_defaults(spec, <PyObject *> self)

    @classmethod
    def decode(cls, frame, int version=0, Py_ssize_t start=0):
        """The message that `frame[start:]` holds.

        Raises:
            Truncated: the bytes end before the message does.
            Malformed: they contradict the format, or go on behind the message.
            UnsupportedVersion: there is no such version of it.
        """
        cdef Py_ssize_t stop
        message = decode_message(cls, frame, version, start, &stop)
        if stop != len(frame):
            raise Malformed(f"{len(frame) - stop} bytes left over", message=cls.__name__, version=version, offset=stop)
        return message

    @classmethod
    def decode_from(cls, frame, int version=0, Py_ssize_t start=0):
        """(message, where it ended): the message that begins at `frame[start]`, whatever follows it."""
        cdef Py_ssize_t stop
        message = decode_message(cls, frame, version, start, &stop)
        return message, stop

    def encode(self, int version=0):
        """The message as bytes of that version. ValueUnsupported: the version cannot carry a field's value."""
        return encode_message(self, version, False)

    def encode_parts(self, int version=0):
        """The message as a list of buffers, large blobs among them uncopied, for a gathered send."""
        return encode_message(self, version, True)

    def replace(self, **fields):
        """A mutable copy with these fields changed."""
        cls = type(self)
        values = message_values(self)
        values.update(fields)
        return cls(**values)

    @property
    def frozen(self):
        """Whether the message was decoded, and cannot be changed."""
        return is_frozen(self)

    def __setattr__(self, name, value):
        if is_frozen(self):
            raise AttributeError(f"a decoded {type(self).__name__} is frozen; replace({name}=…) makes a changed copy")
        generic_setattr(<PyObject *> self, <PyObject *> name, <PyObject *> value)

    def __delattr__(self, name):
        if is_frozen(self):
            raise AttributeError(f"a decoded {type(self).__name__} is frozen")
        generic_setattr(<PyObject *> self, <PyObject *> name, NULL)

    def __eq__(self, other):
        if self is other:
            return True
        if type(self) is not type(other):
            return NotImplemented
        return message_values(self) == message_values(other)

    __hash__ = None

    def __repr__(self):
        cdef Spec spec = spec_of(type(self))
        secret = {row[0] for row in spec.rows if row[8] & ROW_SECRET}
        values = message_values(self)
        shown = []
        for name, default in zip(spec.names, spec.defaults):
            value = values.get(name, ...)
            if value is ... or (type(value) is type(default) and value == default):
                continue
            shown.append(f"{name}=…" if name in secret and value else f"{name}={value!r}")
        if values.get("unknown_tags"):
            shown.append(f"unknown_tags={values['unknown_tags']!r}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def __reduce__(self):
        return rebuild_message, (type(self), message_values(self), is_frozen(self))

    def __copy__(self):
        return self.replace()

    def __deepcopy__(self, memo):
        import copy

        return type(self)(**copy.deepcopy(message_values(self), memo))


cdef dict message_values(object message):
    cdef Spec spec = spec_of(type(message))
    cdef PyObject *o = <PyObject *> message
    cdef Py_ssize_t i
    values = {}
    for i in range(spec.slot_count):
        if slot(o, spec.slots[i].offset) is not NULL:
            values[<object> spec.slots[i].name] = <object> slot(o, spec.slots[i].offset)
    if spec.unknown >= 0 and slot(o, spec.unknown) is not NULL:
        values["unknown_tags"] = <object> slot(o, spec.unknown)
    return values


def rebuild_message(cls, values, frozen):
    """What a pickled message is made from."""
    message = cls(**values)
    return freeze(message) if frozen else message


def message_spec(cls):
    """(dialect, first, last, flexible_from, rows) of a message class, rows with all columns."""
    cdef Spec spec = spec_of(cls)
    return spec.dialect, spec.first, spec.last, spec.flexible_from, spec.rows
