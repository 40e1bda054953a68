"""The format ``kafka-wire``: columns, order and option names of the JVM's Kafka connector.

Options: ``kafka.bootstrap.servers``, ``subscribe``, ``startingOffsets``, ``endingOffsets``, ``includeHeaders``;
``kafka.*`` goes to the client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from .log import COMMON, LogFormat, LogReader, plain
from .options import SourceOptions, read_options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FORM = LogFormat(
    columns={**COMMON, "offset": ("bigint", plain("offset"))},
    default=("key", "value", "topic", "partition", "offset", "timestamp", "timestampType"),
)


class KafkaWire(DataSource):
    """Reads Kafka topics as Arrow, one task per partition."""

    @classmethod
    def name(cls) -> str:
        return "kafka-wire"

    def settings(self) -> SourceOptions:
        """The options, checked."""
        return read_options(
            self.options,
            scheme="kafka",
            servers="kafka.bootstrap.servers",
            topic="subscribe",
            known=("includeHeaders",),
            prefix="kafka.",
        )

    def schema(self) -> str:
        return FORM.ddl(("headers",) if self.settings().flag("includeHeaders") else ())

    def reader(self, schema: StructType) -> LogReader:
        return LogReader(self.settings(), schema, FORM)
