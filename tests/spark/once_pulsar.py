"""Lives of a query with Pulsar's exactly-once sink, and what the official client sees of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

import wireproto
from brokers.pulsar import Pulsar
from integration.pulsar_tools import PREFIX, pulsar, theirs
from patience import LONG, until
from spark.once import SELDOM, Life, serials, values
from wireproto.spark.pulsar import PulsarWire
from wireproto.spark.pulsar_exactly import ExactlyOnce
from wireproto.spark.pulsar_leading import Leading
from wireproto.spark.write import Task, Written

ALREADY = {"already": True}


class PulsarLife(Life):
    source, sinks = PulsarWire, ExactlyOnce

    @staticmethod
    def where(broker: Any) -> dict[str, str]:
        return {"service.url": broker.service, "admin.url": broker.admin}

    def leading(self, client: Any) -> Leading:
        found: Leading = self.sink().leading(client)
        return found


def seen(broker: Pulsar, topic: str) -> list[bytes]:
    """What the official reader gets in front of a plain record that is sent now, which nothing open keeps from being read."""
    with theirs(broker) as judge:
        producer = judge.create_producer(PREFIX + topic)
        last = place(producer.send(b"end"))
        producer.close()
        reader = judge.create_reader(PREFIX + topic, pulsar.MessageId.earliest)
        found = []
        while place((message := reader.read_next(int(LONG * 1000))).message_id()) != last:
            found += [] if message.data() == b"end" else [message.data()]
        reader.close()
    return found


def place(number: Any) -> tuple[int, int]:
    return number.ledger_id(), number.entry_id()


def ordered(broker: Pulsar, topic: str, expected: Sequence[bytes]) -> None:
    """That these records are what is seen, and nobody waits for more."""
    assert sorted(seen(broker, topic)) == sorted(expected)


def already(messages: Sequence[Written | None]) -> bool:
    return all(message is not None and message.facts == ALREADY for message in messages)


def ids(messages: Sequence[Written | None]) -> list[Any]:
    return [message.facts["transaction"].id for message in messages if message]


def session(life: Life, sink: Any, number: int = 0, attempt: int = 0) -> Any:
    """An attempt of a task, in a worker of its own, that has begun."""
    opened = wireproto.connect(sink.url, **sink.options)
    made = sink.begin(opened, Task(number, attempt, "q", 0, life.run, next(serials)))
    made.send(batch(values(99)))
    return made


def batch(rows: Sequence[bytes]) -> Any:
    return pa.RecordBatch.from_pydict({"value": pa.array(rows, pa.binary())})


def over(client: Any, messages: Sequence[Written | None]) -> None:
    """Until the coordinators have rolled back what took too long."""

    def none_is_open() -> bool:
        time.sleep(SELDOM)
        return bool(client.admin().open_transactions(ids(messages)) == frozenset())

    until(none_is_open)
