"""RemotingCommand: what RocketMQ's servers and clients say to each other, as frames and back.

    frame (after its length)   int32 h · header · body          h: top byte 0 JSON or 1 ROCKETMQ, low 24 bits the header's length
    JSON header      code, language (name), version, opaque, flag, remark, extFields, serializeTypeCurrentRPC; absent when null
    ROCKETMQ header  int16 code · uint8 language · int16 version · int32 opaque · int32 flag · int32+text remark
                     · int32 length · { int16+text name · int32+text value }*              a length of 0 is null
    flag             1 response, 2 one way

A reply's type is told by its own type byte alone: 4.9 answers in the request's type (33 and 12 in its own), 5.x always in its own.
Codes above 32,767 do not fit the ROCKETMQ header; such a command goes out as JSON whatever was chosen.
May assume: the engine has taken the length off, and checked it. Must not: know sockets. Text is UTF-8; the last of two equal names wins.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from wireproto.errors import AuthError, BrokerError, Malformed, Truncated

from . import codes

JSON: Final = 0
ROCKETMQ: Final = 1
RESPONSE: Final = 1
ONE_WAY: Final = 2

VERSION: Final = 409
"""What we say we are (V4_9_8): at least 401 for standard JSON in routes, not above 475, whose clients must obey GO_AWAY."""
PYTHON: Final = 3
LANGUAGES: Final = ("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST", "NODE_JS")

SEND_WARNINGS: Final = frozenset({10, 11, 12})
"""Sent and stored, though not as safely as configured (disk or slave was late): answers, not errors."""

_FIXED = struct.Struct(">hBhiii")


@dataclass(frozen=True, slots=True)
class Command:
    """One frame: a request or a reply."""

    code: int
    opaque: int
    flag: int = 0
    remark: str | None = None
    ext: Mapping[str, str] = field(default_factory=dict)
    body: memoryview = field(default=memoryview(b""), repr=False)
    version: int = VERSION
    language: int = PYTHON
    serializer: int = JSON

    @property
    def is_reply(self) -> bool:
        return bool(self.flag & RESPONSE)


def encode(
    code: int, opaque: int, ext: Mapping[str, str], body: bytes = b"", *, serializer: int = JSON, flag: int = 0, remark: str | None = None
) -> list[bytes]:
    """The buffers of a frame, without its length."""
    if serializer == ROCKETMQ and -0x8000 <= code <= 0x7FFF:
        header = _binary_header(code, opaque, ext, flag, remark)
    else:
        serializer, header = JSON, _json_header(code, opaque, ext, flag, remark)
    head = struct.pack(">I", serializer << 24 | len(header)) + header
    return [head, body] if body else [head]


def _json_header(code: int, opaque: int, ext: Mapping[str, str], flag: int, remark: str | None) -> bytes:
    tree: dict[str, object] = {"code": code}
    if ext:
        tree["extFields"] = ext
    tree |= {"flag": flag, "language": LANGUAGES[PYTHON], "opaque": opaque}
    if remark is not None:
        tree["remark"] = remark
    tree |= {"serializeTypeCurrentRPC": "JSON", "version": VERSION}
    return json.dumps(tree, separators=(",", ":")).encode()


def _binary_header(code: int, opaque: int, ext: Mapping[str, str], flag: int, remark: str | None) -> bytes:
    fields = bytearray()
    for name, value in ext.items():
        if value:  # a zero length would be read as null
            key, text = name.encode(), value.encode("utf-8", "surrogatepass")
            fields += struct.pack(">h", len(key)) + key + struct.pack(">i", len(text)) + text
    note = (remark or "").encode()
    return _FIXED.pack(code, PYTHON, VERSION, opaque, flag, len(note)) + note + struct.pack(">i", len(fields)) + fields


def decode(frame: bytes) -> Command:
    """Read a frame.

    Raises:
        Truncated, Malformed: with the byte offset in the frame.
    """
    if len(frame) < 4:
        raise Truncated("a remoting frame has a header length of 4 bytes", offset=len(frame))
    serializer, length = frame[0], int.from_bytes(frame[1:4], "big")
    if 4 + length > len(frame):
        raise Truncated(f"the header has {length} bytes, the frame {len(frame) - 4}", offset=0)
    if serializer == JSON:
        return _read_json(frame, 4 + length)
    if serializer == ROCKETMQ:
        return _read_binary(frame, 4 + length)
    raise Malformed(f"header type {serializer} is neither JSON nor ROCKETMQ", offset=0)


def _read_json(frame: bytes, end: int) -> Command:
    try:
        tree = json.loads(frame[4:end])
        ext = tree.get("extFields") or {}
        language = tree.get("language")
        command = Command(
            code=tree["code"],
            opaque=tree.get("opaque", 0),
            flag=tree.get("flag", 0),
            remark=tree.get("remark"),
            ext={name: value for name, value in ext.items() if value is not None},
            body=memoryview(frame)[end:],
            version=tree.get("version", 0),
            language=LANGUAGES.index(language) if language in LANGUAGES else 7,
            serializer=JSON,
        )
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as why:
        raise Malformed(f"the JSON header does not read: {type(why).__name__}", offset=4) from None
    numbers = (command.code, command.opaque, command.flag, command.version)
    texts_only = all(isinstance(value, str) for value in command.ext.values())
    if not all(type(number) is int for number in numbers) or not texts_only or not isinstance(command.remark, str | None):
        raise Malformed("a field of the JSON header has the wrong type", offset=4)
    return command


def _read_binary(frame: bytes, end: int) -> Command:
    if end < 4 + 21:
        raise Truncated("the binary header has at least 21 bytes", offset=end)
    code, language, version, opaque, flag, length = _FIXED.unpack_from(frame, 4)
    remark, at = _text(frame, 4 + _FIXED.size, length, end)
    if end - at < 4:
        raise Truncated("the binary header ends before its fields", offset=end)
    (size,) = struct.unpack_from(">i", frame, at)
    at += 4
    if size < 0 or at + size > end:
        raise Malformed(f"fields of {size} bytes, {end - at} are left", offset=at - 4)
    ext: dict[str, str] = {}
    stop = at + size
    while at < stop:
        if stop - at < 2:
            raise Truncated("a field's name has a length of 2 bytes", offset=at)
        (length,) = struct.unpack_from(">h", frame, at)
        name, at = _text(frame, at + 2, length, stop)
        if stop - at < 4:
            raise Truncated("a field's value has a length of 4 bytes", offset=at)
        (length,) = struct.unpack_from(">i", frame, at)
        value, at = _text(frame, at + 4, length, stop)
        if value:
            ext[name] = value
    return Command(code, opaque, flag, remark or None, ext, memoryview(frame)[end:], version, language, ROCKETMQ)


def _text(frame: bytes, at: int, length: int, end: int) -> tuple[str, int]:
    if length < 0 or at + length > end:
        raise Malformed(f"a text of {length} bytes, {end - at} are left", offset=at)
    try:
        return frame[at : at + length].decode("utf-8"), at + length
    except UnicodeDecodeError as why:
        raise Malformed("a text of the header is not UTF-8", offset=at + why.start) from None


def error_of(reply: Command, **context: object) -> BrokerError:
    """The typed error of a reply's code.

    Code 1 says anything: ACL refusals of the 4.9 line are told by their remark, and so is a broker that sheds load.
    """
    remark = reply.remark or ""
    short = remark.splitlines()[0].removeprefix("CODE: ").strip()[:400] if remark else ""
    if reply.code == 1 and ("AclException" in remark or "Check signature failed" in remark):
        return AuthError(short, code=1, name="SYSTEM_ERROR", **context)
    error = codes.error(reply.code, short, **context)
    if reply.code == 1 and ("broker busy" in remark or "UNKNOWN_ERROR" in remark):
        error.retriable = True
    return error
