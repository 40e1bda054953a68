"""RocketMQ under asyncio: a producer without the core's Appender, and members of groups."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

import wireproto
import wireproto.aio
from wireproto._codec import Columns
from wireproto.devbroker import DevBroker
from wireproto.errors import BufferFull, Closed, ConcurrentUse, ConnectError, Revoked, RoleUnsupported, UsageError, ValueUnsupported
from wireproto.rocketmq.codes import RequestCodeNotSupported, TopicNotExist
from wireproto.rocketmq.messages import GetMaxOffsetRequest

Body = Callable[[wireproto.aio.Client], Awaitable[Any]]
BUDGET = 64 << 10
_numbers = itertools.count()


@pytest.fixture(scope="module")
def started() -> Iterator[DevBroker]:
    with DevBroker(["rocketmq"], auto_create=False) as made:
        yield made


@pytest.fixture
def broker(started: DevBroker) -> Iterator[DevBroker]:
    yield started
    started.faults("rocketmq").clear()


@pytest.fixture
def topic(broker: DevBroker) -> str:
    name = f"aio-{next(_numbers)}"
    with wireproto.connect(broker.url("rocketmq")) as client:
        client.admin().create_topic(name)
    return name


def run(broker: DevBroker, body: Body, **options: Any) -> None:
    """Run a test's body with a client of its own, in an event loop of its own."""

    async def main() -> None:
        async with wireproto.aio.connect(broker.url("rocketmq"), **options) as client:
            await asyncio.wait_for(body(client), 60.0)

    asyncio.run(main())


async def values(client: wireproto.aio.Client, topic: str) -> list[bytes]:
    return [value async for batch in client.reader(topic, stop=wireproto.LATEST) for value in batch.values()]


# sending ------------------------------------------------------------------------------------------------------------------------------


def test_records_go_out_in_order_before_and_after_the_producer_is_made(broker: DevBroker, topic: str) -> None:
    before = set(threading.enumerate())

    async def body(client: wireproto.aio.Client) -> None:
        out = client.producer(topic)
        early = [out.send(b"%d" % n) for n in range(50)]
        await early[0]
        late = [out.send(b"%d" % n, key=b"k", headers={"h": b"v"}) for n in range(50, 500)]
        places = await asyncio.gather(*early, *late)
        assert [(place.offset, place.broker) for place in places] == [(n, "dev") for n in range(500)]
        assert await values(client, topic) == [b"%d" % n for n in range(500)]
        others = {thread for thread in threading.enumerate() if thread.name != "wireproto-offload"}  # which imports, and is the process's
        assert others <= before, "no thread of its own"

    run(broker, body)


def test_a_record_that_somebody_awaits_does_not_wait_for_others(broker: DevBroker, topic: str) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        out = await client.producer(topic, linger=3600.0)
        first, second = out.send(b"first"), out.send(b"second")
        await asyncio.sleep(0.05)
        assert not first.done()
        assert (await second).offset == 1
        assert first.done()

    run(broker, body)


def test_records_that_find_no_room_wait_in_order_and_more_are_refused(broker: DevBroker, topic: str) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        out, taken = await client.producer(topic), []

        def fill() -> None:
            while len(taken) < 1000:
                taken.append(out.send(b"%08d" % len(taken) + bytes(1000)))

        with pytest.raises(BufferFull):
            fill()
        assert "waits for room" in repr(taken[-1])
        assert len(taken) * 1000 <= 3 * BUDGET
        for future in taken[-5:]:
            assert future.cancel()
        places = await asyncio.gather(*taken[:-5])
        assert [place.offset for place in places] == list(range(len(taken) - 5))
        for n in range(200, 300):
            await out.room()
            taken.append(out.send(b"%08d" % n + bytes(1000)))
        await out.flush()
        wanted = [*range(len(places)), *range(200, 300)]
        assert [int(value[:8]) for value in await values(client, topic)] == wanted, "a cancelled one is not sent"
        assert client._made.cluster.budget.used == 0

    run(broker, body, buffer_memory=BUDGET)


def test_a_record_as_large_as_the_budget_that_comes_before_its_producer_goes_out(broker: DevBroker, topic: str) -> None:
    """Only the producer knows how many bytes it counts for."""

    async def body(client: wireproto.aio.Client) -> None:
        large = bytes(BUDGET - 400)
        places = await asyncio.gather(*(client.producer(topic).send(large) for _ in range(3)))
        assert sorted(place.offset for place in places) == [0, 1, 2]

    run(broker, body, buffer_memory=BUDGET)


def test_refusals_closing_and_rows(broker: DevBroker, topic: str) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        out = await client.producer(topic)
        with pytest.raises(ValueUnsupported, match="null value"):
            out.send(None)
        sent = out.send(b"0")
        rows = Columns.from_rows([b"1", b"2"], keys=[b"k", b"k"])
        places = [await future for future in await out.send_batch(rows)]
        assert (await sent).offset == 0
        assert [place.offset for place in places] == [2]
        last = out.send(b"3")
        await out.close()
        assert last.result().offset == 3
        with pytest.raises(Closed):
            out.send(b"4")
        with pytest.raises(TopicNotExist):
            await client.producer("no-such-topic").send(b"x")

    run(broker, body, timeout=2.0)


