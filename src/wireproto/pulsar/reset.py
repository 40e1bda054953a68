"""Decides where reading begins when the requested position is in a deleted ledger: the option `reset`.

`is_gone` and `going_on` are sans-IO; `first_ledgers` are steps, for roles that are not at the position yet. Brokers delete whole ledgers,
the oldest first, and begin at the first one that is left without saying so; entries of a ledger are numbered without gaps, ledgers are not.
So nothing shows whether a deleted ledger had more behind an entry that was read.

    the position                       raise      earliest, nearest              latest
    at a record, or within a batch     DataLoss   the first entry that is left   the topic's end
    behind an entry                    the same: there may have been more
    of the compacted form of a topic   where it lies: that keeps records of deleted ledgers

Nothing is moved without an error or a line of the log.
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
    """Return whether a position is in a deleted ledger.

    Args:
        place: the position. ledger: in which its partition begins now, or that a broker gives for this position. options: of the role.
    """
    return 0 <= place.ledger < ledger and not options.read_compacted


def is_behind(place: MessageId, end: tuple[int, int], mark: tuple[int, int]) -> bool:
    """Return whether a position lies behind all that its partition has: then brokers (4.2.4) begin elsewhere, with the first entry.

    Args:
        place: the position.
        end: the last entry.
        mark: the entry before the one with which the broker begins. An open transaction keeps entries from being the last: a position among
            them is begun at, and `mark` is not before the end.
    """
    if (place.ledger, place.entry) <= end or place.ledger < 0:
        return False
    return mark < end or (mark == end and place.ledger > end[0])


def going_on(place: MessageId, ledger: int, options: PulsarOptions, log: ClientLog) -> Request:
    """Return where to begin instead of a position that `is_gone`, and warn of it in the log; raise DataLoss where the options say so."""
    what = f"what followed {place} in it, if anything," if place.after else str(place)
    if options.reset == "raise":
        text = (
            f"ledger {place.ledger} is deleted, and {what} is gone: reading could continue in ledger {ledger}; seek, or set reset, to do so"
        )
        raise DataLoss(text, topic=place.topic, partition=place.partition, position=place)
    where = LATEST if options.reset == "latest" else EARLIEST
    passed_over(place, ledger, log, "latest" if where is LATEST else "earliest")
    return where


def passed_over(place: MessageId, ledger: int, log: ClientLog, where: str = "earliest") -> None:
    """Warn in the log that what followed a position may be gone, unread."""
    text = "%s[%d]: the ledger of %s is deleted, with what was not read of it: reading continues at the %s message, in ledger %d or later"
    log.warning(("gone", place.topic, place.partition), text, place.topic, place.partition, place, where, ledger)


def first_ledgers(
    cluster: PulsarCluster, names: Mapping[TopicPartition, str], places: Mapping[TopicPartition, Request], deadline: float
) -> Steps[dict[TopicPartition, int]]:
    """Return the ledger in which each partition begins now, of those that have a position in a ledger. Steps.

    Args:
        cluster: of the client. names: full name of each partition. places: what is asked of each partition. deadline: as
            `time.monotonic()`.
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
