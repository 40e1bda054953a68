# RocketMQ's JSON header: written as fastjson writes it (but without its blanks), read whatever order, blanks and escapes it has.
#
# Text is scanned eight bytes at a time for what ends its plain part; names are kept by their bytes, since the same few come all the time.
# Read as Python's json module reads (strict=False): raw control characters pass, \u escapes of a pair of surrogates are one character.
# May assume: the header lies in one piece. Must not: know a field's meaning.

from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, strlen

import json

cdef extern from "Python.h":
    """
    #define WP_EACH(b) (0x0101010101010101ULL * (b))
    #define WP_ZERO_BYTE(v) (((v) - WP_EACH(1)) & ~(v) & WP_EACH(0x80))

    /* How many bytes pass before a quote, a backslash or a control character; *ascii: all of them are. */
    static inline Py_ssize_t wp_plain_run(const uint8_t *p, const uint8_t *end, int *ascii) {
        const uint8_t *q = p;
        uint64_t v, seen = 0;
        while (end - q >= 8) {
            memcpy(&v, q, 8);
            if (WP_ZERO_BYTE(v ^ WP_EACH('"')) | WP_ZERO_BYTE(v ^ WP_EACH('\\\\')) | ((v - WP_EACH(0x20)) & ~v & WP_EACH(0x80))) break;
            seen |= v;
            q += 8;
        }
        while (q < end && *q != '"' && *q != '\\\\' && *q >= 0x20) seen |= *q++;
        *ascii = !(seen & WP_EACH(0x80));
        return q - p;
    }

    static inline int wp_hex4(const uint8_t *p, const uint8_t *end) {
        int i, n = 0;
        if (end - p < 4) return -1;
        for (i = 0; i < 4; i++) {
            int c = p[i];
            int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
            if (d < 0) return -1;
            n = n << 4 | d;
        }
        return n;
    }

    /* The text between two quotes without its escapes, as UTF-8 with lone surrogates in it; never longer than it was. -1: a wrong escape. */
    static Py_ssize_t wp_unescape(const uint8_t *p, const uint8_t *end, uint8_t *out) {
        uint8_t *q = out;
        Py_ssize_t n;
        int u, low;
        while (p < end) {
            if (*p != '\\\\') {
                n = wp_plain_run(p, end, &u);
                if (n == 0) n = 1;                  /* a raw control character */
                memcpy(q, p, n);
                q += n;
                p += n;
                continue;
            }
            if (++p >= end) return -1;
            switch (*p++) {
            case '"': *q++ = '"'; break;
            case '\\\\': *q++ = '\\\\'; break;
            case '/': *q++ = '/'; break;
            case 'b': *q++ = 8; break;
            case 'f': *q++ = 12; break;
            case 'n': *q++ = 10; break;
            case 'r': *q++ = 13; break;
            case 't': *q++ = 9; break;
            case 'u':
                u = wp_hex4(p, end);
                if (u < 0) return -1;
                p += 4;
                if (u >= 0xd800 && u < 0xdc00 && end - p >= 6 && p[0] == '\\\\' && p[1] == 'u') {
                    low = wp_hex4(p + 2, end);
                    if (low >= 0xdc00 && low < 0xe000) {
                        p += 6;
                        u = 0x10000 + ((u - 0xd800) << 10) + (low - 0xdc00);
                    }
                }
                if (u < 0x80) *q++ = (uint8_t)u;
                else if (u < 0x800) { *q++ = (uint8_t)(0xc0 | u >> 6); *q++ = (uint8_t)(0x80 | (u & 63)); }
                else {
                    if (u < 0x10000) *q++ = (uint8_t)(0xe0 | u >> 12);
                    else { *q++ = (uint8_t)(0xf0 | u >> 18); *q++ = (uint8_t)(0x80 | (u >> 12 & 63)); }
                    *q++ = (uint8_t)(0x80 | (u >> 6 & 63));
                    *q++ = (uint8_t)(0x80 | (u & 63));
                }
                break;
            default: return -1;
            }
        }
        return q - out;
    }

    /* Text with the escapes that JSON wants; `out` has room for six times its length. */
    static uint8_t *wp_escape(const uint8_t *p, Py_ssize_t n, uint8_t *out) {
        static const char hex[] = "0123456789abcdef";
        const uint8_t *end = p + n;
        for (; p < end; p++) {
            uint8_t b = *p;
            char s = b == '"' ? '"' : b == '\\\\' ? '\\\\' : b == 8 ? 'b' : b == 9 ? 't' : b == 10 ? 'n' : b == 12 ? 'f' : b == 13 ? 'r' : 0;
            if (s) { *out++ = '\\\\'; *out++ = (uint8_t)s; }
            else if (b >= 0x20) *out++ = b;
            else {
                memcpy(out, "\\\\u00", 4);
                out[4] = (uint8_t)hex[b >> 4];
                out[5] = (uint8_t)hex[b & 15];
                out += 6;
            }
        }
        return out;
    }

    static inline PyObject *wp_ascii_text(const uint8_t *p, Py_ssize_t n) {
        PyObject *text;
        if (n < 2) return PyUnicode_DecodeUTF8((const char *)p, n, NULL);       /* CPython has these ready */
        text = PyUnicode_New(n, 127);
        if (text) memcpy(PyUnicode_1BYTE_DATA(text), p, n);
        return text;
    }
    #ifdef Py_GIL_DISABLED
    #define WP_NAMES_KEPT 0
    #else
    #define WP_NAMES_KEPT 1
    #endif
    """
    Py_ssize_t plain_run "wp_plain_run"(const uint8_t *p, const uint8_t *end, int *ascii) noexcept
    Py_ssize_t unescape "wp_unescape"(const uint8_t *p, const uint8_t *end, uint8_t *out) noexcept
    uint8_t *escape "wp_escape"(const uint8_t *p, Py_ssize_t n, uint8_t *out) noexcept
    object ascii_text "wp_ascii_text"(const uint8_t *p, Py_ssize_t n)
    bint NAMES_KEPT "WP_NAMES_KEPT"

