"""Writes to Kafka exactly once: a transaction for each task attempt, one decision for each micro-batch, all ended by the driver.

    driver    check     take the driver's name, which fences an older driver; carry out a decision that was left; roll back what else
                        is open
    task      begin     nothing, where its micro-batch is decided; else a transaction under a name that no concurrent attempt has
              finish    everything is stored; the transaction is handed over, open: (name, producer id, epoch)
    driver    commit    D1  the decision, in a transaction of the driver's name: the commit point
                        D2  commit each transaction that it names; then note that, and roll back what other attempts have left
              abort     of an undecided micro-batch: roll back each

Whatever a replay computes, and however it is cut into tasks: a micro-batch that was decided is not written again, and nothing is visible of
one that was not. Transactions that are decided but not committed (D2) within `kafka.transaction.timeout.ms` are rolled back by their
coordinators: then the query fails with the list, or its tasks are written again (`onExpired`).

    killed                      before D1                              between D1 and the end of D2        behind it
    driver                      all is rolled back at the next start   the next start carries it out       the tasks skip
    worker                      its attempt is in no decision          a chosen attempt's name is unused   the same

Kafka 3.0 is needed. An attempt's name must not be used again while its transaction may be open, and decisions must not be read before the
driver's name is taken.
"""

from __future__ import annotations

import re
import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from ..errors import AuthError, Fenced, WireprotoError
from ..flow.topics import TopicsProducer
from ..kafka.codes import InvalidTransactionTimeout
from ..kafka.messages import ListTransactionsRequest
from .exactly import LEAST, PART, Plan, expired, handed_over, late, must_have_a_name
from .kafka_decisions import Decision
from .kafka_hanging import topics_of
from .kafka_leading import SETTING, Leading, numbers
from .kafka_sink import KafkaSink, KafkaWriteSettings
from .kafka_versions import need
from .sink import TopicSession
from .write import Written

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ..flow.transactions import Transaction
    from ..kafka.client import KafkaClient
    from ..kafka.transactions import Identity, KafkaTransactions, OpenTransaction
    from ..roles import Client
    from .write import Session, Task

_LEAST, _PART = LEAST, PART
_SLOTS = 8
"""A task's names are used again in every eighth micro-batch, for every eighth of Spark's attempts: coordinators keep a name for a week."""


