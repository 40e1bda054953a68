"""Checks the paths of nodes, and puts the chroot before them and takes it off.

Pure functions over text. Servers do not check the paths of reads ("" reads the root), so a client must.

    legal      "/" or "/a/b": absolute, no trailing slash, no empty, "." or ".." part
    refused    U+0000-001F, 007F-009F, D800-F8FF, FFF0-FFFF, and all above: servers see two surrogates there
    sequence   ten digits after the name that was requested; after 2147483647 it continues with "-2147483648" and counts up
"""

from __future__ import annotations

import re

from ..errors import ValueUnsupported

_BAD = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\U0010ffff]|//|/\\.\\.?(?:/|$)")
_SEQUENCE = re.compile(r"[0-9]{10}|-[0-9]{9,10}")
CONFIG = "/zookeeper/config"
"""The ensemble's configuration. A client with a chroot reaches only this one of the servers' own nodes, by calls that are for it alone."""


def check(path: str, *, sequence: bool = False) -> str:
    """Return a legal path unchanged; raises ValueUnsupported for an illegal one, with the reason.

    Args:
        path: absolute path.
        sequence: whether it is a prefix to which the server appends its counter, so that it may end with a slash.
    """
    if type(path) is not str:
        raise ValueUnsupported(f"a path is text, not {type(path).__name__}")
    if not path.startswith("/"):
        raise ValueUnsupported(f"path {path!r} does not begin with a slash")
    if len(path) > 1 and path.endswith("/") and not sequence:
        raise ValueUnsupported(f"path {path!r} ends with a slash")
    if found := _BAD.search(path):
        raise ValueUnsupported(f"path {path!r} has {found[0]!r} at {found.start()}: no empty or relative part, no control character")
    return path


class Chroot:
    """Puts a prefix before the paths that are sent and takes it off those that come back.

    Args:
        prefix: "" or "/" for none, else a legal path.
    """

    __slots__ = ("prefix",)

    def __init__(self, prefix: str = "") -> None:
        self.prefix = "" if prefix in ("", "/") else check(prefix)

    def out(self, path: str, *, sequence: bool = False) -> str:
        """Check a path, and return it as the server knows it. Raises ValueUnsupported."""
        check(path, sequence=sequence)
        if not self.prefix:
            return path
        return self.prefix if path == "/" else self.prefix + path

    def holds(self, path: str) -> bool:
        """Return whether a server's path is the chroot or lies below it."""
        return path == self.prefix or path.startswith(self.prefix + "/")

    def back(self, path: str) -> str:
        """Return a server's path as the caller knows it; one outside the chroot stays as it is."""
        prefix = self.prefix
        if not prefix or not path.startswith(prefix):
            return path
        if len(path) == len(prefix):
            return "/"
        return path[len(prefix) :] if path[len(prefix)] == "/" else path


def parents(path: str) -> list[str]:
    """List the nodes above a path without the root, outermost first: ``/a/b/c`` gives ``/a``, ``/a/b``."""
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[: n + 1]) for n in range(len(parts))]


def join(parent: str, name: str) -> str:
    """Return the path of a child."""
    return f"/{name}" if parent == "/" else f"{parent}/{name}"


def sequence_of(name: str, prefix: str) -> int | None:
    """Return the number that the server appended to `prefix`, or None when this name was not made from it."""
    tail = name[len(prefix) :]
    return int(tail) if name.startswith(prefix) and _SEQUENCE.fullmatch(tail) else None
