"""Holds what a producer sends: commands of one record or of several of one queue, and their receipts.

    RocketBatch     one command: a record (310), or several records of one queue (320); a batch of `flow.queue`
    RocketReceipt   one record's outcome

Records are put in with the sender's lock held. Nothing here chooses brokers, sends, or retries.
"""

from __future__ import annotations

import re
from typing import Any

from wireproto._codec import Receipt, RocketOut
from wireproto.flow.parts import Parts, found

BATCH = 320
OVERHEAD = 256
"""Bytes that a record takes of the send budget beyond its own."""


_OWN_TIME = re.compile(rb"(?<=\x02)BORN_TIMESTAMP\x01(-?[0-9]+)\x02\Z")
"""The property with a record's own timestamp in a batch, which is the last one."""

LANE = 20
"""Bits of a partition in a lane's key."""


def lane(queue: int, coming: int) -> int:
    """Return the key of the lane for records whose keys went to one queue and will go to another one; it is less than 0."""
    return ~(queue << LANE | coming)


def lane_ends(key: int) -> tuple[int, int]:
    """Return the two partitions that `lane` made this key of."""
    return ~key >> LANE, ~key & ((1 << LANE) - 1)


class RocketBatch(RocketOut):
    """Collects the records of one command; an OutBatch that does not use its base's builder.

    Attributes:
        born: its first record's timestamp, milliseconds since 1970. Records with another one have theirs in a property.
        stamped: whether the caller gave `born`; else it is the time when that record was sent.
        since: the time from which its delivery timeout counts, in seconds of the clock: see `progress.ProgressSender`.
        single: body and properties of a single record. rows: the records of a batch. body: that batch encoded, once it was to be sent.
        sys_flag: sysFlag of the command, for a compressed body. anywhere: whether it may go to any queue.
        warning: see `RocketReceipt`. link: the connection on which it was sent last.
    """

    __slots__ = ()

    @property
    def home(self) -> int:
        """Return its partition; of a batch in a lane, the one that its keys went to before."""
        key: int = self.key
        return key if key >= 0 else lane_ends(key)[0]

    def describe(self, index: int) -> str:
        """Return the text for a receipt's repr."""
        outcome: Any = self.outcome
        if type(outcome.value) is Parts:
            part, at = found(self, index)
            return str(part.describe(at))
        state = "pending" if not outcome.done else repr(outcome.error) if outcome.error else str(outcome.value + index)
        return f"{self.topic}[{self.home}] {state}"

    @property
    def topic(self) -> str:
        """Return the topic of its producer."""
        owner: Any = self.owner
        while type(owner) is Parts:
            owner = owner.whole.owner
        topic: str = owner.topic
        return topic


def halves(batch: RocketBatch) -> Parts | None:
    """Split a batch that its broker refused as one into two, so that a record which is refused does not fail the others.

    Returns None where there is nothing to split: a single record, or a batch that was not encoded.
    """
    body = batch.body
    if body is None or batch.count < 2:
        return None
    ends, at = [0], 0
    while at < len(body):
        at += int.from_bytes(body[at : at + 4])
        ends.append(at)
    parts, middle = Parts(batch), batch.count // 2
    for first, last in ((0, middle), (middle, batch.count)):
        half = RocketBatch(batch.queue, batch.serial, batch.created, parts.outcome(), parts)
        half.stamped, half.born, half.anywhere, half.since = batch.stamped, batch.born, batch.anywhere, batch.since
        half.body = body[ends[first] : ends[last]]
        if last - first == 1:
            value, properties = _alone(half.body)
            properties, half.born = _own_time(properties, batch.born)
            half.single, half.body = (value, properties), None
        half.grow(last - first, 0)
        half.seal()
        parts.batches.append(half)
    return parts


def _alone(message: bytes) -> tuple[bytes, bytes]:
    """Return body and properties of a message in a batch: size, three numbers, length (4 bytes) and body, length (2) and properties."""
    end = 20 + int.from_bytes(message[16:20])
    return message[20:end], message[end + 2 :]


def _own_time(properties: bytes, born: int) -> tuple[bytes, int]:
    """Return the properties of a record that is sent alone, and the timestamp of its command in milliseconds since 1970."""
    found = _OWN_TIME.search(properties)
    return (properties, born) if found is None else (properties[: found.start()], int(found[1]))


class RocketReceipt(Receipt):
    """Gives the outcome of one record (of `send_batch`: of the last record of a command); `position` returns its offset."""

    __slots__ = ()

    @property
    def warning(self) -> int:
        """Return 0, or after success the code of a record that was stored less safely than configured.

        10: not yet on disk, 11: no slave is there, 12: the slave did not take it in time.
        """
        part, _ = found(self.batch, self.index)
        warning: int = part.warning
        return warning

    @property
    def sequence(self) -> int:
        """Return the number of the command that carries the record; records with the same number were sent together."""
        sequence: int = self.batch.serial
        return sequence
