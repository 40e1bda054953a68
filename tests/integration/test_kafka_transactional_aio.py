"""Transactions under asyncio on real brokers: what librdkafka's read_committed consumer sees of them, whoever is cancelled and when."""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
import pytest

import wireproto
import wireproto.aio
from brokers import Broker
from kafka_committed import seen, settled
from patience import LONG
from wireproto.aio import Client, Transaction, Transactions
from wireproto.errors import Aborted, BufferFull, Closed, Fenced, OptionError, TimedOut, UsageError, ValueUnsupported
from wireproto.kafka import codes

_numbers = itertools.count()

pytestmark = pytest.mark.parametrize("broker", ["kafka-4.3.1-transactions", "kafka-4.3.1-level-1"], indirect=True)


@pytest.fixture
def name() -> str:
    return f"awaited-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def topic(broker: Broker, name: str) -> str:
    with wireproto.connect(broker.url) as client:
        client.admin().create_topic(f"t-{name}", partitions=2)
    return f"t-{name}"


def run(broker: Broker, body: Callable[[Client], Awaitable[object]], **options: Any) -> None:
    async def main() -> None:
        async with wireproto.aio.connect(broker.url, **options) as client:
            await asyncio.wait_for(body(client), 5 * LONG)  # some do hundreds of transactions, each as slow as the machine

    asyncio.run(main())


async def told(broker: Broker, topic: str, expected: list[bytes], *, ordered: bool = True) -> None:
    """`settled`, which blocks, beside the event loop."""
    await asyncio.to_thread(lambda: settled(broker, topic, expected, ordered=ordered))


def test_every_transaction_is_seen_as_a_whole(broker: Broker, name: str, topic: str) -> None:
    async def body(client: Client) -> None:
        expected: list[bytes] = []
        async with client.transactions(name) as work:
            for number in range(4):
                values = [b"%d-%d" % (number, n) for n in range(3)]
                async with work.begin() as tx:
                    receipts = [await tx.send(value, topic=topic, partition=0) for value in values]
                    await tx.producer(topic).flush()
                    waiting = asyncio.ensure_future(_all(receipts))
                    await told(broker, topic, expected)
                    assert not waiting.done()
                    assert not any(receipt.done for receipt in receipts)
                expected += values
                places = [place.offset for place in await waiting]
                assert places == list(range(places[0], places[0] + 3))
                assert tx.state.value == "committed"
                assert all(receipt.done for receipt in receipts)
                await told(broker, topic, expected)

    run(broker, body)


async def _all(receipts: list[Any]) -> list[Any]:
    return list(await asyncio.gather(*receipts))


def test_rows_records_and_many_coroutines_go_into_one_transaction(broker: Broker, name: str, topic: str) -> None:
    async def body(client: Client) -> None:
        rows = pa.table({"value": pa.array([b"row-%d" % n for n in range(50)], pa.binary()), "topic": [topic] * 50})
        async with client.transactions(name, compression="lz4") as work, work.begin() as tx:
            out = tx.producer(topic)
            await tx.send_batch(rows)
            await asyncio.gather(*(out.send(b"%03d" % n, partition=n % 2) for n in range(300)))
            await out.send_batch(rows.drop_columns(["topic"]), partition=1)
        await told(broker, topic, sorted([b"row-%d" % n for n in range(50)] * 2 + [b"%03d" % n for n in range(300)]), ordered=False)

    run(broker, body)


def test_an_exception_rolls_all_of_it_back(broker: Broker, name: str, topic: str) -> None:
    async def body(client: Client) -> None:
        async with client.transactions(name) as work:
            for number in range(3):
                receipts: list[Any] = []
                with pytest.raises(ZeroDivisionError) as raised:
                    await fail(work, topic, receipts)
                assert not hasattr(raised.value, "__notes__")
                for receipt in receipts:
                    with pytest.raises(Aborted):
                        await receipt
                async with work.begin() as tx:
                    await tx.send(b"kept-%d" % number, topic=topic, partition=0)
        await told(broker, topic, [b"kept-0", b"kept-1", b"kept-2"])

    run(broker, body)


async def fail(work: Transactions, topic: str, receipts: list[Any]) -> None:
    async with work.begin() as tx:
        receipts.append(await tx.send(b"lost", topic=topic, partition=0))
        await tx.producer(topic).flush()
        receipts.append(await tx.send(b"lost, too", topic=topic, partition=1))
        raise ZeroDivisionError


