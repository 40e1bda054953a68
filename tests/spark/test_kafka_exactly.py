"""The exactly-once sink step by step, its lives cut at each of them, on real brokers of both protocols.

Lives of a query's driver and its tasks are driven here as Spark drives them, one after the other in this process; what is there at the end
is librdkafka's word. `kills` has the same with Spark's own processes, killed.
"""

from __future__ import annotations

import itertools
import json
import os
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest

import wireproto
from brokers import Broker
from kafka_committed import seen, settled
from patience import until
from spark.once import CUT, OTHER, ROWS, SELDOM, Killed, Life, killed, ordered, serials, values
from spark.peers import QUIET
from wireproto import cli
from wireproto.errors import Aborted, Fenced, OptionError, OutcomeUnknown, TimedOut, UsageError
from wireproto.kafka.transactions import OpenTransaction
from wireproto.spark import worker
from wireproto.spark.kafka_decisions import PARTITIONS, Decision, Decisions
from wireproto.spark.kafka_exactly import ExactlyOnce
from wireproto.spark.write import Task, Written

SECONDS = 30.0
BRIEF = {"kafka.transaction.timeout.ms": "6000"}
"""Until transactions are over: time enough for a late machine to decide a micro-batch in, and its end is waited for."""
_numbers = itertools.count()

pytestmark = [
    QUIET,
    pytest.mark.parametrize("broker", ["kafka-4.3.1-transactions", "kafka-4.3.1-level-1", "kafka-3.9.2-transactions"], indirect=True),
]


@pytest.fixture
def client(broker: Broker) -> Iterator[Any]:
    with wireproto.connect(broker.url) as opened:
        yield opened
    worker.close_all()


@pytest.fixture
def topic(client: Any) -> str:
    made = f"once-{os.getpid()}-{next(_numbers)}"
    client.admin().create_topic(made, partitions=2)
    return made


def test_a_micro_batch_is_seen_whole_when_it_is_committed(broker: Broker, client: Any, topic: str) -> None:
    life = Life(broker, topic)
    sink = life.plan()
    messages = life.tasks(sink, 0, CUT)
    assert seen(broker, topic) == []
    assert [message.rows for message in messages if message] == [4, 4, 4]
    life.sink().commit(messages, 0)
    ordered(broker, topic, ROWS)
    life.whole(1, [values(12), values(13)])
    ordered(broker, topic, [*ROWS, *values(12, 13)])


def test_a_replay_of_a_decided_one_writes_nothing_however_it_is_cut(broker: Broker, client: Any, topic: str) -> None:
    life = Life(broker, topic)
    life.whole(0, CUT)
    life.whole(1, [values(12)])
    again = Life(broker, topic)
    for _ in range(2):
        assert all(message and message.facts == {"already": True} for message in again.whole(1, OTHER))
    again.whole(2, [values(13)])
    ordered(broker, topic, [*ROWS, *values(12, 13)])


def test_a_driver_killed_before_its_decision_leaves_nothing(broker: Broker, client: Any, topic: str) -> None:
    life = Life(broker, topic)
    life.tasks(life.plan(), 0, CUT)
    again = Life(broker, topic)
    again.whole(0, OTHER)
    ordered(broker, topic, ROWS)


@pytest.mark.parametrize("ended", [0, 1, 3])
def test_a_driver_killed_behind_its_decision_has_it_carried_out_by_the_next(broker: Broker, client: Any, topic: str, ended: int) -> None:
    """Some of its transactions are committed, or all of them and that is not noted."""
    life = Life(broker, topic)
    messages = life.tasks(life.plan(), 0, CUT)
    life.killed_behind_its_decision(messages, 0)
    handed = [message.facts["transaction"] for message in messages if message]
    assert client.admin().end_transactions(handed[:ended], commit=True) == {}
    if ended:
        life.sink().abort(messages, 0)  # as Spark does, unless it is killed as well
        ordered(broker, topic, ROWS)
    again = Life(broker, topic)
    assert all(message and message.facts == {"already": True} for message in again.whole(0, OTHER))
    ordered(broker, topic, ROWS)
    again.whole(1, [values(12)])
    ordered(broker, topic, [*ROWS, *values(12)])


