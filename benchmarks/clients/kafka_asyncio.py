"""Kafka under asyncio, beside aiokafka: records of 100 B, one partition, everybody idempotent and waiting for all replicas.

    gathered       1,000 sends at a time, all awaited by one `gather`; aiokafka's `send_and_wait` at its defaults, and with a linger of 5 ms
    in turn        1,000 sends, then their futures one after the other
    read           `async for batch`, its values as a list, beside `getmany`, each message's value

The clock runs from the first send (or from assigning) to the last acknowledgement (or record).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any

import wireproto
import wireproto.aio

from ..harness import Bench, Job, Stretch
from .stored import expect, stored

BOTH = ("instructions", "cpu")
ROUND = 1000
VALUE = b"v" * 100
Body = Callable[[str, str, int], Coroutine[Any, Any, Stretch]]


def tasks(bench: Bench, url: str) -> None:
    """All of them on the broker at that URL, on topics of this process."""
    count = 5_000 if bench.quick else 50_000
    full, filled = f"bench-aio-read-{os.getpid()}", f"bench-aio-write-{os.getpid()}"
    with wireproto.connect(url) as client:
        for topic in (full, filled):
            client.admin().create_topic(topic, partitions=1)
        with client.producer(full) as producer:
            for _ in range(10 * count):
                producer.send(VALUE)

        def writing(body: Body) -> Job:
            return stored(client, filled, count, lambda: asyncio.run(body(url, filled, count)))

        gathered = {"wireproto": writing(ours_gathered), "aiokafka": writing(theirs_gathered), "aiokafka, linger": writing(theirs_lingering)}
        in_turn = {"wireproto": writing(ours_in_turn), "aiokafka": writing(theirs_in_turn)}
        bench.compare("asyncio: gather of 1,000 sends", count, gathered, measures=BOTH)
        bench.compare("asyncio: 1,000 futures awaited in turn", count, in_turn, measures=BOTH)
        reading: dict[str, Job] = {
            "wireproto": lambda: asyncio.run(ours_read(url, full, 10 * count)),
            "aiokafka": lambda: asyncio.run(theirs_read(url, full, 10 * count)),
        }
        bench.compare("asyncio: async for batch", 10 * count, reading, measures=BOTH)


async def ours_gathered(url: str, topic: str, count: int) -> Stretch:
    async with wireproto.aio.connect(url) as client, client.producer(topic) as out:
        with Stretch() as stretch:
            for _ in range(count // ROUND):
                await asyncio.gather(*(out.send(VALUE) for _ in range(ROUND)))
    return stretch


async def ours_in_turn(url: str, topic: str, count: int) -> Stretch:
    async with wireproto.aio.connect(url) as client, client.producer(topic) as out:
        with Stretch() as stretch:
            for _ in range(count // ROUND):
                for future in [out.send(VALUE) for _ in range(ROUND)]:
                    await future
    return stretch


async def ours_read(url: str, topic: str, count: int) -> Stretch:
    found = 0
    async with wireproto.aio.connect(url) as client:
        with Stretch() as stretch:
            async for batch in client.reader(topic, stop=wireproto.LATEST):
                found += len(batch.values())
    expect(found, count)
    return stretch


def producer(url: str, **more: Any) -> Any:
    from aiokafka import AIOKafkaProducer

    return AIOKafkaProducer(bootstrap_servers=url.partition("://")[2], acks="all", enable_idempotence=True, **more)


async def theirs_gathered(url: str, topic: str, count: int, **more: Any) -> Stretch:
    async with producer(url, **more) as out:
        with Stretch() as stretch:
            for _ in range(count // ROUND):
                await asyncio.gather(*(out.send_and_wait(topic, VALUE) for _ in range(ROUND)))
    return stretch


async def theirs_lingering(url: str, topic: str, count: int) -> Stretch:
    return await theirs_gathered(url, topic, count, linger_ms=5, max_batch_size=256 << 10)


async def theirs_in_turn(url: str, topic: str, count: int) -> Stretch:
    async with producer(url) as out:
        with Stretch() as stretch:
            for _ in range(count // ROUND):
                for future in [await out.send(topic, VALUE) for _ in range(ROUND)]:
                    await future
    return stretch


async def theirs_read(url: str, topic: str, count: int) -> Stretch:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    left, partition = count, TopicPartition(topic, 0)
    consumer = AIOKafkaConsumer(bootstrap_servers=url.partition("://")[2], enable_auto_commit=False)
    async with consumer:
        with Stretch() as stretch:
            consumer.assign([partition])
            consumer.seek(partition, 0)
            while left > 0:
                for messages in (await consumer.getmany(timeout_ms=1000)).values():
                    for message in messages:
                        _ = message.value
                    left -= len(messages)
    expect(count - left, count)
    return stretch
