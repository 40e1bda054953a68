"""Small verbs that the tests share: write and wait, read to the end, wait for a condition under a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from wireproto import EARLIEST, LATEST


def write(client: Any, topic: str, values: Iterable[bytes | None], **fields: Any) -> list[Any]:
    """Produce the values, wait for all, return their positions."""
    with client.producer(topic) as producer:
        receipts = [producer.send(value, **fields) for value in values]
        producer.flush(30.0)
        return until_readable(client, topic, [receipt.position(30.0) for receipt in receipts])


def until_readable(client: Any, topic: str, positions: list[Any], limit: float = 30.0) -> list[Any]:
    """Wait until LATEST lies behind all of these positions, and return them.

    A RocketMQ broker acknowledges a record before its queue shows it (10 ms were seen on 4.9.7), and its answer to "where is the end"
    comes from the queue: reading up to LATEST right after a flush may stop short.
    """
    if client.protocol != "rocketmq":
        return positions
    ends: dict[int, int] = {}
    for position in positions:
        ends[position.partition] = max(ends.get(position.partition, -1), position.offset)
    deadline = time.monotonic() + limit
    while any(client.admin().positions(topic)[topic, partition].offset <= end for partition, end in ends.items()):
        assert time.monotonic() < deadline, f"acknowledged records are not shown within {limit} s"
    return positions


def catch_up(client: Any, topic: str) -> None:
    """Let a client's ZooKeeper server apply what other sessions, on other servers of the ensemble, have been told is done."""
    if client.protocol == "zookeeper":
        client.tree().catch_up(topic)


def records(client: Any, topic: str, *, start: Any = EARLIEST, stop: Any = LATEST, limit: float = 60.0) -> list[Any]:
    """Every record from start to stop, in the order read; fails when the stop is not reached in time."""
    found: list[Any] = []
    deadline = time.monotonic() + limit
    with client.reader(topic, start=start, stop=stop) as reader:
        while not reader.done:
            assert time.monotonic() < deadline, f"the stop was not reached in {limit} s; {len(found)} records read"
            batch = reader.poll(timeout=1.0)
            if batch is not None:
                found.extend(batch)
    return found


def values(client: Any, topic: str, **options: Any) -> list[bytes | None]:
    return [record.value for record in records(client, topic, **options)]


def poll_until(consumer: Any, enough: Callable[[list[Any]], bool], limit: float = 60.0) -> list[Any]:
    """Poll a consumer until `enough(records)`; fails when that takes longer than `limit` seconds."""
    found: list[Any] = []
    deadline = time.monotonic() + limit
    while not enough(found):
        assert time.monotonic() < deadline, f"only {len(found)} records in {limit} s: {[record.value for record in found][:20]}"
        batch = consumer.poll(timeout=0.5)
        if batch is not None:
            found.extend(batch)
    return found


def receive_until(queue: Any, count: int, limit: float = 60.0) -> list[Any]:
    """`count` deliveries of a queue consumer."""
    found: list[Any] = []
    deadline = time.monotonic() + limit
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {len(found)} of {count} deliveries in {limit} s"
        delivery = queue.receive(timeout=0.5)
        if delivery is not None:
            found.append(delivery)
    return found


def eventually(condition: Callable[[], bool], what: str, limit: float = 30.0) -> None:
    deadline = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < deadline, f"not within {limit} s: {what}"
        time.sleep(0.05)


class Stopwatch:
    """``with Stopwatch() as watch: …; watch.seconds``"""

    def __enter__(self) -> Stopwatch:
        self._began = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.monotonic() - self._began
