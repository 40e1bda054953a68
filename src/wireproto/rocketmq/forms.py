"""Shows RocketMQ's frames and stored messages as JSON, and encodes them from it, for `wireproto.wire`.

    Frame           int32 length · int32 header type and length · header, JSON or binary · body
    StoredMessage   as brokers keep it and pulls return it: the table is in the core's decoder
    MessageBatch    the body of code 320: int32 size · int32 0 · int32 0 · int32 flag · int32+body · int16+properties, one after the other
    SendMessageRequest …    a Frame whose extFields are shown with the types of that command

As JSON a frame has the names of RemotingCommand. ``body`` is base64; where it is text, ``bodyText`` shows it too, and is used for encoding
when there is no body. Properties are an object; ``propertiesOpen`` says that the last one has no separator behind it. Of a stored message
``storeSize`` is computed when encoding, and so is a ``bodyCRC`` that is not given.
A header can be written in more than one way (blanks, order of its fields, escapes, names that occur twice). Where our encoder would write
other bytes, ``header`` holds the original ones, and encoding uses them as long as they mean the same as the other fields.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any, Final

from wireproto._codec import ExtMessage, RemotingCommand, crc32
from wireproto.errors import ChecksumMismatch, Malformed, ProtocolError, Truncated, ValueUnsupported
from wireproto.forms import Form, bytes_of, whole_frame
from wireproto.lines import Bytes, Line, base64_of
from wireproto.message import fields_of, messages

# fmt: off
LANGUAGES: Final = ("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS", "RUST", "NODE_JS")
# fmt: on
SERIALIZERS: Final = ("JSON", "ROCKETMQ")
_NUMBER: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")
MAGIC_V1: Final = 0xDAA320A7 - (1 << 32)
MAGIC_V2: Final = 0xDAA320AB - (1 << 32)


def forms() -> dict[str, Form]:
    """Return the forms by name: Frame, StoredMessage, MessageBatch, and a frame for each command and reply of the schema."""
    found: dict[str, Form] = {"Frame": Frame("Frame", None), "StoredMessage": StoredMessage(), "MessageBatch": MessageBatch()}
    for name, cls in messages("rocketmq").items():
        if issubclass(cls, ExtMessage):
            found[name] = Frame(name, cls)
    return found


class Frame:
    """Reads and writes a whole frame, its length included; with a class, extFields have that command's types."""

    versions = (0, 0)
    _NAMES = ("code", "language", "version", "opaque", "flag", "remark", "extFields", "serializeTypeCurrentRPC", "body", "bodyText")

    def __init__(self, name: str, cls: type[ExtMessage] | None) -> None:
        self.name, self.cls = name, cls

    def decode(self, version: int, data: bytes) -> dict[str, Any]:
        """Return a frame's fields; raises ProtocolError."""
        frame = whole_frame(data, self.name)
        try:
            found = RemotingCommand.decode(frame)
        except ProtocolError as error:
            error.message, error.offset = self.name, None if error.offset is None else error.offset + 4
            if isinstance(error, Truncated):  # the frame is whole, so its header contradicts itself
                raise Malformed(error.text, message=self.name, offset=error.offset) from None
            raise
        shown: dict[str, Any] = {
            "code": found.code,
            "language": LANGUAGES[found.language] if 0 <= found.language < len(LANGUAGES) else found.language,
            "version": found.version,
            "opaque": found.opaque,
            "flag": found.flag,
        }
        if found.remark is not None:
            shown["remark"] = found.remark
        shown["extFields"] = self._typed(found.ext)
        shown["serializeTypeCurrentRPC"] = SERIALIZERS[found.serializer]
        shown.update(_body(bytes(found.body)))
        if self._plain(shown) != data:
            shown["header"] = base64_of(frame[4 : 4 + int.from_bytes(frame[1:4], "big")])
        return shown

    def encode(self, version: int, fields: Mapping[str, Any]) -> bytes:
        """Return the frame of these fields; raises Malformed or ValueUnsupported."""
        if fields.get("header") is None:
            return self._plain({name: value for name, value in fields.items() if name != "header"})
        header = bytes_of(fields["header"], "header", self.name)
        if len(header) > 0xFFFFFF:
            raise ValueUnsupported(f"a header of {len(header)} bytes, {0xFFFFFF} fit", message=self.name, path="header")
        rest = header + _body_bytes(fields, self.name)
        kind = SERIALIZERS.index(fields["serializeTypeCurrentRPC"]) if fields.get("serializeTypeCurrentRPC") in SERIALIZERS else 0
        kept = (len(rest) + 4).to_bytes(4, "big") + (kind << 24 | len(header)).to_bytes(4, "big") + rest
        return kept if self.decode(version, kept) == dict(fields) else self.encode(version, {**fields, "header": None})

    def _plain(self, fields: Mapping[str, Any]) -> bytes:
        """Return the frame as our encoder writes it."""
        if strange := sorted(set(fields) - set(self._NAMES)):
            raise Malformed(f"no field {strange[0]!r}", message=self.name, path=strange[0])
        if "code" not in fields and not hasattr(self.cls, "CODE"):
            raise Malformed("code is missing", message=self.name, path="code")
        language = fields.get("language", "PYTHON")
        serializer = fields.get("serializeTypeCurrentRPC", "JSON")
        if language not in LANGUAGES and not (isinstance(language, int) and 0 <= language <= 255):
            raise Malformed(f"no language {language!r}", message=self.name, path="language")
        if serializer not in SERIALIZERS:
            raise Malformed(f"no header type {serializer!r}", message=self.name, path="serializeTypeCurrentRPC")
        ext = {} if fields.get("extFields") is None else fields["extFields"]
        remark = fields.get("remark")
        if not isinstance(ext, dict) or not (remark is None or isinstance(remark, str)):
            raise Malformed("extFields is an object, remark a text", message=self.name, path="extFields")
        command = RemotingCommand(
            _int32(fields.get("code", getattr(self.cls, "CODE", 0)), "code", self.name),
            _int32(fields.get("opaque", 0), "opaque", self.name),
            flag=_int32(fields.get("flag", 0), "flag", self.name),
            remark=remark,
            ext={name: _ext_text(value, name, self.name) for name, value in ext.items()},
            body=_body_bytes(fields, self.name),
            version=_int32(fields.get("version", 409), "version", self.name),
            language=language if isinstance(language, int) else LANGUAGES.index(language),
            serializer=SERIALIZERS.index(serializer),
        )
        body = b"".join(bytes(part) for part in command.encode())
        return len(body).to_bytes(4, "big") + body

    def explain(self, version: int, data: bytes) -> list[Line]:
        """Return each field of a frame with its offset and bytes; raises ProtocolError."""
        source = Bytes(data, self.name)
        size = source.note(0, "length", source.number(4))
        kind = source.number(1, "serializeTypeCurrentRPC")
        source.note(4, "serializeTypeCurrentRPC", SERIALIZERS[kind] if kind in (0, 1) else kind)
        head = source.note(5, "headerLength", source.number(3, signed=False))
        start = source.at
        if kind == 1:
            _binary_header(source)
        else:
            source.note(start, "header", source.take(head, "header").decode(errors="backslashreplace"))
        if source.at != start + head:
            raise source.error(Malformed, f"a header of {head} bytes has {source.at - start}", "header")
        start = source.at
        if start < source.stop:
            raw = source.take(source.stop - start)
            shown = _body(raw)
            source.note(start, "body", shown.get("bodyText", shown["body"]))
        if source.at != size + 4:
            raise source.error(Truncated if source.at < size + 4 else Malformed, f"a frame of {size} bytes has {source.at - 4}")
        return source.lines

    def _typed(self, ext: dict[str, str]) -> dict[str, Any]:
        """Return extFields with numbers and booleans where the command has such types and the text is their plain form."""
        if self.cls is None:
            return dict(ext)
        kinds = {field.vendor: field.type for field in fields_of(self.cls)}
        shown: dict[str, Any] = {}
        for name, text in ext.items():
            kind = kinds.get(name, "string")
            shown[name] = text
            if kind == "bool" and text in ("true", "false"):
                shown[name] = text == "true"
            elif kind.startswith("int") and _NUMBER.fullmatch(text):
                shown[name] = int(text)
        return shown


