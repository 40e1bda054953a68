"""What a handler is given and gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..server import Connection
    from .node import Node


@dataclass(frozen=True, slots=True)
class Request:
    """One command in hand.

    Attributes:
        broker: whose answer it is.
        connection: where it came from.
        header: the typed command.
        body: what followed the header.
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
    """An answer that is an error."""
    return Reply(code, remark)
