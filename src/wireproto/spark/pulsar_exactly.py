"""Writes to Pulsar exactly once: a transaction for each task attempt, one decision for each micro-batch, all ended by the driver.

    driver    check     take the decisions' topic, which fences an older driver; carry out a decision that was left; roll back what else
                        is open
    task      begin     nothing, where its micro-batch is decided; else, at its first rows, a transaction, which is noted before it is used
              finish    a record in the outbox, and everything is stored; the transaction is handed over, open: its id
    driver    commit    D1  the decision, one record: the commit point
                        D2  commit each transaction that it names; of those that are not known any more the outbox shows which were
                            committed; then note that, and roll back what other attempts have left
              abort     of an undecided micro-batch: roll back each

Whatever a replay computes, and however it is cut into tasks: a micro-batch that was decided is not written again, and nothing is visible of
one that was not. Transactions that are decided but not committed (D2) within `pulsar.transaction_timeout` are rolled back by their
coordinators: then the query fails with the list, or its tasks are written again (`onExpired`).

    killed                      before D1                              between D1 and the end of D2        behind it
    driver                      all is rolled back at the next start   the next start carries it out       the tasks skip
    worker                      its attempt is in no decision          a chosen attempt is not in use      the same

A transaction id is used once, and an attempt sends nothing after its hand-over: nothing is added to a transaction that was committed, which
would block its topics' readers for ever. Brokers must have transactions enabled. Nothing may be decided before the decisions' topic is
taken.
"""

from __future__ import annotations

import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import pyarrow.compute as pc

from ..errors import OptionError, WireprotoError
from ..pulsar.codes import NotAllowedError
from . import worker
from .exactly import LONGEST, Plan, expired, handed_over, late, must_have_a_name
from .pulsar_decisions import Decision, Handed, Places
from .pulsar_leading import DECISIONS, SETTING, Leading, note
from .pulsar_sink import PulsarWriteSettings, must_exist
from .sink import TopicSession, TopicSink
from .write import Written

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ..flow.topics import TopicsProducer
    from ..pulsar.client import PulsarClient
    from ..pulsar.producer import PulsarProducer
    from ..pulsar.transactions import PulsarTransaction, PulsarTransactions
    from ..roles import Client
    from .exactly import Once
    from .pulsar_decisions import Driver
    from .write import Session, Task

_KEPT = 16  # number of topics whose producers a worker keeps open


class ExactlyOnce(TopicSink):
    """Writes rows to Pulsar, each exactly once.

    Attributes:
        once: the sink's options. prefix: of the sink's topics. plan: what `check` found, for the tasks.
    """

    settings: PulsarWriteSettings

    def __init__(self, settings: PulsarWriteSettings, once: Once, schema: StructType) -> None:
        super().__init__(settings, schema)
        self.options.setdefault("transaction_timeout", LONGEST)
        self.once = once
        self.prefix = once.prefix or f"wireproto-{uuid.uuid4().hex}"  # a batch write keeps it: its sink is pickled
        self.plan: Plan | None = None

    @property
    def allowed(self) -> float:
        """Return the seconds that an attempt's transaction may take."""
        return float(self.options["transaction_timeout"])

    def leading(self, client: PulsarClient) -> Leading:
        """Return the driver's steps with this client."""
        return Leading(client, self.once.decisions or DECISIONS, self.prefix, self.settings.timeout)

    # --- the driver, before the tasks ---

    def check(self, client: Client, *, stream: bool) -> None:
        """Take the decisions' topic, finish what earlier drivers left, and plan the micro-batch.

        Raises:
            OptionError: brokers have no transactions, a stream has no prefix, or the sink's topics cannot be created.
            TopicNotFound: the topic does not exist.
            Fenced: another driver took the topic meanwhile. Aborted: what was decided was rolled back for taking too long.
        """
        must_have_a_name(self.once.prefix, stream=stream)
        pulsar = cast("PulsarClient", client)
        if self.settings.topic is not None:
            must_exist(client, self.settings.topic)
        try:
            pulsar.transactions(self.prefix).close()
        except NotAllowedError as why:
            raise OptionError(f"option exactlyOnce: {why.text}; leave it out, or set it to true on all brokers") from why
        leading = self.leading(pulsar)
        try:
            self.plan = self._planned(leading)
        except BaseException:
            if self.once.prefix is None:
                leading.forget()  # the topics of a batch write that does not begin
            raise

    def _planned(self, leading: Leading) -> Plan:
        """Run the driver's steps before the tasks, and return the plan."""
        now = leading.prepare()
        with leading.decisions.take() as driver:
            found = driver.find()
            decision = found.decision
            if decision is None:
                leading.make_ready(self.settings.topic)
            again: tuple[Handed, ...] = ()
            if decision is not None and not decision.ended:
                again = self._carried_out(leading, driver, decision)
            swept = leading.roll_back_others(driver.epoch, decision)
        leading.keep(found, now, swept=swept)
        places = now if swept else Places(decision.begun if decision is not None else None, now.outbox)
        return Plan.after(driver.leader, decision, again, [one.task for one in again], places)

    def _carried_out(self, leading: Leading, driver: Driver, decision: Decision) -> tuple[Handed, ...]:
        """Commit the transactions of a decision.

        Returns:
            those whose rows have to be written again.
        Raises:
            Aborted: some were rolled back, and `onExpired` does not say to write them again.
        """
        lost = leading.carried_out(driver, decision)
        decision.judged(lost, [one.task for one in lost], SETTING, "pulsar-wire", again=self.once.again)
        return lost

    # --- a task ---

    def begin(self, client: Client, task: Task) -> Session | None:
        """Begin an attempt; None where the task's rows are committed already."""
        assert self.plan is not None
        return None if self.plan.skips(task) else Attempt(self, cast("PulsarClient", client), task)

    # --- the driver, after the tasks ---

    def commit(self, messages: list[Written | None], batch: int | None) -> None:
        """Decide the micro-batch, then commit its tasks' transactions.

        Raises:
            Aborted: a transaction is over, or nearly so: nothing is decided; or it was decided and rolled back for its time. Fenced:
                another driver
                has the topic.
        """
        handed, facts = handed_over(messages)
        if not handed:
            self._forget()
            return
        with self.open() as opened:
            client = cast("PulsarClient", opened)
            leading = self.leading(client)
            alive = client.admin().open_transactions([one.id for one in handed], timeout=self.settings.timeout)
            over = [one.task for one in handed if one.id not in alive or late(one.expires - time.time(), self.allowed)]
            if over:
                raise expired(over, SETTING, self.prefix)
            with leading.decisions.take(facts["driver"]) as driver:
                decision = Decision.made(facts, batch, handed, places=facts["places"])
                driver.decide(decision)
                lost = self._carried_out(leading, driver, decision)
                if lost:
                    raise decision.start_again([one.task for one in lost])
                leading.roll_back_others(driver.epoch, decision)
        self._forget()

    def abort(self, messages: list[Written | None], batch: int | None) -> None:
        """Roll back what tasks have handed over, unless it was decided: Spark calls this as well when `commit` has raised."""
        handed, _ = handed_over(messages)
        with self.open() as opened:
            leading = self.leading(cast("PulsarClient", opened))
            with leading.decisions.take() as driver:  # fences a driver that is deciding, so that what is found does not change
                decision = driver.find().decision
                decided = () if decision is None else decision.transactions
                leading.roll_back({one.id for one in handed} - {one.id for one in decided})
                leading.roll_back_others(driver.epoch, decision)
                if decision is not None and not decision.ended:  # a batch write has no next start that would do so
                    self._carried_out(leading, driver, decision)
        self._forget()

    def _forget(self) -> None:
        """Delete the topics of a batch write, whose prefix is used once."""
        if self.once.prefix is None:
            with self.open() as opened:
                self.leading(cast("PulsarClient", opened)).forget()


