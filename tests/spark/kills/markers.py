"""A sink that is wrong, for the judge of the kills to find so: a transaction a task under the same name always, with a marker in it.

    task      skip, where the marker of its name has this micro-batch; else rows and marker in one transaction, handed over
    driver    commit each, one after the other

Many connectors were built like that. It is right as long as a micro-batch that runs again has the same rows in the same tasks: one killed
between two commits is written by half, and what its replay writes depends on the tasks it is cut into then.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from wireproto.spark.exactly import handed_over
from wireproto.spark.kafka import KafkaWire
from wireproto.spark.kafka_decisions import Decisions
from wireproto.spark.kafka_exactly import Attempt, ExactlyOnce
from wireproto.spark.kafka_sink import write_options

from .job import MARKERS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from wireproto.spark.options import Options
    from wireproto.spark.write import Session, Sink, Task, Written


class MarkersSink(ExactlyOnce):
    """See the module."""

    def check(self, client: Any, *, stream: bool) -> None:
        """Nobody is fenced, and nothing is looked for."""

    def begin(self, client: Any, task: Task) -> Session | None:
        name = f"{self.prefix}/{task.partition}"
        marker = Marker(client, self.settings.decisions, name, self.settings.timeout)
        if marker.batch() >= (task.batch or 0):
            return None
        return MarkedAttempt(self, client, task, name, marker)

    def commit(self, messages: list[Written | None], batch: int | None) -> None:
        handed, _ = handed_over(messages)
        with self.open() as opened:
            client: Any = opened
            for one in handed:
                client.admin().end_transactions([one], commit=True, timeout=self.settings.timeout)

    def abort(self, messages: list[Written | None], batch: int | None) -> None:
        """What is open is rolled back by who takes its name next."""


class Marker(Decisions):
    """The last micro-batch of a task's name."""

    def batch(self) -> int:
        found = self._last()
        return int(found["batch"]) if found else -1

    def _last(self) -> Any:
        key = (self.topic, self.partition)
        last = self._client.admin().positions(self.topic, timeout=self._timeout, committed=True)[key]
        texts: list[bytes | None] = []
        with self._client.reader(self.topic, stop={key: last}) as reader:
            while not reader.done:
                batch = reader.poll(self._timeout)
                texts += [record.value for record in batch or () if record.key == self.prefix.encode()]
        return json.loads(texts[-1] or b"") if texts else None

    def put(self, turn: Any, batch: int) -> None:
        turn.send(json.dumps({"batch": batch}).encode(), topic=self.topic, key=self.prefix.encode(), partition=self.partition)


class MarkedAttempt(Attempt):
    """Rows and marker."""

    def __init__(self, sink: MarkersSink, client: Any, task: Task, name: str, marker: Marker) -> None:
        super().__init__(sink, client, task, name)
        marker.put(self._turn, task.batch or 0)

    def finish(self) -> Written:
        handed = self._turn.hand_over(timeout=self.sink.settings.timeout)
        self.abort()
        from wireproto.spark.write import Written

        return Written(self.rows, {"transaction": handed, "driver": None, "known": {}, "rest": False, "query": None})


class MarkersSource(KafkaWire):
    """The format ``markers``."""

    @classmethod
    def name(cls) -> str:
        return MARKERS

    def sink(self, options: Options, schema: StructType) -> Sink:
        return MarkersSink(write_options(options), schema)
