"""What an option or a column needs of Kafka's brokers, asked on the driver, so that an old broker is one clear error before a task starts.

What it is: a look into the versions that a node offered when it was connected to. Must not: send anything of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ..errors import OptionError

if TYPE_CHECKING:
    from ..kafka.client import KafkaClient
    from ..kafka.versions import Request
    from ..kafka.wire import Agreed
    from ..roles import Client


class Offered:
    """One node of the cluster, as its handshake told."""

    def __init__(self, client: Client) -> None:
        found = cast("KafkaClient", client).cluster
        conn = found.reach(found.to_any, found.deadline())
        agreed: Agreed = conn.context
        self._versions, self._peer = agreed.versions, conn.peer

    def need(self, what: str, release: str, remedy: str, message: type[Request], version: int = 0) -> None:
        """Raise OptionError where the node does not offer this version of a message.

        Args:
            what: the option or column that needs it. release: of Kafka that has it. remedy: what to do without.
        """
        newest = self._versions.newest(message)
        if newest is None or newest < version:
            raise OptionError(f"{what} needs a broker of Kafka {release} or newer: {remedy}", peer=self._peer)
