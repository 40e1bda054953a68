"""Defines what a handler gets and returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..server import Connection
    from .node import Node


@dataclass(frozen=True, slots=True)
class Request:
    """One command that is being served.

    Attributes:
        broker: the one that answers.
        connection: the sender's.
        header: the typed command.
        body: the bytes after the header.
    """

    broker: Node
    connection: Connection
    header: Any
    body: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """Code, remark, extFields and body of an answer."""

    code: int = 0
    remark: str | None = None
    ext: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


def refuse(code: int, remark: str) -> Reply:
    """Make an answer that is an error."""
    return Reply(code, remark)
