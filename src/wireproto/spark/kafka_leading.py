"""Implements the steps of an exactly-once sink's driver at the cluster: its name, which one driver has at a time, and ending transactions.

    <prefix>/driver                            the driver's transactional name
    <prefix>/<run>/<task>.<attempt>.<number>   an attempt's: no two attempts that may live at once have the same

`kafka_exactly` makes planning, commit and abort of these steps; `drop` removes a prefix for good (the command line's `sinks drop`). This
module knows nothing of Spark, and leaves to its callers what is decided.
"""

from __future__ import annotations

import re
import time
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import BrokerError, Fenced, OutcomeUnknown, TransportError, UnsupportedVersion, WireprotoError
from ..kafka.codes import InvalidProducerIdMapping, TransactionalIdNotFound
from ..net import retry
from ..net.retry import Verdict
from .exactly import logger, tasks
from .kafka_decisions import Decision, Decisions
from .kafka_hanging import joined, marked, mend, topics_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from ..flow.transactions import Transaction
    from ..kafka.admin import TransactionInfo
    from ..kafka.client import KafkaClient
    from ..kafka.transactions import Identity, KafkaTransactions, OpenTransaction
    from ..position import TopicPartition
    from ..records import Receipt
    from .kafka_hanging import Topics

_SHORT = 30.0
"""Seconds that a transaction of the driver's own may take at most: it has one record."""
_SWEEP_TIMEOUT = 10.0
"""Seconds to look for transactions that attempts have left open, and to end them."""
_MOVING = 30.0
"""Seconds for a name's coordinator to be found while nodes take over from each other."""
SETTING = "kafka.transaction.timeout.ms"
"""The option that bounds the time of tasks' transactions."""


