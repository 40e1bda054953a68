"""Keeps fetch sessions (KIP-227) as a broker does: the partitions that each client wants, and what it was last sent about them.

It makes the answer to a Fetch that names only changes. Source: KIP-227, and FetchManager, FetchSession of Kafka 4.3.1: an answer leaves out
partitions without records whose high watermark and start are those that the client was last sent, and which have no error; those with
records go to the end of the order. A session has one Fetch at a time. This module does not read logs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...kafka import messages as m

ID_NOT_FOUND, INVALID_EPOCH = 70, 71
NONE, NEW = -1, 0
PLACES = 1000  # max.incremental.fetch.session.cache.slots
Key = tuple[str, int]
Wanted = dict[Key, Any]


class Sessions:
    """All fetch sessions of a broker.

    Attributes:
        places: largest number of them; clients that find none free continue without.
    """

    def __init__(self, places: int = PLACES) -> None:
        self.places = places
        self._kept: dict[int, Kept] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._kept)

    def forget(self, *, epochs: bool = False) -> None:
        """Drop all sessions, as a restarted broker does.

        Args:
            epochs: raise their epochs instead, as if a Fetch had come that the client does not know of.
        """
        if epochs:
            for kept in self._kept.values():
                kept.epoch += 1
        else:
            self._kept.clear()

    def begin(self, request: Any) -> int | Fetching:
        """Return what a Fetch asks for, or the error code that it is refused with."""
        named = {(topic.topic, part.partition): part for topic in request.topics for part in topic.partitions}
        if request.session_epoch in (NONE, NEW):
            self._kept.pop(request.session_id, None)
            return Fetching(self, named, None, new=request.session_epoch == NEW)
        kept = self._kept.get(request.session_id)
        if kept is None:
            return ID_NOT_FOUND
        if request.session_epoch != kept.epoch:
            return INVALID_EPOCH
        kept.change(named, ((topic.topic, number) for topic in request.forgotten_topics_data for number in topic.partitions))
        if not kept.wanted:
            del self._kept[request.session_id]
            return Fetching(self, named, None, new=False)
        kept.epoch = 1 if kept.epoch == 0x7FFFFFFF else kept.epoch + 1
        return Fetching(self, dict(kept.wanted), kept, new=False)

    def keep(self, wanted: Wanted, sent: dict[Key, tuple[int, int]]) -> int:
        """Make a session and return its id; 0: there are `places` already.

        Args:
            wanted: the partitions. sent: high watermark and start that the client was sent, by partition.
        """
        if len(self._kept) >= self.places:
            return 0
        self._last += 1
        self._kept[self._last] = Kept(self._last, wanted, sent)
        return self._last


class Kept:
    """One client's session.

    Attributes:
        wanted: the partitions, in order. sent: high watermark and start that it was last sent, by partition.
    """

    def __init__(self, number: int, wanted: Wanted, sent: dict[Key, tuple[int, int]]) -> None:
        self.id, self.epoch = number, 1
        self.wanted, self.sent = wanted, sent

    def change(self, named: Wanted, forgotten: Iterable[Key]) -> None:
        """Add or replace partitions (new ones at the end), and remove the forgotten ones."""
        self.wanted.update(named)
        for key in forgotten:
            self.wanted.pop(key, None)
            self.sent.pop(key, None)

    def news(self, key: Key, part: Any) -> bool:
        """Return whether a partition must be in the answer; if so, note what the client is sent."""
        now = (part.high_watermark, part.log_start_offset)
        there = bool(part.records) or part.error_code or part.diverging_epoch.end_offset >= 0
        if part.records:
            self.wanted[key] = self.wanted.pop(key)
        if not there and self.sent.get(key) == now:
            return False
        self.sent[key] = (-1, -1) if part.error_code else now
        return True


class Fetching:
    """One Fetch.

    Attributes:
        wanted: what it asks for, by partition, in the order in which the answer is filled.
    """

    def __init__(self, sessions: Sessions, wanted: Wanted, kept: Kept | None, *, new: bool) -> None:
        self._sessions, self._kept, self._new = sessions, kept, new
        self.wanted = wanted

    def answer(self, parts: dict[Key, Any]) -> Any:
        """Return the response with these partitions, or of a session's, those that changed."""
        number = 0
        if self._kept is not None:
            number = self._kept.id
            parts = {key: part for key, part in parts.items() if self._kept.news(key, part)}
        elif self._new:
            number = self._sessions.keep(self.wanted, {key: (part.high_watermark, part.log_start_offset) for key, part in parts.items()})
        topics: dict[str, list[Any]] = {}
        for (topic, _), part in parts.items():
            topics.setdefault(topic, []).append(part)
        found = tuple(m.FetchableTopicResponse(topic=topic, partitions=tuple(mine)) for topic, mine in topics.items())
        return m.FetchResponse(session_id=number, responses=found)