def test_positions_move_with_what_was_made_of_them(broker: Broker, name: str, topic: str) -> None:
    """Consume, process, produce: one transaction in three is rolled back, and worked on again."""

    async def body(client: Client) -> None:
        source = f"in-{name}"
        await client.admin().create_topic(source, partitions=2)
        out = client.producer(source)
        await asyncio.gather(*(out.send(b"%02d" % n, partition=n % 2) for n in range(40)))
        left, rounds = 40, 0
        async with client.consumer(source, name, partition_bytes=1) as log, client.transactions(name) as work:
            while left:
                batch = await log.poll(5.0)
                if batch is None:
                    continue
                rounds += 1
                try:
                    async with work.begin() as tx:
                        for value in batch.values():
                            await tx.send(b"out-" + (value or b""), topic=topic, partition=batch.partition)
                        await tx.commit_positions(log, batch.next_positions)
                        if rounds % 3 == 1:
                            raise ZeroDivisionError
                except ZeroDivisionError:
                    await log.rewind()
                else:
                    left -= len(batch)
            assert {place.offset for place in (await log.committed()).values()} == {20}  # type: ignore[attr-defined]
        async with client.consumer(topic, name, auto_commit=True) as other, client.transactions(name) as work, work.begin() as tx:
            with pytest.raises(UsageError, match="auto_commit"):
                await tx.commit_positions(other)
        await told(broker, topic, [b"out-%02d" % n for n in range(40)], ordered=False)

    run(broker, body)


def test_nothing_is_sent_outside_of_a_transaction(broker: Broker, name: str, topic: str) -> None:
    async def body(client: Client) -> None:
        work = client.transactions(name)
        tx = await work.begin()
        out = tx.producer(topic)
        await out.send(b"first", partition=0)
        await tx.commit()
        for send in (lambda: out.send(b"no"), lambda: tx.send(b"no", topic=topic), lambda: out.send_batch(pa.table({"value": [b"no"]}))):
            with pytest.raises(UsageError):
                await send()
        await tx.commit()  # a second time is no other one
        with pytest.raises(UsageError):
            await tx.abort()
        async with work.begin() as tx:
            with pytest.raises(UsageError, match="open"):
                await work.begin()
            await out.send(b"second", partition=0)
        tx = await work.begin()
        left = await tx.send(b"left open", topic=topic)
        await work.close()
        assert tx.state.value == "rolled back"
        with pytest.raises(Aborted):
            await left
        with pytest.raises(Closed):
            await work.begin()
        await told(broker, topic, [b"first", b"second"])
        with pytest.raises(OptionError):
            async with client.transactions(name, acks="1"):
                pass

    run(broker, body)


def test_what_is_refused_before_it_is_taken_leaves_the_transaction_as_it_is(broker: Broker, name: str, topic: str) -> None:
    async def body(client: Client) -> None:
        async with client.transactions(name) as work, work.begin() as tx:
            await tx.send(b"before", topic=topic, partition=0)
            with pytest.raises(codes.UnknownTopicOrPartition):
                await tx.send(b"no", topic="never-was")
            with pytest.raises(codes.UnknownTopicOrPartition):
                await tx.send_batch(pa.table({"value": [b"no", b"no"], "topic": [topic, "never-was"]}))
            with pytest.raises(ValueUnsupported):
                await tx.send("text", topic=topic)  # type: ignore[arg-type]
            with pytest.raises(OptionError):
                await tx.send(b"no", topic=topic, partition=7)
            with pytest.raises(OptionError):
                await tx.send(b"no", topic=topic, timeout=float("nan"))
            await tx.send(b"behind", topic=topic, partition=0)
        await told(broker, topic, [b"before", b"behind"])

    run(broker, body)


def test_who_takes_the_name_fences_the_one_before(broker: Broker, name: str, topic: str) -> None:
    async def body(client: Client) -> None:
        zombie = client.transactions(name)
        tx = await zombie.begin()
        await tx.send(b"of the zombie", topic=topic, partition=0)
        await tx.producer(topic).flush()
        async with wireproto.aio.connect(broker.url) as other, other.transactions(name) as work:
            async with work.begin() as mine:
                await mine.send(b"of the next", topic=topic, partition=0)
            with pytest.raises(Fenced):
                await tx.commit()
            with pytest.raises(Fenced):
                await zombie.begin()
            listed = await other.admin().list_transactions(states=["CompleteCommit", "PrepareCommit"])
            assert name in [one.name for one in listed]
        await told(broker, topic, [b"of the next"])

    run(broker, body)


# --- no room -----------------------------------------------------------------------------------------------------------------


