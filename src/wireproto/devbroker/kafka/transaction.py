"""One transactional name: who has it, and how far his transaction is.

What it is: the coordinator's state machine, sans-IO::

    Empty, CompleteCommit, CompleteAbort ── a partition or group joins ──▶ Ongoing ── EndTxn ──▶ CompleteCommit, CompleteAbort
    Ongoing ── its time is over, or somebody takes the name ──▶ CompleteAbort, under the next epoch

A real coordinator is in PrepareCommit or PrepareAbort while the markers are written, and answers CONCURRENT_TRANSACTIONS; here they are
written at once. What raises `Refused` is as 4.3.1 answers it. Level 2 (KIP-890): each end begins the next epoch, and who asks for the end
that was made already is told so again; level 1: the epoch stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .markers import ABORT, COMMIT

CONCURRENT_TRANSACTIONS, INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED = 51, 48, 49, 90
LAST_EPOCH = 32766
"""A producer id is used up behind it."""
NO_EPOCH = -1
ENDS = {COMMIT: "CompleteCommit", ABORT: "CompleteAbort"}


class Refused(Exception):
    """The code of the answer."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(slots=True)
class Transaction:
    """Attributes:
    name: transactional id.
    fresh: makes a producer id.
    producer, epoch: whose it is. former: the epoch before this one, of who may repeat what he asked; NO_EPOCH.
    timeout: milliseconds. started: when the last one did, milliseconds since 1970; -1.
    used_up: the producer id before this one, whose epochs were.
    partitions: that have a part in it. groups: whose offsets do.
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
        """What outlives the broker, as JSON values."""
        plain = ("producer", "epoch", "former", "timeout", "state", "started", "used_up")
        found: dict[str, Any] = {key: getattr(self, key) for key in plain}
        return found | {"partitions": sorted(map(list, self.partitions)), "groups": sorted(self.groups)}

    def restore(self, kept: dict[str, Any]) -> None:
        """As `kept` described it."""
        for key, value in kept.items():
            setattr(self, key, value)
        self.partitions = {(topic, partition) for topic, partition in kept["partitions"]}
        self.groups = set(kept["groups"])

    @property
    def ongoing(self) -> bool:
        return self.state == "Ongoing"

    # --- whose it is ---

    def taken(self, timeout: int, expected: tuple[int, int] | None) -> None:
        """It has no transaction open, and is somebody's from now on; with `expected` (producer id, epoch), of who says that it is his."""
        self.timeout = timeout
        if expected is not None and self.epoch != NO_EPOCH:
            producer, epoch = expected
            if producer != self.producer or epoch not in (self.epoch, self.former):
                raise Refused(PRODUCER_FENCED)
            if epoch != self.epoch:  # he asked before, and was not answered
                self.state, self.started = "Empty", -1
                return
        self.state, self.started = "Empty", -1
        self.former = NO_EPOCH if expected is None else self.epoch
        if self.producer < 0 or self.epoch >= LAST_EPOCH:
            self._renew()
        else:
            self.epoch += 1

    def fence(self, *, bumps: bool) -> None:
        """Its transaction is over for who began it: what is written from now on is the next epoch's. On level 2 he may go on from there."""
        self.former, self.epoch = self.epoch if bumps else NO_EPOCH, self.epoch + 1

    def _renew(self) -> None:
        """Another producer id, under its first epoch."""
        self.used_up = self.producer
        self.producer, self.epoch, self.former = self.fresh(), 0, NO_EPOCH

    # --- what is in it ---

    def joins(self, producer: int, epoch: int, now: int, partitions: set[tuple[str, int]], group: str | None) -> None:
        """These have a part in it from now on."""
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
        """Whether that has a part in what this producer has open."""
        return self.ongoing and (producer, epoch) == (self.producer, self.epoch) and partition in self.partitions

    # --- its end ---

    def ends(self, producer: int, epoch: int, kind: int, *, bumps: bool) -> bool:
        """Whether it is to be ended like this, under the epoch of now; False: there is nothing to end.

        Args:
            bumps: the request is of level 2: of an epoch before this one it repeats what was asked, and a rollback of nothing is one.
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
        """The marker's epoch is that of what comes next (level 2), or the transaction's."""
        if bumps:
            self.former, self.epoch = self.epoch, self.epoch + 1

    def ended(self, kind: int) -> None:
        """The markers are written."""
        self.state = ENDS[kind]
        self.partitions.clear()
        self.groups.clear()
        if self.epoch > LAST_EPOCH:  # that was its last one
            self._renew()