class ExactlyOnce(KafkaSink):
    """Writes rows to Kafka, each exactly once.

    Attributes:
        prefix: of all transactional names. plan: what `check` found, for the tasks.
        apart: whether names of attempts are unique to this micro-batch, since transactions of earlier attempts may still be open.
    """

    settings: KafkaWriteSettings

    def __init__(self, settings: KafkaWriteSettings, schema: StructType) -> None:
        super().__init__(settings, schema)
        self.prefix = settings.prefix or f"wireproto-{uuid.uuid4().hex}"  # a batch write keeps it: its sink is pickled
        self.plan: Plan | None = None
        self.apart = False

    def leading(self, client: KafkaClient) -> Leading:
        """Return the driver's steps with this client."""
        allowed = float(self.options["transaction_timeout"])
        return Leading(client, self.settings.decisions, self.prefix, self.settings.timeout, allowed)

    # --- the driver, before the tasks ---

    def check(self, client: Client, *, stream: bool) -> None:
        """Take the driver's name, finish what earlier drivers left, and plan the micro-batch.

        Raises:
            OptionError: brokers are older than 3.0, a stream has no prefix, or the topic of decisions cannot keep them.
            Fenced: another driver took the name meanwhile. Aborted: what was decided was rolled back for taking too long.
            OutcomeUnknown: coordinators have forgotten decided transactions. InvalidTransactionTimeout: brokers do not allow the
                transactions' time.
        """
        super().check(client, stream=stream)
        need(client, "option exactlyOnce", "3.0", "leave it out: then records are written at least once", ListTransactionsRequest)
        must_have_a_name(self.settings.prefix, stream=stream)
        kafka = cast("KafkaClient", client)
        leading = self.leading(kafka)
        driver = self._taken(kafka, leading.name)
        leading.decisions.prepare()
        found: Decision | None = None
        again: tuple[OpenTransaction, ...] = ()
        if self.settings.prefix:
            with leading.transactions(driver) as work:
                found = leading.decisions.find(work)
                if found is not None and not found.ended:
                    again = self._carried_out(leading, work, found)
                driver = work.identity
        topics = [*(() if found is None else found.topics), *(() if self.settings.topic is None else (self.settings.topic,))]
        decided = [] if found is None else [one for one in found.transactions if one not in again]
        leading.fence_others(driver, final=(Fenced,))
        self.apart = not leading.look_through(driver, dict.fromkeys(topics), decided=decided, final=(Fenced, AuthError))
        self.plan = Plan.after(driver, found, again, numbers(again))

    def _taken(self, client: KafkaClient, name: str) -> Identity:
        """Take the driver's name, and return its identity.

        It asks for the time that tasks' transactions will ask for, so that a time that brokers do not allow fails here.
        """
        try:
            with client.transactions(name, timeout=self.settings.timeout) as first:
                return first.identity
        except InvalidTransactionTimeout as why:
            given = self.options["transaction_timeout"]
            why.text = f"kafka.transaction.timeout.ms, {given:g} s, is more than the brokers' transaction.max.timeout.ms: ask for less"
            raise

    def _carried_out(self, leading: Leading, work: KafkaTransactions, decision: Decision) -> tuple[OpenTransaction, ...]:
        """Commit the transactions of a decision.

        Returns:
            those whose rows have to be written again.
        Raises:
            Aborted: some were rolled back, and `onExpired` does not say to write them again.
        """
        lost = leading.carried_out(work, decision)
        decision.judged(lost, numbers(lost), SETTING, "kafka-wire", again=self.settings.again)
        return lost

    # --- a task ---

    def begin(self, client: Client, task: Task) -> Session | None:
        """Begin an attempt's transaction; None where the task's rows are committed already."""
        assert self.plan is not None
        if self.plan.skips(task):
            return None
        run = re.sub(r"[^\w.-]", "-", task.run) if task.run and not self.apart else self.plan.job
        slot = (task.batch or 0) % _SLOTS * _SLOTS + task.serial % _SLOTS
        return Attempt(self, cast("KafkaClient", client), task, f"{self.prefix}/{run}/{task.partition}.{task.attempt}.{slot}")

    # --- the driver, after the tasks ---

    def commit(self, messages: list[Written | None], batch: int | None) -> None:
        """Decide the micro-batch, then commit its tasks' transactions.

        Raises:
            Aborted: a transaction is over, or nearly so: nothing is decided; or it was decided and rolled back for its time. Fenced:
                another driver
                has the name.
        """
        handed, facts = handed_over(messages)
        if not handed:
            return
        with self.open() as opened:
            client = cast("KafkaClient", opened)
            leading, timeout = self.leading(client), self.settings.timeout
            states = leading.described([one.name for one in handed], timeout)
            over = [one for one in handed if not under_way(one, states[one.name])]
            if over:
                raise expired(numbers(over), SETTING, self.prefix)
            with leading.transactions(facts["driver"]) as work:
                written = topics_of(key for one in states.values() for key in one.partitions)
                decision = Decision.made(facts, batch, handed, topics=written)
                leading.decide(work, decision)
                lost = self._carried_out(leading, work, decision)
                if lost:
                    raise decision.start_again(numbers(lost))
                leading.look_through(work.identity, {}, decided=handed)
                if self.settings.prefix is None:
                    leading.forget(work)

    def abort(self, messages: list[Written | None], batch: int | None) -> None:
        """Roll back what tasks have handed over, unless it was decided: Spark calls this as well when `commit` has raised."""
        handed, _ = handed_over(messages)
        with self.open() as opened:
            leading = self.leading(cast("KafkaClient", opened))
            with leading.transactions() as work:  # fences a driver that is deciding, so that what is found does not change
                found = leading.decisions.find(work)
                decided = () if found is None else found.transactions
                leading.roll_back(set(handed) - set(decided))
                kept, past = ((), decided) if found is None or found.ended else (decided, ())
                leading.fence_others(work.identity, kept)
                leading.look_through(work.identity, {}, kept=kept, decided=past)
                if found is not None and not found.ended:  # a batch write has no next start that would do so
                    self._carried_out(leading, work, found)


class Attempt(TopicSession):
    """One task's transaction.

    It takes its name when it begins: an attempt that hangs and wakes up when the name is in use again takes it from no other one, and is
    fenced.
    """

    sink: ExactlyOnce

    def __init__(self, sink: ExactlyOnce, client: KafkaClient, task: Task, name: str) -> None:
        self._task = task
        self._work: KafkaTransactions = client.transactions(name, timeout=sink.settings.timeout)
        self._turn: Transaction[Any] = self._work.begin(timeout=sink.settings.timeout)
        super().__init__(sink, cast("Client", client))

    def opened(self) -> TopicsProducer[Any]:
        """Return the transaction, which takes rows as a producer does."""
        return cast("TopicsProducer[Any]", self._turn)  # only `send_batch` is called

    def finish(self) -> Written:
        """Wait until everything is stored, hand the transaction over to the driver, and return the commit message."""
        assert self.sink.plan is not None
        handed = self._turn.hand_over(timeout=self.sink.settings.timeout)
        self.abort()  # closes the role; the transaction stays open, since it was handed over
        return Written(self.rows, self.sink.plan.facts(handed, self._task))

    def abort(self) -> None:
        """Close the transaction, which rolls it back unless it was handed over; errors are ignored."""
        with suppress(WireprotoError):  # the task fails with its own error, and the driver rolls back what is left
            self._work.close(1.0)


def under_way(one: OpenTransaction, state: Any) -> bool:
    """Return whether the transaction can still be committed, and has enough time left for that.

    Args:
        one: as its task handed it over. state: what its coordinator knows of it.
    """
    left = state.started / 1000 + state.timeout - time.time() if state.started is not None else state.timeout
    too_late = late(left, state.timeout, _LEAST, _PART)
    return (state.state, state.producer_id, state.producer_epoch, too_late) == ("Ongoing", one.producer_id, one.producer_epoch, False)
