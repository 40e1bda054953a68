"""Numbers the batches of a producer: its producer id, epochs and sequences, which keep a retry from becoming a duplicate.

The `Sequencer` of Kafka's queues, sans-IO. One `ProducerState` a sender: one producer id and epoch over all of its partitions.

How a batch is written exactly once. Each partition numbers its records under the producer's identity. Numbers are given at the first
sending and stay with the batch for every later one, so that a broker which has it already recognises it. A partition starts again with
new numbers for all that is left in one case only: the broker says that the *oldest* unanswered batch does not follow what it has
(OUT_OF_ORDER_SEQUENCE_NUMBER and its kin), and nothing of the partition is in flight any more. Then neither this batch nor any after
it is in the log. `bump` is the only place where that happens. It raises the epoch of the same producer id (`Identity.raised`): once the
first batch under it is stored, the broker refuses late batches of the old epoch, which would be duplicates else. Other partitions stay in
their epoch until the same happens to them: brokers keep epochs by partition.
    - Until the first batch of an identity is acknowledged only one is in flight: a broker takes any number from a producer that it does
      not know.
    - No batch leaves that is five or more behind the oldest unanswered one: brokers recognise a producer's last five batches, so that one
      which was written, and then refused at its second sending, is still recognised at its third.
    - A batch that times out in flight keeps its numbers: if it is not in the log, the next one does not follow.
    - Without idempotence only one batch of a partition is in flight at a time, so that order holds whatever happens.

In a transaction (`ProducerState.of_transactions`) only the coordinator gives identities: a batch that does not follow ends the
transaction, and the next one begins under another epoch, in which all partitions number from 0 again.

One caller at a time (the sender's lock). Sends nothing to the broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._codec import KafkaNumbers, KafkaSequence
from ..flow.queue import PartitionQueue

MAX_SEQUENCE = 0x7FFFFFFF
LAST_EPOCH = 0x7FFE
"""The last epoch that is used. Java's clients leave out the one above as well: brokers take it for a fenced producer."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A producer id and epoch: from InitProducerId, or raised since.

    Attributes:
        producer_id: the producer's number; -1: none.
        epoch: the producer epoch.
    """

    producer_id: int
    epoch: int

    def raised(self) -> Identity | None:
        """Return the identity with the next epoch, which takes no request; None when epochs are used up and a new id must be asked for."""
        return Identity(self.producer_id, self.epoch + 1) if self.epoch < LAST_EPOCH else None


NO_IDENTITY = Identity(-1, -1)


class ProducerState(KafkaNumbers):
    """The identity of an idempotent producer; see the module.

    Whether a batch may leave (`window`), its numbers (`admit`), and that it is stored (`acked`) are in the core.

    Attributes:
        identity: the newest; None while there is none, which holds back batches without numbers.
        at_once: whether a new identity is that of all partitions at once.
        strict: whether brokers take no first number but 0 (from Kafka 4.0 on, in a transaction), so that more than one batch may be in
            flight from the start.
    """

    @classmethod
    def of_transactions(cls, identity: Identity, in_flight: int) -> ProducerState:
        """Make the state of a sender all of whose batches are in transactions.

        Args:
            identity: of the transactional id. in_flight: batches of one partition that may be in flight.
        """
        made = cls(identity, in_flight)
        made.at_once = True
        return made

    def starts_over(self, queue: PartitionQueue, batch: Any) -> None:
        """Note that the broker says that the batch does not follow what it has; the partition starts over once it is `drained`."""
        mark: KafkaSequence = queue.mark
        if queue.oldest() is batch and batch.identity is mark.identity:
            mark.starting_over = True

    def drained(self, queue: PartitionQueue) -> None:
        """Start a partition over, if that was noted: nothing of it is in flight any more."""
        if queue.mark.starting_over:
            self.bump(queue)

    def bump(self, queue: PartitionQueue) -> None:
        """Move a partition without batches in flight to the next epoch, and take the numbers of its batches away; they get new ones."""
        given_up: Identity = queue.mark.identity
        if self.identity == given_up:
            self.identity = given_up.raised()
        queue.mark = KafkaSequence(self.identity) if self.identity is not None else None
        for left in queue.ready:
            left.identity, left.sequence = NO_IDENTITY, -1