def test_what_waits_for_room_is_part_of_the_transaction(broker: Broker, name: str, topic: str) -> None:
    """All of it when it commits, none of it when it does not."""

    async def body(client: Client) -> None:
        async with client.transactions(name, linger=1.0) as work:
            tx = await work.begin()
            lost = await asyncio.gather(*(tx.send(b"lost" + b"x" * 5000, topic=topic, partition=0) for _ in range(100)))
            await tx.abort()
            for receipt in lost:
                with pytest.raises(Aborted):
                    await receipt
            async with work.begin() as tx:
                await asyncio.gather(*(tx.send(b"%03d" % n + b"x" * 5000, topic=topic, partition=0) for n in range(100)))
        await told(broker, topic, [b"%03d" % n + b"x" * 5000 for n in range(100)])

    run(broker, body, buffer_memory=65536)


async def filled(work: Transactions, topic: str) -> tuple[Transaction, list[Any]]:
    """A transaction whose records take all the room, the last of them in the queue before it: nobody answers."""
    tx = await work.begin()
    receipts: list[Any] = []
    with pytest.raises(BufferFull):
        await fill(tx, topic, receipts)
    return tx, receipts


async def fill(tx: Transaction, topic: str, receipts: list[Any]) -> None:
    while True:
        receipts.append(await tx.send(b"%03d" % len(receipts) + b"x" * 5000, topic=topic, partition=0, timeout=0.2))


ENDS = ["commit", "leave", "abort", "commit cancelled", "leave cancelled", "abort cancelled"]


@pytest.mark.parametrize("end", ENDS)
def test_what_waits_for_room_at_the_end_belongs_to_it(broker: Broker, name: str, topic: str, fault_proxy: Any, end: str) -> None:
    """Stored with the rest, or dropped with it; and the next transaction has none of it, also where an end was broken off."""

    async def body(client: Client) -> None:
        async with client.transactions(name) as work:
            async with work.begin() as tx:
                await tx.send(b"before", topic=topic, partition=0)
            fault_proxy.stall()
            begun = time.monotonic()
            tx, receipts = await filled(work, topic)
            with pytest.raises(TimedOut):
                await tx.commit(timeout=0.3)
            assert time.monotonic() - begun < 10.0  # and not the half minute that ends have unless they say otherwise
            what = {"commit": tx.commit, "leave": lambda: tx.__aexit__(None, None, None), "abort": tx.abort}[end.split()[0]]
            task = asyncio.ensure_future(what())
            await asyncio.sleep(0)
            if "cancelled" in end:
                task.cancel()
                await asyncio.wait([task])
                assert task.cancelled()
                if "commit" in end:
                    assert tx.state.value == "open"
            fault_proxy.heal()
            if "cancelled" not in end:
                await task
            elif "commit" in end:
                await tx.commit()
            async with work.begin() as tx:
                await tx.send(b"behind", topic=topic, partition=1)
            committed = "commit" in end or end == "leave"
            for receipt in receipts:
                if committed:
                    await receipt
                else:
                    with pytest.raises(Aborted):
                        await receipt
        between = [b"%03d" % n + b"x" * 5000 for n in range(len(receipts))] if committed else []
        await told(broker, topic, [b"before", *between, b"behind"])

    run(broker, body, buffer_memory=65536, address_map=fault_proxy.address_map(broker.addresses))


# --- cancelled ---------------------------------------------------------------------------------------------------------------


async def cancelled_after(task: asyncio.Task[Any], turns: int) -> bool:
    """Cancel it so many turns of the event loop from now; whether that came in time."""
    for _ in range(turns):
        await asyncio.sleep(0)
        if task.done():
            return False
    task.cancel()
    return True


async def whole(work: Transactions, topic: str, value: bytes) -> None:
    async with work.begin() as tx:
        for number in range(2):
            await tx.send(value, topic=topic, partition=number)
        await tx.producer(topic).flush()
        await tx.send(value, topic=topic, partition=0)


