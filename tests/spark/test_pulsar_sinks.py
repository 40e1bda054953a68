"""The topics of Pulsar's exactly-once sinks, how a query ends for good, and what is refused, on a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

import wireproto
from brokers.pulsar import Pulsar
from integration.pulsar_tools import new_topic, unload_kept
from spark.once import CUT, OTHER, ROWS, values
from spark.once_pulsar import PulsarLife, already, ordered, over, seen, session
from spark.peers import QUIET
from wireproto import cli
from wireproto.errors import OptionError
from wireproto.spark import worker
from wireproto.spark.pulsar import PulsarWire
from wireproto.spark.pulsar_exactly import ExactlyOnce
from wireproto.spark.pulsar_leading import HOLD

SECONDS = 30.0

pytestmark = [QUIET, pytest.mark.parametrize("broker", ["pulsar-4.2.4-transactions"], indirect=True)]


@pytest.fixture
def client(broker: Pulsar) -> Iterator[Any]:
    with wireproto.connect(broker.url) as opened:
        yield opened
    worker.close_all()


@pytest.fixture
def topic(broker: Pulsar) -> str:
    return new_topic(broker)


def backlog(client: Any, topic: str) -> int:
    found: int = client.admin().describe_group(HOLD, topic=topic).details["backlog"]
    return found


def test_its_topics_are_kept_for_it_and_do_not_grow(broker: Pulsar, client: Any, topic: str) -> None:
    life = PulsarLife(broker, topic)
    for number in range(6):
        life.whole(number, [values(number), values(50 + number)])
    life.plan()
    decisions, begun, outbox = life.leading(client).topics
    assert backlog(client, decisions) <= 6
    assert backlog(client, begun) == 0
    assert backlog(client, outbox) <= 2, "what ended the last two transactions is no message, and counts"
    unload_kept(broker, decisions, HOLD)
    for one in (decisions, begun, outbox):
        broker.call("PUT", f"/admin/v2/{one.replace('://', '/')}/unload")
    assert already(PulsarLife(broker, topic).whole(5, OTHER))
    assert len(seen(broker, topic)) == 12


def test_a_decision_far_back_is_found(broker: Pulsar, client: Any, topic: str) -> None:
    life = PulsarLife(broker, topic)
    life.whole(0, CUT)
    decisions = life.leading(client).decisions
    for more in (70, 11_000):
        with decisions.take() as driver:
            for _ in range(more):
                last = driver._out.send(json.dumps({"kind": "taken", **driver.leader._asdict()}).encode())
            last.position(SECONDS)
        assert already(PulsarLife(broker, topic).whole(0, OTHER))


def test_topics_with_partitions_keep_no_decisions(broker: Pulsar, client: Any, topic: str) -> None:
    broker.call("PUT", f"/admin/v2/persistent/public/default/{topic}-decisions-p/partitions", 2)
    with pytest.raises(OptionError, match="has partitions"):
        PulsarLife(broker, topic, decisionTopic=topic, transactionalIdPrefix="p").plan()


def test_topics_that_may_not_be_made_are_asked_for(broker: Pulsar, client: Any, topic: str) -> None:
    life = PulsarLife(broker, topic, decisionTopic=topic, transactionalIdPrefix="p")
    life.options.pop("admin.url")
    for kind in ("decisions", "begun", "outbox"):
        with pytest.raises(OptionError, match=f"no topic {topic}-{kind}-p, .* create it, without partitions, or give admin.url"):
            life.plan()
        broker.call("PUT", f"/admin/v2/persistent/public/default/{topic}-{kind}-p")
    life.whole(0, CUT)
    assert backlog(client, f"{topic}-decisions-p") > 0, "kept, though others made the topic"
    ordered(broker, topic, ROWS)


# --- a query that ends for good ---


def test_dropping_a_query_carries_out_what_it_decided_and_rolls_back_the_rest(
    broker: Pulsar, client: Any, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    life = PulsarLife(broker, topic, transactionalIdPrefix=topic)
    sink = life.plan()
    other = session(life, sink, 7)
    life.killed_behind_its_decision(life.tasks(sink, 3, CUT), 3)
    assert cli.main(["sinks", "drop", broker.url, topic]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said == ["the last decision, of micro-batch 3 of the query q, is carried out", f"rolled back {other._turn.id}"]
    ordered(broker, topic, ROWS)
    assert cli.main(["sinks", "drop", broker.url, topic]) == 0
    assert capsys.readouterr().out == f"nothing is there of {topic}\n"
    worker.close_all()  # they had the topics that are gone
    PulsarLife(broker, topic, transactionalIdPrefix=topic).whole(1, [values(12)])
    ordered(broker, topic, [*ROWS, *values(12)])
    other.client.close()


def test_dropping_a_query_tells_what_it_lost(broker: Pulsar, client: Any, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    life = PulsarLife(broker, topic, transactionalIdPrefix=topic, **{"pulsar.transaction_timeout": "6"})
    messages = life.tasks(life.plan(), 0, CUT)
    life.killed_behind_its_decision(messages, 0)
    over(client, messages)
    assert cli.main(["sinks", "drop", broker.service, topic]) == 1, "without an admin interface: its topics stay"
    assert "coordinators have rolled back the transactions of the tasks 0, 1, 2" in capsys.readouterr().err
    PulsarLife(broker, topic, transactionalIdPrefix=topic).whole(0, OTHER)
    ordered(broker, topic, ROWS)


# --- what is refused ---


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"checkpointLocation": ""}, "needs a name that stays the same over restarts"),
        ({"checkpointLocation": "checkpoint"}, "is relative, as another query's may be"),
        ({"transactionalIdPrefix": "a b"}, "takes letters, digits, dots, dashes and underscores"),
        ({"onExpired": "skip"}, "takes fail or replay"),
        ({"exactlyOnce": "false", "onExpired": "fail"}, "option onExpired goes with exactlyOnce=true"),
        ({"batchRows": "10"}, "option batchRows goes without exactlyOnce=true"),
        ({"pulsar.access_mode": "exclusive"}, r"option pulsar\.access_mode is the sink's own"),
    ],
)
def test_what_cannot_be_once_is_refused(broker: Pulsar, client: Any, topic: str, options: dict[str, str], said: str) -> None:
    life = PulsarLife(broker, topic, **options)
    if options.get("checkpointLocation") == "":
        life.options.pop("checkpointLocation")
    with pytest.raises(OptionError, match=said):
        life.plan()


@pytest.mark.broker("pulsar-4.2.4")
def test_a_cluster_without_transactions_says_which_setting_that_is(broker: Pulsar, broker_pool: Any) -> None:
    plain = broker_pool.get("pulsar-4.2.4")
    with pytest.raises(OptionError, match=r"option exactlyOnce: .* transactionCoordinatorEnabled is false"):
        PulsarLife(plain, new_topic(plain)).plan()


def test_it_is_not_taken_without_being_asked_for(broker: Pulsar, client: Any, topic: str) -> None:
    life = PulsarLife(broker, topic, exactlyOnce="false")
    made = PulsarWire(life.options).writes(StructType([StructField("value", BinaryType())]))
    assert not isinstance(made, ExactlyOnce)
    stats = json.loads(broker.call("GET", f"/admin/v2/persistent/public/default/{topic}/stats"))
    assert stats["publishers"] == []
