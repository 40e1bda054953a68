"""rocketmq-wire where brokers join and leave: checkpoints, offsets and tasks name queues, whatever number a client has for them."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import wireproto
from brokers import RocketMQ, plugin
from spark.logs import Driven, ends, kept, planned, run
from spark.peers import QUIET
from wireproto.devbroker import DevBroker
from wireproto.errors import DataLoss, OptionError
from wireproto.rocketmq.errors import NoMaster
from wireproto.rocketmq.messages import UpdateAndCreateTopicRequest
from wireproto.spark import worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = QUIET
_numbers = itertools.count()


class Cluster:
    """Master "dev", and "ahead", whose name sorts before it; that one joins and leaves."""

    def __init__(self, first: DevBroker, other: DevBroker) -> None:
        self.first, self.other = first, other
        self.name_server = first.address("rocketmq")

    def show(self, there: bool = True) -> None:
        address = self.other.address("rocketmq", "broker") if there else None
        self.first.call("rocketmq", "register", "ahead", address)

    def put(self, topic: str, numbers: range) -> None:
        """One value after the other, queue by turn."""
        with wireproto.connect(f"rocketmq://{self.name_server}") as client, client.producer(topic) as out:
            queues = len(client.cluster.route(topic, client.cluster.deadline()).queues)
            for n in numbers:
                out.send(b"%d" % n, partition=n % queues).position(30.0)

    def source(self, topic: str, **options: str) -> Any:
        from wireproto.spark.rocketmq import RocketMQWire

        return RocketMQWire({"nameServer": self.name_server, "topic": topic, "startingOffsets": "earliest", **options})

    def forget(self) -> None:
        """As a worker that is new: it has seen nothing yet."""
        worker.close_all()


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with DevBroker(["rocketmq"], auto_create=False) as first, DevBroker(["rocketmq"], auto_create=False) as other:
        yield Cluster(first, other)
        worker.close_all()


@pytest.fixture
def cluster(running: Cluster) -> Cluster:
    running.show(False)
    running.forget()
    return running


@pytest.fixture
def topic(cluster: Cluster) -> str:
    """Two queues on each broker, of which one broker is seen."""
    name = f"queues-{next(_numbers)}"
    cluster.show()
    with wireproto.connect(f"rocketmq://{cluster.name_server}") as client:
        client.admin().create_topic(name, partitions=4)
    cluster.show(False)
    return name


@pytest.mark.parametrize("workers", ["new", "warm"])
def test_a_query_goes_on_over_a_broker_that_joins(cluster: Cluster, topic: str, workers: str) -> None:
    """Driver and workers have numbers of their own: the workers' may be older than the driver's, or newer."""
    cluster.put(topic, range(20))
    with Driven(cluster.source(topic)) as query:
        assert query.step() == list(range(20))
        assert query.at == {topic: {"dev/0": 10, "dev/1": 10}}
        cluster.show()
        cluster.put(topic, range(20, 60))
        if workers == "new":
            cluster.forget()
        found = query.step()
        if len(found) < 40:  # the driver learns of new queues when its route is old
            query.stream.client().cluster.routes.stale(topic)
            found += query.step()
        assert sorted(found) == list(range(20, 60))
        at = query.at
    assert at == {topic: {"ahead/0": 10, "ahead/1": 10, "dev/0": 20, "dev/1": 20}}
    cluster.put(topic, range(60, 80))
    with Driven(cluster.source(topic), at) as again:
        assert again.step() == list(range(60, 80))


def test_a_checkpoint_waits_for_a_broker_that_is_away(cluster: Cluster, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    cluster.show()
    cluster.put(topic, range(40))
    with Driven(cluster.source(topic)) as query:
        assert query.step() == list(range(40))
        at = query.at
    cluster.show(False)
    cluster.put(topic, range(40, 50))
    with Driven(cluster.source(topic), at) as alone:
        assert alone.step() == list(range(40, 50))
        assert alone.at[topic] == {"ahead/0": 10, "ahead/1": 10, "dev/0": 15, "dev/1": 15}
        assert alone.step() == []
        told = [line for line in caplog.messages if line.startswith("rocketmq-wire: nothing is read from ")]
        assert told == [f"rocketmq-wire: nothing is read from {topic}-2, {topic}-3 while their brokers are away"]
        cluster.show()
        cluster.put(topic, range(50, 70))
        alone.stream.client().cluster.routes.stale(topic)
        assert alone.step() == list(range(50, 70))


def test_a_queue_that_was_taken_away_is_lost(cluster: Cluster, topic: str) -> None:
    cluster.show()
    cluster.put(topic, range(8))
    with Driven(cluster.source(topic), {topic: {"ahead/7": 3, "dev/0": 2}}) as query, pytest.raises(DataLoss, match="have been deleted"):
        query.step()


def test_a_planned_batch_is_read_from_its_queues(cluster: Cluster, topic: str) -> None:
    """Also where its bounds are words, which are asked for again by each task."""
    cluster.put(topic, range(30))
    task = planned(cluster.source(topic))
    cluster.show()
    cluster.forget()
    assert task() == list(range(30))


def test_offsets_are_named_by_queue_or_refused_where_a_number_may_mean_several(cluster: Cluster, topic: str) -> None:
    cluster.put(topic, range(20))
    old = json.dumps({topic: {"0": 7, "1": -1}})
    some = sorted([*range(0, 14, 2), *range(1, 20, 2)])
    assert planned(cluster.source(topic, endingOffsets=old))() == some
    with Driven(cluster.source(topic), {topic: {"0": 8, "1": 9}}) as query:
        assert query.step() == [16, 18, 19]
    cluster.show()
    named = {"dev/0": 7, "dev/1": -1, "ahead/0": -1, "ahead/1": -1}
    assert planned(cluster.source(topic, endingOffsets=json.dumps({topic: named})))() == some
    texts = {str(n): name for n, name in enumerate(("ahead/0:0", "ahead/1:0", "dev/0:9", "dev/1:9"))}
    assert planned(cluster.source(topic, startingOffsets=json.dumps({topic: texts})))() == [18, 19]
    for given in (json.dumps({topic: {"0": 7, "1": 3, "2": 1, "3": 1}}), old):
        with pytest.raises(OptionError, match="endingOffsets does not say of which queue"):
            planned(cluster.source(topic, endingOffsets=given))
    with Driven(cluster.source(topic), {topic: {"0": 8, "1": 9}}) as query, pytest.raises(OptionError, match="the checkpoint does not say"):
        query.step()


@pytest.mark.soak
@pytest.mark.broker("rocketmq-5.5.0-cluster")
def test_spark_goes_on_from_its_checkpoint_over_a_real_broker_that_joins(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The topic lies on broker-b at first; broker-a, which sorts before it, gets it between two runs of the query."""
    broker = plugin.start(request.config, "rocketmq-5.5.0-cluster")
    assert isinstance(broker, RocketMQ)
    name = f"joined-{next(_numbers)}"

    def make(client: Any, master: str) -> None:
        message = UpdateAndCreateTopicRequest(
            topic=name, default_topic="TBW102", read_queue_nums=2, write_queue_nums=2, perm=6, topic_filter_type="SINGLE_TAG",
            topic_sys_flag=0, order=False,
        )  # fmt: skip
        client.request(message, to=master)

    def put(queues: int, numbers: range) -> None:
        with wireproto.connect(broker.url) as client:
            make(client, "broker-b")
            if queues > 2:
                make(client, "broker-a")
            admin = client.admin()
            while not (name in admin.list_topics() and len(admin.describe_topic(name).partitions) == queues):
                client.cluster.pause(0.1)
            with client.producer(name) as out:
                for n in numbers:
                    out.send(b"%d" % n, partition=n % queues).position(30.0)

    rows = spark.readStream.format("rocketmq-wire").options(nameServer=broker.name_server, topic=name, startingOffsets="earliest").load()
    put(2, range(30))
    run(rows.select("value"), tmp_path)
    put(4, range(30, 70))
    run(rows.select("value"), tmp_path)
    assert Counter(kept(spark, tmp_path)) == Counter(range(70))
    assert set(ends(tmp_path)[-1][name]) == {"broker-a/0", "broker-a/1", "broker-b/0", "broker-b/1"}


