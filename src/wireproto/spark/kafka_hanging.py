"""Ends transactions of a sink that are still open in partitions although their coordinators have ended them.

    EndTxn       the coordinator notes how the transaction ends, and answers;
                 then it has each partition's leader write the marker, and notes that all of them did
    Kafka 4.3    a partition that has no leader just then is skipped, as if it were deleted (KAFKA-20734): the transaction stays open there

Readers of committed records wait behind such a transaction; and when the next transaction of that producer ends in that partition, the open
one ends with it, in the same way: committed or rolled back. So open ones are looked for before a decision is noted as carried out, and
before names of attempts are used again.

    found open                 its coordinator says                                it is
    one that is committed      anything                                            committed
    another one                CompleteCommit, of that epoch or the next           committed
                               PrepareCommit, PrepareAbort                         waited for
                               CompleteAbort, Empty, or of a later transaction     rolled back
                               Ongoing, or the producer is of no name of ours      left alone

This module looks for them, which costs two requests to each leader while nothing is open, and writes the missing markers. Brokers do not
check which program writes a marker, so its caller checks that this driver still leads the query (`leads`). It must not end a transaction
that its coordinator has yet to end, or that another program has open.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import AuthError, TimedOut
from ..kafka.codes import InvalidProducerEpoch, TransactionalIdNotFound, TransactionCoordinatorFenced, UnknownTopicOrPartition
from ..net.retry import Waits
from ..position import LATEST, TopicPartition
from .exactly import SOON, logger

if TYPE_CHECKING:
    import re

    from ..kafka.admin import KafkaAdmin, TransactionInfo
    from ..kafka.transactions import OpenTransaction

Topics = Mapping[str, Collection[int] | None]
"""Partitions by topic; None: all of them."""
_UNDER_WAY = "Ongoing"
_ENDING = ("PrepareCommit", "PrepareAbort")
KNOWN = "KAFKA-20734"  # the defect's issue, for logs and errors


class Unseen(AuthError):
    """A transaction is open, and this user may not see whose it is."""


@dataclass(frozen=True, slots=True, order=True)
class Held:
    """A transaction that is open in a partition.

    Attributes:
        start: the offset at which it begins there.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    start: int


