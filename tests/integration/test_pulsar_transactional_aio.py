"""Pulsar's transactions under asyncio on a real broker: what the official client's reader sees of them, whoever is cancelled and when."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

import wireproto.aio
from brokers.pulsar import Pulsar
from integration.pulsar_tools import new_topic, theirs
from integration.test_pulsar_transactional import settled
from patience import LONG
from wireproto.aio import Client, Transactions
from wireproto.errors import Aborted

pytestmark = pytest.mark.parametrize("broker", ["pulsar-4.2.4-transactions"], indirect=True)


@pytest.fixture
def topic(broker: Pulsar) -> str:
    return new_topic(broker)


@pytest.fixture
def judge(broker: Pulsar) -> Iterator[Any]:
    with theirs(broker) as official:
        yield official


def run(broker: Pulsar, body: Callable[[Client], Awaitable[object]], **options: Any) -> None:
    async def main() -> None:
        async with wireproto.aio.connect(broker.url, **options) as client:
            await asyncio.wait_for(body(client), 2 * LONG)

    asyncio.run(main())


def test_every_transaction_is_seen_as_a_whole(broker: Pulsar, judge: Any, topic: str) -> None:
    expected: list[bytes] = []

    async def body(client: Client) -> None:
        async with client.transactions("work") as work:
            for number in range(4):
                values = [b"%d-%d" % (number, n) for n in range(3)]
                async with work.begin() as tx:
                    receipts = [await tx.send(value, topic=topic) for value in values]
                    await tx.producer(topic).flush()
                    assert not any(receipt.done for receipt in receipts)
                expected.extend(values)
                places = [await receipt for receipt in receipts]
                assert places == sorted(places)
                tx = await work.begin()
                lost = await tx.send(b"lost", topic=topic)
                await tx.abort()
                with pytest.raises(Aborted):
                    await lost

    run(broker, body)
    settled(judge, topic, expected)


def test_a_message_is_done_with_when_its_transaction_commits(broker: Pulsar, judge: Any, topic: str) -> None:
    source = new_topic(broker)

    async def body(client: Client) -> None:
        await client.producer(source).send(b"job")
        async with client.queue(source, "workers") as queue, client.transactions("work") as work:
            for commit in (False, True):
                delivery = await queue.receive(30.0)
                assert delivery is not None
                assert delivery.value == b"job"
                tx = await work.begin()
                await tx.send(b"done %d" % commit, topic=topic)
                await tx.ack(delivery)
                await (tx.commit() if commit else tx.abort())
            assert await queue.receive(1.0) is None

    run(broker, body)
    settled(judge, topic, [b"done 1"])


async def whole(work: Transactions, topic: str, value: bytes) -> None:
    async with work.begin() as tx:
        await tx.send(value, topic=topic)
        await tx.producer(topic).flush()
        await tx.send(value, topic=topic)


def test_whenever_a_transaction_is_cancelled_it_is_whole_or_not_there(broker: Pulsar, judge: Any, topic: str) -> None:
    """Turns of the event loop in which there is something to break off, from its beginning to its end."""
    done: list[bytes] = []
    unsure: list[bytes] = []

    async def body(client: Client) -> None:
        async with client.transactions("work") as work:
            for turns in itertools.count():
                value = b"%d" % turns
                task = asyncio.ensure_future(whole(work, topic, value))
                for _ in range(turns * (1 + turns // 10)):
                    await asyncio.sleep(0)
                    if task.done():
                        break
                if task.done():
                    await task
                    done.extend([value] * 2)
                    return
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                unsure.append(value)
                if turns % 8 == 0:
                    await whole(work, topic, b"behind " + value)
                    done.extend([b"behind " + value] * 2)

    run(broker, body)
    assert len(unsure) > 5  # how many turns it takes is the machine's
    with wireproto.connect(broker.url) as client, client.reader(topic, stop=wireproto.LATEST) as reader:
        found = [value for batch in reader for value in batch.values()]
    counts = {value: found.count(value) for value in unsure}
    assert set(counts.values()) <= {0, 2}, counts
    assert sorted(value for value in found if value not in counts) == sorted(done)
    settled(judge, topic, found)
