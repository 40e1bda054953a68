"""Keeps fetch sessions (KIP-227): Fetches that name only the partitions whose request has changed since the last one. Sans-IO.

The memory of one node's last Fetch. The broker keeps it, too, and leaves out of its responses partitions without news, so that reading a
thousand idle partitions costs as many bytes as reading one. It grants sessions while it has slots for them.

    | session_id       | session_epoch        | partitions named          | forgotten   | what it is
    |------------------|----------------------|---------------------------|-------------|-----------------------------------------
    | 0                | -1                   | all                       | none        | no session
    | 0, or of the old | 0                    | all                       | none        | ends the old one; the response's id is the
    |                  |                      |                           |             | new one's, 0: the broker grants none
    | its id           | 1, 2 … 2^31-1, 1 …   | new, or changed           | not wanted  | continues the session
    | its id           | -1                   | none                      | none        | ends it

Before Fetch v7 none of this is sent, and no session is granted. One Fetch of a node at a time. Sends nothing, and knows no cursors.
Source: KIP-227 and Java's FetchSessionHandler; errors 70 (id not known), 71 (another epoch), 106 (a topic's other id).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ..position import TopicPartition
from .codes import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch

FROM = 8
"""Partitions of a node from which on a session is asked for: fewer cost little, and a broker has few slots (1,000)."""
_LAST = 0x7FFFFFFF
NO_SESSION, _NEW = -1, 0
_OVER = (FetchSessionIdNotFound.code, InvalidFetchSessionEpoch.code, FetchSessionTopicIdError.code)


class Want(NamedTuple):
    """The fields of a Fetch for one partition.

    Attributes:
        topic_id: 16 bytes, zeros where topics are named.
        leader_epoch: -1: not known.
        offset: the first one wanted.
        fetched_epoch: leader epoch of the batch before the offset; -1: not known.
        max_bytes: how much to send.
    """

    topic_id: bytes
    leader_epoch: int
    offset: int
    fetched_epoch: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class Named:
    """What a Fetch is to name.

    Attributes:
        session_id, session_epoch: as in the table above.
        wanted: by partition, in the order of asking.
        forgotten: partitions and the topic ids under which they were named.
        turn: number of this Fetch, counted by the session.
    """

    session_id: int
    session_epoch: int
    wanted: dict[TopicPartition, Want]
    forgotten: dict[TopicPartition, bytes]
    turn: int

    @property
    def some(self) -> bool:
        """Return whether it names changes only, so that the response leaves out partitions without news."""
        return self.session_epoch > _NEW


class FetchSession:
    """Keeps what a node remembers of our Fetches, as far as we know.

    Attributes:
        id: of the session; 0: there is none.
    """

    def __init__(self) -> None:
        self.id = 0
        self._epoch = _NEW
        self._by_id = False
        self._sent: dict[TopicPartition, Want] = {}
        self._turn = 0
        self._open = False  # a Fetch is in flight

    def name(self, wanted: dict[TopicPartition, Want], *, by_id: bool) -> Named:
        """Return what the next Fetch has to name, so that exactly these partitions are fetched.

        When the response to a Fetch never came, or came too late, the session is in doubt: it begins again.

        Args:
            wanted: the fields for each partition. by_id: whether the Fetch names topics by id.
        """
        self._turn += 1
        if not self.id and len(wanted) < FROM:
            return Named(0, NO_SESSION, wanted, {}, self._turn)
        if self._open or by_id != self._by_id:
            self._epoch = _NEW
        sent, self._sent, self._by_id, self._open = self._sent, wanted, by_id, True
        if self._epoch == _NEW:
            return Named(self.id, _NEW, wanted, {}, self._turn)
        changed = {key: want for key, want in wanted.items() if sent.get(key) != want}
        gone = {key: want.topic_id for key, want in sent.items() if key not in wanted or wanted[key].topic_id != want.topic_id}
        return Named(self.id, self._epoch, changed, gone, self._turn)

    def answered(self, named: Named, error: int, session_id: int) -> bool:
        """Take in a response.

        Args:
            named: what the Fetch named. error: error code of the response as a whole. session_id: as the response has it.
        Returns:
            False: the response says only that the session is over, and the same is to be fetched again.
        """
        if named.turn != self._turn or named.session_epoch == NO_SESSION:
            return True
        if error:
            self._epoch = _NEW  # `_open` stays True: it is not known what the node has kept of that Fetch
            if error == FetchSessionIdNotFound.code:
                self.id = 0
            return not (named.some and error in _OVER)
        self._open = False
        self.id = session_id
        self._epoch = _NEW if not session_id else 1 if named.session_epoch in (_NEW, _LAST) else named.session_epoch + 1
        return True

    def doubt(self) -> None:
        """Begin the session again with the next Fetch: a response was not taken in whole, and the broker does not repeat it."""
        self._epoch = _NEW
