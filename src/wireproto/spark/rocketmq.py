"""The format ``rocketmq-wire``: queue offsets as Kafka's offsets; keys, value and user properties as the common record has them.

Options: ``nameServer``, ``topic``, and those of all logs; ``rocketmq.*`` goes to the client.
"""

from __future__ import annotations

from ..errors import OptionError
from .columns import COMMON, NOTHING, LogFormat, plain
from .log import Log
from .options import Options, ReadSettings, address, read_settings
from .source import LogSource, client_options

FORM = LogFormat(
    columns={**COMMON, "offset": ("bigint", plain("offset"))},
    default=("key", "value", "topic", "partition", "offset", "timestamp", "timestampType"),
    sources=NOTHING,
)


class RocketMQLog(Log):
    """RocketMQ's topics; positions are queue offsets."""

    protocol = "rocketmq"
    form = FORM


class RocketMQWire(LogSource):
    """Reads RocketMQ topics as Arrow, one task per queue."""

    log = RocketMQLog

    def read_settings(self, options: Options) -> ReadSettings:
        url = address(options, "nameServer", "rocketmq")
        topics = options.names("topic")
        if not topics:
            raise OptionError("option topic is missing: the topics to read, separated by commas")
        return read_settings(options, url=url, client=client_options(options, "rocketmq."), topics=topics)
