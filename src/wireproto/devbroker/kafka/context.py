"""What a handler is given: the request and who sent it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .access import Session
    from .nodes import Node
    from .state import KafkaState


@dataclass(frozen=True, slots=True)
class Context:
    """One request in hand.

    Attributes:
        side: the broker.
        request: the decoded message; `version` is its version.
        client_id, peer: who sent it.
        session: what is known of the connection's other end.
        node: which node of the cluster is asked.
        error: a code that a test asked for: the reply carries it and the request takes no effect; 0 for none.
    """

    side: KafkaState
    request: Any
    version: int
    client_id: str
    peer: str
    error: int
    session: Session
    node: Node
