"""Transactions of Kafka on the embedded broker, where a group moves, a record is refused, or a commit is given up in the middle of one."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import patience
import wireproto
from wireproto import LATEST, aio
from wireproto.devbroker import DevBroker
from wireproto.devbroker.faults import Faults
from wireproto.errors import Aborted, Revoked
from wireproto.kafka.codes import RebalanceInProgress

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[DevBroker]:
    with DevBroker(["kafka"]) as made:
        yield made


@pytest.fixture
def faults(broker: DevBroker) -> Iterator[Faults]:
    yield broker.faults("kafka")
    broker.faults("kafka").clear()


@pytest.fixture
def client(broker: DevBroker) -> Iterator[Any]:
    with wireproto.connect(broker.url("kafka"), timeout=10.0) as made:
        yield made


@pytest.fixture
def name(client: Any) -> str:
    """Of the work; the topic that it writes is named so, too, and the one that it reads begins with ``in-``."""
    made = f"within-{next(_numbers)}"
    client.admin().create_topic(made)
    client.admin().create_topic(f"in-{made}", partitions=2)
    with client.producer(f"in-{made}") as producer:
        for number in range(20):
            producer.send(b"%02d" % number, partition=number % 2)
    return made


def stored(client: Any, topic: str) -> list[bytes]:
    """Values of the committed records."""
    with client.reader(topic, stop=LATEST) as reader:
        return [value for batch in reader for value in batch.values()]


def test_positions_of_before_a_rebalance_are_refused_and_the_transaction_with_them(client: Any, faults: Faults, name: str) -> None:
    """What was read of a partition comes again once it was given back, though it is ours again: to commit it would have it twice."""
    moves: list[str] = []
    told = {"on_assigned": lambda _: moves.append("+"), "on_revoked": lambda _: moves.append("-")}
    with client.transactions(name) as work, client.consumer(f"in-{name}", name, heartbeat_interval=0.05, **told) as log:
        places: dict[Any, Any] = {}

        def send_from_poll(turn: Any) -> int:
            batch = log.poll(0.2)
            if batch is None:
                return 0
            for value in batch.values():
                turn.send(value, topic=name)
            places.update(batch.next_positions)
            return len(batch)

        turn = work.begin()
        patience.until(lambda: send_from_poll(turn) and len(places) == 2)
        faults.error("Heartbeat", RebalanceInProgress.code)
        patience.until(lambda: bool(send_from_poll(turn)) and moves == ["+", "-", "+"])
        for end in (lambda: turn.commit_positions(log, places), turn.commit):
            with pytest.raises(Aborted) as caught:
                end()
            assert isinstance(caught.value.__cause__, Revoked)
            assert caught.value.__cause__.partitions == ((f"in-{name}", 0), (f"in-{name}", 1))
        log.rewind()
        left = 20
        while left:
            with work.begin() as turn:
                left -= send_from_poll(turn)
                turn.commit_positions(log, places)
        assert sorted(stored(client, name)) == [b"%02d" % number for number in range(20)]
        assert {place.offset for place in log.committed().values()} == {10}


def test_positions_of_a_partition_that_is_not_ours_roll_back_what_is_awaited(broker: DevBroker, client: Any, name: str) -> None:
    """Under asyncio: who goes on all the same is not let commit what was made of them."""

    async def work() -> None:
        async with (
            aio.connect(broker.url("kafka"), timeout=10.0) as opened,
            opened.consumer(f"in-{name}", name) as log,
            opened.transactions(name) as work,
        ):
            while (batch := await log.poll(1.0)) is None:
                pass
            ((topic, number), place) = next(iter(batch.next_positions.items()))
            tx = await work.begin()
            await tx.send(b"made of it", topic=name)
            with pytest.raises(Aborted):
                await tx.commit_positions(log, {(topic, 7): wireproto.LogOffset(topic, 7, place.offset), (topic, number): place})
            with pytest.raises(Aborted):
                await tx.commit()

    asyncio.run(work())
    assert stored(client, name) == []
