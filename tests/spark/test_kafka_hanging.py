"""What brokers leave open though its coordinator has ended it (KAFKA-20734, Kafka 4.3): the exactly-once sink ends it as it was decided.

A node that leads all of the topic is killed, so that the coordinator, on the nodes that live, passes the topic's partitions over. All that
may hang at the same time does in one outage: such a coordinator has a thread that does nothing else without a pause, and the node boots.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
import zlib
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest

import wireproto
from brokers import Broker, plugin
from kafka_committed import settled
from patience import LONG, soon, until
from spark.once import CUT, OTHER, ROWS, SELDOM, Life, ordered, values
from spark.peers import QUIET
from wireproto import cli
from wireproto.spark import worker
from wireproto.spark.kafka_decisions import PARTITIONS, Decisions

SECONDS = 30.0
AWAY = 2
"""The node that is killed."""
_numbers = itertools.count()

BROKERS = ["kafka-4.3.1-cluster-transactions", "kafka-4.3.1-cluster-level-1"]

pytestmark = [QUIET]


@pytest.fixture
def client(broker: Broker) -> Iterator[Any]:
    with wireproto.connect(broker.url) as opened:
        yield opened
    worker.close_all()


def made(broker: Broker, name: str, partitions: int, node: int | None, **config: str) -> str:
    """A topic of the one node, and of it alone; None: of all."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": ",".join(broker.addresses)})
    places: dict[str, Any] = {"replication_factor": 3} if node is None else {"replica_assignment": [[node]] * partitions}
    new = confluent_kafka.admin.NewTopic(name, partitions, config={"min.insync.replicas": "1", **config}, **places)
    admin.create_topics([new])[name].result(SECONDS)
    return name


def lose(broker: Broker, client: Any, *topics: str) -> None:
    """Kill the node, and wait until the cluster knows."""
    broker.kill(AWAY - 1)

    def leaderless() -> bool:
        time.sleep(SELDOM)
        client.cluster.refresh(topics, soon())
        return all(client.cluster.metadata.leader(topic, number) is None for topic in topics for number in (0, 1))

    until(leaderless)


def open_there(client: Any, topic: str) -> list[Any]:
    return [one for some in client.admin().describe_producers(topic).values() for one in some if one.transaction_start is not None]


def handed(messages: Any) -> list[Any]:
    return [message.facts["transaction"] for message in messages if message]


def ended(client: Any, names: list[str]) -> bool:
    """Whether their coordinators are through with them."""
    time.sleep(SELDOM)
    return all(one.state in ("CompleteCommit", "CompleteAbort", "Empty") for one in client.admin().describe_transactions(names).values())


class Outage:
    """One outage of the node, in which the transactions of four queries were ended: of each its life, and what its tasks handed over.

    Attributes:
        topics: of each query one, by the name of its test. sink: of the query that is dropped.
        committing: the thread in which the first query's driver commits all through the outage.
    """

    def __init__(self, broker: Broker, client: Any) -> None:
        self.broker, self.client = broker, client
        names = ("committing", "killed", "undecided", "dropped")
        self.topics = {name: made(broker, f"hanging-{os.getpid()}-{next(_numbers)}", 2, AWAY) for name in names}
        lives = {name: Life(broker, topic) for name, topic in self.topics.items()}
        sinks = {name: life.plan() for name, life in lives.items()}
        messages = {name: life.tasks(sinks[name], 0, CUT) for name, life in lives.items()}
        self.sink = sinks["dropped"]
        for name in ("killed", "dropped"):
            lives[name].killed_behind_its_decision(messages[name], 0)
        losers = [one.name for one in handed(lives["dropped"].tasks(self.sink, 1, [values(12)]))]
        self.committing = threading.Thread(target=lambda: lives["committing"].sink().commit(messages["committing"], 0), daemon=True)
        lose(broker, client, *self.topics.values())
        try:
            self.committing.start()
            for name in ("killed", "dropped"):
                assert client.admin().end_transactions(handed(messages[name]), commit=True) == {}
            undecided = [one.name for one in handed(messages["undecided"])]
            client.admin().fence_producers([*undecided, *losers])  # as coordinators do by themselves when a transaction's time is over
            all_of_them = [one.name for some in messages.values() for one in handed(some)] + losers
            until(lambda: ended(client, all_of_them))
        finally:
            broker.start(AWAY - 1)


@pytest.fixture(scope="module")
def outage(request: pytest.FixtureRequest) -> Iterator[Outage]:
    """Of the cluster that is the parameter; the node is back."""
    broker = plugin.start(request.config, request.param)
    with wireproto.connect(broker.url) as opened:
        yield Outage(broker, opened)
    worker.close_all()


