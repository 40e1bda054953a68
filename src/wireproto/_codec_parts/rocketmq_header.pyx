# RemotingCommand: RocketMQ's frame and its header in both encodings.
#
#     frame (after its length)   int32 h · header · body           h: top byte 0 JSON or 1 ROCKETMQ, low 24 bits the header's length
#     JSON header      code, extFields, flag, language (name), opaque, remark, serializeTypeCurrentRPC, version; absent when null
#     ROCKETMQ header  int16 code · uint8 language · int16 version · int32 opaque · int32 flag · int32+text remark
#                      · int32 length · { int16+text name · int32+text value }*             a length of 0 is null
#
# Of two equal names the last wins. Values of extFields that are not text (numbers, booleans) are taken as their text; null ones are left out.
# A code that does not fit int16 goes out as JSON whatever was asked; an empty value is left out of the binary header, where it would read
# as null. May assume: the frame is whole. Must not: know what a code means.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_Check
from cpython.unicode cimport PyUnicode_Check
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy
cimport cython

from wireproto._codec_parts.endian cimport get_i16, get_i32, get_u32, put_u16, put_u32

import json
from json.decoder import scanstring

cdef enum:
    HEADER_JSON = 0
    HEADER_BINARY = 1
    PYTHON_LANGUAGE = 3
    OTHER_LANGUAGE = 7
    OUR_VERSION = 409              # V4_9_8: from 401 on routes come as standard JSON; above 475 GO_AWAY must be obeyed
    JSON_DEPTH = 32

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


cdef int write_plain(Writer *w, const char *text) except -1:
    cdef Py_ssize_t n = 0
    while text[n]:
        n += 1
    return writer_bytes(w, text, n)


cdef int write_decimal(Writer *w, int64_t value) except -1:
    cdef uint8_t[20] digits
    cdef int n = 0
    cdef bint minus = value < 0
    if minus:
        value = -value
    while True:
        digits[n] = <uint8_t> (48 + value % 10)
        value //= 10
        n += 1
        if not value:
            break
    if minus:
        digits[n] = c'-'
        n += 1
    cdef uint8_t *p = writer_need(w, n)
    while n:
        n -= 1
        p[0] = digits[n]
        p += 1
    return 0


cdef int write_json_text(Writer *w, object text, str what) except -1:
    """A string, escaped as fastjson 2 does: control characters, quote and backslash, nothing else."""
    cdef object keep = None
    cdef const char *p
    cdef Py_ssize_t n, i, start = 0
    cdef uint8_t b
    if not PyUnicode_Check(text):
        raise ValueUnsupported(f"{what} must be str, not {type(text).__name__}")
    p = utf8_of(<PyObject *> text, &n)
    if p is NULL:  # a lone surrogate has no UTF-8
        clear_error()
        keep = json.dumps(text).encode()
        return writer_bytes(w, PyBytes_AS_STRING(keep), PyBytes_GET_SIZE(keep))
    writer_need(w, 1)[0] = c'"'
    for i in range(n):
        b = <uint8_t> p[i]
        if b >= 0x20 and b != c'"' and b != c'\\':
            continue
        writer_bytes(w, p + start, i - start)
        start = i + 1
        write_escaped(w, b)
    writer_bytes(w, p + start, n - start)
    writer_need(w, 1)[0] = c'"'
    return 0


cdef int write_escaped(Writer *w, uint8_t b) except -1:
    cdef const char *short = b"btn_fr"                         # of 8 to 13; 11 has none
    cdef const char *digits = b"0123456789abcdef"
    cdef uint8_t *to
    if b >= 0x20 or (8 <= b <= 13 and b != 11):
        to = writer_need(w, 2)
        to[0] = c'\\'
        to[1] = b if b >= 0x20 else short[b - 8]
    else:
        to = writer_need(w, 6)
        memcpy(to, b"\\u00", 4)
        to[4] = digits[b >> 4]
        to[5] = digits[b & 15]
    return 0


cdef int write_json_header(Writer *w, RemotingCommand c) except -1:
    cdef bint first = True
    write_plain(w, b'{"code":')
    write_decimal(w, c.code)
    if c.ext:
        write_plain(w, b',"extFields":{')
        for name, value in c.ext.items():
            if value is None:
                continue
            if not first:
                writer_need(w, 1)[0] = c','
            first = False
            write_json_text(w, name, "a name in extFields")
            writer_need(w, 1)[0] = c':'
            write_json_text(w, value, name)
        writer_need(w, 1)[0] = c'}'
    write_plain(w, b',"flag":')
    write_decimal(w, c.flag)
    write_plain(w, b',"language":')
    write_json_text(w, LANGUAGES[c.language] if 0 <= c.language < len(LANGUAGES) else "OTHER", "language")
    write_plain(w, b',"opaque":')
    write_decimal(w, c.opaque)
    if c.remark is not None:
        write_plain(w, b',"remark":')
        write_json_text(w, c.remark, "remark")
    write_plain(w, b',"serializeTypeCurrentRPC":"JSON","version":')
    write_decimal(w, c.version)
    writer_need(w, 1)[0] = c'}'
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
        name = read_utf8(h, n)
        n = read_size(h, 4)
        if n:
            c.ext[name] = read_utf8(h, n)
    return 0


cdef inline int skip_blanks(Head *h) noexcept:
    """The next byte that is no white space, or -1 at the end."""
    while h.p < h.end and (h.p[0] == 32 or 9 <= h.p[0] <= 13):
        h.p += 1
    return h.p[0] if h.p < h.end else -1


