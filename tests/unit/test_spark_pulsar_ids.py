"""The names and ids that Pulsar's sink gives to a micro-batch: each is stored once, however many came before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

import wireproto
from wireproto import LATEST
from wireproto.devbroker import DevBroker
from wireproto.errors import OptionError
from wireproto.spark.options import Options
from wireproto.spark.pulsar_sink import PulsarSink, write_options
from wireproto.spark.write import Task

SCHEMA = StructType([StructField("value", BinaryType())])
NAMED = StructType([StructField("value", BinaryType()), StructField("topic", StringType())])
QUERY = "5e0c2a3e-query"
EDGE = 1 << 23
"""The first micro-batch whose number does not fit above a row's into an id of 63 bits."""
BATCHES = [0, 1, EDGE - 1, EDGE, EDGE + 1, 2 * EDGE - 1, 2 * EDGE, 1 << 40, (1 << 62) + 5]


@pytest.fixture
def broker() -> Iterator[DevBroker]:
    with DevBroker(["pulsar"]) as made:
        made.call("pulsar", "deduplicate", "public/default", True)
        made.call("pulsar", "create", "persistent://public/default/t")
        yield made


@pytest.fixture
def client(broker: DevBroker) -> Iterator[Any]:
    with wireproto.connect(broker.url("pulsar")) as made:
        yield made


def sink_to(broker: DevBroker, **more: str) -> PulsarSink:
    """What the driver makes for one run of a micro-batch."""
    options = {"service.url": f"pulsar://{broker.address('pulsar')}", "admin.url": f"http://{broker.address('pulsar', 'admin')}"}
    schema = SCHEMA if "topic" in more else NAMED
    return PulsarSink(write_options(Options({**options, **more})), schema)


def write(broker: DevBroker, client: Any, batch: int, values: list[bytes]) -> None:
    """One task of a micro-batch, as Spark runs it."""
    session = sink_to(broker, topic="t", batchRows="2").begin(client, Task(0, 0, QUERY, batch))
    assert session is not None
    session.send(pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())}))
    session.finish()


def values_of(batch: int) -> list[bytes]:
    return [b"%d.%d" % (batch, row) for row in range(5)]


def stored(client: Any) -> list[bytes]:
    return [value for batch in client.reader("t", stop=LATEST) for value in batch.values()]


def test_every_micro_batch_is_stored_once_also_when_it_runs_again(broker: DevBroker, client: Any) -> None:
    for batch in BATCHES:
        for _ in range(2):
            write(broker, client, batch, values_of(batch))
    assert stored(client) == [value for batch in BATCHES for value in values_of(batch)]


@pytest.mark.parametrize("batch", [0, 7, EDGE - 1])
def test_a_micro_batch_that_was_stored_under_the_ids_of_before_is_known_again(broker: DevBroker, client: Any, batch: int) -> None:
    """A checkpoint outlives versions: up to the edge a task is ``<prefix>-<query>-<task>``, and its rows ``batch << 40 | row``."""
    name = f"spark-{QUERY}-0"
    options = {"producer_name": name, "first_sequence": batch << 40, "batch_records": 2, "linger": 3600.0}
    with client.producer("t", **options) as producer:
        for value in values_of(batch)[:4]:  # it died before the last of its rows
            producer.send(value)
    seen = broker.record("pulsar")
    with wireproto.connect(broker.url("pulsar")) as again:
        write(broker, again, batch, values_of(batch))
    assert stored(client) == values_of(batch)
    assert [made.message.producer_name for made in seen.requests("producer")] == [name]
    assert [sent.message.sequence_id for sent in seen.requests("send")] == [batch << 40 | row for row in (0, 2, 4)]


def test_ids_stay_within_what_brokers_compare(broker: DevBroker, client: Any) -> None:
    seen = broker.record("pulsar")
    with wireproto.connect(broker.url("pulsar")) as again:
        for batch in BATCHES:
            write(broker, again, batch, values_of(batch))
    assert all(sent.message.highest_sequence_id < 1 << 63 for sent in seen.requests("send"))
    names = [made.message.producer_name for made in seen.requests("producer")]
    assert len(set(names)) == 5


def another_session(broker: DevBroker) -> Any:
    """A client of a process that has used the cluster before."""
    return wireproto.connect(broker.url("pulsar"), admin=f"http://{broker.address('pulsar', 'admin')}")


def test_each_micro_batch_asks_anew_whether_its_topic_is_deduplicated(broker: DevBroker) -> None:
    """It may be switched off between two queries of a session, and the topic made again: a replayed one would be stored twice."""
    with another_session(broker) as known:
        sink_to(broker, topic="t").check(known, stream=True)
        broker.call("pulsar", "deduplicate", "public/default", False)
        with pytest.raises(OptionError, match=r"t is not de-duplicated .*Disabled.*atLeastOnce=true"):
            sink_to(broker, topic="t").check(known, stream=True)
        sink_to(broker, topic="t", atLeastOnce="true").check(known, stream=True)


def test_tasks_ask_of_topics_that_rows_name_anew_in_each_micro_batch(broker: DevBroker) -> None:
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b"v"], pa.binary()), "topic": ["t"]})

    def run(sink: PulsarSink, client: Any, task: int) -> None:
        session = sink.begin(client, Task(task, 0, QUERY, 0))
        assert session is not None
        session.send(rows)
        session.finish()

    with another_session(broker) as known:
        first = sink_to(broker)
        run(first, known, 0)
        broker.call("pulsar", "deduplicate", "public/default", False)
        run(first, known, 1)  # the same micro-batch: it was asked for here
        with pytest.raises(OptionError, match=r"t is not de-duplicated"):
            run(sink_to(broker), known, 0)
