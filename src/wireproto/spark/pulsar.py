"""The format ``pulsar-wire``: as the other logs, with ledger, entry and batch index in the place of an offset.

Options: ``service.url``, ``topic``, ``startingOffsets``, ``endingOffsets``, ``includeHeaders``; ``pulsar.*`` goes to the client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from .log import COMMON, LogFormat, LogReader, plain
from .options import SourceOptions, read_options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FORM = LogFormat(
    columns={
        **COMMON,
        "ledger": ("bigint", plain("ledger")),
        "entry": ("bigint", plain("entry")),
        "index": ("int", plain("index")),
    },
    default=("key", "value", "topic", "partition", "ledger", "entry", "index", "timestamp", "timestampType"),
)


class PulsarWire(DataSource):
    """Reads Pulsar topics as Arrow, one task per partition."""

    @classmethod
    def name(cls) -> str:
        return "pulsar-wire"

    def settings(self) -> SourceOptions:
        """The options, checked."""
        return read_options(
            self.options,
            scheme="pulsar",
            servers="service.url",
            topic="topic",
            known=("includeHeaders",),
            prefix="pulsar.",
        )

    def schema(self) -> str:
        return FORM.ddl(("headers",) if self.settings().flag("includeHeaders") else ())

    def reader(self, schema: StructType) -> LogReader:
        return LogReader(self.settings(), schema, FORM)
