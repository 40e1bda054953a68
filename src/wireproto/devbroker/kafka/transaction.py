"""Keeps the state of one transactional id: its producer, and its transaction.

This is the coordinator's state machine, sans-IO::

    Empty, CompleteCommit, CompleteAbort ── a partition or group is added ──▶ Ongoing ── EndTxn ──▶ CompleteCommit, CompleteAbort
    Ongoing ── its timeout is over, or another producer takes the name ──▶ CompleteAbort, under the next epoch

A real coordinator is in PrepareCommit or PrepareAbort while the markers are written, and answers CONCURRENT_TRANSACTIONS; here they are
written at once. `Refused` has the codes with which Kafka 4.3.1 answers. Level 2 (KIP-890): each end begins the next epoch, and a repeated
request for an end that was made already succeeds; level 1: the epoch stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .markers import ABORT, COMMIT

CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED = 51, 48, 49, 90
LAST_EPOCH = 32766
"""The last epoch of a producer id."""
NO_EPOCH = -1
ENDS = {COMMIT: "CompleteCommit", ABORT: "CompleteAbort"}


class Refused(Exception):
    """A request is refused.

    Attributes:
        code: of the answer.
    """

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(slots=True)
class Transaction:
    """The state of one transactional id.

    Attributes:
        name: transactional id.
        fresh: makes a producer id.
        producer, epoch: of the current producer.
        former: the epoch before this one, whose producer may repeat its request; NO_EPOCH: none.
        timeout: milliseconds. started: when the transaction began, milliseconds since 1970; -1.
        used_up: the producer id before this one, whose epochs were used up.
        partitions: those in the transaction. groups: those whose offsets are in it.
    """

    name: str
    fresh: Callable[[], int]
    producer: int = -1
    epoch: int = NO_EPOCH
    former: int = NO_EPOCH
    timeout: int = 60_000
    state: str = "Empty"
    started: int = -1
    used_up: int = -1
    partitions: set[tuple[str, int]] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)

    def kept(self) -> dict[str, Any]:
        """Return what outlives the broker, as JSON values."""
        plain = ("producer", "epoch", "former", "timeout", "state", "started", "used_up")
        found: dict[str, Any] = {key: getattr(self, key) for key in plain}
        return found | {"partitions": sorted(map(list, self.partitions)), "groups": sorted(self.groups)}

    def restore(self, kept: dict[str, Any]) -> None:
        """Set the state from what `kept` returned."""
        for key, value in kept.items():
            setattr(self, key, value)
        self.partitions = {(topic, partition) for topic, partition in kept["partitions"]}
        self.groups = set(kept["groups"])

    @property
    def ongoing(self) -> bool:
        """Return whether a transaction is open."""
        return self.state == "Ongoing"

    # --- its producer ---

    def taken(self, timeout: int, expected: tuple[int, int] | None) -> None:
        """Give the name to a producer; no transaction is open.

        Args:
            timeout: of its transactions, milliseconds.
            expected: (producer id, epoch) of the producer that says that it has the name; None: a new one.
        Raises:
            Refused: another producer has the name.
        """
        self.timeout = timeout
        if expected is not None and self.epoch != NO_EPOCH:
            producer, epoch = expected
            if producer != self.producer or epoch not in (self.epoch, self.former):
                raise Refused(PRODUCER_FENCED)
            if epoch != self.epoch:  # a repeated request, whose answer was lost
                self.state, self.started = "Empty", -1
                return
        self.state, self.started = "Empty", -1
        self.former = NO_EPOCH if expected is None else self.epoch
        if self.producer < 0 or self.epoch >= LAST_EPOCH:
            self._renew()
        else:
            self.epoch += 1

    def fence(self, *, bumps: bool) -> None:
        """End the transaction for its producer: what is written from now on has the next epoch.

        Args:
            bumps: level 2, on which the producer may continue from there.
        """
        self.former, self.epoch = self.epoch if bumps else NO_EPOCH, self.epoch + 1

    def _renew(self) -> None:
        """Take another producer id, under its first epoch."""
        self.used_up = self.producer
        self.producer, self.epoch, self.former = self.fresh(), 0, NO_EPOCH

    # --- what is in it ---

    def joins(self, producer: int, epoch: int, now: int, partitions: set[tuple[str, int]], group: str | None) -> None:
        """Add partitions and a group's offsets to the transaction, which begins by that.

        Args:
            now: milliseconds since 1970.
        Raises:
            Refused: the producer does not have the name.
        """
        if producer != self.producer:
            raise Refused(INVALID_PRODUCER_ID_MAPPING)
        if epoch != self.epoch:
            raise Refused(PRODUCER_FENCED)
        if not self.ongoing:
            self.state, self.started = "Ongoing", now
        self.partitions |= partitions
        if group is not None:
            self.groups.add(group)

    def has(self, producer: int, epoch: int, partition: tuple[str, int]) -> bool:
        """Return whether a partition is in the open transaction of this producer."""
        return self.ongoing and (producer, epoch) == (self.producer, self.epoch) and partition in self.partitions

    # --- its end ---

    def ends(self, producer: int, epoch: int, kind: int, *, bumps: bool) -> bool:
        """Return whether this end is to be carried out, under the current epoch; False: there is nothing to end.

        Args:
            kind: COMMIT or ABORT.
            bumps: the request is of level 2: one under the epoch before repeats an earlier request, and a rollback of nothing is allowed.
        Raises:
            Refused: the producer does not have the name, or the transaction ended otherwise.
        """
        if producer != self.producer and not (bumps and (producer, epoch, self.epoch) == (self.used_up, LAST_EPOCH, 0)):
            raise Refused(INVALID_PRODUCER_ID_MAPPING)
        over = self.state in ENDS.values()
        again = bumps and over and (producer != self.producer or epoch + 1 == self.epoch)
        if epoch != self.epoch and not again:
            raise Refused(PRODUCER_FENCED)
        if self.ongoing:
            self._ends_under(bumps)
            return True
        if again if bumps else over:
            if self.state != ENDS[kind]:
                raise Refused(INVALID_TXN_STATE)
        elif bumps and kind == ABORT:
            self._ends_under(bumps)
            self.ended(kind)
        else:
            raise Refused(INVALID_TXN_STATE)
        return False

    def _ends_under(self, bumps: bool) -> None:
        """Raise the epoch on level 2: the marker has the epoch of what comes next."""
        if bumps:
            self.former, self.epoch = self.epoch, self.epoch + 1

    def ended(self, kind: int) -> None:
        """Note that the markers are written."""
        self.state = ENDS[kind]
        self.partitions.clear()
        self.groups.clear()
        if self.epoch > LAST_EPOCH:
            self._renew()
