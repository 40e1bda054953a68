"""The asyncio face over Kafka's roles, on the embedded broker: order, room, cancellation, ends; nothing blocks or needs a thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import wireproto
import wireproto.aio
from wireproto._codec import Columns
from wireproto.devbroker import DevBroker
from wireproto.errors import (
    BufferFull,
    Closed,
    ConcurrentUse,
    OptionError,
    RoleUnsupported,
    TimedOut,
    UsageError,
    ValueUnsupported,
)
from wireproto.kafka.codes import TopicAlreadyExists, UnknownTopicOrPartition

Body = Callable[[wireproto.aio.Client], Awaitable[Any]]


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker(auto_create=False) as made:
        yield made


@pytest.fixture
def topic(broker: DevBroker, request: pytest.FixtureRequest) -> str:
    name = f"t-{abs(hash(request.node.name)) % 10**9}"
    with wireproto.connect(broker.url("kafka")) as client:
        client.admin().create_topic(name)
    return name


def run(broker: DevBroker, body: Body, **options: Any) -> Any:
    """Run a test's body with a client of its own, in an event loop of its own."""

    async def main() -> Any:
        async with wireproto.aio.connect(broker.url("kafka"), **options) as client:
            return await asyncio.wait_for(body(client), 60.0)

    return asyncio.run(main())


async def values(client: wireproto.aio.Client, topic: str) -> list[bytes]:
    return [value async for batch in client.reader(topic, stop=wireproto.LATEST) for value in batch.values()]


def test_records_go_out_in_order_and_their_futures_are_their_places(broker: DevBroker, topic: str) -> None:
    before = set(threading.enumerate())

    async def body(client: wireproto.aio.Client) -> None:
        out = client.producer(topic)
        first = await out.send(b"0")  # the producer is made meanwhile
        assert first == wireproto.LogOffset(topic, 0, 0)
        places = await asyncio.gather(*(out.send(b"%d" % n) for n in range(1, 1000)))
        assert [place.offset for place in places] == list(range(1, 1000))
        assert await values(client, topic) == [b"%d" % n for n in range(1000)]
        others = {thread for thread in threading.enumerate() if thread.name != "wireproto-offload"}  # which imports, and is the process's
        assert others <= before, "no thread of its own"

    run(broker, body)


def test_what_is_sent_before_the_producer_is_made_keeps_its_order(broker: DevBroker, topic: str) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        out = client.producer(topic)
        early = [out.send(b"%d" % n) for n in range(50)]
        await asyncio.sleep(0)
        late = [out.send(b"%d" % n) for n in range(50, 100)]
        assert [place.offset for place in await asyncio.gather(*early, *late)] == list(range(100))
        assert await values(client, topic) == [b"%d" % n for n in range(100)]

    run(broker, body)


def test_a_producer_that_cannot_be_made_fails_what_was_sent(broker: DevBroker) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        out = client.producer("there is none", timeout=1.0)
        with pytest.raises(wireproto.WireprotoError):
            await out.send(b"x")
        nowhere = client.producer("no-such-topic")
        with pytest.raises(UnknownTopicOrPartition):
            await nowhere.send(b"x")
        with pytest.raises(UnknownTopicOrPartition):
            await nowhere

    run(broker, body, timeout=5.0, unknown_topic_timeout=0.2)


def test_records_that_find_no_room_wait_in_order_and_then_go_out(broker: DevBroker, topic: str) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        out = await client.producer(topic)
        futures = []
        for n in range(300):
            await out.room()
            futures.append(out.send(b"%08d" % n + bytes(1000)))
        assert not all(future.done() for future in futures)
        places = [await future for future in futures]
        assert [place.offset for place in places] == list(range(300))
        assert [int(value[:8]) for value in await values(client, topic)] == list(range(300))

    run(broker, body, buffer_memory=64 << 10)


def test_more_than_twice_the_budget_is_refused_and_nothing_of_it_is_sent(broker: DevBroker, topic: str) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        out = await client.producer(topic)
        taken: list[Any] = []

        def fill() -> None:
            while len(taken) < 1000:
                taken.append(out.send(b"%08d" % len(taken) + bytes(1000)))

        with pytest.raises(BufferFull):
            fill()
        assert len(taken) * 1000 <= 3 * (64 << 10)
        await asyncio.gather(*taken)
        await out.send(b"%08d" % 5000)
        assert [int(value[:8]) for value in await values(client, topic)] == [*range(len(taken)), 5000]

    run(broker, body, buffer_memory=64 << 10)


