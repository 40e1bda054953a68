"""Pulsar's exactly-once sink step by step, its lives cut at each of them, on a real broker.

Lives of a query's driver and its tasks are driven here as Spark drives them, one after the other in this process; what is there at the end
is the official client's word.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

import wireproto
from brokers.pulsar import Pulsar
from integration.pulsar_tools import new_topic, read_theirs, theirs
from patience import LONG, until
from spark.once import CUT, OTHER, ROWS, Killed, killed, serials, values
from spark.once_pulsar import PulsarLife, already, batch, ids, ordered, over, seen, session
from spark.peers import QUIET
from wireproto.errors import Aborted, Fenced, TimedOut, UsageError
from wireproto.pulsar.codes import TopicNotFound
from wireproto.pulsar.coordinators import Coordinators
from wireproto.spark import worker
from wireproto.spark.pulsar import PulsarWire
from wireproto.spark.pulsar_decisions import Driver, Leader
from wireproto.spark.pulsar_exactly import ExactlyOnce
from wireproto.spark.pulsar_leading import Leading
from wireproto.spark.write import Task, Written

SECONDS = 30.0
BRIEF = {"pulsar.transaction_timeout": "6"}
"""Until transactions are over: time enough for a late machine to decide a micro-batch in, and its end is waited for."""

pytestmark = [QUIET, pytest.mark.parametrize("broker", ["pulsar-4.2.4-transactions"], indirect=True)]


@pytest.fixture
def client(broker: Pulsar) -> Iterator[Any]:
    with wireproto.connect(broker.url) as opened:
        yield opened
    worker.close_all()


@pytest.fixture
def topic(broker: Pulsar) -> str:
    return new_topic(broker)


def test_a_micro_batch_is_seen_whole_when_it_is_committed(broker: Pulsar, client: Any, topic: str) -> None:
    life = PulsarLife(broker, topic)
    messages = life.tasks(life.plan(), 0, CUT)
    with theirs(broker) as judge:
        assert read_theirs(judge, topic) == []
    assert [message.rows for message in messages if message] == [4, 4, 4]
    life.sink().commit(messages, 0)
    assert sorted(record.value for batch in client.reader(topic, stop=wireproto.LATEST) for record in batch) == ROWS
    ordered(broker, topic, ROWS)
    life.whole(1, [values(12), values(13)])
    ordered(broker, topic, [*ROWS, *values(12, 13)])


def test_a_replay_of_a_decided_one_writes_nothing_however_it_is_cut(broker: Pulsar, client: Any, topic: str) -> None:
    life = PulsarLife(broker, topic)
    life.whole(0, CUT)
    life.whole(1, [values(12)])
    again = PulsarLife(broker, topic)
    for _ in range(2):
        assert already(again.whole(1, OTHER))
    again.whole(2, [values(13)])
    ordered(broker, topic, [*ROWS, *values(12, 13)])


def test_a_driver_killed_before_its_decision_leaves_nothing(broker: Pulsar, client: Any, topic: str) -> None:
    life = PulsarLife(broker, topic)
    messages = life.tasks(life.plan(), 0, CUT)
    again = PulsarLife(broker, topic)
    sink = again.plan()
    assert client.admin().open_transactions(ids(messages)) == frozenset(), "readers of the topic do not wait for their time"
    again.sink().commit(again.tasks(sink, 0, OTHER), 0)
    ordered(broker, topic, ROWS)


@pytest.mark.parametrize("ended", [0, 1, 3])
def test_a_driver_killed_behind_its_decision_has_it_carried_out_by_the_next(broker: Pulsar, client: Any, topic: str, ended: int) -> None:
    """Some of its transactions are committed, or all of them and that is not noted: their coordinator has forgotten them."""
    life = PulsarLife(broker, topic)
    messages = life.tasks(life.plan(), 0, CUT)
    life.killed_behind_its_decision(messages, 0)
    assert client.admin().end_transactions(ids(messages)[:ended], commit=True) == {}
    if ended == 1:
        life.sink().abort(messages, 0)  # as Spark does, unless it is killed as well
        ordered(broker, topic, ROWS)
    again = PulsarLife(broker, topic)
    assert already(again.whole(0, OTHER))
    ordered(broker, topic, ROWS)
    again.whole(1, [values(12)])
    ordered(broker, topic, [*ROWS, *values(12)])


def test_a_driver_killed_before_its_note_has_nothing_carried_out_again(
    broker: Pulsar, client: Any, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = PulsarLife(broker, topic)
    messages = life.tasks(life.plan(), 0, CUT)
    with monkeypatch.context() as patched:
        patched.setattr(Driver, "end", killed)
        with pytest.raises(Killed):
            life.sink().commit(messages, 0)
    ordered(broker, topic, ROWS)
    assert already(PulsarLife(broker, topic).whole(0, OTHER))
    ordered(broker, topic, ROWS)


def test_a_decision_without_an_answer_is_settled_by_abort(broker: Pulsar, client: Any, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that commits was killed with its decision on the way: whichever it was, all or nothing is there."""
    life = PulsarLife(broker, topic)
    messages = life.tasks(life.plan(), 0, CUT)
    with monkeypatch.context() as patched:
        patched.setattr(Driver, "decide", killed)
        with pytest.raises(Killed):
            life.sink().commit(messages, 0)
    life.sink().abort(messages, 0)
    ordered(broker, topic, [])
    PulsarLife(broker, topic).whole(0, OTHER)
    ordered(broker, topic, ROWS)