cdef enum:
    JSON_DEPTH = 32
    NEAR_NAMES = 256
    LONGEST_NEAR_NAME = 40

cdef enum Part:
    PART_CODE = 1
    PART_EXT_FIELDS, PART_FLAG, PART_LANGUAGE, PART_OPAQUE, PART_VERSION, PART_REMARK

cdef dict HEADER_PARTS = {
    "code": PART_CODE, "extFields": PART_EXT_FIELDS, "flag": PART_FLAG, "language": PART_LANGUAGE, "opaque": PART_OPAQUE,
    "version": PART_VERSION, "remark": PART_REMARK,
}

cdef PyObject *near_names[NEAR_NAMES]       # owned; exact ASCII str
cdef dict LANGUAGE_CODES = {name: code for code, name in enumerate(LANGUAGES)}


cdef object near_name(const uint8_t *p, Py_ssize_t n):
    """A name by its bytes, the same object for equal ones as a rule; None when it is long or not ASCII."""
    cdef size_t at
    cdef PyObject *near
    cdef int ascii
    if not NAMES_KEPT or n < 1 or n > LONGEST_NEAR_NAME:
        return None
    at = (<size_t> n * 31 + <size_t> p[0] * 7 + <size_t> p[n - 1] * 13 + <size_t> p[n >> 1] * 5) % NEAR_NAMES
    near = near_names[at]
    if near is not NULL and text_length(near) == n and memcmp(text_data(near), p, n) == 0:
        return <object> near
    if plain_run(p, p + n, &ascii) != n or not ascii:
        return None
    name = ascii_text(p, n)
    hash(name)
    near_names[at] = ref(<PyObject *> name)
    xdecref(near)
    return name


# ---- writing ------------------------------------------------------------------------------------------------------------------

cdef inline int write_plain(Writer *w, const char *text) except -1:
    return writer_bytes(w, text, strlen(text))


cdef int write_decimal(Writer *w, int64_t value) except -1:
    cdef uint8_t[20] digits
    cdef int n = 0
    cdef bint minus = value < 0
    cdef uint64_t left = <uint64_t>value
    if minus:
        left = -left
    while True:
        digits[n] = <uint8_t> (48 + left % 10)
        left //= 10
        n += 1
        if not left:
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
    cdef Py_ssize_t n
    cdef int ascii
    cdef uint8_t *room
    if text_is_ascii(<PyObject *> text):
        p = text_data(<PyObject *> text)
        n = text_length(<PyObject *> text)
    else:
        if not PyUnicode_Check(text):
            raise ValueUnsupported(f"{what} must be str, not {type(text).__name__}")
        p = utf8_of(<PyObject *> text, &n)
        if p is NULL:                       # lone surrogates have no UTF-8: escapes they become
            clear_error()
            keep = json.dumps(text).encode()
            return writer_bytes(w, PyBytes_AS_STRING(keep), PyBytes_GET_SIZE(keep))
    if plain_run(<const uint8_t *> p, <const uint8_t *> p + n, &ascii) == n:
        room = writer_need(w, n + 2)
        room[0] = room[n + 1] = c'"'
        memcpy(room + 1, p, n)
        return 0
    if n > 0xffffff:
        raise ValueUnsupported(f"{what} has {n} bytes, a header {0xffffff} at most")
    room = writer_need(w, 6 * n + 2)
    room[0] = c'"'
    room = escape(<const uint8_t *> p, n, room + 1)
    room[0] = c'"'
    w.size = room + 1 - w.data
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

cdef inline int skip_blanks(Head *h) noexcept:
    """The next byte that is no white space, or -1 at the end."""
    while h.p < h.end and (h.p[0] == 32 or 9 <= h.p[0] <= 13):
        h.p += 1
    return h.p[0] if h.p < h.end else -1


cdef object read_json_text(Head *h):
    """A string; h.p stands on its first quote."""
    cdef const uint8_t *first = h.p + 1
    cdef int ascii
    cdef Py_ssize_t n = plain_run(first, h.end, &ascii)
    if first + n >= h.end or first[n] != c'"':
        return read_escaped_text(h)
    if ascii:
        text = ascii_text(first, n)
        h.p = first + n + 1
        return text
    h.p = first
    text = read_utf8(h, n)
    h.p += 1
    return text


