# Messages whose fields travel as text: what RocketMQ puts into extFields.

class ExtMessage(Message):
    """A RocketMQ command's or reply's fields; on the wire they are texts in the header's extFields."""

    __slots__ = ()

    def to_ext(self):
        """The fields as extFields holds them: absent ones left out. ValueUnsupported: a required one is None, or of a wrong type."""
        cdef Spec spec = spec_of(type(self))
        ext = {}
        for row in spec.rows:
            value = getattr(self, row[0])
            name = row[7] or camel(row[0])
            if value is None:
                if row[4] > row[5]:
                    raise ValueUnsupported("a required field is None", message=spec.name, path=row[0])
                continue
            kind = CODES[row[1]]
            if kind == C_STRING:
                if not isinstance(value, str):
                    raise ValueUnsupported(f"str expected, got {type(value).__name__}", message=spec.name, path=row[0])
                ext[name] = value
            elif kind == C_BOOL:
                ext[name] = "true" if value else "false"
            elif kind == C_FLOAT64:
                ext[name] = repr(float(value))
            else:
                ext[name] = integer_text(spec, row, kind, value)
        return ext

    @classmethod
    def from_ext(cls, ext):
        """A frozen message of extFields; unknown names are ignored. Malformed: a required one is missing, or a number is none."""
        cdef Spec spec = spec_of(cls)
        values = {}
        for row in spec.rows:
            text = ext.get(row[7] or camel(row[0]))
            if text is None:
                if row[4] > row[5]:
                    raise Malformed(f"{row[7] or camel(row[0])} is missing in extFields", message=spec.name, path=row[0])
                values[row[0]] = None
                continue
            values[row[0]] = text if row[1] == "string" else ext_value(spec, row, text)
        return freeze(cls(**values))


cdef object integer_text(Spec spec, tuple row, int kind, object value):
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueUnsupported(f"int expected, got {type(value).__name__}", message=spec.name, path=row[0])
    if not LEAST[kind] <= value <= MOST[kind]:
        raise ValueUnsupported(f"{value} does not fit {row[1]}", message=spec.name, path=row[0])
    return str(int(value))


cdef object ext_value(Spec spec, tuple row, str text):
    cdef int kind = CODES[row[1]]
    try:
        if kind == C_BOOL:
            return text.lower() == "true"                     # as Java's Boolean.parseBoolean
        if kind == C_FLOAT64:
            return float(text)
        value = int(text)
    except ValueError:
        raise Malformed(f"{text[:40]!r} is no {row[1]}", message=spec.name, path=row[0]) from None
    if not LEAST[kind] <= value <= MOST[kind]:
        raise Malformed(f"{text} does not fit {row[1]}", message=spec.name, path=row[0])
    return value


cdef dict camels = {}


cdef object camel(str name):
    found = camels.get(name)
    if found is None:
        head, *rest = name.split("_")
        found = camels[name] = sys.intern(head + "".join([part[:1].upper() + part[1:] for part in rest]))
    return found