def test_a_record_that_waits_for_room_is_not_sent_when_it_is_cancelled(broker: DevBroker, topic: str) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        out = await client.producer(topic)
        futures = [out.send(b"%08d" % n + bytes(1000)) for n in range(100)]
        assert "waits for room" in repr(futures[90])
        for future in futures[90:95]:
            assert future.cancel()
        await asyncio.gather(*futures, return_exceptions=True)
        await out.flush()
        assert [int(value[:8]) for value in await values(client, topic)] == [*range(90), *range(95, 100)]

    run(broker, body, buffer_memory=64 << 10)


def test_ten_thousand_cancelled_sends_leave_nothing_and_the_next_goes_on(broker: DevBroker, topic: str) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        out = await client.producer(topic)

        async def send(n: int) -> None:
            await out.send(b"%d" % n)

        work = [asyncio.ensure_future(send(n)) for n in range(10_000)]
        await asyncio.sleep(0)
        for one in work:
            one.cancel()
        ends = await asyncio.gather(*work, return_exceptions=True)
        assert {type(end) for end in ends} == {asyncio.CancelledError}
        await out.flush()
        place = await out.send(b"after")
        assert place.offset == 10_000, "taken is taken, cancelled or not"
        assert client._made.cluster.budget.used <= 1 << 17

    run(broker, body)


def test_a_refused_record_raises_at_once_or_in_its_future(broker: DevBroker, topic: str) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        out = client.producer(topic, max_request_size=10_000)
        early = out.send(bytes(20_000))
        fine = out.send(b"fine")
        with pytest.raises(ValueUnsupported):
            await early
        assert (await fine).offset == 0
        with pytest.raises(ValueUnsupported):
            out.send(bytes(20_000))

    run(broker, body)


def test_a_broker_that_never_answers_fails_the_future_or_the_flush(broker: DevBroker, topic: str) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        out = await client.producer(topic, delivery_timeout=1.0)
        broker.faults("kafka").lose_reply("Produce", times=50)
        try:
            future = out.send(b"x")
            with pytest.raises(TimedOut):
                await future
            assert isinstance(future.exception(), TimedOut)
            await out.flush()
            out.send(b"y")
            with pytest.raises(TimedOut):
                await out.flush()
        finally:
            broker.faults("kafka").clear()

    run(broker, body, request_timeout=0.5)


def test_rows_at_once_go_behind_what_was_sent_before(broker: DevBroker, topic: str) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        out = client.producer(topic)
        first = out.send(b"first")
        last = await out.send_batch(Columns.from_rows([b"%d" % n + bytes(1000) for n in range(500)]))
        assert (await first).offset == 0
        assert (await last[-1]).offset == 500
        found = await values(client, topic)
        assert [value[:1] for value in found[:3]] == [b"f", b"0", b"1"]
        assert len(found) == 501

    run(broker, body, buffer_memory=128 << 10)


def test_closing_flushes_what_was_sent_and_refuses_what_comes_later(broker: DevBroker, topic: str) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        async with client.producer(topic, linger=60.0) as out:
            futures = [out.send(b"%d" % n) for n in range(10)]
        assert all(future.done() for future in futures)
        with pytest.raises(Closed):
            out.send(b"later")
        never = client.producer(topic)
        waits = never.send(b"made and flushed by the close")
        await never.close()
        assert (await waits).offset == 10
        with pytest.raises(Closed):
            await never

    run(broker, body)


def test_the_synchronous_face_of_an_adopted_client_raises(broker: DevBroker, topic: str) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        await client.admin().list_topics()
        with pytest.raises(UsageError, match=r"wireproto\.aio"):
            client._made.admin().list_topics()
        with pytest.raises(UsageError, match=r"wireproto\.aio"):
            client._made.reader(topic)

    run(broker, body)


def test_what_is_not_there_says_so(broker: DevBroker, topic: str) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        with pytest.raises(RoleUnsupported):
            client.tree()
        with pytest.raises(RoleUnsupported):
            await client.queue(topic, "g")
        with pytest.raises(OptionError, match="name a topic"):
            await client.producer()

    run(broker, body)


def test_admin_answers_and_refuses_as_the_synchronous_one(broker: DevBroker, topic: str) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        admin = client.admin()
        assert topic in await admin.list_topics()
        with pytest.raises(TopicAlreadyExists):
            await admin.create_topic(topic)
        assert len((await admin.describe_topic(topic)).partitions) == 1
        assert await admin.positions(topic) == {(topic, 0): wireproto.LogOffset(topic, 0, 0)}
        await admin.create_topic(f"{topic}-2", partitions=2)
        await admin.delete_topic(f"{topic}-2")
        assert f"{topic}-2" not in await admin.list_topics()

    run(broker, body)


