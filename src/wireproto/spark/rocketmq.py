"""The format ``rocketmq-wire``: queue offsets as Kafka's offsets; keys, value and user properties as the common record has them.

Options: ``nameServer``, ``topic``, ``startingOffsets``, ``endingOffsets``, ``includeHeaders``; ``rocketmq.*`` goes to the client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from .kafka import OFFSET_FORM as FORM
from .log import LogReader
from .options import SourceOptions, read_options

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class RocketMQWire(DataSource):
    """Reads RocketMQ topics as Arrow, one task per queue."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq-wire"

    def settings(self) -> SourceOptions:
        """The options, checked."""
        return read_options(
            self.options,
            scheme="rocketmq",
            servers="nameServer",
            topic="topic",
            known=("includeHeaders",),
            prefix="rocketmq.",
        )

    def schema(self) -> str:
        return FORM.ddl(("headers",) if self.settings().flag("includeHeaders") else ())

    def reader(self, schema: StructType) -> LogReader:
        return LogReader(self.settings(), schema, FORM)