cdef object read_escaped_text(Head *h):
    """A string with escapes or control characters in it."""
    cdef const uint8_t *first = h.p + 1
    cdef const uint8_t *q = first
    cdef const uint8_t *kept = h.p
    cdef uint8_t[512] small
    cdef uint8_t *buffer = small
    cdef Py_ssize_t n
    cdef int ascii
    while True:
        q += plain_run(q, h.end, &ascii)
        if q < h.end and q[0] == c'"':
            break
        q += 2 if q < h.end and q[0] == c'\\' else 1
        if q >= h.end:
            raise head_error(h, Truncated, "a string without its end")
    if q - first > 512:
        buffer = <uint8_t *> malloc(q - first)
        if buffer is NULL:
            raise MemoryError()
    try:
        n = unescape(first, q, buffer)
        if n < 0:
            raise head_error(h, Malformed, "a string that does not read")
        text = utf8_or_none(buffer, n)
    finally:
        if buffer != small:
            free(buffer)
    if text is None:
        h.p = kept
        raise head_error(h, Malformed, f"text of {n} bytes is not UTF-8")
    h.p = q + 1
    return text


cdef object utf8_or_none(const uint8_t *p, Py_ssize_t n):
    cdef PyObject *text = new_text(<const char *> p, n, NULL)
    if text is NULL:
        clear_error()
        text = new_text(<const char *> p, n, b"surrogatepass")
        if text is NULL:
            clear_error()
            return None
    found = <object> text
    decref(text)
    return found


cdef object read_json_scalar(Head *h):
    """A number, true, false or null as str or None (its own text)."""
    cdef const uint8_t *first = h.p
    cdef bint digits = True
    while h.p < h.end and (h.p[0] == c'-' or h.p[0] == c'+' or h.p[0] == c'.' or c'0' <= h.p[0] <= c'9'
                           or c'a' <= h.p[0] <= c'z' or c'A' <= h.p[0] <= c'Z'):
        digits &= c'0' <= h.p[0] <= c'9'
        h.p += 1
    text = ascii_text(first, h.p - first)
    if digits and h.p > first:
        return text
    if text == "null":
        return None
    if text not in ("true", "false"):
        try:
            float(text)
        except ValueError:
            if h.p >= h.end:
                raise head_error(h, Truncated, "the JSON header ends too soon") from None
            h.p = first
            raise head_error(h, Malformed, "a value that does not read") from None
    return text


cdef int skip_json(Head *h, int depth) except -1:
    """Steps over a value of any kind."""
    cdef int b = skip_blanks(h)
    cdef int close, ascii
    cdef Py_ssize_t n
    if b == c'"':
        n = plain_run(h.p + 1, h.end, &ascii)
        if ascii and n + 1 < h.end - h.p and h.p[n + 1] == c'"':
            h.p += n + 2
        else:
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
    cdef int ascii
    cdef Py_ssize_t n
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
    n = plain_run(h.p + 1, h.end, &ascii)
    name = None
    if h.p + 1 + n < h.end and h.p[1 + n] == c'"':
        name = near_name(h.p + 1, n)
    if name is None:
        name = read_json_text(h)
    else:
        h.p += n + 2
    if skip_blanks(h) != c':':
        raise head_error(h, Truncated if h.p >= h.end else Malformed, "a colon expected")
    h.p += 1
    return name


cdef int32_t read_json_number(Head *h, str name) except? -1:
    cdef const uint8_t *at = h.p
    cdef const uint8_t *p
    cdef int64_t n = 0
    skip_blanks(h)
    p = h.p
    while p < h.end and c'0' <= p[0] <= c'9' and p - h.p < 9:
        n = n * 10 + (p[0] - 48)
        p += 1
    if p > h.p and p < h.end and (p[0] == c',' or p[0] == c'}'):        # the usual number
        h.p = p
        return <int32_t> n
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
    cdef int part
    if skip_blanks(h) != c'{':
        raise head_error(h, Malformed, "the JSON header is no object")
    h.p += 1
    while (name := next_name(h, &first)) is not None:
        part = HEADER_PARTS.get(name, 0)
        if part == PART_CODE:
            c.code = read_json_number(h, name)
            coded = True
        elif part == PART_EXT_FIELDS:
            read_json_ext(h, c.ext)
        elif part == PART_FLAG:
            c.flag = read_json_number(h, name)
        elif part == PART_LANGUAGE:
            c.language = LANGUAGE_CODES.get(read_json_value(h), OTHER_LANGUAGE)
        elif part == PART_OPAQUE:
            c.opaque = read_json_number(h, name)
        elif part == PART_VERSION:
            c.version = read_json_number(h, name)
        elif part == PART_REMARK:
            c.remark = read_json_value(h)
        else:
            skip_json(h, 0)
    if skip_blanks(h) >= 0:
        raise head_error(h, Malformed, "bytes behind the JSON header's object")
    if not coded:
        raise head_error(h, Malformed, "the JSON header has no code")
    return 0
