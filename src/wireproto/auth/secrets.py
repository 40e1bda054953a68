"""Reads secrets from their sources, and never shows them.

A `Secret` is a value, ``env:NAME``, ``file:PATH`` or a callable; it is read again at each use, so that rotated tokens and files take
effect. Its value is not in its repr or str, in an error, or in the repr of a pickle. The text ``value:…`` takes the rest as it is, for a
secret that begins with one of the prefixes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from wireproto.errors import OptionError

Source = str | bytes | Callable[[], str | bytes]


class Secret:
    """A secret option. `text()` and `reveal()` read it; nothing else shows it.

    Args:
        source: the value, ``env:NAME``, ``file:PATH`` (one trailing newline is dropped), ``value:…``, or a callable returning it.
    """

    __slots__ = ("_source",)

    def __init__(self, source: Source | Secret) -> None:
        self._source: Source = source._source if isinstance(source, Secret) else source

    def reveal(self) -> bytes:
        """Return the secret as bytes (UTF-8). Raises OptionError, which names the source, when that cannot be read."""
        value = self._read()
        return value.encode() if isinstance(value, str) else bytes(value)

    def text(self) -> str:
        """Return the secret as text. Raises OptionError as `reveal`."""
        value = self._read()
        return value if isinstance(value, str) else bytes(value).decode()

    def _read(self) -> str | bytes:
        source = self._source
        if callable(source):
            return source()
        if isinstance(source, bytes):
            return source
        kind, _, rest = source.partition(":")
        if kind == "env":
            try:
                return os.environ[rest]
            except KeyError:
                raise OptionError(f"the environment has no variable {rest!r} to read a secret from") from None
        if kind == "file":
            try:
                return Path(rest).read_text().removesuffix("\n").removesuffix("\r")
            except (OSError, UnicodeDecodeError) as error:
                raise OptionError(f"cannot read a secret from the file {rest!r}: {type(error).__name__}") from None
        return rest if kind == "value" and _ else source

    def __repr__(self) -> str:
        source = self._source
        if isinstance(source, str) and source.startswith(("env:", "file:")):
            return f"Secret({source!r})"
        return "Secret(callable)" if callable(source) else "Secret(…)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._source == other._source

    def __hash__(self) -> int:
        return hash(self._source)
