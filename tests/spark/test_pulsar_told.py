"""Pulsar's sink beside an earlier attempt of its task that the broker still holds for connected. No JVM is needed."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

import wireproto
from wireproto.devbroker import DevBroker
from wireproto.pulsar.codes import ProducerBusy
from wireproto.spark.pulsar_sink import PulsarSession, PulsarSink, PulsarWriteSettings
from wireproto.spark.write import Task

SCHEMA = StructType([StructField("value", BinaryType())])
ROWS = pa.record_batch({"value": pa.array([b"1", b"2"], pa.binary())})


def sink(broker: DevBroker, timeout: float) -> PulsarSink:
    return PulsarSink(PulsarWriteSettings(broker.url("pulsar"), {}, "told", False, timeout, rows=2), SCHEMA)


def another(broker: DevBroker) -> Any:
    return wireproto.connect(broker.url("pulsar"))


def test_a_task_run_again_waits_until_its_predecessor_is_gone(caplog: pytest.LogCaptureFixture) -> None:
    with DevBroker(["pulsar"]) as broker, wireproto.connect(broker.url("pulsar")) as first, another(broker) as second:
        first.admin().create_topic("told")
        target = sink(broker, 60.0)
        task = Task(3, 0)
        before = PulsarSession(target, first, task)
        before.out.to("told")  # its connection stands, as that of a worker whose host is gone
        seen = broker.record("pulsar")
        after = PulsarSession(target, second, task)
        sending = threading.Thread(target=lambda: (after.send(ROWS), after.finish()))
        sending.start()
        seen.wait("producer", 2, timeout=30.0)
        before.abort()
        sending.join(30.0)
        assert not sending.is_alive()
        reader = first.reader("told", stop=wireproto.LATEST)
        assert [record.value for batch in reader for record in batch] == [b"1", b"2"]
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert told
    assert all(f"the producer {before.name} of an earlier attempt is still connected" in line for line in told)


def test_a_predecessor_that_stays_ends_the_task_in_its_time() -> None:
    with DevBroker(["pulsar"]) as broker, wireproto.connect(broker.url("pulsar")) as first, another(broker) as second:
        first.admin().create_topic("told")
        target = sink(broker, 0.1)
        PulsarSession(target, first, Task(3, 0)).out.to("told")
        with pytest.raises(ProducerBusy):
            PulsarSession(target, second, Task(3, 0)).out.to("told")
