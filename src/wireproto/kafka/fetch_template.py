"""A Fetch of one partition, prepared: its bytes but for token, offset and the epoch before it, and those of a plain answer.

What it is: the short way for who follows one partition, where each answer is small and the next Fetch is the last one's like. Request and
answer are encoded once, from the messages, and filled in or compared from then on:

    request   head · token · client id … leader epoch │ fetch offset · last fetched epoch │ log start … rack
    answer    token │ tags … index, error 0 │ watermarks, no aborted transactions, no other replica │ size · records │ no tagged fields

Whatever it holds for (the connection, what is known of topics, the cursor, the one ticket) is compared before each use; anything else is
the long way's, which can take over at any answer, since cursor, ticket and room are its own.
May assume: Fetch `FIRST` and later, no session. Must not: make sense of any other answer, or decode records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .._codec import FetchTemplateCore, Sent
from . import wire
from .fetch import BY_ID
from .messages import FetchableTopicResponse, FetchPartitionData, FetchRequest, FetchResponse
from .sessions import NO_SESSION

if TYPE_CHECKING:
    from .._net import Call, Connection
    from ..flow.ahead import Ticket
    from .fetch import Cursor, SentFetch
    from .metadata import Topic

FIRST = FetchRequest.FLEXIBLE_FROM
_HEAD = 8
"""Bytes in front of what is the same in each request: key, version, token."""
_PLACES = 12
"""Bytes of a request that differ from one to the next: fetch offset, last fetched epoch."""


class FetchTemplate(FetchTemplateCore):
    """Whether all that there is to do is to wait for it, and what a plain answer brings (`chunk`), is the core's.

    Attributes:
        link, topics: what it holds for: a connection, and what was known of topics.
        asked, ticket: what the long way has noted of the Fetch under way. call: that Fetch; None: the long way's.
        until: when to doubt that it will be answered.
    """

    __slots__ = ()

    def __init__(self, link: Connection, topics: Mapping[str, Topic], request: FetchRequest, asked: SentFetch, version: int) -> None:
        agreed: wire.Agreed = link.context
        topic = request.topics[0]
        whole, other = (b"".join(map(bytes, wire.frame(_at(request, n), version, 0, agreed.client_id))) for n in (0, -1))
        place = _difference(whole, other)
        answer, another = (_answer(topic.topic, topic.topic_id, topic.partitions[0].partition, n).encode(version) for n in (0, -1))
        before = b"\0" + answer[: _difference(answer, another)]
        super().__init__(FetchRequest.API_KEY, version, whole[_HEAD:place], whole[place + _PLACES :], before)
        self.link, self.topics = link, topics
        self.cursor = asked.tickets[0].cursor
        self.begin(asked)

    def begin(self, asked: SentFetch) -> None:
        """The long way has sent such a Fetch."""
        self.asked = asked
        self.ticket: Ticket[Cursor] = asked.tickets[0]
        self.sent = Sent(FetchResponse, self.version, (asked.node, asked))
        self.call: Call | None = None
        self.until = 0.0

    @classmethod
    def of(
        cls,
        last: FetchTemplate | None,
        link: Connection,
        topics: Mapping[str, Topic],
        request: FetchRequest,
        asked: SentFetch,
        version: int,
    ) -> FetchTemplate:
        """The form of a Fetch that the long way sends: the last one's where it is the same."""
        if last is None or not last.holds(link, topics, asked.tickets[0], version):
            return cls(link, topics, request, asked, version)
        last.begin(asked)
        return last

    def holds(self, link: Connection, topics: Mapping[str, Topic], ticket: Ticket[Cursor], version: int) -> bool:
        """Whether this Fetch is of this form."""
        return (
            link is self.link
            and topics is self.topics
            and ticket.cursor is self.cursor
            and ticket.count == self.ticket.count
            and version == self.version
        )


def plain(request: FetchRequest, asked: SentFetch, version: int) -> bool:
    """Whether a Fetch has a form: of one partition whose topic, where it has an id, is the one that was read so far, of its leader, without
    a session, and well the last time."""
    cursor = asked.tickets[0].cursor
    return (
        version >= FIRST
        and len(asked.tickets) == 1
        and asked.named.session_epoch == NO_SESSION
        and cursor.topic_id == (request.topics[0].topic_id if version >= BY_ID else b"")
        and cursor.replica < 0
        and not cursor.empties
        and not cursor.failures
    )


def _at(request: FetchRequest, n: int) -> FetchRequest:
    topic = request.topics[0]
    part = topic.partitions[0].replace(fetch_offset=n, last_fetched_epoch=n)
    return request.replace(topics=(topic.replace(partitions=(part,)),))


def _answer(topic: str, topic_id: bytes, index: int, n: int) -> FetchResponse:
    part = FetchPartitionData(
        partition_index=index,
        error_code=0,
        high_watermark=n,
        last_stable_offset=n,
        log_start_offset=n,
        aborted_transactions=None,
        records=b"",
    )
    answered = FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=(part,))
    return FetchResponse(responses=(answered,), throttle_time_ms=0)


def _difference(one: bytes, other: bytes) -> int:
    """Where two of one length begin to differ."""
    return next(place for place, (first, second) in enumerate(zip(one, other, strict=True)) if first != second)