cdef object read_json_text(Head *h):
    """A string; h.p stands on its first quote."""
    cdef const uint8_t *first = h.p
    cdef const uint8_t *q = h.p + 1
    cdef bint plain = True
    while q < h.end and q[0] != c'"':
        if q[0] == c'\\':
            plain = False
            q += 1
        elif q[0] < 0x20:
            plain = False
        q += 1
    if q >= h.end:
        raise head_error(h, Truncated, "a string without its end")
    if plain:
        h.p += 1
        text = read_utf8(h, q - h.p)
        h.p += 1
        return text
    try:
        text = scanstring((<const char *> first)[:q + 1 - first].decode("utf-8", "surrogatepass"), 1, False)[0]
    except ValueError:
        raise head_error(h, Malformed, "a string that does not read") from None
    h.p = q + 1
    return text


cdef object read_json_scalar(Head *h):
    """A number, true, false or null as str or None (its own text)."""
    cdef const uint8_t *first = h.p
    while h.p < h.end and (h.p[0] == c'-' or h.p[0] == c'+' or h.p[0] == c'.' or c'0' <= h.p[0] <= c'9'
                           or c'a' <= h.p[0] <= c'z' or c'A' <= h.p[0] <= c'Z'):
        h.p += 1
    text = (<const char *> first)[:h.p - first].decode("ascii")
    if text == "null":
        return None
    if text not in ("true", "false"):
        try:
            float(text)
        except ValueError:
            h.p = first
            raise head_error(h, Malformed, "a value that does not read") from None
    return text


cdef int skip_json(Head *h, int depth) except -1:
    """Steps over a value of any kind."""
    cdef int b = skip_blanks(h)
    cdef int close
    if b == c'"':
        read_json_text(h)
    elif b == c'{' or b == c'[':
        if depth >= JSON_DEPTH:
            raise head_error(h, Malformed, f"nested deeper than {JSON_DEPTH}")
        close = c'}' if b == c'{' else c']'
        h.p += 1
        b = skip_blanks(h)
        while b != close:
            if b < 0:
                raise head_error(h, Truncated, "the JSON header ends too soon")
            if b == c',' or b == c':':
                h.p += 1
            else:
                skip_json(h, depth + 1)
            b = skip_blanks(h)
        h.p += 1
    elif b < 0:
        raise head_error(h, Truncated, "the JSON header ends too soon")
    else:
        read_json_scalar(h)
    return 0


cdef object next_name(Head *h, bint *first):
    """The next name of an object with its colon stepped over, or None behind its brace."""
    cdef int b = skip_blanks(h)
    if b == c'}':
        h.p += 1
        return None
    if not first[0]:
        if b != c',':
            raise head_error(h, Truncated if b < 0 else Malformed, "a comma or brace expected")
        h.p += 1
        b = skip_blanks(h)
    first[0] = False
    if b != c'"':
        raise head_error(h, Truncated if b < 0 else Malformed, "a name expected")
    name = read_json_text(h)
    if skip_blanks(h) != c':':
        raise head_error(h, Truncated if h.p >= h.end else Malformed, "a colon expected")
    h.p += 1
    return name


cdef int32_t read_json_number(Head *h, str name) except? -1:
    cdef const uint8_t *at = h.p
    skip_blanks(h)
    text = read_json_scalar(h) if h.p < h.end and h.p[0] != c'"' else None
    try:
        number = int(text)
        if -2147483648 <= number <= 2147483647:
            return number
    except (TypeError, ValueError):
        pass
    h.p = at
    raise head_error(h, Malformed, f"{name} is no number of 32 bits")


cdef object read_json_value(Head *h):
    """Text of a string or scalar; None for null."""
    cdef int b = skip_blanks(h)
    if b == c'"':
        return read_json_text(h)
    if b < 0 or b == c'{' or b == c'[':
        raise head_error(h, Truncated if b < 0 else Malformed, "a text expected")
    return read_json_scalar(h)


cdef int read_json_ext(Head *h, dict ext) except -1:
    cdef bint first = True
    cdef int b = skip_blanks(h)
    if b != c'{':
        if b == c'n' and read_json_scalar(h) is None:
            return 0
        raise head_error(h, Malformed, "extFields is no object")
    h.p += 1
    while (name := next_name(h, &first)) is not None:
        value = read_json_value(h)
        if value is not None:
            ext[name] = value
    return 0


cdef int read_json_header(Head *h, RemotingCommand c) except -1:
    cdef bint first = True
    cdef bint coded = False
    if skip_blanks(h) != c'{':
        raise head_error(h, Malformed, "the JSON header is no object")
    h.p += 1
    while (name := next_name(h, &first)) is not None:
        if name == "code":
            c.code = read_json_number(h, name)
            coded = True
        elif name == "opaque":
            c.opaque = read_json_number(h, name)
        elif name == "flag":
            c.flag = read_json_number(h, name)
        elif name == "version":
            c.version = read_json_number(h, name)
        elif name == "remark":
            c.remark = read_json_value(h)
        elif name == "language":
            value = read_json_value(h)
            c.language = LANGUAGES.index(value) if value in LANGUAGES else OTHER_LANGUAGE
        elif name == "extFields":
            read_json_ext(h, c.ext)
        else:
            skip_json(h, 0)
    if skip_blanks(h) >= 0:
        raise head_error(h, Malformed, "bytes behind the JSON header's object")
    if not coded:
        raise head_error(h, Malformed, "the JSON header has no code")
    return 0