# reading ------------------------------------------------------------------------------------------------------------------------------


def test_a_consumer_goes_on_where_its_group_was_and_hands_over(broker: DevBroker, topic: str) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        out = client.producer(topic)
        await asyncio.gather(*(out.send(b"%d" % n) for n in range(10)))
        async with client.consumer(topic, "g") as first:
            assert first.assignment == {(topic, 0)}
            batch = await first.poll(20.0)
            assert batch is not None
            assert await first.lag() == {(topic, 0): 10 - len(batch)}
            await first.commit(batch.next_positions)
        async with client.consumer(topic, "g", auto_commit=True, auto_commit_interval=0.0) as second:
            await second.seek({(topic, 0): wireproto.LogOffset(topic, 0, 4)})
            found = await second.poll(20.0)
            assert found is not None
            assert found.values()[0] == b"4"
            with pytest.raises(Revoked):
                second.pause([("other", 0)])
        assert (await client.admin().group_positions("g", topic))[topic, 0] == found.next_positions[topic, 0]

    run(broker, body)


def test_a_cancelled_poll_loses_no_record_and_two_at_once_are_refused(broker: DevBroker, topic: str) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        out = await client.producer(topic)
        consumer = await client.consumer(topic, "cancelled")
        for n in range(20):
            waits = asyncio.ensure_future(consumer.poll(20.0))
            await asyncio.sleep(0)
            if not waits.done():
                with pytest.raises(ConcurrentUse):
                    await consumer.poll(0.0)
            sending = out.send(b"%d" % n)
            await asyncio.sleep(0.001 * (n % 5))
            waits.cancel()
            await asyncio.gather(waits, return_exceptions=True)
            await sending
            if not waits.cancelled():
                found.extend(waits.result().values())
        while len(found) < 20:
            batch = await consumer.poll(20.0)
            assert batch is not None
            found.extend(batch.values())
        assert found == [b"%d" % n for n in range(20)]

    found: list[bytes] = []
    run(broker, body)


def test_a_worker_acks_and_releases_while_nothing_else_of_it_is_under_way(broker: DevBroker, topic: str) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        await client.producer(topic).send(b"job")
        worker = client.queue(topic, "workers", retry_level=1)
        first = await worker.receive(20.0)
        assert first is not None
        await first.release()
        again = await worker.receive(30.0)
        assert again is not None
        assert (again.value, again.attempt) == (b"job", 2)
        await again.ack()
        with pytest.raises(UsageError, match="acknowledged before"):
            await again.ack()

    run(broker, body)


def test_closing_ends_a_poll_that_waits(broker: DevBroker, topic: str) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        consumer = await client.consumer(topic, "closing")
        waits = asyncio.ensure_future(consumer.poll(50.0))
        await asyncio.sleep(0.05)
        await consumer.close()
        with pytest.raises(Closed):
            await waits
        assert (await client.admin().describe_group("closing")).members == ()

    run(broker, body)


# the rest -----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["role", "client"])
def test_a_close_that_was_cancelled_is_made_good_by_the_next_one(broker: DevBroker, topic: str, by: str) -> None:
    """At whichever turn of the event loop: what was handed out is committed. The next one is the role's, or its client's."""
    commits: list[int] = []

    async def body(client: wireproto.aio.Client) -> None:
        out = client.producer(topic)
        await asyncio.gather(*(out.send(b"%d" % n) for n in range(20)))
        for turns in range(8):
            broker.faults("rocketmq").clear()
            again = wireproto.aio.connect(broker.url("rocketmq"))
            consumer = again.consumer(topic, f"g-{turns}", auto_commit=True)
            batch = await consumer.poll(20.0)
            assert batch is not None
            broker.faults("rocketmq").delay("UpdateConsumerOffset", 0.1)
            closing = asyncio.ensure_future(consumer.close())
            for _ in range(turns):
                await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            if by == "role":
                await consumer.close()
            await again.close()
            places = await client.admin().group_positions(f"g-{turns}", topic)
            commits.append(places[topic, 0].offset if places else -1)
            assert commits[-1] == batch.next_positions[topic, 0].offset

    run(broker, body)


def test_a_client_connects_when_it_is_needed_and_says_whose_port_it_is_not(broker: DevBroker) -> None:
    broker.faults("rocketmq").error("GetBrokerClusterInfo", RequestCodeNotSupported.code)

    async def body(client: wireproto.aio.Client) -> None:
        raise AssertionError("it must not open")

    with pytest.raises(ConnectError, match="a broker's port"):
        run(broker, body)


def test_any_command_is_sent_and_what_there_is_not_is_told(broker: DevBroker, topic: str) -> None:
    async def body(client: wireproto.aio.Client) -> None:
        reply = await client.request(GetMaxOffsetRequest(topic=topic, queue_id=0))
        assert reply.message.offset == 0
        with pytest.raises(RoleUnsupported):
            client.tree()

    run(broker, body)