class Leading:
    """The driver of one prefix.

    Args:
        client: of the driver; the caller closes it. topic: where decisions are stored. prefix: the sink's transactionalIdPrefix.
        timeout: seconds for each call. allowed: seconds that brokers let a transaction take, as far as is known.
    """

    def __init__(self, client: KafkaClient, topic: str, prefix: str, timeout: float, allowed: float = _SHORT) -> None:
        self._client = client
        self._short = min(_SHORT, allowed)
        self._admin = client.admin()
        self._timeout = timeout
        self._sweeping = min(timeout, _SWEEP_TIMEOUT)
        self.prefix = prefix
        self.name = f"{prefix}/driver"
        self._names = re.compile(re.escape(prefix) + r"/[^/]+/[0-9]+\.[0-9]+\.[0-9]+")  # of attempts
        self._touched: list[TopicPartition] = []  # partitions of transactions that were rolled back, for `look_through`
        self.decisions = Decisions(client, topic, prefix, timeout)

    def transactions(self, after: Identity | None = None) -> KafkaTransactions:
        """Take the driver's name, and return its transactions.

        Args:
            after: the identity with which this driver had the name before; None: take it from whatever driver has it.
        Raises:
            Fenced: another driver has taken the name since `after`.
        """
        return self._client.transactions(self.name, after=after, transaction_timeout=self._short, timeout=self._timeout)

    def decide(self, work: KafkaTransactions, decision: Decision) -> None:
        """Commit a decision. When this returns nothing undoes it, and only then may the transactions that it names be committed."""
        with work.begin(timeout=self._timeout) as turn:
            sent = self.decisions.decide(turn, decision)
        self.decisions.wait_committed(work, sent)

    def carried_out(self, work: KafkaTransactions, decision: Decision) -> tuple[OpenTransaction, ...]:
        """Commit each transaction of a decision, and note that.

        Until it is noted no attempt of a later micro-batch may begin, since it might have the name of one of these. And it is noted only
        when
        everything is visible: where brokers have skipped a partition, the missing markers are written.

        Returns:
            the transactions that were rolled back for taking too long; if there are any, nothing is noted.
        Raises:
            OutcomeUnknown: coordinators have forgotten some. Fenced: another driver has the name.
            TransportError, BrokerError, TimedOut: it is not noted.
        """
        deadline = time.monotonic() + self._timeout
        lost = self._admin.end_transactions(decision.transactions, commit=True, timeout=self._timeout)
        forgotten = [one for one, why in lost.items() if isinstance(why, InvalidProducerIdMapping)]
        if forgotten:
            raise OutcomeUnknown(
                f"{decision.named} was decided so long ago that coordinators have forgotten {tasks(numbers(forgotten))} "
                "(transactional.id.expiration.ms): whether they were committed is unknown. Look at the topics, then forget the "
                f"decision by wireproto sinks drop URL {self.prefix}"
            )
        committed = [one for one in decision.transactions if one not in lost]
        names = [one.name for one in decision.transactions]
        marked(partial(self.described, names), deadline - time.monotonic())
        self.fence_others(work.identity, decision.transactions)  # so that `mend` takes none of theirs for one that brokers have left open
        leads = partial(self._must_lead, work.identity)
        mend(self._admin, decision.topics, self._names, deadline - time.monotonic(), leads=leads, blind=self._sweeping, decided=committed)
        if not lost:
            self._note(work, partial(self.decisions.end, decision=decision))
        return tuple(lost)

    def forget(self, work: KafkaTransactions) -> None:
        """Write that the prefix has no decision."""
        self._note(work, self.decisions.drop)

    def _note(self, work: KafkaTransactions, what: Callable[[Transaction[Any]], Receipt]) -> None:
        """Write a record whose loss would do no harm, since it would be written again.

        But records of other prefixes in this partition must not wait behind an open transaction, so it waits until the record's own is
        over.

        Args:
            what: sends the record in the transaction.
        """
        with work.begin(timeout=self._timeout) as turn:
            sent = what(turn)
        with self._later("what %s has noted may be open yet, and others' decisions wait behind it"):
            self.decisions.wait_committed(work, sent, self._sweeping)

    def _must_lead(self, driver: Identity) -> None:
        """Raise Fenced where another driver has taken the name."""
        info = marked(partial(self.described, [self.name]), self._sweeping)[self.name]  # while markers are due, the epoch may change
        if (info.producer_id, info.producer_epoch) != (driver.producer_id, driver.epoch):
            raise Fenced(f"another driver has the transactional name {self.name!r} since")

    def roll_back(self, transactions: Iterable[OpenTransaction]) -> None:
        """Roll back transactions that attempts have handed over."""
        known = list(transactions)
        self._touched += self._written([one.name for one in known], self._timeout)
        self._admin.end_transactions(known, commit=False, timeout=self._timeout)

    def fence_others(self, driver: Identity, kept: Collection[OpenTransaction] = (), final: tuple[type[WireprotoError], ...] = ()) -> None:
        """Roll back what attempts have open: readers wait behind it.

        Nothing else depends on it: where a node does not answer that is logged, and left to the next call, or to the transactions'
        time-out.

        Args:
            driver: identity of this driver. kept: transactions that are still to be committed, or just were.
            final: errors that are raised all the same.
        """
        named = {one.name for one in kept}
        with self._later("what attempts of %s have left open could not be rolled back yet", final):
            names = [name for name in self._open() if name not in named]
            if names:
                self._must_lead(driver)  # after the names were listed, so that they are none of a later driver's attempts
                logger.info("kafka-wire: %d transactions of attempts that are in no decision are rolled back", len(names))
                self._fenced(names, self._sweeping)

    def look_through(
        self,
        driver: Identity,
        topics: Topics,
        *,
        kept: Collection[OpenTransaction] = (),
        decided: Collection[OpenTransaction] = (),
        final: tuple[type[WireprotoError], ...] = (),
    ) -> bool:
        """End what brokers have left open, in these partitions and in those that the transactions rolled back here have written to.

        Args:
            driver: identity of this driver. topics: partitions. kept: transactions that are still to be committed.
            decided: transactions that are committed. final: errors that are raised instead of logged.
        Returns:
            whether all of it was seen, so that names may be used again.
        """
        touched, self._touched = self._touched, []
        leads = partial(self._must_lead, driver)
        with self._later("what brokers have left open of %s could not be ended yet", final):
            looked = joined(topics_of(touched), topics)
            if mend(self._admin, looked, self._names, self._sweeping, leads=leads, decided=decided, kept=kept):
                return True
        return False

    @contextmanager
    def _later(self, what: str, final: tuple[type[WireprotoError], ...] = ()) -> Iterator[None]:
        """Log an error instead of raising it; what failed is left to the next call.

        Args:
            what: the warning, with %s for the prefix. final: errors that are raised all the same.
        """
        try:
            yield
        except WireprotoError as why:
            if isinstance(why, final):
                raise
            logger.warning(f"kafka-wire: {what}: %s", self.prefix, why)

    def _fenced(self, names: Collection[str], timeout: float) -> None:
        """Roll back the open transactions of these names."""
        self._touched += self._written(names, timeout)
        self._admin.fence_producers(names, timeout=timeout)

    def _written(self, names: Collection[str], timeout: float) -> list[TopicPartition]:
        """Return the partitions that these open transactions have written to."""
        with suppress(TransactionalIdNotFound):  # from a node that was the coordinator before and does not know yet that it is not any more
            found = self._admin.describe_transactions(names, timeout=timeout)
            return [key for one in found.values() for key in one.partitions]
        return []

    def described(self, names: Collection[str], timeout: float) -> Mapping[str, TransactionInfo]:
        """Return what coordinators know of transactions, by name.

        A node that was the coordinator before may say that it knows none of them; it is asked again, for up to `_MOVING` seconds.

        Raises:
            TransactionalIdNotFound: the coordinator does not know a name.
        """

        def judge(why: WireprotoError) -> Verdict:
            return Verdict.LATER if isinstance(why, TransactionalIdNotFound) else Verdict.NEVER

        deadline = time.monotonic() + min(timeout, _MOVING)
        return retry.run(lambda: self._admin.describe_transactions(names, timeout=timeout), deadline, judge=judge)

    def _open(self) -> list[str]:
        """Return the names of attempts whose transactions are open."""
        try:
            found = self._admin.list_transactions(states="Ongoing", pattern=self._names.pattern, timeout=self._sweeping)
        except UnsupportedVersion:  # before Kafka 4.1
            found = self._admin.list_transactions(states="Ongoing", timeout=self._sweeping)
        return [one.name for one in found if self._names.fullmatch(one.name)]

    def drop(self) -> tuple[Decision | None, str, list[str]]:
        """End a query for good: carry out what it decided, roll back what else it left open, and forget its decisions.

        Returns:
            the last decision; a text about what of it could not be carried out, empty if nothing; names of what was rolled back.
        """
        wrong = ""
        with self.transactions() as work:
            found = self.decisions.find(work)
            decided = () if found is None else found.transactions
            kept = {one.name for one in decided} if found is not None and not found.ended else ()
            others = [name for name in self._open() if name not in kept]
            if others:
                self._fenced(others, self._timeout)
            if found is not None and not found.ended:
                try:
                    if lost := self.carried_out(work, found):
                        wrong = found.text(lost, numbers(lost), SETTING)
                        decided = tuple(one for one in decided if one not in lost)
                except OutcomeUnknown as why:
                    wrong, decided = str(why), ()
            topics = joined(topics_of(self._touched), dict.fromkeys(() if found is None else found.topics))
            try:
                leads = partial(self._must_lead, work.identity)
                mend(self._admin, topics, self._names, self._timeout, leads=leads, decided=decided)
            except (TransportError, BrokerError) as why:
                wrong = wrong or str(why)
            if found is not None:
                self.forget(work)
        return found, wrong, others


def task_of(one: OpenTransaction) -> int:
    """Return the number of the task whose attempt has this name."""
    return int(one.name.rpartition("/")[2].partition(".")[0])


def numbers(some: Iterable[OpenTransaction]) -> list[int]:
    """Return the numbers of the tasks whose attempts these are."""
    return [task_of(one) for one in some]
