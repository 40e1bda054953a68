# RemotingCommand: RocketMQ's frame, and its header in the binary encoding (the JSON one: rocketmq_json.pyx).
#
#     frame (after its length)   int32 h · header · body           h: top byte 0 JSON or 1 ROCKETMQ, low 24 bits the header's length
#     JSON header      code, extFields, flag, language (name), opaque, remark, serializeTypeCurrentRPC, version; absent when null
#     ROCKETMQ header  int16 code · uint8 language · int16 version · int32 opaque · int32 flag · int32+text remark
#                      · int32 length · { int16+text name · int32+text value }*             a length of 0 is null
#
# Of two equal names the last wins. Values of extFields that are not text (numbers, booleans) are taken as their text; null ones are left out.
# A code that does not fit int16 goes out as JSON whatever was asked; an empty value is left out of the binary header, where it would read
# as null. May assume: the frame is whole. Must not: know what a code means.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_Check
from libc.stdint cimport int32_t, uint8_t, uint32_t
cimport cython

from wireproto._codec_parts.endian cimport get_i16, get_i32, get_u32, put_u16, put_u32

cdef enum:
    HEADER_JSON = 0
    HEADER_BINARY = 1
    PYTHON_LANGUAGE = 3
    OTHER_LANGUAGE = 7
    OUR_VERSION = 409              # V4_9_8: from 401 on routes come as standard JSON; above 475 GO_AWAY must be obeyed

cdef tuple LANGUAGES = ("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST", "NODE_JS")


@cython.final
cdef class RemotingCommand:
    """One frame of RocketMQ: a request or a reply.

    Attributes: code, opaque, flag (1 reply, 2 one way), remark (str or None), ext (dict of str), body (a buffer), version, language
    (0 Java, 3 Python …), serializer (0 JSON, 1 ROCKETMQ: of a decoded frame, what it came in).
    """

    cdef public int32_t code
    cdef public int32_t opaque
    cdef public int32_t flag
    cdef public int32_t version
    cdef public int32_t language
    cdef public int32_t serializer
    cdef public object remark
    cdef public dict ext
    cdef public object body

    def __init__(self, code, opaque=0, *, flag=0, remark=None, ext=None, body=b"", version=OUR_VERSION, language=PYTHON_LANGUAGE,
                 int32_t serializer=HEADER_JSON):
        self.code, self.opaque, self.flag = number32(code, "code"), number32(opaque, "opaque"), number32(flag, "flag")
        self.version, self.language = number32(version, "version"), number32(language, "language")
        self.ext = {} if ext is None else dict(ext)
        self.remark, self.body, self.serializer = remark, body, serializer

    @property
    def is_reply(self):
        return (self.flag & 1) != 0

    @property
    def is_one_way(self):
        return (self.flag & 2) != 0

    def encode(self):
        """The buffers of the frame, without its length: [header part] or [header part, body].

        Raises:
            ValueUnsupported: a name or value is no text, or too long for the header.
        """
        cdef Writer w
        cdef Py_ssize_t size
        cdef int serializer = self.serializer
        if serializer == HEADER_BINARY and not -32768 <= self.code <= 32767:
            serializer = HEADER_JSON
        writer_init(&w)
        try:
            writer_need(&w, 4)
            if serializer == HEADER_BINARY:
                write_binary_header(&w, self)
            else:
                write_json_header(&w, self)
            size = w.size - 4
            if size > 0xffffff:
                raise ValueUnsupported(f"a header of {size} bytes, {0xffffff} fit", message=f"code {self.code}")
            put_u32(w.data, (<uint32_t> serializer << 24) | <uint32_t> size)
            head = writer_take(&w)
        finally:
            writer_free(&w)
        return [head, self.body] if len(self.body) else [head]

    @staticmethod
    def decode(frame):
        """The command that a frame (without its length) holds; its body is a view.

        Raises:
            Truncated, Malformed: with the byte offset.
        """
        return decode_command(frame)

    def __eq__(self, other):
        if not isinstance(other, RemotingCommand):
            return NotImplemented
        return command_facts(self) == command_facts(other)

    __hash__ = None

    def __repr__(self):
        names = ", ".join(self.ext)
        return (f"RemotingCommand(code={self.code}, opaque={self.opaque}, flag={self.flag}, remark={self.remark!r}, "
                f"ext=<{names}>, body=<{len(self.body)} bytes>)")


cdef int32_t number32(object value, str what) except? -1:
    """A header's number; ValueUnsupported: it has more than 32 bits."""
    try:
        return value
    except OverflowError:
        raise ValueUnsupported(f"{what} {value} does not fit 32 bits", message="RemotingCommand", path=what) from None


cdef tuple command_facts(RemotingCommand c):
    return c.code, c.opaque, c.flag, c.remark, c.ext, bytes(c.body), c.version, c.language


# ---- writing ------------------------------------------------------------------------------------------------------------------

cdef object text_of(object text, const char **p, Py_ssize_t *n, str what):
    """UTF-8 of a str; gives the object that the pointer points into."""
    if not PyUnicode_Check(text):
        raise ValueUnsupported(f"{what} must be str, not {type(text).__name__}")
    p[0] = utf8_of(<PyObject *> text, n)
    if p[0] is NULL:
        clear_error()
        text = text.encode("utf-8", "surrogatepass")
        p[0] = PyBytes_AS_STRING(text)
        n[0] = PyBytes_GET_SIZE(text)
    return text


