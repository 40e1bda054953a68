"""Prepares a Produce of one batch: its bytes but for token and records, and those of the response that the batch is stored.

The short path for records that a producer sends one by one. Request and response are the same from one batch of a partition to the next
but for a few places, so both are encoded once, from the messages, and filled in or compared from then on:

    request   head · token · client id … partition │ uvarint of size + 1 · records │ no tagged fields, three times
    answer    token │ tags … error 0 │ base offset, append time, log start │ no errors, no text, no tagged fields, not throttled

Needs flexible versions, `FIRST` and later. Any other response is left to the decoder.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .._codec import ProduceTemplateCore
from . import outgoing, wire
from .messages import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from .._net import Connection
    from .metadata import Topic
    from .outgoing import Key

FIRST = ProduceRequest.FLEXIBLE_FROM
_HEAD = 8
"""Bytes in front of the part that is the same in each request: key, version, token."""
_PLACES = 24
"""Bytes of a response that differ from batch to batch: base offset, append time, log start."""
_NO_RECORDS = b"\1\0\0\0"
"""How a request without records ends."""


class ProduceTemplate(ProduceTemplateCore):
    """A prepared Produce of one partition by one connection."""

    __slots__ = ()

    def __init__(
        self,
        link: Connection,
        topics: Mapping[str, Topic],
        key: Key,
        version: int,
        acks: int,
        timeout_ms: int,
        transaction: str | None = None,
    ) -> None:
        topic, index = key
        topic_id = topics[topic].id
        agreed: wire.Agreed = link.context
        empty = _request(topic, topic_id, index, acks, timeout_ms, transaction)
        whole = b"".join(map(bytes, wire.frame(empty, version, 0, agreed.client_id)))
        assert whole.endswith(_NO_RECORDS)
        first, other = (b"\0" + _answer(topic, topic_id, index, base).encode(version) for base in (0, -1))
        place = next(place for place, (one, another) in enumerate(zip(first, other, strict=True)) if one != another)
        names = {topic_id if version >= outgoing.BY_ID else topic: topic}
        request, before, after = whole[_HEAD : -len(_NO_RECORDS)], first[:place], first[place + _PLACES :]
        super().__init__(link, topics, key, names, ProduceRequest.API_KEY, version, request, before, after)


def _request(topic: str, topic_id: bytes, index: int, acks: int, timeout_ms: int, transaction: str | None) -> ProduceRequest:
    """Make a request without records."""
    data = TopicProduceData(name=topic, topic_id=topic_id, partition_data=(PartitionProduceData(index=index, records=b""),))
    return ProduceRequest(transactional_id=transaction, acks=acks, timeout_ms=timeout_ms, topic_data=(data,))


def _answer(topic: str, topic_id: bytes, index: int, base: int) -> ProduceResponse:
    """Make a response with `base` as base offset, append time and log start."""
    part = PartitionProduceResponse(
        index=index, error_code=0, base_offset=base, log_append_time_ms=base, log_start_offset=base, record_errors=()
    )
    return ProduceResponse(
        responses=(TopicProduceResponse(name=topic, topic_id=topic_id, partition_responses=(part,)),), throttle_time_ms=0
    )