@pytest.mark.parametrize("outage", BROKERS, indirect=True)
def test_what_was_decided_is_committed_where_brokers_have_left_it_open(outage: Outage) -> None:
    broker, topic = outage.broker, outage.topics["committing"]
    outage.committing.join(2 * SECONDS)
    assert not outage.committing.is_alive()
    settled(broker, topic, ROWS, ordered=False)
    again = Life(broker, topic)
    assert all(message and message.facts == {"already": True} for message in again.whole(0, OTHER))
    again.whole(1, [values(12)])
    ordered(broker, topic, [*ROWS, *values(12)])


@pytest.mark.parametrize("outage", BROKERS[:1], indirect=True)
def test_what_was_decided_is_committed_by_the_next_driver_where_brokers_have_left_it_open(outage: Outage) -> None:
    again = Life(outage.broker, outage.topics["killed"])
    assert all(message and message.facts == {"already": True} for message in again.whole(0, OTHER))
    ordered(outage.broker, outage.topics["killed"], ROWS)


@pytest.mark.parametrize("outage", BROKERS[:1], indirect=True)
def test_what_was_not_decided_is_rolled_back_where_brokers_have_left_it_open(outage: Outage) -> None:
    """Else the next transaction of its name would have it seen."""
    topic = outage.topics["undecided"]
    assert open_there(outage.client, topic)
    Life(outage.broker, topic).whole(0, OTHER)
    ordered(outage.broker, topic, ROWS)
    assert not open_there(outage.client, topic)


@pytest.mark.parametrize("outage", BROKERS[:1], indirect=True)
def test_a_query_that_is_dropped_leaves_nothing_open(outage: Outage, capsys: pytest.CaptureFixture[str]) -> None:
    """Of its last decision, nor of losers, in whichever partitions of its topics."""
    topic = outage.topics["dropped"]
    assert cli.main(["sinks", "drop", outage.broker.url, outage.sink.prefix]) == 0
    capsys.readouterr()
    ordered(outage.broker, topic, ROWS)
    assert not open_there(outage.client, topic)


@pytest.mark.parametrize("broker", BROKERS[:1], indirect=True)
def test_nothing_is_committed_before_its_decision_can_be_read(broker: Broker, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision that brokers have left open would end as the driver's next transaction does: rolled back, if that one is killed in it."""
    number = next(_numbers)
    decisions = made(broker, f"decisions-{os.getpid()}-{number}", PARTITIONS, AWAY, **{"cleanup.policy": "compact"})
    topic = made(broker, f"hanging-{os.getpid()}-{number}", 2, None)
    life = Life(broker, topic, decisionTopic=decisions)
    messages = life.tasks(life.plan(), 0, CUT)
    names = [one.name for one in handed(messages)]
    decide, away = Decisions.decide, threading.Event()
    monkeypatch.setattr("wireproto.spark.kafka_leading._SHORT", 300.0)  # the decision is open until the cluster knows that the node is gone

    def ends() -> int:
        return sum(place.offset for place in client.admin().positions(decisions).values())

    def decided() -> bool:
        time.sleep(SELDOM)
        return bool(client.admin().describe_transactions(f"{life.sink().prefix}/driver").popitem()[1].state == "CompleteCommit")

    def cut_off(self: Decisions, turn: Any, decision: Any) -> Any:
        before = ends()
        sent = decide(self, turn, decision)
        until(lambda: ends() > before)  # stored
        lose(broker, client, decisions)
        away.set()
        return sent

    monkeypatch.setattr(Decisions, "decide", cut_off)
    commit = threading.Thread(target=lambda: life.sink().commit(messages, 0))
    commit.start()
    try:
        assert away.wait(LONG)
        until(decided)
        assert {one.state for one in client.admin().describe_transactions(names).values()} == {"Ongoing"}
    finally:
        broker.start(AWAY - 1)
    commit.join(2 * SECONDS)
    assert not commit.is_alive()
    ordered(broker, topic, ROWS)
    with client.transactions(f"{life.sink().prefix}/driver") as work:  # one that dies in its next transaction there
        turn = work.begin()
        turn.send(b"rolled back", topic=decisions, partition=zlib.crc32(life.sink().prefix.encode()) % PARTITIONS)
        turn.abort()
    again = Life(broker, topic, decisionTopic=decisions)
    assert all(message and message.facts == {"already": True} for message in again.whole(0, OTHER))
    ordered(broker, topic, ROWS)
