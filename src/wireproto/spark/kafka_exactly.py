"""Kafka's exactly-once sink: a transaction a task attempt, one decision a micro-batch, and the end of all of them by the driver.

    driver    check     take the driver's name: an older driver is fenced; carry out a decision that was left; roll back what else is open
    task      begin     nothing, where its micro-batch is decided; else a transaction under a name that no attempt beside it has
              finish    all is stored; the transaction is handed over, open: (name, producer id, epoch)
    driver    commit    D1  the decision, in a transaction of the driver's name: the commit point
                        D2  commit each transaction that it names; then note that, and roll back what losers have left
              abort     of an undecided micro-batch: roll back each

Whatever a replay computes, and however it is cut into tasks: a micro-batch whose decision was made is not written again, and of one whose
was not nothing is seen. What stands between the decision and the end of D2 for longer than `kafka.transaction.timeout.ms` is rolled back by
its coordinators: then the query fails with the list, or its tasks are written again (`onExpired`).

    killed                      before D1                              between D1 and the end of D2        behind it
    driver                      all is rolled back at the next start   the next start carries it out       the tasks skip
    worker                      its attempt is in no decision          nobody uses a chosen one's name     the same

May assume: Kafka 3.0. Must not: use an attempt's name for another one while its transaction may be open, or read a decision before the
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
"""A task's names serve again in each eighth micro-batch, for each eighth attempt of the Spark: coordinators keep a name for a week."""


class ExactlyOnce(KafkaSink):
    """Rows to Kafka, each once."""

    settings: KafkaWriteSettings

    def __init__(self, settings: KafkaWriteSettings, schema: StructType) -> None:
        super().__init__(settings, schema)
        self.prefix = settings.prefix or f"wireproto-{uuid.uuid4().hex}"  # of a batch write, whose sink is pickled to its end
        self.plan: Plan | None = None
        self.apart = False  # names of attempts are this micro-batch's alone: what earlier ones have left may be open

    def leading(self, client: KafkaClient) -> Leading:
        allowed = float(self.options["transaction_timeout"])
        return Leading(client, self.settings.decisions, self.prefix, self.settings.timeout, allowed)

    # --- the driver, before ---

    def check(self, client: Client, *, stream: bool) -> None:
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
        """Have the driver's name; asks for as much time as the tasks will, so that what they cannot have shows here."""
        try:
            with client.transactions(name, timeout=self.settings.timeout) as first:
                return first.identity
        except InvalidTransactionTimeout as why:
            given = self.options["transaction_timeout"]
            why.text = f"kafka.transaction.timeout.ms, {given:g} s, is more than the brokers' transaction.max.timeout.ms: ask for less"
            raise

    def _carried_out(self, leading: Leading, work: KafkaTransactions, decision: Decision) -> tuple[OpenTransaction, ...]:
        """Commit what was decided.

        Returns:
            those whose rows have to be written again. Raises Aborted for them where `onExpired` does not say so.
        """
        lost = leading.carried_out(work, decision)
        decision.judged(lost, numbers(lost), SETTING, "kafka-wire", again=self.settings.again)
        return lost

    # --- a task ---

    def begin(self, client: Client, task: Task) -> Session | None:
        assert self.plan is not None
        if self.plan.skips(task):
            return None
        run = re.sub(r"[^\w.-]", "-", task.run) if task.run and not self.apart else self.plan.job
        slot = (task.batch or 0) % _SLOTS * _SLOTS + task.serial % _SLOTS
        return Attempt(self, cast("KafkaClient", client), task, f"{self.prefix}/{run}/{task.partition}.{task.attempt}.{slot}")

    # --- the driver, behind ---

    def commit(self, messages: list[Written | None], batch: int | None) -> None:
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
            with leading.transactions() as work:  # whoever decides is fenced, so that what is found stays so
                found = leading.decisions.find(work)
                decided = () if found is None else found.transactions
                leading.roll_back(set(handed) - set(decided))
                kept, past = ((), decided) if found is None or found.ended else (decided, ())
                leading.fence_others(work.identity, kept)
                leading.look_through(work.identity, {}, kept=kept, decided=past)
                if found is not None and not found.ended:  # of a batch write there is no next start that would do so
                    self._carried_out(leading, work, found)


class Attempt(TopicSession):
    """One task's transaction. It has its name from the beginning: an attempt that hangs and wakes when the name serves another one takes it
    from nobody, and is fenced."""

    sink: ExactlyOnce

    def __init__(self, sink: ExactlyOnce, client: KafkaClient, task: Task, name: str) -> None:
        self._task = task
        self._work: KafkaTransactions = client.transactions(name, timeout=sink.settings.timeout)
        self._turn: Transaction[Any] = self._work.begin(timeout=sink.settings.timeout)
        super().__init__(sink, cast("Client", client))

    def opened(self) -> TopicsProducer[Any]:
        return cast("TopicsProducer[Any]", self._turn)  # `send_batch` is all that is asked of it

    def finish(self) -> Written:
        assert self.sink.plan is not None
        handed = self._turn.hand_over(timeout=self.sink.settings.timeout)
        self.abort()  # which leaves it open now
        return Written(self.rows, self.sink.plan.facts(handed, self._task))

    def abort(self) -> None:
        with suppress(WireprotoError):  # the task fails with its own error, and the driver rolls back what is left
            self._work.close(1.0)


def under_way(one: OpenTransaction, state: Any) -> bool:
    """Whether it can still be committed, and has the time for that."""
    left = state.started / 1000 + state.timeout - time.time() if state.started is not None else state.timeout
    too_late = late(left, state.timeout, _LEAST, _PART)
    return (state.state, state.producer_id, state.producer_epoch, too_late) == ("Ongoing", one.producer_id, one.producer_epoch, False)
