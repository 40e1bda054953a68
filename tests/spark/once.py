"""Lives of a query with an exactly-once sink, driven as Spark drives them, one call after the other in this process."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from brokers import Broker
from kafka_committed import settled
from wireproto.spark import worker
from wireproto.spark.kafka import KafkaWire
from wireproto.spark.kafka_exactly import ExactlyOnce
from wireproto.spark.write import Task, Written

SELDOM = 0.25
"""Seconds between two looks at what takes some: each look costs the brokers and this process milliseconds."""
_numbers = itertools.count()
serials = itertools.count()
"""Of attempts, as Spark counts them."""


class Life:
    """One life of a query: what its driver and its tasks do, in the order of the calls.

    Args:
        query: its id, None: a batch write. options: of the writer, by their names.
    Attributes:
        source, sinks: of the protocol.
    """

    source: Any = KafkaWire
    sinks: Any = ExactlyOnce

    def __init__(self, broker: Broker, topic: str, query: str | None = "q", **options: str) -> None:
        self.broker, self.topic, self.query = broker, topic, query
        given = {**self.where(broker), "topic": topic, "exactlyOnce": "true", **options}
        if query is not None:
            given.setdefault("checkpointLocation", f"/checkpoints/{topic}")
        self.options = given
        self.run = f"run{next(_numbers)}"

    @staticmethod
    def where(broker: Any) -> dict[str, str]:
        """The options that name the cluster."""
        return {"kafka.bootstrap.servers": ",".join(broker.addresses)}

    def sink(self) -> Any:
        """One that a process of the driver makes."""
        from pyspark.sql.types import BinaryType, StructField, StructType

        made = self.source(self.options).writes(StructType([StructField("value", BinaryType())]))
        assert isinstance(made, self.sinks)
        return made

    def plan(self) -> Any:
        """The driver before a micro-batch, as its tasks get it."""
        made = self.sink()
        with made.open() as client:
            made.check(client, stream=self.query is not None)
        return pickle.loads(pickle.dumps(made))

    def task(self, sink: Any, number: int, batch: int | None, values: Sequence[bytes], attempt: int = 0) -> Written:
        """One attempt of a task, to its end."""
        client = worker.client(sink.url, sink.options)
        session = sink.begin(client, Task(number, attempt, self.query, batch, self.run, next(serials)))
        if session is None:
            return Written(0, {"already": True})
        if values:
            session.send(pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())}))
            session.rows += len(values)
        done = session.finish()
        return pickle.loads(pickle.dumps(done))

    def tasks(self, sink: Any, batch: int | None, cut: Sequence[Sequence[bytes]]) -> list[Written | None]:
        return [self.task(sink, number, batch, values) for number, values in enumerate(cut)]

    def whole(self, batch: int | None, cut: Sequence[Sequence[bytes]]) -> list[Written | None]:
        """A micro-batch from its planning to its commit."""
        sink = self.plan()
        messages = self.tasks(sink, batch, cut)
        (self.sink() if self.query is not None else sink).commit(messages, batch)
        return messages

    def killed_behind_its_decision(self, messages: list[Written | None], batch: int | None, sink: Any = None) -> None:
        """Its driver decides, and carries nothing out."""
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(self.sinks, "_carried_out", killed)
            with pytest.raises(Killed):
                (sink or self.sink()).commit(messages, batch)


def values(*numbers: int) -> list[bytes]:
    return [b"%03d" % number for number in numbers]


ROWS = values(*range(12))
CUT, OTHER = [ROWS[:4], ROWS[4:8], ROWS[8:]], [ROWS[:7], [], ROWS[7:]]


def ordered(broker: Broker, topic: str, expected: Sequence[bytes]) -> None:
    """That these records are what is seen, in any order: without keys they are in any partition."""
    settled(broker, topic, sorted(expected), ordered=False)


class Killed(BaseException):
    """What a process that is killed does not go on behind."""


def killed(*_: Any, **__: Any) -> Any:
    raise Killed
