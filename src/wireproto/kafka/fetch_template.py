"""Prepares the Fetch of one partition: its bytes but for token, offset and the epoch before it, and those of a plain response.

The short path for a reader of one partition, where each response is small and each Fetch is like the last one. Request and response are
encoded once, from the messages, and filled in or compared from then on:

    request   head · token · client id … leader epoch │ fetch offset · last fetched epoch │ log start … rack
    answer    token │ tags … index, error 0 │ watermarks, no aborted transactions, no other replica │ size · records │ no tagged fields

What the template depends on (the connection, what is known of topics, the cursor, the one ticket) is compared before each use; anything
else goes the long path (`fetcher`), which can take over at any response, since cursor, ticket and room are its own.
Needs Fetch `FIRST` or later, and no session. Interprets no other response, and decodes no records.
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
"""Bytes in front of the part that is the same in each request: key, version, token."""
_PLACES = 12
"""Bytes of a request that differ from one to the next: fetch offset, last fetched epoch."""


class FetchTemplate(FetchTemplateCore):
    """A prepared Fetch.

    Whether there is nothing to do but wait for its response, and what a plain response brings (`chunk`), is in the core.

    Attributes:
        link, topics: what the template depends on: a connection, and the topics as they were known.
        cursor: the partition.
        asked, ticket: what the long path has noted of the Fetch in flight.
        call: that Fetch; None: it is the long path's.
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
        """Note the Fetch that the long path has sent."""
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
        """Return the template of a Fetch that the long path sends: the last one where it is the same."""
        if last is None or not last.holds(link, topics, asked.tickets[0], version):
            return cls(link, topics, request, asked, version)
        last.begin(asked)
        return last

    def holds(self, link: Connection, topics: Mapping[str, Topic], ticket: Ticket[Cursor], version: int) -> bool:
        """Return whether a Fetch with these is of this template."""
        return (
            link is self.link
            and topics is self.topics
            and ticket.cursor is self.cursor
            and ticket.count == self.ticket.count
            and version == self.version
        )


def plain(request: FetchRequest, asked: SentFetch, version: int) -> bool:
    """Return whether a Fetch can have a template.

    It names one partition whose topic, where it has an id, is the one that was read so far; it goes to the leader, without a session, and
    the last response was neither a refusal nor without records before the log's end.
    """
    cursor = asked.tickets[0].cursor
    return (
        version >= FIRST
        and len(asked.tickets) == 1
        and asked.named.session_epoch == NO_SESSION
        and cursor.topic_id == (request.topics[0].topic_id if version >= BY_ID else b"")
        and cursor.replica < 0
        and not cursor.empty_responses
        and not cursor.failures
    )


def _at(request: FetchRequest, n: int) -> FetchRequest:
    """Return the request with `n` as offset and epoch."""
    topic = request.topics[0]
    part = topic.partitions[0].replace(fetch_offset=n, last_fetched_epoch=n)
    return request.replace(topics=(topic.replace(partitions=(part,)),))


def _answer(topic: str, topic_id: bytes, index: int, n: int) -> FetchResponse:
    """Make a response with `n` as watermarks."""
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
    """Return where two byte strings of one length begin to differ."""
    return next(place for place, (first, second) in enumerate(zip(one, other, strict=True)) if first != second)