def topics_of(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group partitions by topic."""
    found: dict[str, list[int]] = {}
    for topic, number in sorted(set(partitions)):
        found.setdefault(topic, []).append(number)
    return found


def joined(one: Topics, other: Topics) -> dict[str, Collection[int] | None]:
    """Return the partitions of both."""
    found: dict[str, Collection[int] | None] = dict(one)
    for topic, numbers in other.items():
        before = found.get(topic, ())
        found[topic] = None if numbers is None or before is None else sorted({*before, *numbers})
    return found


def mend(
    admin: KafkaAdmin,
    topics: Topics,
    names: re.Pattern[str],
    timeout: float,
    *,
    leads: Callable[[], object],
    blind: float = 0.0,
    decided: Iterable[OpenTransaction] = (),
    kept: Iterable[OpenTransaction] = (),
) -> bool:
    """End transactions that hang in these partitions and whose names match; see the module.

    Args:
        admin: of the driver's client. topics: partitions to look at. names: pattern of the attempts' transactional names.
        timeout: seconds for everything.
        leads: called before a transaction is ended; raises where another driver leads by now.
        blind: seconds to wait for open transactions to end where this user may not see whose they are; 0: that is logged, and they are
            left.
        decided: transactions that coordinators have committed, all markers written.
        kept: transactions that are still to be committed, and are left alone.
    Returns:
        True when no others than those left alone and those `kept` are open there; False where that is not known, since this user may not
        see whose they are, or a coordinator is moving.
    Raises:
        TimedOut: coordinators are still writing markers, or a partition has no leader.
        AuthError: the user may not read a topic, to see whose transaction is open there (with `blind`), or not alter the cluster to end it.
    """
    begun = time.monotonic()
    deadline = begun + timeout
    committed, spared = ({(one.producer_id, one.producer_epoch) for one in some} for some in (decided, kept))
    before: dict[Held, bool | None] = {}
    waits = Waits(SOON)
    while True:
        try:
            held = _open(admin, topics, deadline)
        except Unseen as why:
            if not blind:
                logger.warning("kafka-wire: %s", why)
                return False
            if time.monotonic() >= min(begun + blind, deadline):
                raise
            time.sleep(waits.next())
            continue
        if not held:
            return True
        known = _known(admin, {one.producer_id for one in held}, names, deadline)
        left: dict[Held, bool | None] = {}  # by transaction, whether to commit it; None: not known yet
        for one in held:
            producer = (one.producer_id, one.producer_epoch)
            if producer in spared:
                continue
            if producer in committed:
                left[one] = before[one] = True
            elif known is not None and one.producer_id in known:
                info = known[one.producer_id]
                if info.state != _UNDER_WAY:
                    left[one] = None if info.state in _ENDING else _committed(one, info)
        if not left:
            return known is not None
        gone = {one: commit for one, commit in left.items() if commit is not None and before.get(one) is commit}
        if gone:  # their coordinators had ended them before this look found them still open
            leads()
            for one in sorted(gone):
                _end(admin, one, gone[one], deadline)
        before = left
        pause = 0.0 if gone else waits.next()
        if time.monotonic() + pause >= deadline:
            places = ", ".join(sorted({f"{one.topic}-{one.partition}" for one in left}))
            raise TimedOut(f"transactions of the sink are still open in {places}")
        time.sleep(pause)


def _known(admin: KafkaAdmin, ids: set[int], names: re.Pattern[str], deadline: float) -> dict[int, TransactionInfo] | None:
    """Return what coordinators know of the transactions with matching names, by producer id; None while a coordinator is moving."""
    listed = [one.name for one in admin.list_transactions(producer_ids=ids, timeout=_left(deadline)) if names.fullmatch(one.name)]
    try:
        found = admin.describe_transactions(listed, timeout=_left(deadline))
    except TransactionalIdNotFound:  # from a node that was the coordinator before and does not know yet that it is not any more
        return None
    return {one.producer_id: one for one in found.values()}


def _committed(one: Held, info: TransactionInfo) -> bool:
    """Return whether the coordinator's answer is about this transaction, and says that it was committed.

    Transaction version 2 (KIP-890) raises the epoch when a transaction ends.
    """
    return info.state == "CompleteCommit" and info.producer_epoch - one.producer_epoch in (0, 1)


def marked(states: Callable[[float], Mapping[str, TransactionInfo]], timeout: float) -> Mapping[str, TransactionInfo]:
    """Wait until coordinators have had all markers written of transactions that they ended.

    Args:
        states: called with seconds; returns what coordinators know of them, as `KafkaAdmin.describe_transactions` does.
        timeout: seconds.
    Returns:
        what they know then.
    Raises:
        TimedOut: markers are still missing.
    """
    deadline = time.monotonic() + timeout
    waits = Waits(SOON)
    while True:
        found = states(_left(deadline))
        left = [one for one in found.values() if one.state in _ENDING]
        if not left:
            return found
        pause = waits.next()
        if time.monotonic() + pause >= deadline:
            places = ", ".join(sorted({f"{topic}-{number}" for one in left for topic, number in one.partitions}))
            raise TimedOut(f"coordinators have not ended {len(left)} transactions in {places} within {timeout:g} s")
        time.sleep(pause)


def _open(admin: KafkaAdmin, topics: Topics, deadline: float) -> set[Held]:
    """Return the transactions that are open in these partitions; topics that do not exist have none."""
    found: set[Held] = set()
    for topic, numbers in topics.items():
        try:
            last = admin.positions(topic, LATEST, partitions=numbers, timeout=_left(deadline))
            stable = admin.positions(topic, LATEST, partitions=numbers, committed=True, timeout=_left(deadline))
            behind = [key[1] for key, end in last.items() if stable[key] < end]
            if not behind:
                continue
            for (_, number), producers in admin.describe_producers(topic, partitions=behind, timeout=_left(deadline)).items():
                for one in producers:
                    if one.transaction_start is not None:
                        found.add(Held(topic, number, one.producer_id, one.producer_epoch, one.transaction_start))
        except UnknownTopicOrPartition:
            continue
        except AuthError as why:
            raise Unseen(
                f"the sink needs the right to read {topic}, to find transactions that brokers have left open there: {why.text}"
            ) from why
    return found


def _end(admin: KafkaAdmin, one: Held, commit: bool, deadline: float) -> None:
    """Write the marker of a transaction in one partition, if it is still open there."""
    place = f"{one.topic}-{one.partition}"
    what = f"producer {one.producer_id}'s transaction open in {place}, which its coordinator has ended, as Kafka 4.3 does ({KNOWN})"
    logger.warning("kafka-wire: left open by brokers: %s; it is %s there", what, "committed" if commit else "rolled back")
    key, what_it_is = (one.topic, one.partition), (one.producer_id, one.producer_epoch, one.start)
    mark = admin.commit_transaction if commit else admin.abort_transaction
    try:
        for found in admin.describe_producers(one.topic, partitions=[one.partition], timeout=_left(deadline))[key]:
            if (found.producer_id, found.producer_epoch, found.transaction_start) == what_it_is:
                mark(key, found, timeout=_left(deadline))
    except (InvalidProducerEpoch, TransactionCoordinatorFenced, UnknownTopicOrPartition):
        return  # another marker came first, or the topic is gone; the caller looks again
    except AuthError as why:
        remedy = "readers of committed records wait there. To end it, the sink needs the right to alter the cluster"
        why.text = f"left open by brokers: {what}; {remedy}: {why.text}"
        raise


def _left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())
