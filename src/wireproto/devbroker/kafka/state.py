"""What the Kafka side knows: topics, groups, who is let in. Handlers are given this much of it."""

from __future__ import annotations

from typing import Any

from ..side import Side
from .access import Credentials
from .catalogue import Topics
from .group import Group
from .quotas import Quotas
from .sessions import Sessions


class KafkaState(Side):
    """One broker's state.

    Attributes:
        topics: over the store's logs. groups: by name.
        credentials: whom to let in.
        sessions: of those who fetch.
        quotas: that are used up.
    """

    protocol = "kafka"

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.credentials = Credentials()
        self.topics = Topics(self)
        self.sessions = Sessions()
        self.quotas = Quotas()
        self.groups: dict[str, Group] = {name: Group.restored(name, kept) for name, kept in self.store.facts.get("groups", {}).items()}
