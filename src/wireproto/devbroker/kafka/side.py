"""From a request frame to a response frame: header, dispatch, versions.

    request frame    api key int16 · api version int16 · correlation id int32 · client id string · [tags] · body
    response frame   correlation id int32 · [tags] · body

An api key or version that is not offered closes the connection, as Kafka does, but for ApiVersions, which answers in version 0.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from typing import Any

from wireproto.devbroker.kafka import groups, logs, topics
from wireproto.devbroker.kafka.state import Broker
from wireproto.errors import UnsupportedVersion
from wireproto.kafka import messages as m

UNSUPPORTED_VERSION = 35
Handler = Callable[[Broker, Any, int, str], Awaitable[Any]]

# api key: request class name, lowest and highest version offered, handler
OFFERED: dict[int, tuple[str, int, int, Handler]] = {
    0: ("ProduceRequest", 3, 11, logs.produce),
    1: ("FetchRequest", 4, 12, logs.fetch),
    2: ("ListOffsetsRequest", 1, 7, logs.list_offsets),
    3: ("MetadataRequest", 0, 12, topics.metadata),
    8: ("OffsetCommitRequest", 2, 8, groups.offset_commit),
    9: ("OffsetFetchRequest", 1, 7, groups.offset_fetch),
    10: ("FindCoordinatorRequest", 0, 4, groups.find_coordinator),
    11: ("JoinGroupRequest", 0, 9, groups.join),
    12: ("HeartbeatRequest", 0, 4, groups.heartbeat),
    13: ("LeaveGroupRequest", 0, 5, groups.leave),
    14: ("SyncGroupRequest", 0, 5, groups.sync),
    15: ("DescribeGroupsRequest", 0, 5, groups.describe),
    16: ("ListGroupsRequest", 0, 4, groups.list_groups),
    19: ("CreateTopicsRequest", 0, 7, topics.create),
    20: ("DeleteTopicsRequest", 0, 5, topics.delete),
    22: ("InitProducerIdRequest", 0, 4, logs.init_producer_id),
    32: ("DescribeConfigsRequest", 0, 4, topics.describe_configs),
    60: ("DescribeClusterRequest", 0, 1, topics.describe_cluster),
}
API_VERSIONS = 18


class KafkaSide:
    """All connections share one of these.

    Args:
        host, port: the address to advertise.
        broker: state to go on with (a restart), or None for a new one.
    """

    def __init__(self, host: str, port: int, broker: Broker | None = None) -> None:
        self.broker = broker or Broker()
        self.broker.host, self.broker.port = host, port

    async def answer(self, frame: bytes, peer: str) -> list[bytes] | None:
        """One request to its response; raises UnsupportedVersion for what a broker would close the connection on."""
        api_key, version, correlation = struct.unpack_from(">hhi", frame)
        if api_key == API_VERSIONS:
            return self._api_versions(version, correlation)
        offered = OFFERED.get(api_key)
        if offered is None or not offered[1] <= version <= offered[2]:
            raise UnsupportedVersion("the dev broker does not offer this", message=f"api {api_key}", version=version, peer=peer)
        name, _, _, handler = offered
        request_class = getattr(m, name)
        header, start = m.RequestHeader.decode_from(frame, request_class.header_version(version))
        request = request_class.decode(frame, version, start=start)
        response = await handler(self.broker, request, version, f"{header.client_id or ''}|{peer}")
        if response is None:
            return None
        head = m.ResponseHeader(correlation_id=correlation).encode(type(response).header_version(version))
        return [head, *response.encode_parts(version)]

    def _api_versions(self, version: int, correlation: int) -> list[bytes]:
        """Every version offered; an unknown version of this very request gets error 35 in version 0."""
        keys = {**{key: (low, high) for key, (_, low, high, _) in OFFERED.items()}, API_VERSIONS: (0, 3)}
        known = version <= 3
        response = m.ApiVersionsResponse(
            error_code=0 if known else UNSUPPORTED_VERSION,
            api_keys=tuple(m.ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in sorted(keys.items())),
        )
        return [struct.pack(">i", correlation), response.encode(version if known else 0)]