class Attempt(TopicSession):
    """One task's transaction, which begins with its first rows."""

    sink: ExactlyOnce

    def __init__(self, sink: ExactlyOnce, client: PulsarClient, task: Task) -> None:
        self._pulsar = client
        self._task = task
        self._leading = sink.leading(client)
        self._timeout = sink.settings.timeout
        self._work: PulsarTransactions | None = None
        self._turn: PulsarTransaction | None = None
        self._expires = 0.0
        self._seen: set[str] = {sink.settings.topic} if sink.settings.topic is not None else set()
        super().__init__(sink, cast("Client", client))

    def opened(self) -> TopicsProducer[Any]:
        """Return the transaction, which takes rows as a producer does; None before `_begin`."""
        return cast("TopicsProducer[Any]", self._turn)  # only `send_batch` is called, after `_begin`

    def send(self, batch: pa.RecordBatch) -> None:
        """Send rows in the transaction; raises TopicNotFound for rows that name a topic that does not exist."""
        if self._turn is None:
            self._begin()
        if self.sink.settings.topic is None:
            self._must_exist(batch)
        super().send(batch)

    def _begin(self) -> None:
        """Begin the transaction and note it, with the producers that earlier tasks of this worker have kept."""
        assert self.sink.plan is not None
        kept = worker.beside(cast("Client", self._pulsar))
        self._work = kept.pop("work", None) or self._pulsar.transactions(self.sink.prefix, timeout=self._timeout)
        self._expires = time.time() + self.sink.allowed
        self._turn = self._work.begin(timeout=self._timeout)
        self.out = self.opened()
        notes: PulsarProducer | None = kept.get("notes")
        if notes is None or notes.topic != self._leading.begun:
            if notes is not None:
                notes.close(self._timeout)
            notes = kept["notes"] = self._pulsar.producer(self._leading.begun, batching=False, timeout=self._timeout)
        facts = {"run": self._task.run, "task": self._task.partition, "attempt": self._task.attempt}
        notes.send(note(self._turn.id, self.sink.plan.driver.epoch, **facts), timeout=self._timeout).position(self._timeout)

    def _must_exist(self, batch: pa.RecordBatch) -> None:
        """Raise TopicNotFound for topics that rows name and that do not exist: a broker might create them otherwise."""
        names = pc.unique(batch.column(batch.schema.get_field_index("topic"))).to_pylist()
        for name in names:
            if name is not None and name not in self._seen:
                must_exist(self.client, name)
                self._seen.add(name)

    def finish(self) -> Written:
        """Wait until everything is stored, hand the transaction over to the driver, and return the commit message."""
        assert self.sink.plan is not None
        if self._turn is None or self._work is None:
            return Written(self.rows, self.sink.plan.facts(None, self._task))
        self._turn.send(note(self._turn.id, self.sink.plan.driver.epoch), topic=self._leading.outbox, timeout=self._timeout)
        number = self._turn.hand_over(timeout=self._timeout)
        kept = worker.beside(self.client)
        self._work.topics.keep(_KEPT if self.sink.once.prefix is not None else 0, self._timeout)
        if self.sink.once.prefix is None:  # its topics are deleted at the end: an open producer would keep or re-create them
            kept.pop("notes").close(self._timeout)
        kept["work"] = self._work
        return Written(self.rows, self.sink.plan.facts(Handed(self._task.partition, number, self._expires), self._task))

    def abort(self) -> None:
        """Close the transaction, which rolls it back unless it was handed over; errors are ignored."""
        if self._work is not None:
            with suppress(WireprotoError):  # the task fails with its own error, and the driver rolls back what is left
                self._work.close(1.0)