def test_a_consumer_joins_commits_and_its_group_goes_on(broker: DevBroker, topic: str) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        out = client.producer(topic)
        await asyncio.gather(*(out.send(b"%d" % n) for n in range(20)))
        group = f"g-{topic}"
        async with client.consumer(topic, group, auto_commit=False) as consumer:
            found: list[bytes] = []
            async for batch in consumer:
                found += batch.values()
                if len(found) == 20:
                    break
            assert consumer.assignment == {(topic, 0)}
            await consumer.seek({(topic, 0): wireproto.LogOffset(topic, 0, 5)})
            batch_again = await consumer.poll(30.0)
            assert batch_again is not None
            assert batch_again.values()[0] == b"5"
            await consumer.commit({(topic, 0): wireproto.LogOffset(topic, 0, 15)})
            assert await consumer.committed() == {(topic, 0): wireproto.LogOffset(topic, 0, 15)}
            assert set(await consumer.lag()) == {(topic, 0)}
        assert await client.admin().group_positions(group, topic) == {(topic, 0): wireproto.LogOffset(topic, 0, 15)}
        async with client.consumer(topic, group) as consumer:
            batch = None
            while batch is None:
                batch = await consumer.poll(5.0)
            assert batch.values()[0] == b"15"

    run(broker, body)


def test_a_cancelled_poll_loses_no_record_and_two_at_once_are_refused(broker: DevBroker, topic: str) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        reader = await client.reader(topic)
        polls = asyncio.ensure_future(reader.poll(60.0))
        await asyncio.sleep(0.01)
        with pytest.raises(ConcurrentUse):
            await reader.poll(0.1)
        polls.cancel()
        with pytest.raises(asyncio.CancelledError):
            await polls
        out = client.producer(topic)
        found: list[bytes] = []
        for n in range(30):
            await out.send(b"%d" % n)
            try:
                batch = await asyncio.wait_for(reader.poll(60.0), 0.0005 * n)
            except TimeoutError:
                continue
            if batch is not None:
                found += batch.values()
        while len(found) < 30:
            batch = await reader.poll(30.0)
            assert batch is not None
            found += batch.values()
        assert found == [b"%d" % n for n in range(30)]
        assert await reader.poll(0.01) is None

    run(broker, body)


def test_closing_ends_a_poll_that_waits(broker: DevBroker, topic: str) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        reader = await client.reader(topic)
        polls = asyncio.ensure_future(reader.poll(60.0))
        await asyncio.sleep(0.01)
        await reader.close()
        with pytest.raises(Closed):
            await polls
        with pytest.raises(Closed):
            await reader.poll(1.0)
        other = await client.reader(topic)
        waits = asyncio.ensure_future(other.poll(60.0))
        await asyncio.sleep(0.01)
        await client.close()
        with pytest.raises(Closed):
            await waits
        with pytest.raises(Closed):
            client.reader(topic)

    run(broker, body)


def test_batches_that_are_there_leave_others_their_turn(broker: DevBroker, topic: str) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        out = await client.producer(topic)
        for _ in range(40):
            futures = [out.send(bytes(10_000)) for _ in range(50)]
            await asyncio.gather(*futures)
        longest, turns, over = 0.0, 0, False

        async def beside() -> None:
            nonlocal longest, turns
            last = time.monotonic()
            while not over:
                await asyncio.sleep(0)
                now = time.monotonic()
                longest, last, turns = max(longest, now - last), now, turns + 1

        other = asyncio.ensure_future(beside())
        count = 0
        async for batch in client.reader(topic, stop=wireproto.LATEST):
            count += len(batch)
        over = True
        await other
        assert count == 2000
        assert turns >= 10

    run(broker, body)


def test_polls_keep_their_timeout(broker: DevBroker, topic: str) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        reader = await client.reader(topic)
        began = time.monotonic()
        assert await reader.poll(0.2) is None
        assert 0.19 <= time.monotonic() - began < 10.0
        broker.faults("kafka").stall("ListOffsets")
        try:
            with pytest.raises(TimedOut):
                await client.admin().positions(topic, timeout=0.5)
        finally:
            broker.faults("kafka").clear()
        assert time.monotonic() - began < 15.0

    run(broker, body)


def test_the_example_of_the_page_runs(broker: DevBroker) -> None:
    page = (Path(__file__).parents[2] / "docs" / "asyncio.md").read_text()
    example: dict[str, Any] = {}
    exec(page.split("```python\n")[1].split("```")[0], example)
    assert asyncio.run(asyncio.wait_for(example["main"](broker.url("kafka")), 60.0)) == 1000
