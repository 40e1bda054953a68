"""What a producer sends: commands of one record or of neighbours, and their receipts.

What it is:

    RocketBatch     one command: a record (310), or neighbours of one queue (320); a batch of `flow.queue`
    RocketReceipt   one record's share in it

May assume: the sender's lock round all that puts records in. Must not: choose brokers, send, or retry.
"""

from __future__ import annotations

import re
from typing import Any

from wireproto._codec import Receipt, RocketOut
from wireproto.flow.parts import Parts, found

BATCH = 320
OVERHEAD = 256
"""Bytes of the send budget that a record is counted for beyond its own."""


_OWN_TIME = re.compile(rb"(?<=\x02)BORN_TIMESTAMP\x01(-?[0-9]+)\x02\Z")
"""The property that holds a record's own time in a batch: the last one."""

LANE = 20
"""Bits of a partition in a lane's key."""


def lane(queue: int, coming: int) -> int:
    """The key of the lane for records whose keys went to one queue and go to another one once they may; less than 0."""
    return ~(queue << LANE | coming)


def lane_ends(key: int) -> tuple[int, int]:
    """What `lane` was made of."""
    return ~key >> LANE, ~key & ((1 << LANE) - 1)


class RocketBatch(RocketOut):
    """An OutBatch that fills no builder of its base's, but a command, and:

    Attributes:
        born: its first record's timestamp; stamped tells whether the caller gave it (else it is that one's time of sending). Records of
            another time have theirs in a property.
        since: clock in seconds from which its delivery timeout counts: see `progress.ProgressSender`.
        single: body and properties of a record that is alone. rows: the records of a batch; body: that batch, once it was to be sent.
        sys_flag: of a compressed body. anywhere: any queue will do. warning: see `RocketReceipt`. link: of its last sending.
    """

    __slots__ = ()

    @property
    def home(self) -> int:
        """Its partition, or the one whose keys it waits for."""
        key: int = self.key
        return key if key >= 0 else lane_ends(key)[0]

    def describe(self, index: int) -> str:
        """For a receipt's repr."""
        outcome: Any = self.outcome
        if type(outcome.value) is Parts:
            part, at = found(self, index)
            return str(part.describe(at))
        state = "pending" if not outcome.done else repr(outcome.error) if outcome.error else str(outcome.value + index)
        return f"{self.topic}[{self.home}] {state}"

    @property
    def topic(self) -> str:
        """Its producer's."""
        owner: Any = self.owner
        while type(owner) is Parts:
            owner = owner.whole.owner
        topic: str = owner.topic
        return topic


def halves(batch: RocketBatch) -> Parts | None:
    """What goes on in the place of a batch that its broker refused as one, so that a record which is refused keeps no other one back; None:
    there is nothing to part."""
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
    """Body and properties of a message as a batch has it: size, three numbers, body by its size (4 bytes), properties by theirs (2)."""
    end = 20 + int.from_bytes(message[16:20])
    return message[20:end], message[end + 2 :]


def _own_time(properties: bytes, born: int) -> tuple[bytes, int]:
    """Properties as a record has them that goes alone, and the time of its command, in ms."""
    found = _OWN_TIME.search(properties)
    return (properties, born) if found is None else (properties[: found.start()], int(found[1]))


class RocketReceipt(Receipt):
    """One record's receipt (of a batch: its last record's).

    `position` gives the place of the record. `warning` is 0, or after success the code by which the broker said that it stored the
    record less safely than configured: 10 not yet on disk, 11 no slave, 12 slave late.
    """

    __slots__ = ()

    @property
    def warning(self) -> int:
        part, _ = found(self.batch, self.index)
        warning: int = part.warning
        return warning

    @property
    def sequence(self) -> int:
        """Number of the command that carries the record; records with the same one went out together."""
        sequence: int = self.batch.serial
        return sequence
