"""Keys and properties as they travel.

What it is: Pulsar's partition key is text. A key that is not UTF-8 goes as base64 with `partition_key_b64_encoded`; an absent key goes
without the field. Properties are text too, one value for a name.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping

from wireproto.errors import ValueUnsupported
from wireproto.records import Headers


def wire_key(key: bytes) -> tuple[str, bool]:
    """The key's text, and whether it is base64."""
    try:
        return key.decode("utf-8"), False
    except UnicodeDecodeError:
        return b64encode(key).decode("ascii"), True


def properties(headers: Headers) -> tuple[tuple[str, bytes], ...]:
    """Headers as properties.

    Raises:
        ValueUnsupported: a name twice, a null value, or a value that is not UTF-8: Pulsar cannot carry these unchanged.
    """
    if not headers:
        return ()
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    found: dict[str, bytes] = {}
    for name, value in pairs:
        if not isinstance(name, str) or not isinstance(value, (bytes, bytearray, type(None))):
            raise ValueUnsupported(f"header {name!r}: a name is text and a value bytes")
        if value is None:
            raise ValueUnsupported(f"header {name!r} is null, which Pulsar's properties cannot be")
        if name in found:
            raise ValueUnsupported(f"header {name!r} is there twice; Pulsar's properties are unique")
        try:
            name.encode("utf-8")
            value.decode("utf-8")
        except UnicodeError:
            raise ValueUnsupported(f"header {name!r} is not UTF-8 text, as Pulsar's properties must be") from None
        found[name] = bytes(value)
    return tuple(found.items())


def as_bytes(what: str, value: bytes | None) -> bytes | None:
    """A value or key as bytes that stay as they are; raises ValueUnsupported for anything but bytes-like and None."""
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise ValueUnsupported(f"the {what} is {type(value).__name__}; Pulsar carries bytes")
