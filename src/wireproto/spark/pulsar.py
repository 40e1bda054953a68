"""The format ``pulsar-wire``: as the other logs, with ledger, entry and batch index in the place of an offset.

Options: ``service.url``, ``topic``, and those of all logs; ``pulsar.*`` goes to the client. In offsets JSON and checkpoints a position is
its text, ``12:3:-1``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import OptionError
from ..position import Position
from .columns import COMMON, NOTHING, LogFormat, plain
from .log import Log, Positions, Span, parse_place
from .options import Options, ReadSettings, address, read_settings
from .source import LogSource, client_options

if TYPE_CHECKING:
    from ..roles import Client

FORM = LogFormat(
    columns={
        **COMMON,
        "ledger": ("bigint", plain("ledger")),
        "entry": ("bigint", plain("entry")),
        "index": ("int", plain("index")),
    },
    default=("key", "value", "topic", "partition", "ledger", "entry", "index", "timestamp", "timestampType"),
    sources=NOTHING,
)


class PulsarLog(Log):
    """Pulsar's topics; positions are message ids, which cannot be counted."""

    protocol = "pulsar"
    form = FORM

    def cut(self, client: Client, spans: list[Span]) -> list[Span]:
        return spans

    def limit(self, client: Client, start: Positions, latest: Positions) -> Positions:
        raise OptionError("pulsar-wire has no limit by rows or bytes yet")

    def began(self, position: Position) -> bool:
        return True

    def place_to_json(self, position: Position) -> Any:
        return position.text()

    def place_from_json(self, topic: str, partition: int, value: Any) -> Position:
        if not isinstance(value, str) or ":" not in value:
            raise OptionError(f"{value!r} is no message id")
        return parse_place(topic, partition, value)

    def example(self) -> str:
        return '{"topic": {"0": "12:3:-1"}}'


class PulsarWire(LogSource):
    """Reads Pulsar topics as Arrow, one task per partition."""

    log = PulsarLog

    def read_settings(self, options: Options) -> ReadSettings:
        url = address(options, "service.url", "pulsar")
        topics = options.names("topic")
        if not topics:
            raise OptionError("option topic is missing: the topics to read, separated by commas")
        return read_settings(options, url=url, client=client_options(options, "pulsar."), topics=topics)