cdef int write_binary_header(Writer *w, RemotingCommand c) except -1:
    cdef object keep = None
    cdef const char *p
    cdef Py_ssize_t n, at
    if not 0 <= c.language <= 255 or not -32768 <= c.version <= 32767:
        raise ValueUnsupported(f"language {c.language} or version {c.version} does not fit the binary header", message="RemotingCommand")
    put_u16(writer_need(w, 2), <unsigned short> c.code)
    writer_need(w, 1)[0] = <uint8_t> c.language
    put_u16(writer_need(w, 2), <unsigned short> c.version)
    put_u32(writer_need(w, 4), <uint32_t> c.opaque)
    put_u32(writer_need(w, 4), <uint32_t> c.flag)
    if c.remark is None:
        put_u32(writer_need(w, 4), 0)
    else:
        keep = text_of(c.remark, &p, &n, "remark")
        put_u32(writer_need(w, 4), <uint32_t> n)
        writer_bytes(w, p, n)
    writer_need(w, 4)
    at = w.size
    for name, value in c.ext.items():
        if value is None or value == "":
            continue
        keep = text_of(name, &p, &n, "a name in extFields")
        if n > 32767:
            raise ValueUnsupported(f"a name of {n} bytes in extFields")
        put_u16(writer_need(w, 2), <unsigned short> n)
        writer_bytes(w, p, n)
        keep = text_of(value, &p, &n, name)
        put_u32(writer_need(w, 4), <uint32_t> n)
        writer_bytes(w, p, n)
    put_u32(w.data + at - 4, <uint32_t> (w.size - at))
    return 0


# ---- reading ------------------------------------------------------------------------------------------------------------------

cdef struct Head:
    const uint8_t *begin
    const uint8_t *p
    const uint8_t *end


cdef object head_error(Head *h, kind, str text):
    return kind(text, message="RemotingCommand", offset=h.p - h.begin)


cdef object decode_command(object frame):
    cdef object owner = frame_owner(frame)
    cdef Py_ssize_t size = owner_size(owner)
    cdef Head h
    cdef uint32_t word
    cdef RemotingCommand c = RemotingCommand.__new__(RemotingCommand)
    h.begin = h.p = owner_data(owner)
    h.end = h.begin + size
    if size < 4:
        raise head_error(&h, Truncated, f"4 bytes needed, {size} left")
    word = get_u32(h.p)
    if <Py_ssize_t> (word & 0xffffff) > size - 4:
        raise head_error(&h, Truncated, f"a header of {word & 0xffffff} bytes, {size - 4} left")
    h.p += 4
    h.end = h.p + (word & 0xffffff)
    c.serializer = word >> 24
    c.ext = {}
    c.language = OTHER_LANGUAGE
    if c.serializer == HEADER_JSON:
        read_json_header(&h, c)
    elif c.serializer == HEADER_BINARY:
        read_binary_header(&h, c)
    else:
        h.p = h.begin
        raise head_error(&h, Malformed, f"header type {word >> 24} is neither JSON nor ROCKETMQ")
    c.body = new_slice(owner, h.end - h.begin, size)
    return c


cdef object read_utf8(Head *h, Py_ssize_t n):
    cdef PyObject *text = new_text(<const char *> h.p, n, NULL)
    if text is NULL:
        clear_error()
        text = new_text(<const char *> h.p, n, b"surrogatepass")
        if text is NULL:
            clear_error()
            raise head_error(h, Malformed, f"text of {n} bytes is not UTF-8")
    value = <object> text
    decref(text)
    h.p += n
    return value


cdef Py_ssize_t read_size(Head *h, int width) except -1:
    """A length of 2 or 4 bytes, checked against what is left."""
    cdef Py_ssize_t n
    if h.end - h.p < width:
        raise head_error(h, Truncated, f"{width} bytes needed, {h.end - h.p} left")
    n = get_i16(h.p) if width == 2 else get_i32(h.p)
    if n < 0:
        raise head_error(h, Malformed, f"length {n}")
    if n > h.end - h.p - width:
        raise head_error(h, Truncated, f"{n} bytes needed, {h.end - h.p - width} left")
    h.p += width
    return n


cdef int read_binary_header(Head *h, RemotingCommand c) except -1:
    cdef Py_ssize_t n
    if h.end - h.p < 21:
        raise head_error(h, Truncated, f"the binary header has at least 21 bytes, {h.end - h.p} left")
    c.code = get_i16(h.p)
    c.language = h.p[2]
    c.version = get_i16(h.p + 3)
    c.opaque = get_i32(h.p + 5)
    c.flag = get_i32(h.p + 9)
    h.p += 13
    n = read_size(h, 4)
    if n:
        c.remark = read_utf8(h, n)
    n = read_size(h, 4)
    if n != h.end - h.p:
        h.p -= 4
        raise head_error(h, Malformed, f"fields of {n} bytes, {h.end - h.p - 4} left")
    while h.p < h.end:
        n = read_size(h, 2)
        name = near_name(h.p, n)
        if name is None:
            name = read_utf8(h, n)
        else:
            h.p += n
        n = read_size(h, 4)
        if n:
            c.ext[name] = read_utf8(h, n)
    return 0
