"""Kafka under asyncio on a real broker, beside aiokafka: records of 100 B value and 16 B key, one partition, uncompressed.

Equal terms: everybody waits for all replicas, is idempotent and checks CRCs. A thousand sends are gathered at a time, as a handler of many
requests does; aiokafka's `send_and_wait` at its defaults (no linger), and with a linger of 1 ms, its best here. "Awaited in turn" is a
thousand futures that are begun first and awaited one after the other. The clock runs from the first send to the last acknowledgement, or
from the first record to the last.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

import wireproto
import wireproto.aio
from wireproto import EARLIEST, LATEST

from ..harness import Bench, Job, Sizes, Stretch
from .kafka import BOTH, KEY, Place, aio_read, full_topic, one_node, values
from .stored import expect, scaled, stored

TURN = 1000  # records that are on their way together
RECORDS = Sizes(50_000, 5_000, TURN)
READ = 10  # times as many are read
DEFAULTS, LINGERS = "aiokafka send_and_wait()", "aiokafka send_and_wait(), linger 1 ms"

Send = Callable[[bytes], Awaitable[object]]


def suite(bench: Bench) -> None:
    with one_node(bench) as broker:
        bench.brokers["asyncio"] = f"Kafka {broker.version}, one node"
        bench.count(broker.url, full_topic(broker.url, "aio-read", READ * RECORDS.counted))
        tasks(bench, broker.url, full_topic(broker.url, "aio-read", READ * bench.units(RECORDS)))


def tasks(bench: Bench, url: str, full: str) -> None:
    """All of them on the broker at that URL: reading from a topic that is full, writing to one of this process."""
    count, bootstrap = bench.units(RECORDS), url.partition("://")[2]
    filled = f"bench-aio-write-{os.getpid()}"
    with wireproto.connect(url) as client:
        client.admin().create_topic(filled, partitions=1)
        sends(bench, url, Place(client, bootstrap, filled), count)
        reads(bench, url, Place(client, bootstrap, full), READ * count)


def sends(bench: Bench, url: str, place: Place, count: int) -> None:
    rows, few = values(count), values(count // 5)

    def ours(way: Callable[[Send, list[bytes]], Awaitable[object]]) -> Job:
        return stored(place.client, place.topic, count, lambda: asyncio.run(ours_send(url, place.topic, rows, way)))

    def theirs(linger: int, way: Callable[[Send, list[bytes]], Awaitable[object]], *, wait: bool) -> Job:
        job = stored(place.client, place.topic, len(few), lambda: asyncio.run(aio_send(place, few, linger, way, wait=wait)))
        return lambda: scaled(job(), count / len(few))

    together: dict[str, Job] = {
        "wireproto": ours(gathered),
        DEFAULTS: theirs(0, gathered, wait=True),
        LINGERS: theirs(1, gathered, wait=True),
    }
    bench.compare("gather of 1,000 sends", count, together, measures=BOTH)
    in_turn: dict[str, Job] = {"wireproto": ours(awaited), "aiokafka": theirs(1, awaited, wait=False)}
    bench.compare("1,000 futures awaited in turn", count, in_turn, measures=BOTH)


def reads(bench: Bench, url: str, place: Place, count: int) -> None:
    jobs: dict[str, Job] = {
        "wireproto": lambda: asyncio.run(ours_read(url, place.topic, count)),
        "aiokafka getmany()": lambda: asyncio.run(aio_read(place, count)),
    }
    bench.compare("async for batch, each value", count, jobs, measures=BOTH)


async def gathered(send: Send, rows: list[bytes]) -> None:
    await asyncio.gather(*map(send, rows))


async def awaited(send: Send, rows: list[bytes]) -> None:
    for future in [send(value) for value in rows]:
        await future


async def ours_send(url: str, topic: str, rows: list[bytes], way: Callable[[Send, list[bytes]], Awaitable[object]]) -> Stretch:
    async with wireproto.aio.connect(url) as client, client.producer(topic) as out:
        await out.send(rows[0], key=KEY)
        with Stretch() as stretch:
            for start in range(0, len(rows), TURN):
                await way(lambda value: out.send(value, key=KEY), rows[start + (start == 0) : start + TURN])
    return stretch


async def aio_send(
    place: Place, rows: list[bytes], linger: int, way: Callable[[Send, list[bytes]], Awaitable[object]], *, wait: bool
) -> Stretch:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(bootstrap_servers=place.bootstrap, acks="all", enable_idempotence=True, linger_ms=linger)
    await producer.start()

    async def begun(value: bytes) -> Any:
        return await (await producer.send(place.topic, value, KEY))

    def send(value: bytes) -> Awaitable[object]:
        return producer.send_and_wait(place.topic, value, KEY) if wait else asyncio.ensure_future(begun(value))

    await producer.send_and_wait(place.topic, rows[0], KEY)
    with Stretch() as stretch:
        for start in range(0, len(rows), TURN):
            await way(send, rows[start + (start == 0) : start + TURN])
    await producer.stop()
    return stretch


async def ours_read(url: str, topic: str, count: int) -> Stretch:
    found = 0
    async with wireproto.aio.connect(url) as client:
        with Stretch() as stretch:
            async for batch in client.reader(topic, start=EARLIEST, stop=LATEST):
                for _ in batch.values():
                    found += 1
    expect(found, count)
    return stretch
