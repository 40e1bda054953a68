"""The format ``rocketmq-wire``: queue offsets as Kafka's offsets; keys, value and user properties as the common record has them.

Options: ``nameServer``, ``topic``, ``startingOffsets``, ``endingOffsets``, ``includeHeaders``; ``rocketmq.*`` goes to the client.
"""

from __future__ import annotations

from .kafka import OFFSET_FORM
from .log import LogSource


class RocketMQWire(LogSource):
    """Reads RocketMQ topics as Arrow, one task per queue."""

    protocol = "rocketmq"
    servers = "nameServer"
    form = OFFSET_FORM