def _binary_header(source: Bytes) -> None:
    for path, size in (("code", 2), ("language", 1), ("version", 2), ("opaque", 4), ("flag", 4)):
        source.note(source.at, path, source.number(size, path))
    start = source.at
    source.note(start, "remark", source.take(source.number(4, "remark"), "remark").decode(errors="backslashreplace") or None)
    start = source.at
    stop = source.note(start, "extFields", source.number(4, "extFields")) + source.at
    while source.at < stop:
        start = source.at
        name = source.take(source.number(2, "extFields"), "extFields").decode(errors="backslashreplace")
        path = f"extFields.{name}"
        source.note(start, path, source.take(source.number(4, path), path).decode(errors="backslashreplace"))


def _body(data: bytes) -> dict[str, Any]:
    shown: dict[str, Any] = {"body": base64_of(data)}
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return shown
    if text and all(char >= " " or char in "\t\r\n" for char in text):
        shown["bodyText"] = text
    return shown


def _body_bytes(fields: Mapping[str, Any], message: str) -> bytes:
    if fields.get("body") is not None:
        return bytes_of(fields["body"], "body", message)
    text = fields.get("bodyText", "")
    if not isinstance(text, str):
        raise Malformed("a text expected", message=message, path="bodyText")
    return text.encode("utf-8", "surrogatepass")