def test_whenever_a_transaction_is_cancelled_it_is_whole_or_not_there(broker: Broker, name: str, topic: str) -> None:
    """Each turn of the event loop in which there is something to break off, from its beginning to its end."""

    async def body(client: Client) -> None:
        done: list[bytes] = []
        unsure: list[bytes] = []
        async with client.transactions(name, linger=0.0) as work:
            for turns in itertools.count():
                value = b"%d" % turns
                task = asyncio.ensure_future(whole(work, topic, value))
                if not await cancelled_after(task, turns * (1 + turns // 20)):
                    await task
                    done += [value] * 3
                    break
                with pytest.raises(asyncio.CancelledError):
                    await task
                unsure.append(value)
                if turns % 8 == 0:
                    await whole(work, topic, b"behind " + value)
                    done += [b"behind " + value] * 3
        assert len(unsure) > 5  # how many turns it takes is the machine's
        found = await asyncio.to_thread(seen_at_last, broker, topic, done)
        counts = {value: found.count(value) for value in unsure}
        assert set(counts.values()) <= {0, 3}, counts
        assert sorted(value for value in found if value not in counts) == sorted(done)

    run(broker, body)


def seen_at_last(broker: Broker, topic: str, least: list[bytes]) -> list[bytes]:
    """What is seen when all of `least` is: the last commit was theirs."""
    deadline = time.monotonic() + LONG
    while not set(least) <= set(found := seen(broker, topic)):
        assert time.monotonic() < deadline
    return found


@pytest.mark.parametrize("then", ["commit", "abort", "begin"])
def test_after_a_cancelled_end_there_is_a_way_on(broker: Broker, name: str, topic: str, then: str, fault_proxy: Any) -> None:
    """A commit that waits for records is broken off: it is committed after all, rolled back, or left to the next one, which commits it."""

    async def body(client: Client) -> None:
        async with client.transactions(name) as work:
            for number in range(2):
                async with work.begin() as tx:
                    await tx.send(b"before-%d" % number, topic=topic, partition=0)
            tx = await work.begin()
            fault_proxy.stall()
            await tx.send(b"in between", topic=topic, partition=0)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(tx.commit(), 0.2)
            fault_proxy.heal()
            if then == "commit":
                await tx.commit()
            elif then == "abort":
                await tx.abort()
            async with work.begin() as tx:
                await tx.send(b"behind", topic=topic, partition=0)
        between = [b"in between"] if then != "abort" else []
        await told(broker, topic, [b"before-0", b"before-1", *between, b"behind"])

    run(broker, body, address_map=fault_proxy.address_map(broker.addresses))


def test_a_commit_whose_answer_is_lost_is_a_commit(broker: Broker, name: str, topic: str, fault_proxy: Any) -> None:
    """Its coordinator says so when it is asked again, by another connection; whoever waited meanwhile."""
    recording = fault_proxy.record("kafka")

    async def body(client: Client) -> None:
        async with client.transactions(name) as work:
            for number in range(3):
                tx = await work.begin()
                receipt = await tx.send(b"%d" % number, topic=topic, partition=0)
                await tx.producer(topic).flush()
                recording.clear()
                fault_proxy.drop("down")
                with pytest.raises(TimedOut):
                    await tx.commit(timeout=0.2)
                await asyncio.to_thread(recording.wait, "EndTxn", timeout=LONG)
                fault_proxy.cut()
                fault_proxy.heal()
                with pytest.raises(UsageError):
                    await tx.abort()
                await tx.commit()
                assert (await receipt).topic == topic
        await told(broker, topic, [b"0", b"1", b"2"])

    run(broker, body, address_map=fault_proxy.address_map(broker.addresses))


def test_cancelled_positions_have_it_rolled_back(broker: Broker, name: str, topic: str, fault_proxy: Any) -> None:
    """Nobody knows whether its coordinator has them."""

    async def body(client: Client) -> None:
        await client.producer(topic).send(b"read", partition=0)
        async with client.consumer(topic, name) as log, client.transactions(name) as work:
            while await log.poll(5.0) is None:
                pass
            tx = await work.begin()
            await tx.send(b"made of it", topic=topic, partition=0)
            await tx.producer(topic).flush()
            fault_proxy.stall()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(tx.commit_positions(log), 0.2)
            fault_proxy.heal()
            with pytest.raises(Aborted):
                await tx.commit()
            assert tx.state.value == "rolled back"
            async with work.begin() as tx:
                await tx.send(b"made again", topic=topic, partition=0)
                await tx.commit_positions(log)
            assert [place.offset for place in (await log.committed()).values() if place.offset] == [1]  # type: ignore[attr-defined]
        await told(broker, topic, [b"read", b"made again"])

    run(broker, body, address_map=fault_proxy.address_map(broker.addresses))


def test_who_ceases_to_wait_for_a_receipt_takes_nothing_back(broker: Broker, name: str, topic: str, fault_proxy: Any) -> None:
    async def body(client: Client) -> None:
        async with client.transactions(name) as work:
            async with work.begin() as tx:
                await tx.send(b"first", topic=topic, partition=0)
                await tx.producer(topic).flush()
                fault_proxy.stall()
                receipt = await tx.send(b"sent", topic=topic, partition=0)
                for _ in range(3):
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(receipt, 0.05)
                fault_proxy.heal()
            assert (await receipt).offset == 1
        await told(broker, topic, [b"first", b"sent"])

    run(broker, body, address_map=fault_proxy.address_map(broker.addresses))
