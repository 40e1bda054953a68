"""Encodes commands as frames, and decodes them, by the protobuf runtime.

Sans-IO. A frame here is what follows the 4-byte length that the engine writes and strips:

    [u32 command size][BaseCommand]                     every command
    [u32 command size][BaseCommand][stored entry]       SEND and MESSAGE; the core builds and reads these

Frames are whole; what an entry holds is not read here. A command with an unknown type or unknown fields is no error: `command_name` returns
None, and the caller passes over it.
"""

from __future__ import annotations

from typing import Any, Final, cast

from google.protobuf.message import DecodeError, Message

from wireproto.errors import Malformed, OptionError, Truncated

from . import PulsarApi_pb2 as api
from .codes import error_of

BaseCommand = api.BaseCommand

_FIELDS: Final = {field.number: field.name for field in BaseCommand.DESCRIPTOR.fields if field.number != 1}
_NUMBERS: Final = {cast("Any", field.message_type).full_name: field.number for field in BaseCommand.DESCRIPTOR.fields if field.number != 1}
_SHORT: Final = {name.rpartition(".")[2]: number for name, number in _NUMBERS.items()}

EARLIEST_ID: Final = 2**64 - 1
"""Ledger and entry of the id that means the first message there is; as an entry number alone it means "none yet"."""


def encode(command: Message) -> bytes:
    """Encode one command (CommandX, or a whole BaseCommand) as a frame.

    Raises:
        OptionError: it is no command of Pulsar's, or a required field is not set.
    """
    if isinstance(command, BaseCommand):
        base = command
    else:
        number = _NUMBERS.get(command.DESCRIPTOR.full_name)
        if number is None:
            raise OptionError(f"{command.DESCRIPTOR.name} is no command of Pulsar's")
        base = BaseCommand()
        base.type = number  # type: ignore[assignment]
        getattr(base, _FIELDS[number]).CopyFrom(command)
        getattr(base, _FIELDS[number]).SetInParent()
    missing = _missing(base)
    if missing:
        raise OptionError(f"{_FIELDS.get(base.type, 'command')}: {', '.join(missing)} not set")
    body = base.SerializeToString()
    return len(body).to_bytes(4, "big") + body


def command_bytes(frame: bytes, peer: str | None = None) -> bytes:
    """Return the command's own bytes of a frame; `peer` is named in errors.

    Raises:
        Truncated: the frame ends before its command does.
    """
    if len(frame) < 4:
        raise Truncated(f"a frame of {len(frame)} bytes has no command size", peer=peer, message="BaseCommand", offset=0)
    size = int.from_bytes(frame[:4], "big")
    if size > len(frame) - 4:
        raise Truncated(f"the command has {size} bytes, {len(frame) - 4} are left", peer=peer, message="BaseCommand", offset=0)
    return frame[4 : 4 + size]


def decode(frame: bytes, peer: str | None = None) -> BaseCommand:
    """Decode the command of a frame; `peer` is named in errors.

    Raises:
        Truncated: the frame ends before its command does.
        Malformed: not protobuf, a required field is missing, or text is not UTF-8.
    """
    base = BaseCommand()
    try:
        base.ParseFromString(command_bytes(frame, peer))
    except (DecodeError, UnicodeDecodeError) as why:
        raise Malformed("the command is not what the schema says", peer=peer, message="BaseCommand", offset=4) from why
    if base.HasField("type"):
        name = _FIELDS.get(base.type)
        if name is None or not base.HasField(name):  # type: ignore[arg-type]
            raise Malformed(f"a command of type {base.type} without its body", peer=peer, message="BaseCommand", offset=4)
        missing = _missing(base)
        if missing:
            raise Malformed(f"{name} lacks {', '.join(missing)}", peer=peer, message="BaseCommand", offset=4)
    return base


def command_name(base: BaseCommand) -> str | None:
    """Return the name of the field that holds the command (``lookupTopicResponse``), or None for a type newer than the schema."""
    return _FIELDS.get(base.type) if base.HasField("type") else None


def body(base: BaseCommand) -> Any:
    """Return the CommandX inside; raises Malformed for an unknown type."""
    name = command_name(base)
    if name is None:
        raise Malformed("a command of an unknown type", message="BaseCommand", offset=4)
    return getattr(base, name)


def reply_body(frame: bytes, peer: str | None = None, **context: Any) -> Any:
    """Return the CommandX of a reply.

    Args:
        frame: of the reply. peer: named in errors. context: topic, partition …: what an error should name.

    Raises:
        PulsarError: the reply is ERROR, or carries an error of its own.
        Truncated, Malformed: see `decode`.
    """
    reply = body(decode(frame, peer))
    raise_error(reply, peer, **context)
    return reply


def raise_error(reply: Any, peer: str | None = None, **context: Any) -> None:
    """Raise the error that a reply carries, in any of the fields that Pulsar uses for it; return where it carries none."""
    fields = reply.DESCRIPTOR.fields_by_name
    for code, text in (("error", "message"), ("error_code", "error_message")):
        if code in fields and text in fields and reply.HasField(code):
            raise error_of(getattr(reply, code), getattr(reply, text), peer=peer, message=reply.DESCRIPTOR.name, **context)


def command_type(name: str) -> type[Message]:
    """Return the class CommandX by the vendor's name (``CommandLookupTopic``); raises OptionError."""
    if name not in _SHORT:
        raise OptionError(f"Pulsar has no command {name!r}")
    found: type[Message] = getattr(api, name)
    return found


def has_request_id(command: Message) -> bool:
    """Return whether a command is answered under a request id."""
    return "request_id" in command.DESCRIPTOR.fields_by_name


def message_id(ledger: int, entry: int, index: int = -1, partition: int = -1, ack_set: tuple[int, ...] = ()) -> api.MessageIdData:
    """Make MessageIdData; negative ledger or entry mean what they mean as unsigned 64-bit numbers.

    Args:
        ledger, entry: of the id. index: within the batch, -1: none. partition: -1: none. ack_set: words of the indexes still wanted.
    """
    found = api.MessageIdData(ledgerId=ledger & EARLIEST_ID, entryId=entry & EARLIEST_ID)
    if partition >= 0:
        found.partition = partition
    if index >= 0:
        found.batch_index = index
    found.ack_set.extend(ack_set)
    return found


def encrypted(frame: bytes) -> bool:
    """Return whether the entry of a MESSAGE is encrypted, by its metadata; False where that cannot be read either."""
    at = 4 + int.from_bytes(frame[:4], "big")
    if frame[at : at + 2] == b"\x0e\x02":  # the broker's own metadata
        at += 6 + int.from_bytes(frame[at + 2 : at + 6], "big")
    if frame[at : at + 2] == b"\x0e\x01":  # a checksum
        at += 6
    size = int.from_bytes(frame[at : at + 4], "big")
    try:
        return bool(api.MessageMetadata.FromString(frame[at + 4 : at + 4 + size]).encryption_keys)
    except DecodeError:
        return False


def signed(number: int) -> int:
    """Read a uint64 field that holds -1 for "none" as a signed number."""
    return number - 2**64 if number >= 2**63 else number


def _missing(base: BaseCommand) -> list[str]:
    """Return the paths of the required fields that are not set."""
    return cast("list[str]", cast("Any", base).FindInitializationErrors())
