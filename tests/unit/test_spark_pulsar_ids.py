"""The names and ids that Pulsar's sink gives to a micro-batch: each is stored once, however many came before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

import wireproto
from wireproto import LATEST
from wireproto.devbroker import DevBroker
from wireproto.spark.options import Options
from wireproto.spark.pulsar_sink import PulsarSink, write_options
from wireproto.spark.write import Task

SCHEMA = StructType([StructField("value", BinaryType())])
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


def write(broker: DevBroker, client: Any, batch: int, values: list[bytes]) -> None:
    """One task of a micro-batch, as Spark runs it."""
    options = {
        "service.url": f"pulsar://{broker.address('pulsar')}",
        "admin.url": f"http://{broker.address('pulsar', 'admin')}",
        "topic": "t",
        "batchRows": "2",
    }
    session = PulsarSink(write_options(Options(options)), SCHEMA).begin(client, Task(0, 0, QUERY, batch))
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
