"""Checks on the driver that Kafka's brokers have what an option or a column needs, so that an old broker is an error before a task starts.

It compares with the API versions that a node offered when the client connected to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ..errors import OptionError

if TYPE_CHECKING:
    from ..kafka.client import KafkaClient
    from ..roles import Client


def need(client: Client, what: str, release: str, remedy: str, message: type[Any], version: int = 0) -> None:
    """Raise OptionError where the cluster does not offer this version of a message.

    Args:
        what: the option or column that needs it. release: the first of Kafka that has it. remedy: what to do with older brokers.
        message: class of the request. version: its version.
    """
    kafka = cast("KafkaClient", client)
    newest = kafka.newest(message, timeout=kafka.timeout)
    if newest is None or newest < version:
        raise OptionError(f"{what} needs a broker of Kafka {release} or newer: {remedy}")
