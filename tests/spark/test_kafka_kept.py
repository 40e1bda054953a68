"""A worker's producers for Kafka, kept from task to task: what a later task takes over, and what it must not. No Spark runs here."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

import wireproto
from wireproto import EARLIEST, LATEST
from wireproto.devbroker import DevBroker
from wireproto.errors import BrokerError, Closed, ValueUnsupported
from wireproto.kafka.codes import InvalidRecord
from wireproto.spark import kafka_sink, worker
from wireproto.spark.kafka_sink import KafkaSink
from wireproto.spark.sink import WriteSettings

KEY_VALUE = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker(["kafka"]) as made:
        yield made


@pytest.fixture
def client(broker: DevBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The client that a worker would keep: a task that fails has it closed, and the next one gets another."""
    made: list[Any] = []

    def current(*_: object) -> Any:
        if not made:
            made.append(wireproto.connect(broker.url("kafka"), timeout=10.0))
        return made[-1]

    def forget(*_: object) -> None:
        worker.quietly(made.pop())

    monkeypatch.setattr(worker, "client", current)
    monkeypatch.setattr(worker, "forget", forget)
    broker.faults("kafka").clear()
    yield current
    while made:
        forget()


@pytest.fixture
def topic(client: Any) -> str:
    name = f"kept-{next(_numbers)}"
    client().admin().create_topic(name, partitions=2)
    return name


def sink(broker: DevBroker, topic: str | None, schema: StructType = KEY_VALUE) -> KafkaSink:
    return KafkaSink(WriteSettings(broker.url("kafka"), {}, topic, False, 10.0), schema)


def rows(*values: bytes, **more: list[Any]) -> pa.RecordBatch:
    return pa.record_batch({"key": list(values), "value": list(values), **more})


def stored(client: Any, topic: str) -> list[tuple[bytes, int]]:
    """Value and producer id of every record."""
    found: list[tuple[bytes, int]] = []
    for batch in client().reader(topic, start=EARLIEST, stop=LATEST, columns=("offset", "value", "producer_id")):
        columns = pa.record_batch(batch)
        found += zip(columns["value"].to_pylist(), columns["producer_id"].to_pylist(), strict=True)
    return found


def test_the_tasks_of_a_worker_share_a_producer_and_each_ends_with_its_rows_stored(broker: DevBroker, client: Any, topic: str) -> None:
    target = sink(broker, topic)
    for task in range(5):
        values = [b"%d-%d" % (task, number) for number in range(10)]
        assert target.write(iter([rows(*values)])).rows == 10
        assert len(stored(client, topic)) == 10 * (task + 1), "acknowledged before the task ends"
    found = stored(client, topic)
    assert len({value for value, _ in found}) == 50
    assert len({producer for _, producer in found}) == 1


def test_rows_of_a_task_that_failed_are_not_left_for_the_next(broker: DevBroker, client: Any, topic: str) -> None:
    target = sink(broker, topic)
    target.write(iter([rows(b"first")]))

    def breaks_off() -> Iterator[pa.RecordBatch]:
        yield rows(b"again")
        raise ValueError("the query's own code failed")

    for batches in (breaks_off(), iter([rows(b"too large" * 200_000)])):
        with pytest.raises((ValueError, ValueUnsupported)):
            target.write(batches)
        left = Counter(value for value, _ in stored(client, topic))
        target.write(iter([rows(b"again")]))
        after = Counter(value for value, _ in stored(client, topic))
        assert after - left == Counter([b"again"]), "the task's own row, and nothing of the one before"


def test_a_refusal_fails_its_task_and_no_other(broker: DevBroker, client: Any, topic: str) -> None:
    target = sink(broker, topic)
    target.write(iter([rows(b"one")]))
    broker.faults("kafka").error("Produce", InvalidRecord.code)
    with pytest.raises(BrokerError):
        target.write(iter([rows(b"two")]))
    target.write(iter([rows(b"three")]))
    assert {value for value, _ in stored(client, topic)} == {b"one", b"three"}


def test_no_more_producers_are_kept_than_a_few(broker: DevBroker, client: Any) -> None:
    names = [f"many-{number}" for number in range(40)]
    for name in names:
        client().admin().create_topic(name, partitions=1)
    target = sink(broker, None, StructType([*KEY_VALUE.fields, StructField("topic", StringType())]))
    for chosen in (names, names[30:], names[:5]):
        assert target.write(iter([rows(*(name.encode() for name in chosen), topic=chosen)])).rows == len(chosen)
        assert len(worker.beside(client())["producer"].topics) == kafka_sink._KEPT
    times = Counter([*names, *names[30:], *names[:5]])
    assert {name: len(stored(client, name)) for name in names} == dict(times)


def test_a_worker_keeps_the_clients_that_were_used_last(broker: DevBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "settle", lambda: None)
    monkeypatch.setattr(worker, "_clients", {})
    most = worker.KEPT_CLIENTS
    try:
        made = [worker.client(broker.url("kafka"), {"timeout": 10.0 + number}) for number in range(most)]
        worker.beside(made[0])["left"] = object()
        assert worker.client(broker.url("kafka"), {"timeout": 11.0}) is made[1]
        for number in range(most, most + 3):
            made.append(worker.client(broker.url("kafka"), {"timeout": 10.0 + number}))
            assert len(worker._clients) == most
        for number in (0, 2, 3):
            with pytest.raises(Closed):
                made[number].admin().list_topics()
        assert made[0] not in worker._beside
        for number in (1, *range(4, most + 3)):
            assert made[number].admin().list_topics() is not None
    finally:
        worker.close_all()
