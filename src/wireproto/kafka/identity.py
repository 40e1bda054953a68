"""Who a producer is to the brokers, and how it numbers batches: what keeps a retry from becoming a repeat.

What it is: the `Stamp` of Kafka's queues, sans-IO. One `ProducerState` a sender: one producer id and epoch over all of its partitions.

How a batch is written exactly once. Each partition numbers its records under the producer's identity. Numbers are given at the first
sending and stay with the batch for every later one, so that a broker which has it already recognises it. A partition starts again with
new numbers for all that is left in one case only: the broker says that the *oldest* unanswered batch does not follow what it has
(OUT_OF_ORDER_SEQUENCE_NUMBER and its kin), and nothing of the partition is in flight any more. Then neither this batch nor any after
it is in the log. `bump` is the only place where that happens. It raises the epoch of the same producer id (`Identity.raised`): once the
first batch under it is stored, the broker refuses whatever of the old epoch was held up on the way and comes late, which would be there
twice else. Other partitions stay in their epoch until the same befalls them: brokers keep epochs by partition.
    - Until the first batch of an identity is acknowledged only one is in flight: a broker takes any number from a producer that it does
      not know.
    - No batch leaves that is five or more behind the oldest unanswered one: brokers recognise a producer's last five batches, so that one
      which was written, and then refused at its second sending, is still recognised at its third.
    - A batch whose time is over in flight has its numbers all the same: if it is not in the log, the next one does not follow.
    - Without idempotence only one batch of a partition is in flight at a time, so that order holds whatever happens.

In a transaction (`ProducerState.of_transactions`) the coordinator alone gives identities: a batch that does not follow ends the
transaction, and the next one begins under another epoch, in which all partitions number from 0 again.

May assume: one caller at a time (the sender's lock). Must not: ask the broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._codec import KafkaNumbers, KafkaSequence
from ..flow.queue import PartitionQueue

MAX_SEQUENCE = 0x7FFFFFFF
LAST_EPOCH = 0x7FFE
"""Java's clients, too, leave the one above alone: brokers take it for a producer that was fenced."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A producer id and epoch: from InitProducerId, or raised since."""

    producer_id: int
    epoch: int

    def raised(self) -> Identity | None:
        """The next epoch, which needs nobody's leave; None when they are used up and a new id must be asked for."""
        return Identity(self.producer_id, self.epoch + 1) if self.epoch < LAST_EPOCH else None


NOBODY = Identity(-1, -1)


class ProducerState(KafkaNumbers):
    """The identity of an idempotent producer; see the module. Whether a batch may leave (`window`), the numbers that it has (`admit`), and
    that it is stored (`acked`) are the core's.

    Attributes:
        identity: the newest; None while there is none, which holds back what has no numbers yet.
        at_once: a new identity is that of all partitions at once. strict: brokers take no first number but 0 (from Kafka 4.0 on, in a
            transaction), so that more than one batch may be in flight from the start.
    """

    @classmethod
    def of_transactions(cls, identity: Identity, in_flight: int) -> ProducerState:
        """For a sender all of whose batches are in transactions."""
        made = cls(identity, in_flight)
        made.at_once = True
        return made

    def starts_over(self, queue: PartitionQueue, batch: Any) -> None:
        mark: KafkaSequence = queue.mark
        if queue.oldest() is batch and batch.identity is mark.identity:
            mark.starting_over = True

    def drained(self, queue: PartitionQueue) -> None:
        if queue.mark.starting_over:
            self.bump(queue)

    def bump(self, queue: PartitionQueue) -> None:
        """A partition of which nothing is in flight goes on in the next epoch, its batches to be numbered anew."""
        given_up: Identity = queue.mark.identity
        if self.identity == given_up:
            self.identity = given_up.raised()
        queue.mark = KafkaSequence(self.identity) if self.identity is not None else None
        for left in queue.ready:
            left.identity, left.sequence = NOBODY, -1
