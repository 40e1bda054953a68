"""Reading far behind the end: pulls sent ahead, batches that wait for `min_bytes`; every offset once and in order whatever is cut."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import wireproto
from brokers import RocketMQ
from patience import LATE
from wireproto.position import EARLIEST, LATEST, QueueOffset
from wireproto.rocketmq.client import RocketClient

pytestmark = pytest.mark.parametrize("broker", ["rocketmq-4.9.7", "rocketmq-5.5.0"], indirect=True)
_numbers = itertools.count()
HEADERS = pytest.mark.parametrize("header", ["json", "binary"])
FILL = bytes(120)


@pytest.fixture
def writer(broker: RocketMQ) -> Iterator[RocketClient]:
    with wireproto.connect(broker.url) as opened:
        yield opened


def filled(writer: RocketClient, count: int, fill: bytes = FILL, queues: int = 2) -> str:
    """A topic with so many numbered records in each queue; brokers put there later what they acknowledge, this waits for it."""
    topic = f"reading-{next(_numbers)}"
    writer.admin().create_topic(topic, partitions=queues)
    with writer.producer(topic) as out:
        for queue in range(queues):
            for start in range(0, count, 1000):
                values = [b"%d:%d:" % (queue, number) + fill for number in range(start, min(start + 1000, count))]
                out.send_batch(pa.record_batch({"key": [b"k"] * len(values), "value": values}), partition=queue)
    ends = writer.admin().positions(topic)
    assert ends == {(topic, queue): QueueOffset(topic, queue, count, "broker-a", queue) for queue in range(queues)}
    return topic


class Seen:
    """What a reader gave: each batch must go on where the last one of its queue ended."""

    def __init__(self) -> None:
        self.ends: dict[int, int] = {}
        self.batches = 0

    def take(self, batch: Any) -> None:
        queue, start = batch.partition, self.ends.get(batch.partition, 0)
        stop = start + len(batch)
        table = pa.record_batch(batch)
        assert table["offset"].to_pylist() == list(range(start, stop))
        assert [bytes(value).rsplit(b":", 1)[0] for value in batch.columns.values()] == [b"%d:%d" % (queue, n) for n in range(start, stop)]
        assert [place.offset for place in batch.next_positions.values()] == [stop]
        self.ends[queue] = stop
        self.batches += 1


@HEADERS
@pytest.mark.parametrize("least", [1, 1 << 18])
def test_every_offset_once_and_in_order_over_cut_connections(
    broker: RocketMQ, writer: RocketClient, fault_proxy: Any, header: str, least: int
) -> None:
    topic, chance, seen = filled(writer, 6000), random.Random(7), Seen()
    options = {"header": header, "address_map": fault_proxy.address_map(broker.addresses)}
    with (
        wireproto.connect(fault_proxy.url(broker.url), **options) as client,
        client.reader(topic, start=EARLIEST, stop=LATEST, min_bytes=least, pull_ahead=16) as reader,
    ):
        deadline, before = time.monotonic() + 60, fault_proxy.connections
        for cut in itertools.count():
            if cut < 8:
                fault_proxy.cut_after(chance.randrange(2000, 400_000))
            batch = reader.poll(5.0)
            assert time.monotonic() < deadline
            if batch is not None:
                seen.take(batch)
            if reader.done:
                break
        assert seen.ends == {0: 6000, 1: 6000}
        assert fault_proxy.connections > before, "nothing was cut"


@HEADERS
def test_a_batch_waits_for_its_bytes_and_not_beyond_the_end(broker: RocketMQ, writer: RocketClient, header: str) -> None:
    topic, seen = filled(writer, 5000, queues=1), Seen()
    with (
        wireproto.connect(broker.url, header=header) as client,
        client.reader(topic, start=EARLIEST, min_bytes=1 << 18, batch_bytes=1 << 19) as reader,
    ):
        begun = time.monotonic()
        while seen.ends.get(0, 0) < 5000:
            batch = reader.poll(30.0)
            assert batch is not None
            seen.take(batch)
        assert time.monotonic() - begun < 10.0 + LATE, "the last batch did not wait for what is not there"
        assert seen.batches < 8  # about 1.2 MB in batches of 256 KiB at least
        assert reader.poll(0.05) is None
        with writer.producer(topic) as out:
            out.send(b"0:5000:", key=b"k").position(30.0)
        batch = reader.poll(30.0)
        assert batch is not None
        seen.take(batch)
        assert seen.ends == {0: 5001}


def test_poll_keeps_its_timeout_with_what_there_is(broker: RocketMQ, writer: RocketClient, fault_proxy: Any) -> None:
    topic, seen, small, took = filled(writer, 5000, queues=1), Seen(), 0, list[float]()
    options = {"address_map": fault_proxy.address_map(broker.addresses)}
    with (
        wireproto.connect(fault_proxy.url(broker.url), **options) as client,
        client.reader(topic, start=EARLIEST, stop=LATEST, min_bytes=1 << 17) as reader,
    ):
        first = reader.poll(30.0)
        assert first is not None
        seen.take(first)
        fault_proxy.delay(0.05)  # so that what a batch waits for takes more than a poll
        deadline = time.monotonic() + 60
        while not reader.done:
            begun = time.monotonic()
            batch = reader.poll(0.06)
            took.append(time.monotonic() - begun)
            assert time.monotonic() < deadline
            if batch is not None:
                small += batch.columns.nbytes < 1 << 16
                seen.take(batch)
        assert seen.ends == {0: 5000}
        assert sum(seconds >= 0.06 + LATE for seconds in took) <= len(took) // 50 + 1, "one may be late with all of the machine"
        assert small, "a poll that had to end handed out what there was"


def test_replies_that_the_broker_cuts_by_their_bytes(broker: RocketMQ, writer: RocketClient) -> None:
    topic, seen = filled(writer, 300, fill=bytes(30_000), queues=1), Seen()
    with (
        wireproto.connect(broker.url) as client,
        client.reader(topic, start=EARLIEST, stop=LATEST, min_bytes=2 << 20, batch_bytes=4 << 20) as reader,
    ):
        for batch in reader:
            seen.take(batch)
    assert seen.ends == {0: 300}
    assert seen.batches <= 5