def test_a_query_does_not_begin_without_a_broker_that_is_expected(cluster: Cluster, topic: str) -> None:
    """The route of its topic does not tell that one is away: its queues are not there then, and their rows would be left out."""
    cluster.show()
    cluster.put(topic, range(40))
    expecting = cluster.source(topic, expectedBrokers="ahead, dev")
    assert sorted(planned(expecting)()) == list(range(40))
    cluster.show(False)
    refused = pytest.raises(NoMaster, match=r"no master of ahead is registered at the name server, which has dev: .* expectedBrokers")
    with refused:
        planned(expecting)
    with refused, Driven(expecting) as query:
        query.step()
    assert len(planned(cluster.source(topic))()) == 20


def test_a_task_asks_for_the_bounds_of_its_own_queue_alone(cluster: Cluster, topic: str) -> None:
    from pyspark.sql.types import BinaryType, StructField, StructType

    cluster.put(topic, range(20))
    reader = cluster.source(topic).reader(StructType([StructField("value", BinaryType())]))
    parts = [part for part in reader.partitions() if part.partition == 1]
    seen = cluster.first.record("rocketmq")
    cluster.forget()
    assert [int(value) for part in parts for batch in reader.read(part) for value in batch.column(0).to_pylist()] == list(range(1, 20, 2))
    for name in ("GetMinOffset", "GetMaxOffset"):
        assert {request.message.queue_id for request in seen.requests(name)} == {1}, name