def test_an_abort_behind_a_commit_that_raised_carries_it_out(
    broker: Pulsar, client: Any, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = PulsarLife(broker, topic)
    messages = life.tasks(life.plan(), 0, CUT)

    def fails(*_: Any) -> Any:
        raise TimedOut("no coordinator")

    with monkeypatch.context() as patched:
        patched.setattr(Leading, "carried_out", fails)
        with pytest.raises(TimedOut):
            life.sink().commit(messages, 0)
    life.sink().abort(messages, 0)
    ordered(broker, topic, ROWS)
    assert already(PulsarLife(broker, topic).whole(0, OTHER))
    ordered(broker, topic, ROWS)


def test_an_answer_that_is_lost_is_looked_up(
    broker: Pulsar, client: Any, topic: str, fault_proxy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """END_TXN has its transaction committed, and the connection is cut: asked again, the coordinator does not know it."""
    through = {"service.url": fault_proxy.url(broker.service)}
    through["pulsar.address_map"] = ",".join(f"{there}={here}" for there, here in fault_proxy.address_map(broker.addresses).items())
    life = PulsarLife(broker, topic, **through)
    messages = life.tasks(life.plan(), 0, [ROWS])
    carried_out, committed, answer = Leading.carried_out, Leading._committed, Coordinators._answer
    looked: list[set[Any]] = []
    stalls = [True]

    def asked(self: Coordinators, *more: Any) -> Any:
        if stalls and self._cluster is not client.cluster:  # which looks on
            fault_proxy.stall("down")
        return answer(self, *more)

    def carries_out(self: Leading, *more: Any) -> Any:
        monkeypatch.setattr(Coordinators, "_answer", asked)  # its connections are there when it comes to that
        return carried_out(self, *more)

    def looks(self: Leading, *more: Any) -> Any:
        looked.append(committed(self, *more))
        return looked[-1]

    monkeypatch.setattr(Leading, "carried_out", carries_out)
    monkeypatch.setattr(Leading, "_committed", looks)
    with ThreadPoolExecutor(1) as pool:
        committing = pool.submit(life.sink().commit, messages, 0)
        until(lambda: client.admin().open_transactions(ids(messages)) == frozenset(), "they are committed")
        stalls.clear()
        fault_proxy.cut()
        fault_proxy.heal()
        committing.result(LONG)
    assert looked == [set(ids(messages))]
    monkeypatch.undo()
    ordered(broker, topic, ROWS)
    assert already(PulsarLife(broker, topic).whole(0, OTHER))
    ordered(broker, topic, ROWS)


# --- two drivers ---


def test_an_older_driver_decides_nothing(broker: Pulsar, client: Any, topic: str) -> None:
    old, new = PulsarLife(broker, topic), PulsarLife(broker, topic)
    messages = old.tasks(old.plan(), 0, CUT)
    sink = new.plan()
    with pytest.raises((Fenced, Aborted)):  # its tasks' transactions are rolled back as well
        old.sink().commit(messages, 0)
    new.sink().commit(new.tasks(sink, 0, OTHER), 0)
    ordered(broker, topic, ROWS)


def test_an_older_driver_is_fenced_though_its_tasks_come_later(broker: Pulsar, client: Any, topic: str) -> None:
    old, new = PulsarLife(broker, topic), PulsarLife(broker, topic)
    sink = old.plan()
    newer = new.plan()
    messages = old.tasks(sink, 0, CUT)
    with pytest.raises(Fenced, match="another driver of the transactionalIdPrefix"):
        old.sink().commit(messages, 0)
    old.sink().abort(messages, 0)
    with pytest.raises(Fenced):  # by the abort
        new.sink().commit(new.tasks(newer, 0, OTHER), 0)
    PulsarLife(broker, topic).whole(0, OTHER)
    ordered(broker, topic, ROWS)


def test_an_older_driver_rolls_back_nothing_of_a_newer_one(broker: Pulsar, client: Any, topic: str) -> None:
    """It was frozen as it was about to, and wakes when the newer one has decided."""
    old, new = PulsarLife(broker, topic), PulsarLife(broker, topic)
    epoch = old.plan().plan.driver.epoch
    messages = new.tasks(new.plan(), 0, CUT)
    new.killed_behind_its_decision(messages, 0)
    assert old.leading(client).roll_back_others(epoch, None)
    assert client.admin().open_transactions(ids(messages)) == frozenset(ids(messages))
    assert already(PulsarLife(broker, topic).whole(0, OTHER))
    ordered(broker, topic, ROWS)


def test_what_an_older_driver_stores_behind_a_newer_one_is_void(
    broker: Pulsar, client: Any, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its broker had let the decision in when the newer one came: it stands in the log, and its driver sees that it does not count."""
    old, new = PulsarLife(broker, topic), PulsarLife(broker, topic)
    messages = old.tasks(old.plan(), 0, CUT)
    write = Driver._write

    def slow(self: Driver, kind: str, **facts: Any) -> Any:
        if kind != "decided":
            return write(self, kind, **facts)
        with monkeypatch.context() as inner:
            inner.setattr(Driver, "_write", write)
            newer = new.plan().plan.driver
        leading = new.leading(client)
        with leading.decisions.take(newer) as driver:
            driver.leader = self.leader  # what stands there is the older one's
            return write(driver, kind, **facts)

    with monkeypatch.context() as patched:
        patched.setattr(Driver, "_write", slow)
        with pytest.raises(Fenced, match="has the decisions' topic"):
            old.sink().commit(messages, 0)
    new.whole(0, OTHER)
    ordered(broker, topic, ROWS)


def test_of_two_drivers_that_were_given_one_epoch_one_decides(broker: Pulsar, client: Any, topic: str) -> None:
    """As a broker does when both come while it stores the epoch."""
    old, new = PulsarLife(broker, topic), PulsarLife(broker, topic)
    sink = old.plan()
    twin = Leader(sink.plan.driver.epoch, "twin")
    with new.leading(client).decisions.take(twin) as driver:
        assert driver.find().decision is None
    messages = old.tasks(sink, 0, CUT)
    with pytest.raises(Fenced, match="has the decisions' topic"):
        old.sink().commit(messages, 0)
    PulsarLife(broker, topic).whole(0, OTHER)
    ordered(broker, topic, ROWS)


# --- attempts that lose ---


def test_brokers_have_begun_to_keep_transactions_before_the_first_attempt(broker: Pulsar, client: Any) -> None:
    """An end that comes before that leaves nothing, and what comes behind it holds readers up."""
    many = new_topic(broker, partitions=2)
    life = PulsarLife(broker, many)
    life.plan()
    for name in (f"{many}-partition-0", f"{many}-partition-1", life.leading(client).outbox.rpartition("/")[2]):
        stats = json.loads(broker.call("GET", f"/admin/v3/transactions/transactionBufferStats/public/default/{name}"))
        assert (stats["state"], stats["ongoingTxnSize"]) == ("Ready", 0)


def test_what_could_not_be_rolled_back_is_rolled_back_at_the_commit(
    broker: Pulsar, client: Any, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = PulsarLife(broker, topic)
    left = life.tasks(life.plan(), 0, CUT)
    again = PulsarLife(broker, topic)
    with monkeypatch.context() as patched:
        patched.setattr(Leading, "roll_back_others", lambda *_: False)
        sink = again.plan()
    again.sink().commit(again.tasks(sink, 0, OTHER), 0)
    assert client.admin().open_transactions(ids(left)) == frozenset()
    ordered(broker, topic, ROWS)


def test_what_losers_leave_open_holds_up_no_reader(broker: Pulsar, client: Any, topic: str) -> None:
    """An attempt that was killed, and one that had finished beside the chosen one."""
    life = PulsarLife(broker, topic)
    sink = life.plan()
    life.task(sink, 0, 0, ROWS[:4], attempt=1)
    lost = session(life, sink, 1, 1)
    lost._turn.producer(topic).flush(SECONDS)
    life.sink().commit(life.tasks(sink, 0, CUT), 0)
    ordered(broker, topic, ROWS)
    lost.client.close()


def test_an_attempt_that_writes_on_when_it_was_rolled_back_is_not_seen(broker: Pulsar, client: Any, topic: str) -> None:
    life = PulsarLife(broker, topic)
    sink = life.plan()
    zombie = session(life, sink, 0, 1)
    zombie._turn.producer(topic).flush(SECONDS)
    life.sink().commit(life.tasks(sink, 0, CUT), 0)
    zombie.send(batch(values(98)))
    with pytest.raises(Aborted):  # the outbox cannot be made part of it any more
        zombie.finish()
    ordered(broker, topic, ROWS)
    assert already(PulsarLife(broker, topic).whole(0, OTHER))
    ordered(broker, topic, ROWS)
    zombie.client.close()


def test_a_failed_task_leaves_nothing_open(broker: Pulsar, client: Any, topic: str) -> None:
    life = PulsarLife(broker, topic)
    failed = session(life, life.plan())
    failed.abort()
    ordered(broker, topic, [])
    failed.client.close()


def test_an_attempt_that_finishes_while_the_outbox_is_read_is_rolled_back(
    broker: Pulsar, client: Any, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record in the outbox stands before the one that is read up to."""
    life = PulsarLife(broker, topic)
    sink = life.plan()
    late = session(life, sink, 2, 1)
    messages = life.tasks(sink, 0, CUT)
    life.killed_behind_its_decision(messages, 0)
    assert client.admin().end_transactions(ids(messages)[:1], commit=True) == {}
    swept, roll_back_others = [], Leading.roll_back_others

    def misses(self: Leading, *more: Any) -> bool:
        swept.append(more)
        if len(swept) > 1:
            return roll_back_others(self, *more)
        late.finish()
        return True

    monkeypatch.setattr(Leading, "roll_back_others", misses)
    monkeypatch.setattr("wireproto.spark.pulsar_leading._STEP", 0.1)
    assert already(PulsarLife(broker, topic).whole(0, OTHER))
    ordered(broker, topic, ROWS)
    late.client.close()


# --- time ---


def test_a_micro_batch_that_took_too_long_is_not_decided(broker: Pulsar, client: Any, topic: str) -> None:
    life = PulsarLife(broker, topic, **{"pulsar.transaction_timeout": "3"})  # of which each task has all
    messages = life.tasks(life.plan(), 0, CUT)
    over(client, messages)
    with pytest.raises(Aborted, match=r"tasks 0, 1, 2 were rolled back, .* longer than pulsar\.transaction_timeout"):
        life.sink().commit(messages, 0)
    life.sink().abort(messages, 0)
    PulsarLife(broker, topic).whole(0, OTHER)
    ordered(broker, topic, ROWS)


def test_one_that_has_hardly_any_time_left_is_not_decided(broker: Pulsar, client: Any, topic: str) -> None:
    """Else its coordinators might roll it back behind the decision."""
    life = PulsarLife(broker, topic, **{"pulsar.transaction_timeout": "60"})
    messages = life.tasks(life.plan(), 0, CUT)
    tired = [Written(one.rows, {**one.facts, "transaction": older(one.facts["transaction"])}) for one in messages if one]
    with pytest.raises(Aborted, match="were rolled back"):
        life.sink().commit(tired, 0)
    life.sink().commit(messages, 0)
    ordered(broker, topic, ROWS)


def older(handed: Any) -> Any:
    return replace(handed, expires=handed.expires - 55.0)


@pytest.mark.parametrize("replay", [False, True])
def test_an_outage_behind_the_decision_is_told_and_mended_where_that_is_asked_for(
    broker: Pulsar, client: Any, topic: str, replay: bool
) -> None:
    """The first task's transaction was committed, the others' were rolled back by time."""
    life = PulsarLife(broker, topic, **BRIEF)
    messages = life.tasks(life.plan(), 0, CUT)
    life.killed_behind_its_decision(messages, 0)
    assert client.admin().end_transactions(ids(messages)[:1], commit=True) == {}
    over(client, messages[1:])
    for _ in range(2):  # it does not pass by itself
        with pytest.raises(Aborted, match=r"micro-batch 0 of the query q is decided, but .* tasks 1, 2, which"):
            PulsarLife(broker, topic).plan()
    ordered(broker, topic, CUT[0])
    if replay:
        again = PulsarLife(broker, topic, onExpired="replay")
        found = again.whole(0, CUT)
        assert [message.rows for message in found if message] == [0, 4, 4]
        again.whole(1, [values(12)])
        ordered(broker, topic, [*ROWS, *values(12)])


def test_a_replay_of_lost_tasks_that_is_cut_short_is_begun_again(broker: Pulsar, client: Any, topic: str) -> None:
    life = PulsarLife(broker, topic, **BRIEF)
    messages = life.tasks(life.plan(), 0, CUT)
    life.killed_behind_its_decision(messages, 0)
    assert client.admin().end_transactions(ids(messages)[:1], commit=True) == {}
    over(client, messages[1:])
    for _ in range(2):
        again = PulsarLife(broker, topic, onExpired="replay")
        assert [message.rows for message in again.tasks(again.plan(), 0, CUT) if message] == [0, 4, 4]
    found = PulsarLife(broker, topic, onExpired="replay").whole(0, CUT)
    assert [message.rows for message in found if message] == [0, 4, 4]
    assert already(PulsarLife(broker, topic).whole(0, CUT))
    ordered(broker, topic, ROWS)


def test_what_was_decided_and_is_seen_in_no_part_runs_again(broker: Pulsar, client: Any, topic: str) -> None:
    """All of its transactions were rolled back by time."""
    life = PulsarLife(broker, topic, **BRIEF)
    messages = life.tasks(life.plan(), 0, CUT)
    life.killed_behind_its_decision(messages, 0)
    over(client, messages)
    PulsarLife(broker, topic).whole(0, OTHER)
    ordered(broker, topic, ROWS)
    assert already(PulsarLife(broker, topic).whole(0, CUT))
    ordered(broker, topic, ROWS)


# --- queries ---


def test_a_checkpoint_that_was_set_back_is_told_before_rows_are_passed_over(broker: Pulsar, client: Any, topic: str) -> None:
    for number in range(3):
        PulsarLife(broker, topic, transactionalIdPrefix=topic).whole(number, [values(number)])
    back = PulsarLife(broker, topic, transactionalIdPrefix=topic)
    with pytest.raises(UsageError, match="micro-batch 1 of the query q is older than the last one that was decided, 2"):
        back.whole(1, [values(1, 2, 3)])
    ordered(broker, topic, values(0, 1, 2))


def test_queries_of_one_prefix_by_turns_know_their_own(broker: Pulsar, client: Any, topic: str) -> None:
    PulsarLife(broker, topic, "a").whole(4, CUT)
    PulsarLife(broker, topic, "b").whole(0, [values(12)])
    assert already(PulsarLife(broker, topic, "a").whole(4, OTHER))
    PulsarLife(broker, topic, "b").whole(1, [values(13)])
    PulsarLife(broker, topic, "a").whole(5, [values(14)])
    assert already(PulsarLife(broker, topic, "b").whole(1, [values(13)]))
    ordered(broker, topic, [*ROWS, *values(12, 13, 14)])
    one, other = PulsarLife(broker, topic, "a"), PulsarLife(broker, topic, "b")
    messages = one.tasks(one.plan(), 6, CUT)
    other.plan()
    with pytest.raises(Aborted, match="another query begins with the transactionalIdPrefix"):
        one.sink().commit(messages, 6)


def test_empty_tasks_have_no_transactions_and_an_empty_micro_batch_no_decision(broker: Pulsar, client: Any, topic: str) -> None:
    life = PulsarLife(broker, topic)
    assert [message.facts["transaction"] for message in life.whole(0, [[], []]) if message] == [None, None]
    life.whole(1, [[], ROWS, []])
    ordered(broker, topic, ROWS)


def test_a_batch_write_is_all_or_nothing_and_leaves_no_topics(broker: Pulsar, client: Any, topic: str) -> None:
    life = PulsarLife(broker, topic, None)
    sink = life.plan()
    sink.abort(life.tasks(sink, None, CUT), None)
    ordered(broker, topic, [])
    life.whole(None, CUT)
    ordered(broker, topic, ROWS)
    life.whole(None, CUT)  # another one
    ordered(broker, topic, [*ROWS, *ROWS])
    life.whole(None, [[], []])
    with pytest.raises(TopicNotFound):
        client.admin().positions(sink.leading(client).outbox)


def test_a_batch_write_leaves_nobody_at_its_topics(broker: Pulsar, client: Any, topic: str) -> None:
    """Who stays keeps them, or has them made anew where brokers allow that."""
    life = PulsarLife(broker, topic, None)
    sink = life.plan()
    life.tasks(sink, None, CUT)
    leading = sink.leading(client)
    for name in (leading.begun, leading.outbox):
        stats = json.loads(broker.call("GET", f"/admin/v2/{name.replace('://', '/')}/stats"))
        assert (stats["publishers"], stats["msgInCounter"] > 0) == ([], True)
    sink.abort([], None)


def test_a_batch_write_whose_commit_was_cut_short_is_carried_out_by_abort(broker: Pulsar, client: Any, topic: str) -> None:
    life = PulsarLife(broker, topic, None)
    sink = life.plan()
    messages = life.tasks(sink, None, CUT)
    life.killed_behind_its_decision(messages, None, sink)
    sink.abort(messages, None)
    ordered(broker, topic, ROWS)


def test_rows_choose_their_topics_within_one_transaction(broker: Pulsar, client: Any, topic: str) -> None:
    many = new_topic(broker, partitions=2)
    life = PulsarLife(broker, topic)
    life.options.pop("topic")
    made = PulsarWire(life.options).writes(StructType([StructField("value", BinaryType()), StructField("topic", StringType())]))
    assert isinstance(made, ExactlyOnce)
    made.check(client, stream=True)
    attempt = made.begin(client, Task(0, 0, "q", 0, life.run, next(serials)))
    assert attempt is not None
    attempt.send(pa.RecordBatch.from_pydict({"value": pa.array(ROWS, pa.binary()), "topic": [topic, many] * 6}))
    with pytest.raises(TopicNotFound, match="create it, or correct the option topic"):
        attempt.send(pa.RecordBatch.from_pydict({"value": pa.array(ROWS[:1], pa.binary()), "topic": ["nowhere"]}))
    made.commit([attempt.finish()], 0)
    ordered(broker, topic, ROWS[::2])
    assert sorted([*seen(broker, f"{many}-partition-0"), *seen(broker, f"{many}-partition-1")]) == ROWS[1::2]
