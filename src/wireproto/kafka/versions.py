"""Chooses which version of each message to speak with a node.

The node's response to ApiVersions as a table, and the choice of the newest version that both sides know. Sans-IO: the connection's
handshake asks, this reads. Takes whole frames; knows no message's fields but those of ApiVersions.

    ask in our newest version  ──►  decodes, no error         the table
                               ──►  error 35, or undecodable  ask again in version 0, which every node answers
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from ..errors import ProtocolError, UnsupportedVersion
from .codes import VersionUnsupported, error
from .messages import ApiVersionsResponse

Range = tuple[int, int]


class Request(Protocol):
    """What every generated request class has.

    Attributes:
        API_KEY: the message's number. NAME: its name. MIN_VERSION, MAX_VERSION: that we know. RESPONSE: class of the reply.
    """

    API_KEY: ClassVar[int]
    NAME: ClassVar[str]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    RESPONSE: ClassVar[Any]

    @classmethod
    def header_version(cls, version: int) -> int:
        """Return the version of the header in front of this version."""

    def encode_parts(self, version: int) -> list[Any]:
        """Encode the body as buffers."""


class Versions:
    """Versions that one node offers, by api key.

    Attributes:
        offered: ``{api key: (oldest, newest)}`` as the node says.
        features: finalized features of the cluster, by name (``transaction.version`` …), where the node tells them.
    """

    __slots__ = ("features", "offered")

    def __init__(self, offered: Mapping[int, Range], features: Mapping[str, int] | None = None) -> None:
        self.offered = dict(offered)
        self.features = dict(features or {})

    def newest(self, message: type[Request], cap: int | None = None) -> int | None:
        """Return the newest version that both sides speak, at most `cap`; None when there is none."""
        low, high = self.offered.get(message.API_KEY, (0, -1))
        high = min(high, message.MAX_VERSION) if cap is None else min(high, message.MAX_VERSION, cap)
        return high if high >= max(low, message.MIN_VERSION) else None

    def pick(self, message: type[Request], cap: int | None = None, *, peer: str | None = None) -> int:
        """Return the newest version as `newest` does.

        Raises:
            UnsupportedVersion: the two sides share none.
        """
        version = self.newest(message, cap)
        if version is None:
            theirs = self.offered.get(message.API_KEY)
            offer = f"it offers {theirs[0]} to {theirs[1]}" if theirs else "it does not offer it at all"
            most = message.MAX_VERSION if cap is None else min(cap, message.MAX_VERSION)
            raise UnsupportedVersion(
                f"no version in common with the broker: {offer}, we can use {message.MIN_VERSION} to {most}",
                message=message.NAME,
                peer=peer,
            )
        return version

    def has(self, message: type[Request]) -> bool:
        """Return whether the node answers this message in any version of ours."""
        return self.newest(message) is not None


def read_versions(frame: bytes, version: int) -> Versions | None:
    """Read the table in a response to ApiVersions.

    Args:
        frame: the reply with its correlation id (4 bytes; this reply's header never has more).
        version: in which the request was sent.
    Returns:
        None when the reply does not decode or has error 35, and asking in version 0 may help.
    Raises:
        ProtocolError: version 0 does not decode either: what answers is no Kafka node.
        BrokerError: any other error code.
    """
    try:
        reply = ApiVersionsResponse.decode(frame, version, start=4)
    except ProtocolError:
        if version == 0:
            raise
        return None
    if reply.error_code == VersionUnsupported.code and version > 0:
        return None
    if reply.error_code:
        raise error(reply.error_code, "ApiVersions was refused", message=reply.NAME, version=version)
    offered = {entry.api_key: (entry.min_version, entry.max_version) for entry in reply.api_keys}
    return Versions(offered, {feature.name: feature.max_version_level for feature in reply.finalized_features})
