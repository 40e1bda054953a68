"""What an option or a column needs of Kafka's brokers, asked on the driver, so that an old broker is one clear error before a task starts.

What it is: a look at the versions that a node offered when it was connected to.
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
        what: the option or column that needs it. release: of Kafka that has it. remedy: what to do without.
    """
    kafka = cast("KafkaClient", client)
    newest = kafka.newest(message, timeout=kafka.timeout)
    if newest is None or newest < version:
        raise OptionError(f"{what} needs a broker of Kafka {release} or newer: {remedy}")
