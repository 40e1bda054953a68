"""Holds what a handler gets: the request, its sender, and the node that it came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .access import Session
    from .nodes import Node
    from .state import KafkaState


@dataclass(frozen=True, slots=True)
class Context:
    """One request that is being served.

    Attributes:
        side: the broker.
        request: the decoded message; `version` is its version.
        client_id, peer: of the sender.
        session: the authentication of its connection.
        node: the node of the cluster that received it.
        error: a code that a test injected: the reply has it and the request takes no effect; 0: none.
    """

    side: KafkaState
    request: Any
    version: int
    client_id: str
    peer: str
    error: int
    session: Session
    node: Node