def test_a_decision_without_an_answer_is_settled_by_abort(broker: Broker, client: Any, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that commits was killed with its decision on the way: whichever it was, all or nothing is there."""
    life = Life(broker, topic)
    messages = life.tasks(life.plan(), 0, CUT)
    with monkeypatch.context() as patched:
        patched.setattr(Decisions, "decide", killed)
        with pytest.raises(Killed):
            life.sink().commit(messages, 0)
    life.sink().abort(messages, 0)
    with client.producer(topic) as out:  # readers do not wait for what was rolled back
        for partition in (0, 1):
            out.send(b"behind", partition=partition)
    settled(broker, topic, [b"behind", b"behind"])
    Life(broker, topic).whole(0, OTHER)
    ordered(broker, topic, [*ROWS, b"behind", b"behind"])


def test_abort_leaves_what_was_decided_to_its_coordinators(broker: Broker, client: Any, topic: str) -> None:
    """It looks for what brokers have left open where losers have written, and what is decided is open there until it is committed."""
    life = Life(broker, topic)
    sink = life.plan()
    messages = life.tasks(sink, 0, CUT)
    for attempt in range(1, 9):  # in both partitions
        life.task(sink, 0, 0, [b"loser"], attempt)
    life.killed_behind_its_decision(messages, 0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ExactlyOnce, "_carried_out", killed)
        with pytest.raises(Killed):
            life.sink().abort(messages, 0)
    assert seen(broker, topic) == []
    Life(broker, topic).whole(0, OTHER)
    ordered(broker, topic, ROWS)


def test_an_older_driver_decides_nothing(broker: Broker, client: Any, topic: str) -> None:
    old, new = Life(broker, topic), Life(broker, topic)
    messages = old.tasks(old.plan(), 0, CUT)
    sink = new.plan()
    with pytest.raises((Fenced, Aborted)):  # its tasks' transactions are rolled back as well
        old.sink().commit(messages, 0)
    new.sink().commit(new.tasks(sink, 0, OTHER), 0)
    ordered(broker, topic, ROWS)


def test_an_older_driver_is_fenced_though_its_tasks_come_later(broker: Broker, client: Any, topic: str) -> None:
    old, new = Life(broker, topic), Life(broker, topic)
    sink = old.plan()
    newer = new.plan()
    messages = old.tasks(sink, 0, CUT)
    with pytest.raises(Fenced):
        old.sink().commit(messages, 0)
    old.sink().abort(messages, 0)
    with pytest.raises(Fenced):  # by the abort
        new.sink().commit(new.tasks(newer, 0, OTHER), 0)
    Life(broker, topic).whole(0, OTHER)
    ordered(broker, topic, ROWS)


def test_what_losers_leave_open_holds_up_no_reader(broker: Broker, client: Any, topic: str) -> None:
    """An attempt that was killed, and one that had finished beside the chosen one."""
    life = Life(broker, topic)
    sink = life.plan()
    loser = life.task(sink, 0, 0, ROWS[:4], attempt=1)
    with client.transactions(f"{sink.prefix}/{life.run}/1.1.7") as work:
        turn = work.begin()
        turn.send(b"killed", topic=topic, partition=1)
        turn.hand_over()
    life.sink().commit(life.tasks(sink, 0, CUT), 0)
    ordered(broker, topic, ROWS)
    assert loser.facts["transaction"] is not None
    name = loser.facts["transaction"].name
    assert client.admin().describe_transactions(name)[name].state in ("Empty", "CompleteAbort", "PrepareAbort")


def test_names_come_again_and_a_leftover_of_such_a_name_is_rolled_back(
    broker: Broker, client: Any, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task's names serve again after a while."""
    monkeypatch.setattr("wireproto.spark.kafka_exactly._SLOTS", 1)
    life = Life(broker, topic)
    life.whole(0, CUT)
    life.tasks(life.plan(), 1, [values(12), values(13)])  # and its driver is killed
    life.whole(1, [values(12, 13)])
    messages = life.tasks(life.plan(), 2, [values(14)])
    life.killed_behind_its_decision(messages, 2)
    life.whole(3, [values(15)])
    ordered(broker, topic, [*ROWS, *values(12, 13, 14, 15)])


def test_an_attempt_that_wakes_when_its_name_serves_another_takes_nothing_from_that(
    broker: Broker, client: Any, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs before its first row, and goes on between the decision and its end."""
    monkeypatch.setattr("wireproto.spark.kafka_exactly._SLOTS", 1)
    life = Life(broker, topic)
    sink = life.plan()
    sleeper = sink.begin(worker.client(sink.url, sink.options), Task(0, 0, "q", 0, life.run, next(serials)))
    assert sleeper is not None
    life.sink().commit([life.task(sink, 0, 0, values(0), attempt=1)], 0)
    messages = life.tasks(life.plan(), 1, [values(1)])
    carried_out = ExactlyOnce._carried_out

    def wakes(self: ExactlyOnce, *more: Any) -> Any:
        sleeper.send(pa.RecordBatch.from_pydict({"value": pa.array(values(0), pa.binary())}))
        with pytest.raises((Aborted, Fenced)):
            sleeper.finish()
        return carried_out(self, *more)

    with monkeypatch.context() as patched:
        patched.setattr(ExactlyOnce, "_carried_out", wakes)
        life.sink().commit(messages, 1)
    sleeper.abort()
    ordered(broker, topic, values(0, 1))


def over(client: Any, messages: Sequence[Written | None]) -> None:
    """Until the coordinators have rolled back what took too long."""
    names = [message.facts["transaction"].name for message in messages if message]

    def rolled_back() -> bool:
        time.sleep(SELDOM)
        return {one.state for one in client.admin().describe_transactions(names).values()} == {"CompleteAbort"}

    until(rolled_back)


def test_a_micro_batch_that_took_too_long_is_not_decided(broker: Broker, client: Any, topic: str) -> None:
    life = Life(broker, topic, **{"kafka.transaction.timeout.ms": "3000"})  # of which each task has all
    messages = life.tasks(life.plan(), 0, CUT)
    over(client, messages)
    with pytest.raises(Aborted, match=r"tasks 0, 1, 2 were rolled back, .* longer than kafka\.transaction\.timeout\.ms"):
        life.sink().commit(messages, 0)
    life.sink().abort(messages, 0)
    Life(broker, topic).whole(0, OTHER)
    ordered(broker, topic, ROWS)


@pytest.mark.parametrize("replay", [False, True])
def test_an_outage_behind_the_decision_is_told_and_mended_where_that_is_asked_for(
    broker: Broker, client: Any, topic: str, replay: bool
) -> None:
    """The first task's transaction was committed, the others' were rolled back by time."""
    life = Life(broker, topic, **BRIEF)
    messages = life.tasks(life.plan(), 0, CUT)
    life.killed_behind_its_decision(messages, 0)
    handed = [message.facts["transaction"] for message in messages if message]
    assert client.admin().end_transactions(handed[:1], commit=True) == {}
    over(client, messages[1:])
    for _ in range(2):  # it does not pass by itself
        with pytest.raises(Aborted, match=r"micro-batch 0 of the query q is decided, but .* tasks 1, 2, which"):
            Life(broker, topic).plan()
    ordered(broker, topic, CUT[0])
    if replay:
        again = Life(broker, topic, onExpired="replay")
        found = again.whole(0, CUT)
        assert [message.rows for message in found if message] == [0, 4, 4]
        again.whole(1, [values(12)])
        ordered(broker, topic, [*ROWS, *values(12)])


def test_a_checkpoint_that_was_set_back_is_told_before_rows_are_passed_over(broker: Broker, client: Any, topic: str) -> None:
    for batch in range(3):
        Life(broker, topic, transactionalIdPrefix=topic).whole(batch, [values(batch)])
    back = Life(broker, topic, transactionalIdPrefix=topic)
    with pytest.raises(UsageError, match="micro-batch 1 of the query q is older than the last one that was decided, 2"):
        back.whole(1, [values(1, 2, 3)])
    ordered(broker, topic, values(0, 1, 2))


def test_queries_of_one_prefix_by_turns_know_their_own(broker: Broker, client: Any, topic: str) -> None:
    """As where two machines have a checkpoint of the same path. They may not run at a time, and are told."""
    Life(broker, topic, "a").whole(4, CUT)
    Life(broker, topic, "b").whole(0, [values(12)])
    assert all(message and message.facts == {"already": True} for message in Life(broker, topic, "a").whole(4, OTHER))
    Life(broker, topic, "b").whole(1, [values(13)])
    Life(broker, topic, "a").whole(5, [values(14)])
    assert all(message and message.facts == {"already": True} for message in Life(broker, topic, "b").whole(1, [values(13)]))
    ordered(broker, topic, [*ROWS, *values(12, 13, 14)])
    one, other = Life(broker, topic, "a"), Life(broker, topic, "b")
    messages = one.tasks(one.plan(), 6, CUT)
    other.plan()
    with pytest.raises(Aborted, match="another query begins with the transactionalIdPrefix"):
        one.sink().commit(messages, 6)


def test_brokers_that_allow_transactions_little_time_are_asked_for_no_more(topic: str, broker: Broker, client: Any) -> None:
    life = Life(broker, topic, **{"kafka.transaction.timeout.ms": "5000"})
    sink = life.plan()
    with client.transactions(f"{sink.prefix}/driver", transaction_timeout=1.0):
        pass
    life.whole(0, CUT)
    (info,) = client.admin().describe_transactions(f"{sink.prefix}/driver").values()
    assert info.timeout == 5.0
    ordered(broker, topic, ROWS)


def test_what_coordinators_have_forgotten_is_not_written_again(
    broker: Broker, client: Any, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Names expire after a week; so nobody can tell whether a decision that was not noted as carried out was."""
    life = Life(broker, topic, transactionalIdPrefix=topic)
    messages = life.tasks(life.plan(), 0, CUT)
    life.killed_behind_its_decision(messages, 0)
    handed = [message.facts["transaction"] for message in messages if message]
    assert client.admin().end_transactions(handed, commit=True) == {}
    decisions = Decisions(client, "__wireproto_sinks", topic, SECONDS)
    with client.transactions(f"{topic}/driver") as work:
        found = decisions.find(work)
        assert found is not None
        forgotten = replace(found, transactions=tuple(replace(one, name=f"{topic}/gone/{n}.0.0") for n, one in enumerate(handed)))
        with work.begin() as turn:
            decisions.decide(turn, forgotten)
    with pytest.raises(OutcomeUnknown, match=r"have forgotten the transactions of the tasks 0, 1, 2 .* wireproto sinks drop URL"):
        Life(broker, topic, transactionalIdPrefix=topic, onExpired="replay").plan()
    ordered(broker, topic, ROWS)
    assert cli.main(["sinks", "drop", broker.url, topic]) == 1
    assert "whether they were committed is unknown" in capsys.readouterr().err
    Life(broker, topic, transactionalIdPrefix=topic).whole(1, [values(12)])
    ordered(broker, topic, [*ROWS, *values(12)])


def test_one_that_has_hardly_any_time_left_is_not_decided(broker: Broker, client: Any, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its coordinators might roll it back behind the decision."""
    life = Life(broker, topic)
    messages = life.tasks(life.plan(), 0, CUT)
    monkeypatch.setattr("wireproto.spark.kafka_exactly._LEAST", 1000.0)
    monkeypatch.setattr("wireproto.spark.kafka_exactly._PART", 1.0)
    with pytest.raises(Aborted, match="were rolled back"):
        life.sink().commit(messages, 0)
    life.sink().abort(messages, 0)
    monkeypatch.undo()
    Life(broker, topic).whole(0, OTHER)
    ordered(broker, topic, ROWS)


def test_what_was_decided_and_is_seen_in_no_part_runs_again(broker: Broker, client: Any, topic: str) -> None:
    """All of its transactions were rolled back by time."""
    life = Life(broker, topic, **BRIEF)
    messages = life.tasks(life.plan(), 0, CUT)
    life.killed_behind_its_decision(messages, 0)
    over(client, messages)
    Life(broker, topic).whole(0, OTHER)
    ordered(broker, topic, ROWS)
    assert all(message and message.facts == {"already": True} for message in Life(broker, topic).whole(0, CUT))
    ordered(broker, topic, ROWS)


def test_another_query_of_that_checkpoint_begins_anew(broker: Broker, client: Any, topic: str) -> None:
    """Its checkpoint was deleted: micro-batch 0 is another one."""
    Life(broker, topic).whole(5, CUT)
    Life(broker, topic, "r").whole(0, [values(12)])
    ordered(broker, topic, [*ROWS, *values(12)])


def test_empty_tasks_have_no_transactions_and_an_empty_micro_batch_no_decision(broker: Broker, client: Any, topic: str) -> None:
    life = Life(broker, topic)
    assert [message.facts["transaction"] for message in life.whole(0, [[], []]) if message] == [None, None]
    life.whole(1, [[], ROWS, []])
    ordered(broker, topic, ROWS)


def test_a_batch_write_is_all_or_nothing(broker: Broker, client: Any, topic: str) -> None:
    life = Life(broker, topic, None)
    sink = life.plan()
    sink.abort(life.tasks(sink, None, CUT), None)
    life.whole(None, CUT)
    ordered(broker, topic, ROWS)
    life.whole(None, CUT)  # another one
    ordered(broker, topic, [*ROWS, *ROWS])


def test_a_batch_write_whose_commit_was_cut_short_is_carried_out_by_abort(broker: Broker, client: Any, topic: str) -> None:
    life = Life(broker, topic, None)
    sink = life.plan()
    messages = life.tasks(sink, None, CUT)
    life.killed_behind_its_decision(messages, None, sink)
    sink.abort(messages, None)
    ordered(broker, topic, ROWS)


def test_leftovers_are_found_whatever_the_job_group_is_called(broker: Broker, client: Any, topic: str) -> None:
    life = Life(broker, topic)
    life.run = "etl/bills (nightly)"
    (message,) = life.tasks(life.plan(), 0, [ROWS])
    assert message is not None
    name = message.facts["transaction"].name
    life.plan()
    assert client.admin().describe_transactions(name)[name].state != "Ongoing"


def test_a_failed_task_leaves_nothing_open(broker: Broker, client: Any, topic: str) -> None:
    life = Life(broker, topic)
    sink = life.plan()
    session = sink.begin(worker.client(sink.url, sink.options), Task(0, 0, "q", 0, life.run, next(serials)))
    assert session is not None
    session.send(pa.RecordBatch.from_pydict({"value": pa.array(ROWS, pa.binary())}))
    session.abort()
    with client.producer(topic) as out:
        for partition in (0, 1):
            out.send(b"behind", partition=partition)
    settled(broker, topic, [b"behind", b"behind"])


# --- a query that ends for good ---


def test_dropping_a_query_carries_out_what_it_decided_and_rolls_back_the_rest(
    broker: Broker, client: Any, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    life = Life(broker, topic, transactionalIdPrefix=topic)
    messages = life.tasks(life.plan(), 3, CUT)
    life.killed_behind_its_decision(messages, 3)
    with client.transactions(f"{topic}/other/0.0.0") as work:
        turn = work.begin()
        turn.send(b"never", topic=topic, partition=0)
        turn.hand_over()
    assert cli.main(["sinks", "drop", broker.url, topic]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said == ["the last decision, of micro-batch 3 of the query q, is carried out", f"rolled back {topic}/other/0.0.0"]
    ordered(broker, topic, ROWS)
    assert cli.main(["sinks", "drop", broker.url, topic]) == 0
    assert capsys.readouterr().out == f"nothing is there of {topic}\n"


def test_dropping_a_query_tells_what_it_lost(broker: Broker, client: Any, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    life = Life(broker, topic, transactionalIdPrefix=topic, **BRIEF)
    messages = life.tasks(life.plan(), 0, CUT)
    life.killed_behind_its_decision(messages, 0)
    over(client, messages)
    assert cli.main(["sinks", "drop", broker.url, topic]) == 1
    assert "coordinators have rolled back the transactions of the tasks 0, 1, 2" in capsys.readouterr().err
    Life(broker, topic, transactionalIdPrefix=topic).whole(0, OTHER)
    ordered(broker, topic, ROWS)


# --- decisions ---


def prefix_of(partition: int, stem: str) -> str:
    """A prefix whose decisions are in this partition."""
    return next(f"{stem}-{n}" for n in itertools.count() if zlib.crc32(f"{stem}-{n}".encode()) % PARTITIONS == partition)


def test_what_another_driver_holds_up_is_not_taken_for_undecided(broker: Broker, client: Any, topic: str) -> None:
    prefix = prefix_of(3, topic)
    life = Life(broker, topic, transactionalIdPrefix=prefix)
    life.whole(0, CUT)
    other = confluent_kafka.Producer({"bootstrap.servers": ",".join(broker.addresses), "transactional.id": f"other-{topic}"})
    other.init_transactions(SECONDS)
    other.begin_transaction()
    other.produce("__wireproto_sinks", b"{}", b"other", partition=3)
    assert other.flush(SECONDS) == 0
    with client.transactions(f"{prefix}/driver") as work:
        with pytest.raises(TimedOut, match=r"__wireproto_sinks-3 cannot be read from .* a transaction is open there"):
            Decisions(client, "__wireproto_sinks", prefix, 1.0).find(work)
        other.abort_transaction(SECONDS)
        decision = Decisions(client, "__wireproto_sinks", prefix, SECONDS).find(work)
    assert decision is not None
    assert (decision.query, decision.batch, len(decision.transactions), decision.ended) == ("q", 0, 3, True)


def test_a_decision_far_back_is_found(broker: Broker, client: Any, topic: str) -> None:
    prefix = prefix_of(4, topic)
    life = Life(broker, topic, transactionalIdPrefix=prefix)
    life.whole(0, CUT)
    decisions = Decisions(client, "__wireproto_sinks", prefix, SECONDS)
    for more in (150, 12_000):
        with client.producer("__wireproto_sinks") as out:
            out.send_batch(pa.table({"value": pa.array([b"{}"] * more), "key": pa.array([b"another/ended"] * more)}), partition=4)
        with client.transactions(f"{prefix}/driver") as work:
            found = decisions.find(work)
        assert found is not None
        assert (found.batch, found.ended) == (0, True)
    assert Life(broker, topic, transactionalIdPrefix=prefix).whole(0, OTHER)[0] == Written(0, {"already": True})


def test_a_decision_of_many_tasks_is_one_record(broker: Broker, client: Any, topic: str) -> None:
    decisions = Decisions(client, "__wireproto_sinks", topic, SECONDS)
    named = tuple(OpenTransaction(f"{topic}/{'r' * 36}/{number}.0.{number % 64}", 10**9 + number, 3, True) for number in range(20_000))
    made = Decision("d", "q", 7, named)
    with client.transactions(f"{topic}/driver") as work:
        decisions.prepare()
        with work.begin() as turn:
            decisions.decide(turn, made)
        assert decisions.find(work) == made


def test_a_topic_that_would_not_keep_decisions_is_refused(broker: Broker, client: Any, topic: str) -> None:
    with pytest.raises(OptionError, match="has 2 partitions; for decisions of sinks it takes 16"):
        Life(broker, topic, decisionTopic=topic).plan()
    forgetful = f"{topic}-forgetful"
    client.admin().create_topic(forgetful, partitions=PARTITIONS)
    with pytest.raises(OptionError, match=r"cleanup\.policy=delete, so that decisions get deleted"):
        Life(broker, topic, decisionTopic=forgetful).plan()


def test_the_topic_is_compacted(broker: Broker, client: Any, topic: str) -> None:
    own = f"{topic}-own"
    Life(broker, topic, decisionTopic=own).whole(0, CUT)
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": ",".join(broker.addresses)})
    resource = confluent_kafka.admin.ConfigResource(confluent_kafka.admin.ConfigResource.Type.TOPIC, own)
    found = admin.describe_configs([resource])[resource].result(SECONDS)
    assert (found["cleanup.policy"].value, found["min.insync.replicas"].value) == ("compact", "1")
    keys = [json.loads(value) for value in seen(broker, own, PARTITIONS) if value]
    assert [sorted(one) for one in keys] == [["batch", "id", "others", "query", "run", "topics", "transactions"], ["id"]]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"checkpointLocation": ""}, "needs a name that stays the same over restarts"),
        ({"checkpointLocation": "checkpoint"}, "is relative, as another query's may be"),
        ({"transactionalIdPrefix": "a b"}, "takes letters, digits, dots, dashes and underscores"),
        ({"onExpired": "skip"}, "takes fail or replay"),
        ({"exactlyOnce": "false", "onExpired": "fail"}, "option onExpired goes with exactlyOnce=true"),
        ({"kafka.acks": "1"}, "transactions need acks=all"),
        ({"kafka.transactional.id": "mine"}, "behind the transactionalIdPrefix"),
        ({"kafka.transaction.timeout.ms": "3600000"}, r"3600 s, is more than the brokers' transaction\.max\.timeout\.ms"),
    ],
)
def test_what_cannot_be_once_is_refused(broker: Broker, client: Any, topic: str, options: dict[str, str], said: str) -> None:
    given = dict(options)
    if given.get("checkpointLocation") == "":
        life = Life(broker, topic)
        life.options.pop("checkpointLocation")
    else:
        life = Life(broker, topic, **given)
    with pytest.raises((OptionError, wireproto.errors.WireprotoError), match=said):
        life.plan()
