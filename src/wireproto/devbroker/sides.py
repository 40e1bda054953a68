"""Which protocols the dev broker speaks, and where each one's server side is found.

What it is: a table, so that a side is imported only when it is asked for. A side is a class derived from `side.Side`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from ..errors import OptionError

if TYPE_CHECKING:
    from .side import Side

SIDES: dict[str, str] = {
    "kafka": "wireproto.devbroker.kafka:KafkaSide",
    "pulsar": "wireproto.devbroker.pulsar:PulsarSide",
    "rocketmq": "wireproto.devbroker.rocketmq:RocketMQSide",
    "zookeeper": "wireproto.devbroker.zookeeper:ZooKeeperSide",
}


def side_class(protocol: str) -> type[Side]:
    """The class that serves a protocol; raises OptionError naming those there are."""
    if protocol not in SIDES:
        raise OptionError(f"the dev broker does not speak {protocol!r}: it speaks {', '.join(SIDES)}")
    module, _, name = SIDES[protocol].partition(":")
    return cast("type[Side]", getattr(import_module(module), name))
