"""Decodes and encodes every message of every protocol, by name, to plain JSON values and back.

    >>> decode("kafka", "MetadataRequest", 1, bytes.fromhex("00000001000174"))
    {'topics': [{'name': 't'}]}
    >>> encode("kafka", "MetadataRequest", 1, {"topics": [{"name": "t"}]}).hex()
    '00000001000174'

The functions call the forms that each protocol's descriptor names; an adapter is imported at its first use. Field names are the vendor's;
whole numbers of any size are numbers, bytes are base64, not-a-number and infinities are their names as text. Protocols without versions
have version 0.

`encode` turns the result of `decode` into the same bytes again. Some bytes have the same meaning as those that `encode` makes and differ
from them: a varint longer than it need be, tagged fields out of order or present with their default, a boolean of 2, protobuf fields out
of order, blanks in a JSON header. They are read as the vendors' own code reads them, and kept in the member ``originalBytes``, which
`encode` returns as long as the fields beside it are what those bytes decode to.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache
from typing import Any

from .errors import Malformed, ProtocolError, UnknownMessage, UnsupportedVersion, WireprotoError
from .forms import Form, bytes_of
from .lines import Line, base64_of
from .protocols import every, known

ORIGINAL = "originalBytes"
"""The member for bytes that encoding the fields would not make."""

__all__ = ["ORIGINAL", "decode", "encode", "explain", "names", "protocols", "versions"]


def protocols() -> tuple[str, ...]:
    """Return the protocols whose messages are known here."""
    return tuple(found.name for found in every() if found.forms is not None)


def names(protocol: str) -> dict[str, tuple[int, int]]:
    """Return every message of a protocol: its name, with first and last version. Raises UnknownMessage for an unknown protocol."""
    return {name: form.versions for name, form in sorted(_forms(protocol).items())}


def decode(protocol: str, message: str, version: int, data: bytes) -> dict[str, Any]:
    """Decode a message, and return its fields.

    Args:
        protocol: one of `protocols`.
        message: a name of `names`.
        version: its version, 0 where there are none.
        data: the whole message; for a ``Frame`` its length too.

    Raises:
        Truncated: the bytes end before the message does.
        Malformed, ChecksumMismatch, FrameTooLarge: they are not what the format says, or other bytes follow the message.
        UnknownMessage, UnsupportedVersion: there is no such message, or not in this version.
    """
    form = _form(protocol, message, version)
    data = bytes(data)
    fields = form.decode(version, data)
    if not _makes(form, version, fields, data):
        fields[ORIGINAL] = base64_of(data)
    return fields


def encode(protocol: str, message: str, version: int, fields: Mapping[str, Any]) -> bytes:
    """Encode a message, and return its bytes. Absent fields have their default.

    Args:
        protocol, message, version: as of `decode`.
        fields: the fields by the vendor's names, as `decode` returns them.

    Raises:
        Malformed: a name that the version does not have, or a value of the wrong kind; `path` says where.
        ValueUnsupported: a value that the version cannot carry.
        UnknownMessage, UnsupportedVersion: there is no such message, or not in this version.
    """
    if not isinstance(fields, dict):
        raise Malformed("the fields are not a JSON object", message=message, version=version)
    form = _form(protocol, message, version)
    if ORIGINAL not in fields:
        return form.encode(version, fields)
    original = bytes_of(fields[ORIGINAL], ORIGINAL, message)
    fields = {name: value for name, value in fields.items() if name != ORIGINAL}
    try:
        if form.decode(version, original) == fields:
            return original
    except ProtocolError:
        pass  # they are no bytes of this message, so the fields are encoded
    return form.encode(version, fields)


def _makes(form: Form, version: int, fields: dict[str, Any], data: bytes) -> bool:
    """Whether encoding the fields makes these bytes."""
    try:
        return form.encode(version, fields) == data
    except WireprotoError:
        return False


def explain(protocol: str, message: str, version: int, data: bytes) -> list[Line]:
    """Return a line for each value of a message, with its bytes; arguments and errors as of `decode`.

    An error's attribute `lines` has the lines of the values before.
    """
    return _form(protocol, message, version).explain(version, data)


def versions(protocol: str, message: str) -> tuple[int, int]:
    """Return first and last version of a message. Raises UnknownMessage."""
    return _named(protocol, message).versions


@cache
def _forms(protocol: str) -> dict[str, Form]:
    found = known(protocol) if isinstance(protocol, str) else None
    if found is None or found.forms is None:
        raise UnknownMessage(f"no protocol {protocol!r}; there are {', '.join(protocols())}")
    return found.all_forms()


def _named(protocol: str, message: str) -> Form:
    found = _forms(protocol)
    if message not in found:
        near = difflib.get_close_matches(str(message), found, 3)
        raise UnknownMessage(f"no {protocol} message {message!r}" + (f"; did you mean {', '.join(near)}?" if near else ""), message=message)
    return found[message]


def _form(protocol: str, message: str, version: int) -> Form:
    form = _named(protocol, message)
    if not isinstance(version, int) or isinstance(version, bool):
        raise UnsupportedVersion(f"version {version!r} is no whole number", message=message)
    if form.versions == (0, 0) and version != 0:
        raise UnsupportedVersion("there is version 0 only", message=message, version=version)
    return form