def _int32(value: Any, path: str, message: str, bits: int = 32) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise Malformed("a whole number expected", message=message, path=path)
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise ValueUnsupported(f"{value} does not fit {bits} bits", message=message, path=path)
    return value


def _ext_text(value: Any, name: str, message: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if not isinstance(value, str):
        raise Malformed("a text expected", message=message, path=f"extFields.{name}")
    return value


class StoredMessage:
    """Reads and writes one message as brokers store it, v1 or v2, hosts v4 or v6."""

    versions = (0, 0)

    def decode(self, version: int, data: bytes) -> dict[str, Any]:
        """Return a stored message's fields; raises ProtocolError, also where the body's CRC is wrong."""
        fields, _ = self._read(data)
        body = bytes_of(fields["body"], "body", "StoredMessage")
        found = crc32(body) & 0x7FFFFFFF
        if body and found != fields["bodyCRC"]:
            text = f"CRC-32 {fields['bodyCRC']:#x} stored, {found:#x} found"
            raise ChecksumMismatch(text, message="StoredMessage", path="bodyCRC", offset=8)
        return fields

    def explain(self, version: int, data: bytes) -> list[Line]:
        """Return each field of a stored message with its offset and bytes; raises ProtocolError."""
        return self._read(data)[1]

    def encode(self, version: int, fields: Mapping[str, Any]) -> bytes:
        """Return the stored message of these fields; raises Malformed or ValueUnsupported."""
        body = _body_bytes(fields, "StoredMessage")
        magic = fields.get("magicCode", MAGIC_V1)
        if magic not in (MAGIC_V1, MAGIC_V2):
            raise Malformed(f"magic {magic!r} is no message", message="StoredMessage", path="magicCode")
        values = {"magicCode": magic, "bodyCRC": crc32(body) & 0x7FFFFFFF, **fields}
        topic = _text_bytes(values.get("topic", ""), "topic")
        properties = _properties_bytes(values)
        width = 1 if magic == MAGIC_V1 else 2
        if len(topic) >= 1 << (8 * width - 1) or len(properties) > 32767:
            raise ValueUnsupported("the topic or the properties are too long", message="StoredMessage", path="topic")

        def number(path: str, size: int) -> bytes:
            return _int32(values.get(path, 0), path, "StoredMessage", 8 * size).to_bytes(size, "big", signed=True)

        sys_flag = _int32(values.get("sysFlag", 0), "sysFlag", "StoredMessage")
        rest = b"".join((
            *(number(path, size) for path, size in _HEAD),
            _host_bytes(values.get("bornHost"), bool(sys_flag & 0x10), "bornHost"),
            number("storeTimestamp", 8),
            _host_bytes(values.get("storeHost"), bool(sys_flag & 0x20), "storeHost"),
            number("reconsumeTimes", 4),
            number("preparedTransactionOffset", 8),
            len(body).to_bytes(4, "big"),
            body,
            len(topic).to_bytes(width, "big"),
            topic,
            len(properties).to_bytes(2, "big"),
            properties,
        ))  # fmt: skip
        return (len(rest) + 4).to_bytes(4, "big") + rest

    @staticmethod
    def _read(data: bytes) -> tuple[dict[str, Any], list[Line]]:
        source = Bytes(data, "StoredMessage")
        shown: dict[str, Any] = {}

        def number(path: str, size: int) -> int:
            shown[path] = source.note(source.at, path, source.number(size, path))
            return int(shown[path])

        def text(path: str, size: int) -> str:
            start, length = source.at, source.number(size, path)
            return str(source.note(start, path, _utf8(source, source.take(length, path), path)))

        size = number("storeSize", 4)
        if size > len(data):
            raise source.error(Truncated, f"{size} bytes announced, there are {len(data)}", "storeSize")
        for path, width in _HEAD:
            number(path, width)
            if path == "magicCode" and shown[path] not in (MAGIC_V1, MAGIC_V2):
                raise source.error(Malformed, f"magic {shown[path] & 0xFFFFFFFF:#x} is no message", path)
        shown["bornHost"] = _host(source, bool(shown["sysFlag"] & 0x10), "bornHost")
        number("storeTimestamp", 8)
        shown["storeHost"] = _host(source, bool(shown["sysFlag"] & 0x20), "storeHost")
        number("reconsumeTimes", 4)
        number("preparedTransactionOffset", 8)
        start = source.at
        raw = source.take(source.number(4, "body"), "body")
        shown.update(_body(raw))
        source.note(start, "body", shown.get("bodyText", shown["body"]))
        shown["topic"] = text("topic", 1 if shown["magicCode"] == MAGIC_V1 else 2)
        shown.update(_properties(text("properties", 2)))
        if source.at != size or size != len(data):
            raise source.error(Malformed, f"a message of {size} bytes ends at {source.at}, there are {len(data)}")
        return shown, source.lines


class MessageBatch:
    """Reads and writes the messages of one command 320."""

    versions = (0, 0)
    _NAMES = ("flag", "body", "bodyText", "properties", "propertiesOpen")

    def decode(self, version: int, data: bytes) -> dict[str, Any]:
        """Return the messages of a batch; raises ProtocolError."""
        return {"messages": self._read(data)[0]}

    def explain(self, version: int, data: bytes) -> list[Line]:
        """Return each field of a batch with its offset and bytes; raises ProtocolError."""
        return self._read(data)[1]

    def encode(self, version: int, fields: Mapping[str, Any]) -> bytes:
        """Return the batch of these messages; raises Malformed or ValueUnsupported."""
        items = fields.get("messages")
        if set(fields) != {"messages"} or not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise Malformed("messages, a list of objects, expected", message="MessageBatch", path="messages")
        return b"".join(self._one(item) for item in items)

    def _one(self, item: dict[str, Any]) -> bytes:
        if strange := sorted(set(item) - set(self._NAMES)):
            raise Malformed(f"no field {strange[0]!r}", message="MessageBatch", path=strange[0])
        body = _body_bytes(item, "MessageBatch")
        properties = _properties_bytes(item)
        if len(properties) > 32767:
            raise ValueUnsupported(f"{len(properties)} bytes of properties, 32767 fit", message="MessageBatch", path="properties")
        flag = _int32(item.get("flag", 0), "flag", "MessageBatch").to_bytes(4, "big", signed=True)
        rest = bytes(8) + flag + len(body).to_bytes(4, "big") + body + len(properties).to_bytes(2, "big") + properties
        return (len(rest) + 4).to_bytes(4, "big") + rest

    @staticmethod
    def _read(data: bytes) -> tuple[list[dict[str, Any]], list[Line]]:
        source = Bytes(data, "MessageBatch")
        found: list[dict[str, Any]] = []
        while source.at < len(data):
            start, path = source.at, f"messages[{len(found)}]"
            size = source.note(start, f"{path}.storeSize", source.number(4, path))
            for name in ("magicCode", "bodyCRC"):
                if source.note(source.at, f"{path}.{name}", source.number(4, path)):
                    raise source.error(Malformed, "zero expected", f"{path}.{name}")
            shown: dict[str, Any] = {"flag": source.note(source.at, f"{path}.flag", source.number(4, path))}
            at = source.at
            shown.update(_body(source.take(source.number(4, f"{path}.body"), f"{path}.body")))
            source.note(at, f"{path}.body", shown.get("bodyText", shown["body"]))
            at = source.at
            text = _utf8(source, source.take(source.number(2, f"{path}.properties"), f"{path}.properties"), f"{path}.properties")
            source.note(at, f"{path}.properties", text)
            shown.update(_properties(text))
            if source.at != start + size:
                raise source.error(Malformed, f"a message of {size} bytes has {source.at - start}", path)
            found.append(shown)
        return found, source.lines


def _utf8(source: Bytes, raw: bytes, path: str) -> str:
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise source.error(Malformed, "text that is not UTF-8", path) from None


def _text_bytes(value: Any, path: str) -> bytes:
    if not isinstance(value, str):
        raise Malformed("a text expected", message="StoredMessage", path=path)
    return value.encode("utf-8", "surrogatepass")


_HEAD: Final = (
    ("magicCode", 4), ("bodyCRC", 4), ("queueId", 4), ("flag", 4), ("queueOffset", 8), ("commitLogOffset", 8), ("sysFlag", 4),
    ("bornTimestamp", 8),
)  # fmt: skip


def _host(source: Bytes, v6: bool, path: str) -> str:
    start = source.at
    address = ipaddress.ip_address(source.take(16 if v6 else 4, path))
    port = source.number(4, path)
    return str(source.note(start, path, f"[{address}]:{port}" if v6 else f"{address}:{port}"))


def _host_bytes(text: Any, v6: bool, path: str) -> bytes:
    address, _, port = str(text if text is not None else ("[::]:0" if v6 else "0.0.0.0:0")).rpartition(":")
    try:
        packed = (ipaddress.IPv6Address(address.strip("[]")) if v6 else ipaddress.IPv4Address(address)).packed
        return packed + int(port).to_bytes(4, "big", signed=True)
    except (ValueError, OverflowError):
        raise Malformed(f"{text!r} is no host:port of this kind", message="StoredMessage", path=path) from None


def _properties(text: str) -> dict[str, Any]:
    """Return properties as an object where that loses nothing, else as text; `propertiesOpen`: no last separator, as before 5.2."""
    pairs = [item.split("\x01") for item in text.removesuffix("\x02").split("\x02")] if text else []
    if all(len(pair) == 2 for pair in pairs):
        found = {"properties": dict(pairs)} if text.endswith("\x02") or not text else {"properties": dict(pairs), "propertiesOpen": True}
        if _properties_bytes(found) == text.encode("utf-8", "surrogatepass"):
            return found
    return {"properties": text}


def _properties_bytes(fields: Mapping[str, Any]) -> bytes:
    value = fields.get("properties") or {}
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise Malformed("an object of texts, or a text, expected", message="StoredMessage", path="properties")
    text = "".join(f"{name}\x01{text}\x02" for name, text in value.items())
    return (text.removesuffix("\x02") if fields.get("propertiesOpen") else text).encode("utf-8", "surrogatepass")
