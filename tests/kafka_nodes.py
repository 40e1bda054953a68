"""A second node of Kafka that the dev broker, which is one, does not know: what clients are told when a partition gets another leader."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from wireproto.kafka.metadata import Metadata, Node


class SecondNode:
    """Node 2, at addresses that a test names."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch
        self._apply = Metadata.apply

    def __call__(self, metadata: Metadata, topic: str, partition: int, host: str, port: int) -> None:
        """It leads this partition; the client knows, and its look-ups leave that so."""
        self.later(topic, partition, host, port)(metadata)

    def later(self, topic: str, partition: int, host: str, port: int) -> Any:
        """As a call, but clients are told by their next look-up."""
        apply = self._apply

        def elected(known: Metadata) -> None:
            entry = known.topics.get(topic)
            if entry is not None:
                leaders = {**entry.partitions, partition: replace(entry.partitions[partition], node=2)}
                known.nodes = {**known.nodes, 2: Node(2, host, port)}
                known.topics = {**known.topics, topic: replace(entry, partitions=leaders)}

        def and_elect(metadata: Metadata, reply: Any, **more: Any) -> None:
            apply(metadata, reply, **more)
            elected(metadata)

        self._patch.setattr(Metadata, "apply", and_elect)
        return elected
