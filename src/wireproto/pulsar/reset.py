"""Where reading begins when the place asked for lies in a ledger that is deleted: the option `reset`.

What it is: `is_gone` and `going_on`, sans-IO, and `first_ledgers`, steps for who does not stand at the place yet. Brokers delete whole
ledgers, the oldest first, and begin at the first one that is left without a word; entries of a ledger are numbered without gaps, ledgers
are not. So nothing tells whether there was more in a deleted ledger behind an entry that was read.

    the place                          raise      earliest, nearest              latest
    at a record, or within a batch     DataLoss   the first entry that is left   the topic's end
    behind an entry                    the same: there may have been more
    of the compacted form of a topic   where it lies: that keeps records of deleted ledgers

Must not: move anything in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from wireproto.errors import DataLoss
from wireproto.position import EARLIEST, LATEST, MessageId, TopicPartition

from .positions import finding

if TYPE_CHECKING:
    from wireproto.flow.resolve import Request
    from wireproto.net.client_log import ClientLog
    from wireproto.net.task import Steps

    from .cluster import PulsarCluster
    from .options import PulsarOptions


def is_gone(place: MessageId, ledger: int, options: PulsarOptions) -> bool:
    """Whether a place lies in a deleted ledger, of a partition that begins in `ledger`, or that gives it to who asks for the place."""
    return 0 <= place.ledger < ledger and not options.read_compacted


def is_behind(place: MessageId, end: tuple[int, int], mark: tuple[int, int]) -> bool:
    """Whether a place lies behind all that its partition has, so that the broker has begun elsewhere, with its first entry (4.2.4).

    Args:
        end: the last entry. mark: the one before that with which the broker begins. An open transaction keeps entries from being the last:
            a place among them is begun at, and `mark` is not before the end.
    """
    if (place.ledger, place.entry) <= end or place.ledger < 0:
        return False
    return mark < end or (mark == end and place.ledger > end[0])


def going_on(place: MessageId, ledger: int, options: PulsarOptions, log: ClientLog) -> Request:
    """Where to begin instead of a place that `is_gone`; the log is told. Raises DataLoss where the options say so."""
    what = f"what followed {place} in it, if anything," if place.after else str(place)
    if options.reset == "raise":
        text = f"ledger {place.ledger} is deleted, and {what} is gone: reading could go on in ledger {ledger}; seek, or set reset, to do so"
        raise DataLoss(text, topic=place.topic, partition=place.partition, position=place)
    where = LATEST if options.reset == "latest" else EARLIEST
    passed_over(place, ledger, log, "latest" if where is LATEST else "earliest")
    return where


def passed_over(place: MessageId, ledger: int, log: ClientLog, where: str = "earliest") -> None:
    """Tell the log that what followed a place may be gone, unread."""
    text = "%s[%d]: the ledger of %s is deleted, and what was not read of it: it goes on at the %s that is there, in ledger %d or behind it"
    log.warning(("gone", place.topic, place.partition), text, place.topic, place.partition, place, where, ledger)


def first_ledgers(
    cluster: PulsarCluster, names: Mapping[TopicPartition, str], places: Mapping[TopicPartition, Request], deadline: float
) -> Steps[dict[TopicPartition, int]]:
    """The ledger in which each partition begins now, of those that have a place in a ledger.

    Args:
        names: full name of each partition.
    """
    topics: dict[str, list[TopicPartition]] = {}
    for key, place in places.items():
        if isinstance(place, MessageId) and place.ledger >= 0:
            topics.setdefault(key[0], []).append(key)
    ledgers: dict[TopicPartition, int] = {}
    for topic, keys in topics.items():
        asked = {number: names[topic, number] for _, number in keys}
        found = yield from finding(cluster, topic, asked, dict.fromkeys(keys, EARLIEST), deadline)
        ledgers |= {key: place.ledger for key, place in found.items()}
    return ledgers
