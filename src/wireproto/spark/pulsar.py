"""The format ``pulsar-wire``: as the other logs, with ledger, entry and batch index in the place of an offset.

Options: ``service.url``, ``topic``, ``startingOffsets``, ``endingOffsets``, ``includeHeaders``; ``pulsar.*`` goes to the client.
"""

from __future__ import annotations

from .log import COMMON, LogFormat, LogSource, plain

FORM = LogFormat(
    columns={
        **COMMON,
        "ledger": ("bigint", plain("ledger")),
        "entry": ("bigint", plain("entry")),
        "index": ("int", plain("index")),
    },
    default=("key", "value", "topic", "partition", "ledger", "entry", "index", "timestamp", "timestampType"),
)


class PulsarWire(LogSource):
    """Reads Pulsar topics as Arrow, one task per partition."""

    protocol = "pulsar"
    servers = "service.url"
    form = FORM
